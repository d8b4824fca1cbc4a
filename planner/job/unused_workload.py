"""Which fields of a workload have no effect, because neither the layouts searched nor other fields use them?"""

from __future__ import annotations

from planner.job.unused_rule import UnusedRule
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.lora import AdaptedProduct
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan, Recompute

_DEGREES = ("tensor_parallel", "pipeline_parallel", "virtual_pipeline", "context_parallel", "expert_parallel")


def _has_indexer(model: ModelShape) -> bool:
    """Whether an indexer chooses tokens, or compressed ones, in some layers."""
    compressed = model.compressed_attention
    return model.indexer is not None or (compressed is not None and compressed.num_chosen_layers > 0)


def narrowed_to(job: Job, plan: Plan) -> Job:
    """Returns the job with its search space reduced to one plan's layout, which limits remarks to that plan."""
    lists = {name: (getattr(plan, name),) for name in _DEGREES}
    layers = None if plan.recompute_num_layers is None else (plan.recompute_num_layers,)
    groups = None if plan.interleaved_group_size is None else (plan.interleaved_group_size,)
    search = job.search.model_copy(
        update={
            **lists,
            "zero_stages": (plan.zero_stage,),
            "recompute": (plan.recompute,),
            "recompute_num_layers": layers,
            "interleaved_group_sizes": groups,
        }
    )
    workload = job.workload.model_copy(update={"precisions": (plan.precision,)})
    return job.model_copy(
        update={"offers": (job.offers[plan.offer],), "workload": workload, "search": search}
    )


def _splits(job: Job, degree: str) -> bool:
    allowed = getattr(job.search, degree)
    return allowed is None or max(allowed) > 1


def _has_experts(job: Job) -> bool:
    return job.workload.model.experts is not None


def _has_shared_experts(job: Job) -> bool:
    experts = job.workload.model.experts
    return experts is not None and experts.shared_ffn_hidden_size > 0


def _shares_heads(job: Job) -> bool:
    model = job.workload.model
    return model.latent_attention is None and model.num_kv_heads < model.num_heads


def _fuses_norms(job: Job) -> bool:
    return job.workload.has_fused_operators or not job.workload.model.is_gated


def _drops_tokens(job: Job) -> bool:
    capacity = job.workload.expert_capacity_factor
    return capacity is not None and job.workload.expert_imbalance > capacity


def _can_free_stage_inputs(job: Job) -> bool:
    keeping = {Recompute.NONE}
    if not job.workload.needs_layer_inputs:
        keeping.add(Recompute.SELECTIVE)
    return not keeping.isdisjoint(job.search.recompute)


def _gathers_again(job: Job) -> bool:
    """Whether ZeRO-2 may gather weights again in every micro-batch."""
    return 2 in job.search.searched_zero_stages and job.workload.regathers_weights


def _allows(job: Job, *precisions: Precision) -> bool:
    return any(precision in job.workload.precisions for precision in precisions)


def _paths(*names: str) -> tuple[str, ...]:
    return tuple(f"workload.{name}" for name in names)


WORKLOAD_RULES = (
    UnusedRule(
        is_used=_has_experts,
        why="the model has no experts",
        paths=_paths(
            "expert_dispatch",
            "overlaps_expert_exchange",
            "expert_products",
            "overlaps_shared_experts",
            "dispatches_in_8_bits",
            "fills_expert_rows",
            "gathers_routing_maps",
            "expert_tensor_parallel",
            "expert_imbalance",
            "expert_capacity_factor",
        ),
    ),
    UnusedRule(
        is_used=lambda job: job.workload.expert_products == "separate",
        why="expert_products is not separate",
        paths=_paths("fills_expert_rows"),
    ),
    UnusedRule(
        is_used=lambda job: job.workload.expert_dispatch == "deduplicated",
        why="expert_dispatch is not deduplicated",
        paths=_paths("gathers_routing_maps"),
    ),
    UnusedRule(
        is_used=_has_shared_experts,
        why="the model has no shared experts",
        paths=_paths("overlaps_shared_experts"),
    ),
    UnusedRule(
        is_used=_drops_tokens,
        why="expert_imbalance does not exceed it",
        paths=_paths("expert_capacity_factor"),
    ),
    UnusedRule(
        is_used=lambda job: _allows(job, Precision.FP8),
        why="precisions do not allow fp8",
        paths=_paths("fp8_recipe", "dispatches_in_8_bits"),
    ),
    UnusedRule(
        is_used=lambda job: _allows(job, Precision.FP8, Precision.FP4),
        why="precisions allow neither fp8 nor fp4",
        paths=_paths("gathers_cast_inputs", "keeps_cast_weights", "fills_expert_rows"),
    ),
    UnusedRule(
        is_used=lambda job: (
            _allows(job, Precision.FP8)
            and (job.workload.fp8_recipe != "mxfp8" or 3 in job.search.searched_zero_stages)
        ),
        why="weights in 4 bits, and in MXFP8 but under ZeRO stage 3, are gathered in 16",
        paths=_paths("gathers_cast_weights"),
    ),
    UnusedRule(
        is_used=lambda job: min(job.search.searched_zero_stages) < 3,
        why="under ZeRO stage 3 weights are cast when they are gathered",
        paths=_paths("keeps_cast_weights"),
    ),
    UnusedRule(
        is_used=lambda job: 3 in job.search.searched_zero_stages,
        why="ZeRO stage 3 is not allowed",
        paths=_paths("most_gathered_weights"),
    ),
    UnusedRule(
        is_used=lambda job: 3 in job.search.searched_zero_stages or _gathers_again(job),
        why="ZeRO stage 3 is not allowed",
        paths=_paths("weight_prefetch", "sharded_copies"),
    ),
    UnusedRule(
        is_used=lambda job: 2 in job.search.searched_zero_stages,
        why="ZeRO stage 2 is not allowed",
        paths=_paths("regathers_weights"),
    ),
    UnusedRule(
        is_used=lambda job: min(job.search.searched_zero_stages) < 2,
        why="ZeRO stages 0 and 1 are not allowed",
        paths=_paths("checks_gradients", "divides_gradients", "bucket_weights", "added_gradient_bytes"),
    ),
    UnusedRule(
        is_used=lambda job: min(job.search.searched_zero_stages) < 3,
        why="under ZeRO stage 3 gradients need no buckets",
        paths=_paths("bucket_copy_bytes"),
    ),
    UnusedRule(
        is_used=lambda job: job.workload.overlaps_gradient_sync,
        why="overlaps_gradient_sync is false",
        paths=_paths("bucket_weights"),
    ),
    UnusedRule(
        is_used=_fuses_norms,
        why="norms are separate operators, which have copies in 32 bits anyway",
        paths=_paths("checkpoints_norms"),
    ),
    UnusedRule(
        is_used=lambda job: set(job.workload.precisions) != {Precision.FP16},
        why="in fp16 loss scaling finds NaN",
        paths=_paths("checks_gradients"),
    ),
    UnusedRule(
        is_used=lambda job: _splits(job, "tensor_parallel"),
        why="tensor_parallel is 1",
        paths=_paths("muon.tensor_mode"),
    ),
    UnusedRule(
        is_used=lambda job: max(job.search.searched_zero_stages) > 0,
        why="without ZeRO every rank updates all matrices",
        paths=_paths("muon.reduction"),
    ),
    UnusedRule(
        is_used=lambda job: job.workload.muon is None,
        why="with Muon muon.reduction says how gradients are reduced",
        paths=_paths("scatters_gradients_from"),
    ),
    UnusedRule(
        is_used=lambda job: job.workload.step_bytes is None,
        why="step_bytes is given",
        paths=_paths("checks_gradients", "divides_gradients", "fuses_update"),
    ),
    UnusedRule(
        is_used=lambda job: not {1, 2}.isdisjoint(job.search.searched_zero_stages),
        why="neither ZeRO stage 1 nor 2 is allowed",
        paths=_paths("overlaps_parameter_gather", "scatters_gradients_from"),
    ),
    UnusedRule(
        is_used=lambda job: (
            job.workload.optimizer_offload_fraction > 0 and max(job.search.searched_zero_stages) >= 2
        ),
        why="no optimizer states are offloaded under ZeRO-2 or 3",
        paths=_paths("offloads_gradients"),
    ),
    UnusedRule(
        is_used=lambda job: Recompute.SELECTIVE in job.search.recompute,
        why="selective recomputation is not allowed",
        paths=_paths("selective_recompute", "recompute_modules"),
    ),
    UnusedRule(
        is_used=lambda job: bool(job.search.recompute_num_layers) and Recompute.FULL in job.search.recompute,
        why="recompute_num_layers is not given",
        paths=_paths("recompute_method"),
    ),
    UnusedRule(
        is_used=lambda job: _splits(job, "context_parallel"),
        why="context_parallel is 1",
        paths=_paths("context_exchange", "documents.is_split_each"),
    ),
    UnusedRule(
        is_used=lambda job: _has_indexer(job.workload.model),
        why="the model has no indexer",
        paths=_paths("trains_indexer"),
    ),
    UnusedRule(
        is_used=lambda job: "mhc" in job.workload.modules_again,
        why="recompute_modules has no mhc",
        paths=_paths("mhc_recompute_layers"),
    ),
    UnusedRule(
        is_used=lambda job: job.workload.model.indexer is None,
        why="an indexer needs the keys of all ranks, which are gathered",
        paths=_paths("context_exchange"),
    ),
    UnusedRule(
        is_used=lambda job: job.workload.chosen_exchange == "all_gather",
        why="context_exchange is not all_gather",
        paths=_paths("documents.is_split_each"),
    ),
    UnusedRule(
        is_used=lambda job: (
            job.workload.lora is None
            or not {AdaptedProduct.PROJ, AdaptedProduct.FC2}.isdisjoint(job.workload.lora.targets)
        ),
        why="no adapter stands beside a product whose inputs are split",
        paths=_paths("lora.exchanges_by_all_to_all"),
    ),
    UnusedRule(
        is_used=lambda job: job.workload.trained_vision == "all",
        why="the vision encoder is frozen",
        paths=_paths("images.encoder_recompute"),
    ),
    UnusedRule(
        is_used=lambda job: job.workload.lora is None,
        why="adapters leave the vision encoder as it is",
        paths=_paths("images.trains_encoder"),
    ),
    UnusedRule(
        is_used=lambda job: job.workload.stage_layers == "balanced",
        why="stage_layers is not balanced",
        paths=_paths("model.vision.counts_as_layers"),
    ),
    UnusedRule(
        is_used=_shares_heads,
        why="every query head has keys and values of its own",
        paths=_paths("copies_shared_heads"),
    ),
    UnusedRule(
        is_used=lambda job: _splits(job, "pipeline_parallel"),
        why="pipeline_parallel is 1",
        paths=_paths("keeps_stage_outputs", "frees_stage_inputs", "joins_logits"),
    ),
    UnusedRule(
        is_used=_can_free_stage_inputs,
        why="every layer is computed again from its input",
        paths=_paths("frees_stage_inputs"),
    ),
    UnusedRule(
        is_used=lambda job: _splits(job, "tensor_parallel"),
        why="tensor_parallel is 1",
        paths=_paths(
            "overlaps_tensor_comm",
            "overlaps_input_gradients",
            "separate_first_products",
            "has_sequence_parallel",
            "gathers_cast_inputs",
            "lora.exchanges_by_all_to_all",
        ),
    ),
    UnusedRule(
        is_used=lambda job: not (job.workload.overlaps_tensor_comm and job.workload.has_sequence_parallel),
        why="overlaps_tensor_comm runs these sums in pieces",
        paths=_paths("overlaps_input_gradients"),
    ),
    UnusedRule(
        is_used=lambda job: job.workload.lora is None,
        why="adapters leave the weights as they are",
        paths=_paths("overlaps_input_gradients"),
    ),
    UnusedRule(
        is_used=lambda job: job.workload.has_sequence_parallel,
        why="has_sequence_parallel is false",
        paths=_paths("overlaps_tensor_comm", "gathers_cast_inputs", "lora.exchanges_by_all_to_all"),
    ),
)
