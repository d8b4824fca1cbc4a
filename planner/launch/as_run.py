"""What does Megatron-LM run in place of a plan? What it does not have is replaced by the nearest that it has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.explain.runnable_plan import obstacles
from planner.launch.grouped_kernels import grouped_kernel_variable
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.model import ModelShape
from simulator.domain.plan import CheckpointScheme, Plan, Recompute, Schedule
from simulator.domain.workload import Workload
from simulator.errors import InputError, Problem
from simulator.record import Record

FRAMEWORK = "Megatron-LM"
VENDORS = ("NVIDIA", "AMD")
"""Whose accelerators run it; AMD maintains a copy of it (ROCm/Megatron-LM)."""


class Difference(Record):
    """A choice that Megatron-LM does not have, and what it runs in its place."""

    field: str
    """Field of the plan, such as `zero_stage`, or of the job, such as `workload.logit_bytes`."""
    value: str
    """What the plan or the job has."""
    runs: str
    """What Megatron-LM runs."""
    reason: str
    """Why."""


@dataclass
class AsRun:
    """A job and a plan as Megatron-LM runs them; each replacement is noted."""

    job: Job
    plan: Plan
    differences: list[Difference] = field(default_factory=list)

    @property
    def workload(self) -> Workload:
        """The workload of the job."""
        return self.job.workload

    def run_workload(self, reason: str, **values: object) -> None:
        """Replaces values of the workload where they differ, for a reason."""
        changed = self._noted("workload.", self.workload, values, reason)
        if changed:
            workload = self.workload.model_copy(update=changed)
            self.job = self.job.model_copy(update={"workload": workload})

    def run_plan(self, reason: str, **values: object) -> None:
        """Replaces decisions of the plan where they differ, for a reason."""
        self.plan = self.plan.model_copy(update=self._noted("", self.plan, values, reason))

    def _noted(
        self, path: str, record: Record, values: Mapping[str, object], reason: str
    ) -> dict[str, object]:
        changed = {name: value for name, value in values.items() if getattr(record, name) != value}
        self.differences += [
            Difference(
                field=path + name, value=_told(getattr(record, name)), runs=_told(value), reason=reason
            )
            for name, value in changed.items()
        ]
        return changed


def as_run(job: Job, plan: Plan) -> AsRun:
    """Returns a job and a plan as Megatron-LM runs them.

    Args:
        job: the job.
        plan: a plan that can run.

    Raises:
        InputError: Megatron-LM has no such network, does not train adapters, or does not run on the accelerator.
    """
    _check(job, plan)
    run = AsRun(job, plan)
    _run_plan(run)
    _run_software(run)
    _run_gradients(run)
    _run_experts(run)
    _run_saves(run)
    return run


def _told(value: object) -> str:
    match value:
        case None:
            return "left out"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _check(job: Job, plan: Plan) -> None:
    """Raises for what cannot be replaced."""
    accelerator, workload = job.offers[plan.offer].accelerator, job.workload
    problems = list(_shapes(workload.model))
    if accelerator.vendor not in VENDORS:
        rule = f"{FRAMEWORK} runs on GPUs of {' and '.join(VENDORS)}; take an offer of theirs"
        problems.append(("accelerator", accelerator.id, rule))
    if workload.lora:
        rule = f"{FRAMEWORK} trains all weights; adapters are trained by Megatron-Bridge and NeMo"
        problems.append(("workload.lora", f"rank {workload.lora.rank}", rule))
    if problems:
        raise InputError([Problem(path=path, value=value, rule=rule) for path, value, rule in problems])


def _shapes(model: ModelShape) -> list[tuple[str, str, str]]:
    """What of a network Megatron-LM's GPT models do not have."""
    window = model.sliding_window
    found = []
    if window and window.is_chunked:
        rule = f"{FRAMEWORK} has windows that move with each token, not in steps of their size"
        found.append(("workload.model.sliding_window.is_chunked", "true", rule))
    if model.parallel_block:
        rule = f"{FRAMEWORK} runs attention and feed-forward block one after the other"
        found.append(("workload.model.parallel_block", model.parallel_block, rule))
    if model.qk_norm == "all_heads":
        rule = f"{FRAMEWORK} has norms of queries and keys for one head, and without weights"
        found.append(("workload.model.qk_norm", model.qk_norm, rule))
    return found


def _run_plan(run: AsRun) -> None:
    plan = run.plan
    if plan.pipeline_schedule is not Schedule.ONE_F_ONE_B:
        reason = "it has 1F1B alone, interleaved where a stage has several chunks"
        run.run_plan(reason, pipeline_schedule=Schedule.ONE_F_ONE_B)
        if plan.virtual_pipeline > 1 and obstacles(run.job, run.plan):
            run.run_plan("1F1B cannot interleave these micro-batches and layers", virtual_pipeline=1)
    if plan.zero_stage >= 2 and plan.pipeline_parallel > 1:
        reason = (
            "its distributed optimizer shards no gradients, and Megatron-FSDP is described without pipelines"
        )
        run.run_plan(reason, zero_stage=1)


def _run_software(run: AsRun) -> None:
    """Kernels and recomputation."""
    workload, plan = run.workload, run.plan
    kernels = {"flash-1": "flash", "eager": "unfused"}
    run.run_workload("its kernels", attention=kernels.get(workload.attention, workload.attention))
    if workload.kernel_launch.endswith("2022"):
        run.run_workload("today's software", kernel_launch="eager")
    if workload.kernel_launch == "graph" and workload.model.experts:
        run.run_workload("graphs of layers need a fixed number of tokens per expert", kernel_launch="eager")
    if workload.kernel_launch == "graph" and plan.recompute is Recompute.FULL:
        run.run_workload("graphs of layers exclude full recomputation", kernel_launch="eager")
    run.run_workload("attention reads shared keys and values in place", copies_shared_heads=False)
    run.run_workload("its operators are fused", has_fused_operators=True, checkpoints_norms=False)
    run.run_workload("only the loss is computed", measures_accuracy=False)
    run.run_workload("products with a common input are merged", separate_first_products="none")
    run.run_workload("hidden behind the weight gradient", overlaps_input_gradients=True)
    run.run_workload("it recomputes modules", selective_recompute="attention")
    run.run_workload("inputs are cast first", gathers_cast_inputs=True)
    if workload.logit_bytes < 4:
        run.run_workload("the loss in place (Transformer Engine's) is disabled", logit_bytes=4)
    if workload.logit_bytes > 6:
        run.run_workload("the loss is split over tensor-parallel ranks, in fp32", logit_bytes=6)
    if workload.context_exchange == "gathered_ring":
        run.run_workload("keys and values go round one by one", context_exchange="ring")
    if workload.activation_offload_fraction:
        _run_offload(run)
    reason = "stages free what they sent, and keep what they received"
    run.run_workload(reason, keeps_stage_outputs=False, frees_stage_inputs=False, joins_logits=False)
    if plan.tensor_parallel > 1 and workload.model.experts:
        run.run_workload("experts need it beside tensor parallelism", has_sequence_parallel=True)
    if workload.evaluation_every_steps is not None:
        batches = max(1, round(workload.evaluation_sequences / workload.global_batch_size))
        reason = "evaluations have whole batches"
        run.run_workload(reason, evaluation_sequences=batches * workload.global_batch_size)


def _run_offload(run: AsRun) -> None:
    """Activations of whole layers, of one stage, that are not recomputed."""
    num_layers, plan = run.workload.model.num_layers, run.plan
    if plan.pipeline_parallel > 1 or plan.recompute is not Recompute.NONE:
        reason = "it offloads activations without pipelines and without recomputation"
        run.run_workload(reason, activation_offload_fraction=0.0)
        return
    layers = offloaded_layers(run.workload)
    if not math.isclose(layers / num_layers, run.workload.activation_offload_fraction, rel_tol=1e-3):
        run.run_workload(
            "it offloads whole layers, not the last one", activation_offload_fraction=layers / num_layers
        )


def offloaded_layers(workload: Workload) -> int:
    """Returns the layers whose activations are offloaded, of a model without pipeline stages."""
    num_layers = workload.model.num_layers
    return min(round(workload.activation_offload_fraction * num_layers), num_layers - 1)


def _run_gradients(run: AsRun) -> None:
    """Gradients, optimizer and sharded weights."""
    workload, plan = run.workload, run.plan
    if workload.gradient_bytes > 4:
        run.run_workload("one copy of gradients", gradient_bytes=4)
    if workload.sync_bytes not in {None, run.workload.gradient_bytes}:
        run.run_workload("gradients travel as they are accumulated", sync_bytes=None)
    run.run_workload("its distributed optimizer scatters them", scatters_gradients_from=1)
    run.run_workload("buckets are gradients in place", bucket_copy_bytes=0.0, sync_buffer_bytes=0.0)
    run.run_workload("products add gradients", added_gradient_bytes=None)
    run.run_workload("its optimizer", update_bytes=None, step_bytes=None, fuses_update=False)
    run.run_workload("gradients stay on the GPU until the update", offloads_gradients=False)
    if workload.optimizer_bytes not in _possible_states(run):
        run.run_workload("its formats of optimizer states", optimizer_bytes=12.0)
    run.run_workload("Megatron-FSDP", weight_prefetch="both", regathers_weights=False)
    run.run_workload("Megatron-FSDP", sharded_copies="none", most_gathered_weights=None)
    is_cast = plan.precision in {Precision.FP8, Precision.FP4}
    if run.workload.gathers_cast_weights and not run.plan.zero_stage:
        run.run_workload("weights are not gathered", gathers_cast_weights=False)
    if is_cast and run.plan.zero_stage < 3 and not run.workload.gathers_cast_weights:
        run.run_workload("Transformer Engine keeps them", keeps_cast_weights=True)


def _possible_states(run: AsRun) -> tuple[float, ...]:
    """Bytes of optimizer states per weight that it can have."""
    can_save_bits = run.plan.precision is not Precision.FP16 and run.plan.zero_stage >= 1
    return (6.0, 10.0, 12.0) if can_save_bits else (12.0,)


def _run_experts(run: AsRun) -> None:
    plan, workload = run.plan, run.workload
    run.run_workload("for its dispatcher `ncclep` alone", dispatches_in_8_bits=False)
    if workload.model.experts and grouped_kernel_variable(run.job, plan) is None:
        run.run_workload("Transformer Engine computes each expert apart", expert_products="separate")
    if not workload.overlaps_expert_exchange:
        return
    recomputes = plan.recompute is Recompute.FULL or (
        plan.recompute is Recompute.SELECTIVE and "moe" in workload.recompute_modules
    )
    is_one_chunk = plan.pipeline_parallel > 1 and plan.virtual_pipeline == 1
    if recomputes or is_one_chunk or plan.expert_parallel == 1:
        reason = (
            "it hides exchanges with EP, with several chunks on each stage, and without recomputing experts"
        )
        run.run_workload(reason, overlaps_expert_exchange=False)


SCHEMES = {
    CheckpointScheme.ASYNC_LAZY: CheckpointScheme.ASYNC,
    CheckpointScheme.GRADIENT_ASSISTED: CheckpointScheme.ASYNC,
    CheckpointScheme.GRADIENT_REPLICA: CheckpointScheme.ASYNC,
    CheckpointScheme.DIFFERENTIAL: CheckpointScheme.ASYNC,
    CheckpointScheme.JUST_IN_TIME: CheckpointScheme.ASYNC,
    CheckpointScheme.REPLICA_FT: CheckpointScheme.ASYNC,
}
"""Checkpoint schemes that Megatron-LM does not have, and the one in their place."""
LOCAL = (CheckpointScheme.LOCAL_NVME, CheckpointScheme.IN_MEMORY_PEER, CheckpointScheme.TIERED)
"""Schemes with saves on the nodes themselves (`nvidia-resiliency-ext`)."""

COPIED = (CheckpointScheme.IN_MEMORY_PEER, CheckpointScheme.TIERED)
"""Those of them that copy every shard to other nodes."""


def _num_nodes(run: AsRun) -> int:
    return -(-run.plan.num_gpus // run.job.offers[run.plan.offer].node.num_accelerators)


def _run_saves(run: AsRun) -> None:
    scheme = SCHEMES.get(run.plan.checkpoint_scheme, run.plan.checkpoint_scheme)
    reason = "it saves to the file system, in the background or not, and to the nodes themselves"
    if scheme in LOCAL and run.plan.zero_stage >= 2:
        reason, scheme = "Megatron-FSDP's format is not saved to the nodes", CheckpointScheme.ASYNC
    if scheme in COPIED and _num_nodes(run) % run.job.checkpointing.peer_copies:
        reason = f"its groups of {run.job.checkpointing.peer_copies} nodes do not divide the nodes"
        scheme = CheckpointScheme.ASYNC
    if scheme is not run.plan.checkpoint_scheme:
        run.run_plan(reason, checkpoint_scheme=scheme)
        run.plan = run.plan.model_copy(update={"checkpoint_interval_s": None})
