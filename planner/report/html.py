"""How is text turned into HTML safely? Elements escape their children unless those are elements, too."""

from __future__ import annotations

import re
from html import escape
from typing import Final, final

UNIT: Final = re.compile(r"(?<=\d) (?=%|(?:days|years|h|min|s|[kMGT]?Wh?|USD|[kMB]|GiB|GB/s|k?t|kg)\b)")
"""The space between a number and its unit."""
VOID: Final = ("br", "input", "meta")
"""Elements without an end tag."""


@final
class Html(str):
    """Text that already is HTML."""

    __slots__ = ()


def tag(name: str, *children: str | None, **attributes: str | float | bool | None) -> Html:
    """Returns an element.

    Args:
        name: name of the element.
        children: texts, which are escaped, and elements, which are not; `None` is left out.
        attributes: values by name, with `_` for `-`, and a trailing `_` for Python's keywords (`class_`); `True` gives an
            attribute without a value; `None` and `False` are left out.

    Example:
        >>> tag("p", "a < b ", tag("b", "&"), class_="note")
        '<p class="note">a &lt; b <b>&amp;</b></p>'
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: str | None) -> Html:
    """Returns texts and elements in sequence."""
    return Html(
        "".join(
            child if isinstance(child, Html) else escape(child) for child in children if child is not None
        )
    )


def unbroken(text: str) -> str:
    """Returns text in which no line breaks between a number and its unit or sign."""
    return UNIT.sub("\N{NO-BREAK SPACE}", text)


def percent(fraction: float) -> str:
    """Returns a share as a CSS percentage, to a hundredth of a per cent."""
    return f"{100.0 * fraction:.2f}%"


def _attribute(key: str, value: str | float | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    match value:
        case None | False:
            return ""
        case True:
            return f" {name}"
        case _:
            return f' {name}="{escape(str(value))}"'
