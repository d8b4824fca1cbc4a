"""Which trace is in this file or folder? An operator trace, whatever the format."""

from __future__ import annotations

from pathlib import Path

from simulator.deep.traces.trace import OperatorTrace
from simulator.deep.traces.trace_file import is_trace_file, read_trace_file
from simulator.deep.traces.trace_text import broken
from simulator.deep.traces.triosim_files import DEFAULT_BATCH_SIZE, OPERATORS_FILE, TENSORS_FILE, read_triosim


def read_operator_trace(path: Path, *, batch_size: int | None = None) -> OperatorTrace:
    """Returns the trace at a path: a folder of TrioSim's, or a file in capplan's own format.

    Args:
        path: folder or file.
        batch_size: samples of the step, for formats that do not say; default: 128, as in TrioSim's samples.

    Raises:
        InputError: the path does not exist, has none of the formats, or is invalid.
    """
    if path.is_dir():
        return read_triosim(path, batch_size=batch_size or DEFAULT_BATCH_SIZE)
    if not path.exists():
        raise broken(path, "", "", "does not exist; `capplan trace capture` or `convert` makes a trace")
    if is_trace_file(path):
        return read_trace_file(path)
    rule = f"is no trace: give a folder with {OPERATORS_FILE} and {TENSORS_FILE}, or a file of capplan's"
    raise broken(path, "", "", rule)
