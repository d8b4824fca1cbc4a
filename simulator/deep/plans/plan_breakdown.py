"""Where does the time of a plan's step go, and who waits for whom? In the parts of the fast depth's `StepTable`.

Each accelerator computes, or waits along the chain of what ended last (`simulator.deep.playing.waits`). A wait for traffic
that its own stage sends counts as the part named after that traffic. A wait for traffic between replicas counts as gradient
synchronisation, whichever stage was last. Any other wait for another accelerator is a bubble.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.deep.plans.plan_expert_traffic import ROUTING_MAPS
from simulator.deep.plans.plan_graph import DIRECTIONS, HOST_COPIES, LENT_TO_REPLICAS, OPTIMIZER
from simulator.deep.plans.plan_items import LENT
from simulator.deep.plans.plan_shards import GATHERS_AGAIN, LENT_TO_SHARDS
from simulator.deep.plans.plan_step import PlanStep
from simulator.deep.plans.plan_traffic import SEND
from simulator.deep.playing.tasks import NONE
from simulator.deep.playing.waits import Accelerators, of_stages, receivers, waits
from simulator.step.step import STEP_PARTS
from simulator.table import Floats, Integers

_BUBBLE = STEP_PARTS.index("pipeline_bubble_s")
_OF_REPLICAS = ("shard_comm_s", "gradient_sync_s")
"""Parts for which all stages wait together."""


@dataclass(frozen=True, kw_only=True)
class PlanBreakdown:
    """How r played accelerators spent a step. A wait is for traffic, whose part it counts to, or for another to compute."""

    seconds: Floats
    """`(r, 9)` by `STEP_PARTS`; the rows sum to the step."""
    for_traffic_s: Floats
    """`(r, 9)` time spent waiting for traffic, by the part that it counts to; for traffic inside other stages, the bubble."""
    waited_for_s: Floats
    """`(r, r)` how long the first waited for the computing of the second."""
    path_s: Floats
    """`(p,)` how long the played accelerators waited for flows on each path."""


def plan_breakdown(step: PlanStep) -> PlanBreakdown:
    """Returns how a step was spent."""
    graph, size, num_stages = step.graph, step.roles.num_played, step.cluster.num_stages
    stage = of_stages(size, num_stages)
    bucket = np.array([_bucket(label, step) for label in graph.labels], dtype=np.int64)[graph.label]
    known = Accelerators(receiver=receivers(step.topology, step.paths), team=stage, is_paired=True)
    kinds = bucket * num_stages + np.maximum(_stage_of_traffic(step, stage), 0)
    found = waits(graph, step.played, len(step.paths), known, (kinds, len(STEP_PARTS) * num_stages))
    for_traffic_s = _by_part(found.for_traffic_s.reshape(size, len(STEP_PARTS), num_stages), stage)
    seconds = for_traffic_s.copy()
    is_operator = graph.resource != NONE
    took_s = (step.played.end_s - step.played.start_s)[is_operator]
    np.add.at(seconds, (graph.resource[is_operator], bucket[is_operator]), took_s)
    seconds[:, _BUBBLE] += found.for_others_s + found.for_circuits_s + found.over_s
    return PlanBreakdown(
        seconds=seconds, for_traffic_s=for_traffic_s, waited_for_s=found.pairs_s, path_s=found.path_s
    )


def _stage_of_traffic(step: PlanStep, stage: Integers) -> Integers:
    """The stage whose accelerator sends each flow, `(n,)`; `NONE` for tasks that are not flows."""
    paths, is_flow = step.paths, step.graph.path != NONE
    sender = np.full(len(step.graph), NONE, dtype=np.int64)
    first_link = paths.links[paths.offsets[step.graph.path[is_flow]]]
    sender[is_flow] = stage[step.topology.source[first_link]]
    return sender


def _by_part(seconds: Floats, stage: Integers) -> Floats:
    """Sums waits for traffic, `(r, 9, p)` by part and sending stage, to `(r, 9)`.

    Replicas wait for each other whichever stage is last; any other traffic of another stage counts as a bubble.
    """
    own_s = np.take_along_axis(seconds, stage[:, None, None], axis=2)[..., 0]
    told_s = np.where(np.isin(STEP_PARTS, _OF_REPLICAS), seconds.sum(axis=2), own_s)
    told_s[:, _BUBBLE] += seconds.sum(axis=(1, 2)) - told_s.sum(axis=1)
    return told_s


def _bucket(label: str, step: PlanStep) -> int:
    """The part of a step to which a task belongs, by its label."""
    name = label.rpartition(" #")[0].partition(": ")[2] or label
    starts = {
        OPTIMIZER: "optimizer_s",
        SEND: "pipeline_send_s",
        HOST_COPIES: "host_copy_s",
        f"{LENT} expert": "expert_comm_s",
        LENT_TO_SHARDS: "shard_comm_s",
        LENT_TO_REPLICAS: "gradient_sync_s",
        LENT: "tensor_comm_s",
    }
    for start, bucket in starts.items():
        if name.startswith(start):
            return STEP_PARTS.index(bucket)
    if label.partition(": ")[0] in DIRECTIONS:
        return STEP_PARTS.index("compute_s")
    if label.startswith(("tensor", "context", "adapter")):
        return STEP_PARTS.index("tensor_comm_s")
    if label.startswith(("expert", ROUTING_MAPS)):
        return STEP_PARTS.index("expert_comm_s")
    if label.startswith(("gradient", "weight", "tied")):
        is_often = step.zero_stage == GATHERS_AGAIN or (step.reduces_often and label.startswith("gradient"))
        return STEP_PARTS.index("shard_comm_s" if is_often else "gradient_sync_s")
    return STEP_PARTS.index("compute_s")
