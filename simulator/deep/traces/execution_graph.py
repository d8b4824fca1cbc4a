"""Which tensors did each operator read and make? An execution trace of PyTorch's ExecutionTraceObserver.

Nodes are operators nested in operators. The outermost ones are returned, each with the tensors of the nearest nodes inside
it that make any: the backward node of a layer lists none itself, but the matrix products inside it do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simulator.deep.traces.reused_ids import Call, GraphTensor, told_apart
from simulator.deep.traces.trace_text import MOST_PROBLEMS, broken, problems_of, read_json, shown
from simulator.errors import InputError, Problem

MOST_DEPTH = 200
"""Deepest nesting of operators; a file with more has a circle."""
MOST_LISTS = 3
"""Deepest nesting of lists of tensors."""
_USER_SCOPE = 7
_END_OF_NUMBERS = 2**64
_TENSOR_LENGTHS = (6, 7, 8, 9)
"""Tensor, storage, offset, elements, bytes of each, device; newer schemas add a stride and more."""


class _Node(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    id: int
    name: str = Field(max_length=10_000)
    parent: int = Field(validation_alias="parent", default=0)
    rf_id: int = 0
    tid: int = 0
    scope: int = 0
    op_schema: str = ""
    inputs: list[object] = Field(default_factory=list)
    outputs: list[object] = Field(default_factory=list)
    input_shapes: list[object] = Field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class GraphOperator:
    """One outermost operator."""

    name: str
    record_id: int
    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]


def read_execution_graph(path: Path) -> list[GraphOperator]:
    """Returns the outermost operators of an execution trace, in the order in which they began.

    Raises:
        InputError: the file is no execution trace, or a node is malformed; names node, field and rule.
    """
    nodes = _nodes(path)
    known = {node.id: node for node in nodes}
    children: dict[int, list[_Node]] = {}
    for node in nodes:
        children.setdefault(node.parent, []).append(node)
    for siblings in children.values():
        siblings.sort(key=lambda node: node.rf_id)
    outermost = sorted(
        (node for node in nodes if _is_outermost(path, node, known)), key=lambda node: node.rf_id
    )
    if not outermost:
        raise broken(path, "nodes", "", "has no operators")
    calls = told_apart([_call(node, children, 0) for node in outermost])
    return [_operator(node, call) for node, call in zip(outermost, calls, strict=True)]


def _nodes(path: Path) -> list[_Node]:
    document = read_json(path)
    listed = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise broken(path, "nodes", "", "must be a list of nodes: is this an execution trace of PyTorch?")
    nodes: dict[int, _Node] = {}
    problems: list[Problem] = []
    for number, form in enumerate(listed):
        try:
            node = _Node.model_validate(_older_form(form))
        except ValidationError as error:
            problems += problems_of(error, f"nodes.{number}")
        else:
            if (
                nodes.setdefault(node.id, node) is not node
            ):  # everything inside would be inside each of the two
                problems.append(
                    Problem(path=f"nodes.{number}.id", value=shown(node.id), rule="stands there twice")
                )
        if len(problems) >= MOST_PROBLEMS:
            break
    if problems:
        raise InputError(problems[:MOST_PROBLEMS], str(path))
    return list(nodes.values())


def _older_form(node: object) -> object:
    """Converts a node to the older form; from schema 1.1.0 on, values are in `inputs.values` and the rest in `attrs`."""
    if not isinstance(node, dict):
        return node
    plain = {key: value for key, value in node.items() if key not in ("ctrl_deps", "attrs")}
    if "ctrl_deps" in node:
        plain["parent"] = node["ctrl_deps"]
    for attribute in node["attrs"] if isinstance(node.get("attrs"), list) else []:
        if isinstance(attribute, dict) and attribute.get("name") in ("rf_id", "tid", "scope", "op_schema"):
            plain[attribute["name"]] = attribute.get("value")
    for side in ("inputs", "outputs"):
        if isinstance(node.get(side), dict):
            plain[side] = node[side].get("values", [])
            if side == "inputs":
                plain["input_shapes"] = node[side].get("shapes", [])
    return plain


def _is_outermost(path: Path, node: _Node, known: dict[int, _Node]) -> bool:
    """Whether a node is an operator that is not inside another one."""
    if node.scope == _USER_SCOPE:
        return False
    around, depth = known.get(node.parent), 0
    while around is not None and around.scope == _USER_SCOPE:
        depth += 1
        if around.parent == around.id:
            return True
        if depth > MOST_DEPTH:
            raise broken(path, f"node {node.id}.parent", node.parent, "leads in a circle")
        around = known.get(around.parent)
    return around is None


def _call(node: _Node, children: dict[int, list[_Node]], depth: int) -> Call:
    inside = children.get(node.id, []) if depth < MOST_DEPTH else []
    return Call(
        inputs=tuple(_read(node)),
        outputs=tuple(_in(node.outputs)),
        inside=tuple(_call(child, children, depth + 1) for child in inside if child.id != node.id),
    )


def _operator(node: _Node, call: Call) -> GraphOperator:
    """A node with all tensors that it makes, and those that it reads before it has made them."""
    inputs: dict[int, GraphTensor] = {}
    outputs: dict[int, GraphTensor] = {}
    for part in _telling(call):
        inputs.update((tensor.id, tensor) for tensor in part.inputs if tensor.id not in outputs)
        outputs.update((tensor.id, tensor) for tensor in part.outputs)
    return GraphOperator(
        name=node.name,
        record_id=node.rf_id,
        inputs=tuple(inputs.values()),
        outputs=tuple(outputs.values()),
    )


def _telling(call: Call) -> Iterator[Call]:
    """A call or, if it does not say what it makes, the calls inside it."""
    yield call
    if not call.outputs:
        for one in call.inside:
            yield from _telling(one)


def _read(node: _Node) -> list[GraphTensor]:
    """Inputs with their shapes and their names in the operator's schema."""
    arguments = node.op_schema.partition("(")[2].split(", ")
    found = []
    for number, value in enumerate(node.inputs):
        shape = node.input_shapes[number] if number < len(node.input_shapes) else []
        argument = arguments[number].split(" ")[-1].partition("=")[0] if number < len(arguments) else ""
        sizes = shape if isinstance(shape, list) and all(isinstance(size, int) for size in shape) else []
        found += list(_in([value], tuple(sizes), argument.rstrip(")")))
    return found


def _in(
    values: Sequence[object], shape: tuple[int, ...] = (), argument: str = "", depth: int = 0
) -> Iterator[GraphTensor]:
    """Tensors among values, including those inside lists."""
    for value in values:
        if not isinstance(value, list):
            continue
        if _is_tensor(value):
            number, storage, _, elements, element_bytes = value[:5]
            yield GraphTensor(
                id=number,
                storage=storage,
                num_elements=elements,
                element_bytes=element_bytes,
                shape=shape,
                argument=argument,
            )
        elif depth < MOST_LISTS:
            yield from _in(value, depth=depth + 1)


def _is_tensor(value: Sequence[object]) -> bool:
    """Whether a value is five 64-bit integers, the device, and possibly more."""
    if len(value) not in _TENSOR_LENGTHS or not isinstance(value[5], str):
        return False
    return all(type(part) is int and 0 <= part < _END_OF_NUMBERS for part in value[:5])
