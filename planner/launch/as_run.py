"""What does Megatron-LM run in place of a plan? What it does not have is replaced by the nearest that it has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from constraints.best_cut import present_cut
from planner.explain.runnable_plan import obstacles
from planner.launch.grouped_kernels import grouped_kernel_variable
from planner.launch.refused import refused
from planner.shared_choices import cut_at_indexers, shares_choices
from planner.text.human import typed
from simulator.domain.checkpointing import PeerPlacement
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, Plan, PlanTable, Recompute, Schedule
from simulator.domain.workload import Workload
from simulator.errors import InputError
from simulator.layout.expert_ranks import expert_replicas
from simulator.record import Record


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

    @property
    def gpus_per_node(self) -> int:
        """Accelerators of a node that train."""
        return self.job.offers[self.plan.offer].node.num_accelerators

    @property
    def num_nodes(self) -> int:
        """Nodes that train; a plan that can run fills them."""
        return self.plan.num_gpus // self.gpus_per_node

    def run_workload(self, reason: str, **values: object) -> None:
        """Replaces values of the workload where they differ, for a reason."""
        changed = self._noted("workload.", self.workload, values, reason)
        if changed:
            workload = self.workload.model_copy(update=changed)
            self.job = self.job.model_copy(update={"workload": workload})

    def run_model(self, reason: str, **values: object) -> None:
        """Replaces values of the network where they differ, for a reason."""
        changed = self._noted("workload.model.", self.workload.model, values, reason)
        if changed:
            model = self.workload.model.model_copy(update=changed)
            workload = self.workload.model_copy(update={"model": model})
            self.job = self.job.model_copy(update={"workload": workload})

    def run_saves(self, reason: str, **values: object) -> None:
        """Replaces settings of checkpoints where they differ, for a reason."""
        changed = self._noted("checkpointing.", self.job.checkpointing, values, reason)
        if changed:
            checkpointing = self.job.checkpointing.model_copy(update=changed)
            self.job = self.job.model_copy(update={"checkpointing": checkpointing})

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
    if problems := refused(job, plan):
        raise InputError(problems)
    run = AsRun(job, plan)
    _run_plan(run)
    _run_cut(run)
    _run_kernels(run)
    _run_recomputed_modules(run)
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
            return typed(value)
        case Record():
            return ", ".join(f"{name} {_told(each)}" for name, each in value)
        case tuple():
            return ", ".join(map(str, value))
        case _:
            return str(value)


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
    if plan.shard_ranks and run.workload.model.experts:
        replicas = int(expert_replicas(run.workload, PlanTable.from_plans([plan]))[0])
        if replicas % (plan.data_parallel * plan.context_parallel // plan.shard_ranks):
            run.run_plan("the copies of its optimizer divide the replicas of experts, too", shard_ranks=None)
    has_groups = (plan.recompute_num_layers or 1) > 1 and run.workload.recompute_method == "uniform"
    if run.workload.model.num_mtp_layers and has_groups and plan.recompute is Recompute.FULL:
        run.run_plan("modules of multi-token prediction are recomputed one by one", recompute_num_layers=None)
    vocabulary_size = run.workload.model.vocabulary_size
    filled = -(-vocabulary_size // plan.tensor_parallel) * plan.tensor_parallel
    run.run_model("tensor-parallel ranks have equal parts of it", vocabulary_size=filled)


def _run_cut(run: AsRun) -> None:
    """Layers that share what an indexer chooses are on the rank of that indexer."""
    model, cut = run.workload.model, present_cut(run.job, run.plan)
    if cut and run.plan.pipeline_parallel > 1 and shares_choices(model):
        nearest = cut_at_indexers(model, cut)
        if nearest != cut:
            run.run_workload("each chunk begins with a layer that has an indexer", stage_layers=nearest)


def _run_kernels(run: AsRun) -> None:
    workload, plan = run.workload, run.plan
    if workload.attention in {"eager", "unfused"} and plan.context_parallel > 1:
        run.run_workload("context-parallel ranks need fused kernels", attention="flash")
    kernels = {"flash-1": "flash", "eager": "unfused"}
    kernel = run.workload.attention
    run.run_workload("its kernels", attention=kernels.get(kernel, kernel))
    if workload.kernel_launch.endswith("2022"):
        run.run_workload("today's software", kernel_launch="eager")
    if workload.kernel_launch == "graph" and (obstacle := _against_graphs(workload, plan)):
        run.run_workload(obstacle, kernel_launch="eager")
    if workload.logit_bytes < 4:
        run.run_workload("the loss in place (Transformer Engine's) is disabled", logit_bytes=4)
    if workload.logit_bytes == 5:
        run.run_workload("its losses need 4 bytes, or 6", logit_bytes=4)
    if workload.logit_bytes > 6:
        run.run_workload("the loss is split over tensor-parallel ranks, in fp32", logit_bytes=6)


def _run_software(run: AsRun) -> None:
    """What Megatron-LM does in one way alone."""
    workload, plan = run.workload, run.plan
    run.run_workload("attention reads shared keys and values in place", copies_shared_heads=False)
    run.run_workload("its operators are fused", has_fused_operators=True, checkpoints_norms=False)
    run.run_workload("only the loss is computed", measures_accuracy=False)
    run.run_workload("products with a common input are merged", separate_first_products="none")
    run.run_workload("hidden behind the weight gradient", overlaps_input_gradients=True)
    run.run_workload("it recomputes modules", selective_recompute="attention")
    run.run_workload("inputs are cast first", gathers_cast_inputs=True)
    if workload.context_exchange == "gathered_ring":
        run.run_workload("keys and values go round one by one", context_exchange="ring")
    if workload.activation_offload_fraction:
        _run_offload(run)
    reason = "stages free what they sent, and keep what they received"
    run.run_workload(reason, keeps_stage_outputs=False, frees_stage_inputs=False, joins_logits=False)
    if plan.tensor_parallel > 1 and (workload.model.experts or workload.model.indexer):
        what = "experts need" if workload.model.experts else "attention to chosen tokens needs"
        run.run_workload(f"{what} it beside tensor parallelism", has_sequence_parallel=True)
    if reason := _against_pieces(workload, plan):
        run.run_workload(reason, overlaps_tensor_comm=False)
    if workload.evaluation_every_steps is not None:
        batches = max(1, round(workload.evaluation_sequences / workload.global_batch_size))
        every_steps = float(round(workload.evaluation_every_steps))
        run.run_workload("evaluations come behind whole steps", evaluation_every_steps=every_steps)
        reason = "evaluations have whole batches"
        run.run_workload(reason, evaluation_sequences=batches * workload.global_batch_size)


def _against_pieces(workload: Workload, plan: Plan) -> str:
    """Why tensor-parallel traffic cannot be in pieces behind products; empty if it can."""
    if workload.model.latent_attention:
        return "products of latents do not overlap"
    has_blocks = plan.precision is Precision.FP8 and workload.fp8_recipe == "blockwise"
    is_among = has_blocks or plan.precision is Precision.FP4
    return "its buffers take 16 bits, scales of whole tensors, and MXFP8" if is_among else ""


def _against_graphs(workload: Workload, plan: Plan) -> str:
    """Why layers cannot be graphs; empty if they can."""
    if workload.model.experts:
        return "graphs of layers need a fixed number of tokens per expert"
    if plan.recompute is Recompute.FULL:
        return "graphs of layers exclude full recomputation"
    if plan.recompute is Recompute.SELECTIVE and not workload.model.is_gated:
        return "graphs of layers exclude recomputation with dropout, which blocks without a gate have"
    if workload.activation_offload_fraction:
        return "graphs of layers exclude offloading of activations"
    return "graphs of layers exclude packed documents" if workload.documents else ""


def _run_recomputed_modules(run: AsRun) -> None:
    """Modules that it does not compute again."""
    if run.plan.recompute is not Recompute.SELECTIVE:
        return
    modules, reasons = run.workload.recompute_modules, []
    for excluded, reason in _against_modules(run.workload, run.plan):
        if excluded.intersection(modules):
            modules = tuple(each for each in modules if each not in excluded)
            reasons.append(reason)
    if modules:
        run.run_workload("; ".join(reasons), recompute_modules=modules)
    else:
        run.run_plan("; ".join(reasons), recompute=Recompute.NONE)


def _against_modules(workload: Workload, plan: Plan) -> Iterator[tuple[frozenset[str], str]]:
    """Modules that number formats exclude, and why: delayed scaling has no inputs from which they could be computed again."""
    if plan.precision is Precision.FP8 and workload.fp8_recipe == "delayed":
        reason = "delayed scaling excludes recomputation of norms and activations of experts"
        yield frozenset({"moe_act", "layernorm"}), reason
    if workload.model.indexer and plan.precision in {Precision.FP8, Precision.FP4}:
        yield (
            frozenset({"mla_up_proj"}),
            "beside chosen tokens it computes up-projections again in 16 bits alone",
        )


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
    if plan.zero_stage == 0:
        run.run_workload("it offloads sharded states alone", optimizer_offload_fraction=0.0)
    nearest = min((each for each in _possible_states(run) if each >= workload.optimizer_bytes), default=12.0)
    run.run_workload("its formats of optimizer states", optimizer_bytes=nearest)
    if workload.muon:
        reason = "Muon keeps master weights and momentum in 32 bits"
        muon = workload.muon.model_copy(update={"state_bytes": 8.0})
        run.run_workload(reason, muon=muon, optimizer_bytes=12.0)
        run.run_workload("weights that Muon updates are gathered in 16 bits", gathers_cast_weights=False)
    run.run_workload("Megatron-FSDP", weight_prefetch="both", regathers_weights=False)
    run.run_workload("Megatron-FSDP", sharded_copies="none", most_gathered_weights=None)
    if run.plan.zero_stage >= 2:
        run.run_workload("Megatron-FSDP always does", overlaps_gradient_sync=True)
    is_cast = plan.precision in {Precision.FP8, Precision.FP4}
    if run.workload.gathers_cast_weights and not run.plan.zero_stage:
        run.run_workload("weights are not gathered", gathers_cast_weights=False)
    if is_cast and run.workload.optimizer_offload_fraction and run.workload.fp8_recipe != "delayed":
        run.run_workload(
            "offloading of the optimizer excludes it, but for delayed scaling", gathers_cast_weights=False
        )
    if plan.precision is Precision.FP4:
        run.run_workload("4-bit weights are not gathered", gathers_cast_weights=False)
    if is_cast and run.plan.zero_stage < 3 and not run.workload.gathers_cast_weights:
        run.run_workload("Transformer Engine keeps them", keeps_cast_weights=True)


def _possible_states(run: AsRun) -> tuple[float, ...]:
    """Bytes of optimizer states per weight that it can have."""
    plan, workload = run.plan, run.workload
    if plan.precision is Precision.FP16 or plan.zero_stage == 0 or workload.optimizer_offload_fraction:
        return (12.0,)
    is_cast = plan.precision is Precision.FP8 and workload.fp8_recipe != "delayed"
    has_whole_masters = is_cast or plan.zero_stage >= 2
    return (8.0, 12.0) if has_whole_masters else (6.0, 10.0, 12.0)


def _run_experts(run: AsRun) -> None:
    plan, workload = run.plan, run.workload
    if workload.model.experts is None:
        return
    run.run_workload("for its dispatcher `ncclep` alone", dispatches_in_8_bits=False)
    if grouped_kernel_variable(run.job, plan) is None:
        run.run_workload("Transformer Engine has a product for each", expert_products="separate")
    if workload.model.experts.has_biases:
        run.run_workload("experts with biases are whole", expert_tensor_parallel=1)
    if plan.expert_parallel * run.workload.expert_tensor_parallel == 1:
        run.run_workload("no ranks share experts", expert_dispatch="all_to_all")
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
    if workload.documents or workload.model.num_mtp_layers > 1:
        reason = "it hides exchanges without packed documents, and with one module of multi-token prediction"
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


def _run_saves(run: AsRun) -> None:
    scheme = SCHEMES.get(run.plan.checkpoint_scheme, run.plan.checkpoint_scheme)
    reason = "it saves to the file system, in the background or not, and to the nodes themselves"
    if scheme is CheckpointScheme.SYNC and run.plan.zero_stage:
        reason, scheme = "ranks write their own shards of the optimizer", CheckpointScheme.SYNC_SHARDED
    if scheme in LOCAL and run.plan.zero_stage >= 2:
        reason, scheme = "Megatron-FSDP's format is not saved to the nodes", CheckpointScheme.ASYNC
    if scheme in COPIED and run.num_nodes % run.job.checkpointing.peer_copies:
        reason = f"its groups of {run.job.checkpointing.peer_copies} nodes do not divide the nodes"
        scheme = CheckpointScheme.ASYNC
    if scheme is not run.plan.checkpoint_scheme:
        run.run_plan(reason, checkpoint_scheme=scheme)
        run.plan = run.plan.model_copy(update={"checkpoint_interval_s": None})
    if scheme is not CheckpointScheme.NONE:
        run.run_saves("replicas save what they share once", is_deduplicated=True)
    if scheme in COPIED:
        run.run_saves("nodes of a group copy to each other", peer_placement=PeerPlacement.GROUP)
