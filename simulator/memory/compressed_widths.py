"""What does attention to windows and compressed tokens keep for its backward pass, and what does it work with?

Bytes per token of a rank, which has all heads and whole sequences. Nomenclature as in `simulator.layers.compressed_costs`;
tensors are in 16 bits unless stated otherwise, x is the bytes of an input of a product:

    queries       as they are made and as they are normed: 2 a d values
    core          its output and sums of exponentials in 32 bits, a d values and a in 32 bits; places of what is seen in 32
                  bits; the key joined with compressed ones, d (1 + χ/r + η/R)
    latents       of queries before their norm, q, and x q behind it; the key before its norm, d
    output        of groups, g o values
    compressors   keys and weights, 4 χ d + 2 η d values, and what they make before its norm, d (χ/r + η/R)
    indexer       with a loss, χ times: gradients of queries, weights and compressed keys, which are computed early,
                  H_I d_I + H_I + d_I/r values; keys and weights of its compressor, 4 d_I, and d_I/r; in fewer bits x q
    at work       gradients of queries and outputs, 2 a d values, and of joined keys in 32 bits; or scores in 32 bits, at most
                  2^30 bytes at a time, with twice as much to choose among them

(Megatron Core, `CSASparseAttnFunc` and `FusedCSAIndexerSparseAttnFunc` of its branch `dev`.)
"""

from __future__ import annotations

import numpy as np

from simulator.domain.compressed_attention import (
    KINDS,
    OVERLAPPING_SERIES,
    CompressedAttention,
    compressed_of,
)
from simulator.domain.documents import longest_piece
from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.layout.kept_inputs import ACTIVATION_BYTES, WIDE_BYTES, input_bytes
from simulator.layout.micro_batches import micro_batch_tokens
from simulator.memory.indexer_widths import CHOICE_RATIO, MOST_SCORE_BYTES
from simulator.table import Floats


def compressed_width(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the bytes that attention and its indexer keep, but for the norm in front of them, `(n,)`."""
    model, compressed = workload.model, compressed_of(workload.model)
    product, heads = input_bytes(workload, plans), model.num_heads * model.head_dim
    chosen, heavy = compressed.compressing_shares(model.num_layers)
    made = compressed.made_per_token(model.num_layers)
    values = 3.0 * heads + model.head_dim * (2.0 + 2.0 * made) + compressed.query_rank
    values += compressed.output_groups * compressed.output_rank
    values += 2.0 * (OVERLAPPING_SERIES * chosen + heavy) * model.head_dim
    wide = WIDE_BYTES * (model.num_heads + _mean_places(workload))
    kept = ACTIVATION_BYTES * values + wide + product * compressed.query_rank
    return np.asarray(kept + chosen * _trained_width(workload, plans, compressed))


def queries_again_width(workload: Workload) -> float:
    """Returns the bytes that `mla_up_proj` computes again: queries as they are made and normed, and the key before its norm."""
    model = workload.model
    return ACTIVATION_BYTES * (2.0 * model.num_heads + 1.0) * model.head_dim


def compressed_working_bytes(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the bytes that the backward pass of the core needs in addition, at most at once, `(n,)`."""
    model, compressed, tokens = (
        workload.model,
        compressed_of(workload.model),
        micro_batch_tokens(workload, plans),
    )
    keys = model.head_dim * (1.0 + compressed.made_per_token(model.num_layers))
    backward = tokens * (2.0 * ACTIVATION_BYTES * model.num_heads * model.head_dim + WIDE_BYTES * keys)
    scores = WIDE_BYTES * tokens * workload.sequence_length / compressed.chosen_ratio
    at_once = (1.0 + CHOICE_RATIO) * np.minimum(scores, MOST_SCORE_BYTES)
    return np.asarray(np.maximum(backward, np.sign(compressed.num_chosen_layers) * at_once))


def _trained_width(workload: Workload, plans: PlanTable, compressed: CompressedAttention) -> Floats:
    """What one indexer with a loss keeps; nothing without a loss."""
    if not workload.trains_indexer:
        return np.zeros(len(plans))
    width, product = compressed.indexer_head_dim, input_bytes(workload, plans)
    early = compressed.indexer_width + compressed.indexer_heads
    made = 2.0 * width / compressed.chosen_ratio + 2.0 * OVERLAPPING_SERIES * width
    narrow = np.where(product < ACTIVATION_BYTES, product * compressed.query_rank, 0.0)
    return ACTIVATION_BYTES * (early + made) + narrow


def _mean_places(workload: Workload) -> float:
    model, compressed = workload.model, compressed_of(workload.model)
    longest = longest_piece(workload.sequence_length, workload.documents)
    return sum(
        compressed.share(kind, model.num_layers) * compressed.num_places(kind, longest) for kind in KINDS
    )
