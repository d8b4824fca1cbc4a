"""How much time and memory does each layer of a plan need? The costs for `constraints.stage_balance`, from the simulator.

Times are those of `simulator.layers.layer_costs`. The per-micro-batch gathers and reductions of ZeRO-2 and ZeRO-3 are left
out, because they are exposed only where they take longer than the passes that hide them. Bytes are derived from the
simulated memory of a stage: what one more layer adds to it, and what is there otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from constraints.limits import usable_memory_bytes
from constraints.stage_balance import LayerCosts
from simulator.domain.job import Job
from simulator.domain.plan import TO_AND_FRO, Plan, PlanTable
from simulator.layers.layer_costs import dense_layer, expert_layer
from simulator.layers.model_ends import embedding, output_layer
from simulator.layers.part_times import PartTimes
from simulator.layers.token_prediction import module
from simulator.layout.chunks import Chunks, chunks_of
from simulator.layout.micro_batches import num_micro_batches
from simulator.machine.rank import Rank
from simulator.memory.activations import activations_of_layers, in_flight_chunks
from simulator.memory.held_chunks import held_at_moments
from simulator.memory.peak import RESERVED_FRACTION, memory_of_stage
from simulator.table import Floats, Integers


@dataclass(frozen=True, kw_only=True)
class PlanCosts:
    """The costs of a plan's layers, and the pipeline for which they are cut."""

    layers: LayerCosts
    """Costs of every layer, and those of the ends of the model in excess of what every stage has."""
    layer_forward_s: Floats
    """`(L,)` forward part of `layers.layer_s`."""
    num_held: Integers
    """`(K, C)` micro-batches that each chunk holds at once, at K moments; K is 1 with one chunk on each stage."""
    capacity_bytes: float
    """Memory of an accelerator, less what every stage needs besides its layers."""
    most_free_bytes: Floats
    """`(p,)` most memory that each stage has for layers, whatever their kinds."""
    turns_back: bool
    """Whether the second chunks run back from the last stage to the first (ZB-V, DualPipeV)."""


def plan_costs(job: Job, plan: Plan) -> PlanCosts:
    """Returns the costs of the layers of a plan that can run."""
    plans = PlanTable.from_plans([plan]).take(np.zeros(plan.pipeline_parallel, dtype=np.intp))
    rank, bytes_ = Rank.of(job, plans), _Bytes.of(job, plans)
    model = job.workload.model
    is_expert = np.diff(model.num_expert_layers_among(np.arange(model.num_layers + 1))) > 0
    dense = dense_layer(rank)
    expert = expert_layer(rank) if is_expert.any() else dense
    first, last = bytes_.chunk_stages[0], bytes_.chunk_stages[-1]
    modules_s = model.num_mtp_layers * _both_s(module(rank)) if model.num_mtp_layers else 0.0
    memory_bytes = float(usable_memory_bytes(job)[plan.offer])
    return PlanCosts(
        layers=LayerCosts(
            layer_s=np.where(is_expert, _both_s(expert), _both_s(dense)),
            embedding_s=_both_s(embedding(rank)),
            output_s=_both_s(output_layer(rank)) + modules_s,
            layer_bytes=np.where(is_expert, bytes_.expert[0], bytes_.dense[0]),
            activation_bytes=np.where(is_expert, bytes_.expert[1], bytes_.dense[1]),
            embedding_bytes=float(bytes_.beyond[first]),
            output_bytes=float(bytes_.beyond[last]) if last != first else 0.0,
        ),
        layer_forward_s=np.where(is_expert, _forward_s(expert), _forward_s(dense)),
        num_held=held_at_moments(plan, int(num_micro_batches(job.workload, plans)[0])),
        capacity_bytes=max(0.0, memory_bytes - bytes_.common),
        most_free_bytes=memory_bytes - bytes_.least_besides,
        turns_back=plan.pipeline_schedule in TO_AND_FRO,
    )


def _both_s(part: PartTimes) -> float:
    """Forward and backward; as a pair where they hide each other's traffic, as most passes do."""
    return float(part.least_s[0])


def _forward_s(part: PartTimes) -> float:
    return float(part.forward_s[0] - part.forward_hidden_s[0])


@dataclass(frozen=True, kw_only=True)
class _Bytes:
    """Memory of the stages of a plan, as linear functions of their numbers of layers."""

    chunk_stages: Integers
    """`(C,)` the stage of every chunk."""
    num_held: Floats
    """`(p,)` micro-batches that each chunk of a stage holds."""
    dense: tuple[float, float]
    """States of one dense layer, and its activations of one micro-batch."""
    expert: tuple[float, float]
    """States of one layer with routed experts, and its activations; the dense layer's where there is no such layer."""
    besides: Floats
    """`(p,)` everything else with a single layer of each kind: ends of the model, the layer at work, buffers, framework."""
    least_besides: Floats
    """`(p,)` everything else on a stage with only the kind of layer that needs less working memory."""

    @classmethod
    def of(cls, job: Job, plans: PlanTable) -> _Bytes:
        model, v = job.workload.model, int(plans.virtual_pipeline[0])
        held = in_flight_chunks(job.workload, plans, np.arange(len(plans))) / v
        dense = _of_a_layer(job, plans, 1, 0)
        expert = _of_a_layer(job, plans, 0, 1) if model.num_expert_layers else dense
        ones = min(1, model.num_dense_layers), min(1, model.num_expert_layers)
        kinds = [kind for kind in ((ones[0], 0), (0, ones[1])) if any(kind)]
        # With many layers, the gradient of the embedding fits into the memory that they have freed.
        most = model.num_layers

        def besides(num_dense: int, num_expert: int) -> Floats:
            dense_line, expert_line = (v * (states + held * kept) for states, kept in (dense, expert))
            return (
                _memory(job, plans, num_dense, num_expert) - num_dense * dense_line - num_expert * expert_line
            )

        return cls(
            chunk_stages=_chunks(job, plans, *ones).stages[0],
            num_held=held,
            dense=dense,
            expert=expert,
            besides=besides(*ones),
            least_besides=np.min(
                [besides(*(n * each for each in kind)) for kind in kinds for n in (1, most)], axis=0
            ),
        )

    @property
    def common(self) -> float:
        """What a stage without an end of the model has; that of the smaller end where there is no such stage."""
        is_inner = ~np.isin(np.arange(len(self.besides)), self.chunk_stages[[0, -1]])
        return float(self.besides[is_inner].max() if is_inner.any() else self.besides.min())

    @property
    def beyond(self) -> Floats:
        """`(p,)` what a stage has beyond that."""
        return np.maximum(0.0, self.besides - self.common)


def _of_a_layer(job: Job, plans: PlanTable, dense: int, expert: int) -> tuple[float, float]:
    """States of a layer of either kind, and its activations of one micro-batch, including fragmentation.

    States are measured on a third layer, because ZeRO-3 may gather both of the first two. They are measured on the last
    stage, because on the first one more layers leave more room for the gradient of the embedding.
    """
    stage, v = np.arange(len(plans)), float(plans.virtual_pipeline[0])
    more = (_memory(job, plans, 3 * dense, 3 * expert) - _memory(job, plans, 2 * dense, 2 * expert))[-1] / v
    held = in_flight_chunks(job.workload, plans, stage)[-1] / v
    one, two = (
        activations_of_layers(
            job.workload,
            plans,
            stage=stage,
            dense_layers=np.full(len(plans), count * v * dense),
            expert_layers=np.full(len(plans), count * v * expert),
        ).kept_bytes[-1]
        for count in (1, 2)
    )
    kept = float(two - one) / v / held / (1.0 - RESERVED_FRACTION)
    return max(0.0, float(more) - held * kept), kept


def _memory(job: Job, plans: PlanTable, dense: int, expert: int) -> Floats:
    """Memory of every stage, `(p,)`, if each of its chunks had these numbers of layers, besides the ends of the model."""
    chunks = _chunks(job, plans, dense, expert)
    return memory_of_stage(job.workload, plans, chunks, np.arange(len(plans))).peak_bytes


def _chunks(job: Job, plans: PlanTable, dense: int, expert: int) -> Chunks:
    num_chunks = int(plans.pipeline_parallel[0] * plans.virtual_pipeline[0])
    shape = len(plans), num_chunks
    chunks = chunks_of(job.workload.model, plans, np.ones(shape, dtype=np.int64))
    return replace(
        chunks,
        num_dense_layers=np.full(shape, float(dense)),
        num_expert_layers=np.full(shape, float(expert)),
    )
