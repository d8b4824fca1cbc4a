"""What went into the answer, who says so, and how sure is it? Every field of the job, and the catalogue's figures behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from planner import human
from planner.report_data import InputGroup, InputValue
from planner.sensitivity_view import input_text
from planner.uncertain_inputs import uncertain_inputs
from simulator.accuracy import Accuracy
from simulator.catalog import Figure, Kind, accelerator, fabric, figures, model, names, node, site
from simulator.errors import CatalogError
from simulator.job import Estimate, Job, Offer
from simulator.record import Record

FROM_CATALOG: Final = ("accelerator", "node", "fabric", "site", "model")
"""Fields of a job that are whole entries of the catalogue."""
JOB_FILE, DEFAULT = "job file", "capplan's default"
UNITLESS: Final = ("text", "count", "fraction", "ratio")


def inputs(job: Job, offer: int, accuracy: Accuracy) -> tuple[InputGroup, ...]:
    """Returns the inputs of an answer whose recommended design takes one of the offers."""
    groups = [
        InputGroup(title="Ranges of what is not known exactly", rows=tuple(_ranges(job, offer, accuracy))),
        InputGroup(title="The job", rows=tuple(_fields(job, ()))),
        *_model_groups(job),
        *(group for each in job.offers for group in _hardware_groups(each)),
        *_site_groups(job),
    ]
    distinct = {group.title: group for group in groups if group.rows}
    return tuple(distinct.values())


def _ranges(job: Job, offer: int, accuracy: Accuracy) -> Iterator[InputValue]:
    for lever in uncertain_inputs(job, offer, accuracy):
        low, mid, high = (
            input_text(lever.input, value) for value in (lever.input.low, lever.input.mid, lever.input.high)
        )
        yield InputValue(
            name=lever.input.name,
            value=f"{mid} ({low} to {high})",
            source=lever.input.why,
            confidence="range",
        )


def _fields(record: Record, path: tuple[str, ...]) -> Iterator[InputValue]:
    """Yields the plain fields of a record and of the records in it, less those that the catalogue describes."""
    source = record.price_source if isinstance(record, Offer) else JOB_FILE
    for name, field in type(record).model_fields.items():
        if name not in FROM_CATALOG:
            value = getattr(record, name)
            is_default = not field.is_required() and value == field.default
            yield from _values(value, (*path, name), DEFAULT if is_default else source)


def _values(value: object, path: tuple[str, ...], source: str) -> Iterator[InputValue]:
    match value:
        case None:
            pass
        case Estimate():
            shown = f"{_shown(value.mid)} ({_shown(value.low)} to {_shown(value.high)})"
            yield _asked(path, shown, source)
        case Record():
            yield from _fields(value, path)
        case tuple() if any(isinstance(item, Record) for item in value):
            for index, item in enumerate(value):
                yield from _values(item, (*path[:-1], f"{path[-1]}[{index}]"), source)
        case _:
            # Where the price of an offer comes from says nothing about its other fields.
            yield _asked(path, _shown(value), source if source == DEFAULT else JOB_FILE)


def _asked(path: tuple[str, ...], shown: str, source: str) -> InputValue:
    confidence = "default" if source == DEFAULT else "job"
    return InputValue(name=".".join(path), value=shown, source=source, confidence=confidence)


def _shown(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return human.figure(value)
        case tuple():
            return ", ".join(_shown(item) for item in value) or "none"
        case dict():
            return ", ".join(f"{name}: {_shown(item)}" for name, item in value.items()) or "none"
        case _:
            return str(value)


def _model_groups(job: Job) -> Iterator[InputGroup]:
    shape = job.workload.model
    entry = next((name for name in names(Kind.MODELS) if model(name) == shape), None)
    yield _group("Model", shape.name, _from_catalog(Kind.MODELS, entry) if entry else _own(shape))


def _hardware_groups(offer: Offer) -> Iterator[InputGroup]:
    for kind, name, record in (
        (Kind.ACCELERATORS, offer.accelerator.id, offer.accelerator),
        (Kind.NODES, offer.node.id, offer.node),
        (Kind.FABRICS, offer.fabric.kind, offer.fabric),
    ):
        is_known = _is_same(kind, name, record)
        title = {Kind.ACCELERATORS: "Accelerator", Kind.NODES: "Node", Kind.FABRICS: "Network"}[kind]
        yield _group(title, name, _from_catalog(kind, name) if is_known else _own(record))


def _site_groups(job: Job) -> Iterator[InputGroup]:
    for place in {job.site_of(offer).region: job.site_of(offer) for offer in job.offers}.values():
        is_known = _is_same(Kind.SITES, place.region, place)
        yield _group(
            "Site", place.region, _from_catalog(Kind.SITES, place.region) if is_known else _own(place)
        )


def _group(kind: str, name: str, rows: Iterator[InputValue]) -> InputGroup:
    return InputGroup(title=f"{kind} {name}", rows=tuple(rows))


def _is_same(kind: Kind, name: str, record: Record) -> bool:
    """Whether a record is the catalogue's, without a change by the job."""
    makers = {
        Kind.ACCELERATORS: accelerator,
        Kind.NODES: node,
        Kind.FABRICS: fabric,
        Kind.SITES: site,
    }
    try:
        return name in names(kind) and makers[kind](name) == record
    except CatalogError:
        return False


def _from_catalog(kind: Kind, name: str) -> Iterator[InputValue]:
    for figure in figures(kind, name):
        yield InputValue(
            name=human.words(figure.quantity),
            value=_figure_text(figure),
            source=f"{figure.source}, {figure.date}" if figure.date else figure.source,
            confidence=figure.confidence.value,
        )


def _figure_text(figure: Figure) -> str:
    if isinstance(figure.value, str):
        return figure.value
    unit = "" if figure.unit in UNITLESS else f" {figure.unit}"
    return f"{human.figure(figure.value)}{unit}"


def _own(record: Record) -> Iterator[InputValue]:
    """The fields of an entry that the job wrote itself or changed."""
    for name in type(record).model_fields:
        value = getattr(record, name)
        if value is not None:
            yield InputValue(
                name=name,
                value=_shown(value),
                source="job file (not the catalogue's entry)",
                confidence="job",
            )
