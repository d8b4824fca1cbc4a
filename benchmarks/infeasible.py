"""Is every explanation of an impossible job true? Random over-constrained jobs, judged by trying all designs.

    python -m benchmarks.infeasible --jobs 200

For each job: no design keeps the limits; the limits that are named cannot be kept together, and when a change of one of them
is proposed, leaving any one out resolves the conflict; every proposed change works, and a single one is the smallest that does.
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

LOWEST, HIGHEST = 0.5, 1.6
"""Limits are drawn between these multiples of the least value that any design reaches."""
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
        chosen = random.random(len(LIMIT_NAMES)) < 0.6
        limits = {
            name: float(truth.values[name][truth.is_possible].min() * random.uniform(LOWEST, HIGHEST))
            for name, is_chosen in zip(LIMIT_NAMES, chosen, strict=True)
            if is_chosen
        }
        if "num_gpus" in limits:
            limits["num_gpus"] = max(1, int(limits["num_gpus"]))
        if limits and not truth.can_keep(limits):
            return limits


def faults(truth: Truth, limits: Limits, answer: object) -> list[str]:
    """Returns what is not true of an explanation."""
    if not isinstance(answer, Infeasibility):
        return ["a design was found that does not exist"]
    conflict = {name: limits[name] for name in answer.conflict}
    found = ["the limits named can be kept together"] if truth.can_keep(conflict) else []
    singles = [relaxation for relaxation in answer.relaxations if len(relaxation.limits) == 1]
    if singles:
        without = [{other: conflict[other] for other in conflict if other != name} for name in conflict]
        found += ["a limit named is not needed for the conflict"] * (not all(map(truth.can_keep, without)))
    for relaxation in answer.relaxations:
        if not truth.can_keep({**limits, **relaxation.limits}):
            found.append("a proposed change does not help")
    for relaxation in singles:
        ((name, value),) = relaxation.limits.items()
        lower = value - 1.0 if name == "num_gpus" else value * (1.0 - NEXT_DIGIT)
        if truth.can_keep({**limits, name: lower}):
            found.append("a smaller change would help")
    return found if answer.relaxations else [*found, "no change is proposed"]


def main() -> None:
    """Explains random jobs and prints how many explanations hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    job = parse_job(JOB)
    truth = all_designs(job, pruned_space(job))
    seconds, num_wrong, num_joint = [], 0, 0
    for number in range(arguments.jobs):
        limits = impossible_limits(truth, random)
        limited = with_limits(job, limits)
        started_s = time.perf_counter()
        answer = explain(limited, pruned_space(limited))
        seconds.append(time.perf_counter() - started_s)
        if isinstance(answer, Infeasibility):
            num_joint += any(len(relaxation.limits) > 1 for relaxation in answer.relaxations)
        if wrong := faults(truth, limits, answer):
            num_wrong += 1
            print(f"job {number}: {limits}: {'; '.join(wrong)}")
    print(
        f"{arguments.jobs} jobs without a design among {len(truth.is_possible):,}: {num_wrong} explanations wrong; "
        f"{num_joint} with limits that have to give way together; {median(seconds):.2f} s each"
    )


if __name__ == "__main__":
    main()
