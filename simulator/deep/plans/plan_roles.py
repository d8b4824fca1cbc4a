"""Which accelerators have to be played? One for each role, where the others do the same at the same time.

Ranks that communicate in every pass run in lockstep: the ranks of a stage form blocks of t c ranks, or larger ones where more
ranks share experts. Blocks that are alike at all stages (nothing in them is slow, or the same things are) form one *role*, of
which one rank per stage is played. Its accelerator is the slowest of its block, its links are the slowest there. Exchanges
between replicas join the roles: they begin when all are there and end when the slowest has the result.

This is exact where accelerators and links are equal, tensor, context and expert groups lie in the same way in all link
domains, and stages are whole link domains or whole parts of one. Where only some ranks' sends between stages cross domains,
all of them do here. A slow accelerator holds up its block at once, not one neighbour after the other.
`simulator.deep.plans.plan_traffic` says how collectives on shared links are treated.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

import numpy as np

from simulator.deep.plans.plan_cluster import PlanCluster
from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.layout.expert_ranks import expert_parts
from simulator.table import Floats, Integers


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The accelerators that are played: p stages, R of each."""

    ranks: Integers
    """`(p, R)` numbers of the accelerators."""
    counts: Integers
    """`(R,)` how many accelerators of a stage each role stands for."""
    block_size: int
    """Number of ranks that run in lockstep."""
    speed: Floats
    """`(p, R)` speed relative to the usual one."""
    scale_up_factor: Floats
    """`(p, R)` share of their bandwidth that the ranks' scale-up links have."""
    card_factor: Floats
    """`(p, R)` share of their bandwidth that the ranks' cards have."""
    is_folded: bool

    @property
    def num_played(self) -> int:
        """Number of played accelerators."""
        return int(self.ranks.size)


def block_size(plan: Plan, workload: Workload) -> int:
    """Returns how many ranks of a stage run in lockstep."""
    inside = plan.tensor_parallel * plan.context_parallel
    return lcm(inside, plan.expert_parallel * expert_parts(workload))


def all_ranks(cluster: PlanCluster, size: int) -> Roles:
    """Returns every accelerator as a role of its own; blocks have `size` ranks."""
    ranks = cluster.ranks
    return Roles(
        ranks=ranks,
        counts=np.ones(ranks.shape[1], dtype=np.int64),
        block_size=size,
        speed=cluster.speed()[ranks],
        scale_up_factor=cluster.scale_up_factor()[ranks],
        card_factor=cluster.card_factor()[ranks],
        is_folded=False,
    )


def folded(cluster: PlanCluster, size: int) -> Roles:
    """Returns one accelerator for each role; blocks have `size` ranks."""
    blocks = cluster.ranks.reshape(cluster.num_stages, -1, size)
    speed, scale_up, card, leaf = (
        each[blocks]
        for each in (
            cluster.speed(),
            cluster.scale_up_factor(),
            cluster.card_factor(),
            cluster.leaf_factor(),
        )
    )
    slowest = np.stack([each.min(axis=2) for each in (speed, scale_up, card, leaf)], axis=-1)
    by_block = np.moveaxis(slowest, 1, 0).reshape(blocks.shape[1], -1)
    _, first, counts = np.unique(by_block, axis=0, return_index=True, return_counts=True)
    order = np.argsort(first, kind="stable")
    chosen = first[order]
    worst = np.lexsort((card, scale_up, speed, leaf))[..., 0]  # the slowest of a block is played, and named
    ranks = np.take_along_axis(blocks, worst[..., None], axis=2)[..., 0][:, chosen]
    return Roles(
        ranks=ranks,
        counts=counts[order] * size,
        block_size=size,
        speed=speed.min(axis=2)[:, chosen],
        scale_up_factor=scale_up.min(axis=2)[:, chosen],
        card_factor=card.min(axis=2)[:, chosen],
        is_folded=True,
    )
