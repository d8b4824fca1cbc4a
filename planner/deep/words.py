"""How is a step at the deep depth explained in words? Why the two depths differ, and who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from planner.deep.wait_words import waits_of_all
from planner.text import human
from simulator.deep.networks.topology import Topology
from simulator.deep.plans.plan_breakdown import PlanBreakdown
from simulator.deep.plans.plan_cluster import Faults
from simulator.domain.plan import Plan
from simulator.step.step import STEP_PARTS
from simulator.table import Integers

MOST_NAMED = 3
"""Number of waits that are named."""
SAME_FRACTION = 1e-9
"""Accelerators whose computing differs by less compute equally long."""
ZERO_GATHERS = 3
"""The ZeRO stage whose weights are gathered in every pass."""
_EXCHANGES = {
    "expert_comm_s": "tokens on their way to experts",
    "pipeline_send_s": "messages between stages",
}
"""Traffic that a pass waits for, other than that within layers."""


@dataclass(frozen=True, kw_only=True)
class PlayedAccelerators:
    """The accelerators that may wait."""

    names: tuple[str, ...]
    """Name of each."""
    stages: Integers
    """Stage of each, `(n,)`."""
    weights: Integers
    """How many accelerators each stands for, `(n,)`."""


def differences_in_words(
    beyond_s: Mapping[str, float], plan: Plan, *, step_s: tuple[float, float], shared_s: float, slow_s: float
) -> Iterator[str]:
    """Yields why the step differs between the depths, the part that differs most first; unknown causes are left out.

    Args:
        beyond_s: how much longer each part is at the deep depth.
        plan: the decisions.
        step_s: the step at the deep and at the fast depth.
        shared_s: how much longer sharing links makes the step.
        slow_s: how much longer slow parts make it.
    """
    deep_s, fast_s = step_s
    least_s = human.LEAST_TOLD_FRACTION * fast_s
    if abs(deep_s - fast_s) < least_s:
        yield "The step takes as long as at the fast depth."
    else:
        longer = "longer" if deep_s > fast_s else "shorter"
        apart = human.duration(abs(deep_s - fast_s))
        yield f"The step is {apart} ({human.percent(abs(deep_s / fast_s - 1.0))}) {longer} than at the fast depth."
    if slow_s >= least_s:
        yield f"Slow parts make it {human.duration(slow_s)} longer."
    if shared_s >= least_s:
        yield f"Shared links make it {human.duration(shared_s)} longer than if every flow had its links to itself."
    for name in sorted(beyond_s, key=lambda name: -abs(beyond_s[name])):
        seconds = beyond_s[name]
        if seconds > 0.0:
            # What is slow makes everything longer, and the two causes cannot be told apart.
            why = "" if slow_s >= least_s else _why_longer(name, plan, is_shared=shared_s >= least_s)
        else:
            why = _why_shorter(name, plan)
        if abs(seconds) >= least_s and why:
            longer = "longer" if seconds > 0.0 else "shorter"
            yield f"{_words(name, plan).capitalize()}: {human.duration(abs(seconds))} {longer}; {why}."


def _why_longer(name: str, plan: Plan, *, is_shared: bool) -> str:
    """Returns why a part may take longer at the deep depth; empty if no cause is known."""
    if exchanged := _exchanged(name, plan):
        return f"here {exchanged} meet other traffic on their links" if is_shared else ""
    if name == "shard_comm_s" and plan.zero_stage == ZERO_GATHERS:
        return "here gathers and reductions meet other traffic on their links" if is_shared else ""
    if plan.pipeline_parallel == 1:
        return ""
    match name:
        case "shard_comm_s":
            return "gradients are reduced behind the last of a group of micro-batches, and the fast depth takes the mean of all"
        case "gradient_sync_s":
            return "here all waits for traffic of replicas count; the fast depth counts only what makes the step longer"
        case "pipeline_bubble_s":
            return "here a wait for a stage that itself waits for traffic is a bubble"
        case _:
            return ""


def _why_shorter(name: str, plan: Plan) -> str:
    """Returns why a part may take less time at the deep depth; empty if no cause is known."""
    if exchanged := _exchanged(name, plan):
        return f"here {exchanged} count only while their rank waits for nothing that ends later"
    if name == "pipeline_bubble_s" and plan.pipeline_parallel > 1:
        return "here waits for traffic within the stage and of its replicas are not bubbles"
    return ""


def faults_in_words(faults: Faults) -> Iterator[str]:
    """Yields what is slow, or fast."""
    kinds = {
        "accelerator {} at {:g} of the usual speed": faults.speed,
        "scale-up link of accelerator {} at {:g} of its bandwidth": faults.scale_up,
        "card of accelerator {} at {:g} of its bandwidth": faults.card,
        "links of leaf {} to the spine at {:g} of their bandwidth": faults.leaf,
    }
    for words, given in kinds.items():
        yield from (words.format(number, factor) for number, factor in given.items())


def slow_links_in_words(shares: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """Yields the bandwidth shares that slow links keep, by name; links of one name may differ where other names overlap."""
    for name, (least, most) in shares.items():
        share = f"{least:g}" if least == most else f"{least:g} to {most:g}"
        if least < 1.0:
            yield f"{name} at {share} of its bandwidth"


def network_in_words(topology: Topology, *, is_folded: bool) -> Iterator[str]:
    """Yields what a network other than that of the offer changes, and how it was played."""
    yield f"The fast depth has the network of the offer, this step that of {topology.name}."
    if is_folded:
        yield "Its nodes are alike, and those that do the same were played once, with the collectives of the fast depth."
    if not topology.ramp_s.any():
        yield "There collectives of all sizes reach the whole bandwidth, so that small ones are too fast: it gives no ramp."


def _words(name: str, plan: Plan) -> str:
    from planner.recommended.design_words import part_words

    return part_words(name, [plan])


def _others(plan: Plan) -> str:
    """Returns words for what an accelerator waits for outside its own stage and its replicas."""
    return "other stages" if plan.pipeline_parallel > 1 else "other accelerators"


def _exchanged(name: str, plan: Plan) -> str:
    """Returns the traffic that passes wait for in a part of the step; empty if the part is no such wait."""
    from planner.recommended.design_words import ranks_within_layers

    if name == "tensor_comm_s":
        return f"collectives between {'- and '.join(ranks_within_layers([plan]))}-parallel ranks"
    return _EXCHANGES.get(name, "")


def waits_in_words(
    found: PlanBreakdown, played: PlayedAccelerators, plan: Plan, step_s: float
) -> Iterator[str]:
    """Yields who waits longest for whom to compute, and how long all wait for which traffic.

    Args:
        found: what played accelerators wait for.
        played: the played accelerators.
        plan: the decisions.
        step_s: how long the step is.
    """
    least_s = human.LEAST_TOLD_FRACTION * step_s
    told = [
        *_computing_in_words(found, _called(found, played.names, played.stages), played.weights, step_s),
        *_traffic_in_words(found, played, plan, least_s),
    ]
    yield from told or ["No accelerator waits for another: all traffic is hidden behind computation."]


def _computing_in_words(
    found: PlanBreakdown, called: list[str], weights: Integers, step_s: float
) -> Iterator[str]:
    groups, names = list(dict.fromkeys(called)), np.array(called)
    members = [np.flatnonzero(names == name) for name in groups]
    for_each_s = np.stack([found.waited_for_s[:, other].sum(axis=1) for other in members], axis=1)
    by_name = np.stack([np.average(for_each_s[one], axis=0, weights=weights[one]) for one in members])
    least_s = human.LEAST_TOLD_FRACTION * step_s
    longest = np.argsort(-by_name, axis=None, kind="stable")[:MOST_NAMED]
    for one, other in zip(*np.unravel_index(longest, by_name.shape), strict=True):
        waits_s = float(by_name[one, other])
        if waits_s >= least_s:
            told = f"{human.duration(waits_s)} ({human.percent(waits_s / step_s)} of the step)"
            yield f"{groups[one].capitalize()} waits {told} for {groups[other]} to compute."
    held_s = weights @ for_each_s
    if len(groups) > 2 and held_s.max() >= least_s:
        most = int(np.argmax(held_s))
        others = np.setdiff1d(np.arange(len(weights)), members[most])
        together_s = float(weights[others] @ for_each_s[others, most])
        each_s = together_s / float(weights[others].sum())
        told = f"{human.duration(each_s)} each on average, {human.duration(together_s)} together"
        yield f"All others wait longest for {groups[most]} to compute: {told}."


def _called(found: PlanBreakdown, names: tuple[str, ...], stages: Integers) -> list[str]:
    """The name of each accelerator; those that compute as long as all others of their stage have the stage's name."""
    compute_s = found.seconds[:, 0]
    called = list(names)
    for stage in np.unique(stages):
        here = np.flatnonzero(stages == stage)
        if np.ptp(compute_s[here]) <= SAME_FRACTION * compute_s[here].max():
            for row in here.tolist():
                called[row] = f"stage {stage}"
    return called


def _traffic_in_words(
    found: PlanBreakdown, played: PlayedAccelerators, plan: Plan, least_s: float
) -> Iterator[str]:
    name, weights = played.names.__getitem__, played.weights.tolist()
    for part, seconds in zip(STEP_PARTS, found.for_traffic_s.T, strict=True):
        what = f"traffic of {_others(plan) if part == 'pipeline_bubble_s' else _words(part, plan)}"
        told = waits_of_all(seconds.tolist(), what, name=name, least_s=least_s, weights=weights)
        if told:
            yield told
