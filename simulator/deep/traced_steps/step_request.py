"""Which step is simulated? A trace, how it is divided, and in what ways the step differs from the trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.deep.traced_steps.division import with_batch
from simulator.deep.traced_steps.operator_model import OperatorModel
from simulator.deep.traces.parallelism import Parallelism
from simulator.deep.traces.trace import OperatorTrace
from simulator.table import Floats


@dataclass(frozen=True, kw_only=True)
class StepRequest:
    """The step of a trace on many accelerators."""

    trace: OperatorTrace
    """One step on one accelerator."""
    parallelism: Parallelism
    """How it is divided."""
    batch_size: int | None = None
    """Samples of each replica; None: those of the trace."""
    speed: Floats | None = None
    """`(num_gpus,)` speed of each accelerator relative to that of the trace; None: all are as fast."""
    model: OperatorModel | None = None
    """Lines of operators, for another batch and micro-batches; None: time is proportional to the batch."""

    def check(self) -> None:
        """Raises `InputError` if the trace cannot be divided that way."""
        self.parallelism.check(self.trace, self.batch_size, self.speed)

    @property
    def num_samples(self) -> int:
        """Samples of each replica."""
        return self.batch_size or self.trace.batch_size

    @property
    def speeds(self) -> Floats:
        """Speed of every accelerator relative to that of the trace, `(num_gpus,)`."""
        return np.ones(self.parallelism.num_gpus) if self.speed is None else self.speed

    @property
    def samples_of_pass(self) -> float:
        """Samples of one micro-batch."""
        return self.num_samples / self.parallelism.num_microbatches

    def replica(self) -> OperatorTrace:
        """Returns the step of one replica on one accelerator."""
        return with_batch(self.trace, self.num_samples, self.model)

    def micro_batch(self) -> OperatorTrace:
        """Returns one micro-batch's part of that step."""
        return with_batch(self.trace, self.samples_of_pass, self.model)
