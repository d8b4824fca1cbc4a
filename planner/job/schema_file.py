"""What can an editor complete in a job file? The JSON Schema of job files: the domain types, and the short forms of files.

Names of the catalogue are suggested; other names are allowed if the user's own price list or region file may define them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import get_args

from planner.input.schema import form_of, known_fields
from simulator import catalog
from simulator.catalog import Kind
from simulator.catalog.rents import CONTRACTS
from simulator.domain.hardware import Fabric, Site
from simulator.domain.job import Job
from simulator.domain.model import ModelShape
from simulator.domain.offer import Offer
from simulator.domain.options import WhatIf
from simulator.domain.reliability import LEAST_GPU_HOURS_PER_FAILURE, RELIABILITY_PRESETS, Reliability
from simulator.domain.straggler_causes import STRAGGLER_PRESETS
from simulator.domain.workload import Workload
from simulator.record import Record, meanings

Schema = dict[str, object]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
OFFERED = (Kind.ACCELERATORS, Kind.NODES, Kind.FABRICS, Kind.SITES, Kind.FRAMEWORKS)
"""Kinds of the catalogue to which a user's own files may add."""
_TEXT: Schema = {"type": "string"}
_PRICE: Schema = {"type": "number", "minimum": 0}
_NULL: Schema = {"type": "null"}


def job_file_schema() -> Schema:
    """Returns the schema of job files."""
    whole = Job.model_json_schema(mode="validation")
    definitions = whole.pop("$defs")
    records = {record.__name__: record for record in _records_in(Job)}
    found = {
        name: _as_written(records[name], definition) if name in records else definition
        for name, definition in definitions.items()
    }
    root = _as_written(Job, whole)
    known = {kind.value: {"anyOf": [_one_of(catalog.names(kind)), _TEXT]} for kind in OFFERED}
    plain = _without_titles({**root, "$defs": {**found, **known}})
    assert isinstance(plain, dict)
    return {"$schema": DIALECT, "title": "capplan job file", **plain}


def schema_as_text(schema: Mapping[str, object]) -> str:
    """Returns a schema as it is written to a file, with a line end."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _records_in(annotation: object, found: dict[type[Record], None] | None = None) -> Iterable[type[Record]]:
    """Returns every record type inside an annotation, recursively."""
    known: dict[type[Record], None] = {} if found is None else found
    if isinstance(annotation, type) and issubclass(annotation, Record) and annotation not in known:
        known[annotation] = None
        for field in annotation.model_fields.values():
            _records_in(field.annotation, known)
    for argument in get_args(annotation):
        _records_in(argument, known)
    return known


def _as_written(record: type[Record], definition: Mapping[str, object]) -> Schema:
    """Returns a type's definition as used in files, with short forms, additional fields and optional fields."""
    properties = definition.get("properties", {})
    assert isinstance(properties, dict)
    forms = _short_forms()
    written = {
        name: _property(
            properties.get(name),
            forms.get((record, name), []),
            _described(record, name),
            _is_needed(record, name),
        )
        for name in known_fields(record)
    }
    needed = [name for name in record.model_fields if _is_needed(record, name)]
    plain = {name: part for name, part in definition.items() if name not in ("required", "properties")}
    required: Schema = {"required": needed} if needed else {}
    if record is ModelShape:
        known: Schema = {"required": ["name"], "properties": {"name": _one_of(catalog.names(Kind.MODELS))}}
        required = {"anyOf": [{"required": ["config"]}, known, {"required": needed}]}
    elif record in _records_in(ModelShape):  # of a known model a file may change single fields
        required = {}
    return {**plain, "properties": written, **required}


def _is_needed(record: type[Record], name: str) -> bool:
    """Returns whether a file must have the field, because neither the type nor the form has a default."""
    field, form = record.model_fields.get(name), form_of(record, name)
    return field is not None and field.is_required() and not (form and form.default)


def _described(record: type[Record], name: str) -> str:
    form = form_of(record, name)
    meaning = (form.meaning if form else "") or meanings(record).get(name, "")
    written = f" Written as: {form.written}." if form else ""
    default = f" Left out: {form.default.replace('`', '')}." if form and form.default else ""
    return f"{' '.join(meaning.split())}{written}{default}".strip()


def _property(known: object, forms: list[Schema], description: str, is_needed: bool) -> Schema:
    """Returns a property that accepts its short forms, its own form, and null if it is optional."""
    own = dict(known) if isinstance(known, dict) else None
    default: Schema = {}
    if own is not None:
        own.pop("title", None)
        own.pop("description", None)
        value = own.pop("default", None)
        default = {} if value is None or isinstance(value, dict) else {"default": value}
    choices = [*forms, *([own] if own is not None else []), *([] if is_needed else [_NULL])]
    flat = [part for choice in choices for part in _alternatives(choice)]
    distinct = [part for index, part in enumerate(flat) if part not in flat[:index]]
    body = distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
    return {"description": description, **default, **body}


def _alternatives(choice: Schema) -> list[Schema]:
    """Returns the alternatives of a choice; a choice with other keywords is itself one alternative."""
    inner = choice.get("anyOf")
    return list(inner) if isinstance(inner, list) and len(choice) == 1 else [choice]


def _short_forms() -> dict[tuple[type[Record], str], list[Schema]]:
    """Returns the short forms that files may use for fields, by type and field; descriptions come from `FORMS`."""
    site, fabric = _offered(Kind.SITES), _offered(Kind.FABRICS)
    profile: list[Schema] = [_TEXT, {"type": "array", "items": {"type": "number"}}, _shape_of_day()]
    return {
        (Job, "site"): [site],
        (Job, "reliability"): [_one_of(RELIABILITY_PRESETS)],
        (Job, "fabric"): [fabric, _reference(Fabric)],
        (Job, "catalog"): [_TEXT, {"type": "array", "items": _TEXT}],
        (WhatIf, "sites"): [{"type": "array", "items": {"anyOf": [site, _reference(Site)]}}],
        (Workload, "model"): [_one_of(catalog.names(Kind.MODELS))],
        (Workload, "framework"): [_offered(Kind.FRAMEWORKS)],
        (Workload, "global_batch_tokens"): [{"type": "number", "exclusiveMinimum": 0}],
        (ModelShape, "config"): [_TEXT],
        (Offer, "accelerator"): [_offered(Kind.ACCELERATORS)],
        (Offer, "node"): [_offered(Kind.NODES)],
        (Offer, "num_gpus"): [{"type": "integer", "minimum": 1}],
        (Offer, "rent_usd_per_gpu_hour"): [
            _PRICE,
            _one_of(contract for contract in CONTRACTS if contract != "planned"),
        ],
        (Offer, "purchase_usd_per_node"): [_PRICE],
        (Offer, "fabric"): [fabric],
        (Offer, "other_rent_usd_per_gpu_hour"): [_PRICE],
        (Offer, "other_purchase_usd_per_node"): [_PRICE],
        (Offer, "site"): [site],
        (Reliability, "preset"): [_one_of(RELIABILITY_PRESETS)],
        (Reliability, "gpu_hours_per_failure"): [{"type": "number", "minimum": LEAST_GPU_HOURS_PER_FAILURE}],
        (Reliability, "stragglers"): [_one_of(STRAGGLER_PRESETS)],
        (Site, "grid_profile"): profile,
        (Site, "electricity_profile"): profile,
    }


def _shape_of_day() -> Schema:
    names = ("mean", "daily_amplitude", "yearly_amplitude")
    return {
        "type": "object",
        "properties": {name: {"type": "number"} for name in names},
        "required": ["mean"],
        "additionalProperties": False,
    }


def _one_of(names: Iterable[str]) -> Schema:
    return {"enum": [str(name) for name in names]}


def _offered(kind: Kind) -> Schema:
    """Names of the catalogue for the editor to complete; the user's own files may define others."""
    return {"$ref": f"#/$defs/{kind.value}"}


def _reference(record: type[Record]) -> Schema:
    return {"$ref": f"#/$defs/{record.__name__}"}


def _without_titles(value: object) -> object:
    """Removes titles that only repeat the names of fields."""
    match value:
        case dict():
            return {
                name: _without_titles(part)
                for name, part in value.items()
                if not (name == "title" and isinstance(part, str))
            }
        case list():
            return [_without_titles(part) for part in value]
        case _:
            return value
