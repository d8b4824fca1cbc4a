"""Which catalogue entry has this name? Names become domain types; unknown names produce suggestions."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar, cast

from pydantic import ValidationError

from simulator.catalog.files import Confidence, Figure, current_entries, model_document
from simulator.domain.hardware import Accelerator, Fabric, Node, Site
from simulator.domain.model import ModelShape
from simulator.errors import CatalogError, Problem
from simulator.record import Choice, Record

Made = TypeVar("Made", bound=Record)


class Kind(Choice):
    """The kinds of entries in the catalogue."""

    ACCELERATORS = "accelerators"
    """Chips as a training framework sees them."""
    NODES = "nodes"
    """Servers that contain them."""
    FABRICS = "fabrics"
    """Networks between the nodes."""
    MODELS = "models"
    """Shapes of published networks."""
    SITES = "sites"
    """Countries, states and cloud regions."""
    FRAMEWORKS = "frameworks"
    """Training software: what it does where a job says nothing."""
    RENTS = "rents"
    """Hourly prices, by accelerator."""
    FACTORS = "factors"
    """Footprints and prices that apply to all hardware; shown to users, and the defaults of job files."""


FILES: Mapping[Kind, str] = {
    Kind.ACCELERATORS: "accelerators.csv",
    Kind.NODES: "nodes.csv",
    Kind.FABRICS: "fabrics.csv",
    Kind.SITES: "sites.csv",
    Kind.FRAMEWORKS: "frameworks.csv",
    Kind.RENTS: "rents.csv",
    Kind.FACTORS: "factors.csv",
}
"""The CSV file of each kind; models are in `models.yaml`."""

ACCELERATOR_FIELDS: Mapping[str, str] = {
    "name": "name",
    "vendor": "vendor",
    "family": "family",
    "memory": "memory_bytes",
    "memory_bandwidth": "memory_bytes_per_s",
    "bf16_peak": "bf16_flop_per_s",
    "fp8_peak": "fp8_flop_per_s",
    "fp4_peak": "fp4_flop_per_s",
    "bf16_measured": "measured_bf16_flop_per_s",
    "fixed_clock": "has_fixed_clock",
    "thermal_design_power": "thermal_design_power_w",
    "idle_power": "idle_power_w",
    "scale_up_bandwidth": "scale_up_bytes_per_s",
    "embodied_carbon": "embodied_kgco2e",
    "compute_power": "compute_power_fraction",
}
NODE_FIELDS: Mapping[str, str] = {
    "name": "name",
    "accelerator": "accelerator",
    "num_accelerators": "num_accelerators",
    "link_domain_size": "link_domain_size",
    "nodes_per_rack": "nodes_per_rack",
    "network_bandwidth": "network_bytes_per_s",
    "num_network_cards": "num_network_cards",
    "host_power": "host_power_w",
    "fan_power": "fan_power_w",
    "power_supply_efficiency": "power_supply_efficiency_fraction",
    "purchase_price": "purchase_usd",
    "embodied_host_carbon": "embodied_host_kgco2e",
    "host_memory": "host_memory_bytes",
    "host_copy_bandwidth": "host_copy_bytes_per_s",
    "host_memory_bandwidth": "host_memory_bytes_per_s",
}
FABRIC_FIELDS: Mapping[str, str] = {
    "switch_ports": "switch_ports",
    "switch_power": "switch_power_w",
    "optic_power": "optic_power_w",
    "port_price": "port_usd",
    "embodied_switch_carbon": "embodied_switch_kgco2e",
}
SITE_FIELDS: Mapping[str, str] = {
    "grid_carbon": "grid_kgco2e_per_kwh",
    "electricity_price": "electricity_usd_per_kwh",
    "power_usage_effectiveness": "power_usage_effectiveness",
    "market_carbon": "market_kgco2e_per_kwh",
    "water_onsite": "water_onsite_l_per_kwh",
    "water_offsite": "water_offsite_l_per_kwh",
}
"""Field of the domain type by quantity in the file; other quantities are only shown."""


TEXT_ALONE = " (text)"
"""Ends the name of the language model of a multimodal one."""


def accelerator(name: str, *, path: str = "accelerator") -> Accelerator:
    """Returns an accelerator; raises `CatalogError`, which names `path`, for an unknown name."""
    return _made(Accelerator, Kind.ACCELERATORS, "id", ACCELERATOR_FIELDS, name, path)


def node(name: str, *, path: str = "node") -> Node:
    """Returns a node; raises `CatalogError` for an unknown name."""
    return _made(Node, Kind.NODES, "id", NODE_FIELDS, name, path)


def default_node(accelerator_name: str, *, path: str = "accelerator") -> Node:
    """Returns the usual node of an accelerator; raises `CatalogError` for an unknown name."""
    return node(_word(accelerator_name, "default_node", path))


def is_pcie_card(accelerator_name: str) -> bool:
    """Returns whether an accelerator is a card that reaches others over PCIe; raises `CatalogError` for an unknown name."""
    found = figures(Kind.ACCELERATORS, accelerator_name)
    return any((figure.quantity, figure.value) == ("pcie_card", "true") for figure in found)


def fabric(name: str, *, path: str = "fabric") -> Fabric:
    """Returns a non-blocking fabric; raises `CatalogError` for an unknown name."""
    return _made(Fabric, Kind.FABRICS, "kind", FABRIC_FIELDS, name, path)


def default_fabric(accelerator_name: str, *, path: str = "accelerator") -> Fabric:
    """Returns the usual fabric between nodes of an accelerator; raises `CatalogError` for an unknown name."""
    return fabric(_word(accelerator_name, "default_fabric", path))


def site(region: str, *, path: str = "region") -> Site:
    """Returns a site by region; raises `CatalogError` for an unknown name."""
    return _made(Site, Kind.SITES, "region", SITE_FIELDS, region, path)


def model(name: str, *, path: str = "model", has_vision: bool = False) -> ModelShape:
    """Returns the shape of a published model; raises `CatalogError` for an unknown name.

    Args:
        name: Its name in the catalogue.
        path: What the error names.
        has_vision: Whether to add its vision encoder, if it has one, to its language model.
    """
    require_known(Kind.MODELS, name, path)
    entry = model_document()[name]
    shape, vision = entry["shape"], entry.get("vision") if has_vision else None
    assert isinstance(shape, dict)
    known = str(entry["name"])
    if vision:
        shape, known = {**shape, "vision": vision}, known.removesuffix(TEXT_ALONE)
    return ModelShape.model_validate({"name": known, "source": entry["source"], **shape})


def names(kind: Kind) -> tuple[str, ...]:
    """Returns all names of a kind, in the order of the file: by vendor or family, oldest first."""
    return tuple(model_document() if kind is Kind.MODELS else current_entries(FILES[kind]))


def figures(kind: Kind, name: str, *, path: str = "") -> tuple[Figure, ...]:
    """Returns every figure of an entry with its source; raises `CatalogError` for an unknown name."""
    require_known(kind, name, path or kind.value.removesuffix("s"))
    return _model_figures(name) if kind is Kind.MODELS else current_entries(FILES[kind])[name]


def require_known(kind: Kind, name: str, path: str) -> None:
    """Raises `CatalogError` with the nearest names unless the catalogue has this one."""
    if name not in names(kind):
        raise CatalogError([Problem(path=path, value=name, rule=_unknown_rule(kind, name))])


def _unknown_rule(kind: Kind, name: str) -> str:
    near = _nearest(name.lower().replace("_", "-").replace(" ", "-"), names(kind))
    nearest = f"; nearest: {', '.join(near)}" if near else ""
    return f"is not among the catalogue's {kind.value}{nearest}; `capplan catalog {kind.value}` lists all"


def _nearest(wanted: str, known: Sequence[str]) -> list[str]:
    """Returns up to four names: those that contain the wanted one or are contained in it, then similarly spelt ones."""
    parts = [name for name in known if wanted and (wanted in name or name in wanted)]
    alike = difflib.get_close_matches(wanted, known, n=4, cutoff=0.5)
    return list(dict.fromkeys([*parts, *alike]))[:4]


def _fields(kind: Kind, name: str, fields: Mapping[str, str], path: str) -> dict[str, float | str]:
    """Returns the SI values of an entry by field of its domain type."""
    return {
        fields[figure.quantity]: figure.si_value
        for figure in figures(kind, name, path=path)
        if figure.quantity in fields
    }


def _made(made: type[Made], kind: Kind, key: str, fields: Mapping[str, str], name: str, path: str) -> Made:
    """Returns a domain type; raises `CatalogError` if a user's own figures omit a field or break its rules.

    Args:
        made: the domain type.
        kind: its kind of entry.
        key: its field for the name.
        fields: its other fields, by quantity in the file.
        name: name of the entry.
        path: what the error names.
    """
    try:
        return made.model_validate({key: name, **_fields(kind, name, fields, path)})
    except ValidationError as error:
        quantities = {field: quantity for quantity, field in fields.items()}
        missing, wrong = [], []
        for detail in error.errors(include_url=False):
            quantity = ".".join(quantities.get(str(part), str(part)) for part in detail["loc"])
            if detail["type"] == "missing":
                missing.append(f"{quantity} ({_usual_unit(kind, quantity)})")
            else:
                rule = detail["msg"].removeprefix("Value error, ")
                wrong.append(f"{quantity}: {rule}" if quantity else rule)
        lacking = [f"these quantities are missing, with their units: {', '.join(missing)}"] if missing else []
        rule = f"has figures in a file of your own that make no {made.__name__.lower()}: {'; '.join([*lacking, *wrong])}"
        raise CatalogError([Problem(path=path, value=name, rule=rule)]) from error


def _usual_unit(kind: Kind, quantity: str) -> str:
    """Returns the unit in which the catalogue has a quantity."""
    known = (figure for entry in current_entries(FILES[kind]).values() for figure in entry)
    return next(figure.unit for figure in known if figure.quantity == quantity)


def _word(accelerator_name: str, quantity: str, path: str) -> str:
    found = figures(Kind.ACCELERATORS, accelerator_name, path=path)
    words = [str(figure.value) for figure in found if figure.quantity == quantity]
    if not words:
        rule = f"has no {quantity} in the catalogue: name one in the offer"
        raise CatalogError([Problem(path=path, value=accelerator_name, rule=rule)])
    return words[0]


@cache
def _model_figures(name: str) -> tuple[Figure, ...]:
    """Returns the figures of a shape with its computed and published parameter counts.

    Heads of linear attention and of an indexer are told from those of attention by `linear_` and `indexer_`; sizes of
    compressed attention, of hyper-connections and of a vision encoder begin with `compressed_`, `hyper_` and `vision_`.
    """
    entry, shape = model_document()[name], model(name, has_vision=True)
    numbers = shape.model_dump(exclude={"name", "source"}, exclude_none=True)
    parts = [numbers.pop(name, {}) for name in ("experts", "latent_attention", "sliding_window")]
    others = {"linear": numbers.pop("linear_attention", {}), "indexer": parts[1].pop("indexer", {})}
    others |= {
        "compressed": numbers.pop("compressed_attention", {}),
        "hyper": numbers.pop("hyper_connections", {}),
        "vision": _of_vision(numbers.pop("vision", {})),
    }
    parts += [{f"{kind}_{name}": value for name, value in part.items()} for kind, part in others.items()]
    flat = {name: value for part in (numbers, *parts) for name, value in part.items()}
    counts = {"num_parameters": shape.num_parameters, "num_active_parameters": shape.num_active_parameters}
    if shape.vision:
        counts["vision_parameters"] = shape.vision_parameters
    published = {quantity: entry[quantity] for quantity in _PUBLISHED if quantity in entry}
    return (
        *(_model_figure(entry, quantity, value) for quantity, value in flat.items()),
        *(_model_figure(entry, quantity, value, SHAPE_SOURCE) for quantity, value in counts.items()),
        *(_model_figure(entry, quantity, value) for quantity, value in published.items()),
    )


def _of_vision(fields: Mapping[str, object]) -> dict[str, object]:
    """Returns the figures of a vision encoder; the widths of its projectors are one text."""
    sizes = cast("tuple[int, ...]", fields.get("projector_sizes", ()))
    told = {"projector_sizes": ", ".join(map(str, sizes))} if sizes else {}
    return {**fields, **told}


SHAPE_SOURCE = "DERIVED: counted from the shape"
_PUBLISHED = (
    "published_parameters",
    "published_parameters_with_vision",
    "published_active_parameters",
    "published_active_parameters_without_embedding",
    "published_active_parameters_without_embedding_and_output",
)


def _model_figure(entry: Mapping[str, object], quantity: str, value: object, source: str = "") -> Figure:
    return Figure(
        quantity=quantity,
        value=value if isinstance(value, str) else float(cast("float", value)),
        unit="text" if isinstance(value, str) else "count",
        source=source or str(entry["source"]),
        date=str(entry["date"]),
        confidence=Confidence(str(entry["confidence"])),
    )
