"""Is the hardware on offer what it seems? Figures may be in another unit, or the catalogue's estimates.

A job consists of figures, not of their origins: a value that it gives is told, too, where it is an estimate of the catalogue.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache

from simulator import catalog
from simulator.catalog import Confidence, Figure, Kind
from simulator.catalog.lookup import ACCELERATOR_FIELDS
from simulator.domain.hardware import Accelerator, Node
from simulator.domain.offer import Offer

FAR_FACTOR = 10.0
"""How far outside the range of the catalogue a figure is told: no two generations are so far apart, but units are."""

_ACCELERATOR_FIGURES = (
    "memory_bytes",
    "memory_bytes_per_s",
    "bf16_flop_per_s",
    "fp8_flop_per_s",
    "fp4_flop_per_s",
    "thermal_design_power_w",
    "idle_power_w",
    "scale_up_bytes_per_s",
)
_NODE_FIGURES = (
    "network_bytes_per_s",
    "host_power_w",
    "host_memory_bytes",
    "host_copy_bytes_per_s",
    "host_memory_bytes_per_s",
)
_UNITS = {
    "_bytes_per_s": "bytes per second",
    "_flop_per_s": "FLOP per second",
    "_bytes": "bytes",
    "_w": "watts",
}
"""By the end of a name."""
_DECISIVE = (
    "memory",
    "memory_bandwidth",
    "bf16_peak",
    "fp8_peak",
    "fp4_peak",
    "thermal_design_power",
    "scale_up_bandwidth",
)
"""Figures of an accelerator in the catalogue from which times, memory and energy follow."""


def hardware_notes(offers: Iterable[Offer]) -> tuple[str, ...]:
    """Returns what to mind of the accelerators and nodes on offer."""
    offered = tuple(offers)
    found = [note for offer in offered for note in (*_far_off(offer.accelerator), *_far_off(offer.node))]
    return (*_estimates(offer.accelerator for offer in offered), *dict.fromkeys(found))


def _estimates(accelerators: Iterable[Accelerator]) -> Iterator[str]:
    """Yields notes on decisive figures of accelerators that are estimates of the catalogue, one for all with the same."""
    named: dict[str, dict[str, None]] = {}
    for accelerator in accelerators:
        if estimated := ", ".join(_estimated(accelerator)):
            named.setdefault(estimated, {})[accelerator.id] = None
    for estimated, names in named.items():
        yield (
            f"The catalogue estimates of {', '.join(names)}: {estimated}. `capplan catalog accelerators {next(iter(names))}` "
            "says from what; give your own figures where you have better ones."
        )


def _estimated(accelerator: Accelerator) -> Iterator[str]:
    """Yields the decisive figures of an accelerator that are estimates."""
    if accelerator.id in catalog.names(Kind.ACCELERATORS):
        for figure in catalog.figures(Kind.ACCELERATORS, accelerator.id):
            if figure.quantity in _DECISIVE and _is_estimate(figure, accelerator):
                yield figure.quantity.replace("_", " ")


def _is_estimate(figure: Figure, accelerator: Accelerator) -> bool:
    value = getattr(accelerator, ACCELERATOR_FIELDS[figure.quantity])
    if figure.confidence is not Confidence.ESTIMATE:
        return False
    return value is not None and math.isclose(value, float(figure.si_value), rel_tol=1e-9)


def _far_off(hardware: Accelerator | Node) -> Iterator[str]:
    for name, (low, high) in _ranges(type(hardware)).items():
        value = getattr(hardware, name)
        if value and not low / FAR_FACTOR <= value <= high * FAR_FACTOR:
            unit = next(unit for end, unit in _UNITS.items() if name.endswith(end))
            yield (
                f"{name} of {hardware.id}, {value:.3g}, is far outside the catalogue's {low:.3g} to {high:.3g}: "
                f"is it in {unit}?"
            )


@cache
def _ranges(kind: type[Accelerator | Node]) -> dict[str, tuple[float, float]]:
    """Returns the least and the greatest figure of the catalogue by its name."""
    is_node = kind is Node
    figures = _NODE_FIGURES if is_node else _ACCELERATOR_FIGURES
    names = catalog.names(Kind.NODES if is_node else Kind.ACCELERATORS)
    known = [catalog.node(name) if is_node else catalog.accelerator(name) for name in names]
    values = {name: [value for one in known if (value := getattr(one, name))] for name in figures}
    return {name: (min(found), max(found)) for name, found in values.items()}
