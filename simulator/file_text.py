"""Can a user's file be read? As text in UTF-8, with commas between columns and points in decimals; if not, what must change?"""

from __future__ import annotations

import re
from typing import Final

_OTHER_CODES: Final = (
    ("UTF-32", re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff|\0\0\0|[^\0]\0\0\0", re.DOTALL)),
    ("UTF-16", re.compile(rb"\xff\xfe|\xfe\xff|\0|[^\0]\0", re.DOTALL)),
)
"""First bytes of files in other encodings: a byte-order mark, or the zeros around a first ASCII letter."""
_OTHER_SEPARATORS: Final = {";": "semicolons", "\t": "tabs"}


def utf8_text(content: bytes) -> str:
    """Returns the text of a file, without a byte-order mark.

    Raises:
        ValueError: it is not UTF-8, or no text; the message is the rule that it breaks, with the way out.

    Example:
        >>> utf8_text(b"site: france")
        'site: france'
    """
    for code, beginning in _OTHER_CODES:
        if beginning.match(content):
            raise ValueError(f"is not UTF-8 text: it looks like {code}; save it as UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        rule = f"is not UTF-8 text: byte 0x{content[error.start]:02x} at position {error.start}; save it as UTF-8"
        raise ValueError(rule) from None
    if "\0" in text:
        raise ValueError(f"is no text: it holds a NUL character (position {content.index(0)})")
    return text


def other_separator(first_cell: str) -> str:
    """Returns what else separates the columns of a table, by its first cell as commas end it; empty if nothing does.

    Example:
        >>> other_separator("timestamp;g/kWh"), other_separator("timestamp")
        ('; columns must be separated by commas, not by semicolons, and decimals by points', '')
    """
    found = [name for separator, name in _OTHER_SEPARATORS.items() if separator in first_cell]
    return (
        f"; columns must be separated by commas, not by {found[0]}, and decimals by points" if found else ""
    )


def other_decimal(number: str) -> str:
    """Returns the way out where a number that is none has a comma; empty if it has none.

    Example:
        >>> other_decimal("2,20"), other_decimal("many")
        ('; decimals must be separated by a point, and thousands by nothing', '')
    """
    has_comma = "," in number and number.replace(",", "").replace(".", "").strip().isdecimal()
    return "; decimals must be separated by a point, and thousands by nothing" if has_comma else ""
