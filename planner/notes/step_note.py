"""Why is a step known less well than most? One reason, with the parts of the step that it names, and several reasons as one.

Steps of a sweep often have the same reason with other figures: a note of several steps names each part once, with all figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from simulator.step.step_reach import BeyondPart

PARTS = "{parts}"
"""Stands for the parts in the sentence of a note."""
_OR = " or "


@dataclass(frozen=True, kw_only=True)
class StepNote:
    """One reason. Notes with the same `sentence` are of one kind."""

    sentence: str
    """The text, with `PARTS` in the place of the parts, if it names any."""
    parts: tuple[BeyondPart, ...] = ()
    """Parts of the step that go beyond everything compared."""

    @property
    def text(self) -> str:
        """The note as a reader gets it: parts that differ in their figures alone are named once, with all figures.

        Example:
            >>> degrees = (BeyondPart(words="context parallelism {}", figure=str(ranks)) for ranks in (4, 8))
            >>> StepNote(sentence="No step with {parts} was compared.", parts=(*degrees,)).text
            'No step with context parallelism 4 or 8 was compared.'
        """
        if not self.parts:
            return self.sentence
        figures: dict[str, dict[str, None]] = {}
        for part in self.parts:
            figures.setdefault(part.words, {})[part.figure] = None
        told = (words.format(_OR.join(found)) for words, found in figures.items())
        return self.sentence.replace(PARTS, _OR.join(told))


def merged(notes: Sequence[StepNote]) -> StepNote:
    """Returns one note in the place of some of one kind, with the parts of all."""
    return StepNote(sentence=notes[0].sentence, parts=tuple(part for note in notes for part in note.parts))


def texts(notes: Iterable[StepNote]) -> list[str]:
    """Returns the texts of notes."""
    return [note.text for note in notes]


class StepNotes(str):
    """The notes on one step; as the text that it is, with `BETWEEN` between them."""

    __slots__ = ("notes",)

    BETWEEN: Final = " | "
    """Stands between two notes."""
    notes: tuple[StepNote, ...]

    def __new__(cls, *notes: StepNote) -> Self:
        """Builds the text and keeps the notes."""
        made = super().__new__(cls, cls.BETWEEN.join(texts(notes)))
        made.notes = notes
        return made
