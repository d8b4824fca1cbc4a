"""Which values break a rule of layouts, and which ones next to them keep it?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from constraints.layout import shared_vision
from constraints.layout_rule import LayoutRule
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan, PlanTable
from simulator.machine.offer_table import OfferTable

Figures = dict[str, int | float | str]

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


def broken_rule_text(job: Job, plan: Plan, rule: LayoutRule) -> str:
    """Returns a rule that a plan breaks, with the values that it compares and those next to them that keep it."""
    near = nearest(job, plan, rule)
    way_out = f"; nearest {_KNOBS[rule.name]}: {', '.join(map(str, near))}" if near else ""
    return f"{rule.sentence}: {in_words(layout_figures(job, plan, rule.name))}{way_out}"


def layout_figures(job: Job, plan: Plan, name: str) -> Figures:
    """Returns the quantities that a rule compares."""
    workload, offer = job.workload, job.offers[plan.offer]
    model = workload.model
    replica_batch = workload.global_batch_size // (plan.data_parallel * plan.micro_batch_size)
    place = f"offers[{plan.offer}].num_gpus"
    nodes: Figures = {}
    if offer.max_nodes is not None:
        nodes = {"num_spare_nodes": plan.num_spare_nodes, f"offers[{plan.offer}].max_nodes": offer.max_nodes}
    of_job: dict[str, Figures] = {
        "gpu_range": {f"{place}.min": offer.num_gpus.min, f"{place}.max": offer.num_gpus.max, **nodes},
        "whole_nodes": {"gpus_per_node": offer.node.num_accelerators},
        "attention_heads": {**_heads(model), **_of_vision(model, "num_heads")},
        "feed_forward": {
            "ffn_hidden_size": model.ffn_hidden_size,
            **_of_vision(model, "ffn_hidden_size"),
        },
        "layers": {"num_layers": model.num_layers},
        "weight_gradients": {"images.encoder_recompute": workload.images.encoder_recompute.value}
        if workload.images
        else {},
        "recomputed_layers": {"num_layers": model.num_layers},
        "interleaving": {"num_microbatches": replica_batch},
        "interleaved_groups": {"num_microbatches": replica_batch},
        "batch": {"global_batch_size": workload.global_batch_size},
        "sequence": {"sequence_length": workload.sequence_length},
        "context_exchange": {
            "context_exchange": workload.chosen_exchange,
            **_heads(model),
        },
        "experts": {
            "num_experts": model.experts.num_experts if model.experts else 0,
            "expert_tensor_parallel": workload.expert_tensor_parallel,
        },
        "shard_groups": {"expert_tensor_parallel": workload.expert_tensor_parallel} if model.experts else {},
        "live_replica": {"expert_tensor_parallel": workload.expert_tensor_parallel} if model.experts else {},
        "number_format": {"accelerator": offer.accelerator.id},
        "peer_memory": {
            "gpus_per_node": offer.node.num_accelerators,
            "checkpointing.peer_copies": job.checkpointing.peer_copies,
        },
        "server_memory": {"checkpointing.num_servers": job.checkpointing.num_servers or 0},
    }
    of_experts = _EXPERT_FIGURES.get(name, ()) if model.experts else ()
    of_plan: Figures = {each: getattr(plan, each) for each in (*_PLAN_FIGURES[name], *of_experts)}
    return {each: figure for each, figure in of_plan.items() if figure is not None} | of_job.get(name, {})


def _heads(model: ModelShape) -> Figures:
    """The heads of attention, and of the blocks with a state in a hybrid."""
    linear = model.linear_attention
    of_states: Figures = {
        f"linear_attention.{name}": getattr(linear, name) for name in ("num_heads", "num_key_heads") if linear
    }
    return {"num_heads": model.num_heads, "num_kv_heads": model.num_kv_heads, **of_states}


def _of_vision(model: ModelShape, name: str) -> Figures:
    """A size of a vision encoder that tensor-parallel ranks share."""
    vision = shared_vision(model)
    return {f"vision.{name}": getattr(vision, name)} if vision else {}


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
    "shard_groups": ("shard_ranks", "context_parallel", "data_parallel", "zero_stage"),
    "whole_matrices": ("zero_stage", "shard_ranks", "precision"),
    "peer_memory": ("checkpoint_scheme", "num_gpus"),
    "live_replica": ("checkpoint_scheme", "data_parallel", "zero_stage", "shard_ranks", "expert_parallel"),
    "gradient_mirror": ("checkpoint_scheme", "data_parallel", "zero_stage"),
    "server_memory": ("checkpoint_scheme",),
}
"""The decisions that each rule compares."""
_EXPERT_FIGURES = {
    "shard_groups": ("tensor_parallel", "expert_parallel"),
    "live_replica": ("context_parallel", "tensor_parallel"),
}
"""Further decisions that a rule compares for models with experts."""


def nearest(job: Job, plan: Plan, rule: LayoutRule) -> tuple[int, ...]:
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
