"""How long do pipeline stages wait for each other if micro-batches differ? Writes simulator/data/straggler_pipeline.csv.

    python -m benchmarks.straggler_pipeline

Balanced pipelines of every schedule are played repeatedly with random micro-batches. A forward takes one third and a backward
two thirds of a cycle (the time of one micro-batch on a stage); half of the backward can be deferred if the schedule splits it.
Columns are per standard deviation of a cycle:

    waiting       mean excess of a step over that with equal micro-batches, in cycles per micro-batch
    slowest_of_D  expected excess of the slowest of D replicas over the mean, in cycles per root of micro-batches
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from simulator.domain.plan import Schedule
from simulator.domain.straggler_causes import Stragglers
from simulator.order_statistics import expected_maximum
from simulator.stragglers.kernel import play_replicas
from simulator.stragglers.noise import draw_micro_batches, sequence_deviation
from simulator.stragglers.play import WEIGHT_GRADIENT_FRACTION
from simulator.table import Floats

FILE = Path(__file__).parents[1] / "simulator" / "data" / "straggler_pipeline.csv"
SMALL = 0.02
"""Deviation at which the linear case is played, about that of the traces."""
KINDS = {
    "lognormal": Stragglers(micro_batch_log_deviation=SMALL),
    "sequences": Stragglers(has_uneven_sequences=True),
}
NUM_STAGES = (1, 2, 4, 8, 16, 32, 64)
CHUNKS_PER_STAGE = {
    Schedule.ONE_F_ONE_B: (1, 2, 4),
    Schedule.GPIPE: (1,),
    Schedule.ZB_H1: (1,),
    Schedule.ZB_V: (2,),
    Schedule.DUAL_PIPE_V: (2,),
}
"""Those that a schedule can have."""
MICRO_BATCHES_PER_STAGE = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
NUM_REPLICAS = (8, 64, 512, 4096)
MAX_EVENTS = 12_000_000
MAX_PLAYED = 16_384
PLAYED_PER_DRAW = 4
"""Replicas that must be played for every one among which the slowest is looked for; beyond, its excess is taken to go
on as that of normal draws does."""
SEED = 20250505


def played(
    kind: str, schedule: Schedule, num_stages: int, num_chunks: int, num_micro_batches: int
) -> tuple[Floats, Floats]:
    """Returns by how much the steps of many replicas exceed one of equal micro-batches, and the excess of their sums."""
    chunks = num_stages * num_chunks
    size = chunks * num_micro_batches
    left = min(MAX_PLAYED, MAX_EVENTS // (2 * size))
    draw = np.random.default_rng(SEED)
    steps, sums = [], []
    while left > 0:
        block = min(left, 1 + 2_000_000 // size)
        left -= block
        factors = draw_micro_batches(KINDS[kind], (block, 1, num_micro_batches), draw)
        forward, backward = (
            np.broadcast_to(factor, (block, chunks, num_micro_batches)) * share / num_chunks
            for factor, share in zip(factors, (1.0 / 3.0, 2.0 / 3.0), strict=True)
        )
        steps.append(step_cycles(schedule, num_stages, forward, backward))
        sums.append((factors[0] + 2.0 * factors[1]).sum(axis=(1, 2)) / 3.0)
    equal = np.ones((1, chunks, num_micro_batches)) / 3.0 / num_chunks
    ideal = step_cycles(schedule, num_stages, equal, 2.0 * equal)
    return np.concatenate(steps) - ideal, np.concatenate(sums) - num_micro_batches


def step_cycles(schedule: Schedule, num_stages: int, forward: Floats, backward: Floats) -> Floats:
    """Returns the step of each replica."""
    ends = play_replicas(num_stages, 0.0, forward, backward, schedule.code, WEIGHT_GRADIENT_FRACTION, 0)
    return np.asarray(ends.max(axis=1))


def measure(
    kind: str, schedule: Schedule, num_stages: int, num_chunks: int, num_micro_batches: int
) -> list[float]:
    """Returns waiting and the excess of the slowest of each of `NUM_REPLICAS`."""
    steps, sums = played(kind, schedule, num_stages, num_chunks, num_micro_batches)
    # The excess of the sums is 0 on average: less its own luck, the mean excess is known much better.
    waiting = (steps - sums).mean()
    deviation = SMALL if kind == "lognormal" else sequence_deviation()
    slowest = slowest_of(steps) / np.sqrt(num_micro_batches)
    return [max(0.0, waiting / num_micro_batches) / deviation, *(slowest / deviation)]


def slowest_of(steps: Floats) -> Floats:
    """Returns the expected maximum of so many of the steps less their mean, `(len(NUM_REPLICAS),)`."""
    rank = np.arange(1, len(steps) + 1) / len(steps)
    ordered = np.sort(steps)
    z = expected_maximum(NUM_REPLICAS)
    excess: list[float] = []
    for index, count in enumerate(NUM_REPLICAS):
        if index and count * PLAYED_PER_DRAW > len(steps):
            excess.append(excess[-1] * z[index] / z[index - 1])
        else:
            excess.append(float(np.diff(rank**count, prepend=0.0) @ ordered - steps.mean()))
    return np.array(excess)


def shapes() -> Iterator[tuple[Schedule, int, int, float, int]]:
    """Yields schedule, chunks per stage, stages, micro-batches per stage, and micro-batches."""
    for schedule, choices in CHUNKS_PER_STAGE.items():
        for chunks, stages, ratio in product(choices, NUM_STAGES, MICRO_BATCHES_PER_STAGE):
            least = _least_per_stage(schedule, chunks)
            yield (schedule, chunks, stages, ratio, max(1, int(stages * max(least, ratio))))


def _least_per_stage(schedule: Schedule, chunks: int) -> float:
    """Micro-batches over stages: interleaving deals whole groups of p, and DualPipeV needs two of them."""
    if schedule is Schedule.DUAL_PIPE_V:
        return 2.0
    return 1.0 if schedule is Schedule.ONE_F_ONE_B and chunks > 1 else 0.0


def main() -> None:
    """Plays every pipeline and writes the table."""
    keys = ("kind", "schedule", "chunks_per_stage", "stages", "micro_batches_per_stage")
    head = (*keys, "waiting", *(f"slowest_of_{count}" for count in NUM_REPLICAS), "source")
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        for kind, (schedule, chunks, stages, ratio, count) in product(KINDS, list(shapes())):
            values = [f"{value:.4f}" for value in measure(kind, schedule, stages, chunks, count)]
            row = [kind, schedule.value, chunks, stages, ratio, *values]
            writer.writerow([*row, "benchmarks/straggler_pipeline.py"])
    print(FILE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
