"""What may a job file contain, and where? The fields of the domain types, and the short forms that files add."""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import get_args

from simulator.domain.hardware import Accelerator, Site
from simulator.domain.job import Job
from simulator.domain.model import ModelShape
from simulator.domain.offer import Offer
from simulator.domain.options import WhatIf
from simulator.domain.reliability import RELIABILITY_PRESETS, Reliability
from simulator.domain.straggler_causes import STRAGGLER_PRESETS
from simulator.domain.workload import Workload
from simulator.record import Record

Location = tuple[str | int, ...]
"""Place of a value in a document: keys of mappings and positions in lists."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a field is written in a file if that differs from the field of the domain type."""

    model: type[Record]
    """Type that has the field, or that the field is resolved into."""
    field: str
    """Name of the field in the file."""
    written: str
    """What a user may write."""
    default: str = ""
    """Value if it is left out; empty: the default of the domain type."""
    meaning: str = ""
    """Description of a field that exists only in files."""


DEFAULT_PRESET = "typical"
"""Fleet of a job that says nothing of its `reliability`."""
_PRICE = "number, or {low, mid, high}"
_RENT = f"{_PRICE}; or `on_demand`, `reserved_1y`, `reserved_3y` or `spot` for the catalogue's prices of that kind"
_CATALOG_RENT = "the catalogue's rent, unless a purchase price is given"
_STRAGGLERS = ", ".join(f"`{name}`" for name in STRAGGLER_PRESETS)
_PRESETS = ", ".join(f"`{name}`" for name in RELIABILITY_PRESETS)

FORMS = (
    Form(model=Job, field="name", written="text", default="name of the file without its suffix"),
    Form(model=Job, field="site", written="region of the catalogue, or the fields of Site"),
    Form(
        model=Job,
        field="reliability",
        written=f"preset ({_PRESETS}), or the fields of Reliability",
        default=f"`{DEFAULT_PRESET}`",
    ),
    Form(
        model=Job,
        field="fabric",
        written="fabric of the catalogue, or the fields of Fabric",
        default="each offer's own",
        meaning="Network of all offers that name none.",
    ),
    Form(
        model=Job,
        field="catalog",
        written="path of a CSV file, or list of paths, relative to the job file",
        default="not set",
        meaning="Own prices, hardware, regions, frameworks and factors, which replace those of the catalogue or are new "
        "entries (`docs/cost-energy-carbon.md`).",
    ),
    Form(
        model=Job,
        field="calibration",
        written="path of a calibration file, relative to the job file, or its fields",
        default="published constants",
        meaning="Constants that were measured on the cluster itself (`docs/calibrate.md`).",
    ),
    Form(model=WhatIf, field="sites", written="list of regions of the catalogue, or of fields of Site"),
    Form(
        model=Workload,
        field="model",
        written="model of the catalogue, {config: path of a config.json}, or the fields of ModelShape; fields beside the first "
        "two change them, and null takes a part out: {name: deepseek-v3.2, num_layers: 30, experts: {num_experts: 64}}",
    ),
    Form(model=Workload, field="framework", written="framework of the catalogue"),
    Form(
        model=Workload,
        field="global_batch_size",
        written="whole number, unless global_batch_tokens is given",
        default="from global_batch_tokens",
    ),
    Form(
        model=Workload,
        field="global_batch_tokens",
        written="number, unless global_batch_size is given",
        default="not set",
        meaning="Tokens per optimizer step, at least one sequence; rounded to sequences that split over "
        "many replicas: the nearest multiple of the largest power of two that has one within 5 % (4e6 tokens are 512 "
        "sequences of 8192). A whole number of sequences is kept if it is below 64 or a multiple of 64.",
    ),
    Form(
        model=ModelShape,
        field="config",
        written="path, relative to the job file",
        default="not set",
        meaning="`config.json` as published with the weights, in the place of all other fields; those that are given "
        "change it. Multi-token prediction that it tells of is trained only where `num_mtp_layers` asks for it. Of a model "
        "for several media its `text_config` is read, the language model alone, and its `vision_config` where the workload has "
        "`images`. "
        "Without `name` it is called like the file or its folder, or, where these say nothing (`hf/config.json`), by "
        "`_name_or_path` or `model_type`.",
    ),
    Form(
        model=Offer,
        field="accelerator",
        written="accelerator of the catalogue, or the fields of Accelerator",
    ),
    Form(
        model=Offer,
        field="node",
        written="node of the catalogue, or the fields of Node",
        default="the catalogue's usual node of the accelerator",
    ),
    Form(model=Offer, field="num_gpus", written="whole number, or {min, max}"),
    Form(model=Offer, field="rent_usd_per_gpu_hour", written=_RENT, default=_CATALOG_RENT),
    Form(model=Offer, field="purchase_usd_per_node", written=_PRICE, default="not for sale"),
    Form(
        model=Offer,
        field="fabric",
        written="fabric of the catalogue, or the fields of Fabric",
        default="the job's `fabric`, else the catalogue's usual one of the accelerator",
    ),
    Form(
        model=Offer,
        field="other_rent_usd_per_gpu_hour",
        written=_PRICE,
        default="the catalogue's rent, where it has one",
    ),
    Form(
        model=Offer,
        field="other_purchase_usd_per_node",
        written=_PRICE,
        default="the node's price in the catalogue, where it has one",
    ),
    Form(
        model=Offer,
        field="site",
        written="region of the catalogue, or the fields of Site",
        default="the job's site",
    ),
    Form(model=Offer, field="price_source", written="text", default="`user`, or the catalogue's sources"),
    Form(
        model=Reliability,
        field="preset",
        written=_PRESETS,
        default="not set",
        meaning="Published fleet whose figures hold for the fields that are left out.",
    ),
    Form(
        model=Reliability,
        field="failures_per_1000_node_days",
        written="number, unless preset or gpu_hours_per_failure is given",
        default="the preset's",
    ),
    Form(
        model=Reliability,
        field="gpu_hours_per_failure",
        written="number, unless failures_per_1000_node_days is given",
        default="not set",
        meaning="Accelerator-hours of the job between two failures that stop it, in the place of "
        "`failures_per_1000_node_days`, which is 192,000 divided by it: 16,384 accelerators that fail every 3.1 hours have "
        "50,700. The mean time between failures of the whole job (MTBF), multiplied by its accelerators.",
    ),
    Form(
        model=Reliability,
        field="stragglers",
        written=f"preset ({_STRAGGLERS}), or the fields of Stragglers",
        default="the distribution over jobs",
    ),
    Form(
        model=Site,
        field="region",
        written="region of the catalogue; any name where the three figures are given",
    ),
    *(
        Form(model=Site, field=field, written="number", default="the region's")
        for field in ("grid_kgco2e_per_kwh", "electricity_usd_per_kwh", "power_usage_effectiveness")
    ),
    *(
        Form(model=Site, field=field, written="number", default="the region's, where it is known")
        for field in ("market_kgco2e_per_kwh", "water_onsite_l_per_kwh", "water_offsite_l_per_kwh")
    ),
    *(
        Form(
            model=Site,
            field=field,
            written=f"path of a file with two columns, `timestamp, {unit}`{other}; list of hourly values; or "
            "{mean, daily_amplitude, yearly_amplitude}, highest at midnight in midwinter, when the run starts",
        )
        for field, unit, other in (
            ("grid_profile", "g/kWh", ", or of a carbon trace of OpenDC (`.parquet`)"),
            ("electricity_profile", "USD/kWh", ""),
        )
    ),
    Form(
        model=Accelerator,
        field="embodied_kgco2e",
        written="number",
        default="counted from `dies`",
    ),
)
"""Every place where a file may differ from the domain type, in reading order."""

LONG_FORMS: dict[str, tuple[str, ...]] = {
    "num_gpus": ("min", "max"),
    "rent_usd_per_gpu_hour": ("low", "mid", "high"),
    "purchase_usd_per_node": ("low", "mid", "high"),
    "other_rent_usd_per_gpu_hour": ("low", "mid", "high"),
    "other_purchase_usd_per_node": ("low", "mid", "high"),
    "site": ("region",),
    "model": ("name",),
    "reliability": ("preset",),
}
"""Fields whose single value is short for a mapping with that value under each of these keys."""


def form_of(model: type[Record], field: str) -> Form | None:
    """Returns how a field is written, or `None` if files follow the domain type."""
    return next((form for form in FORMS if form.model is model and form.field == field), None)


def long_form(field: str, value: object) -> object:
    """Returns the mapping for which a single value of a field is short; any other value unchanged."""
    if field in LONG_FORMS and isinstance(value, (str, int, float)):
        return dict.fromkeys(LONG_FORMS[field], value)
    return value


def known_fields(model: type[Record]) -> tuple[str, ...]:
    """Returns the fields that a file may give for a value of this type."""
    extra = [form.field for form in FORMS if form.model is model and form.field not in model.model_fields]
    return (*model.model_fields, *extra)


def is_unset_by_null(model: type[Record], field: str) -> bool:
    """Returns whether `null` unsets a field: always, unless null is a value of the field and not its default."""
    known = model.model_fields.get(field)
    if known is None:
        return field in known_fields(model)
    return known.default is None or NoneType not in get_args(known.annotation)


def model_at(location: Location, root: type[Record] = Job) -> type[Record] | None:
    """Returns the type of the mapping at a place in a job, or in another type; `None` if there is no record."""
    model: type[Record] | None = root
    for step in location:
        if isinstance(step, int):  # list items have the type found for the list
            continue
        if model is None or step not in model.model_fields:
            return None
        model = record_in(model.model_fields[step].annotation)
    return model


def record_in(annotation: object) -> type[Record] | None:
    """Returns the record type inside an annotation such as `tuple[Offer, ...]` or `Estimate | None`."""
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return annotation
    candidates = (record_in(argument) for argument in get_args(annotation))
    return next((candidate for candidate in candidates if candidate), None)
