"""Where are traces written? Those of a traced step or of a plan to one folder, a file each; a converted profile to one file."""

from __future__ import annotations

import re
from pathlib import Path

from planner.input.own_files import OUTPUT, check_own_file, filling
from planner.input.plan_input import PLAN
from planner.trace.request import TraceRequest
from simulator.deep.plans.plan_export import export_plan
from simulator.deep.traced_steps.chakra_export import ChakraExport, chakra_export
from simulator.deep.traces.profiled_trace import read_profiled
from simulator.deep.traces.trace import OperatorTrace
from simulator.deep.traces.trace_file import is_trace_file, write_trace_file
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from simulator.errors import InputError, Problem

NAME = "step"
"""How the names of the files begin: `step.0.et`."""
MOST_FILES = 4_096
"""Most accelerators of a plan whose traces are written."""
_WRITTEN = re.compile(rf"{NAME}\.\d{{1,6}}\.(?:et|json)", re.ASCII)


def export_trace(request: TraceRequest, folder: Path, *, suffix: str) -> int:
    """Writes a traced step as Chakra traces; returns how many nodes they have together.

    Args:
        request: the trace, and how it is divided.
        folder: where the files go; it is created.
        suffix: `.et` or `.json`.

    Raises:
        InputError: the trace is invalid or cannot be divided that way, the files cannot be written, or the folder has more
            files of an older export, which would be played together with the new ones.
    """
    trace = request.read()
    return _write(chakra_export(trace, request.divided(trace), batch_size=request.batch_size), folder, suffix)


def export_step(job: Job, plan: Plan, folder: Path, *, suffix: str) -> int:
    """Writes a step of a plan as Chakra traces; returns how many nodes they have together.

    Args:
        job: the job.
        plan: a plan that can run.
        folder: where the files go; it is created.
        suffix: `.et` or `.json`.

    Raises:
        InputError: as for `export_trace`; or the plan has features that the deep depth does not play or too many accelerators.
    """
    if plan.num_gpus > MOST_FILES:
        rule = f"must be at most {MOST_FILES:,}: each accelerator has a file of its own"
        raise InputError([Problem(path="num_gpus", value=str(plan.num_gpus), rule=rule)], PLAN)
    return _write(export_plan(job, plan), folder, suffix)


def _write(export: ChakraExport, folder: Path, suffix: str) -> int:
    with filling(folder) as new:
        if folder.exists():
            _refuse_leftovers(folder, {f"{NAME}.{rank}{suffix}" for rank in range(len(export.nodes))})
        export.write(new, NAME, suffix=suffix)
    return sum(len(nodes) for nodes in export.nodes)


def _refuse_leftovers(folder: Path, new: set[str]) -> None:
    """Refuses leftover files rather than removing them: a file of this name may be the user's own."""
    try:
        old = {path.name for path in folder.iterdir() if _WRITTEN.fullmatch(path.name)}
    except OSError as error:
        rule = f"cannot be read: {error.strerror or error}"
        raise InputError([Problem(path=OUTPUT, value=str(folder), rule=rule)]) from error
    if left := sorted(old - new, key=lambda name: int(name.split(".")[1])):
        more = f" and {len(left) - 1:,} more" if len(left) > 1 else ""
        rule = f"holds {left[0]}{more} of another export: remove what is left of it, or choose another folder"
        raise InputError([Problem(path=OUTPUT, value=str(folder), rule=rule)])


def convert_profile(profile: Path, graph: Path, file: Path, *, batch_size: int) -> OperatorTrace:
    """Writes a profile and an execution trace of PyTorch as one trace, which it returns.

    Args:
        profile: what `torch.profiler` wrote.
        graph: what `ExecutionTraceObserver` wrote about the same step.
        file: the trace; an older trace is replaced.
        batch_size: samples of the step.

    Raises:
        InputError: a file is invalid, or `file` is something else than a trace.
    """
    check_trace_target(file)
    trace = read_profiled(profile, graph, batch_size=batch_size, name=file.name.partition(".")[0])
    write_trace_file(trace, file)
    return trace


def check_trace_target(file: Path) -> None:
    """Raises `InputError` if a trace cannot be written, or would replace anything but a trace."""
    check_own_file(file, "trace", OUTPUT, is_trace_file)
