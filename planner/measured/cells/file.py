"""Is this file a table of measured runs, and what do its cells say? A broken cell invalidates its row, not the file."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.input.problems import shown
from planner.measured.cells.numbers import (
    MOST_SEQUENCES,
    has_decimal_comma,
    has_unsure_comma,
    number_in,
    sequences_in,
    with_point,
    without_points,
)
from planner.measured.cells.table import read_table
from planner.measured.cells.words import NOTHING_SAID
from simulator.errors import refusal

WORDS_FOR_NOTHING = (*NOTHING_SAID, "none")
"""What people write in a numeric cell without a number."""
WORDS_FOR_USUAL = {"kv_heads": ("mha", "same", "as heads"), "micro_batch": ("auto",), "dp": ("-1", "auto")}
"""Words in a column that mean the same as an empty cell: `-1` is torchtitan's for replicas that the other degrees leave."""
_SCHEDULE = re.compile(r"dual-?pipe|zero-?bubble|\bzb|interleav|1f1b|gpipe", re.IGNORECASE)
_CHUNKS = re.compile(r"(?<![\w-])\d+(?!\w| ?chunks?)")
"""A number that may be that of chunks, as in `4 (interleaved)`."""
_SCHEDULE_COLUMNS = ("schedule", "pp_schedule", "pipeline_schedule")
_LATENT = re.compile(r"\bmla\b|\blatent\b", re.IGNORECASE)
"""Latent attention, whose numbers beside it are ranks or queries, not key-value heads."""
_NO_ROOM = re.compile(r"(?:cuda )?(?:oom|out[- ]of[- ]memory)(?: error)?", re.IGNORECASE)
"""What tables print instead of a time, speed or peak that does not exist."""
LARGEST = 1e15

COUNTS = {
    "layers": 1,
    "hidden": 1,
    "heads": 1,
    "kv_heads": 1,
    "head_dim": 1,
    "mlp_matrices": 2,
    "ffn_hidden": 1,
    "vocab": 1,
    "experts": 0,
    "topk": 0,
    "moe_ffn_hidden": 0,
    "shared_expert_ffn": 0,
    "dense_layers": 0,
    "mtp_num_layers": 0,
    "seq_len": 1,
    "global_batch": 1,
    "micro_batch": 1,
    "n_gpus": 1,
    "gpus_per_node": 1,
    "tp": 1,
    "pp": 1,
    "vpp": 0,
    "microbatch_group_size_per_vp_stage": 0,
    "cp": 0,
    "ep": 0,
    "dp": 1,
    "etp": 0,
    "window": 0,
    "full_every": 0,
    "mean_document": 0,
    "tokens_per_image": 0,
}
"""Columns of whole numbers, with the smallest sensible value; 0 means `not used`."""
PEAK_MEMORY = "peak_mem_gib_per_gpu"
QUANTITIES = ("step_time_s", "tokens_per_s_per_gpu", PEAK_MEMORY)
"""Columns of positive numbers: what was measured."""
_SMALL_QUANTITIES = ("step_time_s", PEAK_MEMORY)
"""Those that seldom have thousands."""
BYTES_OF_A_WEIGHT = ("optimizer_bytes", "update_bytes")
"""Columns of bytes that an optimizer keeps per weight; 0 is a valid number."""
MEANS = ("images_per_sequence",)
"""Columns of mean numbers; 0 means `not used`."""
NEEDED = (
    ("gpu",),
    ("n_gpus",),
    ("seq_len",),
    ("global_batch", "micro_batch"),
    ("layers", "model"),
    ("hidden", "model"),
)
"""Columns without which no row can be modelled: one of each group is required."""
_IDENTITY = ("id", "source", "source_ref", "tier", "config_key", "usable")
_HARDWARE = ("model", "gpu", "interconnect", "precision")
_LAYOUT = (*_SCHEDULE_COLUMNS, "cp_comm_type", "sp", "zero_stage_or_fsdp")
_SOFTWARE = (
    "freeze_vision_model",
    "recompute",
    "attention",
    "optimizer",
    "framework",
    "metric_kind",
    "notes",
)
WORDS = (*_IDENTITY, *_HARDWARE, *_LAYOUT, *_SOFTWARE)
"""Columns of text."""
_NUMBERS = (*COUNTS, *QUANTITIES, *BYTES_OF_A_WEIGHT, *MEANS)
COLUMNS = (*WORDS, *_NUMBERS)
"""All columns that are read."""
LIKENESS = 0.7
"""Smallest similarity of two names, by `difflib`, at which one counts as a misspelling of the other."""
_OTHER_NAMES = {
    "accelerator": "gpu",
    "gpu_type": "gpu",
    "gpus": "n_gpus",
    "num_gpus": "n_gpus",
    "world_size": "n_gpus",
    "mbs": "micro_batch",
    "micro_batch_size": "micro_batch",
    "gbs": "global_batch",
    "global_batch_size": "global_batch",
    "iteration_time": "step_time_s",
    "iteration_time_s": "step_time_s",
    "vp": "vpp",
    **dict.fromkeys(("tokens_per_s", "tokens_per_sec", "tokens_per_second"), "tokens_per_s_per_gpu"),
    "image_tokens": "tokens_per_image",
    "num_images": "images_per_sequence",
    "freeze_vision_tower": "freeze_vision_model",
}
"""What frameworks, spreadsheets and `--plan` call some columns, in small letters with underscores."""


@dataclass(frozen=True, kw_only=True)
class Cells:
    """One row of a file: its cells as text, and as numbers where the column holds numbers."""

    line: int
    """Row number in the file; the header is row 1."""
    text: Mapping[str, str]
    """Trimmed cells by column."""
    numbers: Mapping[str, float]
    """Numbers by column; columns without one are left out."""
    problems: tuple[str, ...] = ()
    """Cells that break their column's rule, and the rule."""
    remarks: tuple[tuple[str, str], ...] = ()
    """Columns whose numbers differ from what is written, and how they are read."""

    def count(self, column: str) -> int | None:
        """Returns a whole number; `None` if the cell or column is missing or 0."""
        return int(self.numbers.get(column, 0)) or None

    @property
    def has_time(self) -> bool:
        """Whether a step time, or tokens per second that imply one, were measured."""
        return bool({"step_time_s", "tokens_per_s_per_gpu"} & set(self.numbers))

    def step_time_s(self, global_batch: int | None = None) -> float | None:
        """Returns the measured step time, or the one implied by the measured tokens per second; `None` if there is neither.

        Args:
            global_batch: sequences per step if the row does not state them.
        """
        return self.numbers.get("step_time_s") or self.step_time_of_rate_s(global_batch)

    def step_time_of_rate_s(self, global_batch: int | None = None) -> float | None:
        """Returns the step time implied by the measured tokens per second; `None` if there are none."""
        rate, batch = self.numbers.get("tokens_per_s_per_gpu"), self.count("global_batch") or global_batch
        sequence, num_gpus = self.count("seq_len"), self.count("n_gpus")
        if not (rate and batch and sequence and num_gpus):
            return None
        return batch * sequence / (rate * num_gpus)


def read_cells(path: Path) -> list[Cells]:
    """Returns the rows of a CSV file; one whose cells break a rule says so in its `problems`.

    Raises:
        InputError: the file cannot be read, is not a table, or lacks a column.
    """
    table = read_table(path, COLUMNS)
    head = _head(table.records)
    _check_head(head, path)
    rows = [
        _cells(line, head, record, has_decimal_commas=table.has_decimal_commas)
        for line, record in enumerate(table.records[1:], 2)
        if any(record)
    ]
    if not rows:
        raise refusal(path, "has a head but no row: give one measured run a row")
    return rows


def unread_columns(path: Path) -> dict[str, str | None]:
    """Returns the columns of a file that are not read, each with the missing column that may be meant."""
    return _unread(_head(read_table(path, COLUMNS).records))


def _unread(head: Sequence[str]) -> dict[str, str | None]:
    lacking = [name for name in COLUMNS if name not in head]
    return {name: _meant(name, lacking) for name in head if name and name not in COLUMNS}


def _head(records: Sequence[Sequence[str]]) -> list[str]:
    """Returns the names of the columns; those that are read may be written in capitals."""
    names = [name.strip() for name in records[0]]
    return [name.lower() if name.lower() in COLUMNS else name for name in names]


def _meant(name: str, lacking: Sequence[str]) -> str | None:
    """The missing column that a name may mean, however its words are separated: `Seq Length`, `# GPUs`."""
    plain = "_".join(re.findall(r"[a-z0-9]+", name.lower()[:100]))
    if (known := _OTHER_NAMES.get(plain)) in lacking:
        return known
    return next(iter(difflib.get_close_matches(plain, lacking, n=1, cutoff=LIKENESS)), None)


def _check_head(head: Sequence[str], path: Path) -> None:
    twice = sorted({name for name in head if name in COLUMNS and head.count(name) > 1})
    if twice:
        raise refusal(path, f"names the column {twice[0]} twice; keep one")
    missing = [" or ".join(group) for group in NEEDED if not set(group) & set(head)]
    if missing:
        found = shown(", ".join(name for name in head if name))
        other = [f"{shown(name)} to {meant}" for name, meant in _unread(head).items() if meant]
        rename = f". Rename {', '.join(other)}" if other else ""
        raise refusal(
            path,
            f"row 1 lacks the column {', '.join(dict.fromkeys(missing))}; found: {found}{rename}. Columns are separated "
            "by commas, semicolons or tabs; docs/measured-rows.md lists them",
        )


def _cells(line: int, head: Sequence[str], record: Sequence[str], *, has_decimal_commas: bool) -> Cells:
    text = {name: cell.strip() for name, cell in zip(head, record, strict=False)}
    if len(record) != len(head):
        way_out = (
            "quote text that holds what separates cells" if len(record) > len(head) else "leave none out"
        )
        rule = f"row {line} has {len(record)} cells, but the head has {len(head)}; {way_out}"
        return Cells(line=line, text=text, numbers={}, problems=(rule,))
    written = _with_outcome(text)
    text = _with_schedule(written)
    numbers: dict[str, float] = {}
    problems: list[str] = []
    remarks = [] if text == written else [(_SCHEDULE_COLUMNS[0], "stands in vpp")]
    for column in _NUMBERS:
        cell = text.get(column, "")
        if cell.lower() in (*WORDS_FOR_NOTHING, *WORDS_FOR_USUAL.get(column, ())) or says_latent(
            column, cell
        ):
            continue
        is_decimal = has_decimal_commas and column not in COUNTS
        sure = cell.rstrip("? ")
        plain = with_point(sure) if is_decimal else without_points(sure) if has_decimal_commas else sure
        number = number_in(column, plain, may_be_0=column in MEANS or COUNTS.get(column) == 0)
        is_of_tokens = number is None or number.value > MOST_SEQUENCES
        if is_of_tokens and column in ("global_batch", "micro_batch"):
            number = sequences_in(plain, numbers.get("seq_len")) or number
        rule = _broken_rule(column, cell, None if number is None else number.value)
        if rule and column == PEAK_MEMORY:
            remarks.append((column, f"{rule}; memory is not compared"))
        elif number is None or rule:
            problems.append(f"{column} = {shown(cell)}: {rule}")
        else:
            numbers[column] = number.value
            may_be_decimal = QUANTITIES if is_decimal else _SMALL_QUANTITIES
            is_unsure = has_unsure_comma(cell) and column in (*may_be_decimal, *MEANS)
            is_unsure |= sure != cell or (plain != sure and not is_decimal)
            if is_unsure or not number.is_exact:
                remarks.append((column, f"taken as {number.value:.10g}"))
    return Cells(line=line, text=text, numbers=numbers, problems=tuple(problems), remarks=tuple(remarks))


def _with_outcome(text: Mapping[str, str]) -> dict[str, str]:
    """Returns a row whose run had no room with that as what was measured, where it stands in the place of all numbers."""
    measured = {column: text.get(column, "") for column in QUANTITIES}
    out = [column for column, cell in measured.items() if _NO_ROOM.fullmatch(cell)]
    is_other = any(
        cell.lower() not in WORDS_FOR_NOTHING
        for column, cell in measured.items()
        if column not in (*out, PEAK_MEMORY)
    )
    if is_other or not out:
        return dict(text)
    kind = "; ".join(filter(None, [text.get("metric_kind"), "out of memory"]))
    return {**text, **dict.fromkeys(out, ""), "metric_kind": kind}


def _with_schedule(text: Mapping[str, str]) -> dict[str, str]:
    """Returns a row with the name of a schedule that stands in the place of its chunks in the column of schedules."""
    said = text.get("vpp", "")
    is_other = any(text.get(column, "").lower() not in WORDS_FOR_NOTHING for column in _SCHEDULE_COLUMNS)
    if is_other or not _SCHEDULE.search(said) or _CHUNKS.search(said):
        return dict(text)
    return {**text, "vpp": "", _SCHEDULE_COLUMNS[0]: said}


def says_latent(column: str, cell: str) -> bool:
    """Returns whether a cell says latent attention in the place of key-value heads."""
    return column == "kv_heads" and bool(_LATENT.search(cell))


def _broken_rule(column: str, cell: str, value: float | None) -> str:
    """Returns the rule that a number breaks; empty where it breaks none."""
    if value is None and has_decimal_comma(cell):
        return "must have a decimal point; commas are decimal marks where semicolons separate the cells"
    if value is None:
        return "must be a number, or empty"
    if not math.isfinite(value) or abs(value) > LARGEST:
        return f"must be a finite number up to {LARGEST:g}, or empty"
    if column in QUANTITIES:
        return "" if value > 0 else "must be greater than 0, or empty"
    if column in (*BYTES_OF_A_WEIGHT, *MEANS):
        return "" if value >= 0 else "must be at least 0, or empty"
    if value != int(value):
        return "must be a whole number, or empty"
    return "" if value >= COUNTS[column] else f"must be at least {COUNTS[column]}, or empty"
