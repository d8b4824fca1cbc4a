"""What does a step of a plan go into, and who waits for whom? In the parts of the fast depth's `StepTable`.

Each accelerator computes, or waits along the chain of what ended last (`simulator.deep.waits`). A wait for its own traffic is
a part of its step by the name of the traffic, and so is one for messages of its stage where all of these are played; a wait
for what replicas exchange is gradient synchronisation, whichever stage was the last; any other wait for somebody else is a
bubble.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simulator.compiled import compiled
from simulator.deep.plan_graph import OPTIMIZER
from simulator.deep.plan_items import LENT
from simulator.deep.plan_shards import GATHERS_AGAIN, LENT_TO_SHARDS
from simulator.deep.plan_step import PlanStep
from simulator.deep.plan_traffic import SEND
from simulator.deep.tasks import NONE
from simulator.deep.waits import latest_predecessors
from simulator.table import Booleans, Floats, Integers

BUCKETS = (
    "compute_s",
    "tensor_comm_s",
    "expert_comm_s",
    "shard_comm_s",
    "pipeline_send_s",
    "gradient_sync_s",
    "pipeline_bubble_s",
    "optimizer_s",
)
"""Columns of `simulator.step.StepTable`; copies of activations to main memory are not played."""
_BUBBLE = BUCKETS.index("pipeline_bubble_s")


@dataclass(frozen=True, kw_only=True)
class PlanBreakdown:
    """What r played accelerators did."""

    seconds: Floats
    """`(r, 8)` by `BUCKETS`; the rows sum to the step."""
    waited_for_s: Floats
    """`(r, r)` how long the first waited for the computing or the traffic of the second; itself: for its own traffic."""
    path_s: Floats
    """`(p,)` how long the played accelerators waited for flows on each path."""


def plan_breakdown(step: PlanStep) -> PlanBreakdown:
    """Returns what a step went into."""
    graph, played, size = step.graph, step.played, step.roles.num_played
    first_link = step.paths.links[np.minimum(step.paths.offsets[:-1], len(step.paths.links) - 1)]
    owner = np.where(
        graph.path == NONE,
        graph.resource,
        step.topology.source[first_link][graph.path] if len(first_link) else NONE,
    )
    buckets = np.array([_bucket(label, step) for label in graph.labels], dtype=np.int64)
    found = _Found(
        seconds=np.zeros((size, len(BUCKETS))),
        waited_for_s=np.zeros((size, size)),
        path_s=np.zeros(len(step.paths)),
        last_s=np.zeros(size),
    )
    order = np.flatnonzero(graph.resource != NONE)
    order = order[np.lexsort((order, played.end_s[order], played.start_s[order], graph.resource[order]))]
    _attribute(
        order,
        latest_predecessors(graph, played),
        played.start_s,
        played.end_s,
        graph.resource,
        graph.path,
        owner,
        np.arange(size) if step.roles.is_folded else np.arange(size) // step.roles.ranks.shape[1],
        buckets[graph.label],
        np.array([_is_sync(label) for label in graph.labels], dtype=np.bool_)[graph.label],
        found,
    )
    found.seconds[:, _BUBBLE] += played.makespan_s - found.last_s
    return PlanBreakdown(seconds=found.seconds, waited_for_s=found.waited_for_s, path_s=found.path_s)


def _is_sync(label: str) -> bool:
    """Whether traffic is of replicas, which all of them wait for."""
    return label.startswith(("gradient", "weight", "tied"))


def _bucket(label: str, step: PlanStep) -> int:
    """The part of a step that a task belongs to, by what it is called."""
    name = label.rpartition(" #")[0].partition(": ")[2] or label
    starts = {
        OPTIMIZER: "optimizer_s",
        SEND: "pipeline_send_s",
        f"{LENT} expert": "expert_comm_s",
        LENT_TO_SHARDS: "shard_comm_s",
        LENT: "tensor_comm_s",
    }
    for start, bucket in starts.items():
        if name.startswith(start):
            return BUCKETS.index(bucket)
    if label.startswith(("tensor", "context")):
        return BUCKETS.index("tensor_comm_s")
    if label.startswith("expert"):
        return BUCKETS.index("expert_comm_s")
    if _is_sync(label):
        is_often = step.zero_stage == GATHERS_AGAIN or (step.reduces_often and label.startswith("gradient"))
        return BUCKETS.index("shard_comm_s" if is_often else "gradient_sync_s")
    return BUCKETS.index("compute_s")


class _Found(NamedTuple):
    seconds: Floats
    waited_for_s: Floats
    path_s: Floats
    last_s: Floats


@compiled
def _attribute(
    order: Integers,
    latest: Integers,
    start_s: Floats,
    end_s: Floats,
    resource: Integers,
    path: Integers,
    owner: Integers,
    team: Integers,
    bucket: Integers,
    is_sync: Booleans,
    found: _Found,
) -> None:
    """Goes through the tasks of each accelerator in the order of their start."""
    for task in order:
        own = resource[task]
        begin_s, until_s = found.last_s[own], start_s[task]
        found.seconds[own, bucket[task]] += end_s[task] - start_s[task]
        found.last_s[own] = max(found.last_s[own], end_s[task])
        cause = latest[task]
        while until_s > begin_s:
            if cause == NONE:
                found.seconds[own, _BUBBLE] += until_s - begin_s
                break
            from_s = max(begin_s, min(until_s, start_s[cause]))
            spent_s = max(0.0, until_s - from_s)
            is_of_team = path[cause] != NONE and team[owner[cause]] == team[own]
            is_own = owner[cause] == own or is_of_team or is_sync[cause]
            found.seconds[own, bucket[cause] if is_own else _BUBBLE] += spent_s
            if owner[cause] != NONE:
                found.waited_for_s[own, owner[cause]] += spent_s
            if path[cause] != NONE:
                found.path_s[path[cause]] += spent_s
            until_s = from_s
            cause = latest[cause]
