"""How far are the two depths apart on plans, and how long does the deep one take?

    python -m benchmarks.deep_plans

Prints the tables of docs/deep.md: the grid of `tests.simulator.deep.plan_cases`, and a step of Llama 3.1 405B on as many
accelerators as it was trained on and more. Seconds are those of one core in a warm process, building and playing included,
the shortest of three runs.
"""

from __future__ import annotations

import time

from simulator.deep.plan_step import PlanStep, plan_step
from tests.simulator.builders import job_of, plan_of, training
from tests.simulator.deep.plan_cases import FEW, LARGE, Case

NUM_RUNS = 3
ROUNDING_S = 1e-9
REPLICAS = (16, 128, 512)
"""Of 128 accelerators each."""


def timed(case: Case, *, is_folded: bool = True) -> tuple[PlanStep, float]:
    """Returns a played plan and the shortest time that it took."""
    seconds = []
    for _ in range(NUM_RUNS):
        start = time.process_time()
        step = plan_step(case.job, case.plan, is_folded=is_folded)
        seconds.append(time.process_time() - start)
    return step, min(seconds)


def difference(step: PlanStep) -> str:
    """Returns how far the deep depth is from the fast one."""
    return f"{step.step_time_s / float(step.fast.step_time_s[0]) - 1.0:+.2%}".replace(
        "-0.00%", "0.00%"
    ).replace("+0.00%", "0.00%")


def row(*cells: object) -> None:
    """Prints a line of a table."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def grid() -> None:
    """Prints how far the depths are apart."""
    row("plan", "accelerators", "fast, s", "deep, s", "difference", "shared links, s")
    row(*["---"] * 6)
    for name, case in (LARGE | FEW).items():
        step, _ = timed(case)
        fast_s, shared_s = float(step.fast.step_time_s[0]), step.step_time_s - step.unshared_step_time_s
        figures = (
            f"{fast_s:.4g}",
            f"{step.step_time_s:.4g}",
            difference(step),
            f"{shared_s:.2g}" if shared_s > ROUNDING_S else "0",
        )
        row(name, f"{case.plan.num_gpus:,}", *figures)


def sizes() -> None:
    """Prints how long a large step takes, folded, and a small one message by message."""
    row("step", "accelerators", "played", "tasks", "s")
    row(*["---"] * 5)
    for data in REPLICAS:
        job = job_of(training("llama-3.1-405b", sequence_length=8192, global_batch_size=16 * data))
        case = Case(job=job, plan=plan_of(tensor=8, pipeline=16, data=data))
        _size_row("405B", case, is_folded=True)
    for name in ("tensor and data", "experts on two nodes"):
        for is_folded in (True, False):
            _size_row(name, FEW[name], is_folded=is_folded)


def _size_row(name: str, case: Case, *, is_folded: bool) -> None:
    step, seconds = timed(case, is_folded=is_folded)
    figures = (
        f"{case.plan.num_gpus:,}",
        f"{step.roles.num_played:,}",
        f"{len(step.graph):,}",
        f"{seconds:.2f}",
    )
    row(name, *figures)


if __name__ == "__main__":
    grid()
    print()
    sizes()
