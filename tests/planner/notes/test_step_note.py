"""Are several reasons of one kind told as one, with each part once, and without reading any text back?"""

from __future__ import annotations

import csv
import io
import json

from planner.notes.step_note import PARTS, StepNote, StepNotes, merged, texts
from simulator.step.step_reach import BeyondPart

SENTENCE = f"No published step with {PARTS} was compared."
DEGREE = "context parallelism {} (measured: up to 2)"
LATENT = BeyondPart(words="latent attention")
FOUR_BITS = BeyondPart(words="4 bits")


def note_of(*parts: BeyondPart) -> StepNote:
    return StepNote(sentence=SENTENCE, parts=parts)


def degree(ranks: int) -> BeyondPart:
    return BeyondPart(words=DEGREE, figure=str(ranks))


def test_parts_of_one_step_are_told_in_their_order() -> None:
    told = note_of(degree(4), LATENT).text
    assert (
        told
        == "No published step with context parallelism 4 (measured: up to 2) or latent attention was compared."
    )


def test_notes_of_several_steps_are_one_with_all_figures_each_once() -> None:
    several = merged([note_of(degree(4), FOUR_BITS), note_of(LATENT, degree(8)), note_of(degree(4))])
    assert several.text == (
        "No published step with context parallelism 4 or 8 (measured: up to 2) or 4 bits or latent attention was compared."
    )
    assert several.sentence == note_of(LATENT).sentence
    assert merged([merged([note_of(degree(4))]), note_of(degree(8))]).parts == (degree(4), degree(8))


def test_what_looks_like_a_part_in_another_sentence_stays_as_it_is() -> None:
    other = StepNote(sentence="No published step with 3 or 4 ranks {of any} kind was compared.")
    assert merged([other, other]).text == other.text == other.sentence


def test_notes_are_written_as_the_text_that_they_are() -> None:
    notes = StepNotes(note_of(LATENT), StepNote(sentence="Scaled."))
    told = "No published step with latent attention was compared. | Scaled."
    assert notes == told
    assert json.loads(json.dumps({"notes": notes})) == {"notes": told}
    file = io.StringIO()
    csv.writer(file).writerow([notes, StepNotes()])
    assert file.getvalue() == f"{told},\r\n"
    assert texts(notes.notes) == told.split(" | ")
