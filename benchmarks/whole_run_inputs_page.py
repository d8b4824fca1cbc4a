"""Which inputs are whole runs predicted from? The rules for all of them, every single input, and what depends on a habit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.whole_runs_page import off, table
from planner.validation.held_out import constants_without, evaluate_with
from planner.validation.known_run import RULES, Input, KnownRun, Origin
from planner.validation.whole_run_jobs import KNOWN_RUNS
from planner.validation.whole_runs import Simulated, published_runs, simulated
from simulator.accuracy.published_runs import EXPERTS_ERROR_FRACTION
from simulator.domain.plan import PlanTable
from simulator.units import GIB

MT_NLG, DEEPSEEK = "run-030", "run-101"
MT_NLG_STEPS_S = {8: 60.1, 10: 50.2, 12: 44.4}
"""Seconds of a step by the number of replicas, as measured (arXiv 2201.11990, section 2)."""
_GPUS_OF_A_REPLICA = 280


def rules_table() -> str:
    """Returns what holds for every run alike."""
    return table(("what", "the rule, for every run"), ([name, rule] for name, rule in RULES.items()))


def inputs_table() -> str:
    """Returns all inputs of all runs, with their origin."""
    return table(("run", "input", "value", "origin", "source"), _input_lines())


def _input_lines() -> Iterator[list[str]]:
    for run in KNOWN_RUNS:
        name = published_runs()[run.row].model
        for each in run.inputs:
            yield [name, f"`{each.field}`", _written(each.value), str(each.origin), each.source]


def _written(value: object) -> str:
    match value:
        case None:
            return "none"
        case float():
            return f"{value:,.6g}"
        case _:
            return str(value)


def habit_text() -> str:
    """Returns the effect of one habit, which was looked up because steps of the runs' publishers came out too fast."""
    runs = [run for run in KNOWN_RUNS if run.framework == "Megatron-DeepSpeed"]
    changes = " and ".join(
        f"{published_runs()[run.row].model} at {off(_cold(_not_waiting(run)).hours_error_fraction)}"
        for run in runs
    )
    return f"""\
One rule is less cold than the rest: the hosts of Megatron-DeepSpeed of 2021-22 wait for every kernel. The script of BLOOM
asks for it (`CUDA_LAUNCH_BLOCKING=1`); for MT-NLG it is assumed. It was looked up because the steps of both were simulated
too fast. With a host of that time that does not wait, the cold predictions are {changes}."""


def mt_nlg_text() -> str:
    """Returns the measured steps of MT-NLG next to the cold predictions."""
    (run,) = (run for run in KNOWN_RUNS if run.row == MT_NLG)
    lines = (_step_cells(run, replicas, known_s) for replicas, known_s in MT_NLG_STEPS_S.items())
    head = ("GPUs", "measured step", "our cold step", "off")
    return f"""\
Nobody has published how long MT-NLG trained, or on how many GPUs. The hours are Epoch AI's arithmetic: the operations of the
run, including recomputation, over all 4,480 GPUs of its machine at 30.2 % of their peak. They include no failures, so
agreement with them confirms little. Steps were measured on fewer GPUs:

{table(head, lines)}"""


def deepseek_text() -> str:
    """Returns what is known about the only mixture-of-experts run: what it did differently, and its memory."""
    (run,) = (run for run in KNOWN_RUNS if run.row == DEEPSEEK)
    job, known = run.job(), _cold(run)
    plan = PlanTable.from_plans([run.plan(job)])
    summary = evaluate_with(job, plan, constants_without(run.publisher)).outcomes.summary
    needed, capacity = (
        float(column[0]) / GIB for column in (summary.peak_memory_bytes, summary.memory_capacity_bytes)
    )
    return f"""\
This is the only published run of a mixture of experts with a known layout. Simulated on its own layout, with everything that
its report says about its software, it is off by {off(known.hours_error_fraction)}. No step of its publisher is among the
compared ones.

- *Software.* The run exchanges tokens with its own kernels on 20 of 132 multiprocessors, hides the exchange in both directions
  of DualPipe (sections 3.2.1, 3.2.2), and keeps activations in 8 bits (3.3.3). The simulator models at most a part of this.
- *Schedule.* Its 16 stages of DualPipe are simulated as their equivalent, 8 stages of `dual_pipe_v` with twice the replicas
  ([the pipeline](model/pipeline.md)). Five of six passes are in pairs; in the others the exchange is exposed. This was chosen
  with the error of this run in view: as DualPipeV on its 16 stages it comes out 16 % too slow. The equivalence needs no
  constant, and a test plays both (`tests/simulator/pipeline/test_dual_pipe.py`). With the assumed cut, the stage with both
  ends of the model is the slowest one.
- *Memory.* The layout is simulated to need {needed:.0f} GiB of {capacity:.0f}, since inputs of SwiGLU count as 16 bits. With 8
  bits, as the run kept them, it would need {_in_8_bits(run) / GIB:.0f} GiB less.

Searches omit this schedule unless a job asks for it, and find slower layouts on the same 2,048 H800: their answer may be too
slow by more than a half. Treat times of mixtures of experts as {EXPERTS_ERROR_FRACTION:.0%} either way, and as worse for teams
that write such kernels of their own."""


def _in_8_bits(run: KnownRun) -> float:
    """Returns the bytes that 8-bit inputs of the routed experts' activations would save, with the most in flight on a stage."""
    job = run.job()
    plan, workload, experts = run.plan(job), job.workload, job.workload.model.experts
    assert experts is not None, "the run is of a mixture of experts"
    assert isinstance(workload.stage_layers, tuple), "its cut is given"
    values = 2.0 * experts.experts_per_token * experts.expert_ffn_hidden_size * workload.sequence_length
    in_flight = 2 * plan.pipeline_parallel + 1
    return values * plan.micro_batch_size * in_flight * max(workload.stage_layers)


def _step_cells(run: KnownRun, replicas: int, known_s: float) -> list[str]:
    num_gpus = _GPUS_OF_A_REPLICA * replicas
    step_s = _cold(_with(run, {"plan.dp": replicas, "offer.num_gpus": num_gpus})).step_s
    return [f"{num_gpus:,}", f"{known_s:.1f} s", f"{step_s:.1f} s", off(step_s / known_s - 1.0)]


def _not_waiting(run: KnownRun) -> KnownRun:
    return _with(run, {"workload.kernel_launch": "eager-2022"})


def _with(run: KnownRun, values: dict[str, object]) -> KnownRun:
    others = (
        Input(field=field, value=value, origin=Origin.ASSUMED, source="") for field, value in values.items()
    )
    return replace(run, inputs=(*run.inputs, *others))


def _cold(run: KnownRun) -> Simulated:
    constants = constants_without(run.publisher)
    return simulated(run.without_the_run(), published_runs()[run.row], constants, is_cold=True)
