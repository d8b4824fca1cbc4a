"""Which settings of Muon did a measured run have, where its row names that optimizer? Those of Megatron Core.

A column or notes name it, and may name its settings as arguments of Megatron Core (`--muon-tp-mode distributed`,
`muon_num_ns_steps=10`, `--no-use-layer-wise-param-layout`). Others are its defaults, which are assumed. Frameworks without
Megatron Core exchange matrices in ways that are not simulated: their updates are those of Adam.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from planner.measured.cells.told import Told
from planner.measured.cells.words import NOTHING_SAID, affirmed, affirmed_number
from planner.measured.frameworks.families import software_family
from planner.measured.frameworks.releases import release_year
from simulator.domain.muon import LAST_ZERO_STAGE, Muon

PREFIX = "muon_"
"""What tells the cells of Muon from others."""
COLUMN, NOTES = "optimizer", "notes"
"""Where it may be named; notes count where the column is empty."""
AS_ADAM = "the optimizer is simulated as Adam; give optimizer_bytes and update_bytes"
"""What is told of other optimizers."""
LAST_YEAR_WITHOUT = 2024
"""Until then Megatron Core had no Muon."""
LAST_YEAR_OF_WHOLE_GRADIENTS = 2025
"""Until then every rank got the sums of all gradients of matrices."""

_MUON = re.compile(r"(?<![a-z_])(?:dist[-_ ]?)?muon(?:clip)?(?![a-z])", re.IGNORECASE)
_MODE = re.compile(r"muon[-_]tp[-_]mode[-_ =:]+(duplicated|distributed|blockwise)\b", re.IGNORECASE)
_STEPS = re.compile(
    r"muon[-_]num[-_]ns[-_]steps[ =:]+([1-9]\d?)\b|([1-9]\d?) (?:newton[- ]schulz|ns) (?:steps|iterations)",
    re.IGNORECASE,
)
_WHOLE_GRADIENTS = re.compile(
    r"no[-_]use[-_]layer[-_]wise[-_]param[-_]layout|use_layer_wise_param_layout[ =:]+false", re.IGNORECASE
)


def named_muon(told: Told) -> tuple[str, re.Match[str]] | None:
    """Returns the column in which a row names Muon as its optimizer, and where; `None` if it does not."""
    column = NOTES if told.text(COLUMN).lower() in NOTHING_SAID else COLUMN
    found = affirmed(_MUON, told.text(column))
    return (column, found) if found else None


def muon_cells(told: Told, cells: Mapping[str, object]) -> dict[str, object]:
    """Returns the fields of `Muon`, with their prefix; nothing where another optimizer is simulated, which is remarked.

    Args:
        told: the row.
        cells: number format, sharding, adapters and offloading of the run, biases of its experts, and its images.
    """
    if not (named := named_muon(told)):
        return {}
    column, found = named
    if why := next(_reasons(told, cells), ""):
        if "optimizer_bytes" not in told.cells.numbers:
            told.remark(column, f"{found[0]}: {why}: {AS_ADAM}")
        return {}
    notes, usual = f"{told.text(COLUMN)}; {told.text(NOTES)}", Muon()
    mode, steps = affirmed(_MODE, notes), affirmed_number(_STEPS, notes)
    settings = {
        "num_steps": steps or told.default(f"{PREFIX}num_steps", usual.num_steps),
        "tensor_mode": mode[1].lower() if mode else told.default(f"{PREFIX}tensor_mode", usual.tensor_mode),
        "reduction": _reduction(told, cells, notes),
        "state_bytes": told.cells.numbers.get("optimizer_bytes", usual.state_bytes),
    }
    return {f"{PREFIX}{name}": value for name, value in settings.items() if value is not None}


def _reduction(told: Told, cells: Mapping[str, object], notes: str) -> str | None:
    """How gradients reach the rank that updates a matrix; `None`: in the way that moves fewer bytes, or they stay."""
    if cells["zero_stage"] == 0:
        return None
    if affirmed(_WHOLE_GRADIENTS, notes):
        return "all_reduce"
    year = release_year(told.framework)
    if year is None:
        return told.default(f"{PREFIX}reduction", None)
    is_whole = year <= LAST_YEAR_OF_WHOLE_GRADIENTS or bool(cells.get("has_biases"))
    return told.default(f"{PREFIX}reduction", "all_reduce" if is_whole else "reduce_scatter")


def _reasons(told: Told, cells: Mapping[str, object]) -> Iterator[str]:
    """Yields why Muon is not simulated."""
    year = release_year(told.framework)
    if software_family(told.framework) != "Megatron":
        yield "simulated only as Megatron Core runs it"
    if year is not None and year <= LAST_YEAR_WITHOUT:
        yield f"Megatron Core of {year} has no Muon"
    if int(str(cells["zero_stage"])) > LAST_ZERO_STAGE or cells.get("shard_ranks"):
        yield "not simulated with weights or states that are sharded otherwise than by ZeRO-1"
    if cells["precision"] == "fp16":
        yield "not simulated in fp16"
    if cells.get("lora_rank"):
        yield "not simulated with adapters"
    if cells.get("optimizer_offload_fraction"):
        yield "not simulated with states in main memory"
    if cells.get("images_per_sequence"):
        yield "not simulated with images"
    if cells.get("step_bytes"):
        yield "not simulated with what DeepSpeed's update moves"
