"""Which plans are simulated at both depths? A grid over models, degrees, schedules and collectives, by name."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.deep.networks.described_network import NodesNetwork
from simulator.domain.blocks import MixtureOfExperts
from simulator.domain.job import Job
from simulator.domain.lora import Lora
from simulator.domain.model import ModelShape
from simulator.domain.muon import Muon
from simulator.domain.plan import Plan, Recompute, Schedule
from simulator.domain.workload import Workload
from tests.simulator.builders import gpt, job_of, plan_of, rented, training
from tests.simulator.hybrids import KIMI_LINEAR, NEMOTRON_H, QWEN_3_NEXT

SMALL = gpt(num_layers=4, has_tied_embeddings=True)
MIXTURE = gpt(num_layers=4).model_copy(
    update={"experts": MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_hidden_size=4096)}
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plan of a job."""

    job: Job
    plan: Plan


def _large(
    model: str | ModelShape,
    plan: Plan,
    *,
    batch: int,
    sequence: int = 8192,
    accelerator: str = "h100-sxm5-80gb",
    **choices: object,
) -> Case:
    workload = _with(training(model, sequence_length=sequence, global_batch_size=batch), choices)
    return Case(job=job_of(workload, rented(accelerator)), plan=plan)


def _small(plan: Plan, *, model: ModelShape = SMALL, batch: int = 16, **choices: object) -> Case:
    return Case(
        job=job_of(_with(training(model, sequence_length=2048, global_batch_size=batch), choices)), plan=plan
    )


def _with(workload: Workload, choices: dict[str, object]) -> Workload:
    return Workload.model_validate({**dict(workload), **choices})


LARGE = {
    "8b data": _large("llama-3.1-8b", plan_of(data=64), batch=256),
    "8b sharded weights": _large("llama-3.1-8b", plan_of(data=64, zero=3), batch=256),
    "8b sharded weights, not prefetched": _large(
        "llama-3.1-8b", plan_of(data=64, zero=3), batch=256, weight_prefetch="none"
    ),
    "8b sharded weights, reductions not hidden": _large(
        "llama-3.1-8b", plan_of(data=64, zero=3), batch=256, overlaps_gradient_sync=False
    ),
    "8b hybrid sharding": _large("llama-3.1-8b", plan_of(data=64, zero=3, shards=8), batch=256),
    "70b hybrid sharding between nodes": _large(
        "llama-3.1-70b", plan_of(tensor=8, data=32, zero=3, shards=8), batch=32
    ),
    "8b adapters regathered": _large(
        "llama-3.1-8b",
        plan_of(data=64, zero=2),
        batch=256,
        sequence=2048,
        lora=Lora(rank=16),
        regathers_weights=True,
    ),
    "8b hybrid optimizer": _large("llama-3.1-8b", plan_of(tensor=2, data=32, zero=1, shards=4), batch=128),
    "8b sharded gradients": _large("llama-3.1-8b", plan_of(data=32, zero=2), batch=128),
    "8b whole optimizer": _large("llama-3.1-8b", plan_of(tensor=2, data=32, zero=0), batch=128),
    "8b gradients at the end": _large(
        "llama-3.1-8b", plan_of(data=64), batch=128, overlaps_gradient_sync=False
    ),
    "8b weights ahead": _large(
        "llama-3.1-8b", plan_of(pipeline=2, virtual=2, data=32), batch=128, overlaps_parameter_gather=False
    ),
    "8b all-reduced, copied and added apart": _large(
        "llama-3.1-8b",
        plan_of(data=64, shards=8),
        batch=256,
        scatters_gradients_from=2,
        gradient_bytes=2,
        bucket_weights=5e8,
        bucket_copy_bytes=8,
        added_gradient_bytes=6,
        checkpoints_norms=True,
        measures_accuracy=True,
    ),
    "8b sharded gradients, all-reduced": _large(
        "llama-3.1-8b", plan_of(data=32, zero=2), batch=128, scatters_gradients_from=3, bucket_copy_bytes=12
    ),
    "8b long context": _large(
        "llama-3.1-8b", plan_of(tensor=2, context=8, data=8), batch=32, sequence=65_536
    ),
    "8b heads exchanged": _large(
        "llama-3.1-8b", plan_of(context=4, data=8), batch=32, sequence=65_536, context_exchange="all_to_all"
    ),
    "8b keys round": _large(
        "llama-3.1-8b",
        plan_of(context=8, data=8),
        batch=32,
        sequence=65_536,
        context_exchange="gathered_ring",
        has_fused_operators=False,
    ),
    "8b keys gathered": _large(
        "llama-3.1-8b", plan_of(context=8, data=8), batch=32, sequence=65_536, context_exchange="all_gather"
    ),
    "70b tensor": _large("llama-3.1-70b", plan_of(tensor=8, data=32), batch=256),
    "70b whole sequences": _large(
        "llama-3.1-70b", plan_of(tensor=8, data=16), batch=64, has_sequence_parallel=False
    ),
    "70b products beside traffic": _large(
        "llama-3.1-70b", plan_of(tensor=8, data=16), batch=64, overlaps_tensor_comm=True
    ),
    "70b pipeline": _large("llama-3.1-70b", plan_of(tensor=4, pipeline=8, data=16), batch=512),
    "70b interleaved": _large("llama-3.1-70b", plan_of(tensor=4, pipeline=4, virtual=5, data=16), batch=256),
    "70b interleaved in groups of 6": _large(
        "llama-3.1-70b", plan_of(tensor=4, pipeline=4, virtual=5, data=16, group_size=6), batch=256
    ),
    "70b interleaved, reductions of groups not hidden": _large(
        "llama-3.1-70b",
        plan_of(tensor=4, pipeline=4, virtual=5, data=16, zero=2),
        batch=256,
        overlaps_gradient_sync=False,
    ),
    "70b gpipe": _large(
        "llama-3.1-70b", plan_of(tensor=8, pipeline=4, data=8, schedule=Schedule.GPIPE), batch=128
    ),
    "70b zb-h1": _large(
        "llama-3.1-70b", plan_of(tensor=8, pipeline=4, data=8, schedule=Schedule.ZB_H1), batch=128
    ),
    "70b zb-v": _large(
        "llama-3.1-70b", plan_of(tensor=8, pipeline=4, virtual=2, data=8, schedule=Schedule.ZB_V), batch=128
    ),
    "70b in pairs": _large(
        "llama-3.1-70b",
        plan_of(tensor=8, pipeline=4, virtual=2, data=8, schedule=Schedule.DUAL_PIPE_V),
        batch=128,
    ),
    "70b recomputed": _large(
        "llama-3.1-70b", plan_of(tensor=4, pipeline=4, data=8, recompute=Recompute.FULL), batch=128
    ),
    "70b partly recomputed": _large(
        "llama-3.1-70b",
        plan_of(tensor=4, pipeline=4, data=8, recompute=Recompute.FULL, recompute_num_layers=5),
        batch=128,
    ),
    "70b cores recomputed": _large(
        "llama-3.1-70b", plan_of(tensor=4, pipeline=4, data=8, recompute=Recompute.SELECTIVE), batch=128
    ),
    "8b adapters": _large(
        "llama-3.1-8b", plan_of(tensor=4, data=16), batch=128, lora=Lora(rank=16), kernel_launch="graph"
    ),
    "8b adapters that exchange, blocks recomputed": _large(
        "llama-3.1-8b",
        plan_of(tensor=4, data=16, recompute=Recompute.SELECTIVE),
        batch=128,
        lora=Lora(rank=16, exchanges_by_all_to_all=True),
        recompute_modules=("mlp",),
    ),
    "70b Muon, padded": _large(
        "llama-3.1-70b", plan_of(tensor=4, pipeline=4, data=8), batch=128, muon=Muon()
    ),
    "70b Muon, interleaved, all-reduced": _large(
        "llama-3.1-70b",
        plan_of(tensor=4, pipeline=4, virtual=5, data=16),
        batch=256,
        muon=Muon(tensor_mode="distributed"),
    ),
    "mixtral Muon": _large("mixtral-8x7b", plan_of(expert=8, data=32), batch=256, muon=Muon()),
    "405b": _large("llama-3.1-405b", plan_of(tensor=8, pipeline=16, data=16), batch=512),
    "mixtral experts near": _large("mixtral-8x7b", plan_of(expert=8, data=32), batch=256),
    "mixtral experts far": _large("mixtral-8x7b", plan_of(tensor=4, expert=8, data=32), batch=256),
    "mixtral experts in a pipeline": _large(
        "mixtral-8x7b", plan_of(tensor=2, pipeline=4, expert=8, data=16), batch=256
    ),
    "mixtral exchange hidden": _large(
        "mixtral-8x7b",
        plan_of(tensor=2, pipeline=4, expert=8, data=16),
        batch=256,
        overlaps_expert_exchange=True,
    ),
    "mixtral exchange hidden in pairs": _large(
        "mixtral-8x7b",
        plan_of(tensor=2, pipeline=4, virtual=2, expert=8, data=16, schedule=Schedule.DUAL_PIPE_V),
        batch=256,
        overlaps_expert_exchange=True,
    ),
    "qwen exchange hidden": _large(
        "qwen3-30b-a3b",
        plan_of(expert=16, data=16),
        batch=128,
        sequence=4096,
        overlaps_expert_exchange=True,
    ),
    "mixtral blocks recomputed": _large(
        "mixtral-8x7b",
        plan_of(tensor=2, pipeline=4, expert=8, data=16, recompute=Recompute.SELECTIVE),
        batch=256,
        recompute_modules=("layernorm", "moe"),
    ),
    "deepseek modules recomputed": _large(
        "deepseek-v3",
        plan_of(pipeline=16, expert=64, data=64, recompute=Recompute.SELECTIVE),
        batch=4096,
        sequence=4096,
        expert_dispatch="deduplicated",
        recompute_modules=("mla_up_proj", "layernorm", "moe_act", "shared_experts", "mlp"),
    ),
    "deepseek": _large(
        "deepseek-v3",
        plan_of(pipeline=16, expert=64, data=64),
        batch=4096,
        sequence=4096,
        expert_dispatch="deduplicated",
    ),
    "deepseek exchange hidden": _large(
        "deepseek-v3",
        plan_of(pipeline=8, expert=64, data=64),
        batch=1024,
        sequence=4096,
        overlaps_expert_exchange=True,
    ),
    "deepseek by maps": _large(
        "deepseek-v3",
        plan_of(pipeline=16, expert=64, data=64),
        batch=4096,
        sequence=4096,
        expert_dispatch="deduplicated",
        gathers_routing_maps=True,
    ),
    "nemotron-h long context": _large(
        NEMOTRON_H, plan_of(tensor=4, context=2, data=8), batch=64, sequence=32_768
    ),
    "nemotron-h pipeline": _large(NEMOTRON_H, plan_of(tensor=2, pipeline=4, virtual=2, data=8), batch=128),
    "qwen3-next experts": _large(QWEN_3_NEXT, plan_of(tensor=2, expert=16, data=32), batch=256),
    "kimi linear sharded weights": _large(
        KIMI_LINEAR, plan_of(expert=8, data=64, zero=3), batch=256, overlaps_input_gradients=False
    ),
}
"""Plans for clusters, 32 to 2,048 accelerators."""

FEW = {
    "tensor": _small(plan_of(tensor=4)),
    "data": _small(plan_of(data=8)),
    "data on two nodes": _small(plan_of(data=16)),
    "sharded weights": _small(plan_of(data=8, zero=3)),
    "hybrid sharding": _small(plan_of(data=16, zero=3, shards=8)),
    "sharded gradients": _small(plan_of(data=4, pipeline=2, zero=2)),
    "tensor and data": _small(plan_of(tensor=8, data=2)),
    "pipeline": _small(plan_of(tensor=2, pipeline=4, data=2)),
    "interleaved": _small(plan_of(pipeline=2, virtual=2, data=4)),
    "gpipe on two nodes": _small(plan_of(tensor=8, pipeline=2, schedule=Schedule.GPIPE)),
    "zb-h1": _small(plan_of(tensor=2, pipeline=2, schedule=Schedule.ZB_H1)),
    "context": _small(plan_of(tensor=2, context=4)),
    "context on two nodes": _small(plan_of(tensor=2, context=8), batch=4),
    "experts": _small(plan_of(expert=8, data=8), model=MIXTURE),
    "experts on two nodes": _small(plan_of(expert=8, tensor=2, data=8), model=MIXTURE),
}
"""Plans for 4 to 16 accelerators, few enough to simulate every message."""

APART = {
    "8b b200 sharded weights": _large(
        "llama-3.1-8b",
        plan_of(tensor=8, context=2, data=16, zero=3),
        batch=128,
        sequence=4096,
        accelerator="b200-sxm-180gb",
    ),
    "8b a100 sharded weights, gpipe": _large(
        "llama-3.1-8b",
        plan_of(tensor=8, pipeline=4, context=2, data=16, zero=3, schedule=Schedule.GPIPE),
        batch=64,
        sequence=4096,
        accelerator="a100-sxm4-80gb",
    ),
    "mixtral a100 sharded weights": _large(
        "mixtral-8x7b",
        plan_of(tensor=8, context=2, data=16, zero=3),
        batch=128,
        sequence=4096,
        accelerator="a100-sxm4-80gb",
    ),
    "8b b200 sharded gradients in a pipeline": _large(
        "llama-3.1-8b",
        plan_of(tensor=2, pipeline=2, data=32, zero=2),
        batch=64,
        sequence=4096,
        accelerator="b200-sxm-180gb",
    ),
    "70b sharded gradients in a pipeline": _large(
        "llama-3.1-70b", plan_of(tensor=4, pipeline=4, data=16, zero=2), batch=64
    ),
    "70b b200 sharded gradients in a pipeline": _large(
        "llama-3.1-70b",
        plan_of(tensor=8, pipeline=2, data=8, zero=2),
        batch=32,
        sequence=4096,
        accelerator="b200-sxm-180gb",
    ),
}
"""Plans on which the depths are known to differ, as the page on the deep depth explains for ZeRO-2 and ZeRO-3."""

TWO_NODES = {
    "replicas of pairs": _small(plan_of(tensor=2, data=8)),
    "replicas of sequences": _small(plan_of(tensor=2, context=2, data=4), batch=8),
    "replicas of fours": _small(plan_of(tensor=4, data=4)),
    "replicas of fours, 8b": _large("llama-3.1-8b", plan_of(tensor=4, data=8), batch=16),
}
"""Groups of replicas over several nodes with several members in each: their rings share scale-up links with other traffic."""

NODES = NodesNetwork(
    kind="nodes",
    num_nodes=256,
    gpus_per_node=8,
    scale_up_bytes_per_s=450e9,
    scale_up_latency_s=1e-6,
    card_bytes_per_s=50e9,
    fabric_latency_s=3e-6,
    scale_up_ramp_s=3e-6,
)
