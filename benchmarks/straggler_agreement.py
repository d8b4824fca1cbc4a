"""How close are the fast formulas for straggler slow-downs to simulated replicas, and how long do they take?

    python -m benchmarks.straggler_agreement

Covers every preset without episodes on designs of many shapes: the mean and largest difference in points of slow-down, with the
standard error of the simulated mean where the difference is largest. The second column is the fast formula's time for one
design among 30,000. It takes some minutes.
"""

from __future__ import annotations

import time
from itertools import product

import numpy as np

from simulator.domain.plan import Schedule
from simulator.domain.straggler_causes import STRAGGLER_PRESETS, Stragglers
from simulator.stragglers.pipeline import fill_cycles
from simulator.stragglers.play import play_slowdown
from simulator.stragglers.slowdown import StragglerDesigns, expected_slowdown
from simulator.table import Floats

REPLICAS = ((4, 8), (32, 4), (128, 8))
"""Replicas, and ranks of a stage."""
PLAIN = ((1, 8), (2, 8), (4, 4), (4, 16), (8, 32), (16, 32))
"""Stages and micro-batches."""
INTERLEAVED = ((4, 2, 8), (8, 2, 32), (8, 4, 8), (16, 2, 32))
PIPELINES = {
    Schedule.ONE_F_ONE_B: (*((p, 1, m) for p, m in PLAIN), *INTERLEAVED),
    Schedule.GPIPE: tuple((p, 1, m) for p, m in PLAIN if p > 1),
    Schedule.ZB_H1: tuple((p, 1, m) for p, m in PLAIN if p > 1),
    Schedule.ZB_V: tuple((p, 2, m) for p, m in PLAIN if p > 1),
    Schedule.DUAL_PIPE_V: tuple((p, 2, m) for p, m in PLAIN if p > 1 and m >= 2 * p),
}
"""Stages, chunks per stage, micro-batches."""
SLOWEST = (1.0, 1.06)
"""Cycle of the last stage over the mean."""
COMPUTE, REST = 0.85, 0.05
MAX_EVENTS = 2_000_000
NUM_TIMED = 30_000
MODELS: dict[str, Stragglers] = {
    "slow ranks": Stragglers(rank_log_deviation=0.02),
    "unlike micro-batches": Stragglers(micro_batch_log_deviation=0.02),
    "slow hosts": Stragglers(slow_host_fraction=0.02, slow_host_factor=1.1),
    "pauses": Stragglers(gc_pause_s=0.3, gc_every_steps=50.0),
    **{str(name): model for name, model in STRAGGLER_PRESETS.items() if name != "shared"},
}


def designs(schedule: Schedule) -> StragglerDesigns:
    """Returns the designs of a schedule, with cycles of one second."""
    rows = [
        (replicas, ranks, stages, chunks, micro_batches, slowest)
        for (replicas, ranks), (stages, chunks, micro_batches), slowest in product(
            REPLICAS, PIPELINES[schedule], SLOWEST
        )
        if stages > 1 or slowest == 1.0
    ]
    *counts, slowest = (np.array(column) for column in zip(*rows, strict=True))
    replicas, ranks, stages, chunks, micro_batches = counts
    same, codes = np.ones(len(rows)), np.full(len(rows), schedule.code)
    others = (stages - slowest) / np.maximum(stages - 1, 1)
    pipeline_s = (
        micro_batches * slowest + fill_cycles(codes, stages, chunks, micro_batches, same / 3.0) * others
    )
    return StragglerDesigns(
        schedule=codes,
        num_replicas=replicas,
        ranks_per_stage=ranks,
        num_stages=stages,
        num_chunks_per_stage=chunks,
        num_micro_batches=micro_batches,
        group_size=stages,
        gpus_per_node=np.full(len(rows), 8),
        cycle_s=same,
        slowest_cycle_factor=slowest,
        compute_fraction=COMPUTE * same,
        forward_fraction=same / 3.0,
        step_time_s=pipeline_s * (1.0 + REST),
    )


def played(model: Stragglers, design: StragglerDesigns) -> tuple[float, float]:
    """Returns the mean played slow-down of one design, and its standard error."""
    chunks = design.num_stages[0] * design.num_chunks_per_stage[0]
    events = 2 * design.num_replicas[0] * chunks * design.num_micro_batches[0]
    samples = play_slowdown(model, design, num_samples=int(np.clip(MAX_EVENTS // events, 4, 400)), seed=1)
    return float(samples.mean()), float(samples.std(ddof=1) / np.sqrt(len(samples)))


def microseconds_per_design(model: Stragglers, table: StragglerDesigns) -> float:
    """Returns the time of the fast form for one design among many."""
    many = table.take(np.arange(NUM_TIMED) % len(table))
    expected_slowdown(model, many)
    start = time.perf_counter()
    expected_slowdown(model, many)
    return (time.perf_counter() - start) / NUM_TIMED * 1e6


def compare(schedule: Schedule) -> None:
    """Prints one line for each model."""
    table = designs(schedule)
    one_by_one = [table.take(slice(row, row + 1)) for row in range(len(table))]
    print(
        f"{schedule.value}, {len(table)} designs   us/design   mean   mean size   largest (standard error)   slow-downs"
    )
    for name, model in MODELS.items():
        fast = expected_slowdown(model, table)
        means, errors = np.array([played(model, design) for design in one_by_one]).T
        points: Floats = 100.0 * (fast - means)
        worst = np.abs(points).argmax()
        print(
            f"{name:20} {microseconds_per_design(model, table):7.2f} {points.mean():+8.2f} {np.abs(points).mean():9.2f}"
            f" {points[worst]:+12.2f} ({100.0 * errors[worst]:.2f}) {means.min():18.3f} to {means.max():.3f}",
            flush=True,
        )


def main() -> None:
    """Compares under every schedule."""
    for schedule in PIPELINES:
        compare(schedule)


if __name__ == "__main__":
    main()
