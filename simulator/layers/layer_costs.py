"""How long does one micro-batch take in one layer on one rank, forward and backward?

A layer consists of matrix products, an attention kernel and memory-bound operators (priced by `simulator.machine.compute`), and
exposed collectives (`simulator.traffic.layer_collectives`). Nomenclature as in `simulator.domain.model`; t, c, e are the
tensor-, context- and expert-parallel degrees; T = b s / c are the tokens of a micro-batch on one rank.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.domain.lora import FEED_FORWARD_PRODUCTS, AdaptedProduct
from simulator.domain.plan import Recompute
from simulator.layers.adapter_costs import adapters_s
from simulator.layers.attention_costs import attention_core_s, choice_s, raised_s
from simulator.layers.expert_biases import are_apart, bias_launches, biases_s
from simulator.layers.host_time import BACKWARD_RATIO, NO_MORE, host_waits_s
from simulator.layers.input_gradients import beside_products_s, entered_in_layer
from simulator.layers.linear_costs import cores_s, projections_s, scan_s
from simulator.layers.moved_operators import block_sums_s, moved_operators_s
from simulator.layers.part_times import PartTimes
from simulator.layers.recomputed_modules import (
    SHARED_EXPERTS,
    modules_s,
    repeats_block,
    repeats_core,
    repeats_exchange,
)
from simulator.layers.token_sorting import sorted_bytes, sorting_kernels
from simulator.layout.casts import num_cast_calls, num_cast_kernels
from simulator.layout.expert_ranks import expert_load
from simulator.machine.products import INTO_FEED_FORWARD, LEAVING, Batch
from simulator.machine.rank import Rank
from simulator.table import Floats, total
from simulator.traffic.adapter_exchange import adapter_exchange_s
from simulator.traffic.context_exchange import context_exchange_s
from simulator.traffic.expert_exchange import (
    expert_exchange_s,
    hidden_in_pairs_s,
    hides_in_pairs,
)
from simulator.traffic.latent_exchange import indexer_exchange_s
from simulator.traffic.layer_collectives import (
    Directions,
    in_pieces_s,
    layer_s,
    num_blocks,
    repeated_s,
)
from simulator.traffic.linear_exchange import layer_exchange_s
from simulator.traffic.routing_maps import map_scan_s

NUM_CASTS = 2.0
"""Tensors that grouped products cast to 8 or 4 bits in each direction: the inputs, or the gradients, of both products."""
NUM_BLOCK_PRODUCTS = 2.0
"""Products of a feed-forward block: into it, and out of it."""
NUM_STREAMS = 4
"""Expert products that run at a time, each in its own stream (`num_compute_streams` of Transformer Engine)."""
ROUTED_EXPERTS = "routed experts"
"""Name of the operators between dispatch and combine."""
INTO_LATENT, OUT_OF_LATENT = "product into the latent", "product out of the latent"
"""Names of the products before dispatch and after combine where experts read a latent."""


def dense_layer(rank: Rank) -> PartTimes:
    """Returns the times of a layer with an ordinary feed-forward block."""
    return _layer(rank, is_expert=False)


def expert_layer(rank: Rank) -> PartTimes:
    """Returns the times of a layer with routed experts on the most loaded rank."""
    return _layer(rank, is_expert=True)


def _layer(rank: Rank, *, is_expert: bool) -> PartTimes:
    forward_s, backward_s, core_s = _layer_compute(rank, is_expert=is_expert)
    tensor_s, expert_s = layer_collectives_s(rank, is_expert=is_expert)
    none_s = np.zeros(len(rank.plans))
    covers_s = _covers_s(rank, is_expert=is_expert)
    has_pairs = is_expert and hides_in_pairs(rank)
    hidden_s = hidden_in_pairs_s(rank, *covers_s) if has_pairs else (none_s, none_s)
    times = PartTimes(
        forward_compute_s=forward_s,
        backward_compute_s=backward_s + _recomputed_s(rank, forward_s, core_s[0], is_expert=is_expert),
        forward_tensor_comm_s=tensor_s[0],
        backward_tensor_comm_s=tensor_s[1],
        forward_expert_comm_s=expert_s[0],
        backward_expert_comm_s=expert_s[1],
        forward_hidden_s=hidden_s[0],
        backward_hidden_s=hidden_s[1],
    )
    more = _more_launches(rank) if is_expert else NO_MORE
    forward_wait_s, backward_wait_s = paired_wait_s = host_waits_s(
        rank, times.forward_s, times.backward_s, more
    )
    if has_pairs:  # what is hidden leaves more of the host's launches to wait for
        paired_wait_s = host_waits_s(
            rank, times.forward_s - hidden_s[0], times.backward_s - hidden_s[1], more
        )
    return replace(
        times,
        forward_compute_s=times.forward_compute_s + forward_wait_s,
        backward_compute_s=times.backward_compute_s + backward_wait_s,
        forward_hidden_s=hidden_s[0] + (forward_wait_s - paired_wait_s[0]),
        backward_hidden_s=hidden_s[1] + (backward_wait_s - paired_wait_s[1]),
    )


def layer_collectives_s(rank: Rank, *, is_expert: bool) -> tuple[Directions, Directions]:
    """Returns the exposed tensor- and context-parallel collectives of a layer and those of experts, recomputation included."""
    is_full = rank.plans.recompute == Recompute.FULL.code
    tensor_s = _tensor_collectives(rank, is_expert=is_expert)
    tensor_s = tensor_s[0], tensor_s[1] + is_full * tensor_s[0]
    if not is_expert:
        none_s = np.zeros(len(rank.plans))
        return tensor_s, (none_s, none_s)
    shared_s = rank.of_kernels((SHARED_EXPERTS,), lambda: _shared_experts(rank))
    exchange_s = expert_exchange_s(rank, *_covers_s(rank, is_expert=True), shared_s)
    again = is_full | repeats_exchange(rank)
    return tensor_s, (exchange_s[0], exchange_s[1] + again * exchange_s[0])


def _covers_s(rank: Rank, *, is_expert: bool) -> Directions:
    """The parts of both passes that may hide tensor-parallel traffic and expert traffic."""
    forward_s, backward_s, core_s = _layer_compute(rank, is_expert=is_expert)
    return beside_core_s(rank, forward_s, core_s[0]), beside_core_s(rank, backward_s, core_s[1])


def _recomputed_s(rank: Rank, forward_s: Floats, core_s: Floats, *, is_expert: bool) -> Floats:
    """What the backward pass recomputes: nothing, the whole forward pass, or what selective recomputation names."""
    again_s = {
        Recompute.NONE: np.zeros_like(forward_s),
        Recompute.SELECTIVE: selected_s(rank, forward_s, core_s, is_expert=is_expert),
        Recompute.FULL: forward_s,
    }
    return np.choose(rank.plans.recompute, [again_s[choice] for choice in Recompute])


def selected_s(rank: Rank, forward_s: Floats, core_s: Floats, *, is_expert: bool) -> Floats:
    """Returns the time of selective recomputation in a layer, `(n,)`.

    Args:
        rank: Ranks of the designs.
        forward_s: Computation of the layer forward.
        core_s: The part of it that is the attention core.
        is_expert: Whether the layer has experts.
    """
    if rank.workload.selective_recompute != "attention":
        return (forward_s - core_s) / 2.0
    if rank.workload.recomputes_core_alone:
        return core_s
    block = feed_forward_operators(rank, is_expert=is_expert)
    return modules_s(rank, core_s, block, is_expert=is_expert)


def _layer_compute(rank: Rank, *, is_expert: bool) -> tuple[Floats, Floats, Directions]:
    """Compute forward, compute backward without recomputation, and both for the attention core alone."""
    return rank.of_kernels(("layer", is_expert), lambda: _operators_s(rank, is_expert=is_expert))


def _operators_s(rank: Rank, *, is_expert: bool) -> tuple[Floats, Floats, Directions]:
    before, behind = projections_s(rank)
    core, scan, indexer = cores_s(rank), scan_s(rank), choice_s(rank)
    parts = feed_forward_operators(rank, is_expert=is_expert)
    ffn = total(forward_s for forward_s, _ in parts.values()), total(back_s for _, back_s in parts.values())
    moved_s = moved_operators_s(rank, is_expert=is_expert)
    forward_s, backward_s = (
        (of_before + of_behind + of_core) * rank.compute_slowdown + of_scan + of_indexer + of_block + moved
        for of_before, of_behind, of_core, of_scan, of_indexer, of_block, moved in zip(
            before, behind, core, scan, indexer, ffn, moved_s, strict=True
        )
    )
    if rank.workload.model.parallel_block:
        sums_s = block_sums_s(rank, is_expert=is_expert)
        forward_s, backward_s = forward_s + sums_s[0], backward_s + sums_s[1]
    if rank.workload.lora:
        added_s = adapters_s(rank)
        forward_s, backward_s = forward_s + added_s[0], backward_s + added_s[1]
    repeated_s = core[0] + raised_s(rank)
    core_s = repeated_s * rank.compute_slowdown + indexer[0], core[1] * rank.compute_slowdown + indexer[1]
    return forward_s, backward_s, core_s


def _tensor_collectives(rank: Rank, *, is_expert: bool) -> Directions:
    """Exposed tensor- and context-parallel collectives; backward includes those of blocks that recomputed modules repeat.

    The attention core hides the exchanges of context-parallel ranks, and nothing else if there are any.
    """
    forward_s, _, _ = _layer_compute(rank, is_expert=is_expert)
    covers_s = _covers_s(rank, is_expert=is_expert)
    tensor_forward_s, tensor_backward_s = layer_s(rank, is_expert=is_expert)
    entered, place = entered_in_layer(rank, is_expert=is_expert), f"layer {is_expert}"
    tensor_backward_s = beside_products_s(rank, tensor_backward_s, entered, place)
    forward_core_s, backward_core_s = attention_core_s(rank)
    attention_s = context_exchange_s(
        rank, (forward_core_s * rank.compute_slowdown, backward_core_s * rank.compute_slowdown)
    )
    context_forward_s, context_backward_s = layer_exchange_s(rank, attention_s)
    of_indexer_s = indexer_exchange_s(rank)
    repeated_core_s = rank.workload.model.attention_share * attention_s[0] + of_indexer_s[0]
    shown_s = (
        in_pieces_s(rank, tensor_forward_s, covers_s[0]) + context_forward_s + of_indexer_s[0],
        in_pieces_s(rank, tensor_backward_s, covers_s[1])
        + context_backward_s
        + of_indexer_s[1]
        + repeats_core(rank) * repeated_core_s
        + _repeated_collectives_s(rank, forward_s, is_expert=is_expert),
    )
    if rank.workload.lora is None:
        return shown_s
    of_adapters_s = adapter_exchange_s(rank, tuple(AdaptedProduct))
    return shown_s[0] + of_adapters_s[0], shown_s[1] + of_adapters_s[1]


def beside_core_s(rank: Rank, pass_s: Floats, core_s: Floats) -> Floats:
    """Returns the part of a pass that may hide traffic, `(n,)`; without the core if that hides context-parallel exchanges."""
    return pass_s - (rank.plans.context_parallel > 1) * core_s


def _repeated_collectives_s(rank: Rank, forward_s: Floats, *, is_expert: bool) -> Floats:
    """Exposed collectives of a block that recomputed modules repeat, next to its share of the forward pass."""
    is_again = repeats_block(rank, is_expert=is_expert)
    if not is_again.any():
        return np.zeros_like(forward_s)
    cover_s = forward_s / num_blocks(rank, is_expert=is_expert)
    shown_s = in_pieces_s(rank, repeated_s(rank), cover_s)
    return is_again * (shown_s + adapter_exchange_s(rank, FEED_FORWARD_PRODUCTS)[0])


def feed_forward_operators(rank: Rank, *, is_expert: bool) -> dict[str, Directions]:
    """Returns the operators of the second block of a layer by name; a power cap slows its products."""
    if is_expert:
        return _expert_operators(rank)
    width = rank.workload.model.ffn_hidden_size / rank.plans.tensor_parallel
    return {"feed-forward products": _ffn(rank, rank.tokens, width)}


def _ffn(
    rank: Rank,
    tokens: Floats,
    width: Floats,
    batches: tuple[Batch, Batch] = (INTO_FEED_FORWARD, LEAVING),
    *,
    input_size: int | None = None,
) -> tuple[Floats, Floats]:
    """A feed-forward block under a power cap: its input matrices as one product, then its output matrix."""
    h = np.full(len(rank.plans), float(input_size or rank.workload.model.hidden_size))
    num_inputs = rank.workload.model.num_ffn_matrices - 1
    in_forward_s, in_backward_s = rank.gemm_s(tokens, num_inputs * width, h, batches[0])
    out_forward_s, out_backward_s = rank.gemm_s(tokens, h, width, batches[1])
    return (
        (in_forward_s + out_forward_s) * rank.compute_slowdown,
        (in_backward_s + out_backward_s) * rank.compute_slowdown,
    )


def _expert_operators(rank: Rank) -> dict[str, Directions]:
    """Router, routed experts (grouped products over the rank's own experts) and shared experts.

    Experts are spread over e ranks. Each rank has E / e of them and receives tokens from all e ranks, T k / t on average. Where
    several ranks have a part of each expert, all of them compute the tokens that any of them receives.
    """
    experts = rank.workload.model.experts
    assert experts is not None
    t, shares = rank.plans.tensor_parallel, rank.workload.expert_tensor_parallel
    num_local = experts.num_experts / rank.plans.expert_parallel
    tokens_per_expert = routed_tokens(rank) / num_local
    width = np.full(len(t), experts.expert_ffn_hidden_size / shares)
    h = np.full(len(t), float(rank.workload.model.hidden_size))
    num_casts = NUM_CASTS * num_cast_kernels(rank.workload, rank.plans, num_local)
    moved, num_kernels = sorted_bytes(rank), sorting_kernels(rank)
    forward_s, backward_s = (
        rank.memory_bound_s(num_bytes, number + num_casts)
        for num_bytes, number in zip(moved, num_kernels, strict=True)
    )
    routing = rank.in_16_bits.gemm_s(rank.tokens / t, np.full_like(h, experts.num_experts), h)
    parts = {
        ROUTED_EXPERTS: _routed_experts(rank, tokens_per_expert, width, num_local),
        "router": (routing[0] * rank.compute_slowdown, routing[1] * rank.compute_slowdown),
        "permutation": (forward_s + map_scan_s(rank), backward_s),
    }
    if experts.latent_size:
        for name, product in zip((INTO_LATENT, OUT_OF_LATENT), latent_products(rank), strict=True):
            latent_s = rank.gemm_s(*product)
            parts[name] = latent_s[0] * rank.compute_slowdown, latent_s[1] * rank.compute_slowdown
    if experts.shared_ffn_hidden_size:
        parts[SHARED_EXPERTS] = _ffn(rank, rank.tokens, experts.shared_ffn_hidden_size / t)
    return parts


def latent_products(rank: Rank) -> list[tuple[Floats, Floats, Floats]]:
    """Returns tokens, output and inner size of the products to the latent of routed experts and back; none without a latent.

    Their weights are whole on every rank, which projects the tokens that it routes (`parallel_mode` `duplicated` of Megatron
    Core's `moe_layer.py`).
    """
    model, t = rank.workload.model, rank.plans.tensor_parallel
    if not (model.experts and model.experts.latent_size):
        return []
    h, low = (np.full(len(t), float(width)) for width in (model.hidden_size, model.experts.latent_size))
    return [(rank.tokens / t, low, h), (rank.tokens / t, h, low)]


def _more_launches(rank: Rank) -> Directions:
    """Host launches beyond an ordinary layer: routing, the router, products of further blocks, and casts of experts."""
    experts, plans = rank.workload.model.experts, rank.plans
    assert experts is not None
    num_local = experts.num_experts / plans.expert_parallel
    num_blocks = (num_local if rank.workload.expert_products == "separate" else 1.0) + bool(
        experts.shared_ffn_hidden_size
    )
    products = 1.0 + NUM_BLOCK_PRODUCTS * (num_blocks - 1.0) + len(latent_products(rank))
    casts = NUM_CASTS * num_cast_calls(rank.workload, plans, num_local)
    forward, backward = sorting_kernels(rank)
    biases = bias_launches(rank, num_local) if are_apart(rank) else (0.0, 0.0)
    # Frozen weights have no gradients of their own.
    back = (BACKWARD_RATIO - bool(rank.workload.lora)) * products
    return forward + casts + products + biases[0], backward + casts + back + biases[1]


def _routed_experts(rank: Rank, tokens: Floats, width: Floats, num_local: Floats) -> Directions:
    """Products of a rank's experts, in one kernel or in a few that share waves of tiles, and their biases."""
    batch, repeats = kernels_of_experts(rank, num_local)
    forward_s, backward_s = _ffn(
        rank, tokens, width, (batch, batch), input_size=rank.workload.model.expert_input_size
    )
    forward_s, backward_s = repeats * forward_s, repeats * backward_s
    if are_apart(rank):
        added_s = biases_s(rank, num_local * tokens, num_local)
        return forward_s + added_s[0], backward_s + added_s[1]
    return forward_s, backward_s


def kernels_of_experts(rank: Rank, num_local: Floats) -> tuple[Batch, Floats]:
    """Returns the products that share waves of tiles, and how many such kernels follow each other, for the experts of a rank.

    Their casts are launched with the permutation.
    """
    if rank.workload.expert_products == "grouped":
        return Batch(num_gemms=num_local, num_casts=0.0), np.ones_like(num_local)
    repeats = np.ceil(num_local / NUM_STREAMS)
    together = num_local / repeats
    return Batch(num_gemms=together, num_kernels=together, num_casts=0.0), repeats


def routed_tokens(rank: Rank) -> Floats:
    """Returns the tokens that the experts of the most loaded rank compute, counted once per expert."""
    experts = rank.workload.model.experts
    assert experts is not None
    own = (
        expert_load(rank.workload, rank.plans)
        * rank.tokens
        * experts.experts_per_token
        / rank.plans.tensor_parallel
    )
    return own * rank.workload.expert_tensor_parallel


def _shared_experts(rank: Rank) -> Directions:
    """Compute of shared experts; zero where there are none, or where the exchange does not hide behind them."""
    experts = rank.workload.model.experts
    if not (experts and experts.shared_ffn_hidden_size and rank.workload.overlaps_shared_experts):
        return np.zeros(len(rank.plans)), np.zeros(len(rank.plans))
    return _ffn(rank, rank.tokens, experts.shared_ffn_hidden_size / rank.plans.tensor_parallel)
