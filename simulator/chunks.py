"""Which layers stand on which pipeline chunk?

A model is cut into C = PP x VPP chunks in model order; chunk c runs on stage c mod PP. Either C divides the number
of layers L, or it divides L + 2: then the first and the last chunk, which also hold the embedding and the output
layer, have one layer less than the others (BLOOM: 70 layers on 12 stages; Llama 3 405B: 126 on 16).
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


def can_split_layers(num_layers: int, num_chunks: Integers) -> Booleans:
    """Returns whether the layers can be cut into that many chunks, `(n,)`."""
    fits = (num_layers % num_chunks == 0) | ((num_layers + 2) % num_chunks == 0)
    return fits & (num_chunks <= num_layers)


def split_layers(model: ModelShape, plans: PlanTable) -> Chunks:
    """Returns the layers of every chunk; the batch's largest number of chunks sets the number of columns."""
    num_chunks = plans.pipeline_parallel * plans.virtual_pipeline
    chunk = np.arange(num_chunks.max(initial=1))
    count = num_chunks[:, None]
    is_first = chunk == 0
    is_last = chunk == count - 1
    base = model.num_layers // count
    is_inner = (chunk > 0) & (chunk < count - 1)
    has_remainder = model.num_layers % count > 0
    layers = np.where(chunk < count, base + (is_inner & has_remainder), 0)
    first_layer = np.cumsum(layers, axis=1) - layers
    leading_dense = model.num_dense_layers if model.experts else model.num_layers
    dense = np.clip(leading_dense - first_layer, 0, layers).astype(np.float64)
    return Chunks(
        num_chunks=num_chunks,
        num_dense_layers=dense,
        num_expert_layers=layers - dense,
        is_first=np.broadcast_to(is_first, layers.shape),
        is_last=is_last,
    )


def layers_per_stage(values: Floats, num_stages: Integers) -> Floats:
    """Sums chunk values `(n, C)` over the chunks of each stage; returns `(n, P)` with P the largest number of stages."""
    chunk = np.arange(values.shape[1])
    stage_of_chunk = chunk[None, :] % num_stages[:, None]
    totals = np.zeros((len(values), int(num_stages.max(initial=1))))
    np.add.at(totals, (np.arange(len(values))[:, None], stage_of_chunk), values)
    return totals
