"""Can this layout be saved by this checkpoint scheme? Rules of peers, replicas and servers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from constraints.layout_rule import LayoutRule
from simulator.checkpoints.sizes import expert_set_ranks, group_ranks, saved_bytes_per_parameter
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, PlanTable
from simulator.layout.trained_weights import num_trained_parameters
from simulator.machine.offer_table import OfferTable
from simulator.table import Booleans, Floats, total


def _peer_memory(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    has_peers = plans.num_gpus > (job.checkpointing.peer_copies - 1) * offers.gpus_per_node
    return _broken_by(plans, ~has_peers, CheckpointScheme.IN_MEMORY_PEER, CheckpointScheme.TIERED)


def _live_replica(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    """From ZeRO-1 on, every replica holds optimizer states that no other replica has (Rajbhandari et al., SC 2020).

    Under hybrid sharding each shard group has a whole copy, except of experts that several groups hold together.
    """
    copy_ranks = np.maximum(group_ranks(plans), expert_set_ranks(job.workload, plans))
    has_replica = plans.num_gpus // plans.pipeline_parallel >= 2 * copy_ranks
    return _broken_by(plans, ~has_replica, CheckpointScheme.JUST_IN_TIME, CheckpointScheme.REPLICA_FT)


def _gradient_mirror(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    """Servers see the gradients that replicas exchange: a single replica sends none, ZeRO-3 no whole ones (FlowCheck)."""
    is_mirrored = (plans.data_parallel >= 2) & (plans.zero_stage <= 2)
    return _broken_by(plans, ~is_mirrored, CheckpointScheme.GRADIENT_REPLICA)


def _server_memory(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    options = job.checkpointing
    if options.num_servers is None:
        return np.zeros(len(plans))
    held_bytes_per_parameter = saved_bytes_per_parameter(job) + options.gradient_bytes
    held_bytes = held_bytes_per_parameter * num_trained_parameters(job.workload)
    is_too_large = np.full(len(plans), held_bytes > options.num_servers * options.server_memory_bytes)
    return _broken_by(plans, is_too_large, CheckpointScheme.GRADIENT_REPLICA)


def _broken_by(plans: PlanTable, is_broken: Booleans, *schemes: CheckpointScheme) -> Floats:
    """1 where a plan has one of the schemes and breaks their rule, otherwise 0."""
    has_scheme = np.isin(plans.checkpoint_scheme, [scheme.code for scheme in schemes])
    return np.where(has_scheme & is_broken, 1.0, 0.0)


SCHEME_RULES = (
    LayoutRule(
        name="peer_memory",
        sentence="checkpoint_scheme in_memory_peer or tiered needs a node for each of checkpointing.peer_copies copies",
        excess=_peer_memory,
    ),
    LayoutRule(
        name="live_replica",
        sentence="checkpoint_scheme just_in_time or replica_ft needs a second copy of the state: data_parallel of at least 2 "
        "with zero_stage 0, or shard_ranks of at most half of data_parallel x context_parallel; and two copies of every expert",
        excess=_live_replica,
    ),
    LayoutRule(
        name="gradient_mirror",
        sentence="checkpoint_scheme gradient_replica needs replicas that exchange whole gradients: data_parallel of at least "
        "2 and zero_stage of at most 2",
        excess=_gradient_mirror,
    ),
    LayoutRule(
        name="server_memory",
        sentence="checkpoint_scheme gradient_replica needs enough checkpointing.num_servers to hold the state and gradients",
        excess=_server_memory,
    ),
)
"""Rules of checkpoint schemes, in the order in which reports name them."""


def can_save_by(job: Job, layouts: PlanTable, schemes: Sequence[CheckpointScheme]) -> Booleans:
    """Returns which layouts keep the rules of each of k checkpoint schemes, whatever scheme they name, `(n, k)`."""
    offers = OfferTable.from_job(job).take(layouts.offer)

    def excess(scheme: CheckpointScheme) -> Floats:
        plans = layouts.saving_by(scheme)
        return total(rule.excess(job, plans, offers) for rule in SCHEME_RULES)

    return np.column_stack([excess(scheme) == 0.0 for scheme in schemes])
