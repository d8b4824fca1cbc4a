"""Which number is it in SI? The only place where prefixes and time units become numbers.

Decimal prefixes are powers of ten (GB = 1e9 bytes, Gbit/s = 1e9 bits per second); binary ones are
written out (GiB = 2**30 bytes). Bits are never bytes.
"""

from __future__ import annotations

KILO = 1e3
MEGA = 1e6
GIGA = 1e9
TERA = 1e12
PETA = 1e15

KIB = float(2**10)
MIB = float(2**20)
GIB = float(2**30)

BITS_PER_BYTE = 8.0

SQUARE_CENTIMETRE = 1e-4
SQUARE_MILLIMETRE = 1e-6

MICROSECOND = 1e-6
MILLISECOND = 1e-3
MINUTE = 60.0
HOUR = 3600.0
DAY = 24.0 * HOUR
YEAR = 365.25 * DAY
"""Julian year: the 8,766 hours that price and depreciation sources divide by."""

JOULES_PER_KWH = 3.6e6
JOULES_PER_MWH = 3.6e9


def gigabits_per_s(value: float) -> float:
    """Returns bytes per second for a link speed in Gbit/s."""
    return value * GIGA / BITS_PER_BYTE
