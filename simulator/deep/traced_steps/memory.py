"""How much memory does a traced step need, operator by operator? From when tensors are made and last used.

Views of the same bytes are one storage. What outlives the step is present all the time: parameters, and state that is read
before it is made. The inputs of the step are present from its beginning. Everything else is present from the operator that
makes it (or reads it first, where a backward operator reads what no operator made) to the last one that touches it; gradients
of parameters are kept at least until the optimizer begins.

This counts tensors only: workspaces of kernels, fragmentation of the allocator and buffers of libraries come on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.deep.traces.trace import Category, OperatorTrace, Phase
from simulator.table import Booleans, Floats, Integers


@dataclass(frozen=True, kw_only=True)
class Lifetimes:
    """The s storages that the n operators of a step touch, in the order of their numbers."""

    num_operators: int
    names: tuple[str, ...]
    """`(s,)` tensor after which each storage is named: its largest view."""
    num_bytes: Floats
    """`(s,)`."""
    first: Integers
    """`(s,)` first operator during which a storage is present."""
    last: Integers
    """`(s,)` last operator that needs it."""
    can_move: Booleans
    """`(s,)` whether it is an activation, which another memory may hold while no operator needs it."""
    touches: tuple[Integers, ...]
    """`(s,)` the operators that touch each storage, in order."""

    @cached_property
    def live_bytes(self) -> Floats:
        """`(n,)` bytes that are present while each operator runs."""
        return self._live_bytes(self.num_bytes)

    @property
    def staying_bytes(self) -> Floats:
        """`(n,)` bytes of what never leaves and of what each operator touches; with less memory it cannot run."""
        staying = self._live_bytes(np.where(self.can_move, 0.0, self.num_bytes))
        for storage in np.flatnonzero(self.can_move).tolist():
            staying[self.touches[storage]] += self.num_bytes[storage]
        return staying

    def _live_bytes(self, num_bytes: Floats) -> Floats:
        change = np.zeros(self.num_operators + 1)
        np.add.at(change, self.first, num_bytes)
        np.subtract.at(change, self.last + 1, num_bytes)
        return np.cumsum(change)[:-1]

    @property
    def peak_bytes(self) -> float:
        """Most bytes that are present at one time."""
        return float(self.live_bytes.max(initial=0.0))


def lifetimes(trace: OperatorTrace) -> Lifetimes:
    """Returns when the storages of a step are needed."""
    tensors, size = trace.tensors, len(trace)
    tensor = np.concatenate([trace.inputs.values, trace.outputs.values])
    operator = np.concatenate([trace.inputs.rows, trace.outputs.rows])
    is_made = np.repeat([False, True], [len(trace.inputs.values), len(trace.outputs.values)])
    order = np.lexsort((is_made, operator, tensors.storage[tensor]))
    tensor, operator, is_made = tensor[order], operator[order], is_made[order]
    _, begin = np.unique(tensors.storage[tensor], return_index=True)
    end = np.append(begin[1:], len(tensor))
    category = tensors.category[tensor]
    is_parameter = _any(category == Category.PARAMETER.code, begin)
    is_kept = is_parameter | (_any(category == Category.STATE.code, begin) & ~is_made[begin])
    is_fed = ~is_made[begin] & (trace.phase[operator[begin]] == Phase.FORWARD.code)
    is_gradient = _any(category == Category.GRADIENT.code, begin)
    optimizer = int(np.append(np.flatnonzero(trace.is_in(Phase.OPTIMIZER)), size - 1)[0])
    needed_until = np.where(is_gradient, np.maximum(optimizer, operator[end - 1]), operator[end - 1])
    views = [tensor[start:stop] for start, stop in zip(begin.tolist(), end.tolist(), strict=True)]
    largest = [int(view[np.argmax(tensors.num_bytes[view])]) for view in views]
    return Lifetimes(
        num_operators=size,
        names=tuple(tensors.names[view] for view in largest),
        num_bytes=tensors.num_bytes[np.array(largest, dtype=np.int64)],
        first=np.where(is_kept | is_fed, 0, operator[begin]),
        last=np.where(is_kept, size - 1, needed_until),
        can_move=~is_kept & ~_any(category != Category.ACTIVATION.code, begin),
        touches=tuple(np.unique(operator[start:stop]) for start, stop in zip(begin, end, strict=True)),
    )


def _any(column: Booleans, begin: Integers) -> Booleans:
    """Whether a column is true anywhere in each run, `(s,)`."""
    return np.logical_or.reduceat(column, begin) if len(begin) else np.empty(0, np.bool_)
