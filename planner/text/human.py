"""How is a quantity written for readers? With three digits, a familiar prefix, and the unit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal

from simulator.units import DAY, GIB, GIGA, HOUR, KILO, MEGA, MILLISECOND, MINUTE, YEAR

_Scale = Sequence[tuple[float, str]]
"""Sizes and names of units, largest first."""

_MONEY: _Scale = ((GIGA, " B"), (MEGA, " M"), (KILO, " k"), (1.0, ""))
_ENERGY_KWH: _Scale = ((GIGA, " TWh"), (MEGA, " GWh"), (KILO, " MWh"), (1.0, " kWh"))
_CARBON_KG: _Scale = ((MEGA, " kt CO2e"), (KILO, " t CO2e"), (1.0, " kg CO2e"))
_POWER_W: _Scale = ((GIGA, " GW"), (MEGA, " MW"), (KILO, " kW"), (1.0, " W"))
_PREFIXES: _Scale = ((GIGA, " G"), (MEGA, " M"), (KILO, " k"))
_LONGEST_PLAIN = 10.0 * KILO
"""Smaller numbers are shorter without a prefix."""
_DURATION_S: _Scale = ((DAY, " days"), (HOUR, " h"), (MINUTE, " min"), (1.0, " s"), (MILLISECOND, " ms"))
_LONGEST_S = 2 * MINUTE
"""Durations up to two minutes are shown in seconds,"""
_LONGEST_DAYS = 2 * YEAR
"""and those up to two years in days."""

LEAST_TOLD_FRACTION = 5e-4
"""Smaller shares would be written as 0.0 %."""
_EXACT_FROM = 1e5
"""From here on a limit is written without a fraction."""
_TIMES_FROM = 10.0
"""Changes by this factor or more are shown as factors."""
_ROUNDING = 1e-12
"""A share within this distance of 1 is 1 up to rounding."""
_NEVER = "never ends"
_LARGEST_SHOWN = 1e15


def digits(value: float, *, significant: int = 3) -> str:
    """Returns a number with some significant digits and thousands separators: `31.4`, `1,230`, `0.012`."""
    if not math.isfinite(value):
        return str(value)
    rounded = float(f"{value:.{significant}g}")
    if abs(rounded) >= _LARGEST_SHOWN or 0 < abs(rounded) < 1 / _LARGEST_SHOWN:
        return f"{rounded:.{significant}g}"
    exponent = math.floor(math.log10(abs(rounded))) if rounded else significant - 1
    return f"{rounded:,.{max(0, significant - 1 - exponent)}f}"


def figure(value: float) -> str:
    """Returns the value of a limit with separators: `2,100,000`, `45`, `0.05`."""
    return f"{value:,.0f}" if abs(value) >= _EXACT_FROM and math.isfinite(value) else f"{value:,.7g}"


def typed(value: float) -> str:
    """Returns a number as job files have it, to seven digits: `2e12`, `8192`, `2.5`."""
    if abs(value) < MEGA:
        return f"{value:.7g}"
    mantissa, _, exponent = f"{value:.6e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def short(value: float) -> str:
    """Returns a number with three digits and a prefix, without trailing zeros: `1.5`, `40 G`."""
    fitting = (unit for unit in _PREFIXES if abs(value) >= max(unit[0], _LONGEST_PLAIN))
    size, prefix = next(fitting, (1.0, ""))
    text = digits(value / size)
    return (text.rstrip("0").rstrip(".") if "." in text else text) + prefix


def count(value: float) -> str:
    """Returns a whole number with thousands separators: `1,024`."""
    return f"{value:,.0f}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Returns a count with its noun: `1 sample`, `1,024 samples`; `plural` for irregular plurals."""
    return f"{count(number)} {noun if number == 1 else plural or f'{noun}s'}"


def designs(number: int) -> str:
    """Returns how many designs: `1 design`, `26 designs`."""
    return counted(number, "design")


def settings(values: Mapping[str, float], joined_by: str = "and") -> str:
    """Returns values as they are set in a job.

    Example:
        >>> settings({"budget_usd": 1e5, "deadline_days": 45.0}, joined_by="or")
        'budget_usd = 100,000 or deadline_days = 45'
    """
    return f" {joined_by} ".join(f"{name} = {figure(value)}" for name, value in values.items())


def dollars(value_usd: float) -> str:
    """Returns money: `$1.85 M`, `$950 k`, `$12.3`."""
    return f"${_scaled(value_usd, _MONEY)}"


def days(value_days: float) -> str:
    """Returns a duration given in days: `31.4 days`, `7.3 h`."""
    return duration(value_days * DAY)


def duration(value_s: float) -> str:
    """Returns a duration given in seconds: `31.4 days`, `35.0 min`, `6.32 s`."""
    if math.isinf(value_s):
        return _NEVER
    if value_s >= _LONGEST_DAYS:
        return f"{digits(value_s / YEAR)} years"
    return f"{digits(value_s)} s" if 1.0 <= value_s < _LONGEST_S else _scaled(value_s, _DURATION_S)


def memory(value_bytes: float) -> str:
    """Returns a size in GiB, the unit in which an `80 GB` accelerator has 80: `62.1 GiB`."""
    return f"{value_bytes / GIB:,.1f} GiB"


def usable_share(headroom_fraction: float) -> str:
    """Returns the prefix of a memory size of which a job keeps a share free; empty if it keeps none free."""
    if not headroom_fraction:
        return ""
    return f"{percent(1.0 - headroom_fraction)} (search.memory_headroom_fraction) of "


def energy(value_kwh: float) -> str:
    """Returns an energy: `1.23 GWh`, `850 MWh`."""
    return _scaled(value_kwh, _ENERGY_KWH)


def carbon(value_kgco2e: float) -> str:
    """Returns greenhouse gases: `412 t CO2e`."""
    return _scaled(value_kgco2e, _CARBON_KG)


def carbon_delay(value_kgco2e_s: float) -> str:
    """Returns greenhouse gases times time: `3,900 t CO2e x days`, `98.1 kg CO2e x days`."""
    kg_days = value_kgco2e_s / DAY
    size, unit = (KILO, "t") if kg_days >= KILO else (1.0, "kg")
    return f"{digits(kg_days / size)} {unit} CO2e x days"


def water(value_l: float) -> str:
    """Returns an amount of water, given in litres: `2,970 m3`, `75.8 l`."""
    return f"{digits(value_l / KILO)} m3" if value_l >= KILO else f"{digits(value_l)} l"


def power(value_w: float) -> str:
    """Returns a power: `1.10 MW`."""
    return _scaled(value_w, _POWER_W)


def power_ramp(value_w_per_s: float) -> str:
    """Returns a rate of change of power: `250 kW/s`."""
    return f"{power(value_w_per_s)}/s"


def percent(fraction: float) -> str:
    """Returns a share with three digits, but never `100 %` for less than all: `41.2 %`."""
    if 0.9995 <= fraction < 1.0 - _ROUNDING:
        return "> 99.9 %"
    return f"{fraction * 100:.1f} %"


def whole_percent(fraction: float) -> str:
    """Returns a share without decimals, for shares that are not known more precisely: `41 %`."""
    return f"{fraction * 100:.0f} %"


def change(fraction: float) -> str:
    """Returns a relative change, as a factor if that is ten or more: `+3.1 %`, `x 100`."""
    if fraction >= _TIMES_FROM - 1.0:
        return f"x {digits(1.0 + fraction)}"
    return signed_percent(fraction)


def signed_percent(fraction: float, *, num_decimals: int = 1) -> str:
    """Returns a relative difference, without a sign if it is 0: `+3.1 %`, `0.0 %`."""
    text = f"{100.0 * fraction:+.{num_decimals}f}"
    return f"{text if float(text) else text[1:]} %"


def risk(probability: float) -> str:
    """Returns a probability in per cent, but never 0, because nothing is certain: `1.4 %`, `< 0.1 %`."""
    return "< 0.1 %" if probability < LEAST_TOLD_FRACTION else percent(probability)


def words(name: str) -> str:
    """Returns the name of a field without its unit: `optimizer states` for `optimizer_states_bytes`."""
    for unit in ("_per_s", "_bytes", "_usd", "_kwh", "_kgco2e", "_days", "_s", "_w", "_j"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")


def no_less(value: float) -> str:
    """Returns a short number not below the value, in the form of job files: `2.346e6` for 2345678."""
    rounded = Context(prec=4, rounding=ROUND_CEILING).create_decimal(Decimal(repr(value)))
    if rounded == rounded.to_integral_value() and abs(rounded) < MEGA:
        return f"{int(rounded)}"
    return (
        f"{rounded.normalize():e}".replace("e+", "e") if abs(rounded) >= MEGA else f"{rounded.normalize():f}"
    )


def _scaled(value: float, scale: _Scale) -> str:
    """Returns a value in the largest unit in which it is at least 1."""
    rounded = float(f"{value:.3g}")
    size, name = next((unit for unit in scale if abs(rounded) >= unit[0]), scale[-1])
    return f"{digits(value / size)}{name}"
