"""What does one object of a JSON file contain? Its fields by name, each checked for its type, or one error for the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from simulator.deep.traces.trace_text import broken, is_unicode, shown
from simulator.errors import InputError

_MOST_DIGITS = 20
"""Most digits of a 64-bit integer."""
_MOST_NAMES = 12
"""Most fields that an error lists."""


def spelled(names: Iterable[str]) -> dict[str, str]:
    """Returns snake-case names by their spellings: as they are, and in camel case."""
    return {spelling: name for name in names for spelling in (name, _camel(name))}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


@dataclass(frozen=True)
class JsonFields:
    """The fields of one object."""

    path: Path
    place: str
    """Its place in the file."""
    values: Mapping[str, object]
    spelling: Mapping[str, str]
    """How the file spells each name."""

    @classmethod
    def read(cls, path: Path, place: str, found: object, names: Mapping[str, str]) -> JsonFields:
        """Returns the fields of an object under the names to which their spellings belong.

        Raises:
            InputError: it is not an object, has an unknown field, or has one field in two spellings.
        """
        if not isinstance(found, dict):
            raise broken(path, place, found, "must be an object")
        spelling: dict[str, str] = {}
        for key, value in found.items():
            if key not in names or names[key] in spelling:
                listed = ", ".join(dict.fromkeys(names.values())) if len(names) <= _MOST_NAMES else ""
                unknown = f"is unknown; known are {listed}" if listed else "is unknown"
                rule = "stands there in two spellings" if key in names else unknown
                raise broken(path, f"{place}.{shown(key)}", value, rule)
            spelling[names[key]] = key
        return cls(path, place, {name: found[key] for name, key in spelling.items()}, spelling)

    def broken(self, name: str, rule: str) -> InputError:
        """Returns the error for one field."""
        return self._broken(name, self.values.get(name), rule)

    def text(self, name: str) -> str:
        """Returns a text, empty if it is missing; raises `InputError` if it is something else."""
        value = self.values.get(name, "")
        if not isinstance(value, str) or not is_unicode(value):
            raise self.broken(name, "must be text")
        return value

    def truth(self, name: str) -> bool:
        """Returns true or false; raises `InputError` if it is neither."""
        value = self.values.get(name, False)
        if not isinstance(value, bool):
            raise self.broken(name, "must be true or false")
        return value

    def whole(self, name: str) -> int:
        """Returns a whole number, 0 if it is missing; raises `InputError` if it is something else."""
        return self._whole(name, self.values.get(name, 0))

    def whole_numbers(self, name: str) -> tuple[int, ...]:
        """Returns a list of whole numbers, empty if it is missing; raises `InputError` if it is something else."""
        return tuple(self._whole(name, value) for value in self.items(name))

    def items(self, name: str) -> list[object]:
        """Returns a list, empty if it is missing; raises `InputError` if it is something else."""
        value = self.values.get(name, [])
        if not isinstance(value, list):
            raise self.broken(name, "must be a list")
        return value

    def _whole(self, name: str, value: object) -> int:
        """A whole number, also if given as text, which is how protobuf's JSON writes 64-bit integers."""
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        digits = value.removeprefix("-") if isinstance(value, str) else ""
        if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS:
            return int(str(value))
        raise self._broken(name, value, "must be a whole number")

    def _broken(self, name: str, value: object, rule: str) -> InputError:
        return broken(self.path, f"{self.place}.{self.spelling.get(name, name)}", value, rule)
