"""What does a text call an argument? Each front end has its own name for it: `num_gpus` in Python, `--gpus` at a terminal.

A text that names arguments is built from parts. As the `str` that it is, it uses their Python names; `told` uses those of
another front end. An f-string or `join` of it keeps only the Python names, so a text around it must be built from parts as
well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self


class Argument(str):
    """An argument of a Python call; as text `num_gpus`, `rules=triosim` or `overrides[1]`.

    Args:
        name: of the argument.
        value: its actual or required value; left out if only the argument is meant.
        place: which entry of a list is meant; left out: the whole list.
    """

    __slots__ = ("name", "value")

    name: str
    value: str

    def __new__(cls, name: str, value: str = "", *, place: int | None = None) -> Self:
        """Builds the text and keeps its parts."""
        entry = "" if place is None else f"[{place}]"
        made = super().__new__(cls, f"{name}{entry}={value}" if value else f"{name}{entry}")
        made.name, made.value = name, value
        return made


class Words(str):
    """A text that names arguments: its `parts` concatenated."""

    __slots__ = ("parts",)

    parts: tuple[str, ...]

    def __new__(cls, *parts: str) -> Self:
        """Builds the text and keeps its parts."""
        made = super().__new__(cls, "".join(parts))
        made.parts = parts
        return made


Names = Callable[[Argument], str]
"""A front end's name for an argument."""


def told(text: str, names: Names) -> str:
    """Returns a text with a front end's names for the arguments in it.

    Example:
        >>> rule = Words("needs ", Argument("traced_on"))
        >>> str(rule), told(rule, lambda argument: f"--{argument.name.replace('_', '-')}")
        ('needs traced_on', 'needs --traced-on')
    """
    match text:
        case Argument():
            return names(text)
        case Words():
            return "".join(told(part, names) for part in text.parts)
        case _:
            return text
