"""Which inputs went into the answer, and how reliable are they? Every field of the job, and the catalogue's figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from planner.job.framework import habitual_fields
from planner.job.in_short import in_short
from planner.report.data import InputGroup, InputValue
from planner.text import human
from planner.text.figure_units import with_unit
from planner.uncertain.uncertain_inputs import UncertainInput
from planner.views.sensitivity_view import input_text
from simulator.catalog import Figure, Kind, accelerator, fabric, figures, model, names, node, site
from simulator.domain.hardware import Site
from simulator.domain.hourly import HourlyProfile
from simulator.domain.job import Job
from simulator.domain.offer import Estimate, Offer
from simulator.domain.reliability import RELIABILITY_PRESETS, Reliability
from simulator.errors import CatalogError
from simulator.record import Record

FROM_CATALOG: Final = ("accelerator", "node", "fabric", "site", "model")
"""Fields of a job that are whole entries of the catalogue."""
JOB_FILE, DEFAULT = "job file", "capplan's default, whether or not the job file repeats it"
PRESET: Final = "preset `{name}`, whether or not the job file repeats it"
FRAMEWORK: Final = "framework `{name}`, whether or not the job file repeats it"
_Said = tuple[str, str]
"""Source and confidence of a figure."""


def inputs(job: Job, unsure: Iterable[UncertainInput]) -> tuple[InputGroup, ...]:
    """Returns the inputs of an answer, of which some are uncertain."""
    groups = [
        InputGroup(title="Ranges of uncertain inputs", rows=tuple(map(_range, unsure))),
        InputGroup(title="The job", rows=tuple(_job_fields(job))),
        *_model_groups(job),
        *_distinct(list(_hardware_groups(offer)) for offer in job.offers),
        *_distinct([_site_group(job.site_of(offer))] for offer in job.offers),
    ]
    return tuple(group for group in groups if group.rows)


def _distinct(by_offer: Iterable[Sequence[InputGroup]]) -> Iterator[InputGroup]:
    """Yields the groups of all offers, equal ones once; those that share a title only say which offers they are of."""
    titles: dict[str, dict[InputGroup, list[str]]] = {}
    for number, groups in enumerate(by_offer):
        for group in groups:
            titles.setdefault(group.title, {}).setdefault(group, []).append(f"offers[{number}]")
    for title, owners in titles.items():
        for group, offers in owners.items():
            of = f" of {', '.join(offers)}" if len(owners) > 1 else ""
            yield group.model_copy(update={"title": f"{title}{of}"})


def _range(unsure: UncertainInput) -> InputValue:
    low, mid, high = (input_text(unsure, value) for value in (unsure.low, unsure.mid, unsure.high))
    return InputValue(
        name=unsure.name, value=f"{mid} ({low} to {high})", source=unsure.why, confidence="range"
    )


def _job_fields(job: Job) -> Iterator[InputValue]:
    """Yields the fields of a job; those that it has from its framework name that as their source."""
    habitual = habitual_fields(job)
    told = {"source": FRAMEWORK.format(name=job.workload.framework), "confidence": "preset"}
    for row in _fields(job, ()):
        is_habit = row.name in habitual and row.confidence == "job"
        yield row.model_copy(update=told) if is_habit else row


def _fields(record: Record, path: tuple[str, ...], usual: Record | None = None) -> Iterator[InputValue]:
    """Yields the plain fields of a record and of the records in it, except those that the catalogue describes.

    Args:
        record: a job, or a part of one.
        path: its path in the job.
        usual: the default of the whole record; if omitted, each field's own default.
    """
    source = record.price_source if isinstance(record, Offer) else JOB_FILE
    for name, field in type(record).model_fields.items():
        if name in FROM_CATALOG:
            continue
        value = getattr(record, name)
        default = (
            getattr(usual, name)
            if isinstance(usual, type(record))
            else field.get_default(call_default_factory=True)
        )
        said = (DEFAULT, "default") if value == default else _preset_of(record, name) or (source, "job")
        yield from _values(value, (*path, name), said, default if isinstance(default, Record) else None)


def _preset_of(record: Record, name: str) -> _Said | None:
    """Source and confidence of a figure that a job file takes from a published fleet by naming it."""
    if not isinstance(record, Reliability):
        return None
    value = getattr(record, name)
    alike = (preset for preset, fleet in RELIABILITY_PRESETS.items() if getattr(fleet, name) == value)
    preset = next(alike, None)
    return (PRESET.format(name=preset), "preset") if preset else None


def _values(
    value: object, path: tuple[str, ...], said: _Said, usual: Record | None = None
) -> Iterator[InputValue]:
    """Yields the plain fields in a value; `said` is the source and confidence of a plain value."""
    match value:
        case None:
            pass
        case Estimate():
            yield _asked(path, _estimate_text(value), said)
        case HourlyProfile():
            yield _asked(path, in_short(value), said)
        case Record():
            yield from _fields(value, path, usual)
        case tuple() if any(isinstance(item, Record) for item in value):
            for index, item in enumerate(value):
                yield from _values(item, (*path[:-1], f"{path[-1]}[{index}]"), said)
        case _:
            # The source of an offer's price says nothing about the offer's other fields.
            yield _asked(path, _shown(value), (JOB_FILE, "job") if said[1] == "job" else said)


def _asked(path: tuple[str, ...], shown: str, said: _Said) -> InputValue:
    source, confidence = said
    return InputValue(name=".".join(path), value=shown, source=source, confidence=confidence)


def _estimate_text(value: Estimate) -> str:
    """A price with its range, if it has one."""
    if value.low == value.high:
        return _shown(value.mid)
    return f"{_shown(value.mid)} ({_shown(value.low)} to {_shown(value.high)})"


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
    has_vision = shape.vision is not None
    known = (name for name in names(Kind.MODELS) if model(name, has_vision=has_vision) == shape)
    if (entry := next(known, None)) is None:
        yield _group("Model", shape.name, _own(shape))
        return
    rows = list(_from_catalog(Kind.MODELS, entry))
    left_out = [row for row in rows if "vision" in row.name and not has_vision]
    if left_out:  # with the number of weights, which counts those of the encoder
        left_out += [row for row in rows if row.name == human.words("num_parameters")]
    yield _group("Model", shape.name, (row for row in rows if row not in left_out))


def _hardware_groups(offer: Offer) -> Iterator[InputGroup]:
    for kind, name, record in (
        (Kind.ACCELERATORS, offer.accelerator.id, offer.accelerator),
        (Kind.NODES, offer.node.id, offer.node),
        (Kind.FABRICS, offer.fabric.kind, offer.fabric),
    ):
        is_known = _is_same(kind, name, record)
        title = {Kind.ACCELERATORS: "Accelerator", Kind.NODES: "Node", Kind.FABRICS: "Network"}[kind]
        yield _group(title, name, _from_catalog(kind, name) if is_known else _own(record))


def _site_group(place: Site) -> InputGroup:
    is_known = _is_same(Kind.SITES, place.region, place)
    return _group("Site", place.region, _from_catalog(Kind.SITES, place.region) if is_known else _own(place))


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
    return with_unit(human.figure(figure.value), figure.unit)


def _own(record: Record, path: str = "") -> Iterator[InputValue]:
    """The fields of an entry that the job wrote itself or changed, those of its parts with the name of the part."""
    for name in type(record).model_fields:
        value = getattr(record, name)
        if isinstance(value, Record) and not isinstance(value, HourlyProfile):
            yield from _own(value, f"{path}{name}.")
        elif value is not None:
            yield InputValue(
                name=f"{path}{name}",
                value=in_short(value) if isinstance(value, HourlyProfile) else _shown(value),
                source="job file (differs from the catalogue's entry)",
                confidence="job",
            )
