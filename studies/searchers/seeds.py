"""Which seed has each part of a search? That of the study plus the number of the part, within what generators accept."""

from __future__ import annotations

from typing import Final

NUM_SEEDS: Final = 2**32
"""Seeds that NumPy's older generators accept, which Optuna and pymoo use: from 0 on."""


def seed_of_part(seed: int, part: int) -> int:
    """Returns the seed of a part of a search, from 0 on again after the largest one.

    Args:
        seed: seed of the study.
        part: number of the part, from 0.

    Example:
        >>> seed_of_part(7, 2), seed_of_part(2**32 - 1, 2)
        (9, 1)
    """
    return (seed + part) % NUM_SEEDS
