"""Does a file, or a mapping, describe a value of this type? Plain values, then the type's rules; all problems at once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from pydantic import PrivateAttr, ValidationError

from planner.input.arguments import path_given
from planner.input.magnitude import out_of_reach
from planner.input.plain import plain_copy
from planner.input.problems import Findings, shown
from planner.input.schema import model_at
from planner.input.yaml_text import read_document
from simulator.errors import refusal
from simulator.record import Record

LONGEST_NAME = 100
_KINDS = {
    "a job file, which `capplan recommend` takes": ("workload", "offers"),
    "a sweep, which `capplan sweep` takes": ("job", "num_gpus"),
    "a fleet, which `capplan purchase` takes": ("jobs", "offers"),
    "an answer that capplan printed with --json": ("schema_version", "capplan_version"),
}
"""Other files, by two fields that they must have."""

_Described = TypeVar("_Described", bound=Record)


class Filed(Record):
    """A value with paths to other files, which are relative to its own file, wherever it is read from."""

    _folder: Path = PrivateAttr(default_factory=Path)

    @property
    def folder(self) -> Path:
        """Folder of the file from which it was read; the current folder if there is no file."""
        return self._folder

    def read_in(self, folder: Path) -> Self:
        """Returns the same value as if read from a file in this folder."""
        twin = self.model_copy()
        twin._folder = folder  # noqa: SLF001 (its own)
        return twin


_Filed = TypeVar("_Filed", bound=Filed)


def read_record(kind: type[_Filed], path: str | Path, *, least: str) -> _Filed:
    """Returns the value in a YAML, JSON or TOML file; one without a name is named after the file.

    Args:
        kind: type of the value; it has a field `name`.
        path: the file.
        least: the fields that the error for an empty file asks for.

    Raises:
        InputError: the file cannot be read, or breaks rules; all of them are in `problems`.
    """
    file = path_given(path)
    named = {"name": name_of(file), **read_mapping(file, least=least)}
    return parse_record(kind, named, source=str(file)).read_in(file.parent)


def read_mapping(path: str | Path, *, least: str) -> Mapping[str, object]:
    """Returns the mapping in a file, unchecked.

    Args:
        path: the file.
        least: the fields that it must have; the first one distinguishes it from files of other commands.

    Raises:
        InputError: it cannot be read, is not a mapping, or is a file for another command.
    """
    document = read_document(Path(path), least=least)
    if not isinstance(document, Mapping):
        rule = f"{shown(document)} must be a mapping with at least {least}"
        raise refusal(path, rule)
    if kind := _other_kind(document, least):
        raise refusal(path, f"is {kind}; what is wanted here has at least {least}")
    return document


def _other_kind(document: Mapping[str, object], least: str) -> str | None:
    """Returns what kind of file it is if it lacks the first wanted field, `None` if it may be the wanted kind."""
    if least.partition(",")[0] in document:
        return None
    return next((kind for kind, fields in _KINDS.items() if document.keys() >= set(fields)), None)


def name_of(path: str | Path) -> str:
    """Returns the default name of what a file describes: the file name without suffix, as storable text."""
    return Path(path).stem.encode("utf-8", "replace").decode()[:LONGEST_NAME]


def parse_record(kind: type[_Described], document: Mapping[str, object], *, source: str = "") -> _Described:
    """Returns the value that a mapping describes.

    Args:
        kind: type of the value.
        document: its fields.
        source: where they come from, for error messages.

    Raises:
        InputError: the document breaks rules; all of them are in `problems`.
    """
    findings = Findings(partial(model_at, root=kind))
    return validated(kind, plain_copy(document, findings), findings, source)


def validated(
    kind: type[_Described], fields: Mapping[str, object], findings: Findings, source: str = ""
) -> _Described:
    """Returns the value with these fields; raises with earlier findings and those of its type's rules."""
    value = None
    try:
        value = kind.model_validate(fields)
    except ValidationError as error:
        findings.add_validation(error)
    for location, number, rule in out_of_reach(value):
        findings.add(location, number, rule)
    findings.raise_if_any(source)
    assert value is not None, "validation failed without a finding"
    return value
