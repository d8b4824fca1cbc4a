"""How well are steps like the recommended one's known? What a reader should know before trusting a simulated time."""

from __future__ import annotations

from collections.abc import Sequence

from planner.chosen_kernels import HEAD_TILES
from planner.notes.step_note import PARTS, StepNote, texts
from planner.recommended.recommendation import Design, Uncertainty
from planner.text import human
from planner.uncertain.uncertainty import calibrated_accuracy
from simulator.accuracy.published_runs import (
    EXPERTS_ERROR_FRACTION,
    LEAST_ROWS,
    network_error,
    step_time_error,
)
from simulator.accuracy.step_error import is_measured
from simulator.domain.hardware import Accelerator
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.machine.compute import has_measured_kernels
from simulator.step.step_reach import parts_beyond, reach_of

ONE_SIDED_FRACTION = 0.05
"""Mean error from which it is worth a note."""
UNEQUAL_FRACTION = 0.05
"""Difference of two mean errors from which a comparison is worth a note."""

_BEYOND = f"No published step with {PARTS} was compared, so the error is assumed to be twice as large (docs/validation.md)."
"""What is told of a step with parts that go beyond everything compared."""
WIDE_RATIO = 2.0
"""Upper over lower end of the interval of a measured step from which it is told beside the recommendation."""

KNOWN_STEPS = {
    "tpu": "13 published steps on TPU v6e, on which no constant was fitted, are simulated 2 to 12 % too fast: beside GPUs, "
    "TPUs are likely slower than this answer says"
}
"""What published steps say of architectures with efficiencies of another one, scaled (`benchmarks/data/tpu_steps.csv`)."""
KNOWN_HYBRIDS = (
    "Published steps of hybrids that are not part of that validation are mostly simulated 12 to 36 % too fast: beside "
    "transformers, hybrids are likely slower than this answer says (docs/limits.md)."
)
"""What published steps say of models with linear attention (docs/model/hybrids.md)."""
BACKWARD_OF_CHOSEN = (
    "Attention to chosen tokens runs backward on {names} at the speed of the only published kernel for Hopper, a fifth of its "
    "forward speed{others}. With one as good as Blackwell's, steps there are at the lower end of their interval "
    "(docs/model/sparse-attention.md)."
)
"""What is known of kernels for attention to chosen tokens on other architectures than Blackwell."""


def step_time_doubt(design: Design, uncertainty: Uncertainty, notes: str) -> str:
    """Returns a warning about a step time that hardly anything measured stands behind, to show at once; empty for others.

    Args:
        design: the design.
        uncertainty: that of the design.
        notes: heading of the notes, which say more.
    """
    low, high = uncertainty.step_time_low_s, uncertainty.step_time_high_s
    if uncertainty.are_kernels_scaled:
        cause = f"no kernel of {design.accelerator} or of its architecture was measured"
    elif high > WIDE_RATIO * low:
        cause = "few measured steps of its kind were compared, or none"
    else:
        return ""
    interval = f"{human.duration(low)} to {human.duration(high)}"
    return f"Its step time is uncertain, {interval} in four of five cases: {cause} ({notes})."


def accuracy_notes(job: Job, uncertainty: Uncertainty | None, best: Design | None) -> list[str]:
    """Returns what is known of the error of simulated steps, on the accelerators on offer and for the recommended design.

    Args:
        job: the job.
        uncertainty: that of the recommended design.
        best: the recommended design.
    """
    notes = _one_sided_error(uncertainty, best.time_to_train_days) if uncertainty and best else []
    notes += texts(never_measured_notes(job, best.plan)) if best else []
    notes += _unequal_errors(job)
    published = [o.accelerator for o in job.offers if not _is_all_calibrated(job, o.accelerator)]
    if published if best is None else not _is_calibrated(job, best.plan):
        notes += _hardly_validated(job)
    return notes + _slow_backward(job, published) + _scaled_kernels(published)


def step_notes(job: Job, plan: Plan) -> list[StepNote]:
    """Returns why the step of a plan is known less well than most; nothing where the owner of the job measured its like."""
    if _is_calibrated(job, plan):
        return []
    own = [job.offers[plan.offer].accelerator]
    others = [*_hardly_validated(job), *_slow_backward(job, own), *_scaled_kernels(own)]
    return [*never_measured_notes(job, plan), *(StepNote(sentence=note) for note in others)]


def _one_sided_error(uncertainty: Uncertainty, days: float) -> list[str]:
    """A note if enough steps like those of the recommended design were simulated too fast or too slow."""
    bias, num_rows = uncertainty.step_time_bias_fraction, uncertainty.step_time_num_compared
    if abs(bias) < ONE_SIDED_FRACTION or not uncertainty.is_step_time_measured or num_rows < LEAST_ROWS:
        return []
    way = "fast" if bias < 0 else "slow"
    known = (
        f"Steps like those of the recommended design were simulated {human.whole_percent(abs(bias))} too {way} on "
        f"{uncertainty.step_time_compared_with}"
    )
    corrected = f"the time to train would be about {human.days(days / (1.0 + bias))}; cost and energy change in proportion"
    return [f"{known}. With this bias corrected, {corrected}."]


def never_measured_notes(job: Job, plan: Plan) -> list[StepNote]:
    """Returns notes if a plan or its accelerator lies outside all steps that were compared."""
    accelerator = job.offers[plan.offer].accelerator
    if _is_calibrated(job, plan):
        return []
    notes = []
    if parts := parts_beyond(reach_of(job, PlanTable.from_plans([plan]), 0)):
        notes.append(StepNote(sentence=_BEYOND, parts=parts))
    if job.workload.model.linear_attention:
        notes.append(StepNote(sentence=KNOWN_HYBRIDS))
    is_new = not is_measured(accelerator.id, has_experts=job.workload.model.experts is not None)
    if is_new and has_measured_kernels(accelerator):
        note = f"No published step on {accelerator.id} was compared, so the error of the least accurate group is assumed"
        notes.append(StepNote(sentence=f"{note} (docs/validation.md)."))
    return notes


def _unequal_errors(job: Job) -> list[str]:
    """A note if the accelerators on offer are simulated with different biases."""
    has_experts = job.workload.model.experts is not None
    kinds = {
        (o.accelerator.family, precision.value)
        for o in job.offers
        for precision in job.workload.precisions
        if is_measured(o.accelerator.id, has_experts=has_experts)
        and calibrated_accuracy(job, o.accelerator.id, precision) is None
    }
    errors = {kind: step_time_error(*kind, has_experts=has_experts) for kind in sorted(kinds)}
    biases = {kind: error.bias_fraction for kind, error in errors.items() if error.is_known}
    if len(biases) < 2 or max(biases.values()) - min(biases.values()) < UNEQUAL_FRACTION:
        return []
    figures = ", ".join(
        f"{family} in {fmt} {human.signed_percent(bias, num_decimals=0)}"
        for (family, fmt), bias in biases.items()
    )
    note = f"Simulated steps differ from published ones by {figures} on average (docs/validation.md)"
    return [f"{note}; comparisons between them inherit the difference."]


def _hardly_validated(job: Job) -> list[str]:
    """A note on mixtures of experts."""
    if job.workload.model.experts is None:
        return []
    known = network_error(has_experts=True)
    way = "fast" if known.bias_fraction < 0 else "slow"
    note = (
        f"Step times of mixtures of experts are barely validated (docs/validation.md): assume an error of at least "
        f"{human.whole_percent(EXPERTS_ERROR_FRACTION)} either way. The mean error on {known.num_rows} published "
        f"configurations is {human.whole_percent(known.mean_absolute_error_fraction)}; on average they are simulated "
        f"{human.whole_percent(abs(known.bias_fraction))} too {way}; groups of fewer than {LEAST_ROWS} correct no figure."
    )
    return [note]


def _slow_backward(job: Job, accelerators: Sequence[Accelerator]) -> list[str]:
    """A note on the accelerators without a published backward kernel of their own for the job's attention to chosen tokens."""
    slow = [each for each in accelerators if each.kernel_family != "blackwell"]
    if not (job.workload.model.chooses_tokens and slow):
        return []
    names, others = (
        ", ".join(dict.fromkeys(each.id for each in some)) for some in (slow, _without_any(slow))
    )
    return [
        BACKWARD_OF_CHOSEN.format(names=names, others=f"; for {others} none is published" if others else "")
    ]


def _without_any(accelerators: Sequence[Accelerator]) -> list[Accelerator]:
    """Those for which no kernel for chosen tokens is published at all."""
    return [each for each in accelerators if each.kernel_family not in HEAD_TILES]


def _scaled_kernels(accelerators: Sequence[Accelerator]) -> list[str]:
    """Notes on the accelerators whose kernels nobody measured, and what published steps say of their architectures."""
    scaled = [each for each in accelerators if not has_measured_kernels(each)]
    if not scaled:
        return []
    names, families = ", ".join(dict.fromkeys(each.id for each in scaled)), {each.family for each in scaled}
    origins = {"Blackwell" if each.kernel_family == "blackwell" else "Hopper" for each in scaled}
    note = (
        f"No kernel measurements are known for {names}; efficiencies are scaled from "
        f"{' and '.join(sorted(origins))}. Measure a step"
    )
    known = [f"{told} (docs/limits.md)." for family, told in KNOWN_STEPS.items() if family in families]
    return [f"{note} before you rely on them (docs/limits.md).", *known]


def _is_calibrated(job: Job, plan: Plan) -> bool:
    accelerator = job.offers[plan.offer].accelerator.id
    return calibrated_accuracy(job, accelerator, plan.precision) is not None


def _is_all_calibrated(job: Job, accelerator: Accelerator) -> bool:
    """Whether the owner measured steps on an accelerator in every number format of the job."""
    formats = job.workload.precisions
    return all(calibrated_accuracy(job, accelerator.id, precision) is not None for precision in formats)
