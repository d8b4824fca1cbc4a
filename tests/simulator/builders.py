"""Which jobs and plans do the simulator's tests use? Typed builders on the catalogue, without job files."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from simulator import catalog
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.model import ModelShape
from simulator.domain.offer import Estimate, GpuRange, Offer
from simulator.domain.plan import CheckpointScheme, Plan, PlanTable, Recompute, Schedule
from simulator.domain.reliability import RELIABILITY_PRESETS
from simulator.domain.workload import Workload
from simulator.layout.chunks import split_layers
from simulator.machine.rank import Rank
from simulator.memory.peak import MemoryTable, peak_memory
from simulator.step.step import StepTable, simulate_step

H100 = "h100-sxm5-80gb"
A100 = "a100-sxm4-80gb"


def rented(accelerator: str = H100, *, node: str | None = None) -> Offer:
    """Returns an offer of 1 to 100,000 rented accelerators at 2 USD an hour, with the catalogue's node and fabric."""
    return Offer(
        accelerator=catalog.accelerator(accelerator),
        node=catalog.node(node) if node else catalog.default_node(accelerator),
        fabric=catalog.default_fabric(accelerator),
        num_gpus=GpuRange(min=1, max=100_000),
        rent_usd_per_gpu_hour=Estimate(low=2.0, mid=2.0, high=2.0),
    )


def with_fabric_rate(bytes_per_s: float) -> Offer:
    """Returns an offer of rented H100 whose nodes have a fabric of this rate."""
    offer = rented()
    return changed(offer, node=changed(offer.node, network_bytes_per_s=bytes_per_s))


def training(
    model: str | ModelShape = "llama-3.1-8b",
    *,
    sequence_length: int = 4096,
    global_batch_size: int = 512,
    num_steps: int = 10_000,
) -> Workload:
    """Returns a training run of `num_steps` steps with the defaults of today's frameworks."""
    return Workload(
        model=catalog.model(model) if isinstance(model, str) else model,
        tokens=float(num_steps) * global_batch_size * sequence_length,
        sequence_length=sequence_length,
        global_batch_size=global_batch_size,
    )


def job_of(
    workload: Workload | None = None,
    *offers: Offer,
    reliability: str = "typical",
    region: str = "us-iowa",
) -> Job:
    """Returns a job; without offers it runs on rented H100."""
    return Job(
        name="test",
        workload=workload or training(),
        offers=offers or (rented(),),
        site=catalog.site(region),
        reliability=RELIABILITY_PRESETS[reliability],
    )


def plan_of(
    *,
    tensor: int = 1,
    pipeline: int = 1,
    virtual: int = 1,
    context: int = 1,
    expert: int = 1,
    data: int = 1,
    micro_batch: int = 1,
    recompute: Recompute = Recompute.NONE,
    recompute_num_layers: int | None = None,
    zero: int = 1,
    shards: int | None = None,
    precision: Precision = Precision.BF16,
    scheme: CheckpointScheme = CheckpointScheme.ASYNC,
    spares: int = 0,
    cap: float = 1.0,
    schedule: Schedule = Schedule.ONE_F_ONE_B,
    group_size: int | None = None,
) -> Plan:
    """Returns a plan on the first offer, with the product of its degrees as the number of accelerators."""
    return Plan(
        offer=0,
        num_gpus=tensor * pipeline * context * data,
        num_spare_nodes=spares,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        virtual_pipeline=virtual,
        pipeline_schedule=schedule,
        interleaved_group_size=group_size,
        context_parallel=context,
        expert_parallel=expert,
        data_parallel=data,
        micro_batch_size=micro_batch,
        recompute=recompute,
        recompute_num_layers=recompute_num_layers,
        zero_stage=zero,
        shard_ranks=shards,
        precision=precision,
        checkpoint_scheme=scheme,
        power_cap_fraction=cap,
    )


def table_of(*plans: Plan) -> PlanTable:
    """Returns the plans as a table for the simulator."""
    return PlanTable.from_plans(plans)


def gpt(
    *,
    num_layers: int = 24,
    hidden_size: int = 2048,
    num_heads: int = 16,
    vocabulary_size: int = 51_200,
    has_tied_embeddings: bool = False,
) -> ModelShape:
    """Returns a GPT as in the Megatron-LM papers: f = 4 h, no gate, multi-head attention."""
    return ModelShape(
        name="gpt",
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=hidden_size // num_heads,
        ffn_hidden_size=4 * hidden_size,
        is_gated=False,
        vocabulary_size=vocabulary_size,
        has_tied_embeddings=has_tied_embeddings,
    )


def memory_of(workload: Workload, *plans: Plan) -> MemoryTable:
    """Returns the memory of plans."""
    table = table_of(*plans)
    return peak_memory(workload, table, split_layers(workload.model, table))


def rank_of(workload: Workload, *plans: Plan, accelerator: str = H100) -> Rank:
    """Returns the accelerators of plans in the form that the step's formulas use."""
    return Rank.of(job_of(workload, rented(accelerator)), table_of(*plans))


def step_of(workload: Workload, *plans: Plan) -> StepTable:
    """Returns the step of plans."""
    rank = rank_of(workload, *plans)
    return simulate_step(rank, split_layers(workload.model, rank.plans))


Record = TypeVar("Record", bound=BaseModel)


def changed(record: Record, **changes: object) -> Record:
    """Returns a copy of a record, such as a workload, with some fields changed."""
    return record.model_copy(update=changes)
