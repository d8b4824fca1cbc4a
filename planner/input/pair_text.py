"""What does an argument such as `graph=ring,gap=5` mean? Its values by key, with an error for each that cannot be read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from planner.input.problems import nearest
from simulator.argument_names import Argument, Words
from simulator.errors import InputError, Problem


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """The values of an argument, by key."""

    argument: Argument
    """The argument, such as `hop`."""
    values: Mapping[str, str]

    def text(self, key: str, default: str) -> str:
        """Returns a value as it was written."""
        return self.values.get(key, default)

    def whole(self, key: str, default: int, *, least: int, most: int) -> int:
        """Returns a whole number; raises `InputError` if it is not one, or is out of range."""
        text = self.values.get(key)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            raise self.broken(key, f"must be a whole number between {least:,} and {most:,}")
        return int(text)

    def number(self, key: str, default: float, *, least: float, most: float) -> float:
        """Returns a number; raises `InputError` if it is not one, or is out of range."""
        text = self.values.get(key)
        if text is None:
            return default
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not least <= found <= most:
            raise self.broken(key, f"must be a number between {least:g} and {most:g}")
        return found

    def broken(self, key: str, rule: str) -> InputError:
        """Returns the error for one value."""
        value = self.values.get(key, "")[:60]
        return InputError([Problem(path=Words(self.argument, f" {key}"), value=value, rule=rule)])


def read_pairs(argument: Argument, text: str, known: tuple[str, ...]) -> Pairs:
    """Returns the pairs of `KEY=VALUE,KEY=VALUE`; none for empty text.

    Raises:
        InputError: a key is unknown, has no value or comes twice.
    """
    values: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if key not in known:
            rule = f"must begin with a key and an equals sign; {nearest(key, known)}"
        elif not equals or not value:
            rule = f"needs a value: {key}=..."
        elif key in values:
            rule = "is given twice"
        else:
            values[key] = value
            continue
        raise InputError([Problem(path=argument, value=pair[:60], rule=rule)])
    return Pairs(argument=argument, values=values)
