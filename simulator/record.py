"""How do people's files meet our types? The base of every value that is read from or shown to a user.

Records are frozen, refuse unknown fields, NaN and infinities, and carry a docstring under each field,
which is also its description in the JSON Schema.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Self

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen value with a unit in every name; equal when all fields are equal."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )


class Choice(StrEnum):
    """A closed choice: a word in files, its position (`code`) in the columns of a table."""

    @cached_property
    def code(self) -> int:
        """Position among the members, in the order of their definition."""
        return list(type(self)).index(self)

    @classmethod
    def from_code(cls, code: int) -> Self:
        """Returns the member at a position; raises `IndexError` outside the choice."""
        return list(cls)[code]
