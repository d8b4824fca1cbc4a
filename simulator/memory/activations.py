"""How many bytes do the micro-batches in flight keep on a pipeline stage, and what more does the working layer need?

Activations of the layers (`simulator.memory.layer_activations`) times the chunks that a stage holds
(`simulator.memory.held_chunks`), less inputs that chunks do not keep, plus the modules of multi-token prediction; part of this
may be offloaded to host memory. A vision encoder keeps its own on the first stage (`simulator.memory.encoder_activations`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.domain.plan import PlanTable, Recompute
from simulator.domain.workload import Workload
from simulator.layout.chunks import Chunks
from simulator.layout.micro_batches import num_micro_batches
from simulator.layout.recomputed_layers import KeptLayers, without_recompute
from simulator.memory.encoder_activations import encoder_activations
from simulator.memory.held_chunks import held_ratio, most_held
from simulator.memory.layer_activations import LayerActivations, both_kinds, layer_input_bytes
from simulator.memory.predicted_tokens import kept_and_again_bytes, plans_of_modules
from simulator.table import Floats, Integers, total

_Kinds = tuple[LayerActivations, LayerActivations]
"""A dense layer, and one with experts."""
_NOTHING = LayerActivations(kept=np.zeros(1), at_work=np.zeros(1))
"""What a stage without modules, or without an encoder, has of them."""


@dataclass(frozen=True, kw_only=True)
class Activations:
    """Activations of one stage, bytes `(n,)`."""

    kept_bytes: Floats
    """Kept by the micro-batches in flight."""
    released_bytes: Floats
    """The part of it that is free once a micro-batch has passed backward through a chunk."""
    at_work_bytes: Floats
    """What the working layer recomputes, with its widest gradients; and a layer on its way to or from the host."""
    on_host_bytes: Floats
    """Kept in host memory."""
    of_modules_bytes: Floats | float = 0.0
    """The part of the released bytes that is free once it has passed backward through the modules of multi-token prediction."""


def activations_of_stage(
    workload: Workload, plans: PlanTable, chunks: Chunks, stage: Integers
) -> Activations:
    """Returns the activations of one stage of each design, `(n,)`, or of s stages of each, `(s, n)`."""
    kinds = both_kinds(workload, plans)
    numbers = [chunks.on_stage(each, stage) for each in (chunks.num_dense_layers, chunks.num_expert_layers)]
    layers = _alike_layers(workload, plans, kinds, numbers)
    modules, encoder = _modules(workload, plans, chunks, stage), _encoder(workload, plans, chunks, stage)
    in_flight = in_flight_chunks(workload, plans, stage) / plans.virtual_pipeline
    kept, at_work, held = layers.kept + modules.kept + encoder.kept, layers.at_work, in_flight
    if np.any((plans.virtual_pipeline > 1) | (plans.recompute_num_layers > 0)):
        of_chunks, needed = _chunk_bytes(workload, plans, chunks, kinds)
        held = in_flight * held_ratio(plans, num_micro_batches(workload, plans), of_chunks, stage)
        kept = chunks.on_stage(of_chunks, stage)
        if needed is not None:
            at_work = np.max(np.where(chunks.stages == stage[..., None], needed, 0.0), axis=-1)
    on_host = workload.activation_offload_fraction
    return Activations(
        kept_bytes=held * (1.0 - on_host) * kept + _sent_bytes(workload, plans, in_flight),
        released_bytes=(1.0 - on_host) * (kept - encoder.kept) / plans.virtual_pipeline,
        at_work_bytes=np.maximum(at_work, np.maximum(modules.at_work, encoder.at_work)),
        on_host_bytes=held * on_host * kept,
        of_modules_bytes=(1.0 - on_host) * modules.kept,
    )


def activations_of_layers(
    workload: Workload,
    plans: PlanTable,
    *,
    stage: Integers,
    dense_layers: Floats,
    expert_layers: Floats,
) -> Activations:
    """Returns the activations of one stage of each design with this number of layers of either kind and nothing else.

    All are `(n,)`; stages and layers may be `(s, n)`, for s stages of each design. All chunks of a stage are taken as alike,
    with all of their layers recomputed, or none.
    """
    layers = _alike_layers(workload, plans, both_kinds(workload, plans), (dense_layers, expert_layers))
    held = in_flight_chunks(workload, plans, stage) / plans.virtual_pipeline
    on_host = workload.activation_offload_fraction
    return Activations(
        kept_bytes=held * (1.0 - on_host) * layers.kept + _sent_bytes(workload, plans, held),
        released_bytes=(1.0 - on_host) * layers.kept / plans.virtual_pipeline,
        at_work_bytes=layers.at_work,
        on_host_bytes=held * on_host * layers.kept,
    )


def _alike_layers(
    workload: Workload, plans: PlanTable, kinds: _Kinds, numbers: Sequence[Floats]
) -> LayerActivations:
    """What these numbers of layers keep, less the inputs that their chunks do not keep, and what one needs at work."""
    dense_work, expert_work = (
        np.where(number > 0, _beside_host(workload, layer), 0.0)
        for number, layer in zip(numbers, kinds, strict=True)
    )
    kept = total(number * layer.kept for number, layer in zip(numbers, kinds, strict=True))
    freed = np.minimum(plans.virtual_pipeline, total(numbers)) * _freed_input(workload, plans)
    return LayerActivations(kept=kept - freed, at_work=np.maximum(expert_work, dense_work))


def _modules(workload: Workload, plans: PlanTable, chunks: Chunks, stage: Integers) -> LayerActivations:
    """What the modules of multi-token prediction of a stage keep, and what one needs at work."""
    if not chunks.modules:
        return _NOTHING
    number, module = chunks.on_stage(chunks.num_mtp_layers, stage), _module(workload, plans)
    return LayerActivations(
        kept=number * module.kept, at_work=np.sign(number) * _beside_host(workload, module)
    )


def _encoder(workload: Workload, plans: PlanTable, chunks: Chunks, stage: Integers) -> LayerActivations:
    """What a vision encoder keeps on its stage, and what it needs at work."""
    if not workload.model.vision:
        return _NOTHING
    encoder, is_first = encoder_activations(workload, plans), chunks.on_stage(chunks.is_first, stage)
    return LayerActivations(kept=is_first * encoder.kept, at_work=is_first * encoder.at_work)


def _beside_host(workload: Workload, layer: LayerActivations) -> Floats:
    """What a layer needs at work, with the part of it that is on its way to or from the host."""
    return layer.at_work + workload.activation_offload_fraction * layer.kept


def _sent_bytes(workload: Workload, plans: PlanTable, in_flight: Floats) -> Floats:
    """Outputs that a stage keeps after they are sent."""
    is_kept = (plans.pipeline_parallel > 1) & workload.keeps_stage_outputs
    sent = np.where(is_kept, plans.virtual_pipeline * layer_input_bytes(workload, plans), 0.0)
    return in_flight * sent


def _module(workload: Workload, plans: PlanTable) -> LayerActivations:
    """A module of multi-token prediction with its layer."""
    own, again = kept_and_again_bytes(workload, plans)
    layer = LayerActivations.of(
        workload, plans_of_modules(workload, plans), is_expert=workload.model.has_expert_modules
    )
    return LayerActivations(kept=layer.kept + own, at_work=layer.at_work + again)


def kept_per_module(workload: Workload, plans: PlanTable) -> Floats:
    """Returns what a forward pass keeps of one micro-batch in a module of multi-token prediction, bytes `(n,)`."""
    return _module(workload, plans).kept


def _chunk_bytes(
    workload: Workload, plans: PlanTable, chunks: Chunks, kinds: _Kinds
) -> tuple[Floats, Floats | None]:
    """Returns what chunks keep of a micro-batch, `(n, C)`, and what they need in addition where their layers differ."""
    kept, needed = _layer_bytes(workload, plans, chunks, kinds)
    kept = kept + _of_ends(workload, plans, chunks)
    if workload.frees_stage_inputs:
        kept = kept - np.minimum(1.0, chunks.num_layers) * _freed_input(workload, plans)[:, None]
    return kept, needed


def _layer_bytes(
    workload: Workload, plans: PlanTable, chunks: Chunks, kinds: _Kinds
) -> tuple[Floats, Floats | None]:
    """The same of their layers alone, with the inputs of chunks."""
    if keeping := KeptLayers.of(workload, plans, chunks):
        again_bytes, whole_bytes = (
            [(layer.kept, _beside_host(workload, layer)) for layer in each]
            for each in (kinds, both_kinds(workload, without_recompute(plans)))
        )
        released = 1.0 - workload.activation_offload_fraction
        return keeping.kept_and_at_work(chunks, again_bytes, whole_bytes, released_fraction=released)
    counts = chunks.num_dense_layers, chunks.num_expert_layers
    return total(count * layer.kept[:, None] for count, layer in zip(counts, kinds, strict=True)), None


def _of_ends(workload: Workload, plans: PlanTable, chunks: Chunks) -> Floats | float:
    """What a vision encoder and modules of multi-token prediction keep of a micro-batch, `(n, C)`."""
    kept: Floats | float = 0.0
    if chunks.modules:
        kept = chunks.num_mtp_layers * kept_per_module(workload, plans)[:, None]
    if workload.model.vision:
        kept = kept + chunks.is_first * encoder_activations(workload, plans).kept[:, None]
    return kept


def _freed_input(workload: Workload, plans: PlanTable) -> Floats:
    """The part of a micro-batch that a chunk with layers does not keep, `(n,)`: its input, if nothing is recomputed from it.

    The first norm of a chunk then runs backward from its output, which its products keep. Hyper-connections need their input.
    """
    if not workload.frees_stage_inputs or workload.model.hyper_connections:
        return np.zeros(len(plans))
    is_needed = plans.recompute == Recompute.FULL.code
    if workload.needs_layer_inputs:
        is_needed = plans.recompute != Recompute.NONE.code
    is_freed = (plans.pipeline_parallel > 1) & ~is_needed
    return np.where(is_freed, layer_input_bytes(workload, plans), 0.0)


def in_flight_chunks(workload: Workload, plans: PlanTable, stage: Integers) -> Integers:
    """Returns the maximum number of (micro-batch, chunk) activations that a stage holds, `(n,)`."""
    return most_held(plans, num_micro_batches(workload, plans), stage)
