"""Before which year can nobody have run a row? Networks and ways to split them are known since some year."""

from __future__ import annotations

from collections.abc import Iterator

from planner.measured.cells.told import Told
from planner.measured.frameworks.releases import FIRST_SEQUENCE_PARALLEL_YEAR
from planner.measured.workload.model_names import first_year
from planner.measured.workload.sequences import splits_sequence

CONTEXT_PARALLEL_YEAR = 2024
"""Megatron's core has context parallelism since release 0.5 of February 2024."""


def possible_since(told: Told) -> int | None:
    """Returns the year before which a row cannot have been run; `None` where neither network nor layout tells.

    Raises:
        InputError: the row says how sequences are split in words that are not understood.
    """
    return max(_years(told), default=None)


def _years(told: Told) -> Iterator[int]:
    if year := first_year(told.name("model")):
        yield year
    if told.framework.startswith("Megatron-LM"):
        if splits_sequence(told.text("sp")):
            yield FIRST_SEQUENCE_PARALLEL_YEAR
        if (told.cells.count("cp") or 1) > 1:
            yield CONTEXT_PARALLEL_YEAR
