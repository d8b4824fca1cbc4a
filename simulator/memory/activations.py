"""How many bytes do the micro-batches in flight keep on a pipeline stage, and what more does the working layer need?

Activations of the layers (`simulator.memory.layer_activations`) times the chunks that a stage holds
(`simulator.memory.held_chunks`), less inputs that chunks do not keep, plus the modules of multi-token prediction; part of this
may be offloaded to host memory. A vision encoder keeps its own on the first stage (`simulator.memory.encoder_activations`).
"""

from __future__ import annotations

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
    return activations_of_layers(
        workload,
        plans,
        stage=stage,
        dense_layers=chunks.on_stage(chunks.num_dense_layers, stage),
        expert_layers=chunks.on_stage(chunks.num_expert_layers, stage),
        chunks=chunks,
    )


def activations_of_layers(
    workload: Workload,
    plans: PlanTable,
    *,
    stage: Integers,
    dense_layers: Floats,
    expert_layers: Floats,
    chunks: Chunks | None = None,
) -> Activations:
    """Returns the activations of one stage of each design, with this number of layers of either kind, all `(n,)`.

    Stages and layers may be `(s, n)`, for s stages of each design. Without `chunks`, all chunks of a stage are taken as alike,
    with all of their layers recomputed, or none.
    """
    dense, expert = both_kinds(workload, plans)
    in_flight = in_flight_chunks(workload, plans, stage) / plans.virtual_pipeline
    is_kept = (plans.pipeline_parallel > 1) & workload.keeps_stage_outputs
    sent = np.where(is_kept, plans.virtual_pipeline * layer_input_bytes(workload, plans), 0.0)
    on_host = workload.activation_offload_fraction
    dense_work, expert_work = (layer.at_work + on_host * layer.kept for layer in (dense, expert))
    layers = dense_layers * dense.kept + expert_layers * expert.kept
    at_work = np.maximum(
        np.where(expert_layers > 0, expert_work, 0.0), np.where(dense_layers > 0, dense_work, 0.0)
    )
    freed, num_layers = _freed_input(workload, plans), dense_layers + expert_layers
    layers = layers - np.minimum(plans.virtual_pipeline, num_layers) * freed
    held, of_modules, module_work = in_flight, np.zeros(1), np.zeros(1)
    if chunks is not None and chunks.modules:
        number, of_module = chunks.on_stage(chunks.num_mtp_layers, stage), _module(workload, plans)
        layers = layers + number * of_module.kept
        of_modules = (1.0 - on_host) * number * of_module.kept
        module_work = np.sign(number) * (of_module.at_work + on_host * of_module.kept)
    has_unlike_chunks = np.any((plans.virtual_pipeline > 1) | (plans.recompute_num_layers > 0))
    if chunks is not None and has_unlike_chunks:
        kept, needed = _chunk_bytes(workload, plans, chunks, (dense, expert))
        if workload.frees_stage_inputs:
            kept = kept - np.minimum(1.0, chunks.num_layers) * freed[:, None]
        held = in_flight * held_ratio(plans, num_micro_batches(workload, plans), kept, stage)
        layers = chunks.on_stage(kept, stage)
        if needed is not None:
            at_work = np.max(np.where(chunks.stages == stage[..., None], needed, 0.0), axis=-1)
    encoder_bytes = np.zeros(1)
    if chunks is not None and workload.model.vision:
        encoder, is_first = encoder_activations(workload, plans), chunks.on_stage(chunks.is_first, stage)
        encoder_bytes, module_work = (
            is_first * encoder.kept,
            np.maximum(module_work, is_first * encoder.at_work),
        )
        layers = layers if has_unlike_chunks else layers + encoder_bytes
    at_work = np.maximum(at_work, module_work)
    return Activations(
        kept_bytes=held * (1.0 - on_host) * layers + in_flight * sent,
        released_bytes=(1.0 - on_host) * (layers - encoder_bytes) / plans.virtual_pipeline,
        at_work_bytes=at_work,
        on_host_bytes=held * on_host * layers,
        of_modules_bytes=of_modules,
    )


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
    workload: Workload, plans: PlanTable, chunks: Chunks, layers: tuple[LayerActivations, LayerActivations]
) -> tuple[Floats, Floats | None]:
    """Returns what chunks keep of a micro-batch, `(n, C)`, and what they need in addition where their layers differ."""
    if keeping := KeptLayers.of(workload, plans, chunks):
        on_host, whole = workload.activation_offload_fraction, both_kinds(workload, without_recompute(plans))
        again_bytes, whole_bytes = (
            [(layer.kept, layer.at_work + on_host * layer.kept) for layer in each] for each in (layers, whole)
        )
        kept, needed = keeping.kept_and_at_work(
            chunks, again_bytes, whole_bytes, released_fraction=1.0 - on_host
        )
        return kept + _of_ends(workload, plans, chunks), needed
    counts = chunks.num_dense_layers, chunks.num_expert_layers
    kept = total(count * layer.kept[:, None] for count, layer in zip(counts, layers, strict=True))
    return kept + _of_ends(workload, plans, chunks), None


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
