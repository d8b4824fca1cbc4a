"""What is a first job file made of? A few answers, each checked as it is given, become a valid, commented YAML file.

Numbers may have a suffix: 2T tokens, 4M tokens a batch, 2.5M dollars (k, M, B, T; decimal).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.input.number_text import number_in_words
from planner.job.init_model import is_config, longest_sequence, model_shape, model_value
from planner.text.human import short, typed
from simulator import catalog
from simulator.catalog import Kind
from simulator.domain.offer import MOST_GPUS
from simulator.errors import CatalogError

USUAL_SEQUENCE_LENGTH = 8192
TOKENS_PER_PARAMETER = 20.0
"""Compute-optimal tokens per parameter (Hoffmann et al., arXiv 2203.15556)."""
NEAREST = 3
LEAST_INSIDE = 3
"""Least letters of a name that is searched for inside others."""
Answers = Mapping[str, str]
"""Answers by the name of the question; an empty text is no answer."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One thing that a job file needs."""

    name: str
    """Also the name of its option."""
    text: str
    """The question as it is asked."""
    default: Callable[[Answers], str]
    """Returns the default answer, given the previous answers."""
    checked: Callable[[str, Answers], str]
    """Returns an answer as written to the file, given the previous ones; raises `ValueError` with the broken rule."""
    needs: tuple[str, ...] = ()
    """Names of the answers that are needed to check this one."""


def number(text: str, example: str = "5e11, 500B or 2T") -> float:
    """Returns `2T` as 2e12; raises `ValueError`, with an example, unless the text is a positive number."""
    value = number_in_words(text)
    if value is None or not 0.0 < value < 1e30:
        raise ValueError(f"must be a positive number, such as {example}")
    return value


def _amount(example: str) -> Callable[[str, Answers], str]:
    return lambda text, _: typed(number(text, example))


def _optional(example: str) -> Callable[[str, Answers], str]:
    def checked(text: str, _: Answers) -> str:
        return typed(number(text, f"{example}; empty for none")) if _is_given(text) else ""

    return checked


def _is_given(text: str) -> bool:
    return text.strip().lower() not in ("", "none")


def _whole(text: str, _: Answers) -> str:
    return str(_count(text, "8192"))


def _count(text: str, example: str) -> int:
    value = number(text, example)
    if value != int(value):
        raise ValueError(f"must be a whole number, such as {example}")
    return int(value)


def _known(kind: Kind) -> Callable[[str, Answers], str]:
    def checked(text: str, _: Answers) -> str:
        name, known = text.strip().lower(), catalog.names(kind)
        if name not in known:
            raise ValueError(_unknown(name, known, kind))
        return name

    return checked


def _unknown(name: str, known: Sequence[str], kind: Kind) -> str:
    near = _alike(name, known)
    proposed = f"nearest: {', '.join(near)}; " if near else ""
    return f"is not in the catalogue; {proposed}all: capplan catalog {kind.value}"


def _alike(name: str, known: Sequence[str]) -> Sequence[str]:
    """Returns the names that begin with this one, else contain it (unless it is too short), else resemble it."""
    begun = [each for each in known if name and each.startswith(name)]
    inside = [each for each in known if len(name) >= LEAST_INSIDE and name in each]
    return (begun or inside or difflib.get_close_matches(name, known, NEAREST))[:NEAREST]


def _model(text: str, answers: Answers) -> str:
    """A name of the catalogue, or the path of a file with a model's shape."""
    if not is_config(text.strip()):
        return _known(Kind.MODELS)(text, answers)
    model_shape(text.strip())
    return text.strip()


def _accelerators(text: str, _: Answers) -> str:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError("needs at least one accelerator, such as h100-sxm5-80gb")
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f"names {', '.join(twice)} more than once: name each accelerator once")
    known = catalog.names(Kind.ACCELERATORS)
    unknown = [name for name in names if name not in known]
    if unknown:
        reasons = (_unknown(name, known, Kind.ACCELERATORS) for name in unknown)
        told = (
            f"{name} {why}" if len(names) > 1 else why for name, why in zip(unknown, reasons, strict=True)
        )
        raise ValueError("; ".join(told))
    return ", ".join(names)


def _rents(text: str, answers: Answers) -> str:
    """One rent for all accelerators, one for each, or none if the catalogue has them."""
    names, parts = answers["accelerators"].split(", "), [part for part in text.split(",") if part.strip()]
    unknown = [name for name in names if not _has_rent(name)]
    if not parts and unknown:
        raise ValueError(f"is needed: the catalogue has no rent of {', '.join(unknown)}")
    if len(parts) not in (0, 1, len(names)):
        raise ValueError(f"must be one number, or one for each of {', '.join(names)}")
    return ", ".join(typed(number(part, "2.5")) for part in parts)


def _has_rent(name: str) -> bool:
    try:
        catalog.rent(name)
    except CatalogError:
        return False
    return True


def _range(text: str, _: Answers) -> str:
    rule = f"must be a range such as 64-1024: whole numbers from 1 to {MOST_GPUS:,}, the smaller number first"
    try:
        values = [_count(end, "64") for end in re.split(r"\s*(?:-|to|\.\.)\s*", text.strip().lower())]
    except ValueError:
        raise ValueError(rule) from None
    least, most = values[0], values[-1]
    if len(values) > 2 or least > most or most > MOST_GPUS:
        raise ValueError(rule)
    return f"{least}-{most}"


def _nodes(text: str, answers: Answers) -> str:
    """One number of nodes for all accelerators, one for each, or none; they hold as many accelerators as may be taken."""
    names, most = answers["accelerators"].split(", "), int(answers["gpus"].split("-")[1])
    parts = [part for part in text.split(",") if part.strip()] if _is_given(text) else []
    counts = [_count(part, "128; empty for no limit") for part in parts]
    if len(counts) not in (0, 1, len(names)):
        raise ValueError(f"must be one number, or one for each of {', '.join(names)}")
    for name, count in zip(names, counts * len(names) if len(counts) == 1 else counts, strict=False):
        held = count * catalog.default_node(name).num_accelerators
        if count > MOST_GPUS or held < most:
            raise ValueError(
                f"must be at most {MOST_GPUS:,}, and hold the {most:,} accelerators that may be taken; {count:,} nodes hold "
                f"{held:,} {name}"
            )
    return ", ".join(map(str, counts))


def _objectives(text: str, _: Answers) -> str:
    known = ("time_to_train", "cost", "energy", "carbon")
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names or any(name not in known for name in names):
        raise ValueError(f"must be one or more of {', '.join(known)}, with commas between them")
    return ", ".join(names)


def _tokens(answers: Answers) -> str:
    parameters = model_shape(answers["model"]).num_active_parameters
    return short(float(f"{TOKENS_PER_PARAMETER * parameters:.1g}")).replace(" ", "").replace("G", "B")


def _sequence_length(answers: Answers) -> str:
    return str(min(USUAL_SEQUENCE_LENGTH, longest_sequence(answers["model"]) or USUAL_SEQUENCE_LENGTH))


def _always(value: str) -> Callable[[Answers], str]:
    return lambda _: value


QUESTIONS = (
    Question(
        name="model",
        text="Which model is trained? (a name of `capplan catalog models`, or the path of a config.json)",
        default=_always("llama-3.1-8b"),
        checked=_model,
    ),
    Question(name="tokens", text="On how many tokens?", default=_tokens, checked=_amount("5e11, 500B or 2T")),
    Question(
        name="sequence-length", text="Tokens of one sequence?", default=_sequence_length, checked=_whole
    ),
    Question(
        name="batch-tokens",
        text="Tokens of one optimizer step?",
        default=_always("4M"),
        checked=_amount("4M or 4e6"),
    ),
    Question(
        name="framework",
        text="Which software trains it? (a name of `capplan catalog frameworks`)",
        default=_always("megatron-lm"),
        checked=_known(Kind.FRAMEWORKS),
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
        name="max-nodes",
        text="How many nodes are there, spare nodes included, one number or one for each? (empty: no limit)",
        default=_always(""),
        checked=_nodes,
        needs=("accelerators", "gpus"),
    ),
    Question(
        name="rent",
        text="Rent in USD per GPU-hour, one number or one for each? (empty: the catalogue's)",
        default=_always(""),
        checked=_rents,
        needs=("accelerators",),
    ),
    Question(
        name="site",
        text="In which region? (a name of `capplan catalog sites`)",
        default=_always("us-iowa"),
        checked=_known(Kind.SITES),
    ),
    Question(
        name="budget",
        text="Budget in USD? (empty: none)",
        default=_always(""),
        checked=_optional("2.5M or 2.5e6"),
    ),
    Question(
        name="deadline-days",
        text="Deadline in days? (empty: none)",
        default=_always(""),
        checked=_optional("45"),
    ),
    Question(
        name="power-w",
        text="Power of the site in watts? (empty: no limit)",
        default=_always(""),
        checked=_optional("3M or 3e6"),
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
        file: the file's name, for the command in its head.
        schema: path of the JSON Schema for editors, relative to the file; empty for none.
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
        _line(
            "  model",
            model_value(answers["model"], Path(file)),
            "capplan catalog models; or {config: path/to/config.json}",
        ),
        _line("  tokens", answers["tokens"], "of the whole run"),
        _line("  sequence_length", answers["sequence-length"], "tokens"),
        _line(
            "  global_batch_tokens",
            answers["batch-tokens"],
            "of one step; rounded to sequences that split well",
        ),
        _line(
            "  framework", answers["framework"], "capplan catalog frameworks: what its software does by habit"
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
            "reliability",
            "typical",
            "or mature, frontier, young, harsh, or your own {gpu_hours_per_failure: 5e4}",
        ),
        _line("# catalog", "prices.csv", "your own prices and hardware: docs/how-to/own-prices.md"),
    ]
    return "\n".join([*head, *_without_empty_limits(lines, answers)]) + "\n"


def _offers(answers: Answers, least: str, most: str) -> list[str]:
    names = answers["accelerators"].split(", ")
    lines = []
    for index, name in enumerate(names):
        rent, nodes = _of_offer(answers["rent"], index), _of_offer(answers["max-nodes"], index)
        lines.append(_line("  - accelerator", name, "capplan catalog accelerators"))
        lines.append(_line("    num_gpus", f"{{min: {least}, max: {most}}}", "how many may be taken"))
        enough = str(-(-int(most) // catalog.default_node(name).num_accelerators))
        lines.append(
            _line(
                "    max_nodes" if nodes else "    # max_nodes",
                nodes or enough,
                "nodes that there are; left out: spare nodes come on top",
            )
        )
        hint = (
            "your quote; or {low, mid, high}"
            if rent
            else "left out: the catalogue's; {low, mid, high} is a range"
        )
        key = "rent_usd_per_gpu_hour"
        lines.append(_line(f"    {key}" if rent else f"    # {key}", rent or "2.5", hint))
        lines.append(
            _line(
                "    # purchase_usd_per_node",
                _node_price(name),
                "bought, in place of the rent; see ownership",
            )
        )
    return lines


def _of_offer(answer: str, index: int) -> str:
    """What an answer says of one offer: its own part, or the only one."""
    parts = answer.split(", ")
    return parts[index] if len(parts) > 1 else parts[0]


def _node_price(name: str) -> str:
    """What the usual node of an accelerator costs; of a node without a known price, an example."""
    return f"{catalog.default_node(name).purchase_usd or 280e3:.0f}"


def _limit(name: str, value: str, example: str, meaning: str) -> str:
    return _line(f"  {name}", value, meaning) if value else _line(f"  # {name}", example, meaning)


def _without_empty_limits(lines: Sequence[str], answers: Answers) -> Sequence[str]:
    """Comments out the heading of a section that holds only comments."""
    if any(answers[name] for name in ("budget", "deadline-days", "power-w")):
        return lines
    return ["# limits:" if line == "limits:" else line for line in lines]


def _line(key: str, value: str, comment: str) -> str:
    return f"{f'{key}: {value}':<{_COMMENT_COLUMN}}# {comment}"
