"""What does attention to chosen tokens keep for its backward pass, and what does it work with? Bytes per token of one rank.

Nomenclature as in `simulator.layers.indexer_costs`; t and c are the tensor- and context-parallel degrees. Tensors are in 16
bits unless stated otherwise.

    of heads      queries as they are made, as they enter the core, its output in latents, and sums of exponentials in 32 bits:
                  a/t (n_q + (r + p) + r) values and a/t in 32 bits
    shared        the key of all heads and that of the indexer, gathered over c ranks: c (r + p + d_I)
    indexer       with a loss: residual stream and latent of queries as they enter its products, where tensor-parallel ranks
                  gather them (h + q); its key before the norm; gradients of its queries, weights and key, which are computed
                  early (Megatron Core, `dsa_cudnn_kernels.py`); and always the indices of the chosen tokens in 32 bits
    at work       gradients of what the heads keep, gradients of the keys of all tokens in 32 bits; scores in 32 bits, at most
                  2^30 bytes at a time, with twice as much to choose among them
"""

from __future__ import annotations

import numpy as np

from simulator.domain.blocks import LatentAttention
from simulator.domain.plan import PlanTable
from simulator.domain.token_indexer import TokenIndexer
from simulator.domain.workload import Workload
from simulator.layout.attended_keys import key_value_width
from simulator.layout.kept_inputs import ACTIVATION_BYTES, WIDE_BYTES, input_bytes
from simulator.layout.micro_batches import micro_batch_tokens
from simulator.table import Floats

MOST_SCORE_BYTES = 2.0**30
"""Scores that are computed at a time (Megatron Core, `dsa_cudnn_kernels.py`)."""
CHOICE_RATIO = 2.0
"""What the choice among scores works with, relative to them: two values of 32 bits for each."""


def core_width(workload: Workload, plans: PlanTable) -> Floats:
    """Returns what the core and the indexer keep that a checkpoint of the core computes again, `(n,)`; 0 without an indexer."""
    model, latent = workload.model, workload.model.latent_attention
    if latent is None or (indexer := latent.indexer) is None:
        return np.zeros(len(plans))
    heads = model.num_heads / plans.tensor_parallel
    output = heads * (ACTIVATION_BYTES * latent.key_value_rank + WIDE_BYTES)
    chosen = WIDE_BYTES * min(indexer.chosen_tokens, workload.sequence_length)
    return np.asarray(output + model.indexer_share * (chosen + _trained_width(workload, plans, latent)))


def queries_width(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the bytes of queries as they are made and as they enter the core, `(n,)`."""
    model, latent = workload.model, workload.model.latent_attention
    assert latent is not None
    made = latent.nope_head_dim + latent.rope_head_dim
    return np.asarray(ACTIVATION_BYTES * model.num_heads * (made + latent.key_width) / plans.tensor_parallel)


def keys_width(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the bytes of the keys of all heads and of the indexer, those of other ranks included, `(n,)`."""
    width = key_value_width(workload, plans)
    if not workload.trains_indexer and (indexer := workload.model.indexer):
        width = width - workload.model.indexer_share * indexer.head_dim
    return np.asarray(ACTIVATION_BYTES * plans.context_parallel * width)


def working_bytes(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the bytes that the backward pass of the core needs in addition, at most at once, `(n,)`; 0 without an indexer."""
    model, latent = workload.model, workload.model.latent_attention
    tokens = micro_batch_tokens(workload, plans)
    if latent is None or latent.indexer is None:
        return np.zeros(len(plans))
    heads = model.num_heads / plans.tensor_parallel
    of_heads = ACTIVATION_BYTES * heads * (latent.key_width + latent.key_value_rank)
    of_keys = WIDE_BYTES * plans.context_parallel * latent.key_width
    scores = np.minimum(WIDE_BYTES * tokens * workload.sequence_length, MOST_SCORE_BYTES)
    return np.maximum(tokens * (of_heads + of_keys), (1.0 + CHOICE_RATIO) * scores)


def _trained_width(workload: Workload, plans: PlanTable, latent: LatentAttention) -> Floats:
    indexer: TokenIndexer | None = latent.indexer
    if indexer is None or not workload.trains_indexer:
        return np.zeros(len(plans))
    inputs = (workload.model.hidden_size + latent.query_rank) * input_bytes(workload, plans)
    early = indexer.query_width + indexer.num_heads + plans.context_parallel * indexer.head_dim
    return (plans.tensor_parallel > 1) * inputs + ACTIVATION_BYTES * (indexer.head_dim + early)
