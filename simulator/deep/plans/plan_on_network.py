"""How long does one step of a plan take on a user-defined network? Every message of every accelerator, on any topology.

Operators take as long as at the fast depth. Collectives are flows by an algorithm of
`simulator.deep.collectives.chosen_collectives`, with the bytes of the plan and the bandwidths, latencies and ramps of the
network. No further losses of a communication library are added.
"""

from __future__ import annotations

from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.networks.topology import Topology
from simulator.deep.plans.plan_cluster import Faults, PlanCluster
from simulator.deep.plans.plan_export import step_on
from simulator.deep.plans.plan_roles import all_ranks, block_size
from simulator.deep.plans.plan_step import MOST_UNFOLDED, PlanStep, parts_and_shape, reduces_often
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from simulator.errors import InputError, Problem
from simulator.step.step import simulate_step


def plan_on(
    job: Job,
    plan: Plan,
    topology: Topology,
    *,
    faults: Faults | None = None,
    algorithm: Algorithm = Algorithm.AUTO,
) -> PlanStep:
    """Plays one step of a plan on a network.

    Args:
        job: the job.
        plan: a plan with a valid layout (`constraints.layout`).
        topology: the network, with at least as many accelerators.
        faults: accelerators that are slow or fast; slow links are part of the network.
        algorithm: algorithm of collectives; default: the fastest for each.

    Raises:
        InputError: the plan is too large for this depth or for the network.
    """
    most = min(topology.num_ranks, MOST_UNFOLDED)
    if plan.num_gpus > most:
        rule = (
            f"must be at most {most:,} on network {topology.name!r}, whose accelerators are played one by one; more are where "
            f"the network has them, as nodes on rails with cards for each and nothing slow, and collectives are nccl"
        )
        raise InputError([Problem(path="num_gpus", value=str(plan.num_gpus), rule=rule)], "deep depth")
    cluster = PlanCluster.of(job, plan, faults)
    parts, shape = parts_and_shape(job, plan)
    tasks, paths = step_on(job, plan, topology, faults=faults, algorithm=algorithm)
    return PlanStep(
        cluster=cluster,
        roles=all_ranks(cluster, block_size(plan, job.workload)),
        graph=tasks,
        topology=topology,
        paths=paths,
        zero_stage=plan.zero_stage,
        reduces_often=reduces_often(plan, shape),
        fast=simulate_step(parts.rank, parts.chunks),
    )
