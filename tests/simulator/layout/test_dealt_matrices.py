"""Do ranks own the matrices that Megatron Core gives them, and are buffers as long as they have to be?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.layout.dealt_matrices import Shares, Sizes, dealt, packed

Shape = tuple[int, int]
DENSE: tuple[Shape, ...] = ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672))
"""Matrices of a layer of Llama 3.1 70B in the order of the model."""
A_QUARTER: tuple[Shape, ...] = ((2560, 8192), (8192, 2048), (14336, 8192), (8192, 7168))
"""The same on one of four tensor-parallel ranks."""
LATENT: tuple[Shape, ...] = (
    *((1536, 7168), (24576, 1536), (576, 7168), (32768, 512), (7168, 16384)),
    *((256, 7168), (4096, 7168), (7168, 2048)),
)
"""What every token uses of a layer of DeepSeek-V3."""
EIGHT_EXPERTS: tuple[Shape, ...] = ((4096, 7168), (7168, 2048)) * 8

# Buffers, weights of the fullest rank and work of the busiest one, as `_compute_per_buffer_param_layout` of Megatron Core's
# `layer_wise_optimizer.py` gives them (August 2026, tensors on the `meta` device).
MEGATRON = [
    (DENSE, 20, 8, np.inf, 17314086912, 2164260864, 17729624997888),
    (DENSE, 20, 32, np.inf, 17716740096, 553648128, 4535485464576),
    (DENSE, 20, 64, 4e7, 30064771072, 469762048, 3848290697216),
    (A_QUARTER, 20, 8, np.inf, 4529848320, 566231040, 3678639489024),
    (A_QUARTER, 20, 16, 4e7, 5637144576, 331350016, 2433098973184),
    (A_QUARTER, 20, 32, 4e7, 7516192768, 234881024, 1924145348608),
    (A_QUARTER, 2, 128, np.inf, 15032385536, 117440512, 962072674304),
    (LATENT, 15, 8, np.inf, 4038590464, 504823808, 2022392725504),
    (LATENT, 4, 16, np.inf, 1879048192, 117440512, 841813590016),
    (LATENT, 4, 128, np.inf, 15032385536, 117440512, 841813590016),
    (EIGHT_EXPERTS, 4, 4, np.inf, 1409286144, 352321536, 1202590842880),
    (EIGHT_EXPERTS, 15, 32, 4e7, 7046430720, 220200960, 631360192512),
]


def sizes_of(*shapes: Shape) -> Sizes:
    weights = np.array([[float(rows * columns) for rows, columns in shapes]])
    costs = np.array([[float(max(each) * min(each) ** 2) for each in shapes]])
    return Sizes(weights, costs)


def pack(shapes: tuple[Shape, ...], layers: int, ranks: int, least: float = np.inf) -> Shares:
    return packed(
        np.array([[layers]]),
        np.ones((1, 1, len(shapes))),
        sizes_of(*shapes),
        np.array([ranks]),
        np.array([least]),
    )


@pytest.mark.parametrize(("shapes", "layers", "ranks", "least", "buffer", "most", "work"), MEGATRON)
def test_matrices_are_packed_as_by_megatron_core(
    shapes: tuple[Shape, ...], layers: int, ranks: int, least: float, buffer: int, most: int, work: int
) -> None:
    shares = pack(shapes, layers, ranks, least)
    assert shares.buffer_weights[0] == buffer
    assert shares.most_weights[0] == most
    assert (shares.costliest[0] * sizes_of(*shapes).costs[0]).sum() == pytest.approx(work, rel=1e-12)


sides = st.integers(1, 40).map(lambda side: 64 * side)
lists = st.lists(st.tuples(sides, sides), min_size=1, max_size=6).map(tuple)


@given(lists, st.integers(1, 12), st.integers(1, 40), st.sampled_from([np.inf, 1e6, 1e7]))
def test_no_buffer_is_shorter_than_what_it_holds(
    shapes: tuple[Shape, ...], layers: int, ranks: int, least: float
) -> None:
    weights = sizes_of(*shapes).weights[0]
    shares = pack(shapes, layers, ranks, least)
    total, buffer, most = layers * weights.sum(), shares.buffer_weights[0], shares.most_weights[0]
    assert buffer >= max(total, ranks * weights.max())
    assert total / ranks <= most * (1.0 + 1e-12)
    assert most <= buffer / ranks  # what a rank owns lies in its shards
    assert np.all(shares.costliest <= layers)


@given(lists, st.integers(1, 12), st.integers(1, 40))
def test_every_matrix_has_a_rank_of_its_own_where_there_are_enough(
    shapes: tuple[Shape, ...], layers: int, ranks: int
) -> None:
    sizes, ranks = sizes_of(*shapes), ranks + layers * len(shapes)
    shares = pack(shapes, layers, ranks)
    assert shares.buffer_weights[0] == ranks * sizes.weights.max()
    assert shares.costliest[0].sum() == 1.0
    assert sizes.costs[0][np.argmax(shares.costliest[0])] == sizes.costs.max()


def test_one_rank_owns_all_without_padding() -> None:
    shares = pack(DENSE, 20, 1)
    assert shares.buffer_weights[0] == shares.most_weights[0] == 20 * sizes_of(*DENSE).weights.sum()
    assert shares.costliest[0].tolist() == [20.0] * 4


def test_layers_that_fill_the_ranks_evenly_need_no_padding() -> None:
    shares = pack(((512, 256), (512, 256)), 16, 8)
    assert shares.buffer_weights[0] == 16 * 2 * 512 * 256
    assert shares.costliest[0].sum() == 4.0


def test_shares_of_layers_of_three_sorts_and_of_fractions() -> None:
    """Half a matrix a layer is one in every other layer; sorts that have no layers own nothing."""
    per_layer = np.array([[[0.5, 0.0], [0.0, 1.0], [9.0, 9.0]]])
    shares = packed(
        np.array([[4, 3, 0]]), per_layer, sizes_of((64, 64), (128, 64)), np.array([1]), np.array([np.inf])
    )
    assert shares.costliest[0].tolist() == [2.0, 3.0]


def test_tensors_are_dealt_there_and_back_from_the_smallest_on() -> None:
    """Ten tensors of sizes 1 to 10 on four ranks: 1, 8, 9 and 2, 7, 10 and 3, 6 and 4, 5."""
    sizes = Sizes(np.arange(1.0, 11.0)[None], np.arange(1.0, 11.0)[None] ** 2)
    shares = dealt(np.ones((1, 10), dtype=np.int64), sizes, np.array([4]))
    assert shares.buffer_weights[0] == 55.0
    assert shares.most_weights[0] == 19.0
    assert np.flatnonzero(shares.costliest[0]).tolist() == [1, 6, 9]


@given(st.lists(st.integers(0, 30), min_size=3, max_size=3), st.integers(1, 50))
def test_all_tensors_are_dealt(numbers: list[int], ranks: int) -> None:
    """Equal ones as evenly as can be."""
    sizes = Sizes(np.full((1, 3), 7.0), np.full((1, 3), 2.0))
    shares = dealt(np.array([numbers]), sizes, np.array([ranks]))
    assert shares.most_weights[0] == 7.0 * -(-sum(numbers) // ranks)
    assert shares.costliest[0].sum() == -(-sum(numbers) // ranks)


def test_layouts_of_a_batch_do_not_depend_on_each_other() -> None:
    shapes, ranks = A_QUARTER, np.array([8, 32, 3])
    sizes = Sizes(*(np.repeat(each, 3, axis=0) for each in sizes_of(*shapes)))
    together = packed(
        np.array([[20], [2], [7]]), np.ones((3, 1, 4)), sizes, ranks, np.array([np.inf, 4e7, 4e7])
    )
    for row, (layers, rank, least) in enumerate(((20, 8, np.inf), (2, 32, 4e7), (7, 3, 4e7))):
        alone = pack(shapes, layers, rank, least)
        for each, one in zip(together, alone, strict=True):
            assert each[row] == pytest.approx(one[0])
