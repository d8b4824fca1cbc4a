"""Do windows, chunks and packed documents shorten attention by what their masks leave of it?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simulator import catalog
from simulator.domain.attention_span import SequenceShape, SlidingWindow, layer_spans
from simulator.domain.documents import Documents
from simulator.domain.model import ModelShape
from simulator.domain.workload import Workload
from simulator.layers.layer_costs import dense_layer, expert_layer
from simulator.machine.compute import attention_time_s, kernel_constants
from simulator.machine.rank import Rank
from simulator.memory.peak import memory_by_stage
from simulator.table import Floats
from tests.simulator.builders import gpt, job_of, plan_of, table_of, training


def masked_span(lengths: list[int], window: SlidingWindow | None) -> float:
    """Twice the keys that a token sees on average, counted in the mask itself."""
    num_pairs = 0
    for length in lengths:
        query, key = np.arange(length)[:, None], np.arange(length)[None, :]
        mask = key <= query
        if window and window.is_chunked:
            mask &= key // window.window_tokens == query // window.window_tokens
        elif window:
            mask &= key > query - window.window_tokens
        num_pairs += int(mask.sum())
    return 2 * num_pairs / sum(lengths)


def span_of(sequence_length: int, window: SlidingWindow | None, documents: Documents | None = None) -> float:
    shape = SequenceShape(tokens=sequence_length, num_layers=1, window=window, documents=documents)
    return shape.mean_span


def packed(workload: Workload, documents: Documents) -> Workload:
    return workload.model_copy(update={"documents": documents})


WINDOWS = st.none() | st.builds(
    SlidingWindow, window_tokens=st.integers(1, 300), full_every=st.none(), is_chunked=st.booleans()
)


class TestMasks:
    @given(st.integers(1, 256), WINDOWS)
    def test_a_span_is_what_the_mask_leaves(self, length: int, window: SlidingWindow | None) -> None:
        # The continuous count leaves out half of the diagonal: a token, as in the usual s/2 of causal attention.
        assert span_of(length, window) == pytest.approx(masked_span([length], window), abs=1.0 + 1e-9)

    @given(st.lists(st.integers(1, 128), min_size=1, max_size=5, unique=True), WINDOWS)
    def test_packed_documents_see_only_themselves(
        self, lengths: list[int], window: SlidingWindow | None
    ) -> None:
        documents = Documents(lengths_tokens=tuple(lengths))
        assert span_of(128, window, documents) == pytest.approx(masked_span(lengths, window), abs=1.0 + 1e-9)

    def test_a_document_longer_than_the_sequence_is_cut(self) -> None:
        documents = Documents(lengths_tokens=(250,))
        assert span_of(100, None, documents) == pytest.approx((100**2 + 100**2 + 50**2) / 250)

    def test_frequencies_weigh_documents_not_tokens(self) -> None:
        # Nine documents of 100 tokens for each of 1,000: (9 x 100^2 + 1000^2) / (9 x 100 + 1000).
        documents = Documents(lengths_tokens=(100, 1000), frequencies=(9.0, 1.0))
        assert span_of(4096, None, documents) == pytest.approx(1_090_000 / 1_900)

    @pytest.mark.parametrize("sequence_length", [1_000, 16_384, 10_000_000])
    def test_exponential_lengths_have_the_moments_of_the_exponential_distribution(
        self, sequence_length: int
    ) -> None:
        # E[l^2]/E[l] of min(X, s): 2 m (1 - e^-x (1 + x)) / (1 - e^-x) with x = s/m.
        mean, x = 4096.0, sequence_length / 4096
        expected = 2 * mean * (1 - np.exp(-x) * (1 + x)) / (1 - np.exp(-x))
        span = span_of(sequence_length, None, Documents(mean_tokens=mean))
        assert span == pytest.approx(expected, rel=1e-9)

    def test_documents_far_longer_than_a_sequence_are_no_documents(self) -> None:
        assert span_of(4096, None, Documents(mean_tokens=1e12)) == pytest.approx(4096)

    @given(st.integers(1, 10**6), WINDOWS, st.none() | st.builds(Documents, mean_tokens=st.floats(1, 1e7)))
    def test_nothing_lengthens_what_a_token_sees(
        self, length: int, window: SlidingWindow | None, documents: Documents | None
    ) -> None:
        assert 0 < span_of(length, window, documents) <= length * (1 + 1e-9)

    def test_a_plain_sequence_is_its_own_span_to_the_last_bit(self) -> None:
        (span,) = layer_spans(SequenceShape(tokens=131_072, num_layers=7))
        assert (span.share, span.tokens, span.kernel_tokens) == (1.0, 131_072.0, 131_072.0)


class TestLayers:
    @pytest.mark.parametrize(
        ("every", "num_layers", "num_full"),
        [
            (2, 46, 23),  # Gemma 2 27B: local and global layers in turn (arXiv 2408.00118)
            (6, 62, 10),  # Gemma 3 27B: five local layers for each global one (arXiv 2503.19786)
            (2, 36, 18),  # gpt-oss-120b (arXiv 2508.10925)
            (4, 48, 12),  # Llama 4 Scout
            (None, 32, 0),  # Mistral 7B (arXiv 2310.06825)
            (1, 32, 32),
        ],
    )
    def test_the_last_of_each_so_many_layers_sees_everything(
        self, every: int | None, num_layers: int, num_full: int
    ) -> None:
        window = SlidingWindow(window_tokens=128, full_every=every)
        assert window.num_full_layers(num_layers) == num_full
        shape = SequenceShape(tokens=8192, num_layers=num_layers, window=window)
        shares = [span.share for span in layer_spans(shape) if span.tokens == 8192]
        assert sum(shares) == pytest.approx(num_full / num_layers)

    def test_model_flop_of_gpt_oss_are_those_of_its_two_kinds_of_layers(self) -> None:
        model, s, w = catalog.model("gpt-oss-120b"), 8192, 128
        plain = model.model_copy(update={"sliding_window": None})
        # 12 a d FLOP for each of the s/2 keys that a token sees in the mean: 18 of the 36 layers see w - w^2/2s instead.
        saved = 12 * 64 * 64 * 18 * (s / 2 - (w - w * w / (2 * s)))
        assert plain.model_flop_per_token(s) - model.model_flop_per_token(s) == pytest.approx(saved)


# One forward pass of attention in bf16, 64 query heads of 64 in 8 groups as in gpt-oss-120b, milliseconds, of sequences of
# 16,384 tokens with a window of 128 (aiconfigurator-core 0.12.0, context_attention_perf: fa3 on H100, trtllm_mha on B200).
MEASURED_WINDOWS_MS = [
    ("hopper", 989.4e12, 1, 0.380462),
    ("hopper", 989.4e12, 4, 1.464509),
    ("blackwell", 2250e12, 1, 0.230202),
    ("blackwell", 2250e12, 4, 0.888235),
]


@pytest.mark.parametrize(("family", "peak_flop_per_s", "batch", "measured_ms"), MEASURED_WINDOWS_MS)
def test_a_window_takes_about_what_was_measured(
    family: str, peak_flop_per_s: float, batch: int, measured_ms: float
) -> None:
    shape = SequenceShape(tokens=16_384, num_layers=1, window=SlidingWindow(window_tokens=128))
    (span,) = layer_spans(shape)
    time_s = attention_time_s(
        tokens=batch * 16_384.0,
        sequence_length=span.kernel_tokens,
        num_heads=64.0,
        head_dim=64.0,
        bf16_flop_per_s=peak_flop_per_s,
        constants=kernel_constants([family], ["bf16"]),
    )
    # Nothing was fitted on windows; they are 128 times shorter than the sequence, and the law is within a third.
    assert time_s[0] * 1e3 == pytest.approx(measured_ms, rel=0.33)


def layer_s(workload: Workload, *, micro_batch: int = 1) -> Floats:
    rank = Rank.of(job_of(workload), table_of(plan_of(micro_batch=micro_batch)))
    layer = expert_layer(rank) if workload.model.experts else dense_layer(rank)
    return np.array([layer.forward_s[0], layer.backward_s[0]])


class TestTime:
    def with_window(self, **fields: int) -> ModelShape:
        window = SlidingWindow.model_validate(fields)
        return gpt(hidden_size=4096, num_heads=32).model_copy(update={"sliding_window": window})

    def test_a_window_as_long_as_the_sequence_changes_nothing(self) -> None:
        whole, windowed = (
            layer_s(training(model, sequence_length=8192))
            for model in (gpt(hidden_size=4096, num_heads=32), self.with_window(window_tokens=8192))
        )
        assert list(whole) == list(windowed)

    def test_a_layer_is_the_mean_of_those_with_and_without_a_window(self) -> None:
        whole, local, mixed = (
            layer_s(training(model, sequence_length=32_768))
            for model in (
                gpt(hidden_size=4096, num_heads=32),
                self.with_window(window_tokens=1024),
                self.with_window(window_tokens=1024, full_every=4),  # six of 24 layers
            )
        )
        assert mixed == pytest.approx(local + (whole - local) / 4)
        # 4 T a d for each key that is no longer seen, and 2.5 times as much backward, at less than the peak of an H100.
        hidden = 32_768 / 2 - (1024 - 1024**2 / (2 * 32_768))
        assert (whole - local > np.array([1.0, 2.5]) * 4 * 32_768 * 4096 * hidden / 989.4e12).all()

    def test_separate_kernels_compute_and_keep_what_a_window_hides(self) -> None:
        workloads = [
            training(model, sequence_length=8192).model_copy(update={"attention": "unfused"})
            for model in (gpt(hidden_size=4096, num_heads=32), self.with_window(window_tokens=128))
        ]
        assert list(layer_s(workloads[0])) == list(layer_s(workloads[1]))
        whole, local = (memory_by_stage(workload, plan_of()).peak_bytes for workload in workloads)
        assert whole[0] == local[0]

    def test_documents_take_as_long_as_sequences_of_their_length(self) -> None:
        workload = training(sequence_length=32_768)
        documents = Documents(lengths_tokens=(4096,), imbalance=1.0)
        short = training(sequence_length=4096)
        # Eight sequences of 4,096 tokens are the same tokens, in products and in attention.
        assert layer_s(packed(workload, documents)) == pytest.approx(layer_s(short, micro_batch=8))


class TestReplicas:
    def imbalance(self, documents: Documents, *, replicas: int, sequences: int) -> float:
        shape = SequenceShape(tokens=32_768, num_layers=32, documents=documents)
        return float(shape.imbalance(np.array([replicas]), np.array([sequences]))[0])

    def test_one_replica_waits_for_nobody(self) -> None:
        assert self.imbalance(Documents(mean_tokens=4096), replicas=1, sequences=1) == 1.0

    def test_equal_documents_are_equal_work(self) -> None:
        assert self.imbalance(Documents(lengths_tokens=(4096,)), replicas=512, sequences=1) == 1.0

    def test_what_is_given_holds(self) -> None:
        assert self.imbalance(Documents(mean_tokens=4096, imbalance=1.34), replicas=8, sequences=1) == 1.34
        assert self.imbalance(Documents(mean_tokens=4096, imbalance=1.0), replicas=8, sequences=1) == 1.0

    @pytest.mark.parametrize("replicas", [2, 8, 64])
    @pytest.mark.parametrize("mean", [1024.0, 2048.0])
    def test_chance_makes_what_dealing_out_documents_makes(self, mean: float, replicas: int) -> None:
        # Documents of exponential length are dealt to replicas, four sequences each, cut at their ends.
        random, worst = np.random.default_rng(0), []
        for _ in range(400):
            lengths = random.exponential(mean, size=(replicas, int(8 * 4 * 32_768 / mean)))
            starts = np.cumsum(lengths, axis=1)
            bounds = np.minimum(np.concatenate([np.zeros((replicas, 1)), starts], axis=1), 4 * 32_768)
            work = (np.diff(bounds, axis=1) ** 2).sum(axis=1)
            worst.append(work.max() / work.mean())
        expected = self.imbalance(Documents(mean_tokens=mean), replicas=replicas, sequences=4)
        # Sums over some dozen documents are skewed, and their largest above that of normals.
        assert expected - 1 == pytest.approx(np.mean(worst) - 1, rel=0.17)

    @given(st.integers(1, 10_000), st.integers(1, 1_000), st.floats(10, 1e6))
    def test_more_sequences_even_out_and_more_replicas_do_not(
        self, replicas: int, sequences: int, mean: float
    ) -> None:
        documents = Documents(mean_tokens=mean)
        here = self.imbalance(documents, replicas=replicas, sequences=sequences)
        assert 1.0 <= self.imbalance(documents, replicas=replicas, sequences=2 * sequences) <= here
        assert here <= self.imbalance(documents, replicas=2 * replicas, sequences=sequences)

    def test_padding_trains_nothing(self) -> None:
        workload = training()
        padded = packed(workload, Documents(mean_tokens=500, filled_fraction=0.8))
        assert padded.num_steps == pytest.approx(workload.num_steps / 0.8)
        assert padded.tokens_per_step == pytest.approx(0.8 * 4096 * 512)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "documents need either mean_tokens or lengths_tokens"),
        ({"mean_tokens": 1.0, "lengths_tokens": (1,)}, "documents need either mean_tokens or lengths_tokens"),
        ({"lengths_tokens": (1, 2), "frequencies": (1.0,)}, r"frequencies \(1\) must be as many as .*\(2\)"),
        ({"lengths_tokens": (0,)}, "greater than 0"),
        ({"lengths_tokens": (10**400,)}, "less than or equal to 1000000000000"),
        ({"mean_tokens": 0.5}, "greater than or equal to 1"),
        ({"mean_tokens": 1.0, "filled_fraction": 0.0}, r"greater than or equal to 0\.001"),
        ({"mean_tokens": 1.0, "imbalance": 0.9}, "greater than or equal to 1"),
    ],
)
def test_documents_that_cannot_be_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Documents.model_validate(fields)
