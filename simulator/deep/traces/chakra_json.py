"""What does a Chakra node look like in JSON? Protobuf's JSON form: names in camel or snake case, 64-bit integers as text.

Messages follow one another, as Chakra's jsonizer writes them: the metadata first, then the nodes. That form leaves out fields
with their default value, so a node without `id` is node 0; an object without `type` is not a node. Chakra's other JSON, one
object with a `workload_graph`, is read by `simulator.deep.traces.chakra_feeder_json`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from simulator.deep.traces.chakra import VERSION, ChakraNode, NodeFields, NodeType, Value
from simulator.deep.traces.chakra_feeder_json import WORKLOAD_GRAPH, feeder_nodes
from simulator.deep.traces.json_fields import JsonFields, spelled
from simulator.deep.traces.trace_text import broken

INT32_NAMES = frozenset({"comm_src", "comm_dst", "comm_tag"})
"""Attributes that trace generators write as int32."""
_TYPES = frozenset(NodeType)
_METADATA = {"version", "attr"}
_WHOLE = ("id", "start_time_micros", "duration_micros")
_DEPS = ("data_deps", "ctrl_deps")
_NODE = spelled([*_WHOLE, "name", "type", *_DEPS, "inputs", "outputs", "attr"])
_WHOLE_KINDS = frozenset(
    f"{kind}{bits}" for kind in ("int", "uint", "sint", "fixed", "sfixed") for bits in (32, 64)
)
_KINDS = sorted(_WHOLE_KINDS | {"double", "float", "bool", "string", "bytes"})
_ATTRIBUTE = spelled(
    ["name", "doc_string", *(f"{kind}_{form}" for kind in _KINDS for form in ("val", "list"))]
)


def from_json(path: Path, data: bytes) -> Iterator[NodeFields]:
    """Yields the fields of each node; raises `InputError` if the text is not a sequence of messages."""
    for position, message in enumerate(_messages(path, data)):
        if isinstance(message, dict) and WORKLOAD_GRAPH in message:
            yield from feeder_nodes(path, message)
        elif position or not (isinstance(message, dict) and message.keys() <= _METADATA):
            yield _node(JsonFields.read(path, f"message {position}", message, _NODE))


def _messages(path: Path, data: bytes) -> Iterator[object]:
    decoder, place, position = json.JSONDecoder(), 0, 0
    try:
        text = data.decode("utf-8-sig").rstrip()
        while place < len(text):
            if text[place].isspace():
                place += 1
                continue
            message, place = decoder.raw_decode(text, place)
            yield message
            position += 1
    except (ValueError, RecursionError) as error:
        raise broken(path, f"message {position}", "", f"is no JSON of Chakra: {str(error)[:100]}") from error


def _node(fields: JsonFields) -> NodeFields:
    values: dict[str, object] = {name: fields.whole(name) for name in _WHOLE}
    values["name"] = fields.text("name")
    values["type"] = _type(fields)
    values["deps"] = tuple(dict.fromkeys(fields.whole_numbers("data_deps")))
    attributes: dict[str, Value] = {}
    for number, item in enumerate(fields.items("attr")):
        place = f"{fields.place}.attr.{number}"
        attributes |= _attribute(JsonFields.read(fields.path, place, item, _ATTRIBUTE))
    return NodeFields(values={**values, "attributes": attributes}, control=fields.whole_numbers("ctrl_deps"))


def _type(fields: JsonFields) -> int:
    if "type" not in fields.values:
        raise fields.broken("type", "is missing: what has none is no node of Chakra")
    value = fields.values["type"]
    if isinstance(value, str) and value in NodeType.__members__:
        return NodeType[value]
    if isinstance(value, int) and not isinstance(value, bool) and value in _TYPES:
        return value
    raise fields.broken("type", f"must be one of {', '.join(NodeType.__members__)}, or its number")


def _attribute(fields: JsonFields) -> dict[str, Value]:
    """An attribute with a single value, by its name; nothing for lists and bytes."""
    name = fields.text("name")
    if not name:
        raise fields.broken("name", "is missing")
    for key in fields.values:
        kind, _, form = key.partition("_")
        if form != "val" or kind == "bytes":
            continue
        if kind in _WHOLE_KINDS:
            return {name: fields.whole(key)}
        match kind:
            case "bool":
                return {name: fields.truth(key)}
            case "string":
                return {name: fields.text(key)}
            case _:
                return {name: _number(fields, key)}
    return {}


def _number(fields: JsonFields, key: str) -> float:
    """A number, also if given as text."""
    value, number = fields.values[key], math.nan
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            number = float(value)
    if not math.isfinite(number):
        raise fields.broken(key, "must be a finite number")
    return number


def as_json(nodes: Sequence[ChakraNode]) -> str:
    """Returns the metadata and the nodes, one per line."""
    messages: list[Mapping[str, object]] = [{"version": VERSION}, *(_json_message(node) for node in nodes)]
    return "\n".join(json.dumps(message) for message in messages) + "\n"


def _json_message(node: ChakraNode) -> dict[str, object]:
    return {
        "id": str(node.id),
        "name": node.name,
        "type": node.type.name,
        "dataDeps": [str(dep) for dep in node.deps],
        "startTimeMicros": str(node.start_time_micros),
        "durationMicros": str(node.duration_micros),
        "attr": [{"name": name, **_json_value(name, value)} for name, value in node.attributes.items()],
    }


def _json_value(name: str, value: Value) -> dict[str, object]:
    match value:
        case bool():
            return {"boolVal": value}
        case int():
            return {"int32Val": value} if name in INT32_NAMES else {"int64Val": str(value)}
        case float():
            return {"doubleVal": value}
        case str():
            return {"stringVal": value}
