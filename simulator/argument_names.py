"""What does a text call an argument? Each front has its own name for it: `num_gpus` in Python, `--gpus` at a terminal.

A text that names arguments is made of parts. As the `str` that it is, it calls them as Python does; `told` calls them as
another front does. An f-string or `join` of it keeps Python's names alone, so that a text around it is made of parts, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self


class Argument(str):
    """An argument of a Python call; as text `num_gpus`, `rules=triosim` or `overrides[1]`.

    Args:
        name: of the argument.
        value: what is to be given, or was; left out where the argument alone is meant.
        place: which entry of a list is meant; left out: all of it.
    """

    __slots__ = ("name", "value")

    name: str
    value: str

    def __new__(cls, name: str, value: str = "", *, place: int | None = None) -> Self:
        """Makes the text and keeps what it is made of."""
        entry = "" if place is None else f"[{place}]"
        made = super().__new__(cls, f"{name}{entry}={value}" if value else f"{name}{entry}")
        made.name, made.value = name, value
        return made


class Words(str):
    """A text that names arguments, of `parts` one behind the other."""

    __slots__ = ("parts",)

    parts: tuple[str, ...]

    def __new__(cls, *parts: str) -> Self:
        """Makes the text and keeps what it is made of."""
        made = super().__new__(cls, "".join(parts))
        made.parts = parts
        return made


Names = Callable[[Argument], str]
"""What a front calls an argument."""


def told(text: str, names: Names) -> str:
    """Returns a text with the names that a front has for the arguments in it.

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
