"""What does a row of a file state, and what had to be assumed because it does not? Its cells, and the defaults for them."""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

from planner.input.problems import shown
from planner.measured.cells.file import Cells
from planner.measured.cells.words import of_this_run
from planner.measured.frameworks.families import software_family
from planner.measured.frameworks.names import of_vtrain, shards_by_itself, spelt
from planner.measured.frameworks.releases import published_year, release_year
from simulator.errors import CapplanError

LONGEST_NAME = 200
"""Characters of a name; what follows them says nothing new."""
_Value = TypeVar("_Value")


class CannotModelError(CapplanError):
    """A row says too little, or something that the simulator does not know."""


class Told:
    """The cells of one row; collects what was assumed in the place of columns, and what was read with care."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self._own_notes = of_this_run(cells.text.get("notes", ""))
        self.assumed: list[str] = []
        self.remarks: list[str] = []
        self._left_out: set[str] = set()
        for column, meaning in cells.remarks:
            self.remark(column, meaning)

    def text(self, column: str) -> str:
        """Returns what is written in a column, of notes what they say of this run; empty where there is nothing."""
        if column in self._left_out:
            return ""
        return self._own_notes if column == "notes" else self.cells.text.get(column, "")

    def name(self, column: str) -> str:
        """Returns the name in a column, no longer than names are; empty where there is none."""
        return self.text(column)[:LONGEST_NAME]

    @cached_property
    def framework(self) -> str:
        """The framework as its authors spell it, with the year of publication where its name tells no release.

        Of a row that names none it is that in its source; empty where none is named.
        """
        name, year = self._named_framework, self.published_year
        return name if year is None else f"{name} ({year})"

    @cached_property
    def published_year(self) -> int | None:
        """The year of publication where it stands in for a release of the framework that the row does not tell."""
        if not self._named_framework or release_year(self._named_framework):
            return None
        return published_year(self.name("source"), self.name("source_ref"))

    @cached_property
    def _named_framework(self) -> str:
        written, source = spelt(self.name("framework")), spelt(self.name("source"))
        if vtrain := of_vtrain(written, source, self.cells.count("n_gpus")):
            return vtrain
        if shards_by_itself(written) and "fsdp" in self.text("zero_stage_or_fsdp").lower():
            return f"{written} FSDP"
        return written or (source if software_family(source) else "")

    def count(self, column: str, *defaults: int | None) -> int:
        """Returns the number in a column or the first default that there is.

        Raises:
            CannotModelError: there is neither.
        """
        if found := self.cells.count(column):
            return found
        default = next((value for value in defaults if value is not None), None)
        if default is None:
            raise CannotModelError(f"{column} is not given")
        return self.default(column, default)

    def or_known(self, column: str, known: int | None) -> int:
        """Returns a number for which 0 is a value; of a known model where the cell is empty."""
        return int(self.cells.numbers.get(column, known or 0))

    def default(self, column: str, value: _Value) -> _Value:
        """Returns a value that is assumed in the place of a column."""
        self.assumed.append(column)
        return value

    def leave_out(self, column: str, meaning: str) -> None:
        """Takes a cell for an empty one, and says why."""
        self.remark(column, meaning)
        self._left_out.add(column)

    def remark(self, column: str, meaning: str) -> None:
        """Says what a cell is taken for that does not quite say it, or that it is not understood."""
        self.remarks.append(f"{column} = {shown(self.cells.text.get(column, ''))}: {meaning}")
