"""Which plan does a user mean? Texts and mappings with short forms become a `Plan` or an error.

tp=4,pp=12,dp=8,mbs=2                   on the command line; what is left out has the default of `Plan`; `plan_text` writes it
plan.yaml                               the same keys in a file; of an answer, the plan of its design
{"tp": 4, "pp": 12, "dp": 8}            from a Python program
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from planner.input.arguments import check_mapping
from planner.input.given import check_names
from planner.input.number_text import way_out
from planner.input.plain import plain_copy
from planner.input.problems import Findings, nearest
from planner.input.yaml_text import FILE_SUFFIXES, MAX_FILE_BYTES, parse_value, read_document
from simulator.argument_names import Argument
from simulator.domain.job import Job
from simulator.domain.plan import CHOICES, FLOAT_COLUMNS, Plan
from simulator.errors import InputError, refusal

PLAN = Argument("plan")
"""The argument for a plan that is not in a file."""
SHORT_FORMS = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "vpp": "virtual_pipeline",
    "cp": "context_parallel",
    "ep": "expert_parallel",
    "dp": "data_parallel",
    "mbs": "micro_batch_size",
    "micro_batch": "micro_batch_size",
    "micro-batch": "micro_batch_size",
    "zero": "zero_stage",
    "spares": "num_spare_nodes",
    "cap": "power_cap_fraction",
}
LARGEST_ANSWER_BYTES = 100_000_000
"""Largest file of an answer whose plan is taken; one with 240 designs on its front has 1.5 MB."""
LARGEST_COUNT = 10_000_000
"""Largest count of a plan: a hundred times the largest existing cluster."""

_KEYS = (*Plan.model_fields, *SHORT_FORMS, "accelerator")
_WORDS = ("accelerator", *CHOICES)
"""Keys whose values are words; those of `FLOAT_COLUMNS` are real numbers, and all others counts."""
_SPLIT = ("tensor_parallel", "pipeline_parallel", "context_parallel")
_EMPTY = "is empty: write at least one decision, such as tensor_parallel: 8"
_PLAN_RULE = 'must be a Plan or a mapping, such as {"tp": 8, "pp": 4, "dp": 16}'
_Fields = dict[str, object]


def read_plan(text: str) -> dict[str, object]:
    """Returns the keys and values of a plan as written: comma-separated `key=value` pairs, or a file.

    Raises:
        InputError: the file cannot be read or is not a mapping, or a pair is not `key=value`.
    """
    if text.lower().endswith(FILE_SUFFIXES) or ("=" not in text and _is_file(text)):
        return _from_file(Path(text))
    fields: _Fields = {}
    findings = Findings()
    for pair in text.split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not key or not equals:
            rule = "must be key=value pairs with commas between them, such as tp=8,pp=4,dp=16, or a file"
            findings.add((PLAN,), pair, rule)
        elif key in fields:
            findings.add((key,), value, "is given twice")
        elif not value:
            findings.add((key,), value, "needs a value after =; a key that is left out has its default")
        else:
            fields[key] = _value(key, value, findings)
    findings.raise_if_any(PLAN)
    return fields


def plan_text(plan: Plan) -> str:
    """Returns a plan as `read_plan` reads it, with seven digits: the offer and all non-default values, by short names.

    Example:
        >>> written = {"offer": 0, "num_gpus": 32, "tensor_parallel": 8, "data_parallel": 4, "zero_stage": 2}
        >>> plan_text(Plan.model_validate(written))
        'offer=0,tp=8,dp=4,zero=2'
    """
    names: dict[str, str] = {}
    for short, name in SHORT_FORMS.items():
        names.setdefault(name, short)
    told = plan.model_dump(mode="json", exclude_defaults=True, exclude={"offer", "num_gpus"})
    written = {name: f"{value:.7g}" if isinstance(value, float) else value for name, value in told.items()}
    return ",".join([f"offer={plan.offer}", *(f"{names.get(name, name)}={written[name]}" for name in told)])


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # too long for a file name
        return False


def _from_file(path: Path) -> dict[str, object]:
    try:
        is_json = path.suffix.lower() == ".json"
        most_bytes = LARGEST_ANSWER_BYTES if is_json else MAX_FILE_BYTES
        document = read_document(path, most_bytes=most_bytes, kind="a plan" + " or an answer" * is_json)
    except InputError as error:
        if any(problem.rule.startswith("is empty") for problem in error.problems):
            raise refusal(path, _EMPTY) from None
        raise
    if not isinstance(document, Mapping):
        rule = f"must be a mapping of {', '.join(_KEYS)}"
        raise refusal(path, rule)
    return {str(key): value for key, value in _plan_within(document, path).items()}


def _plan_within(document: Mapping[object, object], path: Path) -> Mapping[object, object]:
    """Returns the plan of an answer, which for a job is that of its recommended design, or of a design; a plan as it is."""
    if isinstance(of_design := document.get("plan"), Mapping):
        return of_design
    if "capplan_version" not in document:
        return document
    recommended = document.get("recommendation")
    plan = recommended.get("plan") if isinstance(recommended, Mapping) else None
    if not isinstance(plan, Mapping):
        raise refusal(path, "is an answer without a plan; give a plan, such as tp=8,pp=4,dp=16")
    return plan


def _value(key: str, text: str, findings: Findings) -> object:
    try:
        return parse_value(text, source=key)
    except InputError as error:
        for problem in error.problems:
            findings.add((key,), text, problem.rule)
        return None


def plan_of(job: Job, written: Plan | Mapping[str, object]) -> tuple[Plan, int]:
    """Returns the plan that a mapping describes, and the number of accelerators that it asks for.

    They differ if the product of the degrees is not `num_gpus`; the plan then has that product as its number.

    Args:
        job: a valid one; supplies the offers.
        written: a plan, or fields of `Plan` or their short forms; `accelerator` may replace `offer`.

    Raises:
        InputError: keys are unknown or values have the wrong type (all are in `problems`), or it is not a plan at all.
    """
    findings = Findings()
    if isinstance(written, Plan):
        check_names(written, PLAN)
        document: Mapping[str, object] = written.model_dump(mode="json", warnings=False)
    else:
        check_mapping(written, PLAN, _PLAN_RULE)
        document = written
    fields = _with_full_names(plain_copy(document, findings), findings)
    fields["offer"] = _offer(job, fields, findings)
    fields.pop("accelerator", None)
    asked = _with_derived_degrees(fields)
    plan = None
    try:
        plan = Plan.model_validate(fields if asked is None else {**fields, "num_gpus": _product(fields)})
    except ValidationError as error:
        findings.add_validation(error)
    if plan and max(plan.num_gpus, asked or 0) > LARGEST_COUNT:
        findings.add(("num_gpus",), plan.num_gpus, f"must be at most {LARGEST_COUNT:,}")
    findings.raise_if_any(PLAN)
    assert plan is not None, "validation failed without a finding"
    return plan, asked or plan.num_gpus


def _with_full_names(written: Mapping[str, object], findings: Findings) -> _Fields:
    """Returns the fields by their full names; `null` leaves one out."""
    fields: _Fields = {}
    for key, value in written.items():
        name = SHORT_FORMS.get(key, key)
        if key not in _KEYS:
            findings.add((key,), value, f"unknown key; {nearest(key, _KEYS)}")
        elif name in fields:
            findings.add((key,), value, f"is given twice: {name} has the value {fields[name]} already")
        elif rule := _broken_rule(name, value):
            findings.add((key,), value, rule)
        elif value is not None:
            fields[name] = value
            findings.rename((name,), (key,))
    return fields


def _broken_rule(name: str, value: object) -> str:
    """Returns the rule that a value breaks, of those that `Plan` itself does not check."""
    if isinstance(value, str) and name not in _WORDS:
        is_amount = name in FLOAT_COLUMNS
        rule = "must be a number" if is_amount else "must be a whole number"
        return rule + way_out(value, name, is_whole=not is_amount)
    is_count = name not in (*_WORDS, *FLOAT_COLUMNS)
    if is_count and isinstance(value, (int, float)) and value > LARGEST_COUNT:
        return f"must be at most {LARGEST_COUNT:,}"
    return ""


def _offer(job: Job, fields: _Fields, findings: Findings) -> object:
    """Returns the position of the offer that is meant; 0 as a placeholder if a problem is reported."""
    names = [offer.accelerator.id for offer in job.offers]
    rule = ""
    if "offer" in fields and "accelerator" in fields:
        rule = "contradicts offer: give one of them"
    elif "accelerator" in fields:
        rule = _accelerator_rule(str(fields["accelerator"]), names)
    elif "offer" not in fields and len(names) > 1:
        choice = ", ".join(f"offer={index} ({name})" for index, name in enumerate(names))
        rule = f"is missing, and the job has {len(names)} offers: {choice}"
    if rule:
        findings.add(("accelerator",), fields.get("accelerator"), rule)
        return 0
    if "accelerator" in fields:
        return names.index(str(fields["accelerator"]))
    offer = fields.get("offer", 0)
    if isinstance(offer, int) and offer >= len(names):
        findings.add(("offer",), offer, f"must be at most {len(names) - 1}: offers are counted from 0")
    return offer


def _accelerator_rule(name: str, names: Sequence[str]) -> str:
    """Returns the rule that an accelerator name breaks, if any."""
    if name not in names:
        return f"is not on offer in the job; {nearest(name, tuple(names))}"
    if names.count(name) > 1:
        indices = " or ".join(f"offer={index}" for index, each in enumerate(names) if each == name)
        return f"is offered more than once: give {indices}"
    return ""


def _with_derived_degrees(fields: _Fields) -> int | None:
    """Derives missing counts from the others and returns the number of accelerators asked for.

    If a count is not a whole number, which validation reports, nothing is derived and `None` is returned.
    """
    split = [_count(fields.get(name, 1)) for name in _SPLIT]
    given = {name: _count(fields[name]) for name in ("num_gpus", "data_parallel") if name in fields}
    if None in split or None in given.values():
        # Any number will do for the missing count: another problem is reported.
        fields.setdefault("num_gpus", 1)
        return None
    num_gpus = given.get("num_gpus")
    if num_gpus and "data_parallel" not in given:
        fields["data_parallel"] = max(1, num_gpus // math.prod(part for part in split if part))
    return num_gpus or _product(fields)


def _product(fields: _Fields) -> int:
    return math.prod(_count(fields.get(name, 1)) or 1 for name in (*_SPLIT, "data_parallel"))


def _count(value: object) -> int | None:
    """Returns a positive whole number, which may be written as `8.0`; otherwise `None`."""
    is_whole = isinstance(value, (int, float)) and value >= 1 and float(value).is_integer()
    return int(value) if is_whole and isinstance(value, (int, float)) else None
