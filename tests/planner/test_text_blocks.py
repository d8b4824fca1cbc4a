"""Are rows shown in full on any terminal wide enough for their words?"""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from planner.text.text_blocks import bar, grid

NAMES = ("reserve", "nodes of the accelerator h100-sxm5-80gb", "what they cost until the end of the plan")


def shown(width: int, *fractions: float) -> list[str]:
    console = Console(file=io.StringIO(), width=width, _environ={})
    with console.capture() as capture:
        grid(console, [(*NAMES, bar(console, fraction)) for fraction in fractions])
    return capture.get().splitlines()


@pytest.mark.parametrize("width", [60, 72, 80, 99, 100, 140])
def test_bars_are_whole_and_as_long_as_their_shares(width: int) -> None:
    lengths = [line.count("\u2588") for line in shown(width, 1.0, 0.5) if "\u2588" in line]
    whole = min(30, 30 * width // 100)
    assert lengths == [whole, round(whole / 2)]


def test_a_bar_is_whole_from_all_of_it_on() -> None:
    whole, beyond = (line.count("\u2588") for line in shown(100, 1.0, 2.5) if "\u2588" in line)
    assert beyond == whole


@pytest.mark.parametrize("width", [60, 72, 80, 99, 100, 140])
def test_no_name_is_cut_or_broken(width: int) -> None:
    lines = shown(width, 0.01)
    text = " ".join(lines)
    assert "\u2026" not in text
    assert all(word in text.split() for name in NAMES for word in name.split())
    assert all(len(line) <= width for line in lines)


def test_narrower_than_its_words_a_row_still_has_every_letter() -> None:
    letters = sorted("".join(NAMES).replace(" ", ""))
    assert sorted("".join(shown(30, 0.01)).replace(" ", "").replace("\u2588", "")) == letters
