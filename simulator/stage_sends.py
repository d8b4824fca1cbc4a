"""How long does an activation travel from one pipeline stage to the next, and until all tensor-parallel ranks have it?"""

from __future__ import annotations

import numpy as np

from simulator.activations import ACTIVATION_BYTES
from simulator.layer_collectives import Directions
from simulator.network import point_to_point_s
from simulator.plan import Schedule
from simulator.rank import Rank
from simulator.table import Booleans, Floats


def sends_block(rank: Rank) -> Booleans:
    """Returns whether a stage stands still while it sends: with one chunk on a stage, but for zero-bubble schedules."""
    is_plain = np.isin(rank.plans.pipeline_schedule, (Schedule.ONE_F_ONE_B.code, Schedule.GPIPE.code))
    return np.asarray((rank.plans.virtual_pipeline == 1) & is_plain)


def send_s(rank: Rank) -> Floats:
    """Returns the time of one send, the mean over all stages; tensor-parallel ranks send a share each.

    Stages are t c d ranks apart. A pipeline that spans k link domains leaves one k - 1 times on its way.
    """
    near_s, far_s = (
        point_to_point_s(num_bytes=_num_bytes(rank), is_same_domain=is_near, links=rank.links)
        for is_near in (True, False)
    )
    mean_s = near_s + (far_s - near_s) * _far_fraction(rank)
    return np.where(rank.plans.pipeline_parallel > 1, mean_s, 0.0)


def send_card_s(rank: Rank) -> Floats:
    """Returns how long a send keeps the network card of a rank busy, the mean over all stages, `(n,)`."""
    rate = rank.links.inter_bytes_per_s_per_gpu * rank.links.inter_point_to_point_fraction
    return np.asarray(_far_fraction(rank) * _num_bytes(rank) / rate)


def sends_in_turn(rank: Rank) -> Booleans:
    """Returns whether an activation and a gradient between two stages that stand still for them move one after the other."""
    return np.asarray(sends_block(rank) & rank.workload.sends_in_turn)


def stage_gathers_s(rank: Rank, num_chunks: int) -> Directions | None:
    """Returns how long tensor-parallel ranks gather what their stage was sent in shares, `(n, C)` a way; `None`: never.

    DeepSpeed's pipeline engine (`PartitionedTensor` in `runtime/pipe/engine.py`) gathers the input of a stage before its
    forward pass, and before the backward pass both the output that was sent and its gradient: three all-gathers of 2 T h bytes
    for each stage boundary and micro-batch, and nothing hides them.
    """
    workload, plans = rank.workload, rank.plans
    if not workload.gathers_stage_inputs or workload.has_sequence_parallel:
        return None
    gather_s = np.where(sends_block(rank), rank.hidden_gather_s, 0.0)[:, None]
    chunk, last = np.arange(num_chunks), plans.pipeline_parallel[:, None] - 1
    return gather_s * ((chunk > 0) & (chunk <= last)), 2.0 * gather_s * (chunk < last)


def _num_bytes(rank: Rank) -> Floats:
    return ACTIVATION_BYTES * rank.tokens * rank.workload.model.hidden_size / rank.plans.tensor_parallel


def _far_fraction(rank: Rank) -> Floats:
    """Share of the sends between stages that leave a link domain."""
    num_sends = rank.plans.pipeline_parallel - 1
    num_far = np.minimum(num_sends, np.ceil(rank.plans.num_gpus / rank.offers.link_domain_size) - 1)
    return np.asarray(num_far / np.maximum(num_sends, 1))
