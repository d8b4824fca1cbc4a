"""What is a Chakra execution trace? Nodes of one accelerator: operators, collectives, sends, receives, and what they wait for.

The schema is that of MLCommons (github.com/mlcommons/chakra, `et_def.proto`, version 0.0.4). Only what simulators read
is kept: durations, kinds of traffic, bytes, groups, partners. `simulator.deep.traces.chakra_files` reads and writes the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from pydantic import Field

from simulator.deep.traces.trace_text import MOST_PROBLEMS, shown
from simulator.errors import InputError, Problem, refusal
from simulator.record import Record

VERSION = "0.0.4"


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
    """Nodes that must have ended: data dependencies, and control dependencies that order nodes (`with_control`)."""
    start_time_micros: int = Field(default=0, ge=0, lt=2**64)
    duration_micros: int = Field(default=0, ge=0, lt=2**64)
    attributes: Mapping[str, Value] = Field(default_factory=dict)
    """Single values by name, such as `comm_size`; lists are not kept."""

    def number(self, name: str, default: int | None = None, *, source: str = "") -> int:
        """Returns an attribute that must be a non-negative whole number.

        Args:
            name: name of the attribute.
            default: value if it is missing.
            source: file of the node, for the error.

        Raises:
            InputError: it is something else, or it is missing and there is no default.
        """
        value = self.attributes.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            rule = "must be a whole number that is not negative" if value is not None else "is missing"
            raise InputError([Problem(path=f"node {self.id}.{name}", value=shown(value), rule=rule)], source)
        return value


@dataclass(frozen=True, kw_only=True)
class ChakraTrace:
    """The trace of one accelerator."""

    nodes: tuple[ChakraNode, ...]
    has_callers: bool = False
    """Whether its `ctrl_deps` were taken for callers, which impose no wait (`with_control`)."""


@dataclass(frozen=True, kw_only=True)
class NodeFields:
    """A node as it is in a file."""

    values: Mapping[str, object]
    """Fields of `ChakraNode`, not yet checked."""
    control: tuple[int, ...]
    """Its control dependencies."""


def check_nodes(nodes: Sequence[ChakraNode], source: str) -> None:
    """Checks rules that involve several nodes.

    Raises:
        InputError: a node occurs twice, waits for one that does not exist, or nodes wait for each other in a circle.
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
    if not problems:
        _check_circles({node.id: node.deps for node in nodes}, source)
    if problems:
        raise InputError(problems[:MOST_PROBLEMS], source)


def with_control(nodes: Sequence[ChakraNode], control: Sequence[tuple[int, ...]], source: str) -> ChakraTrace:
    """Returns nodes that also wait for their control dependencies, unless these name callers.

    Chakra's converter of PyTorch's traces writes the one caller of an operator as its control dependency, drops callers that do
    nothing themselves, and puts the order of execution into data dependencies. A caller ends only when what it called has
    ended, so waiting for it would never end. Control dependencies are therefore taken for callers if no node has more than
    one, there are data dependencies, and the two together cannot be satisfied.

    Args:
        nodes: nodes that `check_nodes` has checked.
        control: control dependencies of each of them.
        source: the file.

    Raises:
        InputError: control dependencies do not name callers, and refer to a node that does not exist or form a circle.
    """
    if not any(control):
        return ChakraTrace(nodes=tuple(nodes))
    joined = [
        node.model_copy(update={"deps": tuple(dict.fromkeys(node.deps + deps))})
        for node, deps in zip(nodes, control, strict=True)
    ]
    try:
        check_nodes(joined, source)
    except InputError:
        if max(map(len, control)) == 1 and any(node.deps for node in nodes):
            return ChakraTrace(nodes=tuple(nodes), has_callers=True)
        raise
    return ChakraTrace(nodes=tuple(joined))


def _check_circles(deps: Mapping[int, Sequence[int]], source: str) -> None:
    if circle := _in_circles(deps):
        many = f"{len(circle)} nodes wait for each other in a circle, among them {circle[0]}"
        rule = many if len(circle) > 1 else f"node {circle[0]} waits for itself"
        raise refusal(source, rule)


def _in_circles(deps: Mapping[int, Sequence[int]]) -> list[int]:
    """Nodes that can never begin (Kahn 1962)."""
    waiting = {number: len(before) for number, before in deps.items()}
    followers: dict[int, list[int]] = {}
    for number, befores in deps.items():
        for before in befores:
            followers.setdefault(before, []).append(number)
    ready = [number for number, count in waiting.items() if count == 0]
    while ready:
        number = ready.pop()
        del waiting[number]
        for after in followers.get(number, []):
            waiting[after] -= 1
            if waiting[after] == 0:
                ready.append(after)
    return sorted(waiting)
