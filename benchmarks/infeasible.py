"""Is every explanation of an infeasible job true? Random over-constrained jobs, judged by trying all designs.

    python -m benchmarks.infeasible --jobs 200

Limits are drawn from what designs reach, so that in most jobs each limit can be met alone, but not all together. For each job,
no design may meet the limits. No design may meet a named conflict, and dropping any one limit from it must resolve it. Every
proposed change must work, and none of its values can be lowered alone. "All designs" are those that a search lists, and those
that refinement may derive from them: every number of spare nodes, power caps in steps of 0.05, other intervals between saves.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from benchmarks.search_jobs import SCHEMES
from constraints.evaluation import evaluate
from constraints.limits import LIMIT_NAMES, limited_quantities, with_limits
from constraints.space import pruned_space
from planner.explain.infeasible import explain
from planner.job.file import parse_job
from planner.recommended.recommendation import Infeasibility
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.simulate import simulate
from simulator.table import Booleans, Floats

LARGEST_SHARE = 0.6
"""Each limit is drawn so that at most this share of all designs, the best ones, meets it."""
HARD_FRACTION = 0.02
"""Share of limits that are drawn below the least value of all designs."""
HARDEST = 0.5
"""Such limits are at least this multiple of the least value."""
NEXT_DIGIT = 1.1e-3
"""A proposal is rounded up to four digits, so a value lower by this share is below the least possible one."""
OFFER_RANGE = {"min": 16, "max": 64}
SEARCH: dict[str, object] = {
    "micro_batch_sizes": [1],
    "zero_stages": [1],
    "checkpoint_schemes": SCHEMES,
    "power_caps": [1.0, 0.8, 0.6],
    "with_spares": [True, False],
}
JOB: dict[str, object] = {
    "workload": {"model": "llama-3.1-8b", "tokens": 5e10, "sequence_length": 8192, "global_batch_size": 64},
    "offers": [
        {"accelerator": "h100-sxm5-80gb", "num_gpus": OFFER_RANGE, "rent_usd_per_gpu_hour": 2.5},
        {"accelerator": "a100-sxm4-80gb", "num_gpus": OFFER_RANGE, "rent_usd_per_gpu_hour": 1.3},
    ],
    "site": "us-iowa",
    "search": SEARCH,
}
CAPS = [1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6]
"""Caps between the lowest and the highest of the job, in steps of 0.05."""
INTERVAL_FACTORS = (0.25, 0.5, 0.71, 0.84, 1.0, 1.19, 1.41, 2.0, 4.0)
"""Intervals between saves, as multiples of the optimal one."""
DESIGNS_TOGETHER = 20_000
Limits = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Truth:
    """All designs of the job, simulated."""

    values: Mapping[str, Floats]
    """The quantities that limits bound, `(n,)` by limit."""
    is_possible: Booleans
    """Which designs fit into memory and finish, `(n,)`."""

    def can_keep(self, limits: Limits) -> bool:
        """Returns whether any design meets the given limits."""
        kept = self.is_possible.copy()
        for name, limit in limits.items():
            kept &= self.values[name] <= limit
        return bool(kept.any())


def all_designs() -> Truth:
    """Simulates every design of the job, run in every way that refinement may choose."""
    search = {**SEARCH, "power_caps": CAPS, "num_refinements": 0}
    job = parse_job({**JOB, "search": search})
    found = [truth_of(job, designs) for designs in pruned_space(job).design_batches(DESIGNS_TOGETHER)]
    return Truth(
        values={name: np.concatenate([part.values[name] for part in found]) for name in LIMIT_NAMES},
        is_possible=np.concatenate([part.is_possible for part in found]),
    )


def truth_of(job: Job, designs: PlanTable) -> Truth:
    """Simulates designs with every number of spares up to their own, and each with some intervals between saves."""
    row = np.repeat(np.arange(len(designs)), np.maximum(1, designs.num_spare_nodes))
    spares = [
        number
        for most in designs.num_spare_nodes.tolist()
        for number in (range(1, most + 1) if most else [0])
    ]
    plans = replace(designs.take(row), num_spare_nodes=np.array(spares))
    best_s = simulate(job, plans).run.checkpoint_interval_s
    parts = [
        evaluate(job, replace(plans, checkpoint_interval_s=best_s * factor)) for factor in INTERVAL_FACTORS
    ]
    values = [limited_quantities(job, part.plans, part.scores, part.outcomes) for part in parts]
    return Truth(
        values={name: np.concatenate([each[name] for each in values]) for name in LIMIT_NAMES},
        is_possible=np.concatenate([part.excess.is_possible for part in parts]),
    )


def impossible_limits(truth: Truth, random: np.random.Generator) -> Limits:
    """Draws limits until no design meets them."""
    while True:
        chosen = [name for name in LIMIT_NAMES if random.random() < 0.5]
        limits = {name: _limit(truth.values[name][truth.is_possible], random) for name in chosen}
        if "num_gpus" in limits:
            limits["num_gpus"] = max(1.0, float(int(limits["num_gpus"])))
        if limits and not truth.can_keep(limits):
            return limits


def _limit(values: Floats, random: np.random.Generator) -> float:
    """Draws a limit that some designs meet, or sometimes none."""
    if random.random() < HARD_FRACTION:
        return float(values.min() * random.uniform(HARDEST, 1.0))
    return float(np.quantile(values, random.uniform(0.0, LARGEST_SHARE)) * (1.0 + NEXT_DIGIT))


def faults(truth: Truth, limits: Limits, answer: object) -> list[str]:
    """Returns what is not true of an explanation."""
    if not isinstance(answer, Infeasibility):
        return ["a design was found that does not exist"]
    found = [] if answer.conflicts else ["no conflict is named"]
    for names in answer.conflicts:
        conflict = {name: limits[name] for name in names}
        if truth.can_keep(conflict):
            found.append("the limits of a conflict can be kept together")
        if not all(truth.can_keep(_without(conflict, name)) for name in names):
            found.append("a limit named is not needed for its conflict")
    for relaxation in answer.relaxations:
        relaxed = {**limits, **relaxation.limits}
        if not truth.can_keep(relaxed):
            found.append("a proposed change does not help")
        if any(truth.can_keep({**relaxed, name: _less(name, relaxed[name])}) for name in relaxation.limits):
            found.append("a smaller change would help")
    return found if answer.relaxations else [*found, "no change is proposed"]


def _without(limits: Limits, left_out: str) -> Limits:
    return {name: limit for name, limit in limits.items() if name != left_out}


def _less(name: str, value: float) -> float:
    """The next smaller value that a proposal could have had."""
    return value - 1.0 if name == "num_gpus" else value * (1.0 - NEXT_DIGIT)


def main() -> None:
    """Explains random jobs and prints how many explanations hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    job = parse_job(JOB)
    truth = all_designs()
    seconds: list[float] = []
    num_wrong = num_single = num_clashing = 0
    for number in range(arguments.jobs):
        limits = impossible_limits(truth, random)
        limited = with_limits(job, limits)
        started_s = time.perf_counter()
        answer = explain(limited, pruned_space(limited))
        seconds.append(time.perf_counter() - started_s)
        if isinstance(answer, Infeasibility):
            num_single += any(len(relaxation.limits) == 1 for relaxation in answer.relaxations)
            num_clashing += any(len(conflict) > 1 for conflict in answer.conflicts)
        if wrong := faults(truth, limits, answer):
            num_wrong += 1
            print(f"job {number}: {limits}: {'; '.join(wrong)}")
    print(
        f"{arguments.jobs} jobs without a design among {len(truth.is_possible):,}: {num_wrong} explanations wrong; "
        f"{num_single} that one limit can resolve, {num_clashing} with limits that only clash together; "
        f"{median(seconds):.2f} s each"
    )


if __name__ == "__main__":
    main()
