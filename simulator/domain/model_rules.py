"""Which properties of a model contradict each other? Every rule is told with the values that break it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.domain.model import ModelShape


def shape_rule(model: ModelShape) -> str | None:
    """Returns the first rule that a model breaks; `None` if it breaks none."""
    return next(
        (rule for rules in (_layers, _mixers, _indexer, _streams, _compressed) for rule in rules(model)), None
    )


def _layers(model: ModelShape) -> Iterator[str]:
    experts = model.experts
    if model.num_heads % model.num_kv_heads:
        yield f"num_kv_heads ({model.num_kv_heads}) must divide num_heads ({model.num_heads})"
    if experts and experts.num_dense_layers > model.num_layers:
        yield f"num_dense_layers ({experts.num_dense_layers}) must not exceed num_layers ({model.num_layers})"
    if experts and experts.layer_step > model.num_layers:
        yield f"layer_step ({experts.layer_step}) must not exceed num_layers ({model.num_layers})"


def _mixers(model: ModelShape) -> Iterator[str]:
    linear = model.linear_attention
    if model.qk_norm and model.latent_attention:
        yield f"qk_norm ({model.qk_norm}) excludes latent_attention, whose latents have norms"
    if model.has_output_gate and model.latent_attention:
        yield "has_output_gate excludes latent_attention; leave one of them out"
    if linear and model.parallel_block:
        yield "linear_attention excludes parallel_block; leave one of them out"
    if linear and model.sliding_window and not linear.num_attention_blocks:
        yield "sliding_window needs blocks that attend, and num_attention_blocks is 0"
    if linear and linear.num_mixers < model.num_layers:
        yield (
            f"num_blocks ({linear.num_blocks}) and num_attention_blocks ({linear.num_attention_blocks}) of "
            f"linear_attention must add up to at least num_layers ({model.num_layers})"
        )


def _indexer(model: ModelShape) -> Iterator[str]:
    if not (indexer := model.indexer):
        return
    others = {
        "sliding_window": model.sliding_window,
        "linear_attention": model.linear_attention,
        "parallel_block": model.parallel_block,
    }
    for name, other in others.items():
        if other:
            yield f"latent_attention.indexer excludes {name}; leave one of them out"
    if (number := indexer.num_leading_layers) > model.num_layers:
        yield f"num_leading_layers ({number}) must not exceed num_layers ({model.num_layers})"


def _streams(model: ModelShape) -> Iterator[str]:
    if model.hyper_connections and model.parallel_block:
        yield "hyper_connections excludes parallel_block; leave one of them out"


def _compressed(model: ModelShape) -> Iterator[str]:
    if not (compressed := model.compressed_attention):
        return
    others = {
        "latent_attention": model.latent_attention,
        "sliding_window": model.sliding_window,
        "linear_attention": model.linear_attention,
        "parallel_block": model.parallel_block,
        "qk_norm": model.qk_norm,
        "has_output_gate": model.has_output_gate,
    }
    for name, other in others.items():
        if other:
            yield f"compressed_attention excludes {name}; leave one of them out"
    if model.num_kv_heads != 1:
        yield f"num_kv_heads ({model.num_kv_heads}) must be 1 beside compressed_attention, whose heads share one key"
    number = compressed.num_chosen_layers + compressed.num_heavy_layers
    if number > model.num_layers:
        yield f"num_chosen_layers and num_heavy_layers ({number} together) must not exceed num_layers ({model.num_layers})"
    if model.num_heads % compressed.output_groups:
        yield f"output_groups ({compressed.output_groups}) must divide num_heads ({model.num_heads})"
    if compressed.rope_head_dim > model.head_dim:
        yield f"rope_head_dim ({compressed.rope_head_dim}) must not exceed head_dim ({model.head_dim})"
