"""Is the hardware of one's own what it seems? Figures far from all that the catalogue knows are mostly in another unit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from simulator import catalog
from simulator.catalog import Kind
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


def hardware_notes(offers: Iterable[Offer]) -> tuple[str, ...]:
    """Returns what to mind of the accelerators and nodes on offer."""
    found = [note for offer in offers for note in (*_far_off(offer.accelerator), *_far_off(offer.node))]
    return tuple(dict.fromkeys(found))


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
