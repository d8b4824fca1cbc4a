"""What does a row of a file state, and what had to be assumed because it does not? Its cells, and the defaults for them."""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

from planner.input.problems import shown
from planner.measured.cells.file import Cells
from planner.measured.cells.words import affirmed, of_this_run
from planner.measured.frameworks.families import software_family
from planner.measured.frameworks.names import of_vtrain, shards_by_itself, spelt, trains_whole_models
from planner.measured.frameworks.releases import published_year, release_year
from simulator.errors import CapplanError

LONGEST_NAME = 200
"""Characters of a name; what follows them says nothing new."""
LONGEST_TEXT = 5_000
"""Characters of notes that are read; many words are looked for in them."""
_OF_DEEPSPEED = r"deepspeed|\bzero"
"""Words for DeepSpeed's sharding where FSDP may be meant, too."""
_Value = TypeVar("_Value")


class CannotModelError(CapplanError):
    """A row states too little, or something that the simulator does not model."""


class Told:
    """The cells of one row; collects what was assumed for missing columns, and remarks on what was read with care."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        notes = cells.text.get("notes", "")
        self._own_notes = of_this_run(notes[:LONGEST_TEXT])
        self.assumed: list[str] = []
        self.remarks: list[str] = []
        self._left_out: set[str] = set()
        for column, meaning in cells.remarks:
            self.remark(column, meaning)
        if len(notes) > LONGEST_TEXT:
            self.remark("notes", f"the first {LONGEST_TEXT:,} of {len(notes):,} characters are read")

    def text(self, column: str) -> str:
        """Returns the text of a column, for notes only what concerns this run; empty if there is none."""
        if column in self._left_out:
            return ""
        return self._own_notes if column == "notes" else self.cells.text.get(column, "")

    def name(self, column: str) -> str:
        """Returns the name in a column, cut to the length of a name; empty if there is none."""
        return self.text(column)[:LONGEST_NAME]

    @cached_property
    def framework(self) -> str:
        """The framework as its authors spell it, with the year of publication if its name states no release.

        If a row names none, it is the one named in its source; empty if there is none either.
        """
        name, year = self._named_framework, self.published_year
        return name if year is None else f"{name} ({year})"

    @cached_property
    def published_year(self) -> int | None:
        """The year of publication if it replaces a framework release that the row does not state."""
        if not self._named_framework or release_year(self._named_framework):
            return None
        return published_year(self.name("source"), self.name("source_ref"))

    @cached_property
    def _named_framework(self) -> str:
        written, source = spelt(self.name("framework")), spelt(self.name("source"))
        if vtrain := of_vtrain(written, source, self.cells.count("n_gpus")):
            return vtrain
        sharding = self.text("zero_stage_or_fsdp").lower()
        if shards_by_itself(written) and "fsdp" in sharding:
            return f"{written} FSDP"
        if (
            trains_whole_models(written)
            and "fsdp" not in written.lower()
            and affirmed(_OF_DEEPSPEED, sharding)
        ):
            return f"{written} DeepSpeed"
        return written or (source if software_family(source) else "")

    def count(self, column: str, *defaults: int | None) -> int:
        """Returns the number in a column, or else the first default that is not `None`.

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
        """Returns a number for which 0 is a valid value; that of a known model if the cell is empty."""
        return int(self.cells.numbers.get(column, known or 0))

    def default(self, column: str, value: _Value) -> _Value:
        """Returns a value assumed for a column, and notes the assumption."""
        self.assumed.append(column)
        return value

    def leave_out(self, column: str, meaning: str) -> None:
        """Treats a cell as empty, and remarks why."""
        self.remark(column, meaning)
        self._left_out.add(column)

    def remark(self, column: str, meaning: str) -> None:
        """Remarks how an inexact cell is interpreted, or that it is not understood."""
        self.remarks.append(f"{column} = {shown(self.cells.text.get(column, ''))}: {meaning}")
