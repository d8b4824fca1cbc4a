"""What joins the accelerators of a step? The network file: a usual network by its sizes, or any other cable by cable.

load_network("network.yaml")      docs/network-file.md lists the fields
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from planner.job_schema import Location
from planner.plain import plain_copy
from planner.problems import Findings, nearest, shown
from planner.yaml_text import read_document
from simulator.deep.described_cables import Cable
from simulator.deep.network_file import KINDS, NetworkFile
from simulator.errors import InputError, Problem
from simulator.record import Record

NETWORK = "network"
LEAST = "network: {kind: ...}"
"""What a network file says at least."""


def load_network(path: str | Path) -> NetworkFile:
    """Returns the network in a YAML, JSON or TOML file.

    Raises:
        InputError: the file cannot be read, or breaks rules; all of them are in `problems`.
    """
    document = read_document(Path(path), least=LEAST)
    if not isinstance(document, Mapping):
        rule = f"{shown(document)} must be a mapping with {LEAST}"
        raise InputError([Problem(path="", value="", rule=rule)], str(path))
    findings, file = Findings(), None
    named = {"name": Path(path).stem} | dict(plain_copy(document, findings))
    try:
        file = NetworkFile.model_validate(named, strict=False)
    except ValidationError as error:
        _add_problems(error, findings)
    if file is None or findings.problems:
        raise InputError(findings.problems, str(path))
    return _checked(file, str(path))


def _checked(file: NetworkFile, source: str) -> NetworkFile:
    """Returns the file if the links that it calls slow are there."""
    try:
        file.build()
    except InputError as error:
        problems = [replace(each, path=f"{each.path}[{each.value}]", value="") for each in error.problems]
        raise InputError(problems, source) from error
    return file


def _add_problems(error: ValidationError, findings: Findings) -> None:
    """Reports fields and kinds that do not exist with those that do, and all else by the rules of every file."""
    for kind in KINDS:
        findings.rename((NETWORK, kind), (NETWORK,))
    for detail in error.errors(include_url=False):
        location = tuple(step for step in detail["loc"] if step != "[key]")
        if detail["type"] == "extra_forbidden":
            known = tuple(_model_at(location[:-1]).model_fields)
            findings.add(location, detail["input"], f"unknown field; {nearest(str(location[-1]), known)}")
        elif detail["type"] == "union_tag_invalid":
            kind = str(detail["ctx"]["tag"])
            findings.add((NETWORK, "kind"), kind, f"must be a kind; {nearest(kind, tuple(KINDS))}")
            findings.hide(location)
        elif location == (NETWORK,) and detail["type"] == "model_attributes_type":
            findings.add(
                location, detail["input"], f"must be a mapping of fields with kind: {', '.join(KINDS)}"
            )
        elif detail["type"] == "union_tag_not_found":
            findings.add((NETWORK, "kind"), None, f"is missing; known: {', '.join(KINDS)}")
            findings.hide(location)
    findings.add_validation(error)


def _model_at(location: Location) -> type[Record]:
    """The type of the mapping at a place of the file."""
    if not location:
        return NetworkFile
    return KINDS[str(location[1])] if len(location) == len((NETWORK, "kind")) else Cable
