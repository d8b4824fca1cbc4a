"""What becomes of the kinds of layers where a job changes `num_layers` of a known model? Each keeps its share.

    model: {name: qwen3-next-80b-a3b, num_layers: 24}        18 and 6 blocks, as of 48 layers there were 36 and 12

Blocks of a hybrid must come out whole; layers with compressed attention, of which kinds take turns, are rounded. Numbers that a
job names stay as they are named.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeGuard

from planner.input.problems import Findings
from planner.input.schema import Location
from planner.job.short_forms import Fields
from simulator.domain.layer_shares import MOST_LAYERS, kept_shares, whole_step
from simulator.domain.model import ModelShape

HERE: Location = ("workload", "model")
HYBRID = "linear_attention"
COUNTS: Mapping[str, tuple[str, ...]] = {
    HYBRID: ("num_blocks", "num_attention_blocks"),
    "compressed_attention": ("num_chosen_layers", "num_heavy_layers"),
}
"""Parts of a model with numbers of blocks, or layers, over the whole model."""


def with_kept_shares(fields: Fields, known: ModelShape, named: Collection[str], findings: Findings) -> Fields:
    """Returns the fields of a model with another number of layers, in which every kind of layer keeps its share.

    Args:
        fields: The fields of the changed model.
        known: The model that is changed.
        named: The fields that a job names, such as `linear_attention.num_blocks`.
        findings: Collects the problem of blocks that do not come out whole.
    """
    number = fields.get("num_layers")
    if not _is_number_of_layers(number) or number == known.num_layers:
        return fields
    kept = {**fields}
    for part, names in COUNTS.items():
        before, after = getattr(known, part), fields.get(part)
        if before is None or not isinstance(after, dict) or part in named:
            continue
        counts = {name: getattr(before, name) for name in names if f"{part}.{name}" not in named}
        if part == HYBRID and (rule := _broken(counts, known.num_layers, number)):
            findings.add((*HERE, "num_layers"), number, rule)
        kept[part] = {**after, **_shares(counts, known.num_layers, number)}
    return kept


def named_in(given: Mapping[str, object]) -> set[str]:
    """Returns the fields that a mapping names, those of parts with the name of the part."""
    parts = {name: value for name, value in given.items() if isinstance(value, Mapping)}
    return {*(given.keys() - parts), *(f"{part}.{name}" for part, below in parts.items() for name in below)}


def named_by(overrides: Sequence[str]) -> set[str]:
    """Returns the fields of the model that overrides name; none if one of them replaces the whole model."""
    paths = [override.partition("=")[0].strip() for override in overrides]
    if {"workload", "workload.model"} & {*paths}:
        return set()
    below = "workload.model."
    return {path.removeprefix(below) for path in paths if path.startswith(below)}


def _is_number_of_layers(number: object) -> TypeGuard[int | float]:
    """Whether a value keeps the rules of its field, which are told otherwise."""
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return False
    return 1 <= number <= MOST_LAYERS and number % 1 == 0


def _shares(counts: Mapping[str, int], num_layers: int, number: float) -> dict[str, int]:
    return dict(zip(counts, kept_shares([*counts.values()], num_layers, number), strict=True))


def _broken(counts: Mapping[str, int], num_layers: int, number: float) -> str:
    """The rule that a number of layers breaks, and the ways out; empty if blocks come out whole."""
    step = whole_step(num_layers, [*counts.values()])
    if number % step == 0:
        return ""
    below = int(number // step) * step
    nearest = ", ".join(str(each) for each in (below, below + step) if each)
    known = " and ".join(f"{name} ({count})" for name, count in counts.items())
    own = " and ".join(f"{name} {share}" for name, share in _shares(counts, num_layers, number).items())
    return (
        f"must be a multiple of {step}, so that {known} of {HYBRID} keep their share of {num_layers} layers; "
        f"nearest: {nearest}; or give {HYBRID} its own, such as {own}"
    )
