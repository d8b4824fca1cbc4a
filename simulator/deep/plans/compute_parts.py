"""Which operators does the fast depth's computing consist of? Those that the deep depth plays, without playing them.

The fast depth adds up the operators of every part of a model, forward and backward, and what the backward pass recomputes:

    compute_s  =  (micro-batches / stages)  x  sum over parts  number of the part  x  sum over operators  seconds

The deep depth plays the same operators one by one, so that both have one list of them (`simulator.deep.plans.plan_parts`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from simulator.deep.plans.plan_ends import OUTPUT
from simulator.deep.plans.plan_items import LENT, Items, works_of
from simulator.deep.plans.plan_parts import PlanParts
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable, Recompute
from simulator.layers.model_ends import loss_s
from simulator.layout.chunks import split_layers
from simulator.layout.micro_batches import num_micro_batches
from simulator.layout.recomputed_layers import without_recompute
from simulator.machine.rank import Rank
from simulator.record import Record
from simulator.step.parts import VISION, Part, counts_of_parts

VISION_ENCODER = "vision encoder"
"""Name of everything that its parts compute."""
LOSS = "loss"
"""Name of the loss, which the deep depth plays as one operator with the product of the output layer."""


class OperatorTime(Record):
    """How long one kind of operator takes in a step, on average over the accelerators; all of them sum to `compute_s`."""

    name: str
    """Kind of operator, as at the deep depth, such as `attention core`."""
    forward_s: float
    """In forward passes."""
    backward_s: float
    """In backward passes, without what is recomputed there."""
    recomputed_s: float
    """Recomputed in backward passes."""


def compute_parts(job: Job, plan: Plan) -> tuple[OperatorTime, ...]:
    """Returns the operators of a step, in the order in which a micro-batch first meets them; they sum to `compute_s`.

    Args:
        job: the job.
        plan: a layout that can run.
    """
    plans = PlanTable.from_plans([plan])
    chunks = split_layers(job.workload.model, plans, job.workload.stage_layers)
    rank = Rank.of(job, plans)
    whole = PlanParts(rank=rank, chunks=chunks)
    once = PlanParts(rank=_without_recompute(rank), chunks=chunks)
    per_gpu = float((num_micro_batches(job.workload, plans) / plans.pipeline_parallel)[0])
    forward, backward, again = (defaultdict[str, float](float) for _ in range(3))
    counts = counts_of_parts(job.workload, plans, chunks)
    for kind, passes in sorted(whole.passes.items(), key=lambda each: list(counts).index(each[0])):
        number = per_gpu * float(counts[kind].sum())
        alone = passes.backward if kind.is_kept else once.passes[kind].backward
        found = [
            dict(_by_name(rank, kind, items, way))
            for way, items in enumerate((passes.forward, passes.backward, alone))
        ]
        for name, seconds in found[0].items():
            forward[name] += number * seconds
        for name, seconds in found[1].items():
            own_s = min(seconds, found[2].get(name, 0.0))
            backward[name] += number * own_s
            again[name] += number * (seconds - own_s)
    names = dict.fromkeys((*forward, *backward))
    return tuple(
        OperatorTime(name=name, forward_s=forward[name], backward_s=backward[name], recomputed_s=again[name])
        for name in names
        if forward[name] + backward[name] + again[name] > 0.0
    )


def _without_recompute(rank: Rank) -> Rank:
    """The same rank with nothing recomputed, in a vision encoder neither."""
    workload, plans = rank.workload, without_recompute(rank.plans)
    if workload.images:
        images = workload.images.model_copy(update={"encoder_recompute": Recompute.NONE})
        workload = workload.model_copy(update={"images": images})
    return replace(rank, workload=workload, plans=plans)


def _by_name(rank: Rank, kind: Part, items: Items, way: int) -> Iterator[tuple[str, float]]:
    """Yields the operators of one pass, each name once."""
    found = defaultdict[str, float](float)
    for work in works_of(items):
        if not (work.in_pairs or work.label.startswith(LENT)):
            found[work.label] += work.duration_s
    if kind in VISION:
        yield VISION_ENCODER, sum(found.values())
        return
    if kind is Part.OUTPUT and OUTPUT in found:
        of_loss_s = rank.workload.model.num_predicted_tokens * float(loss_s(rank)[min(way, 1)][0])
        found[OUTPUT] -= of_loss_s
        found[LOSS] += of_loss_s
    yield from found.items()
