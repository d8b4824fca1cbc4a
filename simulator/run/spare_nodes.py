"""How many spare nodes are enough, and where does another node come from when none is left?

The number of nodes in repair is Poisson. Enough are the fewest spares that suffice for `SPARE_CONFIDENCE` of the failures. The
other nodes that an offer has left (`max_nodes`) can be borrowed. Once all are, only a repair brings another one.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import pdtrik

from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.domain.reliability import Reliability
from simulator.layout.trained_weights import trained_flop_per_token
from simulator.machine.offer_table import OfferTable
from simulator.run.columns import Interruption
from simulator.run.interruption_rates import domain_nodes, lost_nodes_per_s, rates_per_s
from simulator.run.losses import probability_in_repair
from simulator.table import Floats, Integers
from simulator.units import DAY, HOUR

SPARE_CONFIDENCE = 0.99
"""Share of failures that `sufficient_spare_nodes` covers."""
LEAST_MFU_FRACTION = 0.1
"""Share of the peak below which few runs are worth it: `sufficient_spare_nodes` takes a run that is not simulated yet to last
no longer. This is a choice for decisions, not physics: nothing of the run depends on it but the number of its spares."""
USUAL_QUEUE_S = 2 * HOUR
"""Waiting for a newly allocated node when no spare is left (TrainMover, arXiv 2412.12636: stop-and-restart without standby
takes about two hours)."""
_NUM_HALVINGS = 24
"""Bisection steps over the range of spares: ten million of them down to one."""
_NO_FAILURE_MEAN = -math.log(SPARE_CONFIDENCE)
"""Mean number of failures for which `SPARE_CONFIDENCE` of all cases have none: e^-mean."""


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
    enough = np.where(ends_before, 0.0, _spares_for_losses(job, plans, in_repair))
    return np.asarray(np.minimum(enough, _nodes_left(job, plans)), dtype=np.int64)


def queue_wait_s(reliability: Reliability) -> float:
    """Returns how long a run without a spare waits for another node that did not fail before, if there is one."""
    asked_s = reliability.restart.replace_from_queue_s
    return USUAL_QUEUE_S if asked_s is None else asked_s


def max_loans(job: Job, plans: PlanTable) -> Floats:
    """Returns how many nodes a run can borrow at a time, `(n,)`: all of its offer that neither train nor stand by.

    The number is infinite where that of the offer's nodes is not limited, and where the job says how soon others come.
    """
    if job.reliability.restart.replace_from_queue_s is not None:
        return np.full(len(plans), np.inf)
    return np.asarray(np.maximum(0.0, _nodes_left(job, plans) - plans.num_spare_nodes))


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
    rates, size = rates_per_s(job, plans), domain_nodes(job, plans)
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


def node_losses_within(job: Job, plans: PlanTable, time_s: Floats | float) -> Floats:
    """Returns the mean number of nodes that go out of service within a time, `(n,)`; process faults take none."""
    return np.asarray(time_s * lost_nodes_per_s(rates_per_s(job, plans), domain_nodes(job, plans)))


def _longest_run_s(job: Job, plans: PlanTable) -> Floats:
    """Length of the run at `LEAST_MFU_FRACTION` of the peak, `(n,)`; NaN where the number format is missing."""
    workload, offers = job.workload, OfferTable.from_job(job).take(plans.offer)
    flop = workload.tokens * trained_flop_per_token(workload)
    return np.asarray(flop / (plans.num_gpus * offers.peak_of(plans.precision) * LEAST_MFU_FRACTION))
