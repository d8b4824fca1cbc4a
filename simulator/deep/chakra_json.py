"""What is a Chakra node in JSON? The JSON form of protobuf: names in camel case, whole numbers of 64 bits as text.

Messages stand one behind the other, as chakra's jsonizer writes them: the metadata first, then the nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from simulator.deep.chakra import VERSION, ChakraNode, NodeType, Value
from simulator.deep.trace_text import broken

INT32_NAMES = frozenset({"comm_src", "comm_dst", "comm_tag"})
"""Attributes that generators of traces write as int32."""
_NUMBERS = {"id": "id", "startTimeMicros": "start_time_micros", "durationMicros": "duration_micros"}


def from_json(path: Path, data: bytes) -> Iterator[dict[str, object]]:
    """Yields the fields of each node; raises `InputError` where the text is no row of messages."""
    decoder, place, position = json.JSONDecoder(), 0, 0
    try:
        text = data.decode("utf-8-sig")
        while place < len(text):
            if text[place].isspace():
                place += 1
                continue
            message, place = decoder.raw_decode(text, place)
            if not isinstance(message, dict):
                raise broken(path, f"message {position}", str(message), "must be an object")
            if "version" not in message:
                yield _json_node(message)
            position += 1
    except (ValueError, RecursionError) as error:
        raise broken(path, f"message {position}", "", f"is no JSON of Chakra: {str(error)[:100]}") from error


def _json_node(message: Mapping[str, object]) -> dict[str, object]:
    record: dict[str, object] = {"id": 0}
    deps: list[object] = []
    attributes: dict[str, object] = {}
    for key, value in message.items():
        if key in _NUMBERS:
            record[_NUMBERS[key]] = value
        elif key == "name":
            record["name"] = value
        elif key == "type":
            record["type"] = (
                NodeType[value] if isinstance(value, str) and value in NodeType.__members__ else value
            )
        elif key in ("ctrlDeps", "dataDeps"):
            deps += value if isinstance(value, list) else [value]
        elif key == "attr":
            for attribute in value if isinstance(value, list) else []:
                attributes |= _json_attribute(attribute)
    unique = {str(dep): dep for dep in deps}
    return {**record, "deps": tuple(unique.values()), "attributes": attributes}


def _json_attribute(attribute: object) -> dict[str, object]:
    """As `_attribute`; whole numbers of 64 bits stand as text in the JSON form of protobuf."""
    if not isinstance(attribute, dict):
        return {}
    name = str(attribute.get("name", ""))
    for key, value in attribute.items():
        if key in ("boolVal", "stringVal", "doubleVal", "floatVal"):
            return {name: value}
        if key.endswith("Val") and ("nt" in key or "ixed" in key):
            is_text = isinstance(value, str) and value.lstrip("-").isascii() and value.lstrip("-").isdigit()
            return {name: int(str(value)) if is_text and len(str(value)) < 21 else value}
    return {}


def as_json(nodes: Sequence[ChakraNode]) -> str:
    """Returns the metadata and the nodes, one a line."""
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
