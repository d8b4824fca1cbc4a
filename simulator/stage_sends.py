"""How long does an activation travel from one pipeline stage to the next?"""

from __future__ import annotations

import numpy as np

from simulator.kept_inputs import ACTIVATION_BYTES
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


def _num_bytes(rank: Rank) -> Floats:
    return ACTIVATION_BYTES * rank.tokens * rank.workload.model.hidden_size / rank.plans.tensor_parallel


def _far_fraction(rank: Rank) -> Floats:
    """Share of the sends between stages that leave a link domain."""
    num_sends = rank.plans.pipeline_parallel - 1
    num_far = np.minimum(num_sends, np.ceil(rank.plans.num_gpus / rank.offers.link_domain_size) - 1)
    return np.asarray(num_far / np.maximum(num_sends, 1))
