"""How much memory does the most loaded GPU need, and for what?

Model states under ZeRO (`simulator.layout.model_states`), activations (`simulator.memory.activations`), the loss
(`simulator.memory.loss_memory`), temporary needs of the working layer (`simulator.memory.weights_at_work`) and of the optimizer
step, fragmentation, and the framework itself. Publishers report different sums of these; `MemoryTable` has the matching one for
each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np

from simulator.domain.plan import Plan, PlanTable, turns_back
from simulator.domain.workload import Workload
from simulator.layout.chunks import Chunks, split_layers
from simulator.layout.micro_batches import num_micro_batches
from simulator.layout.model_states import FULL_GRADIENT_BYTES, StateBytes
from simulator.layout.stage_content import StageContent
from simulator.memory.activations import activations_of_stage
from simulator.memory.loss_memory import embedding_at_work, joined_logits_bytes, logits_bytes
from simulator.memory.weights_at_work import weights_at_work
from simulator.table import Booleans, Floats, Integers, Table, total
from simulator.units import GIGA

FRAMEWORK_BYTES = 3.9 * GIGA
"""Context, libraries and communicators: 3.5 GB + 0.39 GB for eight ranks (aiconfigurator, measured on H100)."""
RESERVED_FRACTION = 0.06
"""Share of the reserved memory that fragmentation wastes: reserved = allocated / 0.94 (SimuMax)."""

MemoryKind = Literal["allocated", "reserved", "device"]
"""What a published peak counts: live tensors, memory held by their allocator, or all allocated device memory."""


@dataclass(frozen=True, kw_only=True)
class MemoryTable(Table):
    """Memory of the most loaded GPU by component, bytes `(n,)`."""

    weights_bytes: Floats
    gradients_bytes: Floats
    """Gradients held while a micro-batch passes."""
    late_gradients_bytes: Floats
    """Gradients that only appear as activations are freed: with FSDP2, if a step has one micro-batch."""
    optimizer_bytes: Floats
    activations_bytes: Floats
    """Kept by the micro-batches in flight for their backward passes."""
    logits_bytes: Floats
    """On the last stage: logits and what the loss keeps of them, and inputs of the final norm and the output layer."""
    workspace_bytes: Floats
    """The working layer: what it recomputes, its gradients, weights gathered for it, and communication buffers."""
    update_bytes: Floats
    """Copies of gradients that the optimizer makes when activations are free. Their large blocks do not fit where those were,
    so the allocator holds both."""
    fragmentation_bytes: Floats
    """Reserved by the allocator but unusable."""
    framework_bytes: Floats
    """Context, libraries and communicators, outside the allocator's view."""

    @property
    def allocated_bytes(self) -> Floats:
        """Peak of live tensors, as `torch.cuda.max_memory_allocated` counts it."""
        states = self.weights_bytes + self.gradients_bytes + self.optimizer_bytes
        passes = self.activations_bytes + self.logits_bytes + self.workspace_bytes
        behind = self.late_gradients_bytes + np.maximum(self.workspace_bytes, self.update_bytes)
        return np.asarray(states + np.maximum(passes, behind))

    def peak_of(self, kind: MemoryKind, capacity_bytes: Floats | float = math.inf) -> Floats:
        """Returns the peak as a publisher counted it on devices of this size, `(n,)` or one."""
        match kind:
            case "allocated":
                return self.allocated_bytes
            case "reserved":
                return self.peak_on(capacity_bytes) - self.framework_bytes
            case "device":
                return self.peak_on(capacity_bytes)
        assert_never(kind)

    @property
    def peak_bytes(self) -> Floats:
        """Sum of the components: what `nvidia-smi` shows, and what the device of a plan must have."""
        return total(getattr(self, name) for name in self.names())

    @property
    def needed_bytes(self) -> Floats:
        """The least memory with which a step runs: before it fails, PyTorch's allocator returns what it holds unused."""
        return np.asarray(self.allocated_bytes + self.framework_bytes)

    def peak_on(self, capacity_bytes: Floats | float) -> Floats:
        """Returns the peak on devices of this size, `(n,)` or one; it exceeds the size only if the needed memory does."""
        return np.maximum(self.needed_bytes, np.minimum(self.peak_bytes, capacity_bytes))


def peak_memory(workload: Workload, plans: PlanTable, chunks: Chunks) -> MemoryTable:
    """Returns the components of the stage that needs most.

    Only the first stage of each kind can be that one: later stages of its kind have the same layers and fewer micro-batches.
    """
    candidates = memory_of_stage(workload, plans, chunks, chunks.unlike_stages())
    worst, rows = np.argmax(candidates.peak_bytes, axis=0), np.arange(len(plans))
    return MemoryTable(
        **{name: getattr(candidates, name)[worst, rows] for name in MemoryTable.names()},
    )


def memory_by_stage(workload: Workload, plan: Plan) -> MemoryTable:
    """Returns the components of every pipeline stage of one plan, one row per stage in pipeline order."""
    num_stages = plan.pipeline_parallel
    plans = PlanTable.from_plans([plan]).take(np.zeros(num_stages, dtype=np.intp))
    chunks = split_layers(workload.model, plans, workload.stage_layers)
    return memory_of_stage(workload, plans, chunks, np.arange(num_stages))


def memory_of_loss(workload: Workload, plans: PlanTable) -> MemoryTable:
    """Returns the components of the stage of each plan that computes the loss, `(n,)`."""
    chunks = split_layers(workload.model, plans, workload.stage_layers)
    return memory_of_stage(
        workload, plans, chunks, np.where(turns_back(plans), 0, plans.pipeline_parallel - 1)
    )


def memory_of_stage(workload: Workload, plans: PlanTable, chunks: Chunks, stage: Integers) -> MemoryTable:
    """Returns the components of one stage of each plan, `(n,)`, or of s stages, `(s, n)`."""
    return _stage_memory(workload, plans, StageContent.of(workload, plans, chunks, stage))


def _stage_memory(workload: Workload, plans: PlanTable, stage: StageContent) -> MemoryTable:
    states = StateBytes.of(workload, plans, stage)
    activations = activations_of_stage(workload, plans, stage.chunks, stage.number)
    logits, waiting = (stage.has_output * each for each in logits_bytes(workload, plans))
    weights = weights_at_work(workload, plans, stage)
    # The loss frees its logits before the last layer begins its backward pass, and the chunk frees its layers before the
    # embedding begins: only the largest counts. Products that accumulate gradients in 32 bits leave a tensor of the gradient's
    # size behind (`get_dummy_wgrad` of Transformer Engine); other gradients are freed with their layer.
    stays = (plans.zero_stage < 3) & (workload.gradient_bytes == FULL_GRADIENT_BYTES)
    embedding, at_work = embedding_at_work(
        workload, plans, activations, has_input=stage.has_input, modules=stage.modules
    )
    embedding = embedding - np.where(stays, 0.0, weights)
    beyond_logits = np.maximum(0.0, np.maximum(at_work, embedding) - logits)
    if workload.joins_logits:
        kept, joined = (stage.has_output * each for each in joined_logits_bytes(workload, plans))
        waiting = waiting + kept
        # The outputs of the model are concatenated when everything else of the step is freed.
        there = activations.kept_bytes + logits + waiting + beyond_logits + weights
        waiting = waiting + np.maximum(0.0, joined - there)
    is_late = _has_late_gradients(workload, plans)
    used = {
        "weights_bytes": states.weights,
        "gradients_bytes": np.where(is_late, 0.0, states.gradients),
        "late_gradients_bytes": np.where(is_late, states.gradients, 0.0),
        "optimizer_bytes": states.optimizer,
        "activations_bytes": activations.kept_bytes,
        "logits_bytes": logits + waiting,
        "workspace_bytes": workload.sync_buffer_bytes + beyond_logits + weights,
        "update_bytes": states.update,
    }
    fragmentation = total(used.values()) * RESERVED_FRACTION / (1.0 - RESERVED_FRACTION)
    return MemoryTable(
        **used,
        fragmentation_bytes=fragmentation,
        framework_bytes=np.full_like(fragmentation, FRAMEWORK_BYTES),
    )


def _has_late_gradients(workload: Workload, plans: PlanTable) -> Booleans:
    """Returns whether gradients appear layer by layer as activations are freed, with none before, `(n,)`.

    FSDP2 creates a sharded gradient when its reduction ends (`foreach_reduce`), and `zero_grad` frees it after the step. With
    several micro-batches, and in the buffers of Megatron Core and DeepSpeed, gradients exist all the time.
    """
    is_first = num_micro_batches(workload, plans) == 1
    return np.asarray(is_first & (plans.zero_stage >= 2) & (workload.sharded_copies == "fsdp-2"))
