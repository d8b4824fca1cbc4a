"""Which kernels were measured on a device, and how long did each take? A table that travels from the GPU to a desk."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from planner.calibration.file import check_new_file
from planner.problems import shown
from simulator.errors import InputError, Problem, refusal
from simulator.record import Choice
from simulator.table import Floats

LARGEST_FILE_BYTES = 10_000_000
MOST_SHOWN = 10
"""Problems that one message names."""


class KernelKind(Choice):
    """What a kernel does."""

    GEMM = "gemm"
    """(m, k) x (k, n), both as they lie in memory: a forward product."""
    INPUT_GRADIENT = "input_gradient"
    """The same with the right input transposed."""
    WEIGHT_GRADIENT = "weight_gradient"
    """The same with the left input transposed."""
    ATTENTION = "attention"
    """Causal fused attention, forward."""
    ATTENTION_BACKWARD = "attention_backward"
    """Its backward pass."""
    COPY = "copy"
    """Half of `num_bytes` is read, half written."""
    ADD = "add"
    """Two thirds of `num_bytes` are read, a third written."""
    EMPTY = "empty"
    """Does next to nothing, replayed from a graph: the duration of a launch on the device."""
    HOST_LAUNCH = "host_launch"
    """The same launched from Python: the time of the host."""
    ALL_REDUCE = "all_reduce"
    """Sum of `num_bytes` over `group_size` devices of one link domain."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One kernel; sizes that it does not have are 0."""

    kind: KernelKind
    precision: str = "bf16"
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 0
    sequence_length: int = 0
    num_heads: int = 0
    head_dim: int = 0
    num_bytes: int = 0
    group_size: int = 0


SIZES = tuple(field.name for field in fields(Kernel) if field.name not in ("kind", "precision"))
NEEDED = {
    KernelKind.GEMM: ("m", "n", "k"),
    KernelKind.INPUT_GRADIENT: ("m", "n", "k"),
    KernelKind.WEIGHT_GRADIENT: ("m", "n", "k"),
    KernelKind.ATTENTION: ("batch", "sequence_length", "num_heads", "head_dim"),
    KernelKind.ATTENTION_BACKWARD: ("batch", "sequence_length", "num_heads", "head_dim"),
    KernelKind.COPY: ("num_bytes",),
    KernelKind.ADD: ("num_bytes",),
    KernelKind.EMPTY: (),
    KernelKind.HOST_LAUNCH: (),
    KernelKind.ALL_REDUCE: ("num_bytes", "group_size"),
}
"""Sizes that a kernel of each kind must have."""
OF_DEVICE = ("device", "date", "idle_power_w", "loaded_power_w")
COLUMNS = ("kind", "precision", *SIZES, "seconds", *OF_DEVICE)


@dataclass(frozen=True, kw_only=True)
class KernelTable:
    """Measured kernels of one device."""

    device: str
    """Name that the device gives itself."""
    date: str
    kernels: tuple[Kernel, ...]
    seconds: Floats
    """Duration of each, `(n,)`."""
    idle_power_w: float | None = None
    loaded_power_w: float | None = None

    @property
    def sha256(self) -> str:
        """Hash of the table as it is written."""
        return hashlib.sha256(kernel_text(self).encode()).hexdigest()


def today() -> str:
    """Returns the day in universal time."""
    return datetime.now(tz=UTC).date().isoformat()


def kernel_text(table: KernelTable) -> str:
    """Returns a table as CSV; what belongs to the device stands in every row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    powers = ["" if power is None else f"{power:.6g}" for power in (table.idle_power_w, table.loaded_power_w)]
    for kernel, seconds in zip(table.kernels, table.seconds.tolist(), strict=True):
        sizes = [getattr(kernel, name) or "" for name in SIZES]
        writer.writerow(
            [kernel.kind.value, kernel.precision, *sizes, f"{seconds:.6g}", table.device, table.date, *powers]
        )
    return text.getvalue()


def write_kernels(table: KernelTable, path: Path) -> None:
    """Writes a new file."""
    check_new_file(path)
    path.write_text(kernel_text(table), encoding="utf-8")


def read_kernels(path: Path, *, date: str | None = None) -> KernelTable:
    """Returns the kernels in a file.

    Raises:
        InputError: the file cannot be read, or is no table of kernels; all broken cells are in `problems`.
    """
    rows = _rows(path)
    problems: list[Problem] = []
    read = [_kernel(line, row, problems) for line, row in enumerate(rows, 2)]
    devices = {row["device"] for row in rows}
    if len(devices) > 1:
        rule = "names several devices; give each a file of its own"
        problems.append(Problem(path="column device", value=shown(", ".join(sorted(devices))), rule=rule))
    if problems:
        raise InputError(problems[:MOST_SHOWN], str(path))
    first = rows[0]
    return KernelTable(
        device=first["device"],
        date=date or first["date"] or "not given",
        kernels=tuple(kernel for kernel, _ in read),
        seconds=np.array([seconds for _, seconds in read]),
        idle_power_w=_number(first["idle_power_w"]),
        loaded_power_w=_number(first["loaded_power_w"]),
    )


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except OSError as error:
        raise refusal(path, f"cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise refusal(path, f"is not a CSV file: {error}") from None
    if len(data) > LARGEST_FILE_BYTES:
        raise refusal(path, f"is larger than {LARGEST_FILE_BYTES:,} bytes, so it is no table of kernels")
    head = tuple(rows[0]) if rows else ()
    if head != COLUMNS or len(rows) < 2:
        raise refusal(
            path, "is no table of kernels, as `capplan calibrate --device --output FILE.csv` writes it"
        )
    short = next((line for line, row in enumerate(rows, 1) if len(row) != len(COLUMNS)), None)
    if short is not None:
        raise refusal(path, f"row {short} has {len(rows[short - 1])} cells, not {len(COLUMNS)}")
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows[1:]]


def _kernel(line: int, row: dict[str, str], problems: list[Problem]) -> tuple[Kernel, float]:
    try:
        kind = KernelKind(row["kind"])
    except ValueError:
        rule = f"must be one of {', '.join(KernelKind)}"
        problems.append(Problem(path=f"row {line}, column kind", value=shown(row["kind"]), rule=rule))
        return Kernel(kind=KernelKind.EMPTY), 1.0
    for name in (*NEEDED[kind], "seconds"):
        if not (value := _number(row[name])) or value < 0 or (name != "seconds" and value != int(value)):
            rule = "must be a positive number" if name == "seconds" else "must be a positive whole number"
            problems.append(Problem(path=f"row {line}, column {name}", value=shown(row[name]), rule=rule))
    if problems:
        return Kernel(kind=kind), 1.0
    sizes = {name: int(float(row[name])) for name in NEEDED[kind]}
    return Kernel(kind=kind, precision=row["precision"] or "bf16", **sizes), float(row["seconds"])


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
