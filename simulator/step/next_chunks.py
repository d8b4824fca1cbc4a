"""Which passes of interleaved stages are beside the traffic of the replicas for another chunk of the stage, and how long is it?

Chunk c of p stages follows chunk c - p on its stage. Its weights come while the stage runs the first group of micro-batches
through chunk c - p, and its gradients are reduced in one piece while the last group goes backward through that chunk. Let N be
the passes of the group, x one of them, and w its own collectives on the links of the traffic, which takes y alone. The traffic
meets them for as long as it lasts:

    y' = y + N w min(1, y / max(y, N (x - w)))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from simulator.domain.plan import interleaved_groups, is_interleaved
from simulator.layout.micro_batches import num_micro_batches
from simulator.machine.rank import Rank
from simulator.pipeline.groups import last_group_size
from simulator.step.gradient_buckets import FIRST_BY_PARTS, Buckets
from simulator.table import Floats, Integers


@dataclass(frozen=True, kw_only=True)
class PassesBeside:
    """Numbers of passes of another chunk that are beside the traffic of each chunk, N, `(n, C)`; 0: none are."""

    gathers: Integers
    """Forward passes next to weights once per step; those that are gathered part by part come beside passes of their own."""
    reductions: Integers
    """Backward passes next to gradients."""

    @classmethod
    def of(cls, rank: Rank, buckets: Buckets) -> Self:
        """Returns the passes of designs whose traffic is cut into these pieces."""
        plans = rank.plans
        num_stages, group = plans.pipeline_parallel, interleaved_groups(plans)
        last = last_group_size(num_micro_batches(rank.workload, plans), group)
        follows = np.arange(buckets.gradients.shape[1]) >= num_stages[:, None]
        follows &= is_interleaved(plans)[:, None]
        is_whole = (plans.zero_stage < FIRST_BY_PARTS)[:, None]
        return cls(
            gathers=follows * is_whole * (buckets.parameters > 0) * group[:, None],
            reductions=follows * (buckets.gradients == 1) * last[:, None],
        )


def among_passes_s(stream_s: Floats, pass_s: Floats, own_s: Floats, num_passes: Integers) -> Floats:
    """Returns how long a stream takes next to passes that do not wait for it, y'.

    Args:
        stream_s: y, of every chunk `(n, C)`.
        pass_s: x, likewise.
        own_s: w, likewise.
        num_passes: N, likewise.
    """
    whole_s, met_s = num_passes * pass_s, num_passes * np.minimum(own_s, pass_s)
    lasts_s = np.maximum(np.maximum(stream_s, whole_s - met_s), np.finfo(np.float64).tiny)
    return np.asarray(stream_s + met_s * stream_s / lasts_s)
