"""How should the layers of this very plan be cut into stages? The cut with the shortest step, and the present one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from constraints.best_cut import BestCut, best_cut, present_cut
from constraints.limits import usable_memory_bytes
from planner import __version__
from planner.explain.violations import AVAILABILITY, degrees_violation, layout_violations
from planner.input.given import valid_job
from planner.input.plan_input import PLAN, plan_of
from planner.text.cut_words import megatron_layout
from simulator.cuts import simulate_cuts, stage_figures
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from simulator.errors import InputError, Problem
from simulator.record import Record

LAYERS = "layers"
"""The rule of layouts on cuts, which the cut that is looked for need not keep."""


class CutFigures(Record):
    """One cut, simulated. Stages are counted from 0."""

    layers: tuple[int, ...]
    """Layers of every chunk in model order, as `workload.stage_layers` lists them."""
    stage_layers: tuple[int, ...]
    """Layers of every stage; the same with one chunk on a stage."""
    megatron_layout: str | None
    """The cut as `--pipeline-model-parallel-layout` of Megatron Core; null where it has none: schedules in a V, hybrids."""
    step_time_s: float
    """One optimizer step."""
    slowest_stage: int
    """The stage that takes longest for a micro-batch."""
    slowest_stage_s: float
    """What it takes, forward and backward, with exposed collectives."""
    fullest_stage: int
    """The stage that needs most memory."""
    fullest_stage_bytes: float
    """What it needs."""
    fits_memory: bool
    """Whether that is no more than a design may fill: what an accelerator has, less `search.memory_headroom_fraction`."""


class LayerCut(Record):
    """The best cut of a plan's layers, and the present one."""

    schema_version: int = 2
    """Version of this form; increases when a field is removed or changes its meaning."""
    capplan_version: str
    """Version that simulated."""
    job: str
    """Name of the job."""
    plan: Plan
    """The decisions, defaults filled in."""
    memory_capacity_bytes: float
    """Memory of an accelerator."""
    memory_headroom_fraction: float = 0.0
    """Share of the memory of an accelerator that the job leaves free."""
    present: CutFigures | None
    """The cut under the job's `workload.stage_layers`; null where that cannot cut the layers for this plan."""
    best: CutFigures | None
    """The cut that fits the memory with the shortest step; null where none that fits was found."""
    gain_fraction: float | None
    """By which share the best cut's step is shorter than the present one's; negative where the present one is shorter but
    does not fit. Null without either."""
    is_proven: bool
    """Whether every cut that could be better was simulated; where `best` is null, whether every cut was."""
    is_balance_proven: bool
    """Whether the fastest slowest stage, by the costs of single layers, is proven; the search began at a cut that has it."""
    num_simulated: int
    """Simulations of cuts that were compared."""
    setting: str | None
    """What `--set` takes to get the best cut; null without one."""


def cut_layers(job: Job, plan: Plan | Mapping[str, object]) -> LayerCut:
    """Returns the cut of a plan's layers with the shortest simulated step that fits the memory.

    Args:
        job: the question.
        plan: the decisions, or a mapping of them as for `simulate_plan`.

    Raises:
        InputError: the mapping has an unknown key or a value of the wrong type, the plan cannot run whatever the cut, or it
            has one stage.

    Example:
        >>> from planner import load_job
        >>> bloom = {"tp": 4, "pp": 12, "dp": 8, "mbs": 2, "recompute": "full", "checkpoint_scheme": "sync_sharded"}
        >>> cut_layers(load_job("examples/bloom-176b.yaml"), bloom).present.layers
        (5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5)
    """
    job = valid_job(job)
    checked, num_gpus = plan_of(job, plan)
    _refuse_what_cannot_run(job, checked, num_gpus)
    found = best_cut(job, checked)
    capacity_bytes = job.offers[checked.offer].accelerator.memory_bytes
    present_layers = present_cut(job, checked)
    usable_bytes = float(usable_memory_bytes(job)[checked.offer])
    present = _figures(job, checked, present_layers, usable_bytes) if present_layers else None
    best = _figures(job, checked, found.layers, usable_bytes) if found.layers else None
    return LayerCut(
        capplan_version=__version__,
        job=job.name,
        plan=checked,
        memory_capacity_bytes=capacity_bytes,
        memory_headroom_fraction=job.search.memory_headroom_fraction,
        present=present,
        best=best,
        gain_fraction=1.0 - best.step_time_s / present.step_time_s if present and best else None,
        is_proven=found.is_proven,
        is_balance_proven=found.is_balance_proven,
        num_simulated=found.num_simulated,
        setting=_setting(found),
    )


def _refuse_what_cannot_run(job: Job, plan: Plan, num_gpus: int) -> None:
    """Raises with every rule of layouts that the plan breaks, but for that on cuts and on what is on offer."""
    broken = layout_violations(job, plan)
    if num_gpus != plan.num_gpus:
        broken.insert(0, degrees_violation(plan, num_gpus))
    problems = [
        Problem(path=one.constraint, value="", rule=one.sentence)
        for one in broken
        if one.constraint not in (AVAILABILITY, LAYERS)
    ]
    if problems:
        raise InputError(problems, PLAN)


def _figures(job: Job, plan: Plan, layers: Sequence[int], usable_bytes: float) -> CutFigures:
    cut = np.array(layers, dtype=np.int64)
    stages = stage_figures(job, plan, cut)
    slowest, fullest = int(np.argmax(stages.micro_batch_s)), int(np.argmax(stages.memory_bytes))
    return CutFigures(
        layers=tuple(layers),
        stage_layers=tuple(stages.num_layers.tolist()),
        megatron_layout=megatron_layout(job.workload.model, plan, layers),
        step_time_s=float(simulate_cuts(job, plan, cut[None, :]).step_time_s[0]),
        slowest_stage=slowest,
        slowest_stage_s=float(stages.micro_batch_s[slowest]),
        fullest_stage=fullest,
        fullest_stage_bytes=float(stages.memory_bytes[fullest]),
        fits_memory=bool(stages.memory_bytes[fullest] <= usable_bytes),
    )


def _setting(found: BestCut) -> str | None:
    if found.layers is None:
        return None
    return f"workload.stage_layers=[{', '.join(map(str, found.layers))}]"
