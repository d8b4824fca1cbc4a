"""Which layers and weights stand on which pipeline chunk?

A model is cut into C = PP x VPP chunks in model order; chunk c runs on stage c mod PP. Either C divides the number
of layers L, or it divides L + 2: then the first and the last chunk, which also hold the embedding and the output
layer, have one layer less than the others (BLOOM: 70 layers on 12 stages; Llama 3 405B: 126 on 16). With C = L + 2
they hold nothing else, as on the interleaved stages of Llama 3 405B (arXiv 2407.21783, section 3.3.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.model import ModelShape
from simulator.plan import PlanTable
from simulator.table import Booleans, Floats, Integers


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """Layers of every chunk of a batch, `(n, C)`; columns past a design's own number of chunks are 0."""

    num_chunks: Integers
    """`(n,)` chunks of each design."""
    num_stages: Integers
    """`(n,)` stages of each design."""
    stages: Integers
    """`(n, C)` the stage of each chunk."""
    num_dense_layers: Floats
    """`(n, C)` layers with an ordinary feed-forward block."""
    num_expert_layers: Floats
    """`(n, C)` layers with routed experts."""
    is_first: Booleans
    """`(n, C)` whether the chunk holds the input embedding."""
    is_last: Booleans
    """`(n, C)` whether the chunk holds the output layer and the loss."""

    @property
    def num_layers(self) -> Floats:
        """`(n, C)` all layers of each chunk."""
        return self.num_dense_layers + self.num_expert_layers

    def on_stage(self, counts: Floats | Booleans, stage: Integers) -> Floats:
        """Sums whole numbers `(n, C)` over the chunks of one stage of each design; returns `(n,)`.

        Sums of whole numbers are exact, so that they do not depend on how many empty columns follow.
        """
        is_own = (self.stages == stage[:, None]).astype(np.float64)
        return np.asarray(np.einsum("nc,nc->n", counts.astype(np.float64, copy=False), is_own))


def can_split_layers(num_layers: int, num_chunks: Integers) -> Booleans:
    """Returns whether the layers can be cut into that many chunks, `(n,)`."""
    return np.asarray((num_layers % num_chunks == 0) | ((num_layers + 2) % num_chunks == 0))


def split_layers(model: ModelShape, plans: PlanTable) -> Chunks:
    """Returns the layers of every chunk; the batch's largest number of chunks sets the number of columns."""
    num_chunks = plans.pipeline_parallel * plans.virtual_pipeline
    chunk = np.arange(num_chunks.max(initial=1))
    count = num_chunks[:, None]
    is_inner = (chunk > 0) & (chunk < count - 1)
    has_remainder = model.num_layers % count > 0
    layers = np.where(chunk < count, model.num_layers // count + (is_inner & has_remainder), 0)
    first_layer = np.cumsum(layers, axis=1) - layers
    dense = np.clip(model.num_dense_layers - first_layer, 0, layers).astype(np.float64)
    return Chunks(
        num_chunks=num_chunks,
        num_stages=plans.pipeline_parallel,
        stages=chunk % plans.pipeline_parallel[:, None],
        num_dense_layers=dense,
        num_expert_layers=layers - dense,
        is_first=np.broadcast_to(chunk == 0, layers.shape),
        is_last=chunk == count - 1,
    )


@dataclass(frozen=True, kw_only=True)
class ChunkWeights:
    """Weights of every chunk, `(n, C)`, of all its tensor- and expert-parallel ranks together."""

    shared: Floats
    """Weights that every token meets; a rank holds 1/TP of them."""
    routed: Floats
    """Weights of routed experts; a rank holds 1/EP of them."""


def chunk_weights(model: ModelShape, plans: PlanTable, chunks: Chunks) -> ChunkWeights:
    """Returns the weights of every chunk.

    With tied embeddings the last stage holds a copy of its own, unless it is also the first.
    """
    num_copied = np.where(plans.pipeline_parallel > 1, model.tied_parameters, 0)[:, None]
    shared = (
        chunks.num_dense_layers * model.dense_layer_parameters
        + chunks.num_expert_layers * model.expert_layer_shared_parameters
        + chunks.is_first * model.embedding_parameters
        + chunks.is_last * (model.output_parameters + num_copied)
    )
    num_experts = model.experts.num_experts if model.experts else 0
    return ChunkWeights(
        shared=shared, routed=chunks.num_expert_layers * (num_experts * model.expert_parameters)
    )
