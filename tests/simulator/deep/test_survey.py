"""Are the plans that are furthest apart played as docs/deep/plans.md has them, and do its words say what its tables do?"""

from __future__ import annotations

from itertools import chain, islice

import pytest

from benchmarks.deep_plans import PAGE
from benchmarks.deep_survey import interleaved_layouts, layouts, plan_line
from tests.test_told_figures import words_of

TEXT = PAGE.read_text(encoding="utf-8")
MOST_DRAWN = 10_000


def table(name: str) -> list[str]:
    """Returns the lines of a table of the page without its head."""
    return TEXT.partition(f"<!-- {name} -->\n")[2].partition("\n<!-- end -->")[0].splitlines()[2:]


@pytest.mark.short(2)
@pytest.mark.parametrize("line", table("furthest"))
def test_a_plan_that_is_far_apart_is_played_as_the_page_has_it(line: str) -> None:
    named = line.removeprefix("| ").partition(" | ")[0]
    drawn = chain(*(islice(draw(), MOST_DRAWN) for draw in (layouts, interleaved_layouts)))
    layout = next(each for each in drawn if each.name == named)
    found = layout.played()
    assert found is not None
    assert plan_line(found) == line


def test_words_say_what_the_last_line_does() -> None:
    (line,) = [line for line in table("survey") if line.startswith("| all |")]
    interleaved = [line.split(" | ")[1] for line in table("survey") if line.startswith("| interleaved, ")]
    number, least, low, _, high, most = line.removeprefix("| all | ").removesuffix(" |").split(" | ")
    lowest, low_5, high_95, highest = (cell.strip("+-%") for cell in (least, low, high, most))
    words = words_of(PAGE)
    assert f"keeps {number} that can run and fit, {sum(map(int, interleaved))} of them interleaved" in words
    assert f"The step is {lowest} % shorter to {highest} % longer than at the fast depth" in words
    assert f"for nine of ten {low_5} % shorter to {high_95} % longer" in words
