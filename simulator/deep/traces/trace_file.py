"""How is an operator trace stored? As one JSON file: the tensors, and the operators in the order in which they ran."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, ValidationError

from simulator.deep.traces.trace import Category, Lists, OperatorTrace, Phase
from simulator.deep.traces.trace_build import OperatorRecord, TensorRecord, build_trace
from simulator.deep.traces.trace_text import MOST_PROBLEMS, problems_of, read_text
from simulator.errors import InputError, unwritten
from simulator.record import Record

MOST_SAMPLES = 10**9
_HEAD_BYTES = 200


class TraceRecord(Record):
    """A whole trace, as it is in a file."""

    format: Literal["capplan-operator-trace-1"] = "capplan-operator-trace-1"
    """Format of the file."""
    name: str = Field(min_length=1, max_length=200)
    batch_size: int = Field(ge=1, le=MOST_SAMPLES)
    """Samples of the step."""
    source: str | None = Field(default=None, max_length=1000)
    """Who measured it, on what."""
    tensors: tuple[TensorRecord, ...]
    operators: tuple[OperatorRecord, ...]
    """Operators in the order in which they ran."""


def read_trace_file(path: Path) -> OperatorTrace:
    """Returns the trace in a JSON file.

    Raises:
        InputError: the file cannot be read, is not JSON, or is malformed; names the field and the rule.
    """
    text = read_text(path)
    try:
        record = TraceRecord.model_validate_json(text)
    except ValidationError as error:
        raise InputError(problems_of(error, "")[:MOST_PROBLEMS], source=str(path)) from error
    try:
        trace = build_trace(record.name, record.batch_size, record.tensors, record.operators)
    except InputError as error:
        raise InputError(list(error.problems), source=str(path)) from error
    return replace(trace, source=record.source)


def is_trace_file(path: Path) -> bool:
    """Returns whether a file declares itself to be a capplan trace."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return False
    return b'"capplan-operator-trace' in head


def write_trace_file(trace: OperatorTrace, path: Path) -> None:
    """Writes a whole trace, without fields at their defaults; `read_trace_file` returns the same trace.

    Raises:
        InputError: the file cannot be written.
    """
    whole = trace_record(trace)
    record = {"format": whole.format, **whole.model_dump(mode="json", exclude_defaults=True)}
    fields = [field for field in ("format", "name", "batch_size", "source") if field in record]
    heads = [f'"{field}": {json.dumps(record[field])}' for field in fields]
    lists = [f'"{field}": {_one_a_line(record[field])}' for field in ("tensors", "operators")]
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text("{" + ",\n".join([*heads, *lists]) + "}\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise unwritten("", "", error, str(path)) from error


def _one_a_line(rows: list[object]) -> str:
    lines = ",\n".join(json.dumps(row) for row in rows)
    return f"[\n{lines}\n]"


def trace_record(trace: OperatorTrace) -> TraceRecord:
    """Returns a trace in the form of its file."""
    tensors = trace.tensors
    is_shared = np.bincount(tensors.storage)[tensors.storage] > 1
    rows = zip(tensors.names, tensors.num_bytes, tensors.category, tensors.storage, is_shared, strict=True)
    return TraceRecord(
        name=trace.name,
        batch_size=trace.batch_size,
        source=trace.source,
        tensors=tuple(
            TensorRecord(
                id=name,
                num_bytes=float(size),
                category=Category.from_code(int(category)),
                storage=str(storage) if has_views else None,
            )
            for name, size, category, storage, has_views in rows
        ),
        operators=tuple(_operator_record(trace, row) for row in range(len(trace))),
    )


def _operator_record(trace: OperatorTrace, row: int) -> OperatorRecord:
    def names(lists: Lists) -> tuple[str, ...]:
        return tuple(trace.tensors.names[number] for number in lists.of(row).tolist())

    return OperatorRecord(
        name=trace.names[row],
        phase=Phase.from_code(int(trace.phase[row])),
        duration_s=float(trace.duration_s[row]),
        num_flop=float(trace.num_flop[row]),
        can_split=bool(trace.can_split[row]),
        inputs=names(trace.inputs),
        outputs=names(trace.outputs),
    )
