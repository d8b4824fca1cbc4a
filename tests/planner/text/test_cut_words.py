"""Does a written cut mean the cut? Tests with published layouts, and a reader of Megatron Core's notation."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.text.cut_words import in_short, layout_of


def chunks_of(layout: str) -> list[str]:
    """Letters of each chunk: groups are repeated first, then letters (Megatron Core's user guide)."""
    for repeated in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        layout = re.sub(repeated, lambda found: found[1] * int(found[2]), layout)
    return layout.split("|")


@pytest.mark.parametrize(
    ("layers", "modules", "layout"),
    [
        ([1, 1, *[2] * 29, 1], 0, "Et|t|(tt|)*29tL"),  # 61 layers of Kimi K2 on two stages of 16 chunks
        ([1, *[2] * 30, 0], 1, "Et|(tt|)*30mL"),  # DeepSeek-V3 in Megatron-Bridge
        ([15, 15, 16, 15], 0, "Et*15|t*15|t*16|t*15L"),
        ([0, 2], 0, "E|ttL"),
    ],
)
def test_a_cut_is_written_as_megatron_core_reads_it(layers: list[int], modules: int, layout: str) -> None:
    assert layout_of(layers, modules) == layout


@given(layers=st.lists(st.integers(0, 12), min_size=2, max_size=20), modules=st.integers(0, 2))
def test_every_layer_is_read_back_where_it_was(layers: list[int], modules: int) -> None:
    chunks = chunks_of(layout_of(layers, modules))
    assert [chunk.count("t") for chunk in chunks] == layers
    assert [chunk.strip("t") for chunk in chunks] == ["E", *[""] * (len(layers) - 2), "m" * modules + "L"]


def test_equal_neighbours_are_counted() -> None:
    assert in_short((7, *[8] * 14, 7)) == "7, 14 x 8, 7"
    assert in_short((1, 2)) == "1, 2"
