"""How are Chakra execution traces read and written? As protobuf (`.et`) and as JSON, one file for each accelerator.

.et     the metadata and each node, every message preceded by its length
.json   the same messages in protobuf's JSON form, one after another, as Chakra's jsonizer writes them; the feeder's form, a
        `workload_graph`, is read as well, but not written
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from simulator.deep.traces.chakra import (
    VERSION,
    ChakraNode,
    ChakraTrace,
    NodeFields,
    Value,
    check_nodes,
    with_control,
)
from simulator.deep.traces.chakra_json import INT32_NAMES, as_json, from_json
from simulator.deep.traces.trace_text import broken, problems_of, read_bytes, shown, unpacked
from simulator.deep.traces.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    WireError,
    as_bytes,
    as_number,
    as_varint,
    fields,
    messages,
    packed,
    signed,
    zigzag,
)
from simulator.errors import InputError

_SIGNED, _ZIGZAG, _UNSIGNED = (7, 9), (15, 17), (11, 13, 19, 21)
_FIXED = {3: "<d", 5: "<f", 19: "<I", 21: "<Q", 23: "<i", 25: "<q"}
_BOOL, _STRING = 27, 29
_INT64, _DOUBLE = 9, 3


def read_chakra(path: Path) -> tuple[ChakraNode, ...]:
    """Returns the nodes of one accelerator; see `read_chakra_trace`."""
    return read_chakra_trace(path).nodes


def read_chakra_trace(path: Path) -> ChakraTrace:
    """Returns the trace of one accelerator, from protobuf (gzipped or not) or JSON.

    Raises:
        InputError: the file is invalid, or its nodes contradict each other; names file, node, field and rule.
    """
    data = unpacked(path, read_bytes(path))
    records = from_json(path, data) if _is_json(path, data) else _from_wire(path, data)
    nodes, control = [], []
    for position, record in enumerate(records):
        control.append(record.control)
        try:
            nodes.append(ChakraNode.model_validate(record.values))
        except ValidationError as error:
            raise InputError(problems_of(error, f"node at position {position}"), str(path)) from error
    if not nodes:
        raise broken(path, "", "", "has no nodes")
    check_nodes(nodes, str(path))
    return with_control(nodes, control, str(path))


def _is_json(path: Path, data: bytes) -> bool:
    """Decides by the name, as Chakra's feeder does; by the first bytes if the name says nothing."""
    return path.suffix == ".json" or (path.suffix != ".et" and data.lstrip().startswith(b"{"))


def _from_wire(path: Path, data: bytes) -> Iterator[NodeFields]:
    position = 0
    try:
        for position, message in enumerate(messages(data)):
            if position:  # the first one is the metadata
                yield _node(message)
    except (WireError, UnicodeDecodeError, struct.error) as error:
        raise broken(path, f"message {position}", "", f"is no Chakra trace: {error}") from error


def _node(data: bytes) -> NodeFields:
    values: dict[str, object] = {"id": 0}
    deps: list[int] = []
    control: list[int] = []
    attributes: dict[str, Value] = {}
    for number, kind, value in fields(data):
        match number, kind, value:
            case 1 | 6 | 7, 0, int():
                values[{1: "id", 6: "start_time_micros", 7: "duration_micros"}[number]] = value
            case 3, 0, int():
                values["type"] = value
            case 2, 2, bytes():
                values["name"] = value.decode()
            case 4 | 5, 0 | 2, _:
                (control if number == 4 else deps).extend(packed(value))
            case 10, 2, bytes():
                attributes |= _attribute(value)
    values |= {"deps": tuple(dict.fromkeys(deps)), "attributes": attributes}
    return NodeFields(values=values, control=tuple(control))


def _attribute(data: bytes) -> dict[str, Value]:
    """An attribute with a single value, by its name; nothing for lists and bytes."""
    name, found = "", None
    for number, kind, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            name = value.decode()
        elif kind == VARINT and isinstance(value, int):
            found = _whole(number, value)
        elif kind in (FIXED64, FIXED32) and isinstance(value, bytes) and number in _FIXED:
            (found,) = struct.unpack(_FIXED[number], value)
            if not math.isfinite(found):
                raise WireError(f"attribute {shown(name)} is not finite")
        elif number == _STRING and isinstance(value, bytes):
            found = value.decode()
    return {} if found is None else {name: found}


def _whole(number: int, value: int) -> Value | None:
    if number in _SIGNED:
        return signed(value)
    if number in _ZIGZAG:
        return zigzag(value)
    if number in _UNSIGNED:
        return value
    return bool(value) if number == _BOOL else None


def write_chakra(path: Path, nodes: Sequence[ChakraNode]) -> None:
    """Writes the nodes of one accelerator, as JSON to a name that ends in `.json`, as protobuf to any other.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_bytes(as_json(nodes).encode() if path.suffix == ".json" else _as_wire(nodes))


def _as_wire(nodes: Sequence[ChakraNode]) -> bytes:
    messages = [as_bytes(1, VERSION.encode()), *(_wire_node(node) for node in nodes)]
    return b"".join(as_varint(len(message)) + message for message in messages)


def _wire_node(node: ChakraNode) -> bytes:
    deps = b"".join(as_varint(dep) for dep in node.deps)
    return b"".join(
        [
            as_number(1, node.id),
            as_bytes(2, node.name.encode()),
            as_number(3, node.type),
            as_bytes(5, deps) if deps else b"",
            as_number(6, node.start_time_micros),
            as_number(7, node.duration_micros),
            *(as_bytes(10, _wire_attribute(name, value)) for name, value in node.attributes.items()),
        ]
    )


def _wire_attribute(name: str, value: Value) -> bytes:
    return as_bytes(1, name.encode()) + _wire_value(name, value)


def _wire_value(name: str, value: Value) -> bytes:
    """A value, even if it is zero, because the field's presence says which type it is."""
    match value:
        case bool():
            return as_varint(_BOOL << 3 | VARINT) + as_varint(int(value))
        case int():
            number = 7 if name in INT32_NAMES else _INT64
            return as_varint(number << 3 | VARINT) + as_varint(value)
        case float():
            return as_varint(_DOUBLE << 3 | FIXED64) + struct.pack("<d", value)
        case str():
            return as_varint(_STRING << 3 | BYTES) + as_varint(len(value.encode())) + value.encode()
