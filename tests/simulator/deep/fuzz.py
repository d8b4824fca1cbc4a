"""What do readers do with broken files? Content with a few changes, and a reader that may only refuse in our words."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from simulator.errors import InputError

PIECES = (b",", b'"', b"\n", b"-", b"9" * 30, b"[", b"{", b"nan", b"\x00", b"\xff\xff\xff\xff")


def mutations(content: bytes, count: int, seed: int = 1) -> Iterator[bytes]:
    """Yields content with a few bytes changed, removed, repeated or added, again and again, always the same."""
    for number in range(count):
        yield _mutated(content, np.random.default_rng([seed, number]))


def _mutated(content: bytes, draw: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.integers(1, 5)):
        place, length = int(draw.integers(len(changed) + 1)), int(draw.integers(1, 40))
        match int(draw.integers(4)):
            case 0:
                changed[place : place + 1] = bytes([int(draw.integers(256))])
            case 1:
                del changed[place : place + length]
            case 2:
                changed[place:place] = changed[place : place + length]
            case _:
                changed[place:place] = PIECES[int(draw.integers(len(PIECES)))]
    return bytes(changed)


def num_refused(read: Callable[[], object]) -> int:
    """Reads; returns 1 where the reader refuses in our words. Any other error passes."""
    try:
        read()
    except InputError:
        return 1
    return 0
