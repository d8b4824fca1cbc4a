"""How long does an activation travel from one pipeline stage to the next?"""

from __future__ import annotations

import numpy as np

from simulator.domain.plan import splits_backward
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.machine.network import point_to_point_s
from simulator.machine.rank import Rank, once_per_rank
from simulator.table import Booleans, Floats


@once_per_rank
def sends_block(rank: Rank) -> Booleans:
    """Returns whether sends block a stage: with one chunk on a stage, except in zero-bubble schedules."""
    return np.asarray((rank.plans.virtual_pipeline == 1) & ~splits_backward(rank.plans))


def send_s(rank: Rank) -> Floats:
    """Returns the time of one send of the residual, the mean over all stages; each tensor-parallel rank sends a share.

    Stages are t c d ranks apart. Where any of its sends leave a link domain, a stage waits for those.
    """
    near_s, far_s = (
        point_to_point_s(num_bytes=sent_bytes(rank), is_same_domain=is_near, links=rank.links)
        for is_near in (True, False)
    )
    mean_s = near_s + (far_s - near_s) * _far_fraction(rank)
    return np.where(rank.plans.pipeline_parallel > 1, mean_s, 0.0)


@once_per_rank
def send_card_s(rank: Rank) -> Floats:
    """Returns how long a send keeps the network card of a rank busy, the mean over all stages, `(n,)`."""
    rate = rank.links.far_send_bytes_per_s
    return np.asarray(_far_fraction(rank) * sent_bytes(rank) / rate)


def sent_bytes(rank: Rank) -> Floats:
    """Returns the bytes of one send, of the residual in all of its streams, `(n,)`."""
    return ACTIVATION_BYTES * rank.tokens * rank.workload.model.stream_width / rank.plans.tensor_parallel


def _far_fraction(rank: Rank) -> Floats:
    """Share of the boundaries between p stages of s ranks that cross link domains of g accelerators.

    Where a domain ends inside a stage, both boundaries of that stage cross, or one if it is the last stage. Where a domain ends
    between two stages, one boundary crosses. In racks of several nodes, a run is given nodes so that no domain ends inside a
    stage that fits.
    """
    plans, domain = rank.plans, rank.offers.link_domain_size
    stage, num_sends = plans.num_gpus // plans.pipeline_parallel, plans.pipeline_parallel - 1
    is_rack = domain > rank.offers.gpus_per_node
    domain = np.where(is_rack, np.maximum(domain // stage, 1) * stage, domain)
    num_ends = (plans.num_gpus - 1) // domain
    between = (plans.num_gpus - 1) // np.lcm(stage, domain)
    in_last = num_ends - num_sends * stage // domain
    num_far = np.minimum(num_sends, 2 * num_ends - between - in_last)
    return np.asarray(num_far / np.maximum(num_sends, 1))
