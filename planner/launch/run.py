"""Which arguments split, compute and save a run with Megatron-LM?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from constraints.best_cut import present_cut
from planner.launch.arguments import LaunchArgument, argument
from planner.launch.as_run import LOCAL, offloaded_layers
from planner.text.cut_words import layout_of
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, Plan, PlanTable, Recompute
from simulator.domain.workload import Workload
from simulator.layout.chunks import split_layers
from simulator.layout.owned_matrices import deals_tensors
from simulator.traffic.context_exchange import head_ranks

SHARDING = {2: "optim_grads", 3: "optim_grads_params"}
"""What Megatron-FSDP shards under a ZeRO stage."""
CONTEXT = {"ring": "p2p", "all_gather": "all_gather", "all_to_all": "a2a", "hybrid": "a2a+p2p"}
"""`--cp-comm-type` for each exchange of context-parallel ranks."""
LOCAL_FOLDER, FOLDER = "$LOCAL_CHECKPOINTS", "$CHECKPOINTS"
"""Variables of the script: folders of saves on a node and on the file system."""


def layout_arguments(job: Job, plan: Plan) -> Iterator[LaunchArgument]:
    """Yields the arguments that split the model and the sequence."""
    workload = job.workload
    yield argument("tensor-model-parallel-size", plan.tensor_parallel)
    if plan.tensor_parallel > 1 and workload.has_sequence_parallel:
        yield argument("sequence-parallel")
    if plan.tensor_parallel > 1 and workload.overlaps_tensor_comm:
        yield argument("tp-comm-overlap")
    yield argument("pipeline-model-parallel-size", plan.pipeline_parallel)
    yield from _stages(job, plan)
    yield argument("context-parallel-size", plan.context_parallel)
    if plan.context_parallel > 1:
        yield argument("cp-comm-type", CONTEXT[workload.chosen_exchange])
        if workload.chosen_exchange == "hybrid":
            domain = np.array([job.offers[plan.offer].node.link_domain_size])
            near = int(head_ranks(workload, PlanTable.from_plans([plan]), domain)[0])
            yield argument("hierarchical-context-parallel-sizes", near, plan.context_parallel // near)
    if workload.model.experts:
        yield argument("expert-model-parallel-size", plan.expert_parallel)
        yield argument("expert-tensor-parallel-size", workload.expert_tensor_parallel)


def _stages(job: Job, plan: Plan) -> Iterator[LaunchArgument]:
    """Chunks of layers and their order; nothing without a pipeline."""
    if plan.pipeline_parallel == 1:
        return
    cut = present_cut(job, plan)
    if cut and len(set(cut)) > 1:
        yield argument("pipeline-model-parallel-layout", layout_of(cut, job.workload.model.num_mtp_layers))
    elif plan.virtual_pipeline > 1:
        yield argument("num-virtual-stages-per-pipeline-rank", plan.virtual_pipeline)
    if plan.virtual_pipeline > 1 and plan.interleaved_group_size:
        yield argument("microbatch-group-size-per-virtual-pipeline-stage", plan.interleaved_group_size)


def batch_arguments(workload: Workload, plan: Plan) -> Iterator[LaunchArgument]:
    """Yields the arguments of the batch and the length of the run."""
    yield argument("seq-length", workload.sequence_length)
    yield argument("micro-batch-size", plan.micro_batch_size)
    yield argument("global-batch-size", workload.global_batch_size)
    yield argument("train-iters", round(workload.num_steps))
    if workload.documents:
        yield argument("dataloader-inter-document-masking")
    if workload.evaluation_every_steps is None:
        yield argument("eval-iters", 0)
    else:
        yield argument("eval-interval", round(workload.evaluation_every_steps))
        yield argument("eval-iters", workload.evaluation_sequences // workload.global_batch_size)


def kernel_arguments(workload: Workload, plan: Plan) -> Iterator[LaunchArgument]:
    """Yields the arguments of number formats, kernels, recomputation and offloading."""
    yield from _formats(workload, plan)
    match workload.attention:
        case "flash-2":
            yield argument("attention-backend", "flash")
            yield argument("flash-attention-version", 2)
        case "unfused":
            yield argument("attention-backend", "unfused")
        case _:
            pass
    if workload.kernel_launch == "graph":
        yield argument("cuda-graph-impl", "transformer_engine")
        if plan.zero_stage in SHARDING:
            yield argument("fsdp-double-buffer")
    if workload.logit_bytes < 6:
        yield argument("cross-entropy-loss-fusion")
    yield from _recomputation(workload, plan)
    if workload.activation_offload_fraction:
        yield argument("cpu-offloading-num-layers", offloaded_layers(workload))


def _formats(workload: Workload, plan: Plan) -> Iterator[LaunchArgument]:
    yield argument("fp16" if plan.precision is Precision.FP16 else "bf16")
    match plan.precision:
        case Precision.FP8:
            has_blocks = workload.fp8_recipe in {"blockwise", "mxfp8"}
            yield argument("fp8-format", "e4m3" if has_blocks else "hybrid")
            yield argument("fp8-recipe", workload.fp8_recipe)
            if workload.gathers_cast_weights:
                yield argument("fp8-param-gather")
            is_mxfp8 = workload.gathers_cast_weights and workload.fp8_recipe == "mxfp8"
            if is_mxfp8 and plan.zero_stage not in SHARDING:
                yield argument("reuse-grad-buf-for-mxfp8-param-ag")
        case Precision.FP4:
            yield argument("fp4-format", "e2m1")
            yield argument("fp4-recipe", "nvfp4")
        case _:
            pass


def _recomputation(workload: Workload, plan: Plan) -> Iterator[LaunchArgument]:
    match plan.recompute:
        case Recompute.SELECTIVE:
            yield argument("recompute-granularity", "selective")
            yield argument("recompute-modules", *workload.recompute_modules)
        case Recompute.FULL:
            yield argument("recompute-granularity", "full")
            is_whole = plan.recompute_num_layers is None
            yield argument("recompute-method", "uniform" if is_whole else workload.recompute_method)
            yield argument("recompute-num-layers", plan.recompute_num_layers or 1)
        case Recompute.NONE:
            pass


def replica_arguments(workload: Workload, plan: Plan) -> Iterator[LaunchArgument]:
    """Yields the arguments of gradients, their synchronisation, and the optimizer."""
    yield from _sharding(plan)
    if workload.overlaps_gradient_sync:
        yield argument("overlap-grad-reduce")
    if plan.zero_stage and workload.hides_parameter_gather:
        yield argument("overlap-param-gather")
    if plan.precision is Precision.FP16:
        if workload.gradient_bytes == 4:
            yield argument("accumulate-allreduce-grads-in-fp32")
    elif workload.gradient_bytes == 2:
        yield argument("grad-reduce-in-bf16")
    if plan.zero_stage in SHARDING and workload.gradient_bytes == 4:
        yield argument("megatron-fsdp-main-grads-dtype", "fp32")
    if workload.bucket_weights:
        yield argument("ddp-bucket-size", round(workload.bucket_weights))
    if not workload.checks_gradients:
        yield argument("no-check-for-nan-in-loss-and-grad")
    if not workload.divides_gradients:
        yield argument("ddp-average-in-collective")
    yield from _optimizer(workload)
    yield from _muon(workload, plan)


def _sharding(plan: Plan) -> Iterator[LaunchArgument]:
    if not plan.zero_stage:
        return
    if plan.zero_stage in SHARDING:
        yield argument("use-megatron-fsdp")
        yield argument("data-parallel-sharding-strategy", SHARDING[plan.zero_stage])
    if plan.zero_stage == 3:
        yield argument("init-model-with-meta-device")  # otherwise each GPU holds the whole model once
    yield argument("use-distributed-optimizer")
    replicas = plan.data_parallel * plan.context_parallel
    if plan.shard_ranks and plan.shard_ranks < replicas:
        yield argument("num-distributed-optimizer-instances", replicas // plan.shard_ranks)


def _optimizer(workload: Workload) -> Iterator[LaunchArgument]:
    if workload.optimizer_bytes < 12 or workload.optimizer_offload_fraction:
        yield argument("use-precision-aware-optimizer")
    if workload.optimizer_bytes < 10:
        yield argument("exp-avg-dtype", "bf16")
        yield argument("exp-avg-sq-dtype", "bf16")
    if workload.optimizer_offload_fraction:
        yield argument("optimizer-cpu-offload")
        yield argument("optimizer-offload-fraction", workload.optimizer_offload_fraction)
        yield argument("overlap-cpu-optimizer-d2h-h2d")


def _muon(workload: Workload, plan: Plan) -> Iterator[LaunchArgument]:
    if (muon := workload.muon) is None:
        return
    yield argument("optimizer", "muon")
    yield argument("muon-num-ns-steps", muon.num_steps)
    if plan.tensor_parallel > 1:
        yield argument("muon-tp-mode", muon.tensor_mode)
    plans = PlanTable.from_plans([plan])
    if deals_tensors(workload, plans, split_layers(workload.model, plans, workload.stage_layers))[0]:
        yield argument("no-use-layer-wise-param-layout")


def save_arguments(job: Job, plan: Plan, every_steps: int, durable_every: int) -> Iterator[LaunchArgument]:
    """Yields the arguments of checkpoints; their format alone for a run without any.

    Args:
        job: the job.
        plan: the plan.
        every_steps: optimizer steps from one save to the next.
        durable_every: one in so many saves on the nodes continues to the file system.
    """
    scheme, settings = plan.checkpoint_scheme, job.checkpointing
    yield argument("ckpt-format", "fsdp_dtensor" if plan.zero_stage in SHARDING else "torch_dist")
    if scheme is CheckpointScheme.NONE:
        return
    is_local = scheme in LOCAL
    yield argument("save", FOLDER)
    yield argument("load", FOLDER)
    if plan.zero_stage not in SHARDING:
        yield argument("ckpt-fully-parallel-load")
    yield argument("save-interval", every_steps * (durable_every if is_local else 1))
    if scheme is CheckpointScheme.SYNC:
        yield argument("no-ckpt-fully-parallel-save")
    if is_local or scheme is CheckpointScheme.ASYNC:
        yield argument("async-save")
        yield argument("use-persistent-ckpt-worker")
        if not is_local:
            yield argument("async-strategy", "mcore")
    if is_local:
        yield argument("non-persistent-ckpt-type", "local")
        yield argument("non-persistent-save-interval", every_steps)
        yield argument("non-persistent-local-ckpt-dir", LOCAL_FOLDER)
    if is_local and scheme is not CheckpointScheme.LOCAL_NVME:
        yield argument("replication")
        yield argument("replication-jump", job.offers[plan.offer].node.num_accelerators)
        yield argument("replication-factor", settings.peer_copies)


def exit_arguments(minutes: int | None) -> Iterator[LaunchArgument]:
    """Yields the argument with which a job saves and ends before the queue ends it; nothing without a limit."""
    if minutes is not None:
        yield argument("exit-duration-in-mins", minutes)
