"""How are protobuf messages decoded and encoded? The wire format, for the few messages that are read here.

A message is a sequence of fields: a tag (number and kind), then the value. See protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Kinds of values on the wire."""
_MOST_VARINT_BYTES = 10
_MASK = 2**64 - 1


class WireError(ValueError):
    """Bytes that are not a message; says why and at which byte."""


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Returns the number at a place, and the place after it; raises `WireError` if there is none."""
    if place < len(data) and data[place] < 0x80:  # as most numbers of a trace
        return data[place], place + 1
    value = 0
    for position in range(_MOST_VARINT_BYTES):
        if place + position >= len(data):
            raise WireError(f"a number is cut off at byte {place}")
        byte = data[place + position]
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value & _MASK, place + position + 1
    raise WireError(f"a number at byte {place} is longer than {_MOST_VARINT_BYTES} bytes")


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yields number, kind and value of each field; raises `WireError` if the bytes are not a message."""
    place = 0
    while place < len(data):
        tag, place = varint(data, place)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, place = varint(data, place)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, place = varint(data, place)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise WireError(f"a field at byte {place} has the unknown kind {kind}")
        if number == 0 or place + size > len(data):
            raise WireError(f"field {number} at byte {place} is cut off")
        yield number, kind, data[place : place + size]
        place += size


def messages(data: bytes) -> Iterator[bytes]:
    """Yields messages that follow one another, each preceded by its length; raises `WireError`."""
    place = 0
    while place < len(data):
        size, begin = varint(data, place)
        if begin + size > len(data):
            raise WireError(f"a message at byte {place} is cut off")
        yield data[begin : begin + size]
        place = begin + size


def packed(value: int | bytes) -> list[int]:
    """Returns the numbers of a repeated field, one occurrence of which may hold many."""
    if isinstance(value, int):
        return [value]
    found, place = [], 0
    while place < len(value):
        number, place = varint(value, place)
        found.append(number)
    return found


def signed(value: int) -> int:
    """Returns the int32 or int64 of a number on the wire: two's complement in 64 bits."""
    return value - 2**64 if value >= 2**63 else value


def zigzag(value: int) -> int:
    """Returns the sint32 or sint64 of a number on the wire."""
    return (value >> 1) ^ -(value & 1)


def as_varint(value: int) -> bytes:
    """Returns the wire form of a number."""
    value &= _MASK
    out = bytearray()
    while value > 0x7F:
        out.append(0x80 | (value & 0x7F))
        value >>= 7
    return bytes([*out, value])


def as_number(number: int, value: int) -> bytes:
    """Returns a field that holds a number; nothing for zero, which is the default."""
    return as_varint(number << 3 | VARINT) + as_varint(value) if value else b""


def as_bytes(number: int, value: bytes) -> bytes:
    """Returns a field that holds bytes: text, a message, or many numbers."""
    return as_varint(number << 3 | BYTES) + as_varint(len(value)) + value
