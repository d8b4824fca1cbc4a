"""Where do the Chakra traces of a step go? Into one folder: a file for each accelerator, and one with their groups."""

from __future__ import annotations

from pathlib import Path

from planner.trace_request import TraceRequest
from simulator.deep.chakra_export import chakra_export
from simulator.deep.read import read_operator_trace
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
