"""How much does a vision encoder hold up the first stage of a pipeline, and which cut of the layers makes room for it?"""

from __future__ import annotations

import numpy as np

from constraints.best_cut import present_cut
from constraints.limits import usable_memory_bytes
from planner.text import human
from planner.text.cut_words import in_short
from simulator.cuts import simulate_cuts
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.layout.chunks import split_layers
from simulator.machine.rank import Rank
from simulator.step.model_parts import part_times
from simulator.step.parts import VISION, Part
from simulator.table import Integers

PAGE = "docs/how-to/images.md"
NOTEWORTHY_FRACTION = 0.01
"""Cuts that shorten the step by a smaller share are not told."""


def vision_notes(job: Job, plan: Plan) -> list[str]:
    """Returns notes on a plan; none without images."""
    vision = job.workload.model.vision
    if vision is None:
        return []
    encoder_s, layer_s = _times_s(job, plan)
    num_layers = encoder_s / layer_s
    where = ", all of it on the first stage" if plan.pipeline_parallel > 1 else ""
    told = f"as long as {num_layers:.3g} layers of the language model{where}"
    notes = [f"The vision encoder takes {human.duration(encoder_s)} of a micro-batch, {told} ({PAGE})."]
    if plan.pipeline_parallel == 1 and _ignores_encoder(job) and round(num_layers):
        notes.append(
            f"Pipelines were tried with as many layers beside the encoder as elsewhere: {_setting(round(num_layers))} tries "
            f"fewer ({PAGE})."
        )
    return [*notes, *_better_cut(job, plan)]


def _ignores_encoder(job: Job) -> bool:
    """Whether a search over pipelines cuts the layers as if the encoder took no time."""
    vision, stages = job.workload.model.vision, job.search.pipeline_parallel
    counts = vision is not None and vision.counts_as_layers > 0
    return not counts and not isinstance(job.workload.stage_layers, tuple) and max(stages or [2]) > 1


def _setting(counts_as_layers: int) -> str:
    """What a job says so that a search makes room for the encoder."""
    return f"workload.stage_layers=balanced with workload.model.vision.counts_as_layers={counts_as_layers}"


def _times_s(job: Job, plan: Plan) -> tuple[float, float]:
    """Seconds of a micro-batch, forward and backward: in the encoder, and in the last layer of the language model."""
    rank, model = Rank.of(job, PlanTable.from_plans([plan])), job.workload.model
    assert model.vision is not None
    number = {Part.PATCHES: 1, Part.ENCODER: model.vision.num_layers, Part.PROJECTOR: 1}
    times = {part: part_times(rank, part) for part in VISION}
    encoder_s = sum(number[part] * (each.forward_s[0] + each.backward_s[0]) for part, each in times.items())
    layer = part_times(rank, Part.EXPERT if model.num_expert_layers else Part.DENSE)
    return float(encoder_s), float(layer.forward_s[0] + layer.backward_s[0])


def _better_cut(job: Job, plan: Plan) -> list[str]:
    """A note if fewer layers beside the encoder shorten the step, where the job does not list the layers of every chunk."""
    present, listed = present_cut(job, plan), job.workload.stage_layers
    if plan.pipeline_parallel == 1 or present is None or isinstance(listed, tuple):
        return []
    cuts = {
        tuple(_balanced(job, plan, counts).tolist()): counts for counts in range(max(present) + 1, -1, -1)
    }
    found = simulate_cuts(job, plan, np.array([present, *cuts]))
    fits = found.peak_memory_bytes <= usable_memory_bytes(job)[plan.offer]
    times_s = np.where(fits, found.step_time_s, np.inf)
    best = int(np.argmin(times_s))
    gain = 1.0 - float(times_s[best] / found.step_time_s[0])
    if best == 0 or gain < NOTEWORTHY_FRACTION:
        return []
    cut = list(cuts)[best - 1]
    note = (
        f"With the layers cut as {in_short(cut)}, fewer of them beside the encoder, the step would take "
        f"{human.duration(float(times_s[best]))} ({human.change(-gain)}): {_setting(cuts[cut])} searches such cuts ({PAGE})."
    )
    return [note]


def _balanced(job: Job, plan: Plan, counts_as_layers: int) -> Integers:
    """Layers of every chunk, `(C,)`, if the encoder counts as this many."""
    vision = job.workload.model.vision
    assert vision is not None
    counted = vision.model_copy(update={"counts_as_layers": counts_as_layers})
    model = job.workload.model.model_copy(update={"vision": counted})
    layers = split_layers(model, PlanTable.from_plans([plan]), "balanced").num_layers[0]
    return np.asarray(layers, dtype=np.int64)
