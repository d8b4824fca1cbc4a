"""Which figures do the short forms of a job file mean? Names become catalogue entries, and gaps become defaults.

Values that cannot be resolved are reported and become `None`; the report hides the validation errors that follow from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from planner.calibration.file import load_calibration
from planner.input.number_text import way_out
from planner.input.plain import plain_copy
from planner.input.problems import Findings, nearest, shown
from planner.input.schema import DEFAULT_PRESET, Location
from planner.input.yaml_text import read_document
from planner.job.batch_size import whole_sequences
from planner.job.framework import with_habits
from planner.job.offers import resolved_offer
from planner.job.short_forms import Fields, entry, found, lengthen, without_nulls
from planner.job.sites import resolved_site, resolved_what_if
from simulator import catalog
from simulator.domain.model import ModelShape
from simulator.domain.reliability import RELIABILITY_PRESETS
from simulator.domain.straggler_causes import STRAGGLER_PRESETS
from simulator.errors import InputError
from simulator.huggingface.naming import model_name
from simulator.huggingface.shape import LANGUAGE_KEY, language_part, shape_from_config

MODULES = "num_mtp_layers"
"""A training choice that may be given next to a model's shape: modules of multi-token prediction."""
_MOST_SEQUENCES = 100_000_000


def resolve(document: Fields, *, name: str, folder: Path, findings: Findings) -> Fields:
    """Returns the fields of a `Job`: every short form replaced, every default of a file filled in.

    Args:
        document: Plain values, as `plain_copy` returns them.
        name: Name of the job if the document gives none.
        folder: Where relative paths start.
        findings: Collects the problems.
    """
    job = with_habits({"name": name, **without_nulls(document, ())}, findings)
    if isinstance(workload := job.get("workload"), dict):
        job["workload"] = _workload(workload, folder, findings)
    fabric = entry(job.pop("fabric", None), catalog.fabric, ("fabric",), findings)
    if isinstance(offers := job.get("offers"), list):
        located = [(("offers", index), offer) for index, offer in enumerate(offers)]
        job["offers"] = [
            resolved_offer(offer, fabric, place, folder, findings) if isinstance(offer, dict) else offer
            for place, offer in located
        ]
    if "site" in job:
        job["site"] = resolved_site(job, (), folder, findings)
    if isinstance(what_if := job.get("what_if"), dict):
        job["what_if"] = resolved_what_if(what_if, folder, findings)
    if isinstance(path := job.get("calibration"), str):
        job["calibration"] = _calibration(path, folder, findings)
    job["reliability"] = _reliability(job, findings)
    return job


def _calibration(path: str, folder: Path, findings: Findings) -> Fields | None:
    """Returns the fields of a calibration file."""
    try:
        return plain_copy(load_calibration(folder / path).model_dump(mode="json"), findings)
    except InputError as error:
        for problem in error.problems:
            findings.add(("calibration",), path, str(problem))
        return None


def _workload(given: Fields, folder: Path, findings: Findings) -> Fields:
    workload = {**given}
    location = ("workload", "model")
    model = entry(workload.get("model"), catalog.model, location, findings)
    if isinstance(model, dict) and "config" in model:
        model = _with_modules(_configured_model(model, folder, location, findings), model)
    elif isinstance(model, dict) and "name" in model and model.keys() <= {"name", MODULES}:
        known = entry(model["name"], catalog.model, (*location, "name"), findings)
        model = _with_modules(_known_model(known, location, findings), model)
    if "model" in workload:
        workload["model"] = model
    tokens = workload.pop("global_batch_tokens", None)
    if tokens is not None:
        workload["global_batch_size"] = _batch_size(tokens, workload, findings)
    return workload


def _known_model(known: object, location: Location, findings: Findings) -> Fields | None:
    """Returns the fields of a model of the catalogue; `None` if it has no model of that name."""
    if isinstance(known, ModelShape):
        return plain_copy(known.model_dump(), findings)
    if known is not None:
        findings.add((*location, "name"), known, "must be the name of a model")
    findings.hide(location)
    return None


def _with_modules(shape: Fields | None, model: Fields) -> Fields | None:
    """Returns a shape with the number of multi-token prediction modules that the model's fields give."""
    return shape if shape is None or MODULES not in model else {**shape, MODULES: model[MODULES]}


def _configured_model(model: Fields, folder: Path, location: Location, findings: Findings) -> Fields | None:
    """Returns the shape in a `config.json`, with the given name, or else that of `model_name`."""
    for field in model.keys() - {"config", "name", MODULES}:
        findings.add((*location, field), model[field], "must be left out: config gives the whole shape")
    text, here = model["config"], (*location, "config")
    if not isinstance(text, str):
        findings.add(here, text, "must be the path of a config.json")
    elif (config := found(lambda name: read_document(folder / name), text, here, findings)) is not None:
        name = model.get("name") or (model_name(config, Path(text)) if isinstance(config, Mapping) else "")
        if isinstance(config, Mapping) and isinstance(name, str):
            return _shape(config, name, here, findings)
        findings.add(here, text, "must name a file that holds one mapping, and name must be text")
    findings.hide(location)
    return None


def _shape(config: Mapping[str, object], name: str, location: Location, findings: Findings) -> Fields | None:
    """Returns the fields of a shape, to which the same rules apply as to fields that are written out."""
    try:
        shape = shape_from_config(config, name)
    except InputError as error:
        for problem in error.problems:
            value = language_part(config).get(problem.path.removeprefix(f"{LANGUAGE_KEY}."))
            told = problem.value if value is None else shown(value)
            findings.add_told((*location, *filter(None, [problem.path])), told, problem.rule)
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
        findings.add(here, tokens, f"must be a number{way_out(tokens)}")
    elif length is not None and length > 0:
        if not length <= wanted <= length * _MOST_SEQUENCES:
            rule = f"must be 1 to {_MOST_SEQUENCES:,} sequences of sequence_length ({length:.15g}) tokens"
            findings.add(here, tokens, rule)
        else:
            return whole_sequences(wanted / length)
    return None


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, (int, float, str)) else None
    except ValueError:
        return None


def _reliability(job: Fields, findings: Findings) -> object:
    """Returns the job's reliability: the figures of its preset, replaced by the job's own."""
    if job.get("reliability") is None:
        return RELIABILITY_PRESETS[DEFAULT_PRESET]
    lengthen(job, "reliability", (), findings)
    given = job["reliability"]
    if not isinstance(given, dict):
        return given
    given = _with_stragglers(given, findings)
    if given.get("preset") is None:
        return _without(given, "preset")
    preset, own = given["preset"], _without(given, "preset")
    if not isinstance(preset, str) or preset not in RELIABILITY_PRESETS:
        known = tuple(RELIABILITY_PRESETS)
        findings.add(("reliability", "preset"), preset, f"must be a preset; {nearest(str(preset), known)}")
        findings.hide(("reliability", "failures_per_1000_node_days"))
        return own
    return {**RELIABILITY_PRESETS[preset].model_dump(), **own}


def _with_stragglers(given: Fields, findings: Findings) -> Fields:
    """Returns the fields with the causes of a preset; causes and the distribution over jobs exclude each other."""
    here = ("reliability", "stragglers")
    causes = given.get("stragglers")
    if causes is None:
        return given
    prior = [
        name for name in ("straggler_log_mean", "straggler_log_deviation") if given.get(name) is not None
    ]
    if prior:
        findings.add(here, causes, f"give causes here, or {' and '.join(prior)}, not both")
    if not isinstance(causes, str):
        return given
    presets = {str(name): preset for name, preset in STRAGGLER_PRESETS.items()}
    if causes not in presets:
        findings.add(here, causes, f"must be a preset; {nearest(causes, tuple(presets))}")
        return _without(given, "stragglers")
    return {**given, "stragglers": presets[causes].model_dump()}


def _without(fields: Fields, key: str) -> Fields:
    return {name: value for name, value in fields.items() if name != key}
