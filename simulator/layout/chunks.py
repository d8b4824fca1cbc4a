"""Which layers and weights does each pipeline chunk hold?

A model is cut into C = PP x VPP chunks in model order; chunk c runs on stage c mod PP. Either C divides the number
of layers L, or it divides L + 2: then the first and the last chunk, which also hold the embedding and the output
layer, have one layer less than the others (BLOOM: 70 layers on 12 stages; Llama 3 405B: 126 on 16). With C = L + 2
they hold nothing else, as on the interleaved stages of Llama 3 405B (arXiv 2407.21783, section 3.3.2).

Any other C <= L will do as well (DeepSeek-V3: 61 layers on 16 stages, or on 32 chunks). Every chunk has L // C layers, and
what remains goes, one layer each, to the last chunks before the final one: early stages hold the most micro-batches, and the
final one has the output layer. Megatron Core takes such a cut with `--pipeline-model-parallel-layout`.

A workload may ask for another cut with `stage_layers`. Under `balanced`, embedding and output layer always count as a layer
each, whatever C divides (Megatron Core: `--account-for-embedding-in-pipeline-split` and `-loss-`), and the remainder of L + 2
goes to the same chunks as above. A list gives the layers of every chunk in model order (Megatron Core:
`--decoder-first-pipeline-num-layers` and `-last-`); only pipelines with that number of chunks can be cut.

Modules of multi-token prediction are on the last chunk with the output layer, in addition to its layers (Megatron Core,
`get_mtp_num_layers_to_build`). Under `balanced` each counts as two layers, its own and its logits. If these exceed the last
chunk's share, it holds no other layer, and the remaining layers go to the others. DeepSeek-V3's 61 layers are cut this way in
Megatron-Bridge (`_get_deepseek_v3_pipeline_layout`; on 32 chunks `Et|(tt|)*30mL`). A vision encoder is on the first chunk with
the embedding, in addition to its layers, and counts as many layers under `balanced` as its model says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.compiled import compiled
from simulator.domain.choices import StageLayers
from simulator.domain.model import ModelShape
from simulator.domain.plan import PlanTable, has_split_ends, turns_back
from simulator.domain.workload import Workload
from simulator.layout.expert_ranks import expert_ranks
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
    has_any_order: bool = False
    """Whether full and empty chunks may appear in any order."""
    modules: int = 0
    """Modules of multi-token prediction on the last chunk, in addition to its layers."""

    @property
    def num_layers(self) -> Floats:
        """`(n, C)` all layers of each chunk, without those of multi-token prediction."""
        return self.num_dense_layers + self.num_expert_layers

    @property
    def num_mtp_layers(self) -> Floats:
        """`(n, C)` modules of multi-token prediction, each with one layer."""
        return self.modules * self.is_last.astype(np.float64)

    def on_stage(self, counts: Floats | Booleans, stage: Integers) -> Floats:
        """Sums counts `(n, C)` over the chunks of one stage of each design, `(n,)`, or of s stages, `(s, n)`."""
        sums = np.zeros(stage.shape)
        add_on_stages(
            np.ascontiguousarray(counts, dtype=np.float64),
            np.ascontiguousarray(self.stages),
            self.num_chunks,
            np.atleast_2d(np.ascontiguousarray(stage)),
            np.atleast_2d(sums),
        )
        return sums

    def unlike_stages(self) -> Integers:
        """Returns stages `(s, n)` that include the first one of every kind of stage in a design.

        Stages are of one kind if they hold the same number of layers of each sort, and the same ends of the model. Along the
        pipeline, dense layers give way to experts and the number of layers grows by one, each once. The kinds therefore begin
        on the first two stages, on the first with most layers, on the first with experts, on the first with nothing else, and
        on the last. With a listed cut, any stage may be the only one of its kind.
        """
        if self.has_any_order:
            most = int(self.num_stages.max(initial=1))
            return np.minimum(np.arange(most)[:, None], self.num_stages - 1)
        has_experts = self.num_expert_layers > 0
        beginnings = [np.argmax(self.num_layers, axis=1)]
        if has_experts.any():
            beginnings += [
                np.argmax(has_experts, axis=1),
                np.argmax(has_experts & (self.num_dense_layers == 0), axis=1),
            ]
        first, last = np.zeros_like(self.num_stages), self.num_stages - 1
        inner = [np.take_along_axis(self.stages, chunk[:, None], axis=1)[:, 0] for chunk in beginnings]
        return np.stack((first, np.minimum(1, last), *inner, last))


@compiled
def add_on_stages(
    counts: Floats, stages: Integers, num_chunks: Integers, chosen: Integers, sums: Floats
) -> None:
    """Adds counts `(n, C)` of the chunks of chosen stages `(s, n)` to sums `(s, n)`."""
    of_stage = np.empty(counts.shape[1])
    for row in range(len(counts)):
        of_stage[:] = 0.0
        for chunk in range(num_chunks[row]):
            of_stage[stages[row, chunk]] += counts[row, chunk]
        for place in range(len(chosen)):
            if 0 <= chosen[place, row] < len(of_stage):
                sums[place, row] += of_stage[chosen[place, row]]


def can_split_evenly(num_layers: int | Integers, num_chunks: Integers) -> Booleans:
    """Returns whether chunks of `(n,)` layers can be equal, except for one layer less on the first and the last."""
    return np.asarray((num_layers % num_chunks == 0) | ((num_layers + 2) % num_chunks == 0))


def can_cut(model: ModelShape, stage_layers: StageLayers, num_chunks: Integers) -> Booleans:
    """Returns whether the layers can be cut into `(n,)` chunks in the way that a workload asks for."""
    if stage_layers is None:
        return np.asarray((num_chunks <= model.num_layers) | (num_chunks == model.num_layers + 2))
    if stage_layers == "balanced":
        return np.asarray(num_chunks <= model.num_layers + 2)
    return np.asarray(num_chunks == len(stage_layers))


def cuts_evenly(model: ModelShape, stage_layers: StageLayers, num_chunks: Integers) -> Booleans:
    """Returns whether `(n,)` chunks can be equal, not counting the ends of the model, or counting them as the workload asks."""
    is_even = can_split_evenly(model.num_layers, num_chunks)
    if stage_layers == "balanced":
        return np.asarray(is_even | (_balanced_layers(model, num_chunks)[1] == 0))
    return is_even


def split_layers(model: ModelShape, plans: PlanTable, stage_layers: StageLayers = None) -> Chunks:
    """Returns the layers of every chunk; the largest number of chunks in the batch sets the number of columns."""
    num_chunks = plans.pipeline_parallel * plans.virtual_pipeline
    chunk = np.arange(num_chunks.max(initial=1))
    layers = _layers(model, chunk, num_chunks[:, None], stage_layers)
    has_any_order = isinstance(stage_layers, tuple) or (
        model.experts is not None and model.experts.layer_step > 1
    )
    is_v = turns_back(plans)  # whose last chunks are on the first stages
    if is_v.any():
        has_any_order |= model.experts is not None and model.experts.num_dense_layers > 0
        has_any_order |= not _are_equal_inside(layers[is_v], num_chunks[is_v, None])
    return chunks_of(model, plans, layers, has_any_order=has_any_order)


def chunks_of(model: ModelShape, plans: PlanTable, layers: Integers, *, has_any_order: bool = True) -> Chunks:
    """Returns chunks with these layers, `(n, C)`; 0 in columns past a design's own number of chunks."""
    num_chunks = plans.pipeline_parallel * plans.virtual_pipeline
    chunk, count = np.arange(layers.shape[1]), num_chunks[:, None]
    end_layer = np.cumsum(layers, axis=1)
    experts = model.num_expert_layers_among(end_layer) - model.num_expert_layers_among(end_layer - layers)
    return Chunks(
        num_chunks=num_chunks,
        num_stages=plans.pipeline_parallel,
        stages=_stages(plans, layers.shape[1]),
        num_dense_layers=(layers - experts).astype(np.float64),
        num_expert_layers=experts.astype(np.float64),
        is_first=np.broadcast_to(chunk == 0, layers.shape),
        is_last=chunk == count - 1,
        has_any_order=has_any_order,
        modules=model.num_mtp_layers,
    )


def _are_equal_inside(layers: Integers, count: Integers) -> bool:
    """Whether the chunks of each design, `(n, C)`, have as many layers as each other, but for the first and the last."""
    is_inside = np.arange(1, layers.shape[1]) < count - 1
    inside = layers[:, 1:]
    most = np.max(inside, axis=1, keepdims=True, where=is_inside, initial=0)
    return bool(np.all(inside == most, where=is_inside))


def _layers(model: ModelShape, chunk: Integers, count: Integers, stage_layers: StageLayers) -> Integers:
    """Layers of chunks `(C,)` of designs that have `(n, 1)` of them, `(n, C)`."""
    is_chunk = chunk < count
    if isinstance(stage_layers, tuple):
        listed = np.zeros(max(len(chunk), len(stage_layers)), dtype=np.int64)
        listed[: len(stage_layers)] = stage_layers
        return np.where(is_chunk, listed[: len(chunk)], 0)
    each, remainder = divmod(model.num_layers, count)
    at_start = at_end = np.zeros_like(count)
    if stage_layers == "balanced":
        each, remainder, at_start, at_end = _balanced_layers(model, count)
    # The remainder ends before the final chunk, unless every chunk except the first gets one of its layers.
    end = np.where(remainder == count - 1, count, count - 1)
    has_one_more = (chunk >= end - remainder) & (chunk < end)
    layers = np.where(is_chunk, each + has_one_more, 0)
    if stage_layers == "balanced":
        layers = layers - (chunk == 0) * at_start - (chunk == count - 1) * at_end
    return np.asarray(layers)


def _balanced_layers(model: ModelShape, count: Integers) -> tuple[Integers, Integers, Integers, Integers]:
    """Layers of every chunk, those that its ends count as included; the remainder; and what the first and the last end count.

    An end that counts for more than its share has a chunk to itself, and the other chunks share the rest.
    """
    at_start = np.full_like(count, 1 + (model.vision.counts_as_layers if model.vision else 0))
    at_end = np.full_like(count, 1 + 2 * model.num_mtp_layers)
    each, remainder = divmod(model.num_layers + at_start + at_end, count)
    # An end to itself leaves less for each of the others, so that the other end may exceed its share then.
    for _ in range(2):
        is_first, is_last = ((each < end) & (count > 1) for end in (at_start, at_end))
        rest = model.num_layers + np.where(is_first, 0, at_start) + np.where(is_last, 0, at_end)
        each, remainder = divmod(rest, np.maximum(count - is_first - is_last, 1))
    return each, remainder, np.minimum(at_start, each), np.minimum(at_end, each)


def layers_and_modules(
    model: ModelShape, chunks: Chunks, stage: Integers
) -> tuple[Floats, Floats, Floats | float]:
    """Returns the dense and expert layers of stages, including modules of multi-token prediction, and these modules alone."""
    dense, expert = (
        chunks.on_stage(layers, stage) for layers in (chunks.num_dense_layers, chunks.num_expert_layers)
    )
    if not chunks.modules:
        return dense, expert, 0.0
    modules = chunks.on_stage(chunks.num_mtp_layers, stage)
    return (
        (dense, expert + modules, modules) if model.has_expert_modules else (dense + modules, expert, modules)
    )


def _stages(plans: PlanTable, most_chunks: int) -> Integers:
    """The stage of every chunk, `(n, C)`: round-robin, or, in a V with two chunks on a stage, there and back."""
    stages = _round_and_round(plans.pipeline_parallel, most_chunks)
    is_to_and_fro = turns_back(plans)
    if is_to_and_fro.any():
        num_stages, chunk = plans.pipeline_parallel[is_to_and_fro, None], np.arange(most_chunks)
        is_second = (chunk >= num_stages) & (chunk < 2 * num_stages)
        stages[is_to_and_fro] = np.where(is_second, 2 * num_stages - 1 - chunk, stages[is_to_and_fro])
    return stages


@compiled
def _round_and_round(num_stages: Integers, most_chunks: int) -> Integers:
    """Stage numbers 0 to `num_stages` - 1, `(n,)`, repeated, `(n, C)`; a division for each would take longer."""
    stages = np.empty((len(num_stages), most_chunks), np.int64)
    for row in range(len(num_stages)):
        stage = 0
        for chunk in range(most_chunks):
            stages[row, chunk] = stage
            stage = stage + 1 if stage + 1 < num_stages[row] else 0
    return stages


@dataclass(frozen=True, kw_only=True)
class ChunkWeights:
    """Weights of every chunk, `(n, C)`, of all its tensor- and expert-parallel ranks together."""

    shared: Floats
    """Weights that every token uses; a tensor-parallel rank holds 1/TP of them, but all of those in `whole`."""
    routed: Floats
    """Weights of routed experts; a rank holds 1/EP of them, or a part of that (`simulator.layout.expert_ranks`)."""
    whole: Floats | float = 0.0
    """Shared layer weights that tensor-parallel ranks do not split. Norms, which are negligible, count as split."""
    never_cast: Floats | float = 0.0
    """Shared weights whose products stay in 16 bits in any format: embedding, output layer, vision encoder, adapters."""
    never_cast_whole: Floats | float = 0.0
    """Those among them that tensor-parallel ranks do not split: a replicated vision encoder."""

    @property
    def is_any(self) -> bool:
        """Whether any chunk of any design has weights."""
        return bool(np.any(self.shared) or np.any(self.routed))

    def shared_on_rank(self, plans: PlanTable) -> Floats:
        """Returns the shared weights that one tensor-parallel rank of each design holds, `(n, C)`."""
        return held_by_rank(self.shared, self.whole, plans.tensor_parallel[:, None])

    def routed_on_rank(self, workload: Workload, plans: PlanTable) -> Floats:
        """Returns the weights of routed experts that one rank of each design holds, `(n, C)`."""
        return self.routed / expert_ranks(workload, plans)[:, None]

    def of_chunk(self, chunk: int) -> ChunkWeights:
        """Returns the weights of one chunk alone, `(n, 1)`."""
        names = "shared", "routed", "whole", "never_cast", "never_cast_whole"
        one = slice(chunk, chunk + 1)
        columns = {name: np.asarray(getattr(self, name)) for name in names}
        return ChunkWeights(**{name: each[:, one] if each.ndim else each for name, each in columns.items()})

    def never_cast_on_rank(self, plans: PlanTable) -> Floats:
        """Returns the weights on one rank whose products stay in 16 bits in any format, `(n, C)`."""
        return held_by_rank(self.never_cast, self.never_cast_whole, plans.tensor_parallel[:, None])


def weights_on_stage(
    workload: Workload, plans: PlanTable, chunks: Chunks, weights: ChunkWeights, stage: Integers
) -> tuple[Floats, Floats]:
    """Returns the shared and the routed weights that a rank of one stage holds, `(n,)` each, or of s stages, `(s, n)`."""
    return (
        chunks.on_stage(weights.shared_on_rank(plans), stage),
        chunks.on_stage(weights.routed, stage) / expert_ranks(workload, plans),
    )


def held_by_rank(shared: Floats | float, whole: Floats | float, tensor_parallel: Integers) -> Floats:
    """Returns a tensor-parallel rank's part of shared weights, some of which are whole on every rank."""
    if not np.any(whole):
        return np.asarray(shared / tensor_parallel)
    return np.asarray((shared + (tensor_parallel - 1) * whole) / tensor_parallel)


def chunk_weights(model: ModelShape, plans: PlanTable, chunks: Chunks) -> ChunkWeights:
    """Returns the weights of every chunk.

    With tied embeddings, or multi-token prediction, the stage of the output layer holds a copy of the input embedding, unless
    it has the embedding itself. A vision encoder is on the first chunk.
    """
    shared, routed = chunks.num_dense_layers * model.dense_layer_parameters, np.zeros(chunks.stages.shape)
    if model.experts:
        shared += chunks.num_expert_layers * model.expert_layer_shared_parameters
        routed = chunks.num_expert_layers * (model.experts.num_experts * model.expert_parameters)
    never_cast = np.zeros(chunks.stages.shape)
    never_cast[:, 0] += model.embedding_parameters + model.vision_parameters
    if chunks.modules:
        of_module = model.mtp_weights
        shared += chunks.num_mtp_layers * of_module.shared
        routed = routed + chunks.num_mtp_layers * of_module.routed
    num_copied = np.where(has_split_ends(plans), model.copied_parameters, 0)
    never_cast[np.arange(len(shared)), chunks.num_chunks - 1] += model.output_parameters + num_copied
    return ChunkWeights(
        shared=shared + never_cast,
        routed=routed,
        whole=_whole_weights(model, chunks),
        never_cast=never_cast,
        never_cast_whole=_whole_vision(model, chunks),
    )


def _whole_vision(model: ModelShape, chunks: Chunks) -> Floats | float:
    """Weights of a vision encoder that every tensor-parallel rank holds, `(n, C)`; 0 where ranks share it."""
    if model.vision is None or not model.vision.is_replicated:
        return 0.0
    return np.asarray(chunks.is_first * model.vision_parameters, dtype=np.float64)


def _whole_weights(model: ModelShape, chunks: Chunks) -> Floats | float:
    of_layers = [model.dense_layer_whole_parameters, model.expert_layer_whole_parameters]
    if not any(of_layers):
        return _whole_vision(model, chunks)
    whole = chunks.num_dense_layers * of_layers[0] + chunks.num_expert_layers * of_layers[1]
    whole = whole + _whole_vision(model, chunks)
    return whole + chunks.num_mtp_layers * model.mtp_weights.whole if chunks.modules else whole
