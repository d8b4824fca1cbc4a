"""Which kernels were measured on a device, and how long did each take? A table that can be taken from the GPU to a desk."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import numpy as np

from planner.calibration.file import check_new_file
from planner.input.arguments import check_text, refused
from planner.input.problems import shown
from planner.input.small_file import bytes_of_small_file
from simulator import catalog
from simulator.domain.hardware import Precision
from simulator.errors import CatalogError, InputError, Problem, refusal
from simulator.file_text import other_separator, utf8_text
from simulator.record import Choice
from simulator.table import Floats

_Choice = TypeVar("_Choice", bound=Choice)

LARGEST_FILE_BYTES = 10_000_000
LONGEST_DATE = 40
"""Characters that a calibration takes for its date."""
SHORTEST_S, LONGEST_S = 1e-9, 1e3
"""A kernel takes microseconds to seconds."""
MOST_SIZE = 10**15
"""Larger sizes fit into no device."""
MOST_POWER_W = 1e5
"""More than any device draws."""
MOST_SHOWN = 10
"""Maximum number of problems named in one message."""


class KernelKind(Choice):
    """What a kernel does."""

    GEMM = "gemm"
    """(m, k) x (k, n) as in the forward pass: the right input, the weights, is stored transposed."""
    INPUT_GRADIENT = "input_gradient"
    """(m, k) x (k, n) with both inputs as stored in memory."""
    WEIGHT_GRADIENT = "weight_gradient"
    """(m, k) x (k, n) with the left input transposed."""
    ADDED_GRADIENT = "added_gradient"
    """A weight gradient that is added to a 32-bit matrix, as in every micro-batch but the first."""
    ATTENTION = "attention"
    """Causal fused attention, forward."""
    ATTENTION_BACKWARD = "attention_backward"
    """The backward pass of fused attention."""
    COPY = "copy"
    """Half of `num_bytes` is read, half written."""
    ADD = "add"
    """Two thirds of `num_bytes` are read, one third is written."""
    ALL_REDUCE = "all_reduce"
    """All-reduce of `num_bytes` over `group_size` devices of one link domain."""
    LAYER = "layer"
    """The forward pass of a layer of `model`, one of several in a row under sustained load, with kernels launched from Python;
    it keeps `num_bytes` for its backward pass."""
    LAYER_BACKWARD = "layer_backward"
    """The backward pass of a layer of `model`."""


class Software(Choice):
    """How a layer runs in PyTorch."""

    EAGER = "eager"
    """Operators are launched one by one."""
    COMPILED = "compiled"
    """Compiled by `torch.compile`, with small operators fused."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One kernel; sizes that do not apply are 0."""

    kind: KernelKind
    precision: Precision = Precision.BF16
    model: str = ""
    """Catalogue name; only for layers, like `software`."""
    software: Software | None = None
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 0
    sequence_length: int = 0
    num_heads: int = 0
    head_dim: int = 0
    num_bytes: int = 0
    group_size: int = 0


WORDS = ("kind", "precision", "model", "software")
SIZES = tuple(field.name for field in fields(Kernel) if field.name not in WORDS)
LAYERS = (KernelKind.LAYER, KernelKind.LAYER_BACKWARD)
NEEDED = {
    KernelKind.GEMM: ("m", "n", "k"),
    KernelKind.INPUT_GRADIENT: ("m", "n", "k"),
    KernelKind.WEIGHT_GRADIENT: ("m", "n", "k"),
    KernelKind.ADDED_GRADIENT: ("m", "n", "k"),
    KernelKind.ATTENTION: ("batch", "sequence_length", "num_heads", "head_dim"),
    KernelKind.ATTENTION_BACKWARD: ("batch", "sequence_length", "num_heads", "head_dim"),
    KernelKind.COPY: ("num_bytes",),
    KernelKind.ADD: ("num_bytes",),
    KernelKind.ALL_REDUCE: ("num_bytes", "group_size"),
    KernelKind.LAYER: ("batch", "sequence_length"),
    KernelKind.LAYER_BACKWARD: ("batch", "sequence_length"),
}
"""Sizes that a kernel of each kind must have."""
OPTIONAL = {KernelKind.LAYER: ("num_bytes",)}
"""Optional sizes: what a layer keeps for its backward pass."""
FORMATS = (Precision.BF16, Precision.FP8)
"""Number formats in which products are timed."""
_ANY_KERNEL = Kernel(kind=KernelKind.COPY)
"""Placeholder for a broken row until all broken rows are refused together."""
OF_DEVICE = ("device", "date", "idle_power_w", "loaded_power_w")
_SIZE_RULE = f"must be a positive whole number up to {MOST_SIZE:g}"
COLUMNS = (*WORDS, *SIZES, "seconds", *OF_DEVICE)


@dataclass(frozen=True, kw_only=True)
class KernelTable:
    """Measured kernels of one device."""

    device: str
    """Name that the device reports."""
    date: str
    kernels: tuple[Kernel, ...]
    seconds: Floats
    """Duration of each kernel, `(n,)`."""
    idle_power_w: float | None = None
    loaded_power_w: float | None = None

    @property
    def sha256(self) -> str:
        """Hash of the table as it is written."""
        return hashlib.sha256(kernel_text(self).encode()).hexdigest()


def check_date(date: str | None) -> None:
    """Raises `InputError` if the date of a measurement, in whatever form, is too long for a calibration."""
    if date is not None:
        check_text(date, "date")
        if len(date) > LONGEST_DATE:
            raise refused("date", date, f"must have at most {LONGEST_DATE} characters")


def today() -> str:
    """Returns the current day in UTC."""
    return datetime.now(tz=UTC).date().isoformat()


def kernel_text(table: KernelTable) -> str:
    """Returns a table as CSV; the device's own columns are repeated in every row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    powers = ["" if power is None else f"{power:.6g}" for power in (table.idle_power_w, table.loaded_power_w)]
    for kernel, seconds in zip(table.kernels, table.seconds.tolist(), strict=True):
        sizes = [getattr(kernel, name) or "" for name in SIZES]
        words = [
            kernel.kind.value,
            kernel.precision.value,
            kernel.model,
            kernel.software.value if kernel.software else "",
        ]
        writer.writerow([*words, *sizes, f"{seconds:.6g}", table.device, table.date, *powers])
    return text.getvalue()


def write_kernels(table: KernelTable, path: Path) -> None:
    """Writes a new file."""
    check_new_file(path)
    path.write_text(kernel_text(table), encoding="utf-8")


def read_kernels(path: Path, *, date: str | None = None) -> KernelTable:
    """Returns the kernels in a file.

    Raises:
        InputError: the file cannot be read, or is not a table of kernels; `problems` lists all broken cells.
    """
    check_date(date)
    rows = _rows(path)
    problems: list[Problem] = []
    read = [_kernel(line, row, problems) for line, row in enumerate(rows, 2)]
    if not problems:
        problems += _lonely_passes([kernel for kernel, _ in read])
    devices = {row["device"] for row in rows}
    if len(devices) > 1:
        rule = "names several devices; use one file for each"
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
    content = bytes_of_small_file(path, LARGEST_FILE_BYTES, "a table of kernels")
    try:
        rows = list(csv.reader(io.StringIO(utf8_text(content), newline=""), strict=True))
    except ValueError as error:  # no text
        raise refusal(path, str(error)) from None
    except csv.Error as error:
        raise refusal(path, f"is not a CSV file: {error}") from None
    head = tuple(rows[0]) if rows else ()
    if head != COLUMNS or len(rows) < 2:
        way = other_separator(head[0]) if head else ""
        rule = f"is not a table of kernels as `capplan calibrate --device --output FILE.csv` writes it{way}"
        raise refusal(path, rule)
    short = next((line for line, row in enumerate(rows, 1) if len(row) != len(COLUMNS)), None)
    if short is not None:
        raise refusal(path, f"row {short} has {len(rows[short - 1])} cells, not {len(COLUMNS)}")
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows[1:]]


def _kernel(line: int, row: dict[str, str], problems: list[Problem]) -> tuple[Kernel, float]:
    """Returns a kernel with its seconds; if cells are broken, a placeholder, with the errors added to `problems`."""
    broken = [
        Problem(path=f"row {line}, column {name}", value=shown(row[name]), rule=rule)
        for name, rule in _broken_cells(row)
    ]
    problems += broken
    if broken:
        return _ANY_KERNEL, 1.0
    kind = KernelKind(row["kind"])
    is_layer = kind in LAYERS
    sizes = {name: int(float(row[name] or 0)) for name in (*NEEDED[kind], *OPTIONAL.get(kind, ()))}
    kernel = Kernel(
        kind=kind,
        precision=Precision(row["precision"] or Precision.BF16.value),
        model=row["model"] if is_layer else "",
        software=Software(row["software"]) if is_layer else None,
        **sizes,
    )
    return kernel, float(row["seconds"])


def _broken_cells(row: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields columns whose cells cannot be used, and the rule that they break."""
    kind = _choice(KernelKind, row["kind"])
    if kind is None:
        yield "kind", f"must be one of {', '.join(KernelKind)}"
        return
    if _choice(Precision, row["precision"] or Precision.BF16.value) not in FORMATS:
        yield "precision", f"must be one of {', '.join(FORMATS)}"
    if kind in LAYERS and not can_time(row["model"]):
        yield (
            "model",
            "must be a dense model of the catalogue (`capplan catalog models`) with blocks like Llama's or GPT's",
        )
    if kind in LAYERS and _choice(Software, row["software"]) is None:
        yield "software", f"must be one of {', '.join(Software)}"
    for name in NEEDED[kind]:
        if not _is_whole(row[name]):
            yield name, _SIZE_RULE
    for name in OPTIONAL.get(kind, ()):
        if row[name] and not _is_whole(row[name]):
            yield name, f"{_SIZE_RULE}, or empty"
    yield from _broken_measurements(row)


def _broken_measurements(row: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if not SHORTEST_S <= (_number(row["seconds"]) or 0.0) <= LONGEST_S:
        yield "seconds", f"must be from {SHORTEST_S:g} to {LONGEST_S:g}: the time of one kernel"
    for name in ("idle_power_w", "loaded_power_w"):
        if row[name] and not 0.0 < (_number(row[name]) or 0.0) <= MOST_POWER_W:
            yield name, f"must be above 0 W and at most {MOST_POWER_W:g} W, or empty"
    if len(row["date"]) > LONGEST_DATE:
        yield "date", f"must have at most {LONGEST_DATE} characters"


def _is_whole(text: str) -> bool:
    value = _number(text)
    return value is not None and 0 < value <= MOST_SIZE and value == int(value)


def _lonely_passes(kernels: Sequence[Kernel]) -> Iterator[Problem]:
    """Yields every pass through a layer whose other pass is missing."""
    with_neighbours = zip([None, *kernels[:-1]], kernels, [*kernels[1:], None], strict=True)
    for line, (before, kernel, after) in enumerate(with_neighbours, 2):
        if kernel.kind not in LAYERS:
            continue
        is_backward = kernel.kind is KernelKind.LAYER_BACKWARD
        other, way = (before, "follow the forward") if is_backward else (after, "be followed by the backward")
        kind = KernelKind.LAYER if is_backward else KernelKind.LAYER_BACKWARD
        if other is None or replace(other, num_bytes=0) != replace(kernel, kind=kind, num_bytes=0):
            rule = f"must {way} pass of the same layer"
            yield Problem(path=f"row {line}, column kind", value=shown(kernel.kind.value), rule=rule)


def can_time(name: str) -> bool:
    """Returns whether the catalogue knows a model whose layers a device can time: blocks like Llama's or GPT's."""
    try:
        shape = catalog.model(name)
    except CatalogError:
        return False
    is_other = (
        shape.experts
        or shape.latent_attention
        or shape.compressed_attention
        or shape.hyper_connections
        or shape.sliding_window
        or shape.parallel_block
        or shape.qk_norm
        or shape.linear_attention
        or shape.has_output_gate
    )
    return not is_other and (shape.is_gated or shape.num_learned_positions > 0)


def _choice(choices: type[_Choice], text: str) -> _Choice | None:
    """Returns the choice with a name; `None` if there is none."""
    return next((choice for choice in choices if choice.value == text), None)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
