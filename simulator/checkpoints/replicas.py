"""What does a failure cost if another replica still has the state? Background saves then cover the loss of all replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import pdtrc

from simulator.checkpoints.columns import Costs, survives
from simulator.checkpoints.files import asynchronous
from simulator.checkpoints.sizes import Saves
from simulator.checkpoints.survival import replicas_outlast
from simulator.run.columns import Interruption
from simulator.run.interruption_rates import interruption_rates_per_s, lost_nodes_per_s, nodes_of_domain
from simulator.run.losses import probability_of_at_least
from simulator.run.spare_nodes import queue_wait_s
from simulator.table import Booleans, Floats, Integers
from simulator.units import DAY


def just_in_time(saves: Saves) -> Costs:
    """Healthy replicas save after the failure, and all restart from there (Just-in-time checkpointing, EuroSys 2024)."""
    hand_over_s = saves.options.just_in_time_s
    if hand_over_s is not None:
        return _live_replica(saves, np.full(len(saves.designs), hand_over_s + _restart_s(saves)))
    sizes = saves.sizes_of_one_copy()
    save_s = saves.options.fixed_stall_s + sizes.copy_s + sizes.store_s
    return _live_replica(saves, save_s + sizes.read_s + _restart_s(saves))


def replica_ft(saves: Saves) -> Costs:
    """The other replicas continue after a quorum, and the failed one rejoins them (torchft, FT-HSDP).

    Of D replicas (D shard groups under hybrid sharding), one is missing for R_rep, which costs the whole job R_rep / D of
    capacity. With a the rate of unannounced interruptions, including nodes taken back, the number of missing replicas is
    Poisson with mean a R_rep. A failure that meets D - 1 missing ones takes the last, and all go back to a save.
    """
    quorum_s = np.full(len(saves.designs), saves.options.quorum_stall_s)
    losses = _Losses.of(saves)
    replicas, recovery_s = saves.designs.num_copies, _replica_recovery_s(saves, losses)
    num_missing = losses.replicas_per_s * recovery_s
    is_any_left = 1.0 - pdtrc(np.maximum(0.0, replicas - 2.0), num_missing)
    live = _live_replica(saves, quorum_s)
    survivals = {name: live[name] * is_any_left for name in live if name.endswith("_survival")}
    return {**live, **survivals, "missing_capacity_s": recovery_s / replicas}


def _live_replica(saves: Saves, live_restart_s: Floats) -> Costs:
    """A failure loses half a step on average if a replica is left, and otherwise goes back to a save."""
    designs = saves.designs
    node_ranks = designs.gpus_per_node
    domain_ranks = saves.reliability.nodes_per_domain * node_ranks
    is_replicated = _outlasts(saves, np.ones_like(node_ranks))
    return {
        **asynchronous(saves),
        **survives(
            process=is_replicated.astype(np.float64),
            node=_outlasts(saves, node_ranks).astype(np.float64),
            domain=_outlasts(saves, domain_ranks).astype(np.float64),
        ),
        "fast_load_s": 0.0,
        "live_lag_s": np.where(is_replicated, designs.step_time_s / 2.0, np.inf),
        "live_restart_s": np.where(is_replicated, live_restart_s, np.nan),
    }


def _outlasts(saves: Saves, lost_ranks: Integers) -> Booleans:
    """From ZeRO-1 on, no replica holds the states of another one: only shard groups can stand in for each other."""
    designs = saves.designs
    return replicas_outlast(
        num_copies=designs.num_copies, copy_ranks=designs.copy_ranks, lost_ranks=lost_ranks
    )


def _restart_s(saves: Saves) -> float:
    """Recovery without waiting for a node and without a load."""
    restart = saves.reliability.restart
    return restart.detect_s + restart.diagnose_s + restart.initialize_s + restart.warm_up_s


@dataclass(frozen=True, kw_only=True)
class _Losses:
    """Losses by unannounced interruptions, `(n,)`."""

    replicas_per_s: Floats
    """Rate of interruptions, each of which takes a replica."""
    nodes_per_s: Floats
    """Rate of nodes that go out of service."""
    node_share: Floats
    """Share of the interruptions that take any nodes."""

    @classmethod
    def of(cls, saves: Saves) -> Self:
        """Returns the losses of designs."""
        designs, fleet = saves.designs, saves.reliability
        rates = interruption_rates_per_s(
            fleet, designs.num_gpus, designs.gpus_per_node, designs.reclaims_per_1000_node_days
        )
        domain_nodes = nodes_of_domain(fleet, designs.num_gpus, designs.gpus_per_node)
        with_nodes = rates[Interruption.NODE_FAULT] + rates[Interruption.DOMAIN_FAULT]
        any_per_s = rates[Interruption.PROCESS_FAULT] + with_nodes
        return cls(
            replicas_per_s=any_per_s,
            nodes_per_s=lost_nodes_per_s(rates, domain_nodes),
            node_share=with_nodes / any_per_s,
        )


def _replica_recovery_s(saves: Saves, losses: _Losses) -> Floats:
    """From the fault until the failed replica trains again: restart, a replacement node if one is needed, and a copy."""
    designs = saves.designs
    if saves.options.replica_recovery_s is not None:
        return np.full(len(designs), saves.options.replica_recovery_s)
    fetch_s = saves.sizes().gpu_bytes / designs.network_bytes_per_s
    return _restart_s(saves) + losses.node_share * _replacement_s(saves, losses) + fetch_s


def _replacement_s(saves: Saves, losses: _Losses) -> Floats:
    """Mean wait for a node that replaces a failed one, while the other replicas go on and fail.

    The number Y of nodes in repair is Poisson. A failure that finds all spares in repair waits for the queue. Beyond n nodes,
    spares and all that can be lent, Y - n wait for repairs; by Little's law, for the mean of this number over the rate.
    """
    designs, reliability = saves.designs, saves.reliability
    spare_s, repair_s = reliability.restart.replace_from_spare_s, reliability.repair_days * DAY
    queue_s = queue_wait_s(reliability)
    in_repair, spares = losses.nodes_per_s * repair_s, designs.num_spare_nodes.astype(np.float64)
    has_none = probability_of_at_least(spares, in_repair)
    loans = designs.max_loans if queue_s < repair_s + spare_s else np.zeros(len(designs))
    is_limited = np.isfinite(loans)
    most = spares + np.where(is_limited, loans, 0.0)
    not_lent = np.where(is_limited, probability_of_at_least(most, in_repair), 0.0)
    num_waiting = in_repair * not_lent - most * probability_of_at_least(most + 1.0, in_repair)
    for_repairs_s = np.divide(
        num_waiting, losses.nodes_per_s, out=np.zeros(len(designs)), where=is_limited & (not_lent > 0.0)
    )
    return (has_none - not_lent) * queue_s + (1.0 - has_none + not_lent) * spare_s + for_repairs_s
