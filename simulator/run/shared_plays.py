"""Which pools of spares are played? Each once, whatever the number of designs that share it.

Designs that differ in nothing that is played share a pool: in a search, most of those with as many accelerators and spares,
since their up-times and recoveries are rounded to 1 %. That is less than the luck of a play is worth. What was played is kept,
because a search simulates designs again that differ only in their saves.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import numpy as np

from simulator.run.state import Records
from simulator.table import Floats

ROUNDING_FRACTION = 0.01
"""Up-times and recoveries are rounded to powers of 1 plus this."""
MOST_KEPT = 32_768
"""Pools whose results are kept; beyond them all are forgotten."""
_KEY_BYTES = 16
_PLAYED: dict[bytes, np.void] = {}
"""Results of pools by a hash of all that is played."""
_NUMBERS_OF_A_POOL = (
    "mtbf_s",
    "kind_share",
    "kind_nodes",
    "kind_fast_survival",
    "kind_goes_on",
    "num_spares",
    "repair_s",
    "spare_wait_s",
    "queue_wait_s",
    "max_loans",
)
"""What a play reads of a design, in addition to its `simulator.run.pool_play.Pool`."""

Play = Callable[[Records, Records], None]
"""Plays the pools of designs, `(n,)` each, and writes the results into the pools."""


def played_pools(designs: Records, pools: Records, play: Play) -> Records:
    """Returns the pools of designs as played, `(n,)`; those of equal designs and pools are played once.

    Args:
        designs: the designs, as `simulator.run.state.RunDesign`, `(n,)`.
        pools: their pools, as `simulator.run.pool_play.Pool`, of which nothing has been played, `(n,)`.
        play: plays some of them.
    """
    read = _read_by_a_play(designs)
    keys = [
        blake2b(design + pool, digest_size=_KEY_BYTES).digest()
        for design, pool in zip(_bytes_of(read), _bytes_of(pools), strict=True)
    ]
    # Another thread may forget them at any time.
    known = {key: pool for key in dict.fromkeys(keys) if (pool := _PLAYED.get(key)) is not None}
    rows = {key: row for row, key in enumerate(keys) if key not in known}
    if rows:
        chosen = np.fromiter(rows.values(), dtype=np.intp)
        played = pools[chosen]
        play(read[chosen], played)
        found = dict(zip(rows, played, strict=True))
        known |= found
        if len(_PLAYED) + len(found) > MOST_KEPT:
            _PLAYED.clear()
        _PLAYED.update(found)
    return np.array([known[key] for key in keys], dtype=pools.dtype)


def rounded_s(times_s: Floats, unit_s: Floats) -> Floats:
    """Returns times rounded to a grid with the same ratio between neighbours, the unit among them."""
    step = np.log1p(ROUNDING_FRACTION)
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(np.round(np.log(times_s / unit_s) / step) * step) * unit_s)


def _read_by_a_play(designs: Records) -> Records:
    """Returns the designs without the numbers that no play of a pool reads."""
    read = np.zeros(len(designs), dtype=designs.dtype)
    for name in _NUMBERS_OF_A_POOL:
        read[name] = designs[name]
    return read


def _bytes_of(records: Records) -> list[bytes]:
    found: list[bytes] = records.view(f"V{records.dtype.itemsize}").tolist()
    return found
