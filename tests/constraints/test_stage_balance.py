"""Is there a faster cut? Balanced stages against every cut there is, and against a dynamic programme for long models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraints import stage_balance
from constraints.stage_balance import LayerCosts, StageBalance, balance_of, balanced_stages
from simulator.errors import InputError
from simulator.table import Floats

ROUNDING = 1e-12
"""Of sums in another order."""


def costs_of(
    layer_s: Floats,
    *,
    activation_bytes: Floats | None = None,
    embedding_s: float = 0.0,
    output_s: float = 0.0,
) -> LayerCosts:
    """Costs with the bytes of equal layers, which keep nothing where nothing else is said."""
    return LayerCosts(
        layer_s=layer_s,
        layer_bytes=np.ones(len(layer_s)),
        activation_bytes=np.zeros(len(layer_s)) if activation_bytes is None else activation_bytes,
        embedding_s=embedding_s,
        output_s=output_s,
    )


def every_cut(num_layers: int, num_chunks: int) -> Iterator[tuple[int, ...]]:
    """All cuts whose inner chunks have a layer."""
    for inner in combinations_with_replacement(range(num_layers + 1), num_chunks - 1):
        layers = tuple(np.diff([0, *inner, num_layers]).tolist())
        if all(count >= 1 for count in layers[1:-1]):
            yield layers


amounts = st.floats(0.0, 10.0)


@st.composite
def cases(draw: st.DrawFn) -> tuple[LayerCosts, int, int, list[int], float]:
    num_layers = draw(st.integers(2, 8))
    num_stages, virtual = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (2, 3), (3, 2)]))
    num_chunks = num_stages * virtual
    if num_chunks > num_layers + 2:
        num_stages, virtual, num_chunks = 2, 1, 2

    def column() -> Floats:
        return np.array(draw(st.lists(amounts, min_size=num_layers, max_size=num_layers)))

    costs = LayerCosts(
        layer_s=column(),
        embedding_s=draw(amounts),
        output_s=draw(amounts),
        layer_bytes=column(),
        activation_bytes=column(),
        embedding_bytes=draw(amounts),
        output_bytes=draw(amounts),
    )
    held = draw(st.lists(st.integers(1, 6), min_size=num_chunks, max_size=num_chunks))
    return costs, num_stages, virtual, held, draw(st.floats(1.0, 200.0))


@given(cases())
def test_no_cut_that_fits_the_memory_has_a_faster_slowest_stage(
    case: tuple[LayerCosts, int, int, list[int], float],
) -> None:
    costs, num_stages, virtual, held, capacity = case
    cuts = [
        balance_of(costs, layers, num_stages, held)
        for layers in every_cut(len(costs.layer_s), num_stages * virtual)
    ]
    found = balanced_stages(
        costs, num_stages=num_stages, num_held=held, capacity_bytes=capacity, virtual_chunks=virtual
    )
    slack = 1e-4 if virtual > 1 else 1e-9  # 1e-8 of sums that are below a thousand here, for each layer
    surely_fit = [cut.slowest_s for cut in cuts if max(cut.stage_bytes) <= capacity - slack]
    if found is None:
        assert surely_fit == []
        return
    assert max(found.stage_bytes) <= capacity + slack
    assert all(found.slowest_s <= slowest_s + slack for slowest_s in surely_fit)
    assert replace(found, is_proven=False) in cuts
    assert found.is_proven


def fastest_by_programme(costs: LayerCosts, num_stages: int) -> float:
    """Least time of the slowest of plain stages: the best end of every stage after the best of those before it."""
    num_layers = len(costs.layer_s)
    before = np.concatenate([[0.0], np.cumsum(costs.layer_s)])
    best = costs.embedding_s + before
    for stage in range(1, num_stages):
        is_last = stage == num_stages - 1
        best = np.array(
            [
                min(
                    max(best[start], before[end] - before[start] + (costs.output_s if is_last else 0.0))
                    for start in range(end + 1 if is_last else max(1, end))
                )
                for end in range(num_layers + 1)
            ]
        )
    return float(best[num_layers])


@pytest.mark.parametrize("num_stages", [2, 5, 16])
def test_long_models_are_cut_as_a_dynamic_programme_cuts_them(num_stages: int) -> None:
    random = np.random.default_rng(num_stages)
    costs = costs_of(random.uniform(0.5, 2.0, 61), embedding_s=0.3, output_s=2.5)
    found = balanced_stages(costs, num_stages=num_stages, num_held=[1] * num_stages, capacity_bytes=1e9)
    assert found is not None
    assert found.slowest_s == pytest.approx(fastest_by_programme(costs, num_stages), rel=ROUNDING)


def test_llama_405b_has_one_layer_less_on_both_ends() -> None:
    # arXiv 2407.21783, section 3.3.2: 126 layers on 16 stages, one less at both ends, since embedding and logits are there.
    costs = costs_of(np.ones(126), embedding_s=0.9, output_s=0.9)
    found = balanced_stages(costs, num_stages=16, num_held=range(16, 0, -1), capacity_bytes=1e9)
    assert found is not None
    assert found.layers == (7, *[8] * 14, 7)
    assert found.slowest_s == pytest.approx(8.0)


def test_interleaved_stages_share_out_what_the_logits_take() -> None:
    costs = costs_of(np.ones(80), embedding_s=0.3, output_s=2.5)
    found = balanced_stages(
        costs, num_stages=8, num_held=range(16, 0, -1), capacity_bytes=1e9, virtual_chunks=2
    )
    assert found is not None
    # With 10.5 at most, the last stage has 8 layers, and the seven others 10 each: 78 in all. The next time is 11.
    assert found.slowest_s == pytest.approx(11.0)
    assert sum(found.layers) == 80


def test_early_stages_give_up_layers_where_activations_do_not_fit() -> None:
    ones = np.ones(12)
    held = [4, 3, 2, 1]
    costs = costs_of(ones, activation_bytes=ones)
    free = balanced_stages(costs, num_stages=4, num_held=held, capacity_bytes=100.0)
    assert free is not None
    assert free.layers == (3, 3, 3, 3)
    assert free.stage_bytes == (15.0, 12.0, 9.0, 6.0)
    # Ten bytes hold 2, 2, 3 and 5 layers at 5, 4, 3 and 2 bytes each: twelve in all.
    tight = balanced_stages(costs, num_stages=4, num_held=held, capacity_bytes=10.0)
    assert tight is not None
    assert tight.layers == (2, 2, 3, 5)
    assert balanced_stages(costs, num_stages=4, num_held=held, capacity_bytes=9.9) is None


def test_of_equally_fast_cuts_the_one_with_the_least_full_stage_is_taken() -> None:
    ones = np.ones(5)
    costs = costs_of(ones, activation_bytes=ones)
    found = balanced_stages(costs, num_stages=2, num_held=[2, 1], capacity_bytes=100.0)
    # Three layers on one stage are as slow on either; the first holds two micro-batches of each of its layers.
    assert found == StageBalance(layers=(2, 3), slowest_s=3.0, stage_bytes=(6.0, 6.0), is_proven=True)


def test_a_cut_at_which_the_solver_had_to_stop_is_not_called_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = costs_of(np.random.default_rng(0).uniform(0.5, 2.0, 40), output_s=2.5)
    monkeypatch.setattr(stage_balance, "EFFORT", 0.1)
    found = balanced_stages(costs, num_stages=4, num_held=[1] * 12, capacity_bytes=1e9, virtual_chunks=3)
    assert found is not None
    assert sum(found.layers) == 40
    assert not found.is_proven


@pytest.mark.parametrize("seed", [0, 11, 16])
def test_rounding_of_the_solver_rules_out_no_cut_that_fits_to_the_last_byte(seed: int) -> None:
    layer_bytes = 1e9 * np.random.default_rng(seed).random(8)
    costs = replace(costs_of(np.ones(8)), layer_bytes=layer_bytes)
    fullest = [max(balance_of(costs, cut, 2, (1, 1, 1, 1)).stage_bytes) for cut in every_cut(8, 4)]
    found = balanced_stages(
        costs, num_stages=2, num_held=(1, 1, 1, 1), capacity_bytes=min(fullest), virtual_chunks=2
    )
    assert found is not None
    assert max(found.stage_bytes) == pytest.approx(min(fullest), rel=1e-7)


def test_two_chunks_that_turn_back_share_stages_from_both_ends() -> None:
    # Chunks 0 and 3 on the first stage, 1 and 2 on the second one: embedding and output are on the same stage.
    costs = costs_of(np.ones(8), embedding_s=1.0, output_s=3.0)
    found = balanced_stages(
        costs, num_stages=2, num_held=[1] * 4, capacity_bytes=1e9, virtual_chunks=2, turns_back=True
    )
    assert found is not None
    assert found.layers[0] + found.layers[3] == 2
    assert found.layers[1] + found.layers[2] == 6
    assert found.slowest_s == pytest.approx(6.0)  # a half of 8 + 1 + 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_stages": 0}, "num_stages = 0: must be at least 1"),
        ({"num_stages": 5, "num_held": [1] * 5}, "must be at most the layers"),
        ({"num_held": [1]}, "num_held = 1 values: must have 2"),
        ({"num_held": [1, -1]}, "num_held = -1: must be finite and not negative"),
    ],
)
def test_costs_that_do_not_fit_are_refused(fields: dict[str, object], message: str) -> None:
    arguments = {"num_stages": 2, "num_held": [1, 1], "capacity_bytes": 10.0, **fields}
    with pytest.raises(InputError, match=message):
        balanced_stages(costs_of(np.ones(2)), **arguments)  # type: ignore[arg-type]
