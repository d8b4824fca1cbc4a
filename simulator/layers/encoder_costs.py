"""How long do the parts of a vision encoder take on the first stage? Patches, layers, projectors.

With P patches of h values each, of p pixels, on a rank; T tokens of the language model of width H, I of them from images:

    patches      P h p product, whole on every tensor-parallel rank; positions are added
    a layer      as a layer without experts of a transformer of that shape (`simulator.layout.encoder`)
    projector    products of I rows, split by columns and by rows in turn; patches of a token are put side by side before them
    placing      all tokens are written once empty and once with their text or image; backward both gradients are gathered

Times are means over all micro-batches; with less than one image in each on average, only some of them run the encoder.

A projector leaves two products with an all-reduce of its tokens, or a last one alone with a gather, and enters them backward
with an all-reduce of the gradient of its input, where the encoder is trained (Megatron-LM: `MultimodalProjector`,
`_preprocess_data` of `LLaVAModel`). What is frozen has no backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.domain.vision import VisionEncoder
from simulator.layers.layer_costs import dense_layer
from simulator.layers.moved_operators import SUM_PASSES
from simulator.layers.part_times import PartTimes
from simulator.layers.weight_gradients import dense_layer_weight_gradients_s
from simulator.layout.encoder import encoder_plans, encoder_workload, share_with_images
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.machine.network import all_gather_s, all_reduce_s
from simulator.machine.rank import Rank, once_per_rank
from simulator.table import Floats, total
from simulator.traffic.layer_collectives import Directions

COPY_PASSES = 2.0
"""A read and a write: patches of a token side by side; the activation between two products; a gradient that is gathered."""
PLACING_PASSES = 3.0
"""An empty token is written, then a text or image is read and written in its place."""
PRODUCTS_OF_A_BLOCK = 2
"""Products of a projector between two collectives: one split by columns, one by rows."""


@once_per_rank
def encoder_rank(rank: Rank) -> Rank:
    """Returns the ranks as the layers of the vision encoder see them: another network, in 16 bits."""
    plans = encoder_plans(rank.workload, rank.plans)
    kernels, sustained_fraction = rank.constants.of_encoder(plans)
    return replace(
        rank,
        workload=encoder_workload(rank.workload),
        plans=plans,
        kernels=kernels,
        sustained_fraction=sustained_fraction,
    )


def encoder_share(rank: Rank) -> Floats:
    """Returns the share of the micro-batches that run the encoder, `(n,)`."""
    return share_with_images(rank.workload, rank.plans)


def encoder_layer(rank: Rank) -> PartTimes:
    """Returns the times of a layer of the vision encoder."""
    times = dense_layer(encoder_rank(rank)).scaled(encoder_share(rank))
    return times if rank.workload.trained_vision == "all" else times.forward_alone


def patches(rank: Rank) -> PartTimes:
    """Returns the times of the product that patches enter, and of their positions."""
    encoder, vision = encoder_rank(rank), _vision(rank)
    hidden, values = (
        np.full(len(rank.plans), float(width)) for width in (vision.hidden_size, vision.patch_values)
    )
    added_s = encoder.memory_bound_s(SUM_PASSES * encoder.hidden_bytes, 1.0)
    read_s = encoder.memory_bound_s(encoder.hidden_bytes, 1.0)
    times = _compute_alone(
        encoder.product_s(encoder.tokens, hidden, values) * rank.compute_slowdown + added_s,
        encoder.weight_gradient_s(encoder.tokens, hidden, values) * rank.compute_slowdown + read_s,
    ).scaled(encoder_share(rank))
    return times if rank.workload.trained_vision == "all" else times.forward_alone


def projectors(rank: Rank) -> PartTimes:
    """Returns the times of all projectors, and of placing images among the text."""
    number, encoder = _vision(rank).num_projectors, encoder_rank(rank)
    side_by_side_s = encoder.memory_bound_s(COPY_PASSES * encoder.hidden_bytes, 1.0)
    placed = ACTIVATION_BYTES * rank.tokens * rank.plans.context_parallel * rank.workload.model.hidden_size
    placing_s = (
        rank.memory_bound_s(PLACING_PASSES * placed, 3.0),
        rank.memory_bound_s(COPY_PASSES * placed, 2.0),
    )
    forward_s, backward_s = _products_s(rank)
    back = side_by_side_s if rank.workload.trained_vision == "all" else np.zeros_like(side_by_side_s)
    computed = _compute_alone(
        number * (forward_s + side_by_side_s) + placing_s[0], number * (backward_s + back) + placing_s[1]
    ).scaled(encoder_share(rank))
    collectives_s = projector_collectives_s(rank)
    times = replace(computed, forward_tensor_comm_s=collectives_s[0], backward_tensor_comm_s=collectives_s[1])
    return times.forward_alone if rank.workload.trained_vision == "nothing" else times


def projector_collectives_s(rank: Rank) -> Directions:
    """Returns the collectives of all projectors, forward and backward, `(n,)` each."""
    group, traffic = encoder_rank(rank).tensor_group, projector_traffic(rank)
    none_s = np.zeros(len(rank.plans))
    forward_s = total([none_s, *(all_reduce_s(num_bytes=each, **group) for each in traffic.summed)])
    forward_s = forward_s + total(
        [none_s, *(all_gather_s(num_bytes=each, **group) for each in traffic.gathered)]
    )
    backward_s = total([none_s, *(all_reduce_s(num_bytes=each, **group) for each in traffic.summed_back)])
    return encoder_share(rank) * forward_s, encoder_share(rank) * backward_s


@dataclass(frozen=True, kw_only=True)
class ProjectorTraffic:
    """What tensor-parallel ranks exchange of all projectors in a micro-batch with images, bytes `(n,)` each."""

    summed: list[Floats]
    """Forward: outputs of products that are split by rows."""
    gathered: list[Floats]
    """Forward: the output of a last product that is split by columns."""
    summed_back: list[Floats]
    """Backward: gradients of what enters products that are split by columns."""


def projector_traffic(rank: Rank) -> ProjectorTraffic:
    """Returns the traffic; without a trained encoder nothing needs the gradient of what enters the first product."""
    vision, trained = _vision(rank), rank.workload.trained_vision
    widths = [*vision.projector_sizes, rank.workload.model.hidden_size]
    entered, left = widths[:-1:PRODUCTS_OF_A_BLOCK], widths[PRODUCTS_OF_A_BLOCK::PRODUCTS_OF_A_BLOCK]
    is_alone = len(vision.projector_sizes) % PRODUCTS_OF_A_BLOCK > 0
    back = {"all": entered, "projectors": entered[1:], "nothing": []}[trained]
    summed, gathered, summed_back = (
        vision.num_projectors * [ACTIVATION_BYTES * _image_tokens(rank) * width for width in each]
        for each in (left, widths[-1:] if is_alone else [], back)
    )
    return ProjectorTraffic(summed=summed, gathered=gathered, summed_back=summed_back)


def projector_weight_gradients_s(rank: Rank) -> Floats:
    """Returns the weight-gradient products of all projectors, `(n,)`; none where they are frozen."""
    if rank.workload.trained_vision == "nothing":
        return np.zeros(len(rank.plans))
    encoder = encoder_rank(rank)
    products_s = [encoder.weight_gradient_s(*product) for product in _split_products(rank)]
    return encoder_share(rank) * _vision(rank).num_projectors * total(products_s) * rank.compute_slowdown


def encoder_weight_gradients_s(rank: Rank) -> Floats:
    """Returns the weight-gradient products of a layer of the vision encoder, `(n,)`; none where it is frozen."""
    share = encoder_share(rank) * (rank.workload.trained_vision == "all")
    return share * dense_layer_weight_gradients_s(encoder_rank(rank))


def patch_weight_gradients_s(rank: Rank) -> Floats:
    """Returns the whole backward of the product that patches enter, `(n,)`: nothing is ahead of it."""
    return patches(rank).backward_compute_s


def _products_s(rank: Rank) -> Directions:
    """Products of one projector and the activations between them; backward without the input's gradient if nothing needs it."""
    encoder = encoder_rank(rank)
    forward_s, backward_s = np.zeros(len(rank.plans)), np.zeros(len(rank.plans))
    for place, (rows, outer, inner) in enumerate(_split_products(rank)):
        forward_s = forward_s + encoder.product_s(rows, outer, inner) * rank.compute_slowdown
        backward_s = backward_s + encoder.weight_gradient_s(rows, outer, inner) * rank.compute_slowdown
        if place or rank.workload.trained_vision == "all":
            backward_s = backward_s + encoder.input_gradient_s(rows, outer, inner) * rank.compute_slowdown
        if place:
            passed = ACTIVATION_BYTES * rows * inner
            forward_s = forward_s + encoder.memory_bound_s(COPY_PASSES * passed, 1.0)
            backward_s = backward_s + encoder.memory_bound_s(SUM_PASSES * passed, 1.0)
    return forward_s, backward_s


def _split_products(rank: Rank) -> list[tuple[Floats, Floats, Floats]]:
    """Rows, output and inner width of the products of one projector on one rank: split by columns, by rows, by columns."""
    rows, t = _image_tokens(rank), encoder_rank(rank).plans.tensor_parallel
    pairs = _vision(rank).projections(rank.workload.model.hidden_size)
    return [
        (rows, outer / t, np.full(len(t), float(inner)))
        if place % PRODUCTS_OF_A_BLOCK == 0
        else (rows, np.full(len(t), float(outer)), inner / t)
        for place, (inner, outer) in enumerate(pairs)
    ]


def _image_tokens(rank: Rank) -> Floats:
    """Tokens that stand for images in a micro-batch that has any, `(n,)`."""
    return encoder_rank(rank).tokens / _vision(rank).patches_per_token


def _vision(rank: Rank) -> VisionEncoder:
    vision = rank.workload.model.vision
    assert vision is not None
    return vision


def _compute_alone(forward_s: Floats, backward_s: Floats) -> PartTimes:
    none_s = np.zeros_like(forward_s)
    return PartTimes(
        forward_compute_s=forward_s,
        backward_compute_s=backward_s,
        forward_tensor_comm_s=none_s,
        backward_tensor_comm_s=none_s,
        forward_expert_comm_s=none_s,
        backward_expert_comm_s=none_s,
        forward_hidden_s=none_s,
        backward_hidden_s=none_s,
    )
