"""Which inputs drive the results? For each result, the inputs that move it most, as two-sided bars."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from planner.text import human
from planner.text.text_blocks import bar_length, grid, sentences, title
from planner.uncertain.sensitivity import ResultSensitivity, Sensitivities, Swing
from planner.uncertain.uncertain_inputs import UncertainInput
from simulator.units import GIGA, TERA

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROWS = 5
"""Most inputs that are shown for each result; the JSON has all of them."""
HALF_LENGTH = 10
"""Characters of the longer half of the longest bar, on lines that are long enough."""

_RESULTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "time_to_train_days": ("time to train", human.days),
    "cost_usd": ("cost", human.dollars),
    "energy_kwh": ("energy", human.energy),
    "carbon_kgco2e": ("carbon", human.carbon),
    "goodput_fraction": ("goodput", human.percent),
}
_INPUTS = {
    "rent_usd_per_gpu_hour": "rent",
    "purchase_usd_per_node": "node price",
    "power_usage_effectiveness": "PUE",
    "layout_time": "step time of the layout",
    "failure_rate": "failures",
    "interruption_rate": "interruptions",
    "restart_time": "restart times",
    "straggler_excess": "straggler slow-down",
    "compute_power": "power while computing",
    "waiting_power": "power while waiting",
    "cap_slowdown": "slow-down by the cap",
    "grid": "grid carbon",
    "embodied_accelerator": "making of accelerators",
    "embodied_host": "making of hosts",
    "embodied_network": "making of the network",
    "embodied_storage": "making of storage",
    "embodied_building": "making of the building",
    "residual_value": "resale value",
    "capital_cost": "cost of capital",
    "facility_price": "building",
    "facility_lifetime": "lifetime of the building",
}
"""Shorter or clearer names of inputs: of a price and the PUE by their field, of all others by their name in the table."""
_UNITS = {
    "bytes/s": (GIGA, "GB/s"),
    "USD/byte": (1.0 / TERA, "USD/TB"),
    "W/byte": (1.0 / TERA, "W/TB"),
    "kgCO2e/byte": (1.0 / GIGA, "kgCO2e/GB"),
}
"""Sizes and names of units that are shown instead of others."""
_RANGES = (
    "Each input varies alone, from its 5th to its 95th percentile; --json lists all ranges and their sources."
)
_PERCENT = "_fraction"


def show_sensitivities(found: Sensitivities, console: Console) -> None:
    """Writes what drives each result."""
    inputs = {described.name: described for described in found.inputs}
    for result in found.results:
        shown = [swing for swing in result.swings if swing.is_worth_showing][:MOST_ROWS]
        if shown:
            name, unit = _RESULTS[result.result]
            title(console, f"what drives the {name} of {unit(result.mid)}")
            reach = max(_reach(result, swing) for swing in shown)
            grid(console, [_row(result, swing, inputs[swing.input], reach, console) for swing in shown])
    console.print()
    sentences(console, [_RANGES])


def _row(
    result: ResultSensitivity, swing: Swing, described: UncertainInput, reach: float, console: Console
) -> tuple[str, ...]:
    unit = _RESULTS[result.result][1]
    ends = ends_text(*("no end" if value is None else unit(value) for value in (swing.at_low, swing.at_high)))
    return input_words(described), _range(described), ends, _bar(result, swing, reach, console)


def input_words(described: UncertainInput) -> str:
    """Returns the name of an input for readers: `rent` for `offers[0].rent_usd_per_gpu_hour`."""
    last = described.name.rpartition(".")[2]
    return _INPUTS.get(last) or _INPUTS.get(described.factor) or human.words(described.factor)


def input_text(described: UncertainInput, value: float) -> str:
    """Returns a value of an input with its unit: `2.95 USD/h`."""
    size, unit = _unit(described)
    return f"{human.short(value / size)} {unit}".rstrip()


def ends_text(low: str, high: str) -> str:
    """Returns two quantities, with a common unit only once: `38.3 to 45.5 days`; `$848 k to $1.51 M`."""
    number, _, unit = low.partition(" ")
    is_shared = unit and high.partition(" ")[2] == unit and not number.startswith("$")
    return f"{number} to {high}" if is_shared else f"{low} to {high}"


def _range(described: UncertainInput) -> str:
    """Returns the range of an input: `0.5 to 2 x`, `2.95 to 4 USD/h`."""
    size, _ = _unit(described)
    return f"{human.short(described.low / size)} to {input_text(described, described.high)}"


def _unit(described: UncertainInput) -> tuple[float, str]:
    """Returns the size and the name of the unit in which an input is shown."""
    if described.name.endswith((_PERCENT, f"{_PERCENT}_per_year")):
        return 0.01, "%"
    return _UNITS.get(described.unit, (1.0, described.unit))


def _reach(result: ResultSensitivity, swing: Swing) -> float:
    """Returns the largest relative change of a result over the range of an input; 1 for a run that never ends."""
    return max(
        abs(value / result.mid - 1.0) if value is not None else 1.0 for value in (swing.at_low, swing.at_high)
    )


def _bar(result: ResultSensitivity, swing: Swing, reach: float, console: Console) -> str:
    """Returns a two-sided bar: the fall of the result to the left, its rise to the right."""
    block, axis = ("█", "│") if console.encoding.lower().startswith("utf") else ("#", "|")
    ratios = [1.0 + reach if value is None else value / result.mid for value in (swing.at_low, swing.at_high)]
    falls = max(0.0, 1.0 - min(ratios)) / reach
    rises = max(0.0, max(ratios) - 1.0) / reach
    half = bar_length(console, HALF_LENGTH)
    left, right = (block * round(half * min(1.0, part)) for part in (falls, rises))
    return f"{left:>{half}}{axis}{right}"
