"""Which shape does `workload.model` of a job mean? A model of the catalogue or of a `config.json`, or one with changed fields.

    model: deepseek-v3.2                                  as it is in the catalogue
    model: {name: deepseek-v3.2, num_layers: 30}          the same with fewer layers
    model: {config: mine/config.json, experts: null}      a published file, without its experts
    model: {name: mine, num_layers: 30, ...}              a shape that is written out

A field that is given replaces the known one, a part (`experts`, `latent_attention`) field by field, and `null` takes an
optional part out. Blocks of a hybrid and layers with compressed attention that are not given keep their share of the layers
(`planner.job.layer_shares`). What differs then is told in the name of the shape and, in full, in its `source`. Of a multimodal
model only the language model is meant unless the job has images, whatever it says of `vision`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from planner.input.plain import plain_copy
from planner.input.problems import Findings, shown
from planner.input.schema import Location, record_in
from planner.input.yaml_text import read_document
from planner.job.in_short import in_short
from planner.job.layer_shares import HERE, named_by, named_in, with_kept_shares
from planner.job.short_forms import Fields, entry, found
from simulator import catalog
from simulator.domain.model import ModelShape
from simulator.domain.vision import VisionEncoder
from simulator.errors import InputError
from simulator.huggingface.naming import model_name
from simulator.huggingface.shape import LANGUAGE_KEY, language_part, shape_from_config
from simulator.record import Record

CHANGED = ", changed: "
"""Between the name of a known model and what differs from it."""
LONGEST_NAME = 100
"""Characters of `ModelShape.name`."""
_LABELS = ("name", "source")
_OF_PLANS = ("vision.counts_as_layers",)
"""Fields of a model that say how it is cut, not what it is."""
_NEEDED = tuple(name for name, field in ModelShape.model_fields.items() if field.is_required())


def resolved_model(model: object, folder: Path, findings: Findings, *, has_images: bool = False) -> object:
    """Returns the fields of the shape that a job means; anything that is no form of a known model unchanged.

    Args:
        model: `workload.model` as it is written, nulls included.
        folder: Where the paths of `config.json` files start.
        findings: Collects the problems.
        has_images: Whether the sequences have images, which a vision encoder makes tokens of.
    """
    if isinstance(model, str):
        return entry(model, partial(catalog.model, has_vision=has_images), HERE, findings)
    if not isinstance(model, dict):
        return model
    if not has_images and _is_vision(model.get("vision")):
        model = _text_alone(model)
    has_vision = has_images and not _is_written_out(model.get("vision"))
    if "config" in model:
        given = {field: value for field, value in model.items() if field != "config"}
        shape = _configured_model(model, folder, findings, has_vision=has_vision)
        if shape and given.keys() <= {*_LABELS}:
            findings.rename(HERE, (*HERE, "config"))
        return _changed(shape, given, findings)
    if _is_known_by_name(model):
        known = _of_catalogue(model, findings, has_vision=has_vision)
        given = {field: value for field, value in model.items() if field != "name"}
        return _changed(known, given, findings)
    return model


def _text_alone(model: Fields) -> Fields:
    """Returns a model without the vision encoder that it has, and is called so."""
    name, rest = model.get("name"), {field: value for field, value in model.items() if field != "vision"}
    is_known = "config" in model or _is_known_by_name(rest)
    if is_known or not isinstance(name, str) or name.endswith(catalog.TEXT_ALONE):
        return rest
    return {**rest, "name": f"{name}{catalog.TEXT_ALONE}"}


def _is_vision(vision: object) -> bool:
    """Whether a job says of a vision encoder what there is to say; anything else is left to the check of the job."""
    return isinstance(vision, Mapping) and vision.keys() <= VisionEncoder.model_fields.keys()


def _is_written_out(vision: object) -> bool:
    """Whether a job has all that a vision encoder needs, so that none is read elsewhere."""
    needed = {name for name, field in VisionEncoder.model_fields.items() if field.is_required()}
    return isinstance(vision, Mapping) and needed <= vision.keys()


def told_in_name(job: Fields, written: Fields, overrides: Sequence[str], findings: Findings) -> Fields:
    """Returns a job whose model, if overrides change a shape that is written out, is named after what they change.

    Kinds of layers that they do not name keep their share of the layers, as in `_changed`.

    Args:
        job: the fields of the job with all overrides.
        written: without them.
        overrides: what changes the job.
        findings: Collects the problems.
    """
    before = _whole_shape(written)
    job = _with_kept_shares(job, before, named_by(overrides), findings)
    models = [before, _whole_shape(job)]
    if not (models[0] and models[1]) or models[0].name != models[1].name:
        return job
    known, _, told = models[0].name.partition(CHANGED)
    changes = list(_changes(models[0], models[1]))
    if not changes:
        return job
    places = {_place_of(change) for change in changes}
    earlier = models[0].source.rpartition(f"{CHANGED}")[2] if told else ""
    kept = [change for change in earlier.split(", ") if change and _place_of(change) not in places]
    workload = job["workload"]
    assert isinstance(workload, dict)
    model = {**workload["model"], **_told(known, models[1].source, [*kept, *changes])}
    return {**job, "workload": {**workload, "model": model}}


def _with_kept_shares(
    job: Fields, known: ModelShape | None, named: Collection[str], findings: Findings
) -> Fields:
    """Returns a job of which overrides change some fields of a shape that is written out."""
    workload = job.get("workload")
    model = workload.get("model") if isinstance(workload, dict) else None
    if not (known and named and isinstance(workload, dict) and isinstance(model, dict)):
        return job
    return {**job, "workload": {**workload, "model": with_kept_shares(model, known, named, findings)}}


def _whole_shape(job: Fields) -> ModelShape | None:
    """Returns the shape that a job writes out; `None` for any other model, and for one that breaks rules."""
    workload = job.get("workload")
    model = workload.get("model") if isinstance(workload, dict) else None
    if not isinstance(model, dict) or "config" in model or _missing(model):
        return None
    try:
        return ModelShape.model_validate({name: value for name, value in model.items() if value is not None})
    except ValidationError:
        return None


def _place_of(change: str) -> str:
    """Returns the field of a change that is told: `num_layers` of `num_layers 30`, `experts` of `no experts`."""
    return change.removeprefix("no ").partition(" ")[0]


def told_changes(text: str) -> Iterator[str]:
    """Yields a sentence that tells in what a model differs from the known one that its job names; none if it does not.

    Args:
        text: Its source, which tells everything, or its name.
    """
    told = text.rpartition("; ")[2]
    if CHANGED in told:
        yield f"The model is {told}."


def _is_known_by_name(model: Fields) -> bool:
    """Whether a mapping names a model of the catalogue instead of writing a whole shape out, or is meant to do so."""
    name, missing = model.get("name"), _missing(model)
    is_known = name in catalog.names(catalog.Kind.MODELS)
    return name is not None and bool(missing) and (is_known or len(missing) > len(_NEEDED) // 2)


def _missing(model: Fields) -> list[str]:
    return [field for field in _NEEDED if field != "name" and model.get(field) is None]


def _of_catalogue(model: Fields, findings: Findings, *, has_vision: bool) -> ModelShape | None:
    """Returns the model of the catalogue that a mapping names; any other name is reported, with what a shape lacks."""
    name, here = model.get("name"), (*HERE, "name")
    own = f"a model of your own needs {', '.join(_missing(model))}, too"
    if not isinstance(name, str):
        findings.add(here, name, f"must be the name of a model; {own}")
        return None
    try:
        return catalog.model(name, has_vision=has_vision)
    except InputError as error:
        for problem in error.problems:
            findings.add(here, name, f"{problem.rule}; {own}")
        return None


def _configured_model(
    model: Fields, folder: Path, findings: Findings, *, has_vision: bool
) -> ModelShape | None:
    """Returns the shape in a `config.json`, with the given name, or else that of `model_name`."""
    text, here = model["config"], (*HERE, "config")
    if not isinstance(text, str):
        findings.add(here, text, "must be the path of a config.json")
        return None
    config = found(lambda name: read_document(folder / name), text, here, findings)
    if config is None:
        return None
    name = model.get("name") or (model_name(config, Path(text)) if isinstance(config, Mapping) else "")
    if isinstance(config, Mapping) and isinstance(name, str):
        return _shape(config, name, here, findings, has_vision=has_vision)
    findings.add(here, text, "must name a file that holds one mapping, and name must be text")
    return None


def _shape(
    config: Mapping[str, object], name: str, location: Location, findings: Findings, *, has_vision: bool
) -> ModelShape | None:
    try:
        shape = shape_from_config(config, name, has_vision=has_vision)
    except InputError as error:
        for problem in error.problems:
            value = language_part(config).get(problem.path.removeprefix(f"{LANGUAGE_KEY}."))
            told = problem.value if value is None else shown(value)
            findings.add_told((*location, *filter(None, [problem.path])), told, problem.rule)
        return None
    return shape


def _changed(known: ModelShape | None, given: Fields, findings: Findings) -> Fields | None:
    """Returns the fields of a known model with the given ones in their place, named after what differs.

    Fields that break a rule stay as they are given: the rules of the type report them.
    """
    if known is None:
        findings.hide(HERE)
        return None
    fields = plain_copy(_with_fields(known.model_dump(), given, ModelShape, HERE, findings), findings)
    fields = with_kept_shares(fields, known, named_in(given), findings)
    try:
        shape = ModelShape.model_validate(fields)
    except ValidationError:
        return fields
    changes = list(_changes(known, shape))
    if not changes:
        return fields
    told = _told(known.name, shape.source, changes)
    return {**fields, **told, **({"name": fields["name"]} if given.get("name") else {})}


def _with_fields(
    known: Mapping[str, object],
    given: Mapping[str, object],
    kind: type[Record],
    location: Location,
    findings: Findings,
) -> Fields:
    """Returns known fields with those that are given, recursively in the parts that are there."""
    fields = {**known}
    for name, value in given.items():
        inner, here = kind.model_fields.get(name), (*location, name)
        part = record_in(inner.annotation) if inner else None
        if value is None and inner:
            fields[name] = None if inner.default is None else known.get(name)
        elif part and isinstance(value, dict):
            own = known.get(name)
            if own is None and value and all(each is None for each in value.values()):
                findings.add_told(
                    (*here, next(iter(value))), "null", f"cannot be taken out: there is no {name}"
                )
                continue
            below = own if isinstance(own, dict) else {}
            fields[name] = _with_fields(below, value, part, here, findings)
        else:
            fields[name] = value
    return fields


def _changes(known: Record, other: Record, path: str = "") -> Iterator[str]:
    """Yields what differs in a record, in the order of its fields: `num_layers 30`, `no experts`."""
    for name in type(known).model_fields:
        before, after = getattr(known, name), getattr(other, name)
        here = f"{path}{name}"
        if before == after or here in (*_LABELS, *_OF_PLANS):
            continue
        if isinstance(before, Record) and isinstance(after, Record):
            yield from _changes(before, after, f"{here}.")
        elif isinstance(after, Record):
            yield from (
                f"{here}.{field} {_as_written(value)}"
                for field, value in after
                if field in after.model_fields_set
            )
        else:
            yield f"no {here}" if after is None else f"{here} {_as_written(after)}"


def _as_written(value: object) -> str:
    """Returns a value as a job file has it."""
    return str(value).lower() if isinstance(value, bool) else in_short(value)


def _told(known: str, source: str, changes: list[str]) -> dict[str, str]:
    """Returns the name and the source of a model that differs from a known one."""
    before = source.partition(f"; {known}{CHANGED}")[0]
    return {"name": _name(known, changes), "source": f"{before}; {known}{CHANGED}{', '.join(changes)}"}


def _name(known: str, changes: list[str]) -> str:
    """Returns the name of a changed model, with as many of its changes as a name has room for."""
    for number in range(len(changes), 0, -1):
        rest = len(changes) - number
        more = f" and {rest} more" if rest else ""
        name = f"{known}{CHANGED}{', '.join(changes[:number])}{more}"
        if len(name) <= LONGEST_NAME:
            return name
    ending = f"{CHANGED}{len(changes)} fields"
    return known[: LONGEST_NAME - len(ending)] + ending
