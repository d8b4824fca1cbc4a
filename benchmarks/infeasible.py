"""Is every explanation of an impossible job true? Random over-constrained jobs, judged by trying all designs.

    python -m benchmarks.infeasible --jobs 200

Limits are drawn from what designs reach, so that most jobs have limits that can be kept each alone and clash together. For
each job: no design keeps the limits; no design keeps a conflict that is named, and leaving any one limit out of it resolves
it; every proposed change works, and none of its values can be lowered alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from constraints.evaluation import evaluate
from constraints.limits import LIMIT_NAMES, limited_quantities, with_limits
from constraints.space import Space, pruned_space
from planner.infeasible import explain
from planner.job_file import parse_job
from planner.recommendation import Infeasibility
from simulator.job import Job
from simulator.table import Booleans, Floats

LARGEST_SHARE = 0.6
"""Limits are drawn from what the best designs reach, up to this share of all designs for each limit alone."""
HARD_FRACTION = 0.02
"""Share of limits that are drawn below what any design reaches."""
HARDEST = 0.5
"""These are at least this multiple of the least value."""
NEXT_DIGIT = 1.1e-3
"""A proposal is rounded up to four digits, so that this share less is below the least value."""
OFFER_RANGE = {"min": 16, "max": 64}
JOB = {
    "workload": {"model": "llama-3.1-8b", "tokens": 5e10, "sequence_length": 8192, "global_batch_size": 64},
    "offers": [
        {"accelerator": "h100-sxm5-80gb", "num_gpus": OFFER_RANGE, "rent_usd_per_gpu_hour": 2.5},
        {"accelerator": "a100-sxm4-80gb", "num_gpus": OFFER_RANGE, "rent_usd_per_gpu_hour": 1.3},
    ],
    "site": "us-iowa",
    "search": {
        "micro_batch_sizes": [1],
        "zero_stages": [1],
        "power_caps": [1.0, 0.8, 0.6],
        "num_refinements": 0,
    },
}
Limits = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Truth:
    """All designs of the job, simulated."""

    values: Mapping[str, Floats]
    """What limits bound, `(n,)` by limit."""
    is_possible: Booleans
    """Which designs fit memory and come to an end, `(n,)`."""

    def can_keep(self, limits: Limits) -> bool:
        """Whether any design keeps some limits."""
        kept = self.is_possible.copy()
        for name, limit in limits.items():
            kept &= self.values[name] <= limit
        return bool(kept.any())


def all_designs(job: Job, space: Space) -> Truth:
    """Simulates every design."""
    result = evaluate(job, space.designs())
    values = limited_quantities(job, result.plans, result.scores, result.outcomes)
    return Truth(values=values, is_possible=result.excess.is_possible)


def impossible_limits(truth: Truth, random: np.random.Generator) -> Limits:
    """Draws limits until no design keeps them."""
    while True:
        chosen = [name for name in LIMIT_NAMES if random.random() < 0.5]
        limits = {name: _limit(truth.values[name][truth.is_possible], random) for name in chosen}
        if "num_gpus" in limits:
            limits["num_gpus"] = max(1.0, float(int(limits["num_gpus"])))
        if limits and not truth.can_keep(limits):
            return limits


def _limit(values: Floats, random: np.random.Generator) -> float:
    """A limit that some designs reach, or in some cases none."""
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
    truth = all_designs(job, pruned_space(job))
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
