"""Do words for parts of a design name what the design has?"""

from __future__ import annotations

import pytest

from planner.recommended.design_words import ranks_within_layers
from simulator.domain.plan import Plan
from tests.simulator.builders import plan_of


@pytest.mark.parametrize(
    ("plans", "ranks"),
    [
        ([plan_of()], ("tensor",)),
        ([plan_of(context=2)], ("context",)),
        ([plan_of(tensor=2), plan_of(context=2)], ("tensor", "context")),
        ([plan_of(tensor=2, context=2), plan_of()], ("tensor", "context")),
    ],
)
def test_collectives_within_layers_are_of_all_ranks_that_any_plan_has(
    plans: list[Plan], ranks: tuple[str, ...]
) -> None:
    assert ranks_within_layers(plans) == ranks
