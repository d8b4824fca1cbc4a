"""How much does a vision encoder hold up the first stage of a pipeline, and which cut of the layers makes room for it?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from constraints.best_cut import cuts_beside_encoder, present_cut
from constraints.layout import recomputes_encoder
from constraints.limits import usable_memory_bytes
from planner.job.named_model import CHANGED
from planner.recommended.same_accelerators import SameAccelerators
from planner.text import human
from planner.text.cut_words import in_short
from simulator import catalog
from simulator.cuts import simulate_cuts
from simulator.domain.job import Job
from simulator.domain.plan import SPLIT_BACKWARD, Plan, PlanTable, Recompute, Schedule
from simulator.layout.encoder import share_with_images
from simulator.machine.rank import Rank
from simulator.simulate import steps_and_memory
from simulator.step.model_parts import part_times
from simulator.step.parts import VISION, Part

PAGE = "docs/how-to/images.md"
NOTEWORTHY_FRACTION = 0.01
"""Cuts that shorten the step by a smaller share are not told."""
NOTEWORTHY_MEMORY = 0.1
"""Recomputation that saves a smaller share of the memory is not told."""


def vision_notes(job: Job, plan: Plan) -> list[str]:
    """Returns notes on a plan; none without images."""
    images, vision = job.workload.images, job.workload.model.vision
    if images is None or vision is None:
        return []
    encoder_s, layer_s = _times_s(job, plan)
    share = float(share_with_images(job.workload, PlanTable.from_plans([plan]))[0])
    which = "a micro-batch" if share == 1.0 else f"a micro-batch with an image, one of {1.0 / share:,.3g}"
    where = ", all of it on the first stage" if plan.pipeline_parallel > 1 else ""
    told = f"as long as {encoder_s / share / layer_s:.3g} of the language model's layers{where}"
    notes = [f"The vision encoder takes {human.duration(encoder_s / share)} of {which}, {told} ({PAGE})."]
    if (cut := _best_cut(job, plan)) and cut.gain >= NOTEWORTHY_FRACTION:
        notes.append(
            f"With the layers cut as {in_short(cut.layers)}, fewer of them beside the encoder, the step would take "
            f"{human.duration(cut.step_s)} ({human.change(-cut.gain)}): {_setting(cut)} searches such cuts ({PAGE})."
        )
    return [*notes, *_recomputation(job, plan)]


def text_notes(job: Job) -> list[str]:
    """Returns a note if the language model of a multimodal model is trained alone."""
    if not job.workload.model.name.partition(CHANGED)[0].endswith(catalog.TEXT_ALONE):
        return []
    return [
        f"The job has no images: the language model is trained alone, without its vision encoder ({PAGE})."
    ]


def pipeline_notes(job: Job, others: SameAccelerators) -> list[str]:
    """Returns a note if pipelines were searched without room for the encoder, and one would be faster with it.

    Args:
        job: the job.
        others: the best designs on the accelerators of the recommended plan, which has no pipeline.
    """
    plan, plans = others.plan, others.leaders.plans
    if job.workload.model.vision is None or plan.pipeline_parallel > 1 or not _ignores_encoder(job):
        return []
    found = [
        (cut.step_s, cut, each)
        for each in (plans.plan(row) for row in range(len(plans)))
        if each.pipeline_parallel > 1 and (cut := _best_cut(job, each))
    ]
    if not found:
        return []
    step_s, cut, best = min(found, key=lambda each: each[0])
    own_s = float(steps_and_memory(job, PlanTable.from_plans([plan]))[0].step_time_s[0])
    if step_s > (1.0 - NOTEWORTHY_FRACTION) * own_s:
        return []
    layout = f"TP {best.tensor_parallel} x PP {best.pipeline_parallel} x DP {best.data_parallel}"
    note = (
        f"Pipelines were searched with as many layers beside the encoder as elsewhere. With fewer, {layout} would take "
        f"{human.duration(step_s)} a step, {human.change(step_s / own_s - 1.0)} against the recommended plan: {_setting(cut)} "
        f"searches such cuts ({PAGE})."
    )
    return [note]


def memory_notes(job: Job) -> list[str]:
    """Returns what may help where no design was found, if the encoder keeps activations."""
    if not _can_recompute(job, job.search.pipeline_schedules):
        return []
    note = (
        "The vision encoder keeps activations on the first stage: workload.images.encoder_recompute=full keeps inputs of its "
        f"layers alone, and workload.images.trains_encoder=false nothing ({PAGE})."
    )
    return [note]


@dataclass(frozen=True, kw_only=True)
class _Cut:
    """A cut that leaves room for the encoder."""

    layers: tuple[int, ...]
    counts_as_layers: int
    step_s: float
    gain: float
    """Share by which the step is shorter than with the present cut."""


def _ignores_encoder(job: Job) -> bool:
    """Whether a search over pipelines cuts the layers as if the encoder took no time."""
    vision, stages = job.workload.model.vision, job.search.pipeline_parallel
    counts = vision is not None and vision.counts_as_layers > 0
    return not counts and not isinstance(job.workload.stage_layers, tuple) and max(stages or [2]) > 1


def _can_recompute(job: Job, schedules: Iterable[Schedule]) -> bool:
    """Whether a trained encoder keeps more than the inputs of its layers, and need not under one of these schedules."""
    is_trained = job.workload.images is not None and job.workload.trained_vision == "all"
    keeps_activations = is_trained and not recomputes_encoder(job.workload)
    return keeps_activations and not set(SPLIT_BACKWARD).issuperset(schedules)


def _setting(cut: _Cut) -> str:
    """What a job says so that a search makes room for the encoder."""
    return (
        f"workload.stage_layers=balanced with workload.model.vision.counts_as_layers={cut.counts_as_layers}"
    )


def _recomputation(job: Job, plan: Plan) -> list[str]:
    """A note if recomputing the encoder saves much memory of the fullest accelerator, or makes a plan fit."""
    if not _can_recompute(job, [plan.pipeline_schedule]):
        return []
    assert job.workload.images is not None
    images = job.workload.images.model_copy(update={"encoder_recompute": Recompute.FULL})
    workload, plans = job.workload.model_copy(update={"images": images}), PlanTable.from_plans([plan])
    (own, own_memory), (other, other_memory) = (
        steps_and_memory(each, plans) for each in (job, job.model_copy(update={"workload": workload}))
    )
    before, after = float(own_memory.peak_bytes[0]), float(other_memory.peak_bytes[0])
    if after > (1.0 - NOTEWORTHY_MEMORY) * before:
        return []
    longer = float(other.step_time_s[0] / own.step_time_s[0]) - 1.0
    note = (
        f"With workload.images.encoder_recompute=full the fullest accelerator would need {human.memory(after)} instead of "
        f"{human.memory(before)}, and the step of this plan would be {human.percent(longer)} longer ({PAGE})."
    )
    return [note]


def _times_s(job: Job, plan: Plan) -> tuple[float, float]:
    """Seconds of a micro-batch, forward and backward: in the encoder, and in the last layer of the language model."""
    rank, model = Rank.of(job, PlanTable.from_plans([plan])), job.workload.model
    assert model.vision is not None
    number = {Part.PATCHES: 1, Part.ENCODER: model.vision.num_layers, Part.PROJECTOR: 1}
    times = {part: part_times(rank, part) for part in VISION}
    encoder_s = sum(number[part] * (each.forward_s[0] + each.backward_s[0]) for part, each in times.items())
    layer = part_times(rank, Part.EXPERT if model.num_expert_layers else Part.DENSE)
    return float(encoder_s), float(layer.forward_s[0] + layer.backward_s[0])


def _best_cut(job: Job, plan: Plan) -> _Cut | None:
    """The fastest cut with fewer layers beside the encoder; `None` where the job lists them, or none fits and is faster."""
    present, listed = present_cut(job, plan), job.workload.stage_layers
    if plan.pipeline_parallel == 1 or present is None or isinstance(listed, tuple):
        return None
    cuts = cuts_beside_encoder(job, plan)
    found = simulate_cuts(job, plan, np.array([present, *cuts]))
    fits = found.peak_memory_bytes <= usable_memory_bytes(job)[plan.offer]
    times_s = np.where(fits, found.step_time_s, np.inf)[1:]
    best = int(np.argmin(times_s))
    layers = list(cuts)[best]
    if layers == present or not np.isfinite(times_s[best]):
        return None
    gain = 1.0 - float(times_s[best] / found.step_time_s[0])
    return _Cut(layers=layers, counts_as_layers=cuts[layers], step_s=float(times_s[best]), gain=gain)
