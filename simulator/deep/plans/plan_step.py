"""How does one step of a plan run, operator by operator and message by message?

    step = plan_step(job, plan)
    step.played.makespan_s

Operators, and collectives that are alone, take as long as in the fast depth (`simulator.deep.plans.plan_collectives`). What
the deep depth adds is who is held up by whom: traffic that shares links, stages that wait, and whatever is slow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from simulator.deep.networks.routing import Paths
from simulator.deep.networks.topology import Topology
from simulator.deep.plans.plan_cluster import Faults, PlanCluster
from simulator.deep.plans.plan_graph import PlanGraph
from simulator.deep.plans.plan_network import PlanNetwork
from simulator.deep.plans.plan_parts import PlanParts
from simulator.deep.plans.plan_roles import Roles, all_ranks, block_size, folded
from simulator.deep.plans.plan_shape import StepShape
from simulator.deep.plans.plan_shards import REDUCES_OFTEN
from simulator.deep.plans.plan_traffic import FoldedTraffic, MessageTraffic
from simulator.deep.playing.play import Played, play
from simulator.deep.playing.tasks import NONE, TaskGraph, TaskGraphBuilder
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable, interleaved_groups
from simulator.errors import InputError, Problem
from simulator.layout.chunks import split_layers
from simulator.layout.micro_batches import num_micro_batches
from simulator.layout.model_states import reduced_together
from simulator.machine.rank import Rank
from simulator.pipeline.shape import PipelineShape
from simulator.step.gradient_buckets import Buckets
from simulator.step.step import StepParts, StepTable, simulate_step, step_parts

MOST_UNFOLDED = 1_024
"""Most accelerators that are played one by one."""


@dataclass(frozen=True, kw_only=True)
class PlanStep:
    """One step of a plan; resource `stage * R + role` of the graph is a played accelerator."""

    cluster: PlanCluster
    roles: Roles
    graph: TaskGraph
    topology: Topology
    paths: Paths
    zero_stage: int
    reduces_often: bool
    """Whether gradients are reduced during the passes, not once after the last of them."""
    fast: StepTable
    """The same step at the fast depth, one row."""

    @cached_property
    def played(self) -> Played:
        """When the tasks ran; they are played on first access."""
        return play(self.graph, self.topology, self.paths)

    @property
    def step_time_s(self) -> float:
        """Time from the first operator to the last weight update."""
        return self.played.makespan_s

    @cached_property
    def unshared_step_time_s(self) -> float:
        """Length of the step if no two flows shared a link; the difference is the cost of sharing."""
        graph, is_flow = self.graph, self.graph.path != NONE
        alone = np.zeros(len(self.paths))
        for path in range(len(self.paths)):
            links, times = np.unique(self.paths.links_of(path), return_counts=True)
            alone[path] = np.max(times / self.topology.bandwidth_bytes_per_s[links], initial=0.0)
        moved_s = np.where(is_flow, graph.num_bytes * alone[graph.path], 0.0)
        delays = replace(
            graph,
            duration_s=graph.duration_s + moved_s,
            num_bytes=np.zeros(len(graph)),
            path=np.full(len(graph), NONE),
        )
        return play(delays, self.topology, self.paths).makespan_s


def plan_step(job: Job, plan: Plan, *, faults: Faults | None = None, is_folded: bool = True) -> PlanStep:
    """Plays one step of a plan.

    Args:
        job: the job.
        plan: a plan with a valid layout (`constraints.layout`).
        faults: what is slow; default: nothing.
        is_folded: whether accelerators that do the same are played once; else every message of each one is played.

    Raises:
        InputError: the plan is too large, or a slow part does not exist.
    """
    cluster = PlanCluster.of(job, plan, faults)
    if not is_folded and plan.num_gpus > MOST_UNFOLDED:
        rule = f"must be at most {MOST_UNFOLDED:,} to be played one by one; folded, any number is"
        raise InputError([Problem(path="num_gpus", value=str(plan.num_gpus), rule=rule)], "deep depth")
    return _played(job, plan, cluster, *parts_and_shape(job, plan), is_folded=is_folded)


def folded_step(job: Job, plan: Plan, cluster: PlanCluster, parts: PlanParts, shape: StepShape) -> PlanStep:
    """Plays the parts of a plan on a network; accelerators that do the same are played once."""
    return _played(job, plan, cluster, parts, shape, is_folded=True)


def _played(
    job: Job, plan: Plan, cluster: PlanCluster, parts: PlanParts, shape: StepShape, *, is_folded: bool
) -> PlanStep:
    size = block_size(plan, job.workload)
    roles = (folded if is_folded else all_ranks)(cluster, size)
    network, graph = PlanNetwork.of(cluster, roles), TaskGraphBuilder()
    traffic = (FoldedTraffic if is_folded else MessageTraffic)(graph=graph, network=network)
    PlanGraph(graph=graph, traffic=traffic, parts=parts, shape=shape, speed=roles.speed).add()
    tasks, paths = graph.build(), network.router.table()
    return PlanStep(
        cluster=cluster,
        roles=roles,
        graph=tasks,
        topology=network.topology,
        paths=paths,
        zero_stage=plan.zero_stage,
        reduces_often=reduces_often(plan, shape),
        fast=simulate_step(parts.rank, parts.chunks),
    )


def reduces_often(plan: Plan, shape: StepShape) -> bool:
    """Whether gradients are reduced more than once in a step: after micro-batches, not only at the end."""
    is_once = plan.pipeline_parallel > 1 and shape.reduces_every == shape.pipeline.num_micro_batches
    return plan.zero_stage >= REDUCES_OFTEN and not is_once


def parts_and_shape(job: Job, plan: Plan) -> tuple[PlanParts, StepShape]:
    """Returns what a step consists of: the parts of the model, and the shape of the pipeline around them."""
    workload, plans = job.workload, PlanTable.from_plans([plan])
    rank = Rank.of(job, plans)
    chunks = split_layers(workload.model, plans, workload.stage_layers)
    fast = step_parts(rank, chunks)
    pipeline = PipelineShape(
        plan.pipeline_schedule.code,
        plan.pipeline_parallel,
        plan.pipeline_parallel * plan.virtual_pipeline,
        int(num_micro_batches(workload, plans)[0]),
        int(interleaved_groups(plans)[0]),
    )
    is_zero_2 = plan.zero_stage == 2
    shape = StepShape(
        pipeline=pipeline,
        sends_block=bool(np.asarray(fast.pipeline["send_blocks_sender"])[0]),
        buckets=_buckets(fast),
        zero_stage=plan.zero_stage,
        reduces_every=int(reduced_together(workload, plans)[0]) if is_zero_2 else 1,
        host_copy_s=np.concatenate([fast.forward.host_copy_s, fast.backward.host_copy_s]),
        optimizer_s=float(fast.optimizer_s[0]),
    )
    return PlanParts(rank=rank, chunks=chunks), shape


def _buckets(fast: StepParts) -> Buckets:
    gradients, parameters = (
        np.asarray(fast.pipeline[name])[0] for name in ("num_overlap_buckets", "num_gather_buckets")
    )
    return Buckets(gradients=gradients, parameters=parameters)
