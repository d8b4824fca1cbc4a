"""Does a folded step on nodes of one's own take as long as message by message, and is it refused where nodes differ?"""

from __future__ import annotations

import pytest

from simulator import catalog
from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.networks.described_network import RingNetwork
from simulator.deep.networks.network_file import NetworkFile
from simulator.deep.plans.plan_cluster import Faults
from simulator.deep.plans.plan_on_network import plan_on
from simulator.deep.plans.plan_on_nodes import plan_on_nodes, regular_nodes
from simulator.errors import InputError
from tests.simulator.builders import changed, job_of, plan_of, training
from tests.simulator.deep.plan_cases import LARGE, NODES, Case

EIGHT_LAYERS = catalog.model("llama-3.1-8b").model_copy(update={"num_layers": 8})
SHORT = job_of(training(EIGHT_LAYERS, sequence_length=8192, global_batch_size=16))
"""Four micro-batches of each of four replicas."""
TENSOR = Case(job=SHORT, plan=plan_of(tensor=8, data=4))
CASES = {
    "tensor": TENSOR,
    "pipeline": Case(job=SHORT, plan=plan_of(tensor=4, pipeline=2, data=4)),
    "data": LARGE["8b data"],
    "keys gathered": LARGE["8b keys gathered"],
}


@pytest.mark.parametrize("name", CASES)
def test_it_takes_as_long_as_message_by_message(name: str) -> None:
    case = CASES[name]
    whole = plan_on(case.job, case.plan, NODES.build(), algorithm=Algorithm.NCCL)
    part = plan_on_nodes(case.job, case.plan, NODES)
    assert part.roles.is_folded
    assert part.roles.num_played < whole.roles.num_played
    # Rings through all cards here, reductions inside nodes and across one after the other there: 0.3 % of such steps.
    assert part.step_time_s == pytest.approx(whole.step_time_s, rel=5e-3)
    assert part.fast.step_time_s[0] == whole.fast.step_time_s[0]


@pytest.mark.short(3)
@pytest.mark.parametrize("is_beside", [False, True])
@pytest.mark.parametrize("speed", [0.8, 0.5, 0.25])
def test_a_slow_accelerator_is_as_slow_as_message_by_message(*, is_beside: bool, speed: float) -> None:
    workload = changed(TENSOR.job.workload, overlaps_input_gradients=is_beside)
    job = TENSOR.job.model_copy(update={"workload": workload})
    faults = Faults(speed={3: speed})
    whole = plan_on(job, TENSOR.plan, NODES.build(), faults=faults, algorithm=Algorithm.NCCL)
    part = plan_on_nodes(job, TENSOR.plan, NODES, faults=faults)
    assert part.step_time_s == pytest.approx(whole.step_time_s, rel=5e-3)


def test_an_accelerator_that_there_is_not_cannot_be_slow() -> None:
    with pytest.raises(InputError, match="must be the number of an accelerator, 0 to 31"):
        plan_on_nodes(TENSOR.job, TENSOR.plan, NODES, faults=Faults(speed={32: 0.5}))


def test_nodes_are_alike_on_rails_with_a_card_for_each_accelerator() -> None:
    assert regular_nodes(NetworkFile(network=NODES)) == NODES
    same = NODES.model_copy(update={"cards_per_node": 8})
    assert regular_nodes(NetworkFile(network=same)) == same


def test_four_cards_of_each_accelerator_are_one_of_four_times_the_bandwidth() -> None:
    four = NODES.model_copy(update={"cards_per_node": 32, "card_bytes_per_s": NODES.card_bytes_per_s / 4})
    assert regular_nodes(NetworkFile(network=four)) == four
    one_s, four_s = (plan_on_nodes(TENSOR.job, TENSOR.plan, each).step_time_s for each in (NODES, four))
    assert four_s == one_s
    one, bundled = NODES.build(), four.build()
    assert bundled.vertex_names == one.vertex_names
    assert (bundled.bandwidth_bytes_per_s == one.bandwidth_bytes_per_s).all()


@pytest.mark.parametrize(
    "change", [{"cards_per_node": 4}, {"is_rail_optimized": False}, {"fabric_ramp_s": 1e-6}], ids=str
)
def test_other_nodes_are_not_folded(change: dict[str, object]) -> None:
    assert regular_nodes(NetworkFile(network=NODES.model_copy(update=change))) is None


def test_slow_links_and_other_networks_are_not_folded() -> None:
    assert regular_nodes(NetworkFile(network=NODES, slow_links={"card:3": 0.5})) is None
    ring = RingNetwork(kind="ring", num_gpus=8, bandwidth_bytes_per_s=1e9, latency_s=0.0)
    assert regular_nodes(NetworkFile(network=ring)) is None


def test_a_plan_fits_on_the_nodes() -> None:
    few = NODES.model_copy(update={"num_nodes": 2})
    with pytest.raises(InputError, match="must be at most 16, the accelerators of the nodes"):
        plan_on_nodes(TENSOR.job, TENSOR.plan, few)
