"""How is text from other tools read? As a whole, as UTF-8, up to a size limit, with one kind of error for any failure."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from pathlib import Path

from pydantic import ValidationError

from simulator.errors import InputError, Problem

MOST_FILE_BYTES = 512_000_000
"""Larger files are refused before they fill the memory."""
MOST_PROBLEMS = 20
"""Most problems that are listed; an invalid file may have thousands."""
_SHOWN = 60
_GZIP = b"\x1f\x8b"


def read_bytes(path: Path) -> bytes:
    """Returns the content of a file.

    Raises:
        InputError: the path is not a file, cannot be read, or is larger than `MOST_FILE_BYTES`.
    """
    try:
        if not path.is_file():
            rule = "is a folder: name a file in it" if path.is_dir() else "does not exist"
            raise broken(path, "", "", rule)
        if path.stat().st_size > MOST_FILE_BYTES:
            raise broken(path, "", "", f"is larger than {MOST_FILE_BYTES / 1e6:g} MB: cut it to one step")
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise broken(path, "", "", f"cannot be read: {getattr(error, 'strerror', None) or error}") from error


def read_text(path: Path) -> str:
    """Returns the text of a file; raises `InputError` as `read_bytes` does, or if it is not UTF-8."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise broken(path, f"byte {error.start}", "", "is no UTF-8: save the file as UTF-8") from error


def unpacked(path: Path, data: bytes) -> bytes:
    """Returns bytes as they are, or unpacked if they are gzipped; raises `InputError` if unpacking fails."""
    if not data.startswith(_GZIP):
        return data
    try:
        out = zlib.decompressobj(wbits=31).decompress(data, MOST_FILE_BYTES + 1)
    except zlib.error as error:
        raise broken(path, "", "", f"is no gzip: {error}") from error
    if len(out) > MOST_FILE_BYTES:
        raise broken(path, "", "", f"is larger than {MOST_FILE_BYTES / 1e6:g} MB when unpacked")
    return out


class _DoubledError(ValueError):
    """A name that one mapping has twice."""


def read_json(path: Path, *, is_each_name_once: bool = False) -> object:
    """Returns the document in a JSON file, gzipped or not.

    Args:
        path: the file.
        is_each_name_once: whether a name that a mapping has twice is refused; left out: its last value counts.

    Raises:
        InputError: there is none, or a name is doubled.
    """
    data = unpacked(path, read_bytes(path))
    hook = _each_once if is_each_name_once else None
    try:
        found: object = json.loads(data.decode("utf-8-sig"), object_pairs_hook=hook)
    except _DoubledError as error:
        raise broken(path, str(error), "", "is there twice: give each name once") from error
    except (ValueError, RecursionError) as error:
        raise broken(path, "", "", f"is no JSON: {str(error)[:100]}") from error
    return found


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _DoubledError(
            next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        )
    return found


def broken(path: Path, place: str, value: object, rule: str) -> InputError:
    """Returns the error for one place of a file."""
    return InputError([Problem(path=place, value=shown(value), rule=rule)], source=str(path))


def is_unicode(text: str) -> bool:
    """Returns whether a text can be written as UTF-8; JSON may contain one half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object) -> str:
    """Returns a value as one short line of printable characters; empty for empty text."""
    if value is None or (isinstance(value, str) and not value):
        return ""
    if isinstance(value, int) and abs(value) >= 10**_SHOWN:  # Python refuses to print more than 4,300 digits
        return f"a whole number of about 2**{value.bit_length()}"
    try:
        text = value if isinstance(value, str) and value.isprintable() else repr(value)
    except (
        RecursionError,
        ValueError,
    ):  # lists in lists in lists; a whole number of thousands of digits inside one
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def problems_of(error: ValidationError, place: str) -> list[Problem]:
    """Returns the problems that pydantic found in one record, each with the place of its field."""
    return [
        Problem(
            path=".".join([place, *(str(step) for step in detail["loc"])]).strip("."),
            value="" if detail["type"] == "missing" else shown(detail["input"]),
            rule=detail["msg"][:1].lower() + detail["msg"][1:],
        )
        for detail in error.errors(include_url=False)
    ]
