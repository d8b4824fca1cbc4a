"""What should a reader know of a plan with Muon? What nobody measured, padded buffers, and settings that would be faster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.layout.chunks import split_layers
from simulator.layout.trained_weights import StepWeights
from simulator.simulate import steps_and_memory
from simulator.step.step import StepTable

PAGE = "docs/model/muon.md"
NOTEWORTHY_FRACTION = 0.01
"""Settings that save a smaller share of the step are not told."""
NOTEWORTHY_PADDING = 0.1
"""Padding of a smaller share of the weights is not told."""


def muon_notes(job: Job, plan: Plan) -> list[str]:
    """Returns notes on a plan; none without Muon."""
    if job.workload.muon is None:
        return []
    step = _step(job, plan, {})
    update_s, step_s = float(step.optimizer_s[0]), float(step.step_time_s[0])
    notes = []
    notes.append(
        f"No published step with Muon stands behind the time of its update, {human.duration(update_s)} of a step of "
        f"{human.duration(step_s)} ({PAGE})."
    )
    if (padded := _padded_fraction(job, plan)) >= NOTEWORTHY_PADDING:
        notes.append(
            f"Buffers of gradients and weights are {human.percent(padded)} longer than the weights, so that the share of every "
            f"rank holds whole matrices ({PAGE})."
        )
    return [*notes, *_faster(job, plan, step_s)]


def _step(job: Job, plan: Plan, settings: Mapping[str, object]) -> StepTable:
    """The step with other settings of Muon."""
    assert job.workload.muon is not None
    muon = job.workload.muon.model_copy(update=dict(settings))
    workload = job.workload.model_copy(update={"muon": muon})
    return steps_and_memory(job.model_copy(update={"workload": workload}), PlanTable.from_plans([plan]))[0]


def _padded_fraction(job: Job, plan: Plan) -> float:
    """Padding of all buffers over the weights in them."""
    workload, plans = job.workload, PlanTable.from_plans([plan])
    weights = StepWeights.of(workload, plans, split_layers(workload.model, plans, workload.stage_layers))
    exchanged, trained = weights.exchanged, weights.trained
    more = (exchanged.shared + exchanged.routed).sum() / (trained.shared + trained.routed).sum()
    return float(more - 1.0)


def _faster(job: Job, plan: Plan, step_s: float) -> Iterator[str]:
    """Settings with which the step would be shorter, and that compute the same update."""
    muon = job.workload.muon
    assert muon is not None
    others = {"tensor_mode": ("duplicated", "distributed"), "reduction": ("reduce_scatter", "all_reduce")}
    for name, values in others.items():
        given = getattr(muon, name)
        if given not in {*values, None}:  # another update
            continue
        times_s = {value: float(_step(job, plan, {name: value}).step_time_s[0]) for value in values}
        best = min(times_s, key=times_s.__getitem__)
        if times_s[best] < (1.0 - NOTEWORTHY_FRACTION) * step_s:
            yield (
                f"With workload.muon.{name}={best} the step would take {human.duration(times_s[best])} "
                f"({human.signed_percent(times_s[best] / step_s - 1.0)}) instead of {human.duration(step_s)}."
            )
