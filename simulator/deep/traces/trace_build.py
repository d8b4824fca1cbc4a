"""How do the records of a trace become columns, and are they consistent?

Checks that need several records are made here: each tensor is listed once, no operator reads what is made only later, and
there is something to run. Readers say where each record is in its file, so that error messages can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np
from pydantic import Field

from simulator.deep.traces.trace import NO_OPERATOR, Category, Lists, OperatorTrace, Phase, Tensors
from simulator.deep.traces.trace_links import gradient_operators, layers, mates, owners
from simulator.deep.traces.trace_text import MOST_PROBLEMS
from simulator.errors import InputError, Problem
from simulator.record import Record
from simulator.table import Floats, Integers

MOST_SECONDS = 1e6
"""Longest plausible operator; a trace in another unit is refused."""
MOST_BYTES = 1e15
MOST_FLOP = 1e21


class TensorRecord(Record):
    """One tensor of a trace."""

    id: str = Field(min_length=1, max_length=200)
    """Name, unique in a trace."""
    num_bytes: float = Field(ge=0.0, le=MOST_BYTES)
    category: Category = Category.ACTIVATION
    """What it holds."""
    storage: str | None = None
    """Tensors with the same storage are views of the same bytes; default: a storage of its own."""


class OperatorRecord(Record):
    """One operator of a trace."""

    name: str = Field(min_length=1, max_length=500)
    """Its name, such as `aten::conv2d`."""
    phase: Phase
    duration_s: float = Field(ge=0.0, le=MOST_SECONDS)
    num_flop: float = Field(default=0.0, ge=0.0, le=MOST_FLOP)
    """Floating-point operations; 0: unknown. Default for a backward operator: twice those of its forward operator."""
    can_split: bool = False
    """Whether tensor parallelism divides its work."""
    inputs: tuple[str, ...] = ()
    """Names of tensors."""
    outputs: tuple[str, ...] = ()


Place = Callable[[int], str]
"""Gives the place of record i of a kind: `operators[3]`, or `trace.csv, line 5`."""


def build_trace(
    name: str,
    batch_size: int,
    tensors: Sequence[TensorRecord],
    operators: Sequence[OperatorRecord],
    *,
    tensor_place: Place = "tensors[{}]".format,
    operator_place: Place = "operators[{}]".format,
) -> OperatorTrace:
    """Returns the columns of a trace.

    Args:
        name: name of the trace, for people.
        batch_size: samples of the step.
        tensors: tensors in any order.
        operators: operators in the order in which they ran.
        tensor_place: gives the place of a tensor in its file.
        operator_place: gives the place of an operator in its file.

    Raises:
        InputError: records contradict each other; all contradictions are listed, up to `MOST_PROBLEMS`.
    """
    number = {tensor.id: row for row, tensor in enumerate(tensors)}
    problems = [*_repeated(tensors, number, tensor_place), *_unknown(operators, number, operator_place)]
    if not problems:
        problems = list(_too_early(tensors, operators, number, operator_place))
    if not any(operator.phase is Phase.FORWARD for operator in operators):
        problems.append(Problem(path="operators", value="", rule="needs at least one in the forward phase"))
    if problems:
        raise InputError(_shortened(problems), source=name)
    return _columns(name, batch_size, tensors, operators, number)


def _repeated(tensors: Sequence[TensorRecord], number: dict[str, int], place: Place) -> Iterator[Problem]:
    for row, tensor in enumerate(tensors):
        if number[tensor.id] != row:
            rule = f"stands there twice, again at {place(number[tensor.id])}; give each tensor one name"
            yield Problem(path=f"{place(row)}.id", value=tensor.id, rule=rule)


def _unknown(operators: Sequence[OperatorRecord], number: dict[str, int], place: Place) -> Iterator[Problem]:
    for row, operator in enumerate(operators):
        for field, names in (("inputs", operator.inputs), ("outputs", operator.outputs)):
            for missing in (name for name in names if name not in number):
                yield Problem(
                    path=f"{place(row)}.{field}", value=missing, rule="is no tensor of the trace: add it"
                )


def _too_early(
    tensors: Sequence[TensorRecord], operators: Sequence[OperatorRecord], number: dict[str, int], place: Place
) -> Iterator[Problem]:
    """A tensor that is read before its only maker has run: the two would wait for each other.

    What outlives a step exists before it begins, and a tensor without bytes is a placeholder.
    """
    made = {
        name: row
        for row, operator in reversed(list(enumerate(operators)))
        for name in operator.outputs
        if tensors[number[name]].num_bytes > 0 and tensors[number[name]].category is Category.ACTIVATION
    }
    for row, operator in enumerate(operators):
        for name in operator.inputs:
            if made.get(name, row) > row:
                maker = f"{operators[made[name]].name} at {place(made[name])}"
                rule = f"is made only later, by {maker}: the two wait for each other in a circle"
                yield Problem(path=f"{place(row)}.inputs", value=name, rule=rule)


def _shortened(problems: list[Problem]) -> list[Problem]:
    rest = len(problems) - MOST_PROBLEMS
    if rest <= 0:
        return problems
    return [*problems[:MOST_PROBLEMS], Problem(path="", value="", rule=f"and {rest:,} more of this kind")]


def _columns(
    name: str,
    batch_size: int,
    tensors: Sequence[TensorRecord],
    operators: Sequence[OperatorRecord],
    number: dict[str, int],
) -> OperatorTrace:
    columns = Tensors(
        names=tuple(tensor.id for tensor in tensors),
        num_bytes=np.array([tensor.num_bytes for tensor in tensors], dtype=np.float64),
        category=np.array([tensor.category.code for tensor in tensors], dtype=np.int64),
        storage=_storages(tensors),
    )
    phase = np.array([operator.phase.code for operator in operators], dtype=np.int64)
    inputs = _lists([operator.inputs for operator in operators], number)
    outputs = _lists([operator.outputs for operator in operators], number)
    owner = owners(columns, phase, inputs)
    forward_of = mates(columns, phase, inputs, owner)
    return OperatorTrace(
        name=name,
        batch_size=batch_size,
        tensors=columns,
        names=tuple(operator.name for operator in operators),
        phase=phase,
        duration_s=np.array([operator.duration_s for operator in operators], dtype=np.float64),
        num_flop=_num_flop(operators, forward_of),
        can_split=np.array([operator.can_split for operator in operators], dtype=np.bool_),
        inputs=inputs,
        outputs=outputs,
        layer=layers(phase, owner, forward_of),
        forward_of=forward_of,
        gradient_ready=gradient_operators(columns, phase, inputs, owner, forward_of),
    )


def _num_flop(operators: Sequence[OperatorRecord], forward_of: Integers) -> Floats:
    """Operations; a backward operator multiplies twice: for the gradient of its input, and for that of the weight."""
    written = np.array([operator.num_flop for operator in operators], dtype=np.float64)
    of_mate = np.where(forward_of == NO_OPERATOR, 0.0, 2.0 * written[forward_of])
    return np.where(written > 0.0, written, of_mate)


def _storages(tensors: Sequence[TensorRecord]) -> Integers:
    """Numbers storages; a tensor without one has one of its own."""
    numbers: dict[tuple[bool, str], int] = {}
    keys = [(tensor.storage is None, tensor.storage or tensor.id) for tensor in tensors]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _lists(rows: Sequence[tuple[str, ...]], number: dict[str, int]) -> Lists:
    offsets = np.array([0, *accumulate(len(row) for row in rows)], dtype=np.int64)
    values = np.array([number[name] for row in rows for name in row], dtype=np.int64)
    return Lists(offsets=offsets, values=values)
