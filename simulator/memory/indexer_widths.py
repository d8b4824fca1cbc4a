"""What does attention to chosen tokens keep for its backward pass, and what does it work with? Bytes per token of one rank.

Nomenclature as in `simulator.layers.indexer_costs`; t and c are the tensor- and context-parallel degrees, H a/t rounded up to
whole tiles. Tensors are in 16 bits unless stated otherwise.

    of heads      queries as they are made, and as they enter the core: a/t (n_q + (r + p)) values
    of the core   its output in latents and sums of exponentials in 32 bits, for the heads of whole tiles, of which the others
                  are views: H r values and H in 32 bits; indices of the chosen tokens in 32 bits
    shared        the key of all heads, and with a loss that of the indexer, gathered over c ranks: c (r + p + d_I)
    indexer       with a loss: residual stream and latent of queries as they enter its products, where tensor-parallel ranks
                  gather them or products have copies in fewer bits; its key before the norm; gradients of its queries, weights
                  and key, which are computed early
    at work       queries, outputs and gradients of whole tiles twice, gradients of queries and outputs, of the keys of all
                  tokens in 32 bits, and indices twice; scores in 32 bits, at most 2^30 bytes at a time, with twice as much to
                  choose among them

(Megatron Core, `dsa_cudnn_kernels.py`.)
"""

from __future__ import annotations

import numpy as np

from simulator.domain.blocks import LatentAttention
from simulator.domain.plan import PlanTable
from simulator.domain.token_indexer import TokenIndexer, latent_and_indexer
from simulator.domain.workload import Workload
from simulator.layout.head_tiles import tiled_heads
from simulator.layout.kept_inputs import ACTIVATION_BYTES, WIDE_BYTES, input_bytes
from simulator.layout.micro_batches import micro_batch_tokens
from simulator.table import Floats

MOST_SCORE_BYTES = 2.0**30
"""Scores that are computed at a time (Megatron Core, `dsa_cudnn_kernels.py`)."""
CHOICE_RATIO = 2.0
"""What the choice among scores works with, relative to them: two values of 32 bits for each."""


def core_width(workload: Workload, plans: PlanTable) -> Floats:
    """Returns what the core and the indexer keep that a checkpoint of the core computes or gathers again, `(n,)`.

    That includes the keys of other ranks. Like all of these, it is for models with an indexer alone.
    """
    latent, indexer = latent_and_indexer(workload.model)
    output = tiled_heads(workload.model, plans) * (ACTIVATION_BYTES * latent.key_value_rank + WIDE_BYTES)
    kept = output + _index_bytes(workload, indexer) + (plans.context_parallel - 1.0) * keys_width(workload)
    if workload.trains_indexer:
        kept = kept + workload.model.indexer_share * _trained_width(workload, plans, latent, indexer)
    return np.asarray(kept)


def queries_width(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the bytes of queries as they are made and as they enter the core, `(n,)`."""
    latent, _ = latent_and_indexer(workload.model)
    made, entering = latent.nope_head_dim + latent.rope_head_dim, latent.key_width
    return np.asarray(ACTIVATION_BYTES * workload.model.num_heads * (made + entering) / plans.tensor_parallel)


def keys_width(workload: Workload) -> float:
    """Returns the bytes of a rank's own keys, of all heads and with a loss of the indexer."""
    latent, indexer = latent_and_indexer(workload.model)
    of_indexer = workload.model.indexer_share * indexer.head_dim if workload.trains_indexer else 0.0
    return ACTIVATION_BYTES * (latent.key_width + of_indexer)


def working_bytes(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the bytes that the backward pass of the core needs in addition, at most at once, `(n,)`."""
    latent, indexer = latent_and_indexer(workload.model)
    tokens, width, values = micro_batch_tokens(workload, plans), latent.key_width, latent.key_value_rank
    tiled, own = tiled_heads(workload.model, plans), workload.model.num_heads / plans.tensor_parallel
    of_heads = ACTIVATION_BYTES * (2.0 * tiled * (width + 2.0 * values) + tiled * width + own * values)
    of_keys = WIDE_BYTES * plans.context_parallel * width
    scores = np.minimum(WIDE_BYTES * tokens * workload.sequence_length, MOST_SCORE_BYTES)
    backward = tokens * (of_heads + of_keys + 2.0 * _index_bytes(workload, indexer))
    return np.maximum(backward, (1.0 + CHOICE_RATIO) * scores)


def _index_bytes(workload: Workload, indexer: TokenIndexer) -> float:
    return WIDE_BYTES * indexer.num_places(workload.sequence_length)


def _trained_width(
    workload: Workload, plans: PlanTable, latent: LatentAttention, indexer: TokenIndexer
) -> Floats:
    """What an indexer with a loss keeps, its keys apart; two of its products read the residual stream."""
    product, hidden = input_bytes(workload, plans), workload.model.hidden_size
    is_gathered = (plans.tensor_parallel > 1) & workload.has_sequence_parallel
    wide = ACTIVATION_BYTES * is_gathered * (hidden + latent.query_rank)
    inputs = np.where(product < ACTIVATION_BYTES, product * (2.0 * hidden + latent.query_rank), wide)
    early = indexer.query_width + indexer.num_heads + plans.context_parallel * indexer.head_dim
    return np.asarray(inputs + ACTIVATION_BYTES * (indexer.head_dim + early))
