"""Which checkpoints do the tests of schemes use? One plan, its step time and bytes, and jobs that save differently."""

from __future__ import annotations

import numpy as np

from simulator.checkpoints.schemes import CheckpointTable, IntervalReason, checkpoint_costs
from simulator.domain.checkpointing import Checkpointing
from simulator.domain.hardware import Storage
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, Plan
from simulator.machine.offer_table import OfferTable
from tests.simulator.builders import job_of, plan_of, table_of, training

STEP_S, OPTIMIZER_S = 10.0, 0.1
SCHEMES = tuple(scheme for scheme in CheckpointScheme if scheme is not CheckpointScheme.NONE)
JOB = job_of(training("llama-3.1-70b"))
WEIGHTS = 70_553_706_496
TOTAL = 14 * WEIGHTS
GPU, NODE = TOTAL / 64, TOTAL / 8
COPY_S = GPU / 50e9
"""H100: 50 GB/s from each accelerator to the host, as much over its network card."""
STORE_S = NODE / 2e9
"""2 GB/s a node, to and from the file system."""


def costs_of(
    job: Job, *plans: Plan, step_s: float = STEP_S, optimizer_s: float = OPTIMIZER_S
) -> CheckpointTable:
    """Returns the cost of saves for some plans, all with the same step time."""
    table = table_of(*plans)
    offers = OfferTable.from_job(job).take(table.offer)
    rows = np.ones(len(table))
    return checkpoint_costs(job, table, offers, step_s * rows, optimizer_s * rows)


def costs_on_64(
    job: Job,
    scheme: CheckpointScheme,
    *,
    zero: int = 1,
    step_s: float = STEP_S,
    optimizer_s: float = OPTIMIZER_S,
) -> CheckpointTable:
    """Returns the cost of saves on eight nodes: eight replicas of eight tensor-parallel ranks."""
    plan = plan_of(tensor=8, data=8, zero=zero, scheme=scheme)
    return costs_of(job, plan, step_s=step_s, optimizer_s=optimizer_s)


def saving(job: Job, **options: object) -> Job:
    """Returns the job with other checkpoint options."""
    return job.model_copy(update={"checkpointing": Checkpointing.model_validate(options)})


def in_racks_of(job: Job, num_nodes: int) -> Job:
    """Returns the job with this number of nodes per rack."""
    reliability = job.reliability.model_copy(update={"nodes_per_domain": num_nodes})
    return job.model_copy(update={"reliability": reliability})


def with_storage(job: Job, **rates: float) -> Job:
    """Returns the job with a store whose nodes are no bottleneck unless `rates` make them one."""
    fast = {"write_bytes_per_s_per_node": 1e12, "read_bytes_per_s_per_node": 1e12}
    return job.model_copy(update={"storage": Storage.model_validate(fast | rates)})


def with_node(job: Job, **figures: float) -> Job:
    """Returns the job with other figures for the node of its only offer."""
    (offer,) = job.offers
    node = offer.node.model_copy(update=figures)
    return job.model_copy(update={"offers": (offer.model_copy(update={"node": node}),)})


def value(table: CheckpointTable, name: str) -> float:
    return float(getattr(table, name)[0])


def reason(table: CheckpointTable) -> IntervalReason:
    return IntervalReason.from_code(int(table.why_minimum_interval[0]))


def survivals(table: CheckpointTable) -> tuple[float, float, float]:
    return value(table, "process_survival"), value(table, "node_survival"), value(table, "domain_survival")
