"""Which rules and limits does a plan break, and by how much? Each as a sentence in numbers with the way out."""

from __future__ import annotations

from typing import Literal

import numpy as np

from constraints.evaluation import Evaluation
from constraints.layout import LAYOUT_RULES, layout_excess
from constraints.layout_rule import LayoutRule
from constraints.limits import LIMIT_NAMES, limited_quantities
from planner.layout_figures import Figures, broken_rule_text, in_words, layout_figures, nearest
from planner.notes.reasons import rule_text
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.record import Record, finite_or_none
from simulator.step.offload import offloaded_bytes_per_node

DEGREES = ("tensor_parallel", "pipeline_parallel", "context_parallel", "data_parallel")
"""What multiplies to the accelerators of a plan."""
AVAILABILITY = "gpu_range"
"""The only rule of layouts that says what can be had instead of what can run."""
_LIMITED = {
    "budget_usd": "cost_usd",
    "deadline_days": "time_to_train_days",
    "power_w": "peak_power_w",
}
"""What a limit bounds, where that has another name."""


class Violation(Record):
    """One rule or limit that a plan breaks."""

    constraint: str
    """Name of the rule or limit; `degrees` where the degrees do not multiply to `num_gpus`."""
    kind: Literal["layout", "physics", "limit"]
    """`layout`: the split cannot run or cannot be had; `physics`: memory and progress; `limit`: one that the job sets."""
    sentence: str
    """The rule with its figures and the way out."""
    figures: Figures
    """The quantities of the rule by name; what the job sets is named as `--set` takes it."""
    excess_fraction: float | None
    """By which share a limit is exceeded, or how far a layout is from keeping its rule; null where it has no bound."""
    nearest: tuple[int, ...] = ()
    """Values next to the plan's that keep the rule, for the count that the sentence names."""


def degree_figures(plan: Plan, num_gpus: int) -> Figures:
    """Returns the degrees that multiply to the accelerators of a plan, and how many of these are asked for."""
    return {name: getattr(plan, name) for name in DEGREES} | {"num_gpus": num_gpus}


def degrees_violation(plan: Plan, num_gpus: int) -> Violation:
    """Returns what is wrong when `num_gpus` are asked for and the degrees multiply to those of the plan."""
    product = " x ".join(str(getattr(plan, name)) for name in DEGREES)
    return Violation(
        constraint="degrees",
        kind="layout",
        sentence=f"{' x '.join(DEGREES)} must equal num_gpus: {product} = {plan.num_gpus:,}, not {num_gpus:,}",
        figures=degree_figures(plan, num_gpus),
        excess_fraction=abs(num_gpus / plan.num_gpus - 1.0),
    )


def layout_violations(job: Job, plan: Plan) -> list[Violation]:
    """Returns the rules of layouts that a plan breaks, in the order of `LAYOUT_RULES`."""
    excess = layout_excess(job, PlanTable.from_plans([plan]))[0]
    return [
        _layout_violation(job, plan, rule, float(far))
        for rule, far in zip(LAYOUT_RULES, excess, strict=True)
        if far > 0.0
    ]


def _layout_violation(job: Job, plan: Plan, rule: LayoutRule, far: float) -> Violation:
    return Violation(
        constraint=rule.name,
        kind="layout",
        sentence=broken_rule_text(job, plan, rule),
        figures=layout_figures(job, plan, rule.name),
        excess_fraction=far,
        nearest=nearest(job, plan, rule),
    )


def limit_violations(job: Job, evaluation: Evaluation) -> list[Violation]:
    """Returns what the single design of an evaluation exceeds, physics first."""
    excess = evaluation.excess
    broken = {name: float(getattr(excess, name)[0]) for name in excess.names()}
    return [_limit_violation(job, evaluation, name, far) for name, far in broken.items() if far > 0.0]


def _limit_violation(job: Job, evaluation: Evaluation, name: str, far: float) -> Violation:
    is_limit = name in LIMIT_NAMES
    figures = limit_figures(job, evaluation, name) if is_limit else physics_figures(job, evaluation, name)
    much = f"; exceeded by {human.digits(far * 100)} %" if np.isfinite(far) else ""
    return Violation(
        constraint=name,
        kind="limit" if is_limit else "physics",
        sentence=f"{rule_text(job, name)}: {in_words(figures)}{much}",
        figures=figures,
        excess_fraction=finite_or_none(far),
    )


def limit_figures(job: Job, evaluation: Evaluation, name: str) -> Figures:
    """Returns what a limit that the job sets bounds, and the limit."""
    quantities = limited_quantities(job, evaluation.plans, evaluation.scores, evaluation.outcomes)
    value = float(quantities[name][0])
    # What takes forever costs what it costs forever; JSON has no infinity.
    known: Figures = {_LIMITED.get(name, name): value} if np.isfinite(value) else {}
    return known | {f"limits.{name}": getattr(job.limits, name)}


def physics_figures(job: Job, evaluation: Evaluation, name: str) -> Figures:
    """Returns what memory, host memory or progress compares."""
    outcomes = evaluation.outcomes
    plan = evaluation.plans.plan(0)
    if name == "memory":
        return {
            "peak_memory_bytes": float(outcomes.summary.peak_memory_bytes[0]),
            "memory_capacity_bytes": float(outcomes.summary.memory_capacity_bytes[0]),
            **_headroom(job),
        }
    if name == "host_memory":
        offers = OfferTable.from_job(job).take(evaluation.plans.offer)
        offloaded_bytes = offloaded_bytes_per_node(job, evaluation.plans, offers)
        return {
            "host_memory_bytes": float((outcomes.checkpoints.host_memory_bytes + offloaded_bytes)[0]),
            "host_memory_capacity_bytes": job.offers[plan.offer].node.host_memory_bytes,
        }
    figures: Figures = {
        "mtbf_s": float(outcomes.run.mtbf_s[0]),
        "step_time_s": float(outcomes.steps.step_time_s[0]),
    }
    interval_s = float(outcomes.run.checkpoint_interval_s[0])
    return figures | ({"checkpoint_interval_s": interval_s} if np.isfinite(interval_s) else {})


def _headroom(job: Job) -> Figures:
    """What must stay free of the memory, if anything."""
    share = job.search.memory_headroom_fraction
    return {"search.memory_headroom_fraction": share} if share else {}
