"""Which figures do the short forms of a job file mean? Names become catalogue entries, and gaps become defaults.

Values that cannot be resolved are reported and become `None`; the report hides the validation errors that follow from them.
"""

from __future__ import annotations

from pathlib import Path

from planner.calibration.file import load_calibration
from planner.input.number_text import way_out
from planner.input.plain import plain_copy
from planner.input.problems import Findings
from planner.job.batch_size import whole_sequences
from planner.job.framework import with_habits
from planner.job.named_model import resolved_model
from planner.job.offers import resolved_offer
from planner.job.reliability import resolved_reliability
from planner.job.short_forms import Fields, entry, number_of, without_nulls
from planner.job.sites import resolved_site, resolved_what_if
from simulator import catalog
from simulator.errors import InputError

_MOST_SEQUENCES = 100_000_000
_LONGEST_SEQUENCE = 1e8
"""Tokens of the longest sequence; that a longer one cannot be is told of its own field."""


def resolve(document: Fields, *, name: str, folder: Path, findings: Findings) -> Fields:
    """Returns the fields of a `Job`: every short form replaced, every default of a file filled in.

    Args:
        document: Plain values, as `plain_copy` returns them.
        name: Name of the job if the document gives none.
        folder: Where relative paths start.
        findings: Collects the problems.
    """
    document = _with_model(document, folder, findings)
    job = with_habits({"name": name, **without_nulls(document, ())}, findings)
    if isinstance(workload := job.get("workload"), dict):
        job["workload"] = _workload(workload, findings)
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
    job["reliability"] = resolved_reliability(job, findings)
    return job


def _calibration(path: str, folder: Path, findings: Findings) -> Fields | None:
    """Returns the fields of a calibration file."""
    try:
        return plain_copy(load_calibration(folder / path).model_dump(mode="json"), findings)
    except InputError as error:
        for problem in error.problems:
            findings.add(("calibration",), path, str(problem))
        return None


def _with_model(document: Fields, folder: Path, findings: Findings) -> Fields:
    """Returns the document with the shape of its model, in which `null` takes parts of a known one out."""
    workload = document.get("workload")
    if not isinstance(workload, dict) or "model" not in workload:
        return document
    has_images = workload.get("images") is not None
    model = resolved_model(workload["model"], folder, findings, has_images=has_images)
    return {**document, "workload": {**workload, "model": model}}


def _workload(given: Fields, findings: Findings) -> Fields:
    workload = {**given}
    tokens = workload.pop("global_batch_tokens", None)
    if tokens is not None:
        workload["global_batch_size"] = _batch_size(tokens, workload, findings)
    return workload


def _batch_size(tokens: object, workload: Fields, findings: Findings) -> int | None:
    """Returns the sequences of a global batch that is given in tokens, as `FORMS` says."""
    here = ("workload", "global_batch_tokens")
    findings.hide(("workload", "global_batch_size"))
    length, wanted = number_of(workload.get("sequence_length")), number_of(tokens)
    if workload.get("global_batch_size") is not None:
        findings.add(here, tokens, "give either global_batch_size or global_batch_tokens, not both")
    elif wanted is None:
        findings.add(here, tokens, f"must be a number{way_out(tokens)}")
    elif length is not None and 0 < length <= _LONGEST_SEQUENCE:
        if not length <= wanted <= length * _MOST_SEQUENCES:
            rule = f"must be 1 to {_MOST_SEQUENCES:,} sequences of sequence_length ({length:.15g}) tokens"
            findings.add(here, tokens, rule)
        else:
            return whole_sequences(wanted / length)
    return None
