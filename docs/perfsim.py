"""How does capplan answer the training scenarios of PerfSim-Survey-2026? One job and plan each, and the requested metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from constraints.best_cut import present_cut
from constraints.evaluation import evaluate
from planner.input.plan_input import plan_of, read_plan
from planner.job.file import load_job
from simulator.cuts import stage_figures
from simulator.domain.plan import PlanTable
from simulator.memory.peak import MemoryTable
from simulator.step.step import StepTable
from simulator.units import GIB

ROOT = Path(__file__).parents[1]
JOBS = Path("examples") / "perfsim"
NOT_HIDDEN = "workload.overlaps_gradient_sync=false"


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The simulated figures of a scenario's plan."""

    steps: StepTable
    memory: MemoryTable
    mfu_fraction: float
    sequences_per_s: float
    tokens_per_s: float
    peak_bytes: float
    """Peak memory of the most loaded accelerator."""
    capacity_bytes: float
    stage_bytes: tuple[float, ...]
    """Memory of every stage of the pipeline."""

    def share(self, *parts: str) -> float:
        """Returns the share of the step time that the given parts take."""
        return sum(self.seconds(part) for part in parts) / self.seconds("step_time_s")

    def seconds(self, part: str) -> float:
        """Returns one column of the step."""
        return float(getattr(self.steps, part)[0])


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One training scenario, in the words of the suite."""

    name: str
    title: str
    plan: str
    asked: str
    uses: str
    """The features of capplan that it needs."""
    answer: Callable[[Scenario], str]
    neusight: str
    """Whether NeuSight covers it, according to the suite's own matrix."""
    astra_sim: str

    @property
    def job(self) -> Path:
        """Its job file, from the repository's root."""
        return JOBS / f"{self.name.lower()}.yaml"

    @property
    def command(self) -> str:
        """The command that a user types."""
        return f"capplan simulate {self.job.as_posix()} --plan {self.plan}"

    def figures(self, *overrides: str, plan: str = "") -> Figures:
        """Returns the figures of its plan, or of another one."""
        return _figures(self.job, plan or self.plan, overrides)


@cache
def _figures(path: Path, written: str, overrides: tuple[str, ...]) -> Figures:
    job = load_job(ROOT / path, overrides)
    plan, _ = plan_of(job, read_plan(written))
    outcomes = evaluate(job, PlanTable.from_plans([plan])).outcomes
    cut = present_cut(job, plan)
    stages = stage_figures(job, plan, np.array(cut, dtype=np.int64)).memory_bytes if cut else np.zeros(0)
    step_s, batch = float(outcomes.steps.step_time_s[0]), job.workload.global_batch_size
    return Figures(
        steps=outcomes.steps,
        memory=outcomes.memory,
        mfu_fraction=float(outcomes.summary.mfu_fraction[0]),
        sequences_per_s=batch / step_s,
        tokens_per_s=job.workload.tokens_per_step / step_s,
        peak_bytes=float(outcomes.summary.peak_memory_bytes[0]),
        capacity_bytes=float(outcomes.summary.memory_capacity_bytes[0]),
        stage_bytes=tuple(stages.tolist()),
    )


def _gpt2(scenario: Scenario) -> str:
    found, bare = scenario.figures(), scenario.figures(NOT_HIDDEN)
    return (
        f"{found.sequences_per_s:.0f} samples/s; communication {found.share('gradient_sync_s'):.1%} of a step, "
        f"{bare.share('gradient_sync_s'):.1%} without overlap"
    )


def _scaling(scenario: Scenario) -> str:
    found, one = scenario.figures(), scenario.figures(plan="offer=1,dp=1,zero_stage=1")
    efficiency = found.sequences_per_s / (8 * one.sequences_per_s)
    return f"{found.tokens_per_s:,.0f} tokens/s; {efficiency:.1%} of eight times one GPU"


def _across_nodes(scenario: Scenario) -> str:
    found, bare = scenario.figures(), scenario.figures(NOT_HIDDEN)
    inside = scenario.figures(NOT_HIDDEN, "workload.global_batch_size=16", plan="dp=8,zero_stage=2")
    parts = ("gradient_sync_s", "shard_comm_s")
    ratio = bare.share(*parts) * bare.seconds("step_time_s")
    ratio /= inside.share(*parts) * inside.seconds("step_time_s")
    return (
        f"{found.tokens_per_s:,.0f} tokens/s; the same traffic takes {ratio:.2f} times as long over four nodes as "
        f"inside one, {found.share(*parts):.1%} of a step exposed"
    )


def _ratio(scenario: Scenario) -> str:
    found = scenario.figures()
    ratio = found.seconds("tensor_comm_s") / found.seconds("compute_s")
    return f"{found.seconds('step_time_s'):.2f} s; communication over computation {ratio:.3f}"


def _no_pipeline(scenario: Scenario) -> str:
    found = scenario.figures()
    return (
        f"{found.seconds('step_time_s'):.2f} s; bubble {found.share('pipeline_bubble_s'):.1%} (no pipeline); "
        f"{_memory(found)}"
    )


def _pipeline(scenario: Scenario) -> str:
    found = scenario.figures()
    stages = ", ".join(f"{stage / GIB:.1f}" for stage in found.stage_bytes)
    return (
        f"bubble {found.share('pipeline_bubble_s'):.1%}; {found.tokens_per_s:,.0f} tokens/s; {stages} GiB per GPU of "
        "the four stages"
    )


def _interleaved(scenario: Scenario) -> str:
    found = scenario.figures()
    plain = scenario.figures(plan=scenario.plan.replace("vpp=2", "vpp=1"))
    return (
        f"MFU {found.mfu_fraction:.1%}; bubble {found.share('pipeline_bubble_s'):.1%} (not interleaved "
        f"{plain.share('pipeline_bubble_s'):.1%}); activations {_activations_gib(found):.1f} GiB"
    )


def _eight_bits(scenario: Scenario) -> str:
    found, wide = scenario.figures(), scenario.figures(plan=scenario.plan.replace("fp8", "bf16"))
    gain = found.tokens_per_s / wide.tokens_per_s
    return (
        f"{found.tokens_per_s:,.0f} tokens/s, {gain:.2f} times BF16; the effect on accuracy is not predicted"
    )


def _adapters(scenario: Scenario) -> str:
    found, full = scenario.figures(), scenario.figures("workload.lora=null")
    return (
        f"{found.peak_bytes / GIB:.0f} GiB per GPU instead of {full.peak_bytes / GIB:.0f} "
        f"({1.0 - found.peak_bytes / full.peak_bytes:.0%} less); {found.tokens_per_s:,.0f} tokens/s, "
        f"{found.tokens_per_s / full.tokens_per_s:.2f} times full fine-tuning, if that fitted"
    )


def _long_sequences(scenario: Scenario) -> str:
    found, without = scenario.figures(), scenario.figures("workload.has_sequence_parallel=false")
    return (
        f"activations {_activations_gib(found):.1f} GiB instead of {_activations_gib(without):.1f}, "
        f"{_memory(found)}; communication {found.share('tensor_comm_s'):.1%} of a step instead of "
        f"{without.share('tensor_comm_s'):.1%}, the step {found.seconds('step_time_s'):.1f} s instead of "
        f"{without.seconds('step_time_s'):.1f}"
    )


def _experts(scenario: Scenario) -> str:
    found, uneven = scenario.figures(), scenario.figures("workload.expert_imbalance=1.3")
    slower = uneven.seconds("step_time_s") / found.seconds("step_time_s") - 1.0
    return (
        f"exchange {found.share('expert_comm_s'):.1%} of a step; MFU {found.mfu_fraction:.1%} with balanced experts; "
        f"if the fullest has 30 % more tokens than the mean, the step takes {slower:.0%} longer (the balance of "
        f"routing is an input, not predicted); {_memory(found)}"
    )


def _activations_gib(found: Figures) -> float:
    return float(found.memory.activations_bytes[0]) / GIB


def _memory(found: Figures) -> str:
    fits = "fits" if found.peak_bytes <= found.capacity_bytes else "does not fit"
    return f"{found.peak_bytes / GIB:.0f} GiB per GPU, which {fits} into {found.capacity_bytes / GIB:.0f}"


YES, PART, NO = "yes", "in part", "no"
SCENARIOS = (
    Scenario(
        name="T1.1",
        title="GPT-2 1.5B, data parallel, 8 x A100",
        plan="dp=8,mbs=4,zero_stage=0",
        asked="samples/s, communication overhead",
        uses="data parallelism",
        answer=_gpt2,
        neusight=PART,
        astra_sim=YES,
    ),
    Scenario(
        name="T1.2",
        title="Llama 2 7B, ZeRO-1, 8 x H100",
        plan="offer=0,dp=8,zero_stage=1",
        asked="throughput, scaling efficiency over 1 GPU",
        uses="sharded optimizer states",
        answer=_scaling,
        neusight=PART,
        astra_sim=YES,
    ),
    Scenario(
        name="T1.3",
        title="Llama 2 7B, ZeRO-2, 4 x 8 H100",
        plan="dp=32,zero_stage=2",
        asked="throughput, communication across nodes relative to that inside one",
        uses="sharded gradients, two levels of links",
        answer=_across_nodes,
        neusight=NO,
        astra_sim=YES,
    ),
    Scenario(
        name="T2.1",
        title="Llama 2 13B, TP 4, 4 x A100",
        plan="tp=4",
        asked="iteration time, communication over computation",
        uses="tensor parallelism",
        answer=_ratio,
        neusight=PART,
        astra_sim=YES,
    ),
    Scenario(
        name="T2.2",
        title="Llama 2 70B, TP 8, 8 x H100",
        plan="tp=8",
        asked="iteration time, bubble, memory per GPU",
        uses="tensor parallelism, memory model",
        answer=_no_pipeline,
        neusight=PART,
        astra_sim=YES,
    ),
    Scenario(
        name="T3.1",
        title="Llama 2 70B, PP 4 x TP 8, 1F1B, 32 H100",
        plan="tp=8,pp=4",
        asked="bubble, tokens/s, memory per stage",
        uses="pipeline played event by event",
        answer=_pipeline,
        neusight=PART,
        astra_sim=YES,
    ),
    Scenario(
        name="T3.2",
        title="GPT-3 175B, PP 8 x TP 8, interleaved, 64 H100",
        plan="tp=8,pp=8,vpp=2",
        asked="MFU, bubble, activation memory",
        uses="interleaved pipeline",
        answer=_interleaved,
        neusight=PART,
        astra_sim=YES,
    ),
    Scenario(
        name="T4.1",
        title="Llama 2 7B, FP8, 8 x H100",
        plan="dp=8,precision=fp8",
        asked="gain over BF16, accuracy impact",
        uses="8-bit products and their casts",
        answer=_eight_bits,
        neusight=NO,
        astra_sim=NO,
    ),
    Scenario(
        name="T4.2",
        title="Llama 2 70B, LoRA of rank 16, 4 x A100",
        plan="tp=4,recompute=full",
        asked="memory saved over full fine-tuning, throughput",
        uses="adapters, recomputation",
        answer=_adapters,
        neusight=NO,
        astra_sim=NO,
    ),
    Scenario(
        name="T4.3",
        title="Llama 2 13B, TP 4 and sequence parallel, 32,768 tokens, 8 x H100",
        plan="tp=4,dp=2,recompute=full",
        asked="memory savings, communication of activations",
        uses="sequence parallelism",
        answer=_long_sequences,
        neusight=NO,
        astra_sim=PART,
    ),
    Scenario(
        name="T4.4",
        title="Mixtral 8x7B, EP 8, 8 x H100",
        plan="dp=8,ep=8",
        asked="overhead of the exchange, load balance, MFU",
        uses="expert parallelism",
        answer=_experts,
        neusight=NO,
        astra_sim=PART,
    ),
)
"""The suite's training scenarios in its order; the coverage by NeuSight and ASTRA-sim is from its own matrix."""
