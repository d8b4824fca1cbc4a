"""Is this layout valid? The rules by which a model is split over accelerators, each with the distance from keeping it.

The rules are those of the frameworks that run such layouts (Megatron-LM, DeepSpeed, NeMo); breaking one is a result
with a reason, not an error.
"""

from __future__ import annotations

import numpy as np

from constraints.layout_rule import LayoutRule
from constraints.scheme_rules import SCHEME_RULES
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.linear_attention import LinearAttention
from simulator.domain.model import ModelShape
from simulator.domain.muon import LAST_ZERO_STAGE
from simulator.domain.plan import (
    PlanTable,
    Recompute,
    Schedule,
    interleaved_groups,
    is_interleaved,
    runs_in_pairs,
    splits_backward,
    turns_back,
)
from simulator.domain.vision import VisionEncoder
from simulator.domain.workload import Workload
from simulator.layout.casts import computes_in
from simulator.layout.chunks import can_cut
from simulator.layout.expert_ranks import expert_ranks
from simulator.machine.offer_table import OfferTable
from simulator.pipeline.groups import groups_excess
from simulator.run.spare_nodes import most_nodes
from simulator.table import Booleans, Floats, Integers
from simulator.traffic.context_exchange import head_ranks


def _remainder(value: Integers | int, divisor: Integers) -> Floats:
    """Remainder of a division, as a share of the divisor."""
    return np.asarray(np.mod(value, divisor) / divisor, dtype=np.float64)


def _gpu_range(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    low = np.array([offer.num_gpus.min for offer in job.offers])[plans.offer]
    high = np.array([offer.num_gpus.max for offer in job.offers])[plans.offer]
    too_few, too_many = low / plans.num_gpus - 1.0, plans.num_gpus / high - 1.0
    nodes = np.ceil(plans.num_gpus / offers.gpus_per_node) + plans.num_spare_nodes
    too_many_spares = np.where(plans.num_spare_nodes > 0, nodes / most_nodes(job)[plans.offer] - 1.0, 0.0)
    return np.asarray(sum(np.maximum(0.0, each) for each in (too_few, too_many, too_many_spares)))


def _whole_nodes(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    return _remainder(plans.num_gpus, offers.gpus_per_node)


def _attention_heads(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    t, model = plans.tensor_parallel, job.workload.model
    kv_heads = np.full_like(t, split_heads(model))
    small, large = np.minimum(t, kv_heads), np.maximum(t, kv_heads)
    linear = model.linear_attention
    of_linear = _remainder(linear.num_heads, t) + _remainder(linear.num_key_heads, t) if linear else 0.0
    excess = np.asarray(_remainder(model.num_heads, t) + _remainder(large, small) + of_linear)
    if vision := shared_vision(model):
        excess = excess + _remainder(vision.num_heads, t)
    return excess + (t - 1.0) if model.compressed_attention else excess


def split_heads(model: ModelShape) -> int:
    """Returns the number of key-value heads that are split over ranks; latent attention expands its own to all heads."""
    return model.num_heads if model.latent_attention else model.num_kv_heads


def _feed_forward(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    model, t = job.workload.model, plans.tensor_parallel
    vision = shared_vision(model)
    of_vision = _remainder(vision.ffn_hidden_size, t) if vision else 0.0
    return _remainder(model.ffn_hidden_size, t) + of_vision


def shared_vision(model: ModelShape) -> VisionEncoder | None:
    """Returns the vision encoder if tensor-parallel ranks share its heads and feed-forward blocks; `None` for any other."""
    return None if model.vision is None or model.vision.is_replicated else model.vision


def _layers(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    num_chunks = plans.pipeline_parallel * plans.virtual_pipeline
    return np.where(can_cut(job.workload.model, job.workload.stage_layers, num_chunks), 0.0, 1.0)


def _interleaving(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    p = plans.pipeline_parallel
    per_replica = _micro_batches(job, plans)
    too_few = np.maximum(0.0, 2.0 * p / per_replica - 1.0) * runs_in_pairs(plans)
    left = np.where(plans.interleaved_group_size > 0, 0.0, _remainder(per_replica, p))
    return np.where(is_interleaved(plans), np.where(p > 1, left, 1.0), too_few)


def _micro_batches(job: Job, plans: PlanTable) -> Integers:
    """Micro-batches of a replica, rounded down where the batch is not divisible; at least 1."""
    per_round = plans.data_parallel * plans.micro_batch_size
    return np.asarray(np.maximum(1, job.workload.global_batch_size // per_round))


def _interleaved_groups(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    given = plans.interleaved_group_size > 0
    if not given.any():
        return np.zeros(len(plans))
    groups = interleaved_groups(plans)
    away = groups_excess(plans.pipeline_parallel, _micro_batches(job, plans), groups) / groups
    return np.where(given, np.where(is_interleaved(plans), away, 1.0), 0.0)


def _schedule(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    v, schedule = plans.virtual_pipeline, plans.pipeline_schedule
    wanted = np.where(turns_back(plans), 2, 1)
    is_usual = schedule == Schedule.ONE_F_ONE_B.code
    excess = np.abs(v - wanted) + np.where(plans.pipeline_parallel > 1, 0.0, 1.0)
    return np.where(is_usual, 0.0, excess)


def _weight_gradients(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    """Activations recomputed with a layer or block are gone by the time of its weight gradients; product inputs must stay."""
    keeps_inputs = plans.recompute == Recompute.NONE.code
    if job.workload.restores_inputs:
        keeps_inputs |= plans.recompute == Recompute.SELECTIVE.code
    excess = np.where(keeps_inputs, 0.0, 1.0) + np.maximum(0.0, plans.zero_stage - 1.0)
    if recomputes_encoder(job.workload):
        excess = excess + 1.0
    return np.where(splits_backward(plans), excess, 0.0)


def recomputes_encoder(workload: Workload) -> bool:
    """Returns whether the layers of a trained vision encoder are recomputed as a whole."""
    images = workload.images
    if images is None or workload.trained_vision != "all":
        return False
    return images.encoder_recompute is Recompute.FULL


def _batch(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    per_round = plans.data_parallel * plans.micro_batch_size
    batch = job.workload.global_batch_size
    return np.where(per_round > batch, per_round / batch, _remainder(batch, per_round))


def _sequence(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    c, s = plans.context_parallel, job.workload.sequence_length
    pieces: Integers = np.asarray(np.where(c > 1, 2 * c, 1), dtype=np.int64)
    return _remainder(s, pieces * plans.tensor_parallel if job.workload.has_sequence_parallel else pieces)


def _context_exchange(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    """Ranks that exchange heads need whole heads; ring kernels do not support windows (Transformer Engine)."""
    workload, c = job.workload, plans.context_parallel
    exchanged = head_ranks(workload, plans, offers.link_domain_size)
    shares, kv_heads = exchanged * plans.tensor_parallel, split_heads(workload.model)
    unequal = _remainder(workload.model.num_heads, shares) + _remainder(kv_heads, shares)
    is_ring = (c > exchanged) & (workload.chosen_exchange != "all_gather")
    has_window = workload.model.sliding_window is not None
    return np.asarray(
        np.where(exchanged > 1, unequal + _remainder(c, exchanged), 0.0)
        + np.where(is_ring & has_window, 1.0, 0.0)
        + _linear_exchange(workload.model.linear_attention, plans)
        + (c - 1.0 if workload.model.compressed_attention else 0.0)
    )


def _linear_exchange(linear: LinearAttention | None, plans: PlanTable) -> Floats:
    """Ranks always exchange heads of linear attention; of Mamba-2 several may have copies of the same keys (Megatron Core)."""
    if linear is None:
        return np.zeros(len(plans))
    t, c = plans.tensor_parallel, plans.context_parallel
    uneven = _remainder(linear.num_heads, t * c)
    if linear.kind != "mamba-2":
        return uneven + _remainder(linear.num_key_heads, t * c)
    keys = np.maximum(1, linear.num_key_heads // t)
    return uneven + _remainder(np.maximum(keys, c), np.minimum(keys, c))


def _experts(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    e = plans.expert_parallel
    experts = job.workload.model.experts
    if experts is None:
        return np.asarray(e - 1, dtype=np.float64)
    ranks = plans.tensor_parallel * plans.context_parallel * plans.data_parallel
    shares, holders = job.workload.expert_tensor_parallel, expert_ranks(job.workload, plans)
    uneven = _remainder(experts.num_experts, e) + experts.expert_ffn_hidden_size % shares / shares
    return uneven + np.where(holders > ranks, holders / ranks, _remainder(ranks, holders))


def _number_format(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    chips = [offer.accelerator for offer in job.offers]
    computes = np.array([[computes_in(job.workload, chip, each) for each in Precision] for chip in chips])
    return np.where(computes[plans.offer, plans.precision], 0.0, 1.0)


def _shard_groups(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    """Groups hold whole replicas, and the ranks of a group are a multiple or a divisor of those that share the experts."""
    z, is_hybrid = plans.shard_ranks, plans.shard_ranks > 0
    if not is_hybrid.any():
        return np.zeros(len(plans))
    replicas, c = plans.data_parallel * plans.context_parallel, plans.context_parallel
    holders = expert_ranks(job.workload, plans)
    ranks = np.where(is_hybrid, z * plans.tensor_parallel, holders)
    small, large = np.minimum(ranks, holders), np.maximum(ranks, holders)
    group = np.where(is_hybrid, z, replicas)
    unsplit = np.where(plans.zero_stage == 0, 1.0, 0.0) + np.where(z > replicas, z / replicas, 0.0)
    excess = unsplit + _remainder(z, c) + _remainder(replicas, group) + _remainder(large, small)
    return np.where(is_hybrid, excess, 0.0)


def _whole_matrices(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    is_fp16 = plans.precision == Precision.FP16.code
    excess = np.maximum(0.0, plans.zero_stage - float(LAST_ZERO_STAGE)) + (plans.shard_ranks > 0) + is_fp16
    return np.asarray(excess * (job.workload.muon is not None))


def _recomputed_layers(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    n, num_chunks = plans.recompute_num_layers, plans.pipeline_parallel * plans.virtual_pipeline
    most = np.ceil(job.workload.model.num_layers / num_chunks)
    excess = (plans.recompute != Recompute.FULL.code) + np.maximum(0.0, n / most - 1.0)
    return np.where(n > 0, excess, 0.0)


LAYOUT_RULES = (
    LayoutRule(
        name="gpu_range",
        sentence="num_gpus must be in the range of the offer, and nodes with spares within its max_nodes",
        excess=_gpu_range,
    ),
    LayoutRule(name="whole_nodes", sentence="num_gpus must fill whole nodes", excess=_whole_nodes),
    LayoutRule(
        name="attention_heads",
        sentence="tensor_parallel must divide num_heads, and must divide num_kv_heads or be a multiple of it; it must divide "
        "num_heads and num_key_heads of linear_attention, and num_heads of vision unless that is_replicated, and must be 1 "
        "beside compressed_attention",
        excess=_attention_heads,
    ),
    LayoutRule(
        name="feed_forward",
        sentence="tensor_parallel must divide ffn_hidden_size, and that of vision unless it is_replicated",
        excess=_feed_forward,
    ),
    LayoutRule(
        name="layers",
        sentence="pipeline_parallel x virtual_pipeline must be at most num_layers, or num_layers + 2 with no layer on the "
        "first and the last chunk; with workload.stage_layers, as many as it lists or, if balanced, at most num_layers + 2",
        excess=_layers,
    ),
    LayoutRule(
        name="interleaving",
        sentence="virtual_pipeline above 1 needs pipeline_parallel above 1 and either interleaved_group_size or a number of "
        "micro-batches that pipeline_parallel divides; zb_v accepts any number, dual_pipe_v any number of at least "
        "2 x pipeline_parallel",
        excess=_interleaving,
    ),
    LayoutRule(
        name="interleaved_groups",
        sentence="interleaved_group_size needs pipeline_schedule 1f1b with virtual_pipeline above 1, and must be at least "
        "pipeline_parallel and at most the number of micro-batches; the last, incomplete group, if there is one, must have "
        "at least pipeline_parallel micro-batches",
        excess=_interleaved_groups,
    ),
    LayoutRule(
        name="schedule",
        sentence="pipeline_schedule gpipe and zb_h1 need virtual_pipeline 1, zb_v and dual_pipe_v need 2; all four need "
        "pipeline_parallel above 1",
        excess=_schedule,
    ),
    LayoutRule(
        name="weight_gradients",
        sentence="pipeline_schedule zb_h1, zb_v and dual_pipe_v delay weight gradients and keep their activations until "
        "then; they need recompute none, or selective without whole blocks, images.encoder_recompute other than full, and "
        "zero_stage of at most 1",
        excess=_weight_gradients,
    ),
    LayoutRule(
        name="batch", sentence="data_parallel x micro_batch_size must divide global_batch_size", excess=_batch
    ),
    LayoutRule(
        name="sequence",
        sentence="2 x context_parallel (x tensor_parallel under sequence parallelism) must divide sequence_length",
        excess=_sequence,
    ),
    LayoutRule(
        name="context_exchange",
        sentence="context-parallel ranks that exchange heads (context_exchange all_to_all, or hybrid inside a link domain) "
        "must divide the num_heads and num_kv_heads of a tensor-parallel rank; ring exchange does not support sliding_window; "
        "context_parallel must divide the num_heads of linear_attention of a tensor-parallel rank, and must divide its "
        "num_key_heads or, with mamba-2, be a multiple of it; it must be 1 beside compressed_attention",
        excess=_context_exchange,
    ),
    LayoutRule(
        name="experts",
        sentence="expert_parallel must divide num_experts (for dense models it must be 1), expert_parallel x "
        "expert_tensor_parallel must divide tensor_parallel x context_parallel x data_parallel, and expert_tensor_parallel "
        "must divide expert_ffn_hidden_size",
        excess=_experts,
    ),
    LayoutRule(
        name="number_format",
        sentence="the accelerator must support the number format; of the 16-bit formats, V100 supports only fp16, and "
        "fp8_recipe mxfp8 needs Blackwell, MI355X, Trainium3 or later ones",
        excess=_number_format,
    ),
    LayoutRule(
        name="recomputed_layers",
        sentence="recompute_num_layers needs recompute full and must not exceed num_layers / (pipeline_parallel x "
        "virtual_pipeline), rounded up",
        excess=_recomputed_layers,
    ),
    LayoutRule(
        name="shard_groups",
        sentence="shard_ranks must be a multiple of context_parallel, must divide data_parallel x context_parallel, and needs "
        "zero_stage of at least 1; with experts, one of shard_ranks x tensor_parallel and expert_parallel x "
        "expert_tensor_parallel must divide the other",
        excess=_shard_groups,
    ),
    LayoutRule(
        name="whole_matrices",
        sentence="with workload.muon, zero_stage must be at most 1, without shard_ranks, and the number format not fp16: "
        "matrices are updated as a whole, and Megatron Core runs Muon with nothing else",
        excess=_whole_matrices,
    ),
    *SCHEME_RULES,
)
"""All rules, in the order in which reports name them."""


def layout_excess(job: Job, plans: PlanTable) -> Floats:
    """Returns how far each plan is from keeping each rule, `(n, len(LAYOUT_RULES))`; 0 is kept."""
    offers = OfferTable.from_job(job).take(plans.offer)
    return np.column_stack([rule.excess(job, plans, offers) for rule in LAYOUT_RULES])


def is_valid_layout(job: Job, plans: PlanTable) -> Booleans:
    """Returns which plans keep all rules, `(n,)`."""
    return np.asarray((layout_excess(job, plans) == 0.0).all(axis=1))
