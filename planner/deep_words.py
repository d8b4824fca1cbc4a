"""How is a step at the deep depth explained in words? Why the depths differ, and who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from planner import human
from simulator.deep.plan_breakdown import PlanBreakdown
from simulator.deep.plan_cluster import Faults

SMALLEST_FRACTION = 0.0005
"""Of the step; what is less is not spoken of."""
MOST_NAMED = 3
"""Waits that are named."""
_WHY = {
    "tensor_comm_s": "here collectives between tensor- and context-parallel ranks meet other traffic on their links, and "
    "count where their rank waits for nothing later meanwhile",
    "expert_comm_s": "here tokens on their way to experts meet other traffic on scale-up links and cards",
    "shard_comm_s": "the fast depth hides such traffic behind whole passes, this one layer by layer: the first weights of a "
    "step are waited for",
    "pipeline_send_s": "the fast depth counts every send that its sender stands still for, with the mean time of all; "
    "here one counts by what its ends are apart, and where its sender waits for nothing else meanwhile",
    "gradient_sync_s": "here all waits for what replicas exchange count, in the fast depth by how much the step is longer "
    "for them; and reductions share links with the backward pass",
    "pipeline_bubble_s": "stages wait for what really holds the others up, and waits for replicas are not bubbles here",
}


def differences_in_words(
    beyond_s: Mapping[str, float], *, step_s: tuple[float, float], shared_s: float, slow_s: float
) -> Iterator[str]:
    """Yields why the step differs between the depths, the part that differs most first.

    Args:
        beyond_s: how much longer each part is at the deep depth.
        step_s: the step at the deep and at the fast depth.
        shared_s: what sharing links costs.
        slow_s: what slow parts cost.
    """
    deep_s, fast_s = step_s
    least_s = SMALLEST_FRACTION * fast_s
    if abs(deep_s - fast_s) < least_s:
        yield "The step takes as long as at the fast depth."
    else:
        longer = "longer" if deep_s > fast_s else "shorter"
        apart = human.duration(abs(deep_s - fast_s))
        yield f"The step is {apart} ({human.percent(abs(deep_s / fast_s - 1.0))}) {longer} than at the fast depth."
    if slow_s >= least_s:
        yield f"What is slow makes it {human.duration(slow_s)} longer."
    if shared_s >= least_s:
        yield f"Flows that share links make it {human.duration(shared_s)} longer than if each had its links for itself."
    for name in sorted(beyond_s, key=lambda name: -abs(beyond_s[name])):
        seconds = beyond_s[name]
        if abs(seconds) >= least_s and name in _WHY:
            longer = "longer" if seconds > 0.0 else "shorter"
            yield f"{_words(name)}: {human.duration(abs(seconds))} {longer}; {_WHY[name]}."


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


def _words(name: str) -> str:
    from planner.design_view import part_words

    return part_words(name).capitalize()


def waits_in_words(found: PlanBreakdown, names: tuple[str, ...], step_s: float) -> Iterator[str]:
    """Yields who waits longest for whom, and for whom all wait longest."""
    waited = found.waited_for_s.copy()
    np.fill_diagonal(waited, 0.0)
    longest = np.argsort(-waited, axis=None, kind="stable")[:MOST_NAMED]
    told = False
    for one, other in zip(*np.unravel_index(longest, waited.shape), strict=True):
        if waited[one, other] >= SMALLEST_FRACTION * step_s:
            told = True
            share = human.percent(waited[one, other] / step_s)
            yield (
                f"{names[one].capitalize()} waits {human.duration(waited[one, other])} ({share} of the step) for "
                f"{names[other]}."
            )
    held_s = waited.sum(axis=0)
    if told and len(names) > 2:
        most = int(np.argmax(held_s))
        yield f"The others wait longest for {names[most]}: {human.duration(float(held_s[most]))} together."
    own_s = np.diagonal(found.waited_for_s)
    if len(own_s) and own_s.max() >= SMALLEST_FRACTION * step_s:
        most = int(np.argmax(own_s))
        yield (
            f"{names[most].capitalize()} waits longest for traffic of its own groups: {human.duration(float(own_s[most]))}."
        )
    elif not told:
        yield "Nobody waits for anybody: all traffic is hidden behind computing."
