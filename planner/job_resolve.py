"""Which figures do the short forms of a job file stand for? Names become catalogue entries, gaps their defaults.

What cannot be resolved is reported and left as `None`; the report hides what validation then says about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from planner.job_schema import LONG_FORMS, Location, long_form
from planner.plain import plain_copy
from planner.problems import Findings, nearest
from planner.yaml_text import read_document
from simulator import catalog
from simulator.errors import InputError
from simulator.hardware import Accelerator, Site
from simulator.huggingface import shape_from_config
from simulator.job import Estimate
from simulator.reliability import RELIABILITY_PRESETS

Fields = dict[str, object]
Entry = TypeVar("Entry")

_BATCH_MULTIPLE = 64
"""Sequences: a global batch in tokens is a round figure, and one in sequences must split over many replicas."""
_MOST_SEQUENCES = 100_000_000
_DEFAULT_RELIABILITY = "typical"
_NO_PRICE = Estimate(low=0.0, mid=0.0, high=0.0)


def resolve(document: Fields, *, name: str, folder: Path, findings: Findings) -> Fields:
    """Returns the fields of a `Job`: every short form replaced, every default of a file filled in.

    Args:
        document: Plain values, as `plain_copy` returns them.
        name: Name of a job that gives none.
        folder: Where relative paths start.
        findings: Takes the problems.
    """
    job = {**document}
    if job.get("name") is None:
        job["name"] = name
    if isinstance(workload := job.get("workload"), dict):
        job["workload"] = _workload(workload, folder, findings)
    fabric = _entry(job.pop("fabric", None), catalog.fabric, ("fabric",), findings)
    if isinstance(offers := job.get("offers"), list):
        located = [(("offers", index), offer) for index, offer in enumerate(offers)]
        job["offers"] = [
            _offer(offer, fabric, place, findings) if isinstance(offer, dict) else offer
            for place, offer in located
        ]
    _lengthen(job, "site", (), findings)
    if isinstance(site := job.get("site"), dict):
        job["site"] = _site(site, findings)
    job["reliability"] = _reliability(job, findings)
    return job


def _entry(
    value: object, find: Callable[[str], Entry], location: Location, findings: Findings
) -> Entry | object:
    """Returns the catalogue's entry for a name, any other value as it is."""
    return _found(find, value, location, findings) if isinstance(value, str) else value


def _found(find: Callable[[str], Entry], name: str, location: Location, findings: Findings) -> Entry | None:
    try:
        return find(name)
    except InputError as error:
        for problem in error.problems:
            findings.add(location, name, problem.rule)
        return None


def _lengthen(fields: Fields, field: str, location: Location, findings: Findings) -> None:
    """Replaces a single value by the mapping that it stands for, if there is one."""
    value = fields.get(field)
    long = long_form(field, value)
    if long is not value:
        fields[field] = long
        for key in LONG_FORMS[field]:
            findings.rename((*location, field, key), (*location, field))


# Workload


def _workload(given: Fields, folder: Path, findings: Findings) -> Fields:
    workload = {**given}
    location = ("workload", "model")
    model = _entry(workload.get("model"), catalog.model, location, findings)
    if isinstance(model, dict) and "config" in model:
        model = _configured_model(model, folder, location, findings)
    if "model" in workload:
        workload["model"] = model
    tokens = workload.pop("global_batch_tokens", None)
    if tokens is not None:
        workload["global_batch_size"] = _batch_size(tokens, workload, findings)
    return workload


def _configured_model(model: Fields, folder: Path, location: Location, findings: Findings) -> Fields | None:
    """Returns the shape in a `config.json`; its name is the one given, else the one of the file or its folder."""
    for field in model.keys() - {"config", "name"}:
        findings.add((*location, field), model[field], "must be left out: config gives the whole shape")
    text, here = model["config"], (*location, "config")
    if not isinstance(text, str):
        findings.add(here, text, "must be the path of a config.json")
    elif (config := _found(lambda name: read_document(folder / name), text, here, findings)) is not None:
        file = Path(text)
        name = (
            model.get("name") or (file.parent.name if file.stem == "config" else file.stem) or "config.json"
        )
        if isinstance(config, Mapping) and isinstance(name, str):
            return _shape(config, name, here, findings)
        findings.add(here, text, "must name a file that holds one mapping, and name must be text")
    findings.hide(location)
    return None


def _shape(config: Mapping[str, object], name: str, location: Location, findings: Findings) -> Fields | None:
    """Returns the fields of a shape, so that they meet the same rules as fields that are written out."""
    try:
        shape = shape_from_config(config, name)
    except InputError as error:
        for problem in error.problems:
            findings.add((*location, problem.path), config.get(problem.path), problem.rule)
        findings.hide(location[:-1])
        return None
    findings.rename(location[:-1], location)
    return plain_copy(shape.model_dump(), findings)


def _batch_size(tokens: object, workload: Fields, findings: Findings) -> int | None:
    """Returns the sequences of a global batch that is given in tokens, as `FORMS` says."""
    here = ("workload", "global_batch_tokens")
    findings.hide(("workload", "global_batch_size"))
    length, wanted = _number(workload.get("sequence_length")), _number(tokens)
    if workload.get("global_batch_size") is not None:
        findings.add(here, tokens, "give either global_batch_size or global_batch_tokens, not both")
    elif wanted is None:
        findings.add(here, tokens, "must be a number")
    elif length is not None and length > 0:
        if not length <= wanted <= length * _MOST_SEQUENCES:
            rule = f"must be 1 to {_MOST_SEQUENCES:,} sequences of sequence_length ({length:.15g}) tokens"
            findings.add(here, tokens, rule)
        else:
            multiples = round(wanted / length / _BATCH_MULTIPLE) * _BATCH_MULTIPLE
            return multiples or round(wanted / length)
    return None


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, (int, float, str)) else None
    except ValueError:
        return None


# Offers


def _offer(given: Fields, job_fabric: object, location: Location, findings: Findings) -> Fields:
    offer = {**given}
    for field in ("num_gpus", "rent_usd_per_gpu_hour", "purchase_usd_per_node"):
        _lengthen(offer, field, location, findings)
    accelerator = offer.get("accelerator")
    if accelerator is None:
        offer.pop("accelerator", None)
    else:
        offer["accelerator"] = _entry(accelerator, catalog.accelerator, (*location, "accelerator"), findings)
    name = accelerator if isinstance(accelerator, str) else _own_id(accelerator)
    offer["node"] = _entry(offer.get("node"), catalog.node, (*location, "node"), findings)
    if given.get("node") is None:
        offer["node"] = _usual(catalog.default_node, name, (*location, "node"), findings)
    offer["fabric"] = _entry(offer.get("fabric"), catalog.fabric, (*location, "fabric"), findings)
    if given.get("fabric") is None:
        offer["fabric"] = _common_fabric(job_fabric, name, location, findings)
    return _priced(offer, name, location, findings)


def _own_id(accelerator: object) -> str | None:
    """Returns the id of an accelerator that is written out, if it is text."""
    match accelerator:
        case Accelerator(id=name) | {"id": str(name)}:
            return name
        case _:
            return None


def _is_known(name: str | None) -> bool:
    return name in catalog.names(catalog.Kind.ACCELERATORS)


def _usual(
    find: Callable[[str], Entry], name: str | None, location: Location, findings: Findings
) -> Entry | None:
    """Returns what the catalogue has for an accelerator; an own accelerator must come with its own."""
    if name is not None and _is_known(name):
        return _found(find, name, location, findings)
    if name is None or findings.is_hidden((*location[:-1], "accelerator")):
        findings.hide(location)
    else:
        findings.add(location, None, "is missing: the catalogue knows none for an accelerator of your own")
    return None


def _common_fabric(fabric: object, name: str | None, location: Location, findings: Findings) -> object:
    """Returns the job's fabric if there is one, else the usual one of the accelerator."""
    here = (*location, "fabric")
    if fabric is not None:
        findings.rename(here, ("fabric",))
        return fabric
    if findings.is_hidden(("fabric",)):
        findings.hide(here)
        return None
    return _usual(catalog.default_fabric, name, here, findings)


def _priced(offer: Fields, name: str | None, location: Location, findings: Findings) -> Fields:
    """Returns an offer with the catalogue's rent where it has no price, and with the source of its price."""
    if offer.get("price_source") is None:
        offer.pop("price_source", None)
    has_price = any(
        offer.get(field) is not None or findings.is_hidden((*location, field))
        for field in ("rent_usd_per_gpu_hour", "purchase_usd_per_node")
    )
    if has_price:
        return offer
    if name is None or not _is_known(name):
        return offer
    found = _found(catalog.rent, name, (*location, "rent_usd_per_gpu_hour"), findings)
    rent, source = found or (_NO_PRICE, "")
    return {**offer, "rent_usd_per_gpu_hour": rent, "price_source": offer.get("price_source", source)}


# Site and reliability


def _site(given: Fields, findings: Findings) -> Fields:
    """Returns a site whose missing figures are those of its region; a region of one's own has none missing."""
    region = given.get("region")
    missing = [field for field in Site.model_fields if given.get(field) is None]
    if not isinstance(region, str) or not missing:
        return given
    found = _found(catalog.site, region, ("site", "region"), findings)
    if found is None:
        for field in missing:
            findings.hide(("site", field))
        return given
    return {**given, **{field: getattr(found, field) for field in missing}}


def _reliability(job: Fields, findings: Findings) -> object:
    """Returns the job's reliability: its own figures over those of its preset."""
    if job.get("reliability") is None:
        return RELIABILITY_PRESETS[_DEFAULT_RELIABILITY]
    _lengthen(job, "reliability", (), findings)
    given = job["reliability"]
    if not isinstance(given, dict) or given.get("preset") is None:
        return _without(given, "preset") if isinstance(given, dict) else given
    preset, own = given["preset"], _without(given, "preset")
    if not isinstance(preset, str) or preset not in RELIABILITY_PRESETS:
        known = tuple(RELIABILITY_PRESETS)
        findings.add(("reliability", "preset"), preset, f"must be a preset; {nearest(str(preset), known)}")
        findings.hide(("reliability", "failures_per_1000_node_days"))
        return own
    return {**RELIABILITY_PRESETS[preset].model_dump(), **own}


def _without(fields: Fields, key: str) -> Fields:
    return {name: value for name, value in fields.items() if name != key}
