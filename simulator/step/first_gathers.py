"""How much of the first gather of a backward pass shows in a pipeline under ZeRO-3?

It is queued when the last part of the previous pass of the stage begins. With g its time, a what a forward pass leaves of it,
and b the share of the m backward passes of a chunk that follow a backward pass, whose reductions hide none of it:

    after another pass      b g + (1 - b) a
    1F1B                    b = 0
    GPipe                   b = (m - 1) / m
    interleaved             b = min(1, n / m)       in groups of n micro-batches; the last chunk of each stage: b = 0

The last stage never waits. On the way up to the first stage, the last micro-batch finds p - 1 stages that wait, and have the
weights by then. So the first p - 1 chunks show m / (m + p - 1) of theirs, and the next one, on the last stage, that much less
of its own: the passes that follow each other then show together what the last stage does.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.plan import PlanTable, Schedule, interleaved_groups
from simulator.layout.micro_batches import num_micro_batches
from simulator.machine.rank import Rank
from simulator.table import Booleans, Floats


def keeps_last_weights(plans: PlanTable) -> Booleans:
    """Returns whether the last weights of a forward pass are still whole in the backward pass that follows, `(n,)`.

    FSDP keeps the weights of the root (`_post_forward_reshard`), torchtitan those of the output layer, and DeepSpeed what is
    needed again soon (`stage3_max_reuse_distance`).
    """
    return np.asarray(plans.pipeline_parallel == 1)


def follows_forward(plans: PlanTable) -> Booleans:
    """Returns whether backward passes of a stage follow its forward passes, whose ends hide the first gathers, `(n,)`."""
    return np.asarray((plans.pipeline_parallel > 1) & (plans.pipeline_schedule != Schedule.GPIPE.code))


def shares_behind(rank: Rank, num_chunks: int) -> Floats:
    """Returns the share of the backward passes of every chunk that follow a backward pass of their stage, `(n, C)`."""
    plans = rank.plans
    p, v, m = plans.pipeline_parallel, plans.virtual_pipeline, num_micro_batches(rank.workload, plans)
    ends_with_forward = np.arange(num_chunks) >= (p * (v - 1))[:, None]
    interleaved = np.where(ends_with_forward, 0.0, np.minimum(1.0, interleaved_groups(plans) / m)[:, None])
    return np.asarray(np.where(follows_forward(plans)[:, None], interleaved, (1.0 - 1.0 / m)[:, None]))


def shown_first_s(rank: Rank, first_s: Floats) -> Floats:
    """Returns by how much first gathers hold up backward passes on average, `(n, C)`, given it for those that do not wait."""
    num_passes, num_before = num_micro_batches(rank.workload, rank.plans), rank.plans.pipeline_parallel - 1
    share, chunk = num_passes / (num_passes + num_before), np.arange(first_s.shape[1])
    before_s = (chunk < num_before[:, None]) * share[:, None] * first_s
    on_way_s = np.sum(before_s, axis=1) / num_passes
    last_s = np.maximum(0.0, first_s - (chunk == num_before[:, None]) * on_way_s[:, None])
    return np.where(chunk < num_before[:, None], before_s, last_s)
