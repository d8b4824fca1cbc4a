"""Which parts is a model made of, how many of each does a chunk have, and which weights do they hold?

A chunk is a row of parts: the embedding on the first, behind a vision encoder where sequences have images; layers; the output
layer on the last. Layers that are recomputed in the backward pass come before those that keep their activations, and dense
layers before those with experts. Modules of multi-token prediction follow all layers; the output layer computes the logits of
all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum

import numpy as np

from simulator.domain.blocks import PartWeights
from simulator.domain.model import ModelShape
from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.layout.chunks import Chunks, ChunkWeights
from simulator.layout.recomputed_layers import KeptLayers, without_recompute
from simulator.layout.trained_weights import StepWeights
from simulator.machine.rank import Rank
from simulator.table import Floats


class Part(Enum):
    """Kinds of parts, in the order in which a micro-batch passes them."""

    PATCHES = "product that patches of images enter"
    ENCODER = "layer of the vision encoder"
    PROJECTOR = "projectors of the vision encoder"
    EMBEDDING = "embedding"
    DENSE = "layer with an ordinary feed-forward block"
    KEPT_DENSE = "the same that keeps all activations although its plan recomputes others"
    EXPERT = "layer with routed experts"
    KEPT_EXPERT = "the same that keeps all activations"
    MODULE = "module of multi-token prediction with its layer"
    OUTPUT = "output layer"

    @property
    def has_layer(self) -> bool:
        """Whether it has a layer of the language model."""
        return self not in (*VISION, Part.EMBEDDING, Part.OUTPUT)

    @property
    def has_experts(self) -> bool:
        """Whether it is a layer with routed experts; modules are of the kind of their model's last layer."""
        return self in (Part.EXPERT, Part.KEPT_EXPERT)

    @property
    def is_kept(self) -> bool:
        """Whether it keeps the activations that others of its kind recompute."""
        return self in (Part.KEPT_DENSE, Part.KEPT_EXPERT)


VISION = (Part.PATCHES, Part.ENCODER, Part.PROJECTOR)
"""Parts of a vision encoder."""


def counts_of_parts(workload: Workload, plans: PlanTable, chunks: Chunks) -> dict[Part, Floats]:
    """Returns how often every chunk has each kind of part, `(n, C)`, in the order of the model.

    Kinds that the model does not have are left out, and so are layers that keep their activations if no design has any.
    """
    kept = KeptLayers.of(workload, plans, chunks)
    first, vision = chunks.is_first.astype(np.float64, order="C"), workload.model.vision
    of_vision = (
        {Part.PATCHES: first, Part.ENCODER: first * vision.num_layers, Part.PROJECTOR: first}
        if vision
        else {}
    )
    counts = {
        **of_vision,
        Part.EMBEDDING: first,
        Part.DENSE: chunks.num_dense_layers - kept.dense if kept else chunks.num_dense_layers,
    }
    if kept:
        counts[Part.KEPT_DENSE] = kept.dense
    if workload.model.experts:
        counts[Part.EXPERT] = chunks.num_expert_layers - kept.expert if kept else chunks.num_expert_layers
        if kept:
            counts[Part.KEPT_EXPERT] = kept.expert
    if workload.model.num_mtp_layers:
        counts[Part.MODULE] = chunks.num_mtp_layers
    return {**counts, Part.OUTPUT: chunks.is_last.astype(np.float64, order="C")}


def has_backward(workload: Workload, part: Part) -> bool:
    """Returns whether a part has a backward pass: not a frozen one with nothing trained ahead of it."""
    trained = workload.trained_vision
    return trained == "all" or part not in VISION or (part is Part.PROJECTOR and trained == "projectors")


def weights_of_parts(workload: Workload, kinds: Iterable[Part]) -> StepWeights:
    """Returns the weights of k kinds of parts, `(1, k)`; adapters belong to the kinds that have layers."""
    rows = [_weights_of_part(workload.model, kind) for kind in kinds]
    shared, routed, whole, never_cast = np.array(rows, dtype=np.float64).T[:, None]
    is_of_vision = np.array([[kind in VISION for kind in kinds]])
    weights = ChunkWeights(
        shared=shared,
        routed=routed,
        whole=whole if whole.any() else 0.0,
        never_cast=never_cast,
        never_cast_whole=is_of_vision * whole if whole.any() else 0.0,
    )
    num_layers, in_tower = (
        np.array([[float(is_one(kind)) for kind in kinds]])
        for is_one in (lambda kind: kind.has_layer, lambda kind: kind in (Part.PATCHES, Part.ENCODER))
    )
    return StepWeights.adapted(workload, weights, num_layers, in_tower * weights.shared)


def _weights_of_part(model: ModelShape, part: Part) -> PartWeights:
    """Weights of one part; the copy of a tied embedding belongs to none."""
    if part in VISION and (vision := model.vision):
        number = {
            Part.PATCHES: vision.patch_parameters,
            Part.ENCODER: vision.layer_parameters,
            Part.PROJECTOR: vision.projector_parameters(model.hidden_size),
        }[part]
        return PartWeights(shared=number, whole=number if vision.is_replicated else 0, never_cast=number)
    if part is Part.EMBEDDING:
        return PartWeights(shared=model.embedding_parameters, never_cast=model.embedding_parameters)
    if part is Part.OUTPUT:
        return PartWeights(shared=model.output_parameters, never_cast=model.output_parameters)
    if part is Part.MODULE:
        return model.mtp_weights
    if part.has_experts and model.experts:
        return PartWeights(
            shared=model.expert_layer_shared_parameters,
            routed=model.experts.num_experts * model.expert_parameters,
            whole=model.expert_layer_whole_parameters,
        )
    return PartWeights(shared=model.dense_layer_parameters, whole=model.dense_layer_whole_parameters)


def rank_of_part(rank: Rank, part: Part) -> Rank:
    """Returns ranks whose plans recompute what they recompute of this part."""
    return replace(rank, plans=without_recompute(rank.plans)) if part.is_kept else rank
