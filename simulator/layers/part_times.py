"""How long does one micro-batch take in one part of the model? Compute, exposed traffic, and the traffic that pairs hide."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from simulator.table import Floats, Table


@dataclass(frozen=True, kw_only=True)
class PartTimes(Table):
    """Seconds of one micro-batch in one part of the model, `(n,)`; communication is the exposed part."""

    forward_compute_s: Floats
    backward_compute_s: Floats
    forward_tensor_comm_s: Floats
    backward_tensor_comm_s: Floats
    forward_expert_comm_s: Floats
    backward_expert_comm_s: Floats
    forward_hidden_s: Floats
    """Time that the forward pass saves as one of a pair of `dual_pipe_v`, all of it expert traffic."""
    backward_hidden_s: Floats

    def scaled(self, share: Floats) -> Self:
        """Returns the mean over micro-batches of which only a share, `(n,)`, passes the part."""
        return replace(self, **{name: share * getattr(self, name) for name in self.names()})

    @property
    def forward_alone(self) -> Self:
        """The same without a backward pass."""
        none_s = np.zeros_like(self.forward_compute_s)
        return replace(self, **{name: none_s for name in self.names() if name.startswith("backward")})

    @property
    def hidden_s(self) -> Floats:
        """Time that both passes save as a pair."""
        return self.forward_hidden_s + self.backward_hidden_s

    @property
    def least_s(self) -> Floats:
        """Forward and backward, as a pair where possible."""
        return self.forward_s + self.backward_s - self.hidden_s

    def collectives_s(self, way: str) -> Floats:
        """Exposed collectives of one direction, `forward` or `backward`."""
        tensor_s, expert_s = (getattr(self, f"{way}_{name}_comm_s") for name in ("tensor", "expert"))
        return np.asarray(tensor_s + expert_s)

    @property
    def forward_s(self) -> Floats:
        """Compute and exposed communication, forward."""
        return self.forward_compute_s + self.forward_tensor_comm_s + self.forward_expert_comm_s

    @property
    def backward_s(self) -> Floats:
        """Compute, recomputation and exposed communication, backward."""
        return self.backward_compute_s + self.backward_tensor_comm_s + self.backward_expert_comm_s
