"""How far are the two depths apart on plans, and how long does the deep one take?

    python -m benchmarks.deep_plans            prints the tables of docs/deep/plans.md
    python -m benchmarks.deep_plans --page     writes the first of them into that page

The grid is that of `tests.simulator.deep.plan_cases`, whose tests compare the page with it. The second table has a step of
Llama 3.1 405B on as many accelerators as it was trained on, and on more. Seconds are of one core in a warm process, including
building and playing, the shortest of three runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.sheets import markdown_row
from docs.markdown import replaced
from simulator.deep.plans.plan_step import PlanStep, plan_step
from tests.simulator.builders import job_of, plan_of, training
from tests.simulator.deep.plan_cases import APART, FEW, LARGE, Case

PAGE = Path(__file__).parents[1] / "docs" / "deep" / "plans.md"
GRID = LARGE | APART | FEW
HEADER = ("plan", "accelerators", "fast, s", "deep, s", "difference", "shared links, s")
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
    print(markdown_row(*cells))


def grid_line(name: str, case: Case, step: PlanStep) -> str:
    """Returns how far the depths are apart on one plan, as a line of the page."""
    fast_s, shared_s = float(step.fast.step_time_s[0]), step.step_time_s - step.unshared_step_time_s
    return markdown_row(
        name,
        f"{case.plan.num_gpus:,}",
        f"{fast_s:.4g}",
        f"{step.step_time_s:.4g}",
        difference(step),
        f"{shared_s:.2g}" if shared_s > ROUNDING_S else "0",
    )


def grid() -> str:
    """Returns the table of how far the depths are apart."""
    rows = (grid_line(name, case, plan_step(case.job, case.plan)) for name, case in GRID.items())
    return "\n".join([markdown_row(*HEADER), markdown_row(*["---"] * len(HEADER)), *rows])


def size_cases() -> Iterator[tuple[str, Case, bool]]:
    """Yields what the second table has: a large step, folded, and small ones folded and message by message."""
    for data in REPLICAS:
        job = job_of(training("llama-3.1-405b", sequence_length=8192, global_batch_size=16 * data))
        yield "405B", Case(job=job, plan=plan_of(tensor=8, pipeline=16, data=data)), True
    for name in ("tensor and data", "experts on two nodes"):
        for is_folded in (True, False):
            yield name, FEW[name], is_folded


def size_cells(name: str, step: PlanStep) -> tuple[str, ...]:
    """Returns how large a step is, as cells of the second table."""
    return name, f"{step.cluster.num_gpus:,}", f"{step.roles.num_played:,}", f"{len(step.graph):,}"


def sizes() -> None:
    """Prints how long large and small steps take."""
    row("step", "accelerators", "played", "tasks", "s")
    row(*["---"] * 5)
    for name, case, is_folded in size_cases():
        step, seconds = timed(case, is_folded=is_folded)
        row(*size_cells(name, step), f"{seconds:.2f}")


def main() -> None:
    """Prints both tables, or writes the first."""
    parser = argparse.ArgumentParser(description="Compare the depths on plans.")
    parser.add_argument(
        "--page", action="store_true", help="write the grid into docs/deep/plans.md; print nothing"
    )
    if parser.parse_args().page:
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), "depths", grid()), encoding="utf-8")
        return
    print(grid())
    print()
    sizes()


if __name__ == "__main__":
    main()
