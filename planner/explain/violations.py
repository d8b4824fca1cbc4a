"""Which rules and limits does a plan break, and by how much? Each as a sentence in numbers with the way out."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from constraints.evaluation import Evaluation
from constraints.layout import LAYOUT_RULES, LayoutRule, layout_excess
from constraints.limits import LIMIT_NAMES, limited_quantities
from planner.notes.reasons import rule_text
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.record import Record, finite_or_none
from simulator.step.offload import offloaded_bytes_per_node

Figures = dict[str, int | float | str]

DEGREES = ("tensor_parallel", "pipeline_parallel", "context_parallel", "data_parallel")
"""What multiplies to the accelerators of a plan."""
AVAILABILITY = "gpu_range"
"""The only rule of layouts that says what can be had instead of what can run."""
WINDOW = 1024
"""How far around a value, and from 1 on, values that keep a rule are looked for."""

_KNOBS = {
    "whole_nodes": "num_gpus",
    "attention_heads": "tensor_parallel",
    "feed_forward": "tensor_parallel",
    "layers": "pipeline_parallel",
    "interleaving": "virtual_pipeline",
    "interleaved_groups": "interleaved_group_size",
    "schedule": "virtual_pipeline",
    "batch": "data_parallel",
    "sequence": "context_parallel",
    "context_exchange": "context_parallel",
    "experts": "expert_parallel",
    "shard_groups": "shard_ranks",
    "recomputed_layers": "recompute_num_layers",
}
"""Which count to change so that a rule is kept."""
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
    figures = layout_figures(job, plan, rule.name)
    near = _nearest(job, plan, rule)
    way_out = f"; nearest {_KNOBS[rule.name]}: {', '.join(map(str, near))}" if near else ""
    return Violation(
        constraint=rule.name,
        kind="layout",
        sentence=f"{rule.sentence}: {in_words(figures)}{way_out}",
        figures=figures,
        excess_fraction=far,
        nearest=near,
    )


def layout_figures(job: Job, plan: Plan, name: str) -> Figures:
    """Returns the quantities that a rule compares."""
    workload, offer = job.workload, job.offers[plan.offer]
    model = workload.model
    replica_batch = workload.global_batch_size // (plan.data_parallel * plan.micro_batch_size)
    place = f"offers[{plan.offer}].num_gpus"
    of_job: dict[str, Figures] = {
        "gpu_range": {f"{place}.min": offer.num_gpus.min, f"{place}.max": offer.num_gpus.max},
        "whole_nodes": {"gpus_per_node": offer.node.num_accelerators},
        "attention_heads": {"num_heads": model.num_heads, "num_kv_heads": model.num_kv_heads},
        "feed_forward": {"ffn_hidden_size": model.ffn_hidden_size},
        "layers": {"num_layers": model.num_layers},
        "recomputed_layers": {"num_layers": model.num_layers},
        "interleaving": {"num_microbatches": replica_batch},
        "interleaved_groups": {"num_microbatches": replica_batch},
        "batch": {"global_batch_size": workload.global_batch_size},
        "sequence": {"sequence_length": workload.sequence_length},
        "context_exchange": {
            "context_exchange": workload.chosen_exchange,
            "num_heads": model.num_heads,
            "num_kv_heads": model.num_kv_heads,
        },
        "experts": {
            "num_experts": model.experts.num_experts if model.experts else 0,
            "expert_tensor_parallel": workload.expert_tensor_parallel,
        },
        "number_format": {"accelerator": offer.accelerator.id},
        "peer_memory": {
            "gpus_per_node": offer.node.num_accelerators,
            "checkpointing.peer_copies": job.checkpointing.peer_copies,
        },
        "server_memory": {"checkpointing.num_servers": job.checkpointing.num_servers or 0},
    }
    of_plan: Figures = {each: getattr(plan, each) for each in _PLAN_FIGURES[name]}
    return {each: figure for each, figure in of_plan.items() if figure is not None} | of_job.get(name, {})


_PLAN_FIGURES = {
    "gpu_range": ("num_gpus",),
    "whole_nodes": ("num_gpus",),
    "attention_heads": ("tensor_parallel",),
    "feed_forward": ("tensor_parallel",),
    "layers": ("pipeline_parallel", "virtual_pipeline"),
    "interleaving": ("virtual_pipeline", "pipeline_parallel"),
    "interleaved_groups": ("interleaved_group_size", "virtual_pipeline", "pipeline_parallel"),
    "schedule": ("pipeline_schedule", "virtual_pipeline", "pipeline_parallel"),
    "weight_gradients": ("pipeline_schedule", "recompute", "zero_stage"),
    "batch": ("data_parallel", "micro_batch_size"),
    "sequence": ("context_parallel", "tensor_parallel"),
    "context_exchange": ("context_parallel", "tensor_parallel"),
    "experts": ("expert_parallel", "tensor_parallel", "context_parallel", "data_parallel"),
    "number_format": ("precision",),
    "recomputed_layers": ("recompute_num_layers", "recompute", "pipeline_parallel", "virtual_pipeline"),
    "shard_groups": ("shard_ranks", "context_parallel", "data_parallel"),
    "peer_memory": ("checkpoint_scheme", "num_gpus"),
    "live_replica": ("checkpoint_scheme", "data_parallel", "zero_stage", "shard_ranks", "expert_parallel"),
    "gradient_mirror": ("checkpoint_scheme", "data_parallel", "zero_stage"),
    "server_memory": ("checkpoint_scheme",),
}
"""The decisions that each rule compares."""


def _nearest(job: Job, plan: Plan, rule: LayoutRule) -> tuple[int, ...]:
    """Returns the next smaller and the next larger value of the rule's count that keep it, where they exist."""
    if rule.name not in _KNOBS:
        return ()
    knob = _KNOBS[rule.name]
    value = getattr(plan, knob)
    near = np.arange(max(1, value - WINDOW), value + WINDOW + 1, dtype=np.int64)
    values = np.unique(np.concatenate([np.arange(1, WINDOW + 1, dtype=np.int64), near]))
    repeated = PlanTable.from_plans([plan]).take(np.zeros(len(values), dtype=np.intp))
    plans = replace(repeated, **{knob: values})
    keeps = values[rule.excess(job, plans, OfferTable.from_job(job).take(plans.offer)) == 0.0]
    return tuple(keeps[keeps < value][-1:].tolist() + keeps[keeps > value][:1].tolist())


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


def in_words(figures: Figures) -> str:
    """Returns `name = value` pairs; bytes in GiB, in which memories are spoken of, without a unit in the name."""
    return ", ".join(
        f"{name.removesuffix('_bytes')} = {_figure(name, value)}" for name, value in figures.items()
    )


def _figure(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    if name.endswith("_bytes"):
        return human.memory(value)
    return f"{value:,}" if isinstance(value, int) else human.figure(value)
