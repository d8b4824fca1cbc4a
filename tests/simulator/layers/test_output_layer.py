"""Does the output layer take its product in 16 bits and the bytes of its loss, once for each predicted token?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.domain.hardware import Precision
from simulator.layers.model_ends import embedding, output_layer
from simulator.machine.rank import Rank
from tests.simulator.builders import changed, plan_of, rank_of, training

ROWS, HIDDEN, TOKENS = 128_256, 4_096, 4_096
"""Those of Llama 3.1 8B, and of one micro-batch."""


def moved_s(rank: Rank, num_bytes: float, num_kernels: int) -> float:
    """What memory-bound kernels take for so many bytes."""
    rate = rank.offers.memory_bytes_per_s[0] * rank.kernels.memory_fraction[0]
    return float(num_bytes / rate + num_kernels * rank.kernels.launch_s[0])


def products_s(rank: Rank, tensor: int) -> tuple[float, float]:
    """The product with a rank's share of the vocabulary, forward and backward."""
    columns, inner = np.array([ROWS / tensor]), np.array([float(HIDDEN)])
    forward_s, backward_s = rank.gemm_s(rank.tokens, columns, inner)
    return float(forward_s[0]), float(backward_s[0])


def test_a_vocabulary_that_fills_no_tiles_slows_the_product_and_not_the_loss() -> None:
    odd = training(changed(training().model, vocabulary_size=ROWS + 1))
    rank = rank_of(odd, plan_of())
    columns, inner = np.array([ROWS + 1.0]), np.array([float(HIDDEN)])
    products = [float(way_s[0]) for way_s in rank.gemm_s(rank.tokens, columns, inner)]
    loss_s = moved_s(rank, 16 * TOKENS * (ROWS + 1), 4)
    found = output_layer(rank)
    longer = 1.0 / rank.training.unaligned_fraction
    assert longer > 1.1
    assert found.forward_compute_s[0] == pytest.approx(longer * products[0] + loss_s)
    assert found.backward_compute_s[0] == pytest.approx(longer * products[1] + loss_s)


@pytest.mark.parametrize("tensor", [1, 8])
@pytest.mark.parametrize(
    ("options", "forward_bytes", "backward_bytes"),
    [
        # Fused: four passes over logits of 32 bits each way. Separate kernels: docs/model/kernels.md, the loss.
        ({}, 16, 16),
        ({"kernel_launch": "eager-2022"}, 42, 14),
        ({"kernel_launch": "blocking-2022"}, 42, 14),
        ({"measures_accuracy": True}, 46, 14),
    ],
)
def test_the_loss_moves_its_bytes_of_a_share_of_the_vocabulary(
    tensor: int, options: dict[str, object], forward_bytes: int, backward_bytes: int
) -> None:
    rank = rank_of(changed(training(), **options), plan_of(tensor=tensor))
    found, (forward_s, backward_s) = output_layer(rank), products_s(rank, tensor)
    logits = TOKENS * ROWS / tensor
    assert found.forward_compute_s[0] == pytest.approx(forward_s + moved_s(rank, forward_bytes * logits, 4))
    assert found.backward_compute_s[0] == pytest.approx(
        backward_s + moved_s(rank, backward_bytes * logits, 4)
    )


def test_each_predicted_token_takes_a_product_a_loss_and_a_gather() -> None:
    two = training(training().model.model_copy(update={"num_mtp_layers": 1}))
    once, twice = (output_layer(rank_of(workload, plan_of(tensor=8))) for workload in (training(), two))
    for name in ("forward_compute_s", "backward_compute_s", "forward_tensor_comm_s"):
        assert getattr(twice, name)[0] == pytest.approx(2.0 * getattr(once, name)[0]), name
    assert twice.backward_tensor_comm_s[0] >= 2.0 * once.backward_tensor_comm_s[0] * (1 - 1e-12)


def test_logits_stay_in_16_bits_in_any_format() -> None:
    wide, narrow = (
        output_layer(rank_of(training(), plan_of(precision=precision)))
        for precision in (Precision.BF16, Precision.FP8)
    )
    assert narrow.forward_compute_s == pytest.approx(wide.forward_compute_s, rel=1e-12)
    assert narrow.backward_compute_s == pytest.approx(wide.backward_compute_s, rel=1e-12)


def test_a_lower_clock_slows_the_product_and_not_the_loss() -> None:
    rank = rank_of(training(), plan_of())
    half = replace(rank, compute_slowdown=2.0 * rank.compute_slowdown)
    forward_s, backward_s = products_s(rank, 1)
    usual, slow = output_layer(rank), output_layer(half)
    assert slow.forward_compute_s[0] - usual.forward_compute_s[0] == pytest.approx(forward_s)
    assert slow.backward_compute_s[0] - usual.backward_compute_s[0] == pytest.approx(backward_s)


def test_a_look_up_reads_and_writes_the_row_of_each_token() -> None:
    rank = rank_of(training(), plan_of())
    assert embedding(rank).forward_compute_s[0] == pytest.approx(moved_s(rank, 2 * 2 * TOKENS * HIDDEN, 1))
