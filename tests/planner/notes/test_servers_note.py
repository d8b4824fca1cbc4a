"""Does a note name servers that a design needs but its cost does not include?"""

from __future__ import annotations

import pytest

from planner import play_job_goodput, recommend
from planner.one_design.simulated_design import simulate_plan
from simulator.domain.plan import CheckpointScheme
from tests.simulator.builders import job_of, plan_of, training

JOB = job_of(training("llama-3.1-8b", global_batch_size=64))
# 16 bytes of weights and states for each of 8.03e9 parameters, 300e9 bytes of memory a server (FlowCheck, EuroSys 2025).
REMARK = (
    "Saves go to 1 server in addition to the nodes. The results include the power of this server, 800 W before cooling, "
    "but not the price."
)


@pytest.mark.parametrize("scheme", [CheckpointScheme.GRADIENT_REPLICA, CheckpointScheme.GRADIENT_ASSISTED])
def test_servers_of_a_plan_are_told_with_what_their_cost_leaves_out(scheme: CheckpointScheme) -> None:
    plan = plan_of(tensor=2, data=8).model_copy(update={"checkpoint_scheme": scheme})
    given = {"tp": 2, "dp": 8, "checkpoint_scheme": scheme.value}
    found = simulate_plan(JOB, plan, with_sensitivities=False).warnings
    run = play_job_goodput(JOB, given, num_replications=2).of_job
    assert run is not None
    for warnings in (found, run.warnings):
        assert (REMARK in warnings) == (scheme is CheckpointScheme.GRADIENT_REPLICA)


@pytest.mark.long
def test_a_recommended_design_has_the_remark() -> None:
    schemes = (CheckpointScheme.GRADIENT_REPLICA,)
    search = JOB.search.model_copy(update={"checkpoint_schemes": schemes, "num_refinements": 0})
    offer = JOB.offers[0].model_copy(
        update={"num_gpus": JOB.offers[0].num_gpus.model_copy(update={"max": 16})}
    )
    answer = recommend(JOB.model_copy(update={"search": search, "offers": (offer,)}))
    assert any(
        "in addition to the nodes. The results include the power of" in warning for warning in answer.warnings
    )


def test_several_servers_are_counted_from_the_design_that_was_simulated() -> None:
    """With 75 GB of memory each, two servers hold the 128 GB of weights, states and gradients; each takes 800 W."""
    quarter = JOB.checkpointing.server_memory_bytes / 4.0
    small = JOB.model_copy(
        update={"checkpointing": JOB.checkpointing.model_copy(update={"server_memory_bytes": quarter})}
    )
    plan = plan_of(tensor=2, data=8).model_copy(
        update={"checkpoint_scheme": CheckpointScheme.GRADIENT_REPLICA}
    )
    found = simulate_plan(small, plan, with_sensitivities=False).warnings
    words = "to 2 servers in addition to the nodes. The results include the power of these servers, 1.60 kW before"
    assert any(words in warning for warning in found)
