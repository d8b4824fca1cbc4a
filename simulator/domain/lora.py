"""What does low-rank adaptation train? Adapters for some matrix products of every layer, and their weights.

LoRA (Hu et al., arXiv 2106.09685): the weights W of a product stay fixed, and x W + x A B is computed, where only A (k x r) and
B (r x n) are trained. Products are named as in Megatron Core and NeMo.
"""

from __future__ import annotations

from pydantic import Field

from simulator.domain.model import ModelShape
from simulator.record import Choice, Record


class AdaptedProduct(Choice):
    """A matrix product of a layer that may have an adapter."""

    QKV = "linear_qkv"
    """Queries, keys and values, as one product."""
    PROJ = "linear_proj"
    """The attention block's output."""
    FC1 = "linear_fc1"
    """Into the feed-forward block, with its gate."""
    FC2 = "linear_fc2"
    """Out of the feed-forward block."""


ATTENTION_PRODUCTS = (AdaptedProduct.QKV, AdaptedProduct.PROJ)
"""Products of the attention block."""
FEED_FORWARD_PRODUCTS = (AdaptedProduct.FC1, AdaptedProduct.FC2)
"""Products of the feed-forward block."""
SPLIT_OUTPUTS = (AdaptedProduct.QKV, AdaptedProduct.FC1)
"""Products whose outputs tensor parallelism splits, and through which ranks enter a block; of the others it splits the inputs
(Megatron-LM)."""


class Lora(Record):
    """Adapters instead of full fine-tuning."""

    rank: int = Field(gt=0, le=100_000)
    """Inner size of an adapter (r)."""
    targets: tuple[AdaptedProduct, ...] = Field(default=tuple(AdaptedProduct), min_length=1)
    """Products that have one: `linear_qkv` (PEFT: q_proj, k_proj, v_proj), `linear_proj` (o_proj), `linear_fc1` (gate_proj,
    up_proj), `linear_fc2` (down_proj)."""
    exchanges_by_all_to_all: bool = False
    """Whether all-to-alls, instead of gathers, exchange the outputs of adapters of `linear_proj` and `linear_fc2` between
    tensor-parallel ranks (NeMo and Megatron-Bridge: `a2a_experimental`); needs sequence parallelism."""


def product_sizes(model: ModelShape, product: AdaptedProduct) -> tuple[int, int]:
    """Returns inner and output size of a product of a layer, of all ranks together."""
    h, d = model.hidden_size, model.head_dim
    return {
        AdaptedProduct.QKV: (h, (model.num_heads + 2 * model.num_kv_heads) * d + model.gate_width),
        AdaptedProduct.PROJ: (model.num_heads * d, h),
        AdaptedProduct.FC1: (h, (model.num_ffn_matrices - 1) * model.ffn_hidden_size),
        AdaptedProduct.FC2: (model.ffn_hidden_size, h),
    }[product]


def adapter_parameters(model: ModelShape, lora: Lora) -> int:
    """Returns the weights of the adapters of one layer: r (k + n) of each product."""
    return lora.rank * sum(sum(product_sizes(model, product)) for product in lora.targets)


def adapters_rule(model: ModelShape, lora: Lora) -> str | None:
    """Returns why a model cannot have these adapters; `None` where it can."""
    if len(set(lora.targets)) != len(lora.targets):
        return "lora.targets names a product twice; once is enough"
    if model.compressed_attention:
        return "lora is modelled for ordinary and grouped-query attention, not for compressed_attention"
    if model.latent_attention:
        return "lora is modelled for ordinary and grouped-query attention, not for latent attention"
    if model.linear_attention:
        return "lora is modelled for blocks that attend, not for linear_attention"
    if model.hyper_connections:
        return "lora is modelled for a residual of one stream, not for hyper_connections"
    if model.experts and set(FEED_FORWARD_PRODUCTS) & set(lora.targets):
        return "lora.targets linear_fc1 and linear_fc2 are not modelled for routed experts; name linear_qkv and linear_proj"
    return None
