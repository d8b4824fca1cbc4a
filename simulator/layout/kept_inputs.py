"""Which inputs do a layer's products keep for their weight gradients, and what do norms keep as a result?

A tensor that several products read is kept once in 16 bits. In 8 and 4 bits each product has its own copy (Transformer Engine),
unless it is told to keep its original input, which exists anyway (`save_original_input`; Megatron Core since 2025).

Operators that run one by one in Llama-like blocks keep more, as PyTorch's autograd saves it: a norm keeps the 32-bit copy of
its input instead of the input, and the 16-bit values that its weights multiply; the gate's SiLU keeps its output. Fused norms
and activations, and PyTorch's LayerNorm and GELU, keep their inputs. docs/calibrate.md shows what layers kept on an H100.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.hardware import Precision
from simulator.domain.lora import AdaptedProduct
from simulator.domain.model import ModelShape
from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.layout.casts import product_bytes
from simulator.table import Booleans, Floats, Integers

ACTIVATION_BYTES = 2.0
"""16-bit activations."""
WIDE_BYTES = 4.0
"""Copies in 32 bits."""


def runs_one_by_one(workload: Workload) -> bool:
    """Returns whether small operators are launched one by one, in Llama-like blocks.

    Such blocks have a gate, and are assumed to have RMS norms and rotary positions as well.
    """
    return not workload.has_fused_operators and workload.model.is_gated


def separate_width(workload: Workload, plans: PlanTable) -> Floats:
    """Bytes per token on one rank that norms keep beyond fused ones where operators run one by one, `(n,)`."""
    if not runs_one_by_one(workload):
        return np.zeros(len(plans))
    model = workload.model
    # The gradient of weights that are not frozen.
    weighed = ACTIVATION_BYTES if workload.lora is None else 0.0
    copies = WIDE_BYTES + weighed
    residual = (
        copies * model.num_layer_norms - ACTIVATION_BYTES * model.num_blocks_in_turn
    ) * model.hidden_size
    values = model.attention_dims[0] * (model.num_heads + model.num_key_heads) if model.qk_norm else 0
    added = (copies - ACTIVATION_BYTES) * model.attention_share * values
    return np.asarray(residual / sequence_split(workload, plans) + added / plans.tensor_parallel)


def input_bytes(workload: Workload, plans: PlanTable) -> Floats:
    """Bytes of an input that a product keeps: in its own number format, or in 16 bits for adapters (Megatron-Bridge)."""
    return np.full(len(plans), ACTIVATION_BYTES) if workload.lora else product_bytes(plans)


def keeps_input(workload: Workload, product: AdaptedProduct) -> float:
    """1 if a product needs its input again, for the gradient of its weights or its adapter's; 0 if both are frozen."""
    return 1.0 if workload.lora is None or product in workload.lora.targets else 0.0


def copies_what_is_there(workload: Workload, plans: PlanTable) -> Booleans:
    """Whether 8-bit scales come from earlier steps: products then keep their own copy of what exists in 16 bits.

    Adapters read what exists.
    """
    is_delayed = (plans.precision == Precision.FP8.code) & (workload.fp8_recipe == "delayed")
    return np.asarray(is_delayed & (workload.lora is None))


def norm_output_bytes(
    workload: Workload, plans: PlanTable, behind: AdaptedProduct, *, is_expert: bool
) -> Floats:
    """Bytes per value kept of a norm's output: one tensor in 16 bits, or in fewer bits a copy for each product behind it.

    Two products go down to latents, two are a latent and the key of compressed attention, and two enter a block of Kimi Delta
    Attention. The router keeps its input in 16 bits, frozen or not (`RouterGatingLinearFunction` of Megatron Core). Shared
    experts read that copy, except with `delayed` scaling (`save_original_input` of Transformer Engine 2.6, which the product
    into a latent of experts is not asked for).
    """
    narrow = product = input_bytes(workload, plans)
    if behind is AdaptedProduct.QKV:
        narrow = _num_entered(workload.model) * product
        if workload.model.compressed_attention:  # compressors read it in 16 bits
            narrow = ACTIVATION_BYTES + narrow
    if behind is AdaptedProduct.FC1 and is_expert:
        experts = workload.model.experts
        of_shared = bool(experts and experts.shared_ffn_hidden_size) * product
        of_latent = bool(experts and experts.latent_size) * product
        narrow = ACTIVATION_BYTES + copies_what_is_there(workload, plans) * of_shared + of_latent
    kept = np.where(product < ACTIVATION_BYTES, narrow, product)
    is_read = behind is AdaptedProduct.FC1 and is_expert
    return np.asarray(kept if is_read else keeps_input(workload, behind) * kept)


def _num_entered(model: ModelShape) -> float:
    """Products that read the norm in front of a block that mixes tokens, mean over the blocks of a hybrid."""
    of_attention = 2.0 if model.has_separate_norms else 1.0
    if model.linear_attention is None:
        return of_attention
    of_linear = 2.0 if model.linear_attention.low_rank else 1.0
    return (model.attention_share * of_attention + model.linear_share * of_linear) / model.num_mixers


def norm_width(workload: Workload, plans: PlanTable, behind: AdaptedProduct, *, is_expert: bool) -> Floats:
    """Bytes per token kept of a norm's output for the product behind it; a shared output is kept for attention."""
    if behind is AdaptedProduct.FC1 and workload.model.num_layer_norms == 1:
        return np.zeros(len(plans))
    kept = norm_output_bytes(workload, plans, behind, is_expert=is_expert) * workload.model.hidden_size
    return np.asarray(kept / sequence_split(workload, plans))


def sequence_split(workload: Workload, plans: PlanTable) -> Integers | int:
    """Number of ranks that norms and residuals are split among."""
    return plans.tensor_parallel if workload.has_sequence_parallel else 1
