"""May this layout exist? The rules by which a model is split over accelerators, each with the distance from keeping it.

The rules are those of the frameworks that run such layouts (Megatron-LM, DeepSpeed, NeMo); breaking one is a result
with a reason, not an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.checkpoint import NUM_PEER_COPIES
from simulator.chunks import can_split_layers
from simulator.job import Job
from simulator.offer_table import OfferTable
from simulator.plan import CheckpointScheme, PlanTable
from simulator.table import Booleans, Floats, Integers


@dataclass(frozen=True, kw_only=True)
class LayoutRule:
    """One rule: its name in reports, the sentence for a reader, and how far each plan is from keeping it."""

    name: str
    sentence: str
    excess: Callable[[Job, PlanTable, OfferTable], Floats]
    """`(n,)`: 0 where the rule is kept, otherwise greater than 0 and the larger the farther."""


def _remainder(value: Integers | int, divisor: Integers) -> Floats:
    """What is left of a division, as a share of the divisor."""
    return np.asarray(np.mod(value, divisor) / divisor, dtype=np.float64)


def _gpu_range(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    low = np.array([offer.num_gpus.min for offer in job.offers])[plans.offer]
    high = np.array([offer.num_gpus.max for offer in job.offers])[plans.offer]
    too_few, too_many = low / plans.num_gpus - 1.0, plans.num_gpus / high - 1.0
    return np.asarray(np.maximum(0.0, too_few) + np.maximum(0.0, too_many))


def _whole_nodes(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    return _remainder(plans.num_gpus, offers.gpus_per_node)


def _attention_heads(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    t, model = plans.tensor_parallel, job.workload.model
    # Latent attention expands its keys and values to all heads, so that there are no groups to split.
    kv_heads = np.full_like(t, model.num_heads if model.latent_attention else model.num_kv_heads)
    small, large = np.minimum(t, kv_heads), np.maximum(t, kv_heads)
    return _remainder(model.num_heads, t) + _remainder(large, small)


def _feed_forward(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    return _remainder(job.workload.model.ffn_hidden_size, plans.tensor_parallel)


def _layers(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    p, v = plans.pipeline_parallel, plans.virtual_pipeline
    return np.where(can_split_layers(job.workload.model.num_layers, p, v), 0.0, 1.0)


def _interleaving(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    p, v = plans.pipeline_parallel, plans.virtual_pipeline
    per_replica = np.maximum(
        1, job.workload.global_batch_size // (plans.data_parallel * plans.micro_batch_size)
    )
    return np.where(v > 1, np.where(p > 1, _remainder(per_replica, p), 1.0), 0.0)


def _batch(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    per_round = plans.data_parallel * plans.micro_batch_size
    batch = job.workload.global_batch_size
    return np.where(per_round > batch, per_round / batch, _remainder(batch, per_round))


def _sequence(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    c, s = plans.context_parallel, job.workload.sequence_length
    pieces: Integers = np.asarray(np.where(c > 1, 2 * c, 1), dtype=np.int64)
    return _remainder(s, pieces * plans.tensor_parallel if job.workload.has_sequence_parallel else pieces)


def _experts(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    e = plans.expert_parallel
    experts = job.workload.model.experts
    if experts is None:
        return np.asarray(e - 1, dtype=np.float64)
    ranks = plans.tensor_parallel * plans.context_parallel * plans.data_parallel
    return _remainder(experts.num_experts, e) + np.where(e > ranks, e / ranks, _remainder(ranks, e))


def _number_format(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    peak = np.take_along_axis(offers.peak_flop_per_s, plans.precision[:, None], axis=1)[:, 0]
    return np.isnan(peak).astype(np.float64)


def has_peers(plans: PlanTable, offers: OfferTable) -> Booleans:
    """Returns which plans, `(n,)`, have as many nodes as there are copies of a save in host memory."""
    return np.asarray(plans.num_gpus > (NUM_PEER_COPIES - 1) * offers.gpus_per_node)


def _peer_memory(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    is_kept = (plans.checkpoint_scheme != CheckpointScheme.IN_MEMORY_PEER.code) | has_peers(plans, offers)
    return np.where(is_kept, 0.0, 1.0)


LAYOUT_RULES = (
    LayoutRule(
        name="gpu_range", sentence="num_gpus must lie in the range that the offer names", excess=_gpu_range
    ),
    LayoutRule(name="whole_nodes", sentence="num_gpus must fill whole nodes", excess=_whole_nodes),
    LayoutRule(
        name="attention_heads",
        sentence="tensor_parallel must divide num_heads, and divide num_kv_heads or be a multiple of it",
        excess=_attention_heads,
    ),
    LayoutRule(
        name="feed_forward", sentence="tensor_parallel must divide ffn_hidden_size", excess=_feed_forward
    ),
    LayoutRule(
        name="layers",
        sentence="pipeline_parallel x virtual_pipeline must divide num_layers, or num_layers + 2 with one layer less "
        "on the first and the last chunk; with virtual_pipeline 1 any pipeline_parallel up to num_layers will do",
        excess=_layers,
    ),
    LayoutRule(
        name="interleaving",
        sentence="virtual_pipeline above 1 needs pipeline_parallel above 1 and a number of micro-batches that "
        "pipeline_parallel divides",
        excess=_interleaving,
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
        name="experts",
        sentence="expert_parallel must divide num_experts and tensor x context x data parallel ranks; 1 for dense models",
        excess=_experts,
    ),
    LayoutRule(
        name="number_format",
        sentence="the accelerator must have the number format; in 16 bits V100 has only fp16",
        excess=_number_format,
    ),
    LayoutRule(
        name="peer_memory",
        sentence="checkpoint_scheme in_memory_peer needs a second node for the copy",
        excess=_peer_memory,
    ),
)
"""All rules, in the order in which reports name them."""


def layout_excess(job: Job, plans: PlanTable) -> Floats:
    """Returns how far each plan is from keeping each rule, `(n, len(LAYOUT_RULES))`; 0 is kept."""
    offers = OfferTable.from_job(job).take(plans.offer)
    return np.column_stack([rule.excess(job, plans, offers) for rule in LAYOUT_RULES])


def is_valid_layout(job: Job, plans: PlanTable) -> Booleans:
    """Returns which plans keep all rules, `(n,)`."""
    return np.asarray((layout_excess(job, plans) == 0.0).all(axis=1))
