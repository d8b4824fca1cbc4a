"""Do the chunks of a pipeline begin with layers that have an indexer, and is there no such cut that is nearer?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.shared_choices import cut_at_indexers, shares_choices
from planner.text.cut_words import megatron_layout
from simulator import catalog
from simulator.domain.plan import Plan
from tests.planner.sharing_layers import sharing

GLM_5_2_STARTS = [0, 1, 2, *range(6, 78, 4)]
"""Layers of GLM-5.2 that have an indexer (its `config.json`: `indexer_types`)."""


def distances(places: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise(places)]


def starts_of(cut: Sequence[int]) -> list[int]:
    return [0, *accumulate(cut)][:-1]


@pytest.mark.parametrize(
    ("name", "is_shared"),
    [("deepseek-v3", False), ("deepseek-v3.2", False), ("glm-5", False), ("glm-5.2", True)],
)
def test_layers_of_glm_5_2_share_choices(name: str, *, is_shared: bool) -> None:
    assert shares_choices(catalog.model(name)) is is_shared


@pytest.mark.parametrize(
    ("cut", "nearest"),
    [
        ([26, 26, 26], (26, 24, 28)),  # 52 is halfway between 50 and 54
        ([0, 39, 39, 0], (0, 38, 40, 0)),
        ([38, 40], (38, 40)),
        ([1] * 20 + [58], (*distances([*GLM_5_2_STARTS, 78]),)),  # as many chunks as layers with an indexer
        ([1] * 21 + [57], None),
    ],
)
def test_the_nearest_cut_of_glm_5_2(cut: list[int], nearest: tuple[int, ...] | None) -> None:
    assert cut_at_indexers(catalog.model("glm-5.2"), cut) == nearest


@given(
    step=st.integers(2, 5),
    leading=st.integers(0, 4),
    cut=st.lists(st.integers(1, 6), min_size=2, max_size=5),
)
def test_no_other_cut_at_indexers_is_nearer(step: int, leading: int, cut: list[int]) -> None:
    model = sharing(sum(cut), step=step, leading=min(leading, sum(cut)))
    indexer = model.indexer
    assert indexer
    counts = [indexer.num_among(layers) for layers in range(sum(cut) + 1)]
    with_one = [layer for layer in range(1, sum(cut)) if counts[layer + 1] > counts[layer]]
    begins = starts_of(cut)[1:]
    moves = [
        sum(abs(place - begin) for place, begin in zip(places, begins, strict=True))
        for places in combinations(with_one, len(begins))
    ]
    found = cut_at_indexers(model, cut)
    if found is None:
        assert not moves
        return
    assert sum(found) == sum(cut)
    assert {*starts_of(found)[1:]} <= {*with_one}
    assert sum(abs(place - begin) for place, begin in zip(starts_of(found)[1:], begins, strict=True)) == min(
        moves
    )


@pytest.mark.parametrize(
    ("name", "cut", "layout"),
    [
        ("glm-5.2", [18, 20, 20, 20], "Et*18|(t*20|)*2t*20L"),
        ("glm-5.2", [20, 20, 19, 19], None),
        ("glm-5", [20, 20, 19, 19], "Et*20|t*20|t*19|t*19L"),
    ],
)
def test_megatron_has_no_layout_of_other_cuts(name: str, cut: list[int], layout: str | None) -> None:
    plan = Plan(offer=0, num_gpus=4, pipeline_parallel=4)
    assert megatron_layout(catalog.model(name), plan, cut) == layout
