"""What did one step do on one device? Operators in the order in which they ran, and the tensors they passed on.

An operator trace is one training step of one accelerator: how long each operator took, what it read and what it made.
File readers hand records to `simulator.deep.traces.trace_build`, which checks them and returns the columns of this module.
Operators of one device run one after another; `simulator.deep.traced_steps.extrapolate` spreads them over many devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.record import Choice
from simulator.table import Booleans, Floats, Integers

NO_OPERATOR = -1
NO_LAYER = -1


class Phase(Choice):
    """When an operator runs."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class Category(Choice):
    """What a tensor holds."""

    ACTIVATION = "activation"
    """Inputs, activations and their gradients: their bytes are proportional to the batch."""
    PARAMETER = "parameter"
    GRADIENT = "gradient"
    """Gradient of a parameter."""
    STATE = "state"
    """What outlives a step, other than parameters: moments of the optimizer, running means."""


@dataclass(frozen=True, kw_only=True)
class Lists:
    """One list of numbers for each of n rows."""

    offsets: Integers
    """`(n + 1,)` where the list of a row begins in `values`."""
    values: Integers

    def of(self, row: int) -> Integers:
        """Returns the list of one row."""
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @cached_property
    def rows(self) -> Integers:
        """`(k,)` the row of each value."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def sums(self, per_value: Floats) -> Floats:
        """Returns the sum over each list, `(n,)`, of a column that is looked up by value."""
        summed = np.bincount(self.rows, weights=per_value[self.values], minlength=len(self.offsets) - 1)
        return np.asarray(summed, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Tensors:
    """m tensors."""

    names: tuple[str, ...]
    num_bytes: Floats
    """`(m,)`."""
    category: Integers
    """`(m,)` code of `Category`."""
    storage: Integers
    """`(m,)` tensors with the same number are views of the same bytes."""

    def is_a(self, category: Category) -> Booleans:
        """Returns which tensors are of a category, `(m,)`."""
        return np.asarray(self.category == category.code)


@dataclass(frozen=True, kw_only=True)
class OperatorTrace:
    """n operators of one step on one device, in the order in which they ran."""

    name: str
    batch_size: int
    """Samples of the step."""
    tensors: Tensors
    names: tuple[str, ...]
    """`(n,)` such as `aten::conv2d`."""
    phase: Integers
    """`(n,)` code of `Phase`."""
    duration_s: Floats
    """`(n,)`."""
    num_flop: Floats
    """`(n,)` floating-point operations, 0 where unknown."""
    can_split: Booleans
    """`(n,)` whether tensor parallelism divides the operator's work: matrix products, convolutions, embeddings."""
    inputs: Lists
    """Numbers of the tensors that each operator reads."""
    outputs: Lists
    layer: Integers
    """`(n,)` layer from 0, `NO_LAYER` for the optimizer; a layer begins with an operator that has parameters."""
    forward_of: Integers
    """`(n,)` for a backward operator that reads parameters, the forward operator that read them; else `NO_OPERATOR`."""
    gradient_ready: Integers
    """`(m,)` for a parameter, the operator after which its gradient is complete; else `NO_OPERATOR`."""
    source: str | None = None
    """Who measured it, on what; None: unknown."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def num_layers(self) -> int:
        """Number of layers from the first forward operator to the last; at least one."""
        return int(self.layer.max(initial=0)) + 1

    @property
    def single_device_s(self) -> float:
        """Total time of all operators, one after another."""
        return float(self.duration_s.sum())

    def is_in(self, phase: Phase) -> Booleans:
        """Returns which operators run in a phase, `(n,)`."""
        return np.asarray(self.phase == phase.code)

    @cached_property
    def parameters(self) -> Integers:
        """Numbers of the parameters, one view of each, in the order of their gradients, then of their numbers."""
        is_parameter = self.gradient_ready != NO_OPERATOR
        numbers = np.flatnonzero(is_parameter)
        return numbers[np.lexsort((numbers, self.gradient_ready[numbers]))]

    @property
    def parameter_bytes(self) -> float:
        """Bytes of all parameters, and therefore of their gradients."""
        return float(self.tensors.num_bytes[self.parameters].sum())
