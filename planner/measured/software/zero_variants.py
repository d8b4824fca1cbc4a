"""Does a measured run use more than the stages of ZeRO? ZeRO++ and ZeRO-Infinity are simulated without their additions."""

from __future__ import annotations

import re

from planner.measured.cells.told import Told
from planner.measured.cells.words import affirmed
from planner.measured.layout.sharding import COLUMN, LAST_STAGE, zero_stage
from planner.measured.software.offload import offloads_optimizer

_PARTITIONS = re.compile(r"(?:\b|_)hpz(?:\b|_)", re.IGNORECASE)
_PLUS_PLUS = re.compile(
    r"zero[- _]?(?:\+\+|plus[- _]?plus|pp\b)|\bqwz\b|\bqgz\b|zero[- _]quantized[- _](?:weights|gradients)"
    r"|quantized (?:weights?|gradients?|param\w*) (?:comm\w*|(?:all[- ]?)?gather\w*|reduc\w*|all[- ]?to[- ]?all)",
    re.IGNORECASE,
)
"""ZeRO++ gathers weights in 8 bits (qwZ), reduces gradients in 4 (qgZ), and keeps a second copy of the weights in every node or
so, from which the backward pass gathers (hpZ; arXiv 2306.10209, section 3)."""
_INFINITY = re.compile(
    r"zero[- _]?infinity|\boffload[- _](?:of[- _])?(?:the[- _])?(?:model[- _])?(?:param\w*|weights?\b)"
    r"|\b(?:param\w*|(?:model[- _])?weights?)[- _](?:(?:cpu|nvme)[- _])?offload",
    re.IGNORECASE,
)
"""Weights that are offloaded to main memory or disks (arXiv 2104.07857, section 5)."""
_DISKS = re.compile(r"\bnvme[- _]offload|\boffload[^;.]{0,40}\bnvme\b", re.IGNORECASE)


def keeps_as_zero_3(told: Told) -> bool:
    """Returns whether ranks keep what ZeRO-3 keeps; remarks if they keep more or less, or send in other formats."""
    if column := _column(told, _INFINITY):
        told.remark(column, "weights are simulated to stay on the accelerators: memory is not judged")
        return False
    if column := _column(told, _DISKS):
        return _keeps_beside_disks(told, column)
    if column := _column(told, _PLUS_PLUS):
        told.remark(column, "ZeRO++ is simulated as ZeRO-3, which gathers and sums in the usual formats")
    if column := _column(told, _PARTITIONS):
        told.remark(
            column,
            "second copies of weights, as hpZ of ZeRO++ keeps, are not simulated: memory is not judged",
        )
        return False
    return True


def _keeps_beside_disks(told: Told, column: str) -> bool:
    """Returns whether only the optimizer is offloaded to disks, which is simulated as main memory."""
    if offloads_optimizer(told):
        told.remark(column, "disks are simulated as main memory")
        return True
    told.remark(
        column, "what waits on disks is not told; simulated on the accelerators: memory is not judged"
    )
    return False


def _column(told: Told, words: re.Pattern[str]) -> str:
    """Returns the column that names something; empty if none does. With another stage, notes only make a comparison."""
    shards_less = zero_stage(told.text(COLUMN)) not in (None, LAST_STAGE)
    columns = (COLUMN,) if shards_less else (COLUMN, "notes", "framework")
    return next((column for column in columns if affirmed(words, told.text(column))), "")
