"""How long do pipeline stages wait for each other when micro-batches are unlike? Writes simulator/data/straggler_pipeline.csv.

    python -m benchmarks.straggler_pipeline

Balanced pipelines are played over and over with random micro-batches, a forward of one third and a backward of two
thirds of a cycle (what one micro-batch takes on a stage). Columns are per standard deviation of a cycle:

    waiting       mean excess of a step over that with equal micro-batches, in cycles per micro-batch
    slowest_of_D  expected excess of the slowest of D replicas over the mean, in cycles per root of micro-batches
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from simulator.order_statistics import expected_maximum
from simulator.straggler_kernel import play_replicas
from simulator.straggler_noise import draw_micro_batches, sequence_deviation
from simulator.stragglers import Stragglers
from simulator.table import Floats

FILE = Path(__file__).parents[1] / "simulator" / "data" / "straggler_pipeline.csv"
SMALL = 0.02
"""Deviation at which the linear case is played, about that of the traces."""
KINDS = {
    "lognormal": Stragglers(micro_batch_log_deviation=SMALL),
    "sequences": Stragglers(has_uneven_sequences=True),
}
NUM_STAGES = (1, 2, 4, 8, 16, 32, 64)
CHUNKS_PER_STAGE = (1, 2, 4)
MICRO_BATCHES_PER_STAGE = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
NUM_REPLICAS = (8, 64, 512, 4096)
MAX_EVENTS = 12_000_000
MAX_PLAYED = 16_384
PLAYED_PER_DRAW = 4
"""Replicas that must be played for every one among which the slowest is looked for; beyond, its excess is taken to go
on as that of normal draws does."""
SEED = 20250505


def played(kind: str, num_stages: int, num_chunks: int, num_micro_batches: int) -> tuple[Floats, Floats]:
    """Returns the steps of many replicas and the sums of their micro-batches, in cycles."""
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
        steps.append(play_replicas(num_stages, 0.0, forward, backward).max(axis=1))
        sums.append((factors[0] + 2.0 * factors[1]).sum(axis=(1, 2)) / 3.0)
    return np.concatenate(steps), np.concatenate(sums)


def measure(kind: str, num_stages: int, num_chunks: int, num_micro_batches: int) -> list[float]:
    """Returns waiting and the excess of the slowest of each of `NUM_REPLICAS`."""
    steps, sums = played(kind, num_stages, num_chunks, num_micro_batches)
    # The sum of the factors is m on average: less its own luck, the mean excess is known much better.
    waiting = (steps - sums).mean() - (num_stages - 1) / num_chunks
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


def main() -> None:
    """Plays every pipeline and writes the table."""
    keys = ("kind", "chunks_per_stage", "stages", "micro_batches_per_stage")
    head = (*keys, "waiting", *(f"slowest_of_{count}" for count in NUM_REPLICAS), "source")
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        for kind in KINDS:
            for chunks in CHUNKS_PER_STAGE:
                for stages in NUM_STAGES:
                    for ratio in MICRO_BATCHES_PER_STAGE:
                        # Interleaving deals whole groups of p micro-batches: fewer do not exist.
                        count = max(1, int(stages * (max(1.0, ratio) if chunks > 1 else ratio)))
                        values = [f"{value:.4f}" for value in measure(kind, stages, chunks, count)]
                        writer.writerow(
                            [kind, chunks, stages, ratio, *values, "benchmarks/straggler_pipeline.py"]
                        )
    print(FILE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
