"""Where do traces go? Chakra traces into one folder, a file for each accelerator; a converted profile into one file."""

from __future__ import annotations

from pathlib import Path

from planner.trace_request import TraceRequest
from simulator.deep.chakra_export import chakra_export
from simulator.deep.profiled_trace import read_profiled
from simulator.deep.read import read_operator_trace
from simulator.deep.trace import OperatorTrace
from simulator.deep.trace_file import is_trace_file, write_trace_file
from simulator.errors import InputError, Problem

NAME = "step"
"""How the files begin: `step.0.et`."""


def export_trace(request: TraceRequest, folder: Path, *, suffix: str) -> int:
    """Writes a traced step as Chakra traces; returns how many nodes they have together.

    Args:
        request: the trace, and how it is divided.
        folder: of the files; it is made.
        suffix: `.et` or `.json`.

    Raises:
        InputError: the trace is broken, cannot be divided so, or the files cannot be written.
    """
    trace = read_operator_trace(request.path, batch_size=request.trace_batch_size)
    export = chakra_export(trace, request.parallelism(), batch_size=request.batch_size)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        rule = f"cannot be made: {error.strerror or error}"
        raise InputError([Problem(path="--output", value=str(folder), rule=rule)]) from error
    export.write(folder, NAME, suffix=suffix)
    return sum(len(nodes) for nodes in export.nodes)


def convert_profile(profile: Path, graph: Path, file: Path, *, batch_size: int) -> OperatorTrace:
    """Writes a profile and an execution trace of PyTorch as one trace, which it returns.

    Args:
        profile: what `torch.profiler` wrote.
        graph: what `ExecutionTraceObserver` wrote of the same step.
        file: the trace; an older trace is replaced.
        batch_size: samples of the step.

    Raises:
        InputError: a file is broken, or `file` is something else than a trace.
    """
    if file.exists() and not is_trace_file(file):
        rule = "exists and is no trace of capplan: choose another name"
        raise InputError([Problem(path="--output", value=str(file), rule=rule)])
    trace = read_profiled(profile, graph, batch_size=batch_size, name=file.name.partition(".")[0])
    write_trace_file(trace, file)
    return trace
