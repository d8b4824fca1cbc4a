"""Which layers of a pipeline chunk recompute their activations, if not all of them do?

With full recomputation of n layers, the method `block` recomputes the first n of every chunk, and the others keep everything;
`uniform` makes groups of n layers that keep the input of the first (Megatron Core, `recompute_method`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.domain.plan import PlanTable, Recompute
from simulator.domain.workload import Workload
from simulator.layout.chunks import Chunks
from simulator.table import Floats

LayerBytes = Sequence[tuple[Floats, Floats]]
"""For a dense layer and one with experts: what it keeps of a micro-batch, and what more it needs at work, `(n,)` each."""


@dataclass(frozen=True, kw_only=True)
class KeptLayers:
    """Layers that keep all activations although their plan recomputes others, `(n, C)`."""

    dense: Floats
    """With an ordinary feed-forward block."""
    expert: Floats
    """With routed experts."""

    @classmethod
    def of(cls, workload: Workload, plans: PlanTable, chunks: Chunks) -> KeptLayers | None:
        """Returns these layers of every chunk; `None` if no plan has any."""
        num_layers = plans.recompute_num_layers
        if workload.recompute_method != "block" or not num_layers.any():
            return None
        is_partial = (num_layers > 0) & (plans.recompute == Recompute.FULL.code)
        again = np.where(is_partial, num_layers, np.inf)[:, None]
        end_layer = np.cumsum(chunks.num_layers, axis=1)
        kept_from = np.minimum(end_layer - chunks.num_layers + again, end_layer)
        among = workload.model.num_expert_layers_among
        expert = (among(end_layer) - among(kept_from)).astype(np.float64)
        return cls(dense=end_layer - kept_from - expert, expert=expert)

    def kept_and_at_work(
        self, chunks: Chunks, again: LayerBytes, whole: LayerBytes, *, released_fraction: float
    ) -> tuple[Floats, Floats]:
        """Returns what every chunk keeps of a micro-batch, and the most that one of its layers needs in addition, `(n, C)`.

        These layers come after the recomputed ones, and have finished their backward pass before them.

        Args:
            chunks: the chunks, which include these layers.
            again: what a recomputed layer keeps, and needs at work.
            whole: the same for these layers.
            released_fraction: share of what they keep that was on the accelerator.
        """
        counts, own_counts = (chunks.num_dense_layers, chunks.num_expert_layers), (self.dense, self.expert)
        kept, released, work, again_work = (np.zeros(chunks.stages.shape) for _ in range(4))
        for count, own, again_bytes, whole_bytes in zip(counts, own_counts, again, whole, strict=True):
            released += own * whole_bytes[0][:, None]
            kept += (count - own) * again_bytes[0][:, None]
            work = np.maximum(work, (own > 0) * whole_bytes[1][:, None])
            again_work = np.maximum(again_work, (count > own) * again_bytes[1][:, None])
        return kept + released, np.maximum(work, again_work - released_fraction * released)


def layers_of_a_group(workload: Workload, plans: PlanTable) -> Floats:
    """Returns how many layers full recomputation recomputes together, `(n,)`."""
    is_grouped = (plans.recompute_num_layers > 0) & (workload.recompute_method == "uniform")
    return np.where(is_grouped, plans.recompute_num_layers, 1.0)


def layers_of_streams(workload: Workload, plans: PlanTable) -> Floats:
    """Returns of how many layers hyper-connections are computed again together, `(n,)`: as given, at most all of a chunk."""
    in_chunk = np.ceil(workload.model.num_layers / (plans.pipeline_parallel * plans.virtual_pipeline))
    return np.minimum(workload.mhc_recompute_layers or np.inf, in_chunk)


def recomputed_fraction(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the share of the layers that full recomputation recomputes, `(n,)`; 0 under any other kind."""
    num_layers = workload.model.num_layers
    is_partial = (plans.recompute_num_layers > 0) & (workload.recompute_method == "block")
    in_chunks = plans.recompute_num_layers * plans.pipeline_parallel * plans.virtual_pipeline
    again = np.where(is_partial, np.minimum(in_chunks, num_layers), num_layers)
    return np.asarray((plans.recompute == Recompute.FULL.code) * (again / num_layers))


def without_recompute(plans: PlanTable) -> PlanTable:
    """Returns the same plans without recomputation."""
    return replace(plans, recompute=np.full_like(plans.recompute, Recompute.NONE.code))
