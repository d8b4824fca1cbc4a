"""Does a row count cards, or the two dies of each card that frameworks see as devices? MI250X and Trainium1 have such dies.

Each rank of a run is a die. If the degrees of a layout multiply to the number of accelerators, the row counts dies; if they
multiply to twice that number, it counts cards. If a layout does not state its replicas, a node with as many cards decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from planner.measured.cells.file import Cells
from planner.measured.cells.told import LONGEST_NAME, Told
from planner.measured.cells.words import affirmed
from planner.measured.hardware.accelerator_names import accelerator_id
from simulator import catalog
from simulator.errors import CapplanError


@dataclass(frozen=True, kw_only=True)
class _Die:
    """One of the two dies of a card."""

    accelerator: str
    """Its name in the catalogue."""
    name: str
    """What its makers call several of them."""
    words: str
    """How notes name it."""


_DIES: Mapping[str, _Die] = {
    "mi250x": _Die(accelerator="mi250x-gcd", name="GCDs", words=r"\bgcds?\b"),
    "trainium1": _Die(accelerator="trainium1-core", name="NeuronCores", words=r"\bneuron[- ]?cores?\b"),
}
"""Dies by the card of the catalogue that has two of them."""
_DIES_OF_A_CARD = 2
_PER_DEVICE = "tokens_per_s_per_gpu"


def counted_by_rank(cells: Cells) -> Cells:
    """Returns a row whose layout has two ranks for each accelerator with dies in the place of cards; others as they are."""
    die, count = _die_of(cells), cells.count("n_gpus")
    if die is None or count is None:
        return cells
    ranks = _DIES_OF_A_CARD * count
    is_open = cells.count("dp") is None and _is_split(cells)
    if _ranks(cells) != ranks and not (is_open and cells.count("gpus_per_node") == _cards_per_node(die)):
        return cells
    numbers = {**cells.numbers, "n_gpus": float(ranks)}
    if _PER_DEVICE in numbers:
        numbers[_PER_DEVICE] /= _DIES_OF_A_CARD
    if cards := cells.count("gpus_per_node"):
        numbers["gpus_per_node"] = float(_DIES_OF_A_CARD * cards)
    meaning = f"counts cards, the layout their {die.name}, two a card: taken as {ranks}"
    return replace(cells, numbers=numbers, remarks=(*cells.remarks, ("n_gpus", meaning)))


def counted_accelerator(told: Told, name: str) -> str:
    """Returns the catalogue name of a row's accelerators: that of the dies of a card where they are what it counts."""
    die = _DIES.get(name)
    if die is None or not _counts_dies(told, die):
        return name
    told.remark("gpu", f"counted in dies ({die.name}), two a card: taken as {die.accelerator}")
    return die.accelerator


def _counts_dies(told: Told, die: _Die) -> bool:
    if given := told.cells.count("gpus_per_node"):
        return given == catalog.default_node(die.accelerator).num_accelerators
    if affirmed(die.words, told.text("notes")):
        return True
    ranks = _ranks(told.cells)
    return _is_split(told.cells) if ranks is None else ranks == told.cells.count("n_gpus")


def _is_split(cells: Cells) -> bool:
    """Returns whether layers or products are known to be split over ranks."""
    return max(cells.count("tp") or 1, cells.count("pp") or 1) > 1


def _cards_per_node(die: _Die) -> int:
    return catalog.default_node(die.accelerator).num_accelerators // _DIES_OF_A_CARD


def _ranks(cells: Cells) -> int | None:
    """Returns the ranks of the layout; `None` where it is not all told."""
    tensor, pipeline, replicas = (cells.count(column) for column in ("tp", "pp", "dp"))
    if not (tensor and pipeline and replicas):
        return None
    return tensor * pipeline * replicas * (cells.count("cp") or 1)


def _die_of(cells: Cells) -> _Die | None:
    try:
        return _DIES.get(accelerator_id(cells.text.get("gpu", "")[:LONGEST_NAME]))
    except CapplanError:
        return None  # which is told where the accelerator is asked for
