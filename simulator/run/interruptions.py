"""What interrupts a job, how often, and how long is the recovery? The fleet's figures as columns of the designs.

    job mean up-time M = 1 / (nodes x rate of a node + domains x rate of a domain
                              + nodes x rate of planned stops + 1 / limit of the queue)

with the rates of `simulator.run.interruption_rates`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import pdtrik

from simulator.checkpoints.schemes import CheckpointTable
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.layout.trained_weights import trained_flop_per_token
from simulator.machine.offer_table import OfferTable
from simulator.run.columns import Interruption
from simulator.run.interruption_rates import interruption_rates_per_s, lost_nodes_per_s, nodes_of_domain
from simulator.run.losses import probability_in_repair
from simulator.table import Floats, Integers, Table, total
from simulator.units import DAY

SPARE_CONFIDENCE = 0.99
"""Share of failures that `sufficient_spare_nodes` covers."""
LEAST_MFU_FRACTION = 0.1
"""Share of the peak below which few runs are worth it: `sufficient_spare_nodes` takes a run that is not simulated yet to last
no longer. This is a choice for a decision, not physics: the duration of the run and its waits for nodes do not depend on it."""
_NUM_HALVINGS = 24
"""Bisection steps over the range of spares: ten million of them down to one."""
_NO_FAILURE_MEAN = -math.log(SPARE_CONFIDENCE)
"""Mean number of failures for which `SPARE_CONFIDENCE` of all cases have none: e^-mean."""


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
    rates = _rates_per_s(job, plans)
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
    rates = _rates_per_s(job, plans)
    return np.asarray(1.0 / total(rate for kind, rate in rates.items() if kind is not Interruption.PLANNED))


def destroyed_nodes_within(job: Job, plans: PlanTable, time_s: Floats) -> Floats:
    """Returns the mean number of nodes whose hardware fails within a time, `(n,)`; nodes that are taken back do not count."""
    node_fault_fraction = 1.0 - job.reliability.process_fault_fraction
    rate_per_s = job.reliability.failures_per_s(plans.num_gpus) * node_fault_fraction
    return np.multiply(time_s, rate_per_s, out=np.zeros(len(plans)), where=rate_per_s > 0.0)


def _rates_per_s(job: Job, plans: PlanTable) -> dict[Interruption, Floats]:
    """Interruptions of the job per second of up-time, by kind, `(n,)`."""
    offers = OfferTable.from_job(job)
    return interruption_rates_per_s(
        job.reliability,
        plans.num_gpus,
        offers.gpus_per_node[plans.offer],
        offers.interruptions_per_1000_node_days[plans.offer],
    )


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
    nodes[:, Interruption.DOMAIN_FAULT] = _domain_nodes(job, plans)
    return nodes


def sufficient_spare_nodes(job: Job, plans: PlanTable, run_s: Floats | None = None) -> Integers:
    """Returns the fewest spare nodes, `(n,)`, such that a failure finds one in `SPARE_CONFIDENCE` of all cases.

    The answer is zero if the run is likely, with the same confidence, to end before any node fails. The number of nodes in
    repair is Poisson. Where an offer has fewer nodes left (`max_nodes`), the answer is all of these.

    Args:
        job: the job.
        plans: the designs.
        run_s: how long their runs last without failures, `(n,)`; left out: at `LEAST_MFU_FRACTION` of the peak.
    """
    run_s = _longest_run_s(job, plans) if run_s is None else run_s
    ends_before = node_losses_within(job, plans, run_s) <= _NO_FAILURE_MEAN
    # Without a step there is no run length; taking the smaller value that is a number keeps the spares finite.
    in_repair = node_losses_within(job, plans, np.fmin(job.reliability.repair_days * DAY, run_s))
    spares = np.minimum(_spares_for_losses(job, plans, in_repair), _nodes_left(job, plans))
    return np.asarray(np.where(ends_before, 0.0, spares), dtype=np.int64)


def _nodes_left(job: Job, plans: PlanTable) -> Floats:
    """Returns how many nodes of its offer a plan does not train on, `(n,)`; infinite where their number is not limited."""
    nodes = np.ceil(plans.num_gpus / OfferTable.from_job(job).gpus_per_node[plans.offer])
    return np.asarray(np.maximum(0.0, most_nodes(job)[plans.offer] - nodes))


def most_nodes(job: Job) -> Floats:
    """Returns the nodes of each offer, spares included, one entry per offer; infinite where their number is not limited."""
    return np.array([np.inf if offer.max_nodes is None else offer.max_nodes for offer in job.offers])


def _spares_for_losses(job: Job, plans: PlanTable, in_repair: Floats) -> Floats:
    """Returns the fewest spares for this mean number of nodes in repair, `(n,)`; at least one."""
    # Below that mean one spare is enough, and the percentile of the continuous distribution would be negative.
    # The percentile takes a microsecond, and clusters of one size share it.
    means, inverse = np.unique(np.maximum(in_repair, _NO_FAILURE_MEAN), return_inverse=True)
    percentile = pdtrik(SPARE_CONFIDENCE, means)[inverse]
    alone = np.where(in_repair <= _NO_FAILURE_MEAN, 1.0, np.ceil(percentile + 1.0))
    if job.reliability.domain_failures_per_1000_domain_days == 0.0:
        return alone
    return _spares_for_domains(job, plans, in_repair, alone)


def _spares_for_domains(job: Job, plans: PlanTable, in_repair: Floats, alone: Floats) -> Floats:
    """Returns the fewest spares where domains fail, `(n,)`: all nodes of one fail at once, and as many must stand by."""
    rates, size = _rates_per_s(job, plans), _domain_nodes(job, plans)
    node, domain = rates[Interruption.NODE_FAULT], rates[Interruption.DOMAIN_FAULT]
    seconds = in_repair / lost_nodes_per_s(rates, size)
    clusters, inverse = np.unique(np.stack([node, domain, size, seconds, alone]), axis=1, return_inverse=True)
    node, domain, size, seconds, alone = clusters
    low, high = np.zeros(len(node)), size * (alone + 1.0)
    for _ in range(_NUM_HALVINGS):
        middle = np.floor(0.5 * (low + high))
        for_node, for_domain = (
            probability_in_repair(middle - count + 1.0, node * seconds, domain * seconds, size)
            for count in (1.0, size)
        )
        suffices = node * for_node + domain * for_domain <= (1.0 - SPARE_CONFIDENCE) * (node + domain)
        low, high = np.where(suffices, low, middle), np.where(suffices, middle, high)
    return np.asarray(high[inverse.reshape(-1)])


def _domain_nodes(job: Job, plans: PlanTable) -> Floats:
    """Returns the number of the job's nodes in one failure domain, `(n,)`."""
    return nodes_of_domain(
        job.reliability, plans.num_gpus, OfferTable.from_job(job).gpus_per_node[plans.offer]
    )


def node_losses_within(job: Job, plans: PlanTable, time_s: Floats | float) -> Floats:
    """Returns the mean number of nodes that go out of service within a time, `(n,)`; process faults take none."""
    return np.asarray(time_s * lost_nodes_per_s(_rates_per_s(job, plans), _domain_nodes(job, plans)))


def _longest_run_s(job: Job, plans: PlanTable) -> Floats:
    """Length of the run at `LEAST_MFU_FRACTION` of the peak, `(n,)`; NaN where the number format is missing."""
    workload, offers = job.workload, OfferTable.from_job(job).take(plans.offer)
    flop = workload.tokens * trained_flop_per_token(workload)
    return np.asarray(flop / (plans.num_gpus * offers.peak_of(plans.precision) * LEAST_MFU_FRACTION))
