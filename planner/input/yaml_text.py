"""What does a file contain? Text in YAML, JSON or TOML becomes plain values, safely: nothing is executed or expanded.

YAML is read with the 1.2 core schema: `2e12` is a number; `NO`, `12:30` and `2024-01-01` are text. Anchors, aliases and tags
are refused, so the values are never larger than the file; size and depth are bounded.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Hashable
from pathlib import Path
from typing import cast

import yaml

from planner.input.small_file import bytes_of_small_file
from simulator.errors import refusal
from simulator.file_text import utf8_text

MAX_FILE_BYTES = 1_000_000
"""A job with every shape written out takes about 10 kB; the limit prevents a wrong file from taking minutes."""

MAX_DEPTH = 50
"""Most levels of nested lists and mappings; a job needs six."""
TOO_DEEP = f"more than {MAX_DEPTH} lists and mappings inside each other"
_TOO_DEEP_TO_READ = "lists and mappings are nested too deeply"

FILE_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
"""Suffixes of such files."""

JOB_FIELDS = "workload, offers and site"
"""The least that a job must contain."""


def read_document(
    path: Path, *, least: str = JOB_FIELDS, most_bytes: int = MAX_FILE_BYTES, kind: str = "a job file"
) -> object:
    """Returns the values in a file: TOML by its suffix, JSON or YAML by its content.

    Args:
        path: the file.
        least: the fields that the error for an empty file asks for.
        most_bytes: its largest size; above `MAX_FILE_BYTES` it must be JSON, which is read much faster than YAML.
        kind: what a larger file is not.

    Raises:
        InputError: the file cannot be read, is too large, is not UTF-8 text, is empty or breaks the syntax.
    """
    source = str(path)
    text = _text(bytes_of_small_file(path, most_bytes, kind), source)
    if len(text) > MAX_FILE_BYTES:
        return _parse_json(text, source)
    if path.suffix.lower() == ".toml":
        return _parse_toml(text, source, least)
    return parse_text(text, source=source, least=least)


def parse_text(text: str, *, source: str, least: str = JOB_FIELDS) -> object:
    """Returns the values in a text of JSON (an object with quoted keys) or YAML (anything else).

    Raises:
        InputError: the text is empty or breaks the syntax; the message names line and column.
    """
    document = parse_value(text, source=source)
    if document is None:
        raise refusal(source, f"is empty: write at least {least}")
    return document


def parse_value(text: str, *, source: str) -> object:
    """Returns one value, `None` for an empty text; raises `InputError` as `parse_text` does."""
    is_json = re.match(r'\s*\{\s*["}]', text)
    return _parse_json(text, source) if is_json else _parse_yaml(text, source)


def _text(content: bytes, source: str) -> str:
    try:
        return utf8_text(content)
    except ValueError as error:
        raise refusal(source, str(error)) from None


def _parse_json(text: str, source: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_distinct, parse_int=_integer)
    except json.JSONDecodeError as error:
        rule = f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}"
        raise refusal(source, rule) from None
    except RecursionError:
        raise refusal(source, _TOO_DEEP_TO_READ) from None
    except _DuplicateKeyError as error:
        raise refusal(source, str(error)) from None


def _parse_toml(text: str, source: str, least: str) -> object:
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise refusal(source, _TOO_DEEP_TO_READ) from None
    except ValueError as error:  # TOMLDecodeError, or a number too long for Python
        raise refusal(source, f"not valid TOML: {error}") from None
    if not document:
        raise refusal(source, f"is empty: write at least {least}")
    return document


def _parse_yaml(text: str, source: str) -> object:
    try:
        document: object = _PlainLoader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        raise refusal(source, _marked_rule(error)) from None
    except yaml.YAMLError as error:
        rule = " ".join(str(error).split("\n")[0].split())
        raise refusal(source, f"not valid YAML: {rule}") from None
    return document


def _marked_rule(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    hint = "; indent with spaces, not tabs" if "'\\t'" in str(error.problem) else ""
    context = f"{error.context}, " if error.context else ""
    return f"{where}{context}{error.problem}{hint}"


class _DuplicateKeyError(Exception):
    """A JSON object names a key twice."""


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    seen: dict[str, object] = {}
    for key, value in pairs:
        if key in seen:
            raise _DuplicateKeyError(f"{key!r} stands twice in the same mapping")
        seen[key] = value
    return seen


def _integer(text: str) -> int | str:
    """Returns the integer, or its text if it is so long that only the rule of its field can refuse it."""
    return int(text) if len(text) <= 300 else text


class _PlainLoader(yaml.SafeLoader):
    """Reads scalars by the YAML 1.2 core schema; refuses anchors, aliases, tags, depth and duplicate keys."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - the parent's table of YAML 1.1 is replaced, not extended
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call] # PyYAML's stubs leave it out
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            self._refuse("anchors (&) and aliases (*) are not supported: write the values out", event)
        if getattr(event, "tag", None) not in (None, "!"):
            self._refuse("tags (!) are not supported", event)
        if self.depth >= MAX_DEPTH:
            self._refuse(TOO_DEEP, event)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        mapping: dict[Hashable, object] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse("a list or mapping cannot be a key", key_node)
            key = self.construct_object(key_node, deep=True)
            if node.flow_style and key_node.value.isdigit() and value_node.value == "":
                self._refuse("a number must have no commas in it: write 1.5e6 for 1,500,000", key_node)
            if key in mapping:
                self._refuse(f"{key!r} stands twice in the same mapping", key_node)
            mapping[key] = self.construct_object(value_node, deep=deep)
        return mapping

    def construct_integer(self, node: yaml.ScalarNode) -> int | str:
        return _integer(str(node.value))

    def construct_real(self, node: yaml.ScalarNode) -> float:
        return float(str(node.value).replace(".inf", "inf").replace(".nan", "nan"))

    def _refuse(self, rule: str, where: yaml.Event | yaml.Node) -> None:
        mark = cast("yaml.Mark", where.start_mark)
        raise yaml.constructor.ConstructorError(None, None, rule, mark)


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _PlainLoader.construct_integer)
_PlainLoader.add_constructor("tag:yaml.org,2002:float", _PlainLoader.construct_real)
_CORE_SCHEMA = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?[0-9]+(?:_[0-9]+)*", list("-+0123456789")),
    "float": (
        (
            r"[-+]?(?:[0-9]+(?:_[0-9]+)*\.?|(?:[0-9]+(?:_[0-9]+)*)?\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
        ),
        list("-+.0123456789"),
    ),
}
for _tag, (_pattern, _first_characters) in _CORE_SCHEMA.items():
    _PlainLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), _first_characters
    )
