"""How many sequences are in a batch that is given in tokens? A number that divides evenly among many replicas."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.text import human
from simulator.domain.job import Job

TOLERANCE_FRACTION = 0.05
"""Batch sizes are quoted as round numbers of tokens: "4M tokens" usually means 2**22, which is 4.9 % more."""
NEARBY_FRACTION = 0.1
"""Largest relative change of a batch size that is proposed because the given one divides badly."""
KEPT_MULTIPLE = 64
"""Whole numbers of sequences below this, and multiples of it, are taken literally."""
LARGEST_EASY_PRIME = 7
"""Clusters whose sizes have larger prime factors are rarely offered."""


def whole_sequences(sequences: float) -> int:
    """Returns the sequences of a batch: the nearest multiple of the largest power of two within 5 %.

    Args:
        sequences: Tokens per batch divided by tokens per sequence, 1 or more.

    Example:
        >>> whole_sequences(4e6 / 8192), whole_sequences(16e6 / 8192), whole_sequences(60e6 / 4096)
        (512, 2048, 14336)
    """
    whole = round(sequences)
    if whole == sequences and (whole < KEPT_MULTIPLE or whole % KEPT_MULTIPLE == 0):
        return whole
    return _easily_split(sequences, TOLERANCE_FRACTION)


def batch_notes(job: Job) -> Iterator[str]:
    """Yields a remark if the batch divides among few numbers of replicas, and a nearby one among more."""
    batch = job.workload.global_batch_size
    better = _easily_split(batch, NEARBY_FRACTION)
    prime = _largest_prime(batch)
    if prime <= LARGEST_EASY_PRIME or _power_of_two(better) <= _power_of_two(batch):
        return
    yield (
        f"A batch of {batch:,} sequences ({human.figure(batch * job.workload.sequence_length)} tokens) splits evenly over few "
        f"numbers of replicas: it is a multiple of {prime}. {better:,} "
        f"({human.signed_percent(better / batch - 1.0)}) allow more layouts and sizes of clusters."
    )


def _easily_split(sequences: float, tolerance_fraction: float) -> int:
    """The nearest multiple of the largest power of two that has a multiple within the tolerance."""
    for exponent in reversed(range(math.frexp(sequences)[1] + 1)):
        power = 1 << exponent
        multiple = round(sequences / power) * power
        if abs(multiple - sequences) <= tolerance_fraction * sequences:
            return multiple
    return round(sequences)


def _power_of_two(number: int) -> int:
    """The largest power of two that divides a number."""
    return number & -number


def _largest_prime(number: int) -> int:
    """The largest prime factor; 1 for 1."""
    factor = 2
    while factor * factor <= number:
        if number % factor:
            factor += 1
        else:
            number //= factor
    return number
