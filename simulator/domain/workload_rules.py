"""Which choices of a run contradict its model or its optimizer? Every rule is told with the value that breaks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.domain.workload import Workload


def excluded(workload: Workload) -> str | None:
    """Returns the first contradiction between choices of a run, its model and its optimizer; `None` if there is none."""
    rules = (
        (workload.overlaps_parameter_gather, _gathers_rule),
        (workload.keeps_cast_weights, _cast_weights_rule),
        (workload.images or workload.model.vision, _images_rule),
        (workload.model.chooses_tokens, _chosen_tokens_rule),
        (workload.model.hyper_connections, _streams_rule),
        (workload.muon, _muon_rule),
    )
    return next((told for part, rule in rules if part and (told := rule(workload))), None)


def _gathers_rule(workload: Workload) -> str | None:
    """What gathers of weights need that arrive during forward passes."""
    if workload.overlaps_gradient_sync:
        return None
    return "overlaps_parameter_gather needs overlaps_gradient_sync; set both or leave it out"


def _cast_weights_rule(workload: Workload) -> str | None:
    """What weights that are kept in 8 bits exclude."""
    if not workload.gathers_cast_weights:
        return None
    return (
        "gathers_cast_weights excludes keeps_cast_weights: weights that are gathered behind their cast are in 8 bits "
        "themselves; give one of them"
    )


def _images_rule(workload: Workload) -> str | None:
    """What images need, and what they exclude."""
    images, vision = workload.images, workload.model.vision
    if images is None:
        return "model.vision needs images: give both, or leave vision out for text alone"
    if vision is None:
        return (
            f"images needs model.vision, which makes tokens of them, and {workload.model.name} has none: take a model with an "
            "encoder (capplan catalog models), write model.vision out, or leave images out"
        )
    if images.most_tokens > workload.sequence_length:
        return (
            f"images.tokens_per_image ({images.tokens_per_image}), and this times per_sequence ({images.per_sequence:g}) times "
            f"imbalance ({images.imbalance:g}), must not exceed sequence_length ({workload.sequence_length}), which counts "
            "tokens of images, too"
        )
    if workload.activation_offload_fraction:
        return (
            f"activation_offload_fraction ({workload.activation_offload_fraction:g}) excludes images: activations of vision "
            "encoders are not offloaded; leave one of them out"
        )
    return None


def _chosen_tokens_rule(workload: Workload) -> str | None:
    """What attention to chosen tokens excludes."""
    needed = {
        "attention": ("flash", "whose kernels are its own"),
        "context_exchange": ("all_gather", "which chooses among the keys of all ranks"),
        "selective_recompute": ("attention", "whose core is computed again as a whole"),
    }
    what = "latent_attention.indexer"
    if workload.model.compressed_attention:
        what = "compressed_attention"
        needed["selective_recompute"] = "attention", "whose core is never computed again"
    for name, (value, why) in needed.items():
        if (given := getattr(workload, name)) not in (None, value):
            return f"{name} ({given}) excludes {what}, {why}; set {name}: {value}"
    return None


def _streams_rule(workload: Workload) -> str | None:
    """What a residual of several streams excludes."""
    if workload.checkpoints_norms:
        return "checkpoints_norms excludes hyper_connections, whose streams stay in 16 bits; leave one of them out"
    if "mhc" in workload.recompute_modules and workload.activation_offload_fraction:
        return (
            f"activation_offload_fraction ({workload.activation_offload_fraction:g}) excludes recompute_modules mhc (Megatron "
            "Core refuses them together); give one of them"
        )
    return None


def _muon_rule(workload: Workload) -> str | None:
    """What Muon excludes."""
    others = {
        "lora": (None, "adapters are not simulated with it"),
        "optimizer_offload_fraction": (0.0, "its states stay on the accelerator"),
        "step_bytes": (None, "what it moves is counted"),
        "images": (None, "the matrices of vision encoders are not dealt"),
    }
    for name, (value, why) in others.items():
        if (given := getattr(workload, name)) != value:
            told = "" if name in ("lora", "images") else f" ({given:g})"
            return f"{name}{told} excludes muon: {why}; leave one of them out"
    experts = workload.model.experts
    if experts and experts.has_biases and workload.muon and workload.muon.reduction == "reduce_scatter":
        return (
            "muon.reduction (reduce_scatter) excludes experts with biases, which Adam updates: Megatron Core refuses it; set "
            "muon.reduction: all_reduce, or leave it out"
        )
    return None
