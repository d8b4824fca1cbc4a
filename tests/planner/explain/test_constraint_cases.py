"""Can every constraint be broken? One violating case for each name of the registry, and none without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from constraints.evaluation import Evaluation, evaluate
from constraints.layout import LAYOUT_RULES, layout_excess
from constraints.limits import ExcessTable
from constraints.purchase_problem import broken_rules
from constraints.registry import CONSTRAINTS
from planner.explain import answer as explain
from planner.explain import plan_checks
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.table import Floats
from tests.constraints.test_purchase_model import BREAKS
from tests.support import A100_RENTED, H100_RENTED, job_with

Case = tuple[Job, Mapping[str, object]]
FITS = {"tp": 2, "pp": 2, "dp": 8}


def limited(**limits: float) -> Case:
    return job_with(limits=limits), FITS


def with_little_main_memory() -> Case:
    job = job_with()
    node = job.offers[0].node.model_copy(update={"host_memory_bytes": 1e9})
    offers = (job.offers[0].model_copy(update={"node": node}),)
    return job.model_copy(update={"offers": offers}), {**FITS, "checkpoint_scheme": "in_memory_peer"}


def cases() -> dict[str, Case]:
    """A job and a plan for every constraint of jobs. Llama 3.1 8B: 32 heads, 32 layers, 14,336 columns, 64 sequences."""
    job = job_with()
    return {
        "degrees": (job, {"tp": 2, "dp": 8, "num_gpus": 24}),
        "gpu_range": (job, {"dp": 8}),
        "whole_nodes": (job, {"dp": 20}),
        "attention_heads": (job, {"tp": 3, "dp": 8}),
        "feed_forward": (job, {"tp": 3, "dp": 8}),
        "layers": (job, {"pp": 4, "vpp": 9, "dp": 4}),
        "interleaving": (job, {"pp": 4, "vpp": 2, "dp": 32}),
        "interleaved_groups": (job, {"pp": 4, "vpp": 2, "dp": 4, "interleaved_group_size": 3}),
        "schedule": (job, {"pp": 2, "dp": 8, "pipeline_schedule": "zb_v"}),
        "weight_gradients": (job, {"pp": 2, "dp": 8, "pipeline_schedule": "zb_h1", "recompute": "full"}),
        "batch": (job, {"dp": 24}),
        "sequence": (job, {"cp": 3, "dp": 8}),
        "context_exchange": (
            job_with(workload={"context_exchange": "all_to_all"}),
            {"tp": 4, "cp": 4, "dp": 8},
        ),
        "experts": (job, {"dp": 16, "ep": 2}),
        "number_format": (job_with(A100_RENTED), {"dp": 16, "precision": "fp8"}),
        "recomputed_layers": (job, {"dp": 16, "recompute_num_layers": 2}),
        "shard_groups": (job, {"dp": 16, "shard_ranks": 5}),
        "whole_matrices": (job_with(workload={"muon": {}}), {"dp": 16, "zero_stage": 3}),
        "peer_memory": (job, {"dp": 8, "checkpoint_scheme": "in_memory_peer"}),
        "live_replica": (job, {"dp": 16, "checkpoint_scheme": "just_in_time", "zero_stage": 1}),
        "gradient_mirror": (job, {"dp": 16, "checkpoint_scheme": "gradient_replica", "zero_stage": 3}),
        "server_memory": (
            job_with(checkpointing={"num_servers": 1, "server_memory_bytes": 1e9}),
            {"dp": 16, "checkpoint_scheme": "gradient_replica"},
        ),
        "memory": (job_with({**H100_RENTED}, workload={"model": "llama-3.1-70b"}), {"dp": 16}),
        "host_memory": with_little_main_memory(),
        "progress": (
            job_with(reliability={"failures_per_1000_node_days": 1e4}, workload={"tokens": 5e13}),
            {**FITS, "checkpoint_scheme": "none"},
        ),
        "budget_usd": limited(budget_usd=1.0),
        "budget_probability": limited(budget_usd=1.0, budget_probability=0.9),
        "deadline_days": limited(deadline_days=0.01),
        "deadline_probability": limited(deadline_days=0.01, deadline_probability=0.9),
        "power_w": limited(power_w=1.0),
        "hall_power_w": limited(hall_power_w=1.0),
        "rack_power_w": limited(rack_power_w=1.0),
        "power_swing_w": limited(power_swing_w=1.0),
        "power_range_fraction": limited(power_range_fraction=0.01),
        "power_ramp_w_per_s": limited(power_ramp_w_per_s=0.01),
        "num_gpus": limited(num_gpus=16),
        "carbon_kgco2e": limited(carbon_kgco2e=0.1),
    }


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_every_constraint_is_broken_by_some_case(name: str) -> None:
    if CONSTRAINTS[name].kind == "purchase":
        assert name in broken_rules(*BREAKS[name])
        return
    job, plan = cases()[name]
    states = {check.constraint: check.state for check in explain.explain_plan(job, plan).checks}
    assert states[name] == "broken"


def without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a constraint one that nothing breaks."""
    rules = [rule.name for rule in LAYOUT_RULES]
    column = {"budget_probability": "budget_usd", "deadline_probability": "deadline_days"}.get(name, name)

    def kept_layout(job: Job, plans: PlanTable) -> Floats:
        excess = layout_excess(job, plans).copy()
        excess[:, [rule == name for rule in rules]] = 0.0
        return excess

    def kept_evaluation(job: Job, plans: PlanTable) -> Evaluation:
        found = evaluate(job, plans)
        if column not in ExcessTable.names():
            return found
        return replace(found, excess=replace(found.excess, **{column: np.zeros(len(plans))}))

    monkeypatch.setattr(plan_checks, "layout_excess", kept_layout)
    monkeypatch.setattr(plan_checks, "evaluate", kept_evaluation)
    monkeypatch.setattr(f"{__name__}.broken_rules", lambda *_: set(BREAKS) - {name})


@pytest.mark.short(8)
@pytest.mark.parametrize("name", [name for name in CONSTRAINTS if name != "degrees"])
def test_a_constraint_that_nothing_breaks_would_be_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(name, monkeypatch)
    # Where only the broken rule keeps a layout from being simulated, the simulation has no step to tell of.
    with pytest.raises((AssertionError, ValidationError), match=r"assert|not a finite|should be a finite"):
        test_every_constraint_is_broken_by_some_case(name)


def test_a_plan_that_fits_keeps_every_constraint() -> None:
    loose = {name: 1e12 for name, one in CONSTRAINTS.items() if one.kind == "limit"}
    shares = {"budget_probability": 0.5, "deadline_probability": 0.5, "power_range_fraction": 1.0}
    job = job_with(limits={**loose, **shares, "deadline_days": 3e3, "num_gpus": 1024})
    checks = {check.constraint: check.state for check in explain.explain_plan(job, FITS).checks}
    assert set(checks) == {name for name, one in CONSTRAINTS.items() if one.kind != "purchase"}
    assert set(checks.values()) == {"kept"}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_every_constraint_says_what_it_is(name: str) -> None:
    one = CONSTRAINTS[name]
    assert one.name == name
    assert all((one.sentence, one.formula, one.unit, one.source, one.way_out))
    assert one.sentence[-1] != "."


def test_the_registry_holds_every_rule_and_limit_that_can_be_broken() -> None:
    assert set(CONSTRAINTS) >= {rule.name for rule in LAYOUT_RULES} | set(ExcessTable.names())
    assert {name for name, one in CONSTRAINTS.items() if one.kind == "purchase"} == set(BREAKS)
