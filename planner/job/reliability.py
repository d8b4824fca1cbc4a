"""Which fleet does a job mean? The figures of a published one, the job's own failure rate, and causes of stragglers."""

from __future__ import annotations

from planner.input.number_text import way_out
from planner.input.problems import Findings, nearest
from planner.input.schema import DEFAULT_PRESET
from planner.job.short_forms import Fields, lengthen, number_of
from simulator.domain.reliability import (
    GPU_HOURS_IN_1000_NODE_DAYS,
    LEAST_GPU_HOURS_PER_FAILURE,
    MOST_FAILURES,
    RELIABILITY_PRESETS,
)
from simulator.domain.straggler_causes import STRAGGLER_PRESETS

_RATE, _GPU_HOURS = "failures_per_1000_node_days", "gpu_hours_per_failure"


def resolved_reliability(job: Fields, findings: Findings) -> object:
    """Returns the job's reliability: the figures of its preset, replaced by the job's own."""
    if job.get("reliability") is None:
        return RELIABILITY_PRESETS[DEFAULT_PRESET]
    lengthen(job, "reliability", (), findings)
    given = job["reliability"]
    if not isinstance(given, dict):
        return given
    own = _without(_with_rate(_with_stragglers(given, findings), findings), "preset")
    preset = given.get("preset")
    if preset is None:
        return own
    if not isinstance(preset, str) or preset not in RELIABILITY_PRESETS:
        known = tuple(RELIABILITY_PRESETS)
        findings.add(("reliability", "preset"), preset, f"must be a preset; {nearest(str(preset), known)}")
        findings.hide(("reliability", _RATE))
        return own
    return {**RELIABILITY_PRESETS[preset].model_dump(), **own}


def _with_rate(given: Fields, findings: Findings) -> Fields:
    """Returns the fields with the failure rate that accelerator-hours between failures stand for."""
    gpu_hours = given.get(_GPU_HOURS)
    if gpu_hours is None:
        return _without(given, _GPU_HOURS)
    here = ("reliability", _GPU_HOURS)
    number = number_of(gpu_hours)
    own = _without(given, _GPU_HOURS)
    findings.hide(("reliability", _RATE))
    if given.get(_RATE) is not None:
        findings.add(here, gpu_hours, f"give either {_RATE} or {_GPU_HOURS}, not both")
    elif number is None:
        findings.add(here, gpu_hours, f"must be a number{way_out(gpu_hours)}")
    elif number < LEAST_GPU_HOURS_PER_FAILURE:
        rule = f"must be at least {LEAST_GPU_HOURS_PER_FAILURE:g}, which is {_RATE} of {MOST_FAILURES:,}, the most"
        findings.add(here, gpu_hours, rule)
    else:
        own[_RATE] = GPU_HOURS_IN_1000_NODE_DAYS / number
    return own


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
