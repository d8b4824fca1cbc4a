"""What does a run recompute? The record of what its row says, and what that means for each chunk of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from simulator.domain.choices import RecomputeMethod, RecomputeModule, SelectiveRecompute
from simulator.domain.recompute_modules import RESTORED


@dataclass(frozen=True, kw_only=True)
class Recomputed:
    """What is recomputed, in the terms of `Plan.recompute` and its related fields."""

    kind: Literal["none", "selective", "full"]
    num_layers: int | None = None
    """`Plan.recompute_num_layers`."""
    method: RecomputeMethod | None = None
    """`Workload.recompute_method`, where layers are counted."""
    is_implied: bool = False
    """Whether `full` with a number means groups of layers; a number equal to all layers of a chunk only counts them."""
    of_layers: int | None = None
    """Layers of the whole network out of which they are counted, 100 for per cent; if omitted, those of a chunk."""
    modules: tuple[RecomputeModule, ...] = ()
    """`Workload.recompute_modules`, where modules are named."""
    is_exact: bool = True
    """Whether this is all that was written; modules without a name, and some layers, may be any."""
    unread: tuple[str, ...] = ()
    """What is named in addition to known modules but is none of them."""
    is_some: bool = False
    """Whether the row says that something is recomputed, but not what."""
    is_understood: bool = True
    """Whether the row says anything about recomputation that is understood."""

    def keeps_inputs(self, habit: SelectiveRecompute) -> bool:
        """Returns whether inputs of all products wait for weight gradients, selective recomputation being as is habit."""
        if self.kind != "selective":
            return self.kind == "none"
        return RESTORED.issuperset(self.modules) if self.modules else habit == "attention"


NOTHING = Recomputed(kind="none")
EVERY_LAYER = Recomputed(kind="full")
NOT_GIVEN = Recomputed(kind="none", is_exact=False)
"""Assumed if nothing is said."""
ANYTHING = replace(NOT_GIVEN, is_some=True)
"""Assumed if something is recomputed, but nothing says what."""


def of_a_chunk(again: Recomputed, *, num_layers: int, num_chunks: int) -> Recomputed:
    """Returns the same with the layers of one chunk, rounded up; all of the network are full recomputation.

    Args:
        again: what was written.
        num_layers: layers of the network.
        num_chunks: those of the whole pipeline, which all compute the same number again.
    """
    if again.num_layers is None:
        return again
    if again.of_layers is not None:
        total = max(1, round(num_layers * again.num_layers / again.of_layers))
        each = -(-total // num_chunks)
        return replace(again, num_layers=each, is_exact=again.is_exact and each * num_chunks == total)
    most = layers_of_a_chunk(num_layers, num_chunks)
    if again.is_implied and again.num_layers >= most:
        return EVERY_LAYER
    if again.method == "uniform":
        return replace(again, num_layers=min(again.num_layers, most))
    return EVERY_LAYER if again.num_layers > most else again


def layers_of_a_chunk(num_layers: int, num_chunks: int) -> int:
    """Returns the layers of the largest chunk of a pipeline."""
    return -(-num_layers // num_chunks)
