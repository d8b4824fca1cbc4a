"""Does Megatron-LM accept the arguments with which `capplan launch` runs plans?

    python -m benchmarks.megatron_arguments --megatron CHECKOUT --python PYTHON [--plans 40] [--seed 1] [--write]

Draws plans of jobs with many settings, and passes their arguments to the parser and the checks of a checkout of Megatron-LM,
which PYTHON, an interpreter with PyTorch (the build for processors will do), runs. Prints how many are accepted, why others
are not, and our parameters, operations of a step, and weights, gradients and optimizer states on the first stage over those
that Megatron-LM counts. `--write` records the names of all
accepted arguments in `benchmarks/data/megatron_arguments.csv`, and the tests compare others with them.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from constraints.lattice import enumerate_layouts
from planner.job.file import load_job
from planner.launch.answer import Launch, launch_plan
from planner.launch.as_run import as_run
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, Plan
from simulator.errors import InputError
from simulator.memory.peak import memory_by_stage

ROOT = Path(__file__).parents[1]
NAMES = ROOT / "benchmarks" / "data" / "megatron_arguments.csv"
ARCHITECTURES = {"ampere": (8, 0), "hopper": (9, 0), "blackwell": (10, 0)}
"""Compute capability of the accelerators."""
SCHEMES = tuple(CheckpointScheme)
OWN = (
    *("--mock-data", "--tokenizer-type", "NullTokenizer", "--vocab-size", "1000"),
    *("--lr", "1e-4", "--min-lr", "1e-5"),
)
"""Arguments that whoever starts the script adds."""
STATES_WITHOUT = {
    *("--use-megatron-fsdp", "--num-distributed-optimizer-instances", "--cp-comm-type"),
    *("--grad-reduce-in-bf16", "--use-precision-aware-optimizer", "--fp16", "--fp8-format", "--fp4-format"),
    *("--pipeline-model-parallel-layout", "--num-experts", "--optimizer"),
}
"""Arguments that Megatron-LM's calculator of states leaves out of account, or counts more coarsely."""
SPACE = (
    "search.pipeline_schedules=[1f1b,gpipe,zb_h1,zb_v]",
    "search.zero_stages=[0,1,2,3]",
    "search.hybrid_sharding=[true,false]",
    "search.memory_headroom_fraction=0",
    "limits={}",
)
"""What all jobs search."""
JOBS = {
    "llama-3.1-70b, 256 h100-sxm5-80gb, 8192, 256": (
        "workload.gradient_bytes=2",
        "workload.checks_gradients=false",
        "workload.optimizer_bytes=6",
        "search.interleaved_group_sizes=[16]",
        "search.pipeline_parallel=[2,4,8]",
    ),
    "llama-3.1-8b, 64 a100-sxm4-80gb, 8192, 128": (
        "workload.precisions=[fp16]",
        "workload.gradient_bytes=2",
    ),
    "llama-3.1-405b, 1152 gb200, 8192, 576": (
        "workload.precisions=[fp8]",
        "workload.fp8_recipe=mxfp8",
        "workload.gathers_cast_weights=true",
        "search.recompute_num_layers=[1,2]",
    ),
    "llama-3.1-70b, 512 h200-sxm-141gb, 8192, 512": (
        "workload.muon={}",
        "workload.gradient_bytes=2",
    ),
    "qwen3-235b-a22b, 512 b200-sxm-180gb, 4096, 1024": (
        "workload.muon={num_steps: 10, tensor_mode: distributed}",
        "workload.precisions=[bf16,fp8]",
        "workload.expert_dispatch=deduplicated",
    ),
    "mixtral-8x7b, 128 h100-sxm5-80gb, 4096, 256": (
        "workload.overlaps_tensor_comm=true",
        "workload.precisions=[bf16,fp8]",
        "workload.expert_capacity_factor=1.5",
    ),
    "deepseek-v3, 512 h200-sxm-141gb, 4096, 1024": (
        "workload.expert_dispatch=deduplicated",
        "workload.precisions=[fp8]",
        "workload.fp8_recipe=blockwise",
        "workload.overlaps_expert_exchange=true",
        "workload.recompute_modules=[mla_up_proj,layernorm,moe_act,shared_experts]",
    ),
    "deepseek-v3, 1024 b200-sxm-180gb, 4096, 2048": (
        "workload.model={name: deepseek-v3, num_mtp_layers: 1}",
        "workload.overlaps_shared_experts=true",
        "workload.precisions=[fp8]",
        "workload.fills_expert_rows=true",
    ),
    "deepseek-v3.2, 512 h200-sxm-141gb, 4096, 1024": (
        "workload.precisions=[bf16,fp8]",
        "workload.fp8_recipe=blockwise",
        "workload.recompute_modules=[mla_up_proj,layernorm,moe_act,core_attn]",
        "search.context_parallel=[1,2,4]",
    ),
    "glm-5, 1024 b200-sxm-180gb, 32768, 1024": (
        "workload.precisions=[fp8]",
        "workload.fp8_recipe=mxfp8",
        "workload.trains_indexer=false",
        "workload.recompute_modules=[layernorm,moe_act]",
    ),
    "glm-5.2, 1024 b200-sxm-180gb, 65536, 1024": (
        "workload.expert_dispatch=deduplicated",
        "workload.gathers_routing_maps=true",
        "search.pipeline_parallel=[1,2,4,8]",
        "search.virtual_pipeline=[1,2]",
    ),
    "qwen3-30b-a3b, 64 b200-sxm-180gb, 32768, 128": (
        "workload.precisions=[fp4]",
        "workload.expert_dispatch=deduplicated",
        "workload.gathers_routing_maps=true",
        "workload.context_exchange=hybrid",
    ),
    "llama-3.1-8b, 64 h100-sxm5-80gb, 131072, 32": (
        "workload.context_exchange=all_gather",
        "workload.optimizer_offload_fraction=0.5",
        "workload.activation_offload_fraction=0.3",
    ),
    "gpt3-175b, 512 a100-sxm4-80gb, 2048, 512": (
        "workload.logit_bytes=2",
        "workload.stage_layers=balanced",
        "workload.attention=unfused",
        "workload.precisions=[fp16]",
        "workload.recompute_method=uniform",
        "search.recompute_num_layers=[2,3]",
    ),
    "gemma-2-27b, 64 h100-sxm5-80gb, 8192, 128": (
        "workload.kernel_launch=graph",
        "reliability.queue_limit_days=1",
    ),
    "llama-3.1-8b, 8 h100-sxm5-80gb, 8192, 128": (
        "workload.model={name: norms, num_layers: 32, hidden_size: 4096, num_heads: 32, num_kv_heads: 8, head_dim: 128, "
        "ffn_hidden_size: 14336, is_gated: true, vocabulary_size: 128256, qk_norm: unweighted, has_tied_embeddings: true}",
        "workload.attention=flash-2",
    ),
    "gpt-oss-120b, 64 b200-sxm-180gb, 8192, 128": ("workload.kernel_launch=graph",),
    "mixtral-8x7b, 64 h100-sxm5-80gb, 2048, 256": (
        "workload.model={name: one expert, num_layers: 24, hidden_size: 2048, num_heads: 16, num_kv_heads: 16, head_dim: 128, "
        "ffn_hidden_size: 8192, is_gated: false, vocabulary_size: 50257, num_learned_positions: 2048, "
        "experts: {num_experts: 64, experts_per_token: 1, expert_ffn_hidden_size: 8192, has_biases: true}}",
        "workload.expert_tensor_parallel=2",
        "workload.precisions=[fp8]",
        "workload.fp8_recipe=delayed",
        "workload.recompute_modules=[core_attn,moe_act]",
        "workload.checks_gradients=false",
    ),
    "qwen3-30b-a3b, 64 h100-sxm5-80gb, 4096, 256": (
        "workload.model={name: latents, num_layers: 24, hidden_size: 2048, num_heads: 16, num_kv_heads: 2, head_dim: 128, "
        "ffn_hidden_size: 6144, is_gated: true, vocabulary_size: 151936, has_output_gate: true, qk_norm: per_head, "
        "experts: {num_experts: 128, experts_per_token: 8, expert_ffn_hidden_size: 768, shared_ffn_hidden_size: 768, "
        "latent_size: 512}}",
        "workload.precisions=[bf16,fp8]",
    ),
    "llama-2-70b, 128 h100-sxm5-80gb, 4096, 512": (
        "workload.divides_gradients=false",
        "workload.bucket_weights=2e8",
        "workload.documents={mean_tokens: 900}",
        "search.context_parallel=[1]",
        "workload.evaluation_every_steps=500",
        "workload.evaluation_sequences=1000",
    ),
}
"""Model, accelerators, tokens of a sequence, sequences of a batch; and other settings."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A plan that was drawn."""

    job: str
    launch: Launch
    request: str
    """What `benchmarks.megatron_parser` is asked."""


def job_of(name: str) -> Job:
    """Returns one of `JOBS`."""
    model, hardware, length, batch = name.split(", ")
    num_gpus, accelerator = hardware.split()
    values = (
        f"workload.model={model}",
        f"workload.sequence_length={length}",
        "workload.global_batch_tokens=null",
        f"workload.global_batch_size={batch}",
        f"offers=[{{accelerator: {accelerator}, num_gpus: {num_gpus}}}]",
    )
    return load_job(ROOT / "examples" / "llama-3.1-70b.yaml", [*values, *SPACE, *JOBS[name]])


def drawn(name: str, num_plans: int, seed: int) -> Iterator[Drawn]:
    """Yields plans of one of `JOBS`, without those whose checkpoint scheme needs copies that they do not have."""
    job, rng = job_of(name), np.random.default_rng(seed)
    layouts = enumerate_layouts(job)
    rows = rng.choice(len(layouts), min(num_plans, len(layouts)), replace=False)
    for row, scheme in zip(rows, rng.choice(len(SCHEMES), len(rows)), strict=True):
        plan = layouts.plan(int(row)).model_copy(update={"checkpoint_scheme": SCHEMES[scheme]})
        try:
            launch = launch_plan(job, plan)
        except InputError as error:
            if "checkpoint_scheme" not in str(error):
                raise
            continue
        yield Drawn(job=name, launch=launch, request=json.dumps(_request(job, plan, launch)))


def _request(job: Job, plan: Plan, launch: Launch) -> dict[str, Any]:
    family = job.offers[plan.offer].accelerator.family
    arguments = [
        part for group in launch.arguments for each in group.arguments for part in (each.name, *each.values)
    ]
    return {
        "arguments": [*arguments, *OWN],
        "environment": launch.environment,
        "num_gpus": plan.num_gpus,
        "architecture": ARCHITECTURES[family],
    }


def main() -> None:
    """Prints how many plans Megatron-LM accepts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--megatron", required=True, help="checkout of Megatron-LM")
    parser.add_argument("--python", default=sys.executable, help="interpreter with PyTorch")
    parser.add_argument("--plans", type=int, default=40, help="plans of each job")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="record the names of accepted arguments")
    asked = parser.parse_args()
    found = [each for name in JOBS for each in drawn(name, asked.plans, asked.seed)]
    verdicts = _verdicts(asked.python, asked.megatron, [each.request for each in found])
    accepted, refused, names = dict[str, list[dict[str, Any]]](), Counter[str](), set[str]()
    ratios: list[float] = []
    for each, verdict in zip(found, verdicts, strict=True):
        error = verdict["error"] or _other_degrees(each.launch.runs, verdict)
        if error:
            refused[f"{each.job}: {error}"] += 1
            continue
        accepted.setdefault(each.job, []).append(verdict)
        if STATES_WITHOUT.isdisjoint(
            taken := {argument.name for group in each.launch.arguments for argument in group.arguments}
        ):
            ratios.append(_states_bytes(each) / verdict["states_bytes"])
        names |= taken
    for name, good in accepted.items():
        print(f"{len(good):4} accepted  {name}{_sizes(job_of(name), good[0])}")
    if ratios:
        print(
            f"{len(ratios):4} plans whose states Megatron-LM counts: x {min(ratios):.4f} to {max(ratios):.4f}"
        )
    for error, count in refused.most_common():
        print(f"{count:4} refused   {error}")
    if asked.write:
        with NAMES.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([["name"], *([name] for name in sorted(names))])


def _verdicts(python: str, megatron: str, requests: list[str]) -> list[dict[str, Any]]:
    command = [python, str(ROOT / "benchmarks" / "megatron_parser.py"), megatron]
    asked = "".join(f"{request}\n" for request in requests)
    answered = subprocess.run(command, input=asked, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 (as asked)
    return [json.loads(line) for line in answered.stdout.splitlines() if line.startswith("{")]


def _sizes(job: Job, verdict: dict[str, Any]) -> str:
    """Our parameters and operations of a step over those that Megatron-LM derives from the arguments."""
    workload = job.workload
    flop = workload.model_flop_per_token * workload.sequence_length * workload.global_batch_size
    ratios = {
        "parameters": workload.model.num_parameters / verdict["parameters"],
        "operations": flop / verdict["flop_per_step"],
    }
    return "".join(f"; {name} x {ratio:.4f}" for name, ratio in ratios.items())


def _states_bytes(each: Drawn) -> float:
    """Weights, gradients and optimizer states of an accelerator of the first stage."""
    run = as_run(job_of(each.job), each.launch.plan)
    memory = memory_by_stage(run.workload, run.plan)
    return float(memory.weights_bytes[0] + memory.gradients_bytes[0] + memory.optimizer_bytes[0])


def _other_degrees(plan: Plan, verdict: dict[str, Any]) -> str:
    """What Megatron-LM splits otherwise than the plan; empty if nothing."""
    num_chunks = plan.virtual_pipeline if plan.pipeline_parallel > 1 else 1
    ours = {"data_parallel": plan.data_parallel, "virtual_pipeline": num_chunks}
    return "; ".join(
        f"{name} {verdict[name]} instead of {own}" for name, own in ours.items() if verdict[name] != own
    )


if __name__ == "__main__":
    main()
