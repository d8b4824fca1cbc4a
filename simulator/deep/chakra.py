"""What is a Chakra execution trace? Nodes of one accelerator: operators, collectives, sends, receives, and what they wait for.

The schema is that of MLCommons (github.com/mlcommons/chakra, `et_def.proto`, version 0.0.4), of which what simulators read
is kept: durations, kinds of traffic, bytes, groups, partners. `simulator.deep.chakra_files` reads and writes the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from pydantic import Field

from simulator.errors import InputError, Problem
from simulator.record import Record

VERSION = "0.0.4"
MOST_PROBLEMS = 20


class NodeType(IntEnum):
    """Kinds of nodes, by their numbers in the schema."""

    INVALID_NODE = 0
    METADATA_NODE = 1
    MEM_LOAD_NODE = 2
    MEM_STORE_NODE = 3
    COMP_NODE = 4
    COMM_SEND_NODE = 5
    COMM_RECV_NODE = 6
    COMM_COLL_NODE = 7


class CommType(IntEnum):
    """Kinds of collectives, by their numbers in the schema."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


Value = bool | int | float | str


class ChakraNode(Record):
    """One node."""

    id: int = Field(ge=0, lt=2**64)
    name: str = ""
    type: NodeType = NodeType.INVALID_NODE
    deps: tuple[int, ...] = ()
    """Nodes that must have ended, by control or by data."""
    start_time_micros: int = Field(default=0, ge=0, lt=2**64)
    duration_micros: int = Field(default=0, ge=0, lt=2**64)
    attributes: Mapping[str, Value] = Field(default_factory=dict)
    """Single values by name, such as `comm_size`; lists are not kept."""

    def number(self, name: str, default: int | None = None) -> int:
        """Returns an attribute that must be a whole number that is not negative.

        Raises:
            InputError: it is not, or it is missing and there is no default.
        """
        value = self.attributes.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            rule = "must be a whole number that is not negative" if value is not None else "is missing"
            raise InputError([Problem(path=f"node {self.id}.{name}", value=str(value or ""), rule=rule)])
        return value


def check_nodes(nodes: Sequence[ChakraNode], source: str) -> None:
    """Checks what can only be seen across nodes.

    Raises:
        InputError: a node is there twice, waits for one that is not there, or nodes wait for each other in a circle.
    """
    known: set[int] = set()
    problems: list[Problem] = []
    for node in nodes:
        if node.id in known:
            problems.append(
                Problem(path=f"node {node.id}", value=node.name[:60], rule="has the number of another")
            )
        known.add(node.id)
    for node in nodes:
        missing = [other for other in node.deps if other not in known]
        if missing:
            rule = "waits for a node that is not there: is the file cut off?"
            problems.append(Problem(path=f"node {node.id}.deps", value=str(missing[0]), rule=rule))
    if not problems and (circle := _in_circles(nodes)):
        rule = f"{len(circle)} nodes wait for each other in a circle, among them {circle[0]}"
        problems.append(Problem(path="", value="", rule=rule))
    if problems:
        raise InputError(problems[:MOST_PROBLEMS], source)


def _in_circles(nodes: Sequence[ChakraNode]) -> list[int]:
    """Nodes that can never begin (Kahn 1962)."""
    waiting = {node.id: len(node.deps) for node in nodes}
    followers: dict[int, list[int]] = {}
    for node in nodes:
        for before in node.deps:
            followers.setdefault(before, []).append(node.id)
    ready = [number for number, count in waiting.items() if count == 0]
    while ready:
        number = ready.pop()
        del waiting[number]
        for after in followers.get(number, []):
            waiting[after] -= 1
            if waiting[after] == 0:
                ready.append(after)
    return sorted(waiting)
