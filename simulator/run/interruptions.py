"""What interrupts a job, how often, and how long is the recovery? The fleet's figures as columns of the designs.

    job mean up-time M = 1 / (nodes x rate of a node + domains x rate of a domain
                              + nodes x rate of planned stops + 1 / limit of the queue)

with the rates of `simulator.run.interruption_rates`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.checkpoints.schemes import CheckpointTable
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.run.columns import Interruption
from simulator.run.interruption_rates import domain_nodes, rates_per_s
from simulator.table import Floats, Table, total


@dataclass(frozen=True, kw_only=True)
class InterruptionTable(Table):
    """Interruptions of each design; columns of kinds are `(n, 4)`, in the order of `Interruption`."""

    mean_up_time_s: Floats
    """Mean up-time between two interruptions of any kind, `(n,)`."""
    share: Floats
    """Share of each kind."""
    restart_s: Floats
    """Restart time, without replacement and load."""
    nodes: Floats
    """Nodes taken out, whose replacement the job waits for unless other replicas continue meanwhile."""
    fast_survival: Floats
    """Probability that the fast level of saves, or a live replica, survives it."""


def interruptions(job: Job, plans: PlanTable, checkpoints: CheckpointTable) -> InterruptionTable:
    """Returns the interruptions of each design, and what survives them."""
    rates = rates_per_s(job, plans)
    rate = total(rates[kind] for kind in Interruption)
    # A planned stop takes out one node, like the failure of a node.
    one_node = checkpoints.node_survival
    survival = (checkpoints.process_survival, one_node, checkpoints.domain_survival, one_node)
    fast_survival = np.stack(survival, axis=1)
    return InterruptionTable(
        mean_up_time_s=1.0 / rate,
        share=np.stack([rates[kind] / rate for kind in Interruption], axis=1),
        restart_s=_restart_s(job, checkpoints, fast_survival),
        nodes=_taken_nodes(job, plans),
        fast_survival=fast_survival,
    )


def mean_time_between_failures_s(job: Job, plans: PlanTable) -> Floats:
    """Returns the mean up-time of the job between failures, planned stops not counted; `(n,)`."""
    rates = rates_per_s(job, plans)
    return np.asarray(1.0 / total(rate for kind, rate in rates.items() if kind is not Interruption.PLANNED))


def destroyed_nodes_within(job: Job, plans: PlanTable, time_s: Floats) -> Floats:
    """Returns the mean number of nodes whose hardware fails within a time, `(n,)`; nodes that are taken back do not count."""
    node_fault_fraction = 1.0 - job.reliability.process_fault_fraction
    rate_per_s = job.reliability.failures_per_s(plans.num_gpus) * node_fault_fraction
    return np.multiply(time_s, rate_per_s, out=np.zeros(len(plans)), where=rate_per_s > 0.0)


def _restart_s(job: Job, checkpoints: CheckpointTable, fast_survival: Floats) -> Floats:
    """Restart time without replacement and load, `(n, 4)`; where a live replica continues, mostly that of the replica."""
    restart = job.reliability.restart
    again_s = restart.initialize_s + restart.warm_up_s
    ordinary_s = np.full_like(fast_survival, restart.detect_s + restart.diagnose_s + again_s)
    ordinary_s[:, Interruption.PLANNED] = restart.planned_stop_s + again_s
    live_s = checkpoints.live_restart_s[:, None]
    mixed_s = fast_survival * live_s + (1.0 - fast_survival) * ordinary_s
    is_live = ~np.isnan(live_s) & (np.arange(len(Interruption)) != Interruption.PLANNED)
    return np.where(is_live, mixed_s, ordinary_s)


def _taken_nodes(job: Job, plans: PlanTable) -> Floats:
    """Nodes that go out of service, `(n, 4)`."""
    nodes = np.zeros((len(plans), len(Interruption)))
    nodes[:, Interruption.NODE_FAULT] = 1.0
    nodes[:, Interruption.DOMAIN_FAULT] = domain_nodes(job, plans)
    return nodes
