"""Are the parts of a model all of it, and do passes show the collectives that their parts have?"""

from __future__ import annotations

import pytest

from simulator import catalog
from simulator.domain.plan import Recompute
from simulator.layout.chunks import chunk_weights, split_layers
from simulator.step.model_parts import part_collectives_s, part_times
from simulator.step.parts import counts_of_parts, weights_of_parts
from tests.simulator.builders import plan_of, rank_of, table_of, training

DEEPSEEK = training(
    catalog.model("deepseek-v3").model_copy(update={"num_mtp_layers": 1}), sequence_length=4096
)
"""Three dense layers, 58 with experts, a module of multi-token prediction."""


def test_parts_hold_all_weights_of_their_chunks() -> None:
    plans = table_of(plan_of(pipeline=4))
    chunks = split_layers(DEEPSEEK.model, plans, (16, 15, 15, 15))
    counts = counts_of_parts(DEEPSEEK, plans, chunks)
    of_parts, whole = (
        weights_of_parts(DEEPSEEK, counts).trained,
        chunk_weights(DEEPSEEK.model, plans, chunks),
    )
    for name in ("shared", "routed", "whole"):
        held = sum(
            count * weight for count, weight in zip(counts.values(), getattr(of_parts, name)[0], strict=True)
        )
        expected = getattr(whole, name).copy()
        if name == "shared":  # a copy of the embedding for the module's look-up
            expected[0, -1] -= DEEPSEEK.model.embedding_parameters
        assert held == pytest.approx(expected)


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
def test_exposed_collectives_of_a_part_are_those_in_its_times(recompute: Recompute) -> None:
    rank = rank_of(DEEPSEEK, plan_of(tensor=2, context=2, expert=8, data=8, recompute=recompute))
    for part in counts_of_parts(DEEPSEEK, rank.plans, split_layers(DEEPSEEK.model, rank.plans)):
        times, found = part_times(rank, part), part_collectives_s(rank, part)
        assert found[0] == pytest.approx(times.collectives_s("forward"))
        assert found[1] == pytest.approx(times.collectives_s("backward"))
        assert found[0] > 0.0
