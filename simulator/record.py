"""How do user files become our types? The base of every value that is read from, or shown to, a user.

Records are frozen, reject unknown fields, NaN and infinities, and have a docstring under each field, which is also its
description in the JSON Schema.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import textwrap
from collections.abc import Mapping
from enum import StrEnum
from functools import cache, cached_property
from typing import Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Record(BaseModel):
    """A frozen value with a unit in every name; equal when all fields are equal."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        protected_namespaces=(),
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Returns the JSON Schema, in which each field is described by its docstring."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, meaning in meanings(cls).items():
            if name in properties:
                properties[name]["description"] = meaning
        return schema


def finite_or_none(value: float) -> float | None:
    """Returns a figure as records and JSON can have it: `None` in place of NaN and infinities."""
    return float(value) if math.isfinite(value) else None


@cache
def meanings(record: type[Record]) -> Mapping[str, str]:
    """Returns the docstring under each field, by name; fields without one are left out.

    They are read from the source on request: doing so for every type at every start would take longer than many commands.
    """
    found: dict[str, str] = {}
    for base in reversed(record.__mro__):
        if issubclass(base, Record):
            found |= _docstrings(base)
    return found


def _docstrings(record: type[Record]) -> dict[str, str]:
    """Returns the docstrings of a type's own fields."""
    try:
        source = inspect.getsource(record)
    except OSError:  # installed without its source
        return {}
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, below in itertools.pairwise(definition.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(meaning))),
            ):
                found[name] = inspect.cleandoc(meaning)
            case _:
                pass
    return found


class Choice(StrEnum):
    """A closed choice: a word in files, and its position (`code`) in table columns."""

    @cached_property
    def code(self) -> int:
        """Position among the members, in the order of their definition."""
        return list(type(self)).index(self)

    @classmethod
    def from_code(cls, code: int) -> Self:
        """Returns the member at a position; raises `IndexError` outside the choice."""
        return list(cls)[code]
