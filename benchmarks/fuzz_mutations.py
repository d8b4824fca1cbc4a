"""How is a file broken at random? By bytes, or by its form: values exchanged, names changed, items dropped or repeated.

A form turns a file into a tree of lists and mappings, and any such tree into a file, even one that breaks the form. The same
seed and number always give the same file.
"""

from __future__ import annotations

import copy
import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from simulator.deep.traces.wire import BYTES, VARINT, as_varint, fields, messages

PIECES = (b",", b'"', b"\n", b"-", b"9" * 30, b"[", b"{", b"nan", b"\x00", b"\xff\xff\xff\xff")
"""What is put in between."""
VALUES: tuple[object, ...] = (
    *(None, True, False, 0, 1, -1, 1.5, -0.0, 2**31, 2**63, 2**64, 10**30, -(10**30), 1e308, 5e-324),
    *(
        float("nan"),
        float("inf"),
        float("-inf"),
        "NaN",
        "Infinity",
        "",
        "x",
        "1",
        "-1",
        "9" * 30,
        "\x00",
        "é" * 5,
    ),
    *("\ud800", [], {}, [[]], [None], [1, "a"], {"a": 1}, [[[[[]]]]]),
)
"""What stands where something else stood."""
_MOST_MUTATIONS = 4
_ATTRIBUTE = 10
"""Field of a Chakra node."""


@dataclass(frozen=True)
class Form:
    """How a kind of file becomes a tree, and back."""

    tree: Callable[[bytes], object]
    content: Callable[[object], bytes]


def mutations(content: bytes, count: int, *, form: Form | None = None, seed: int = 1) -> Iterator[bytes]:
    """Yields a file with one to four mutations, again and again: of its bytes, or of the tree of its form."""
    whole = form.tree(content) if form else None
    for number in range(count):
        draw = np.random.default_rng([seed, number])
        if form is None:
            yield _mutated(content, draw)
            continue
        tree = [copy.deepcopy(whole)]  # so that the whole tree can be exchanged, too
        for _ in range(draw.integers(1, _MOST_MUTATIONS + 1)):
            _mutate(tree, draw)
        yield form.content(tree[0] if tree else None)


def _mutated(content: bytes, draw: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.integers(1, _MOST_MUTATIONS + 1)):
        place, length = int(draw.integers(len(changed) + 1)), int(draw.integers(1, 40))
        match int(draw.integers(4)):
            case 0:
                changed[place : place + 1] = bytes([int(draw.integers(256))])
            case 1:
                del changed[place : place + length]
            case 2:
                changed[place:place] = changed[place : place + length]
            case _:
                changed[place:place] = PIECES[int(draw.integers(len(PIECES)))]
    return bytes(changed)


def _mutate(tree: list[object], draw: np.random.Generator) -> None:
    """Changes one place of a tree."""
    places = list(_places(tree))
    if not places:
        return
    parent, key = places[int(draw.integers(len(places)))]
    other, other_key = places[int(draw.integers(len(places)))]
    match int(draw.integers(6)):
        case 0 | 1:
            _put(parent, key, copy.deepcopy(VALUES[int(draw.integers(len(VALUES)))]))
        case 2:  # what stands elsewhere
            _put(parent, key, copy.deepcopy(_at(other, other_key)))
        case 3:
            _drop(parent, key)
        case 4:
            _repeat(parent, key, times=int(draw.integers(1, 4)))
        case _:
            _rename(parent, key, other_key)


Parent = list[object] | dict[str, object]
Key = int | str


def _places(parent: Parent) -> Iterator[tuple[Parent, Key]]:
    """Yields each place below a list or mapping: what it stands in, and where."""
    items: Iterator[tuple[Key, object]] = (
        iter(parent.items()) if isinstance(parent, dict) else iter(enumerate(parent))
    )
    for key, value in items:
        yield parent, key
        if isinstance(value, list | dict):
            yield from _places(value)


def _at(parent: Parent, key: Key) -> object:
    return parent[key]  # type: ignore[index] # places come with keys of their kind


def _put(parent: Parent, key: Key, value: object) -> None:
    parent[key] = value  # type: ignore[index]


def _drop(parent: Parent, key: Key) -> None:
    del parent[key]  # type: ignore[arg-type]


def _repeat(parent: Parent, key: Key, *, times: int) -> None:
    """An item stands there again and again; a field gets a second one, whose name is almost the same."""
    value = _at(parent, key)
    for _ in range(times):
        if isinstance(parent, list) and isinstance(key, int):
            parent.insert(key, copy.deepcopy(value))
        else:
            _put(parent, f"{key}_", copy.deepcopy(value))


def _rename(parent: Parent, key: Key, other: Key) -> None:
    """A field gets the name of another one; an item goes to the end."""
    value = _at(parent, key)
    _drop(parent, key)
    if isinstance(parent, list):
        parent.append(value)
    else:
        _put(parent, other if isinstance(other, str) else str(key).swapcase(), value)


def _json_bytes(tree: object) -> bytes:
    return json.dumps(tree).encode()


def _rows(content: bytes) -> object:
    return [json.loads(line) for line in content.decode().splitlines()]


def _row_bytes(tree: object) -> bytes:
    return b"\n".join(_json_bytes(row) for row in tree) if isinstance(tree, list) else _json_bytes(tree)


def _cells(content: bytes) -> object:
    return [list(row) for row in csv.reader(io.StringIO(content.decode()))]


def _cell_bytes(tree: object) -> bytes:
    text = io.StringIO(newline="")
    rows = tree if isinstance(tree, list) else [tree]
    csv.writer(text).writerows(row if isinstance(row, list) else [row] for row in rows)
    return text.getvalue().encode(errors="surrogatepass")


def _wire(content: bytes) -> object:
    """Messages of fields: number, kind, and a number or bytes; attributes are messages themselves."""
    return [_wire_message(message) for message in messages(content)]


def _wire_message(message: bytes) -> list[object]:
    return [
        [number, kind, _wire_message(value) if number == _ATTRIBUTE and isinstance(value, bytes) else value]
        for number, kind, value in fields(message)
    ]


def _wire_bytes(tree: object) -> bytes:
    rows = tree if isinstance(tree, list) else [tree]
    return b"".join(as_varint(len(message)) + message for message in map(_message_bytes, rows))


def _message_bytes(message: object) -> bytes:
    """As well as it goes: what is no field of three parts stands there as it is."""
    return b"".join(map(_field_bytes, message)) if isinstance(message, list) else _raw(message)


def _field_bytes(field: object) -> bytes:
    match field:
        case [int(number), int(kind), value]:
            return as_varint(number << 3 | kind & 7) + _value_bytes(kind, value)
        case _:
            return _raw(field)


def _value_bytes(kind: int, value: object) -> bytes:
    if kind == VARINT and isinstance(value, int):
        return as_varint(value)
    content = _message_bytes(value)
    return as_varint(len(content)) + content if kind == BYTES else content


def _raw(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


JSON = Form(json.loads, _json_bytes)
JSON_LINES = Form(_rows, _row_bytes)
"""A document on each line."""
CSV = Form(_cells, _cell_bytes)
PROTOBUF = Form(_wire, _wire_bytes)
"""Messages, each with its length before it."""
