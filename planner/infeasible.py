"""Why can no design satisfy the limits, and what would help? The proof, and the smallest changes that work."""

from __future__ import annotations

from constraints.bounds import kept_by_bounds
from constraints.evaluation import Evaluation, evaluate
from constraints.feasibility import conflicting_limits
from constraints.relaxation import (
    LeastValue,
    least_value,
    nearest_design,
    rounded_up,
    set_limits,
    with_limits,
)
from constraints.space import Space
from planner.designs import design_at
from planner.recommendation import Infeasibility, Relaxation
from simulator.job import Job
from simulator.plan import PlanTable
from studies.progress import Stop, never_stop

NO_ID = -1
"""Designs of a relaxation are not part of the study's table."""


def explain(job: Job, space: Space, *, should_stop: Stop = never_stop) -> Infeasibility | Evaluation:
    """Returns why no design keeps the limits, or designs that do after all, where a heuristic search missed them.

    Exact: for every limit, all layouts whose bounds could win are simulated.
    """
    if len(space.all_layouts) == 0:
        return _no_layout(job)
    if not space.bounds.fits_memory.any():
        return _no_memory(job, space)
    limits = set_limits(job)
    least = {name: least_value(job, name, should_stop=should_stop) for name in limits}
    helpful = {name: value for name, value in least.items() if value is not None}
    missed = [value.design for name, value in helpful.items() if value.value <= limits[name]]
    if missed:
        return evaluate(job, PlanTable.concatenate([design.plans for design in missed]))
    if not helpful:
        return _several_conflicts(job, space, should_stop)
    return Infeasibility(
        conflict=_conflict(job, space, helpful, limits),
        reasons=tuple(_reason(job, value, limits) for value in helpful.values()),
        proof=_proof(job, space, limits),
        relaxations=tuple(
            _relaxation(job, value)
            for value in sorted(helpful.values(), key=lambda value: value.value / limits[value.name])
        ),
    )


def _conflict(
    job: Job, space: Space, helpful: dict[str, LeastValue], limits: dict[str, float]
) -> tuple[str, ...]:
    """Limits at fault: those of which one is enough to give way, and the partner they clash with."""
    if len(helpful) > 1:
        return tuple(name for name in limits if name in helpful)
    (name,) = helpful
    alone = with_limits(job, {name: limits[name]})
    if (without_others := least_value(alone, name)) and without_others.value <= limits[name]:
        needs = {other: getattr(space.bounds, other)[space.bounds.fits_memory] for other in limits}
        by_bounds = conflicting_limits(needs, limits)
        return by_bounds if name in by_bounds and len(by_bounds) > 1 else tuple(limits)
    return (name,)


def _reason(job: Job, least: LeastValue, limits: dict[str, float]) -> str:
    name = least.name
    others = ", ".join(f"{other} = {limit:,.6g}" for other, limit in limits.items() if other != name)
    kept = f" among designs that keep {others}" if others else ""
    free = least_value(with_limits(job, {name: limits[name]}), name) if others else None
    alone = ""
    if free is not None and free.value < least.value * (1.0 - 1e-6):
        alone = f"; without the other limits it is {free.value:,.6g}"
    elif free is not None:
        alone = "; leaving the other limits out does not lower it"
    return f"{name} = {limits[name]:,.6g} cannot be met: the least{kept} is {least.value:,.6g}{alone}"


def _proof(job: Job, space: Space, limits: dict[str, float]) -> str:
    by_bounds = conflicting_limits(
        {name: getattr(space.bounds, name)[space.bounds.fits_memory] for name in limits}, limits
    )
    if by_bounds:
        return (
            f"CP-SAT: no layout of {len(space.all_layouts):,} keeps {' and '.join(by_bounds)} even at the bounds that no "
            "simulation beats"
        )
    return (
        f"exhaustion: of {len(space.all_layouts):,} layouts, all {int(space.is_kept.sum()):,} whose bounds admit the "
        "limits were simulated"
    )


def _relaxation(job: Job, least: LeastValue) -> Relaxation:
    return Relaxation(
        limits={least.name: least.proposed_limit}, example=design_at(job, least.design, 0, NO_ID)
    )


def _several_conflicts(job: Job, space: Space, should_stop: Stop) -> Infeasibility:
    """No single limit is at fault: proposes to change all that the nearest design breaks."""
    limits = set_limits(job)
    nearest = nearest_design(job, space, should_stop=should_stop)
    assert nearest is not None
    design = design_at(job, nearest, 0, NO_ID)
    reached = {
        "budget_usd": design.cost_usd,
        "deadline_days": design.time_to_train_days,
        "power_w": design.peak_power_w,
        "num_gpus": float(design.plan.num_gpus),
        "carbon_kgco2e": design.carbon_kgco2e,
    }
    changes = {name: rounded_up(reached[name]) for name, limit in limits.items() if reached[name] > limit}
    return Infeasibility(
        conflict=tuple(changes),
        reasons=tuple(
            f"{name} = {limits[name]:,.6g} is exceeded by the nearest design, which reaches {reached[name]:,.6g}"
            for name in changes
        ),
        proof=_proof(job, space, limits),
        relaxations=(Relaxation(limits=changes, example=design),),
    )


def _no_layout(job: Job) -> Infeasibility:
    ranges = ", ".join(f"{o.accelerator.id} {o.num_gpus.min:,}..{o.num_gpus.max:,}" for o in job.offers)
    return Infeasibility(
        conflict=("layout",),
        reasons=(
            f"no layout divides {job.workload.model.name} and a batch of {job.workload.global_batch_size:,} sequences over "
            f"the accelerators on offer ({ranges}); widen offers[].num_gpus or choose a batch with more divisors",
        ),
        proof="enumeration of all layouts",
        relaxations=(),
    )


def _no_memory(job: Job, space: Space) -> Infeasibility:
    count = len(space.all_layouts)
    assert not kept_by_bounds(job, space.bounds)["memory"].any()
    return Infeasibility(
        conflict=("memory",),
        reasons=(
            f"{job.workload.model.name} does not fit the memory of the accelerators on offer in any of {count:,} layouts; "
            "offer more of them or larger ones, or allow more splits (search)",
        ),
        proof="memory of every layout",
        relaxations=(),
    )
