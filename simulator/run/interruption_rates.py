"""How often is a job interrupted, by kind, and how many nodes does that take? The fleet's figures per second of up-time.

Node rates are for nodes of eight accelerators; larger or smaller nodes fail in proportion. Failure domains are counted in
actual nodes. Nodes that a landlord takes back count as failed. Some of a node's failures leave its memory intact (process
faults); the others take the node out of service. Failures of a domain take out all nodes in it. A queue that limits jobs ends
them as often whatever their size.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.domain.reliability import GPUS_PER_COUNTED_NODE, Reliability
from simulator.machine.offer_table import OfferTable
from simulator.run.columns import Interruption
from simulator.table import Floats, Integers
from simulator.units import DAY


def interruption_rates_per_s(
    fleet: Reliability, num_gpus: Integers, gpus_per_node: Integers, reclaims_per_1000_node_days: Floats
) -> dict[Interruption, Floats]:
    """Returns the interruptions of jobs per second of up-time, by kind, `(n,)`.

    Args:
        fleet: its figures.
        num_gpus: accelerators that train, `(n,)`.
        gpus_per_node: of an actual node, `(n,)`.
        reclaims_per_1000_node_days: how often a landlord takes such a node back, `(n,)`.
    """
    nodes = num_gpus / GPUS_PER_COUNTED_NODE
    failures = nodes * fleet.failures_per_1000_node_days
    # Racks hold actual nodes of any size, and landlords take actual nodes back.
    own_nodes = num_gpus / gpus_per_node
    domains = np.ceil(np.ceil(own_nodes) / fleet.nodes_per_domain)
    per_1000_days = {
        Interruption.PROCESS_FAULT: failures * fleet.process_fault_fraction,
        Interruption.NODE_FAULT: failures * (1.0 - fleet.process_fault_fraction)
        + own_nodes * reclaims_per_1000_node_days,
        Interruption.DOMAIN_FAULT: domains * fleet.domain_failures_per_1000_domain_days,
        Interruption.PLANNED: nodes * fleet.planned_stops_per_1000_node_days + fleet.queue_ends_per_1000_days,
    }
    return {kind: rate / (1000.0 * DAY) for kind, rate in per_1000_days.items()}


def nodes_of_domain(fleet: Reliability, num_gpus: Integers, gpus_per_node: Integers) -> Floats:
    """Returns the number of a job's nodes in one failure domain, `(n,)`."""
    return np.minimum(fleet.nodes_per_domain, np.ceil(num_gpus / gpus_per_node))


def lost_nodes_per_s(rates: dict[Interruption, Floats], domain_nodes: Floats) -> Floats:
    """Returns the nodes that go out of service per second, `(n,)`; process faults take none."""
    return np.asarray(rates[Interruption.NODE_FAULT] + domain_nodes * rates[Interruption.DOMAIN_FAULT])


def rates_per_s(job: Job, plans: PlanTable) -> dict[Interruption, Floats]:
    """Returns the interruptions of designs per second of up-time, by kind, `(n,)`."""
    offers = OfferTable.from_job(job)
    return interruption_rates_per_s(
        job.reliability,
        plans.num_gpus,
        offers.gpus_per_node[plans.offer],
        offers.interruptions_per_1000_node_days[plans.offer],
    )


def domain_nodes(job: Job, plans: PlanTable) -> Floats:
    """Returns the number of a design's nodes in one failure domain, `(n,)`."""
    return nodes_of_domain(
        job.reliability, plans.num_gpus, OfferTable.from_job(job).gpus_per_node[plans.offer]
    )
