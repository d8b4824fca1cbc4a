"""How is a plan started with Megatron-LM? Its arguments, what it runs otherwise, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from constraints.evaluation import Evaluation, evaluate
from planner import __version__
from planner.chosen_kernels import FRAMEWORK
from planner.explain.runnable_plan import plan_that_runs
from planner.explain.violations import limit_violations
from planner.input.given import valid_job
from planner.job.named_model import told_changes
from planner.job.typed_command import TypedCommand
from planner.launch.arguments import ArgumentGroup, LaunchArgument
from planner.launch.as_run import COPIED, LOCAL, SCHEMES, AsRun, Difference, as_run
from planner.launch.grouped_kernels import grouped_kernel_variable
from planner.launch.model import expert_arguments, model_arguments
from planner.launch.queue_limit import exit_minutes, job_limit_s, queue_remarks
from planner.launch.run import (
    LOCAL_FOLDER,
    SHARDING,
    batch_arguments,
    exit_arguments,
    kernel_arguments,
    layout_arguments,
    replica_arguments,
    save_arguments,
)
from planner.notes.chosen_note import chosen_notes
from planner.notes.memory_note import doubt_of_use
from planner.notes.muon_note import muon_notes
from planner.recommended.design_words import steps_between_saves
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, Plan, PlanTable, Schedule
from simulator.record import Record, finite_or_none
from simulator.units import DAY

ARGUMENTS_OF = "main of 2026-08-22 (d98e8a64), Megatron Core 0.20"
"""The version of Megatron-LM whose arguments these are."""
WITHOUT_CONNECTION_LIMIT = ("blackwell",)
"""Families of accelerators that overlap traffic and products without an order of launches."""


class RunFigures(Record):
    """What a plan achieves, simulated."""

    step_time_s: float
    """One optimizer step, without stragglers."""
    time_to_train_days: float | None
    """The whole run; null if it never ends."""
    peak_memory_bytes: float
    """Memory of the fullest stage."""
    violations: tuple[str, ...]
    """Limits that the plan breaks, those of memory included, as sentences."""


class Launch(Record):
    """A plan as Megatron-LM runs it."""

    schema_version: int = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    capplan_version: str
    """Version that wrote it."""
    job: str
    """Name of the job."""
    framework: str
    """The framework."""
    arguments_of: str
    """The version of the framework whose arguments these are."""
    plan: Plan
    """The plan, defaults filled in."""
    runs: Plan
    """The plan as it is run; the same without `differences`."""
    differences: tuple[Difference, ...]
    """What the framework runs otherwise than the plan and the job have it."""
    asked: RunFigures
    """The plan, simulated."""
    as_run: RunFigures
    """What is run, simulated."""
    accelerator: str
    """Name of the accelerator in the catalogue."""
    vocabulary_size: int
    """Rows of the embedding."""
    num_nodes: int
    """Nodes that train."""
    gpus_per_node: int
    """Accelerators of a node that train."""
    num_spare_nodes: int
    """Nodes on standby."""
    power_limit_w: float | None
    """Power limit of each accelerator; null without a power cap."""
    power_command: str | None
    """Command that sets it on a node; null without a power cap, and where the command is not known."""
    job_limit_s: float | None
    """Time after which the queue ends a job; null without such a limit."""
    save_every_steps: int | None
    """Optimizer steps from one save to the next; null for a run without saves."""
    environment: dict[str, str]
    """Variables that the run needs."""
    arguments: tuple[ArgumentGroup, ...]
    """Arguments of `pretrain_gpt.py`, group by group."""
    remarks: tuple[str, ...]
    """What the arguments leave open."""


def launch_plan(job: Job, plan: Plan | Mapping[str, object]) -> Launch:
    """Returns how Megatron-LM runs a plan of a job.

    Args:
        job: the job.
        plan: the decisions, as for `planner.simulate_plan`.

    Raises:
        InputError: the plan cannot be read or cannot run, or Megatron-LM has no such network.
    """
    job = valid_job(job)
    checked = plan_that_runs(job, plan)
    run = as_run(job, checked)
    found = evaluate(run.job, PlanTable.from_plans([run.plan]))
    every_steps = _save_every_steps(run.job, found)
    offer = job.offers[checked.offer]
    limit_w = offer.accelerator.thermal_design_power_w * checked.power_cap_fraction
    is_capped, is_nvidia = checked.power_cap_fraction < 1.0, offer.accelerator.vendor == "NVIDIA"
    return Launch(
        capplan_version=__version__,
        job=job.name,
        framework=FRAMEWORK,
        arguments_of=ARGUMENTS_OF,
        plan=checked,
        runs=run.plan,
        differences=tuple(run.differences),
        asked=_figures(job, evaluate(job, PlanTable.from_plans([checked]))),
        as_run=_figures(run.job, found),
        accelerator=offer.accelerator.id,
        vocabulary_size=run.workload.model.vocabulary_size,
        num_nodes=run.num_nodes,
        gpus_per_node=run.gpus_per_node,
        num_spare_nodes=checked.num_spare_nodes,
        power_limit_w=limit_w if is_capped else None,
        power_command=f"nvidia-smi --power-limit={limit_w:.0f}" if is_capped and is_nvidia else None,
        job_limit_s=job_limit_s(job),
        save_every_steps=every_steps,
        environment=_environment(run),
        arguments=_groups(run, every_steps, found),
        remarks=(*_full_memory(found), *queue_remarks(run.job, found), *_remarks(run)),
    )


def _figures(job: Job, evaluation: Evaluation) -> RunFigures:
    summary = evaluation.outcomes.summary
    return RunFigures(
        step_time_s=float(evaluation.outcomes.steps.step_time_s[0]),
        time_to_train_days=finite_or_none(float(evaluation.scores.time_to_train_s[0]) / DAY),
        peak_memory_bytes=float(summary.peak_memory_bytes[0]),
        violations=tuple(each.sentence for each in limit_violations(job, evaluation)),
    )


def _save_every_steps(job: Job, evaluation: Evaluation) -> int | None:
    """Steps from one save to the next; `None` for a run without saves."""
    run = evaluation.outcomes.run
    interval_s = float(run.checkpoint_interval_s[0])
    iteration_s = float(run.iteration_time_s(job.workload.num_steps)[0])
    return steps_between_saves(interval_s, iteration_s) if math.isfinite(interval_s / iteration_s) else None


def _saves_per_durable(evaluation: Evaluation) -> int:
    outcomes = evaluation.outcomes
    return int(outcomes.checkpoints.saves_per_durable(outcomes.run.checkpoint_interval_s)[0])


def _environment(run: AsRun) -> dict[str, str]:
    """Variables: the order of launches with which traffic overlaps products, and the kernel of the experts."""
    variables = {}
    if limit := _connections(run):
        variables["CUDA_DEVICE_MAX_CONNECTIONS"] = limit
    is_grouped = run.workload.model.experts is not None and run.workload.expert_products == "grouped"
    if is_grouped and (variable := grouped_kernel_variable(run.job, run.plan)):
        variables[variable] = "1"
    return variables


def _connections(run: AsRun) -> str | None:
    """The limit of launches in order that Megatron-LM's checks ask for; `None` for none."""
    family = run.job.offers[run.plan.offer].accelerator.kernel_family
    is_split = run.plan.tensor_parallel > 1 or run.plan.context_parallel > 1
    if family in WITHOUT_CONNECTION_LIMIT or run.plan.zero_stage in SHARDING:
        return None
    if run.workload.model.experts and run.workload.overlaps_expert_exchange:
        return "32"
    return "1" if is_split else None


def _groups(run: AsRun, every_steps: int | None, found: Evaluation) -> tuple[ArgumentGroup, ...]:
    job, plan, workload = run.job, run.plan, run.workload
    groups: dict[str, Iterator[LaunchArgument]] = {
        "Network": model_arguments(workload),
        "Experts": expert_arguments(workload, plan),
        "Parallelism": layout_arguments(job, plan),
        "Batch and length": batch_arguments(workload, plan),
        "Formats, kernels, recomputation": kernel_arguments(workload, plan),
        "Gradients and optimizer": replica_arguments(workload, plan),
        "Checkpoints": save_arguments(job, plan, every_steps or 1, _saves_per_durable(found)),
        "Queue": exit_arguments(exit_minutes(job, found)),
    }
    listed = {title: tuple(arguments) for title, arguments in groups.items()}
    return tuple(ArgumentGroup(title=title, arguments=each) for title, each in listed.items() if each)


def _full_memory(found: Evaluation) -> Iterator[str]:
    """What is run may be too large after all if it all but fills the memory."""
    summary = found.outcomes.summary
    if doubt := doubt_of_use(float(summary.peak_memory_bytes[0] / summary.memory_capacity_bytes[0])):
        yield f"{doubt} Measure a step first."


def _remarks(run: AsRun) -> Iterator[str]:
    """What the arguments leave open, and how a search finds plans that need no replacement."""
    plan, workload = run.plan, run.workload
    yield from told_changes(workload.model.source)
    if run.job.offers[plan.offer].accelerator.vendor == "AMD":
        yield f"AMD maintains a copy of {FRAMEWORK} for its accelerators, ROCm/Megatron-LM."
    if plan.checkpoint_scheme in LOCAL:
        is_in_memory = plan.checkpoint_scheme is CheckpointScheme.IN_MEMORY_PEER
        where = "a file system in memory" if is_in_memory else "drives of the node"
        yield f"Saves on the nodes need nvidia-resiliency-ext 0.6 or later, and {LOCAL_FOLDER} on {where}."
    if workload.model.indexer:
        yield "Attention to chosen tokens needs FlashMLA, the DSA kernels of cuDNN's frontend, and fast_hadamard_transform."
        yield from chosen_notes(run.job, run.plan)
    if workload.muon:
        yield "Muon needs the package emerging-optimizers."
        yield from muon_notes(run.job, run.plan)
    if workload.documents:
        yield "Documents are kept apart where the data set marks their ends."
    if workload.expert_capacity_factor:
        yield "The capacity counts for each expert, not for all experts of a rank."
    if workload.stage_layers is None and workload.model.num_mtp_layers and plan.pipeline_parallel > 1:
        yield "Modules of multi-token prediction are on the last stage."
    if settings := list(_search_settings(run)):
        yield f"For a plan that runs as it is: {TypedCommand().recommend(settings)}"


_REPLACED = {"pipeline_schedule", "zero_stage", "checkpoint_scheme"}
"""Decisions of which Megatron-LM does not have every value."""


def _search_settings(run: AsRun) -> Iterator[str]:
    """What the job needs so that a search finds only what needs no replacement."""
    replaced = {each.field: each.value for each in run.differences if each.field in _REPLACED}
    if not replaced:
        return
    has_odd_groups = (
        replaced.get("checkpoint_scheme") in COPIED and run.num_nodes % run.job.checkpointing.peer_copies > 0
    )
    # `sync` runs as it is without a sharded optimizer alone.
    left_out = {*SCHEMES, CheckpointScheme.SYNC, *(COPIED if has_odd_groups else ())}
    schemes = [CheckpointScheme.ASYNC, *(each for each in CheckpointScheme if each not in left_out)]
    search = run.job.search
    choices: dict[str, tuple[Sequence[object], Sequence[object]]] = {
        "pipeline_schedules": (search.pipeline_schedules, [Schedule.ONE_F_ONE_B]),
        "zero_stages": (search.searched_zero_stages, [1, 0]),
        "checkpoint_schemes": (search.checkpoint_schemes, schemes),
    }
    for name, (searched, runs) in choices.items():
        kept = [each for each in searched if each in runs]
        if len(kept) < len(searched):
            yield f"search.{name}=[{','.join(map(str, kept or runs[:1]))}]"
