"""Which numbers divide another one?"""

from __future__ import annotations


def divisors(number: int) -> list[int]:
    """Returns all divisors in ascending order."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})
