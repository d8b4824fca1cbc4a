"""Does a document conform to a JSON Schema? A validator for tests, with the part of the standard that capplan's schemas use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import cast

Schema = Mapping[str, object]

TYPES: dict[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "integer": lambda value: (
        isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)
    ),
}
BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
}
LENGTHS: dict[str, tuple[type, Callable[[int, int], bool]]] = {
    "minLength": (str, lambda length, bound: length >= bound),
    "maxLength": (str, lambda length, bound: length <= bound),
    "minItems": (list, lambda length, bound: length >= bound),
    "maxItems": (list, lambda length, bound: length <= bound),
    "minProperties": (dict, lambda length, bound: length >= bound),
    "maxProperties": (dict, lambda length, bound: length <= bound),
}
KNOWN = {
    *BOUNDS,
    *LENGTHS,
    *("$schema", "$defs", "$ref", "title", "description", "default", "examples", "format"),
    *("type", "enum", "const", "anyOf", "oneOf", "properties", "required", "additionalProperties", "items"),
    *("propertyNames", "prefixItems", "discriminator", "deprecated", "pattern"),
}


def problems(value: object, schema: object, root: Schema, path: str = "") -> Iterator[str]:
    """Yields the places where a value violates a schema."""
    if schema is True:
        return
    assert isinstance(schema, dict)
    assert set(schema) <= KNOWN, f"{path}: the schema uses {set(schema) - KNOWN}"
    if reference := schema.get("$ref"):
        definitions = cast(Mapping[str, object], root["$defs"])
        yield from problems(value, definitions[str(reference).removeprefix("#/$defs/")], root, path)
    yield from _chosen(value, schema.get("anyOf") or schema.get("oneOf") or [True], root, path)
    kind = schema.get("type")
    if isinstance(kind, str) and not TYPES[kind](value):
        yield f"{path}: {value!r} is no {kind}"
        return
    if "enum" in schema and value not in cast(list[object], schema["enum"]):
        yield f"{path}: {value!r} is not one of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{path}: {value!r} is not {schema['const']!r}"
    if "pattern" in schema and isinstance(value, str) and not re.search(str(schema["pattern"]), value):
        yield f"{path}: {value!r} does not match {schema['pattern']}"
    yield from _bounded(value, schema, path)
    if isinstance(value, dict):
        yield from _object(value, schema, root, path)
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from problems(item, schema["items"], root, f"{path}[{index}]")


def _chosen(value: object, choices: object, root: Schema, path: str) -> Iterator[str]:
    found = [list(problems(value, choice, root, path)) for choice in cast(list[object], choices)]
    if all(found):
        yield f"{path}: none of {len(found)} forms fits: {min(found, key=len)}"


def _bounded(value: object, schema: Schema, path: str) -> Iterator[str]:
    for name, keeps in BOUNDS.items():
        bound = schema.get(name)
        if (
            TYPES["number"](value)
            and isinstance(bound, (int, float))
            and not keeps(cast(float, value), bound)
        ):
            yield f"{path}: {value} breaks {name} {bound}"
    for name, (kind, fits) in LENGTHS.items():
        bound = schema.get(name)
        if isinstance(value, kind) and isinstance(bound, int) and not fits(len(cast(str, value)), bound):
            yield f"{path}: its length breaks {name} {bound}"


def _object(value: dict[str, object], schema: Schema, root: Schema, path: str) -> Iterator[str]:
    properties = cast(Mapping[str, object], schema.get("properties", {}))
    yield from (
        f"{path}.{name} is missing"
        for name in cast(list[str], schema.get("required", []))
        if name not in value
    )
    others = schema.get("additionalProperties", True)
    for name, part in value.items():
        if name in properties:
            yield from problems(part, properties[name], root, f"{path}.{name}")
        elif others is False:
            yield f"{path}.{name} is unknown"
        elif isinstance(others, dict):
            yield from problems(part, others, root, f"{path}.{name}")
        if "propertyNames" in schema:
            yield from problems(name, schema["propertyNames"], root, f"{path}.{name}")
