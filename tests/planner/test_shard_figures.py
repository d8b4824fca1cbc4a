"""Do the rules on shard groups and live replicas tell all that they compare, and what would help?"""

from __future__ import annotations

from constraints.registry import CONSTRAINTS
from planner.layout_figures import layout_figures
from tests.simulator.builders import changed, job_of, plan_of, training

DENSE = {"shard_ranks", "context_parallel", "data_parallel", "zero_stage"}
OF_EXPERTS = {"tensor_parallel", "expert_parallel", "expert_tensor_parallel"}


def test_a_rule_on_shard_groups_tells_the_zero_stage_and_for_experts_the_ranks_that_share_them() -> None:
    plan = changed(plan_of(), shard_ranks=8, zero_stage=0)
    assert layout_figures(job_of(), plan, "shard_groups").keys() == DENSE
    assert layout_figures(job_of(training("mixtral-8x7b")), plan, "shard_groups").keys() == DENSE | OF_EXPERTS
    way_out = CONSTRAINTS["shard_groups"].way_out
    assert "zero_stage" in way_out
    assert "search.hybrid_sharding" in way_out


def test_a_rule_on_live_replicas_tells_the_ranks_over_which_copies_of_experts_are_counted() -> None:
    names = layout_figures(job_of(training("mixtral-8x7b")), plan_of(), "live_replica").keys()
    assert names >= OF_EXPERTS | {"context_parallel", "data_parallel"}  # D c t >= 2 e t_e
