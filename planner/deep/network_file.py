"""How are the accelerators of a step connected? The network file: a usual network by its sizes, or any other cable by cable.

load_network("network.yaml")      docs/network-file.md lists the fields
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from planner.input.arguments import path_given
from planner.input.plain import plain_copy
from planner.input.problems import Findings, nearest
from planner.input.record_input import name_of, read_mapping, validated
from planner.input.schema import Location, model_at
from simulator.deep.networks.network_file import KINDS, NetworkFile
from simulator.errors import InputError
from simulator.record import Record

NETWORK = "network"
LEAST = "network: {kind: ...}"
"""The least that a network file must say."""


def load_network(path: str | Path) -> NetworkFile:
    """Returns the network in a YAML, JSON or TOML file.

    Raises:
        InputError: the file cannot be read, or breaks rules; all of them are in `problems`.
    """
    file = path_given(path)
    findings = Findings(_model_at)
    for kind in KINDS:
        findings.rename((NETWORK, kind), (NETWORK,))
    fields = plain_copy({"name": name_of(file), **read_mapping(file, least=LEAST)}, findings)
    if NETWORK in fields:
        _check_kind(fields[NETWORK], findings)
    return _checked(validated(NetworkFile, fields, findings, str(file)), str(file))


def _checked(file: NetworkFile, source: str) -> NetworkFile:
    """Returns the file if the links that it makes slow exist."""
    try:
        file.build()
    except InputError as error:
        problems = [replace(each, path=f"{each.path}[{each.value}]", value="") for each in error.problems]
        raise InputError(problems, source) from error
    return file


def _check_kind(network: object, findings: Findings) -> None:
    """Reports a network whose kind does not exist; its fields cannot be checked then."""
    place = (NETWORK, "kind")
    if findings.is_hidden(place):
        pass
    elif not isinstance(network, Mapping):
        findings.add((NETWORK,), network, f"must be a mapping of fields with kind: {', '.join(KINDS)}")
    elif (kind := network.get("kind")) is None:
        findings.add(place, None, f"is missing; known: {', '.join(KINDS)}")
    elif str(kind) not in KINDS:
        findings.add(place, kind, f"must be a kind; {nearest(str(kind), tuple(KINDS))}")
    else:
        return
    findings.hide((NETWORK,))


def _model_at(location: Location) -> type[Record] | None:
    """The type of the mapping at a place of the file; the kind of a network stands below it, as pydantic reports places."""
    if location[:1] != (NETWORK,) or len(location) == 1:
        return model_at(location, NetworkFile)
    return model_at(location[2:], KINDS[str(location[1])])
