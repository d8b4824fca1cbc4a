"""What is a first job file made of? A few answers, each checked as it is given, become commented YAML that loads.

Numbers may have a suffix: 2T tokens, 4M tokens a batch, 2.5M dollars (k, M, B, T; decimal).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from planner.human import short, typed
from simulator import catalog
from simulator.catalog import Kind
from simulator.errors import CatalogError
from simulator.units import GIGA, KILO, MEGA, TERA

SUFFIXES = {"k": KILO, "m": MEGA, "b": GIGA, "g": GIGA, "t": TERA}
TOKENS_PER_PARAMETER = 20.0
"""Tokens for each parameter with which a model of given compute learns most (Hoffmann et al., arXiv 2203.15556)."""
LARGEST_RANGE = 1_000_000
"""As `simulator.job.GpuRange` allows."""
NEAREST = 3
_NUMBER = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([kmbgt]?)", re.IGNORECASE)

Answers = Mapping[str, str]
"""What was answered, by the name of the question; empty text: nothing."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One thing that a job file needs."""

    name: str
    """Also the name of its option."""
    text: str
    """What is asked."""
    default: Callable[[Answers], str]
    """What holds when nothing is answered, given the answers before."""
    checked: Callable[[str, Answers], str]
    """Returns an answer, given those before, as the file has it; raises `ValueError` with the rule that it breaks."""


def number(text: str) -> float:
    """Returns `2T` as 2e12; raises `ValueError` for what is no positive number."""
    match = _NUMBER.fullmatch(text.replace(",", "").replace("_", "").strip().removeprefix("$"))
    try:
        value = float(match[1]) * SUFFIXES.get(match[2].lower(), 1.0) if match else 0.0
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1e30:
        raise ValueError("must be a positive number, such as 5e11, 500B or 2T")
    return value


def _amount(text: str, _: Answers) -> str:
    return typed(number(text))


def _optional(text: str, _: Answers) -> str:
    return typed(number(text)) if text.strip() and text.strip().lower() != "none" else ""


def _whole(text: str, _: Answers) -> str:
    return str(_count(text))


def _count(text: str) -> int:
    value = number(text)
    if value != int(value):
        raise ValueError("must be a whole number")
    return int(value)


def _known(kind: Kind) -> Callable[[str, Answers], str]:
    def checked(text: str, _: Answers) -> str:
        name, known = text.strip().lower(), catalog.names(kind)
        if name not in known:
            raise ValueError(_unknown(name, known, kind))
        return name

    return checked


def _unknown(name: str, known: Sequence[str], kind: Kind) -> str:
    inside = [each for each in known if name and name in each]
    near = inside[:NEAREST] or difflib.get_close_matches(name, known, NEAREST) or list(known[:NEAREST])
    return f"is not in the catalogue; nearest: {', '.join(near)} (all: capplan catalog {kind.value})"


def _accelerators(text: str, answers: Answers) -> str:
    check = _known(Kind.ACCELERATORS)
    names = list(dict.fromkeys(check(name, answers) for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("needs at least one accelerator, such as h100-sxm5-80gb")
    return ", ".join(names)


def _rents(text: str, answers: Answers) -> str:
    """One rent for all accelerators, one for each, or none where the catalogue has them."""
    names, parts = answers["accelerators"].split(", "), [part for part in text.split(",") if part.strip()]
    unknown = [name for name in names if not _has_rent(name)]
    if not parts and unknown:
        raise ValueError(f"is needed: the catalogue has no rent of {', '.join(unknown)}")
    if len(parts) not in (0, 1, len(names)):
        raise ValueError(f"must be one number, or one for each of {', '.join(names)}")
    return ", ".join(typed(number(part)) for part in parts)


def _has_rent(name: str) -> bool:
    try:
        catalog.rent(name)
    except CatalogError:
        return False
    return True


def _range(text: str, _: Answers) -> str:
    values = [_count(end) for end in re.split(r"\s*(?:-|to|\.\.)\s*", text.strip().lower())]
    least, most = values[0], values[-1]
    if len(values) > 2 or least > most or most > LARGEST_RANGE:
        raise ValueError("must be a range such as 64-1024, the smaller number first")
    return f"{least}-{most}"


def _objectives(text: str, _: Answers) -> str:
    known = ("time_to_train", "cost", "energy", "carbon")
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names or any(name not in known for name in names):
        raise ValueError(f"must be one or more of {', '.join(known)}, with commas between them")
    return ", ".join(names)


def _tokens(answers: Answers) -> str:
    parameters = catalog.model(answers["model"]).num_active_parameters
    return short(float(f"{TOKENS_PER_PARAMETER * parameters:.1g}")).replace(" ", "").replace("G", "B")


def _always(value: str) -> Callable[[Answers], str]:
    return lambda _: value


QUESTIONS = (
    Question(
        name="model",
        text="Which model is trained? (a name of `capplan catalog models`)",
        default=_always("llama-3.1-8b"),
        checked=_known(Kind.MODELS),
    ),
    Question(name="tokens", text="On how many tokens?", default=_tokens, checked=_amount),
    Question(name="sequence-length", text="Tokens of one sequence?", default=_always("8192"), checked=_whole),
    Question(
        name="batch-tokens", text="Tokens of one optimizer step?", default=_always("4M"), checked=_amount
    ),
    Question(
        name="accelerators",
        text="Which accelerators are on offer? (names of `capplan catalog accelerators`, commas between them)",
        default=_always("h100-sxm5-80gb"),
        checked=_accelerators,
    ),
    Question(
        name="gpus", text="How many may be taken, fewest to most?", default=_always("64-1024"), checked=_range
    ),
    Question(
        name="rent",
        text="Rent in USD per GPU-hour, one number or one for each? (empty: the catalogue's)",
        default=_always(""),
        checked=_rents,
    ),
    Question(
        name="site",
        text="In which region? (a name of `capplan catalog sites`)",
        default=_always("us-iowa"),
        checked=_known(Kind.SITES),
    ),
    Question(name="budget", text="Budget in USD? (empty: none)", default=_always(""), checked=_optional),
    Question(
        name="deadline-days", text="Deadline in days? (empty: none)", default=_always(""), checked=_optional
    ),
    Question(
        name="power-w",
        text="Power of the site in watts? (empty: no limit)",
        default=_always(""),
        checked=_optional,
    ),
    Question(
        name="objectives",
        text="What is to be small?",
        default=_always("time_to_train, cost, carbon"),
        checked=_objectives,
    ),
)
"""In the order in which they are asked."""

_COMMENT_COLUMN = 44
_SCHEMA_LINE = "# yaml-language-server: $schema="


def job_text(answers: Answers, *, file: str, schema: str) -> str:
    """Returns a commented job file.

    Args:
        answers: checked answers to all of `QUESTIONS`.
        file: its name, for the command in its head.
        schema: path of the JSON Schema for editors, relative to the file; empty: none.
    """
    least, most = answers["gpus"].split("-")
    head = [f"{_SCHEMA_LINE}{schema}"] if schema else []
    head += [
        f"# Which cluster for {answers['model']}, and how is the training laid out on it?",
        f"#   capplan recommend {file}",
        "# Written by `capplan init`. Every field with its unit and default: docs/job-file.md",
        "",
    ]
    lines = [
        "workload:",
        _line("  model", answers["model"], "capplan catalog models; or {config: path/to/config.json}"),
        _line("  tokens", answers["tokens"], "of the whole run"),
        _line("  sequence_length", answers["sequence-length"], "tokens"),
        _line(
            "  global_batch_tokens",
            answers["batch-tokens"],
            "of one step; rounded to multiples of 64 sequences",
        ),
        _line("  # precisions", "[bf16, fp8]", "number formats that the run may use; left out: bf16"),
        "",
        "offers:",
        *_offers(answers, least, most),
        "",
        _line("site", answers["site"], "capplan catalog sites; or your own grid, electricity price and PUE"),
        "",
        "limits:",
        _limit("budget_usd", answers["budget"], "2e6", "for the whole run"),
        _limit("deadline_days", answers["deadline-days"], "45", "from start to end"),
        _limit("power_w", answers["power-w"], "3e6", "peak of the facility, cooling included"),
        "",
        _line("objectives", f"[{answers['objectives']}]", "what is made small"),
        _line(
            "reliability", "typical", "failures of a published fleet: mature, frontier, typical, young, harsh"
        ),
    ]
    return "\n".join([*head, *_without_empty_limits(lines, answers)]) + "\n"


def _offers(answers: Answers, least: str, most: str) -> list[str]:
    names = answers["accelerators"].split(", ")
    rents = answers["rent"].split(", ")
    lines = []
    for index, name in enumerate(names):
        rent = rents[index] if len(rents) == len(names) else rents[0]
        lines.append(_line("  - accelerator", name, "capplan catalog accelerators"))
        lines.append(_line("    num_gpus", f"{{min: {least}, max: {most}}}", "how many may be taken"))
        hint = (
            "your quote; or {low, mid, high}"
            if rent
            else "left out: the catalogue's; {low, mid, high} is a range"
        )
        key = "rent_usd_per_gpu_hour"
        lines.append(_line(f"    {key}" if rent else f"    # {key}", rent or "2.5", hint))
    return lines


def _limit(name: str, value: str, example: str, meaning: str) -> str:
    return _line(f"  {name}", value, meaning) if value else _line(f"  # {name}", example, meaning)


def _without_empty_limits(lines: Sequence[str], answers: Answers) -> Sequence[str]:
    """A section that holds comments only is a comment, too."""
    if any(answers[name] for name in ("budget", "deadline-days", "power-w")):
        return lines
    return ["# limits:" if line == "limits:" else line for line in lines]


def _line(key: str, value: str, comment: str) -> str:
    return f"{f'{key}: {value}':<{_COMMENT_COLUMN}}# {comment}"
