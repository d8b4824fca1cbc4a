"""Do proofs of infeasibility account for memory, and for designs between those that the search lists?"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from constraints.answers import with_other_intervals
from constraints.evaluation import Evaluation, evaluate
from constraints.lattice import enumerate_layouts
from constraints.limits import limited_quantities
from constraints.space import pruned_space
from planner.explain.infeasible import explain
from planner.recommended.recommendation import Infeasibility
from simulator.domain.job import Job
from simulator.domain.limits import Limits
from simulator.domain.plan import CheckpointScheme
from simulator.units import DAY
from tests.planner.explained import explained, fits, least
from tests.support import H100_RENTED, job_with


def too_large_for(num_gpus: int) -> Job:
    return job_with({**H100_RENTED, "num_gpus": num_gpus}, workload={"model": "llama-3.1-405b"})


def test_a_model_that_is_too_large_does_not_fit_memory() -> None:
    job = too_large_for(16)
    answer = explain(job, pruned_space(job))
    assert isinstance(answer, Infeasibility)
    assert answer.conflict == ("gpu_range", "memory")
    assert "does not fit the memory" in answer.reasons[0]
    assert answer.relaxations == ()
    # 405e9 parameters x 16 bytes of states over 16 accelerators are 405 GB each, beside activations.
    (least_gib,) = re.findall(
        r"with the lowest memory needs ([\d.]+) GiB on each of 16 h100-sxm5-80gb, which may use 80.0 GiB",
        answer.reasons[1],
    )
    assert 405e9 < float(least_gib) * 2**30 < 520e9
    (nearest,) = re.findall(
        r"layout that fits: .* each of (\d+) h100-sxm5-80gb, which may use 80.0 GiB \(TP", answer.reasons[2]
    )
    assert len(pruned_space(too_large_for(int(nearest))).layouts) > 0
    assert all(len(pruned_space(too_large_for(fewer)).layouts) == 0 for fewer in range(24, int(nearest), 8))


def test_where_the_listed_splits_never_fit_no_number_of_accelerators_is_proposed() -> None:
    job = job_with(
        workload={"model": "llama-3.1-405b"},
        search={"tensor_parallel": [1], "pipeline_parallel": [1], "zero_stages": [0]},
    )
    answer = explain(job, pruned_space(job))
    assert isinstance(answer, Infeasibility)
    assert answer.conflict == ("memory",)
    assert answer.reasons[-1] == "no number of these accelerators has a layout that fits"


@pytest.mark.parametrize(
    ("listed", "is_told"),
    [({}, True), ({"zero_stages": [1, 2, 3]}, False), ({"pipeline_parallel": [1]}, False)],
)
def test_where_nothing_fits_sharding_that_was_not_tried_in_pipelines_is_told(
    listed: dict[str, object], is_told: bool
) -> None:
    job = job_with(workload={"model": "llama-3.1-405b"}, search=listed)
    answer = explain(job, pruned_space(job))
    assert isinstance(answer, Infeasibility)
    way_out = (
        "pipelines were tried with ZeRO stage 1 alone; search.zero_stages=[1, 2, 3] tries all in them, too"
    )
    assert (way_out in answer.reasons) == is_told


def test_a_proof_names_memory_where_layouts_that_do_not_fit_would_keep_the_limits() -> None:
    # Sixteen accelerators draw little enough, but 70 billion parameters with all their states need more of them.
    job = job_with(workload={"model": "llama-3.1-70b"}, search={"micro_batch_sizes": [1], "zero_stages": [0]})
    bounds = pruned_space(job).bounds
    watts = float(bounds.power_w.min())
    assert watts < float(bounds.power_w[bounds.fits_memory].min())
    answer = explained({"power_w": watts * 1.001}, job)
    assert answer.conflict == ("power_w",)
    assert "meets memory and power_w, even at bounds" in answer.proof
    assert "meets power_w, even at bounds" in explained({"power_w": watts * 0.5}, job).proof


def job_with_main_memory(job: Job, host_memory_bytes: float) -> Job:
    node = job.offers[0].node.model_copy(update={"host_memory_bytes": host_memory_bytes})
    return job.model_copy(update={"offers": (job.offers[0].model_copy(update={"node": node}),)})


def test_the_nearest_design_is_one_that_other_limits_make_possible() -> None:
    # Saves to a peer are cheaper than blocking ones, but just do not fit the nodes: no limit on money changes that.
    job = job_with(
        search={
            "micro_batch_sizes": [1],
            "checkpoint_schemes": ["in_memory_peer", "sync_sharded"],
            "tensor_parallel": [8],
        },
        limits={"budget_usd": 1000.0, "power_w": 1000.0},
    )
    space = pruned_space(job)
    needs = evaluate(job, space.under({}).designs()).outcomes.checkpoints.host_memory_bytes
    job = job_with_main_memory(job, float(needs.max()) * 0.2499)  # blocking saves need a quarter
    answer = explain(job, pruned_space(job))
    assert isinstance(answer, Infeasibility)
    assert answer.relaxations[0].example.plan.checkpoint_scheme == "sync_sharded"
    assert fits(answer.relaxations[0].limits, job)


def test_saves_that_need_more_than_the_main_memory_are_no_matter_of_limits() -> None:
    job = job_with(limits={"budget_usd": 1e9}, search={"checkpoint_schemes": ["in_memory_peer"]})
    job = job_with_main_memory(job, 1e9)
    answer = explain(job, pruned_space(job))
    assert isinstance(answer, Infeasibility)
    assert answer.conflict == ("host_memory",)
    assert "host memory" in answer.reasons[0]
    assert answer.relaxations == ()


def simulated(job: Job, **columns: float) -> Evaluation:
    """The layouts of a job, blind to its limits, run as the columns say."""
    layouts = enumerate_layouts(job)
    changed = {
        name: np.full(len(layouts), value, dtype=getattr(layouts, name).dtype)
        for name, value in columns.items()
    }
    return evaluate(job, replace(layouts, **changed))


def test_a_design_between_no_spares_and_enough_is_not_proven_away() -> None:
    # Of 64 H100 two spares suffice: with none the run waits too long, and two cost too much.
    job = job_with(
        {**H100_RENTED, "num_gpus": 64},
        search={"micro_batch_sizes": [1], "num_refinements": 5, "checkpoint_schemes": ["in_memory_peer"]},
        objectives=["time_to_train", "cost"],
    )
    one = simulated(job, num_spare_nodes=1, checkpoint_scheme=CheckpointScheme.IN_MEMORY_PEER.code)
    best = int(np.argmin(np.where(one.excess.is_possible, one.outcomes.run.wall_time_s, np.inf)))
    limits = {
        "deadline_days": float(one.outcomes.run.wall_time_s[best]) / 86_400 * 1.00001,
        "budget_usd": float(one.scores.cost_usd[best]) * 1.00001,
    }
    limited = job.model_copy(update={"limits": Limits.model_validate(limits)})
    assert not evaluate(limited, pruned_space(limited).designs()).is_feasible.any()
    found = explain(limited, pruned_space(limited))
    assert isinstance(found, Evaluation)
    assert found.is_feasible.all()
    assert set(found.plans.num_spare_nodes.tolist()) == {1}


def test_a_power_cap_between_those_that_are_listed_is_not_proven_away() -> None:
    job = job_with(
        {**H100_RENTED, "num_gpus": 64},
        search={"micro_batch_sizes": [1], "num_refinements": 5, "power_caps": [1.0, 0.6]},
    )
    between = simulated(job, power_cap_fraction=0.8)
    best = int(np.argmin(np.where(between.excess.is_possible, between.outcomes.run.wall_time_s, np.inf)))
    limits = {
        "deadline_days": float(between.outcomes.run.wall_time_s[best]) / 86_400 * 1.001,
        "power_w": float(between.outcomes.power.peak_power_w[best]) * 1.001,
    }
    limited = job.model_copy(update={"limits": Limits.model_validate(limits)})
    assert not evaluate(limited, pruned_space(limited).designs()).is_feasible.any()
    found = explain(limited, pruned_space(limited))
    assert isinstance(found, Evaluation)
    assert found.is_feasible.all()
    assert (found.plans.power_cap_fraction < 1.0).all()
    assert (found.plans.power_cap_fraction > 0.6).all()


@pytest.mark.long
def test_an_interval_that_saves_carbon_rather_than_time_is_not_proven_away() -> None:
    job = job_with(search={"micro_batch_sizes": [1], "num_refinements": 5, "power_caps": [0.8]})
    whole = evaluate(job, pruned_space(job).designs())
    used_s = whole.outcomes.run.checkpoint_interval_s
    least = min(
        evaluate(job, replace(whole.plans, checkpoint_interval_s=used_s * factor)).scores.carbon_kgco2e.min()
        for factor in (0.5, 0.6, 0.7, 0.8, 0.9)
    )
    assert least < whole.scores.carbon_kgco2e.min()
    limit = {"carbon_kgco2e": float(least) * (1.0 + 1e-6)}
    limited = job.model_copy(update={"limits": Limits.model_validate(limit)})
    found = explain(limited, pruned_space(limited))
    assert isinstance(found, Evaluation)
    assert found.is_feasible.all()


def test_a_proof_names_the_caps_and_spares_that_it_went_through() -> None:
    search = {"micro_batch_sizes": [1], "zero_stages": [1], "power_caps": [1.0, 0.9]}
    limits = {"power_w": least("power_w") * 0.4}
    listed = explained(limits, job_with(search=search)).proof
    assert "power caps considered: 1, 0.9 " in listed
    assert "spare nodes: as many as needed and none" in listed
    refined = explained(limits, job_with(search={**search, "num_refinements": 1})).proof
    assert "power caps considered: 1, 0.95, 0.9 " in refined
    assert "spare nodes: every number up to as many as needed" in refined


def test_a_proof_tries_other_intervals_where_these_make_runs_surer() -> None:
    # The interval that loses least on average lets single failures undo hours, which late runs pay for.
    one_layout = {
        "micro_batch_sizes": [1],
        "zero_stages": [1],
        "recompute": ["none"],
        "tensor_parallel": [1],
        "pipeline_parallel": [1],
        "context_parallel": [1],
        "checkpoint_schemes": ["sync"],
        "with_spares": [False],
        "num_refinements": 1,
    }
    free = job_with(
        {**H100_RENTED, "num_gpus": 16},
        workload={"model": "llama-3.2-1b", "tokens": 3e11},
        reliability={"preset": "mature", "straggler_log_mean": None},
        limits={"deadline_days": 100.0, "deadline_probability": 0.99},
        search=one_layout,
    )
    design = enumerate_layouts(free)
    found = evaluate(free, design)
    outcomes = found.outcomes
    others = with_other_intervals(
        free, design, outcomes.run.checkpoint_interval_s, outcomes.checkpoints.stall_s
    )
    late = [_late_days(free, evaluate(free, plans)) for plans in (design, others)]
    assert late[1] < 0.99 * late[0]
    between = 0.5 * (late[0] + late[1])
    job = free.model_copy(update={"limits": free.limits.model_copy(update={"deadline_days": between})})
    answer = explain(job, pruned_space(job))
    assert isinstance(answer, Evaluation)
    assert answer.is_feasible.all()


def _late_days(job: Job, found: Evaluation) -> float:
    quantities = limited_quantities(job, found.plans, found.scores, found.outcomes)
    return float(quantities["deadline_days"].min())


def test_an_interval_that_the_job_gives_stays_in_proofs() -> None:
    search = {"checkpoint_schemes": ["sync"], "micro_batch_sizes": [1], "num_refinements": 1}
    free = job_with(search=search, checkpointing={"interval_s": 60.0}, limits={"deadline_days": 100.0})
    space = pruned_space(free)
    least_days = float(evaluate(free, space.designs()).outcomes.run.wall_time_s.min()) / DAY
    limits = Limits(deadline_days=0.999 * least_days)
    job = free.model_copy(update={"limits": limits})
    answer = explain(job, pruned_space(job))
    assert isinstance(answer, Infeasibility)
    (relaxation,) = answer.relaxations
    assert relaxation.limits["deadline_days"] >= least_days
    assert relaxation.example.checkpoint_interval_s == 60.0
