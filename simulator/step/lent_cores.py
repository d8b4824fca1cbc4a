"""How much longer is a step because the traffic of the replicas takes cores from the passes beside it?

Gradients behind the last backward of a chunk and weights ahead of its first forward (`simulator.pipeline.schedule`) move in
kernels of their own, whose blocks share no multiprocessor with others (NCCL issue 689). With s the share of the cores that they
hold, g members of a group on a node, x a pass, y its traffic in K pieces, of which all but one have the pass beside them,

    s           = CORE_SHARE min(1, 4 g/16) where the group leaves its link domain, CORE_SHARE where it does not

    lent(x, y)  = s min(x, y (K - 1)/K)
    shown(x, y) = max(0, lent(x, y) - max(0, y - x) (K - 1)/K)         where the stage waits for the traffic anyway
    step        + shown(x, y) of the first chunk, forward and backward + lent(x, y) of the other chunks, backward

since the last backwards of a micro-batch follow each other from chunk to chunk, each later by what the one before lends, and
the first chunk is the last of them. Other chunks gather their weights while their stage waits for its first activation. Under
zero-bubble schedules no stage waits for the weight gradients x of another one: v max shown(x, y), v chunks on a stage.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simulator.machine.rank import Rank, members_in_domain
from simulator.pipeline.groups import last_group_size
from simulator.pipeline.schedule import PipelineColumns
from simulator.row_sums import sum_columns
from simulator.table import Booleans, Floats, Integers
from simulator.traffic.layer_collectives import CORE_SHARE

ALL_CHANNELS, CHANNELS_OF_CARD = 16.0, 4.0
"""Channels of a collective that uses eight network cards or the links inside a node, and those for a single card (NCCL 2.x,
`src/graph/connect.cc`, from compute capability 9.0 on; 2 before, so that older parts lend a little less)."""


def replicas_core_share(rank: Rank) -> Floats:
    """Returns the share of the cores that the traffic of the replicas holds, s, `(n,)`."""
    plans = rank.plans
    size = plans.data_parallel * plans.context_parallel
    leaves_domain = members_in_domain(rank, plans.tensor_parallel, size) < size
    on_node = np.maximum(rank.offers.gpus_per_node // plans.tensor_parallel, 1)
    of_all = np.minimum(1.0, CHANNELS_OF_CARD * on_node / ALL_CHANNELS)
    return CORE_SHARE * np.where(leaves_domain, of_all, 1.0)


def lent_to_replicas_s(pipeline: PipelineColumns, is_split: Booleans, core_share: Floats) -> Floats:
    """Returns how much longer the step of each pipeline is, `(n,)`.

    Args:
        pipeline: what is played, and in how many pieces.
        is_split: whether weight gradients are computed later than the rest of a backward, `(n,)`.
        core_share: s, `(n,)`.
    """
    backward_s, gradient_s = np.asarray(pipeline["chunk_backward_s"]), np.asarray(pipeline["gradient_sync_s"])
    num_buckets = _of_chunks(pipeline["num_overlap_buckets"], gradient_s)
    beside, share = _beside(num_buckets), core_share[:, None]
    first = slice(0, 1)
    weights_s = _shown_s(
        np.asarray(pipeline["chunk_forward_s"])[:, first],
        np.asarray(pipeline["parameter_gather_s"])[:, first],
        _beside(_of_chunks(pipeline.get("num_gather_buckets", num_buckets), gradient_s))[:, first],
        share,
    )
    shown_s = _shown_s(backward_s[:, first], gradient_s[:, first], beside[:, first], share)
    lent_s = _lent_s(backward_s[:, 1:], gradient_s[:, 1:], beside[:, 1:], share)
    one_by_one_s = sum_columns(lent_s) + shown_s[:, 0] + _beside_next_chunks_s(pipeline, num_buckets, share)
    if is_split.any():
        later_s = np.asarray(pipeline["chunk_weight_gradient_s"])
        at_once_s = np.max(_shown_s(later_s, gradient_s, beside, share), axis=1)
        one_by_one_s = np.where(is_split, pipeline["num_chunks_per_stage"] * at_once_s, one_by_one_s)
    return np.asarray(weights_s[:, 0] + one_by_one_s)


def _beside_next_chunks_s(pipeline: PipelineColumns, num_buckets: Integers, share: Floats) -> Floats:
    """Returns what interleaved stages lend to the gradients of chunks that are reduced in one piece, `(n,)`.

    These travel beside the last group of passes of the chunk of the stage that follows; all stages do so at the same time.
    """
    num_stages = np.asarray(pipeline["num_stages"])[:, None]
    group = np.asarray(pipeline.get("group_size", 0))
    group = np.where(group > 0, group, num_stages[:, 0])
    num_beside = last_group_size(np.asarray(pipeline["num_micro_batches"]), group)[:, None]
    backward_s, gradient_s = np.asarray(pipeline["chunk_backward_s"]), np.asarray(pipeline["gradient_sync_s"])
    is_beside = (num_buckets == 1) & (np.arange(backward_s.shape[1]) >= num_stages)
    lent_s = is_beside * share * np.minimum(num_beside * backward_s, gradient_s)
    return np.asarray(sum_columns(lent_s) / num_stages[:, 0])


def _of_chunks(num_buckets: npt.ArrayLike, gradient_s: Floats) -> Integers:
    """Returns pieces of every chunk, `(n, C)`."""
    numbers = np.asarray(num_buckets)
    return np.broadcast_to(numbers if numbers.ndim > 1 else numbers[:, None], gradient_s.shape)


def _beside(num_buckets: Integers) -> Floats:
    """Returns the share of some traffic that has its pass beside it: all pieces but one, none without overlap."""
    return np.asarray(1.0 - 1.0 / np.maximum(1, num_buckets))


def _lent_s(pass_s: Floats, traffic_s: Floats, beside: Floats, share: Floats) -> Floats:
    return np.asarray(share * np.minimum(pass_s, beside * traffic_s))


def _shown_s(pass_s: Floats, traffic_s: Floats, beside: Floats, share: Floats) -> Floats:
    waited_s = beside * np.maximum(0.0, traffic_s - pass_s)
    return np.maximum(0.0, _lent_s(pass_s, traffic_s, beside, share) - waited_s)
