"""What stands in the JSON of an answer? The reference page, written from the types of `planner.recommendation`."""

from __future__ import annotations

from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin

from planner.job_schema import record_in
from planner.recommendation import Recommendation
from simulator.record import Choice, Record

ANSWER_PAGE = Path(__file__).with_name("answer.md")
INTRODUCTION = """\
# The answer as JSON

`capplan recommend JOB.yaml --json` prints one object, `--output DIR` writes the same one as `recommendation.json`, and
`planner.recommend` returns it as a value. Two runs of the same job, version and seed differ in `created_at` only.
Every quantity has its unit in its name: seconds, bytes, watts, dollars, kg of CO2 equivalents; fractions are 0..1.

`--output DIR` also writes `front.csv` (or `.parquet`), one line for each design of the front, and `designs.parquet`,
one for each design that was evaluated; `design_id` is the same number in all of them.

This page is generated from the types: `python -m docs.generate`.
"""


def answer_reference() -> str:
    """Returns the page: one section with a table for every type that an answer holds."""
    return "\n".join([INTRODUCTION, *(_section(model) for model in _models(Recommendation, []))])


def _models(model: type[Record], found: list[type[Record]]) -> list[type[Record]]:
    if model not in found:
        found.append(model)
        for field in model.model_fields.values():
            if inner := record_in(field.annotation):
                _models(inner, found)
    return found


def _section(model: type[Record]) -> str:
    summary = (model.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")
    rows = [
        f"| `{name}` | {_words(field.annotation)} | {' '.join((field.description or '').split())} |"
        for name, field in model.model_fields.items()
        if not field.exclude
    ]
    return "\n".join(
        [f"## {model.__name__}\n", f"{summary}\n", "| field | type | meaning |\n|---|---|---|", *rows, ""]
    )


def _words(annotation: object) -> str:
    """Returns a type in the words of JSON."""
    arguments = get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    if isinstance(annotation, type) and issubclass(annotation, Choice):
        return " or ".join(f"`{member.value}`" for member in annotation)
    match get_origin(annotation):
        case _ if annotation in _WORDS:
            return _WORDS[annotation]
        case origin if origin is Literal:
            return " or ".join(f"`{value}`" for value in arguments)
        case origin if origin in (Union, UnionType):
            return " or ".join(_words(inner) for inner in arguments)
        case origin if origin is tuple:
            return f"list of {_words(arguments[0])}"
        case origin if origin is dict:
            return f"object of {_words(arguments[1])}"
        case _:
            return _words(arguments[0])  # a number with bounds


_WORDS: dict[object, str] = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    NoneType: "null",
}
