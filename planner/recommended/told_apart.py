"""Which decisions tell designs apart whose degrees are the same? Tables add them to the layouts of such rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from planner.recommended.design_words import layout, offer_words
from planner.recommended.recommendation import Design
from planner.text import human
from simulator.domain.plan import Plan

_UNSEEN: tuple[Callable[[Plan], str], ...] = (
    lambda plan: human.counted(plan.num_spare_nodes, "spare"),
    lambda plan: f"MBS{plan.micro_batch_size}",
    lambda plan: f"groups of {plan.interleaved_group_size or plan.pipeline_parallel}",
    lambda plan: f"ZeRO-{plan.zero_stage}",
    lambda plan: f"recompute {plan.recompute.value}",
    lambda plan: plan.precision.value,
    lambda plan: plan.checkpoint_scheme.value,
)
"""Decisions that a layout omits."""


def unseen_decisions(designs: Sequence[Design]) -> list[str]:
    """Returns for each design ` 3 spares ZeRO-1`: what tells it from others of the same GPUs, site, offer and layout.

    Empty where nothing has to be told.
    """
    rows = [
        (one.plan.num_gpus, one.accelerator, one.region, layout(one.plan), offer_words(one, designs))
        for one in designs
    ]
    told = [""] * len(designs)
    for unseen in _UNSEEN:
        seen = list(zip(rows, told, strict=True))
        decisions = [unseen(design.plan) for design in designs]
        num_decisions = Counter(of_equals for of_equals, _ in set(zip(seen, decisions, strict=True)))
        told = [
            f"{before} {decision}" if num_decisions[row, before] > 1 else before
            for (row, before), decision in zip(seen, decisions, strict=True)
        ]
    return told
