"""Is the slowest of the ranks that gather keys as slow as the pairs that masks leave each of them?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain import attention_span
from simulator.domain.attention_span import SequenceShape, SlidingWindow, layer_spans
from simulator.domain.choices import ContextExchange
from simulator.domain.documents import Documents
from simulator.layers.attention_costs import attention_core_s
from simulator.layers.context_copies import context_copies_s
from simulator.layers.context_split import SlowestRank, slowest_rank
from simulator.machine.compute import attention_time_s
from simulator.machine.rank import Rank
from simulator.table import Floats
from tests.simulator.builders import changed, gpt, job_of, plan_of, rank_of, table_of, training


def keys_seen(length: int, window: SlidingWindow | None) -> Floats:
    """Keys that each query of a document sees, of itself a half."""
    places = np.arange(length, dtype=np.float64)
    if window is None:
        return places + 0.5
    if window.is_chunked:
        return places % window.window_tokens + 0.5
    return np.minimum(places + 0.5, float(window.window_tokens))


def of_ranks(seen: Floats, num_ranks: int) -> Iterator[float]:
    pieces = np.split(seen, 2 * num_ranks)
    return (float(pieces[rank].sum() + pieces[-1 - rank].sum()) for rank in range(num_ranks))


def shape_of(
    tokens: int, window: SlidingWindow | None = None, documents: Documents | None = None
) -> SequenceShape:
    return SequenceShape(tokens=tokens, num_layers=1, window=window, documents=documents)


def slowest(shape: SequenceShape, num_ranks: int, num_sequences: int = 1) -> SlowestRank[float]:
    (found,) = slowest_rank(shape, num_ranks, num_sequences)
    return found


def over_mean(shape: SequenceShape, num_ranks: int, num_sequences: int = 1) -> float:
    (span,) = layer_spans(shape)
    return slowest(shape, num_ranks, num_sequences).kernel_tokens / span.kernel_tokens


WINDOWS = st.builds(
    SlidingWindow, window_tokens=st.integers(1, 3000), full_every=st.none(), is_chunked=st.booleans()
)


@pytest.fixture
def exact_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that compute nothing beyond the mask."""
    monkeypatch.setattr(attention_span, "WINDOW_EDGE_TOKENS", 0.0)
    layer_spans.cache_clear()
    slowest_rank.cache_clear()


class TestWindows:
    @pytest.mark.usefixtures("exact_edges")
    @pytest.mark.parametrize("num_ranks", [2, 4, 8, 16])
    @pytest.mark.parametrize("window", [512, 1000, 1024, 4096, 6000, 16_384, 40_000])
    @pytest.mark.parametrize("is_chunked", [False, True])
    def test_the_slowest_rank_has_the_pairs_of_its_two_pieces(
        self, num_ranks: int, window: int, is_chunked: bool
    ) -> None:
        kind = SlidingWindow(window_tokens=window, is_chunked=is_chunked)
        most = max(of_ranks(keys_seen(32_768, kind), num_ranks))
        found = slowest(shape_of(32_768, kind), num_ranks)
        assert found.kernel_tokens == pytest.approx(2 * most * num_ranks / 32_768)
        layer_spans.cache_clear()
        slowest_rank.cache_clear()

    @pytest.mark.usefixtures("exact_edges")
    def test_ranks_with_pieces_behind_a_window_have_a_fifteenth_more_than_the_mean(self) -> None:
        # 2 (s/2c) w pairs over (s w - w^2/2) / c.
        shape = shape_of(32_768, SlidingWindow(window_tokens=4096))
        assert over_mean(shape, 8) == pytest.approx(1 / (1 - 4096 / (2 * 32_768)))
        layer_spans.cache_clear()
        slowest_rank.cache_clear()

    @given(st.sampled_from([256, 2048, 4096]), st.sampled_from([2, 4, 8]), WINDOWS)
    def test_it_has_no_less_than_the_mean_and_no_more_than_two_full_pieces(
        self, tokens: int, num_ranks: int, window: SlidingWindow
    ) -> None:
        found = over_mean(shape_of(tokens, window), num_ranks)
        assert 1.0 - 1e-12 <= found <= 2.0

    def test_plain_sequences_are_equal_work_and_backward_kernels_begin_with_every_key(self) -> None:
        found = slowest(shape_of(32_768), 8)
        assert found.kernel_tokens == pytest.approx(32_768)
        # Rank r sees (r + 1) + (2c - r) of 2c pieces, and has two of them.
        assert found.key_visits == pytest.approx(8.5)

    def test_one_rank_is_as_without_ranks(self) -> None:
        shape = shape_of(3000, SlidingWindow(window_tokens=700))
        (span,) = layer_spans(shape)
        assert slowest(shape, 1) == SlowestRank(share=1.0, kernel_tokens=span.kernel_tokens, key_visits=1.0)


class TestDocuments:
    @pytest.mark.usefixtures("exact_edges")
    @pytest.mark.parametrize("window", [None, 700, 4096])
    def test_documents_that_are_split_each_are_pieces_of_each(self, window: int | None) -> None:
        kind = (window and SlidingWindow(window_tokens=window)) or None
        lengths = (1600, 3216, 6400, 16, 8000)
        work = sum(np.array([*of_ranks(keys_seen(length, kind), 8)]) for length in lengths)
        shape = shape_of(16_000, kind, Documents(lengths_tokens=lengths, is_split_each=True))
        assert slowest(shape, 8).kernel_tokens == pytest.approx(2 * np.max(work) * 8 / sum(lengths))
        layer_spans.cache_clear()
        slowest_rank.cache_clear()

    @pytest.mark.parametrize(
        ("tokens", "num_ranks", "mean", "window", "num_sequences"),
        [
            (32_768, 8, 2000, None, 1),
            (32_768, 16, 8192, None, 1),
            (32_768, 4, 32_768, None, 2),
            (32_768, 8, 8000, 4096, 1),
            (32_768, 8, 2000, None, 4),
        ],
    )
    def test_the_slowest_rank_of_a_sequence_is_that_of_dealt_documents(
        self, tokens: int, num_ranks: int, mean: float, window: int | None, num_sequences: int
    ) -> None:
        kind = SlidingWindow(window_tokens=window) if window else None
        random, most, whole = np.random.default_rng(7), [], []
        for _ in range(300):
            work = np.zeros(num_ranks)
            for _ in range(num_sequences):
                seen = np.zeros(0)
                while len(seen) < tokens:
                    seen = np.append(seen, keys_seen(1 + int(random.exponential(mean)), kind))
                work += [*of_ranks(seen[:tokens], num_ranks)]
            most.append(work.max())
            whole.append(work.mean())
        found = over_mean(shape_of(tokens, kind, Documents(mean_tokens=mean)), num_ranks, num_sequences)
        # 300 draws are within 2 % of their mean, 512 within 1.5 %.
        assert found == pytest.approx(np.mean(most) / np.mean(whole), rel=0.06)

    def test_documents_as_long_as_sequences_are_equal_work(self) -> None:
        shape = shape_of(4096, documents=Documents(lengths_tokens=(4096,)))
        assert over_mean(shape, 8) == pytest.approx(1.0)

    @pytest.mark.parametrize(
        ("length", "window", "keys_ahead"),
        [
            # 16 pieces of 256 tokens in one document: the i-th has 256 i ahead, or all that its window shows.
            (4096, None, 256 * 15 / 2),
            (4096, 100, 100 * 15 / 16),
            (256, None, 0),  # each piece is a document
            (512, None, 128),  # every other piece has one ahead
        ],
    )
    def test_pieces_read_their_own_keys_and_those_ahead_in_their_document(
        self, length: int, window: int | None, keys_ahead: float
    ) -> None:
        kind = SlidingWindow(window_tokens=window) if window else None
        shape = shape_of(4096, kind, Documents(lengths_tokens=(length,)))
        assert slowest(shape, 8).key_visits == pytest.approx(1 + keys_ahead / 256)

    def test_very_many_documents_are_drawn_from_fewer_sequences(self) -> None:
        found = over_mean(shape_of(2**20, documents=Documents(mean_tokens=20)), 2)
        assert found == pytest.approx(1.0, abs=0.03)


def core_of(window: int, *, context: int, exchange: str = "all_gather") -> tuple[float, float]:
    model = gpt(hidden_size=4096, num_heads=32).model_copy(
        update={"num_kv_heads": 8, "sliding_window": SlidingWindow(window_tokens=window)}
    )
    workload = training(model, sequence_length=32_768, global_batch_size=8)
    job = job_of(workload.model_copy(update={"context_exchange": exchange}))
    forward_s, backward_s = attention_core_s(Rank.of(job, table_of(plan_of(context=context))))
    return float(forward_s[0]), float(backward_s[0])


def test_a_window_costs_what_its_slowest_rank_computes_and_what_is_put_in_order() -> None:
    model = gpt(hidden_size=4096, num_heads=32).model_copy(
        update={"num_kv_heads": 8, "sliding_window": SlidingWindow(window_tokens=4096)}
    )
    workload = training(model, sequence_length=32_768, global_batch_size=8)
    rank = Rank.of(job_of(workload), table_of(plan_of(context=8)))
    span = 2 * 4096 + 2 * 64  # two whole pieces behind the window, of which tiles compute 64 keys more
    core_s = {
        backward: attention_time_s(
            tokens=4096.0,
            sequence_length=float(span),
            num_heads=32.0,
            head_dim=128.0,
            bf16_flop_per_s=rank.offers.peak_flop_per_s[:, 0],
            constants=rank.kernels,
            num_kernels=2.0,
            backward=backward,
        )
        for backward in (False, True)
    }
    whole = 32_768 * 8 * 256  # keys and values
    added = 2 * (4096 + 2048) * 8 * 256
    forward_s, backward_s = attention_core_s(rank)
    assert forward_s == pytest.approx(core_s[False] + rank.memory_bound_s(np.array([4.0 * whole]), 2.0))
    moved_s = rank.memory_bound_s(np.array([10.0 * whole + 6.0 * added]), 10.0)
    assert backward_s == pytest.approx(core_s[True] + moved_s)


@pytest.mark.parametrize("exchange", ["ring", "gathered_ring"])
def test_tensor_parallel_ranks_share_the_sums_of_a_ring(exchange: ContextExchange) -> None:
    workload = changed(training("llama-3.1-8b"), context_exchange=exchange)
    one, four = (rank_of(workload, plan_of(tensor=t, context=2)) for t in (1, 4))
    for whole_s, part_s, launches in zip(context_copies_s(one), context_copies_s(four), (4, 6), strict=True):
        launches_s = launches * one.kernels.launch_s
        assert whole_s - launches_s == pytest.approx(4.0 * (part_s - launches_s))


def test_heads_that_are_exchanged_are_copied_once() -> None:
    (one_s, _), (four_s, _) = (core_of(4096, context=context, exchange="all_to_all") for context in (1, 4))
    job = job_of(training(gpt(hidden_size=4096, num_heads=32), sequence_length=32_768))
    rank = Rank.of(job, table_of(plan_of(context=4)))
    copied_s = float(rank.memory_bound_s(np.array([4.0 * 8192 * (32 + 8) * 256]), 4.0)[0])
    assert four_s > copied_s
    assert four_s < one_s
