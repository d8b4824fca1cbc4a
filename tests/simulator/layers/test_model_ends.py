"""Do look-up and output layer move what PyTorch's operators and Megatron's gradient buffers do?"""

from __future__ import annotations

import pytest

from simulator.domain.lora import Lora
from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.layers.model_ends import embedding, look_up_of_module
from simulator.machine.rank import Rank
from tests.simulator.builders import changed, plan_of, rank_of, training

ROWS, HIDDEN, TOKENS = 128_256, 4_096, 4_096
"""Those of Llama 3.1 8B, and of one micro-batch."""


def bytes_backward(workload: Workload, plan: Plan, num_kernels: int) -> float:
    """What the backward pass of the embedding moves, by the bandwidth that kernels reach."""
    rank: Rank = rank_of(workload, plan)
    time_s = embedding(rank).backward_compute_s[0] - num_kernels * rank.kernels.launch_s[0]
    return float(time_s * rank.offers.memory_bytes_per_s[0] * rank.kernels.memory_fraction[0])


class TestGradientOfTheEmbedding:
    """PyTorch clears a gradient of all rows and adds to those of tokens; Megatron adds it to the sum.

    `grad_weight = at::zeros({num_weights, ...})` of `Embedding.cu`; `param.main_grad.add_(param.grad.data)` of
    `DistributedDataParallel`.
    """

    @pytest.mark.parametrize(("gradient_bytes", "added"), [(4, 2 + 4 + 4), (2, 2 + 2 + 2)])
    @pytest.mark.parametrize("tensor", [1, 8])
    def test_all_rows_are_cleared_and_added_to_the_sum(
        self, gradient_bytes: int, added: int, tensor: int
    ) -> None:
        workload = changed(training(), gradient_bytes=gradient_bytes)
        moved = 3 * 2 * TOKENS * HIDDEN + (2 + added) * ROWS * HIDDEN / tensor
        assert bytes_backward(workload, plan_of(tensor=tensor), 3) == pytest.approx(moved)

    def test_shards_and_kernels_of_their_own_add_nothing_here(self) -> None:
        moved = 3 * 2 * TOKENS * HIDDEN + 2 * ROWS * HIDDEN
        assert bytes_backward(training(), plan_of(data=8, zero=3), 2) == pytest.approx(moved)
        apart = changed(training(), added_gradient_bytes=6.0)  # counted with those of all weights
        assert bytes_backward(apart, plan_of(data=8, zero=1), 2) == pytest.approx(moved)

    def test_a_frozen_one_has_none(self) -> None:
        assert embedding(rank_of(changed(training(), lora=Lora(rank=8)), plan_of())).backward_compute_s == [0]

    @pytest.mark.parametrize(
        ("modules", "pipeline", "added"),
        [
            (1, 1, 6),  # to that of the embedding, in 16 bits
            (1, 4, 10),  # to the sum of the copy on the last stage
            (2, 4, 8),  # one to the other, one of both to the sum
        ],
    )
    def test_look_ups_of_a_stage_are_added_up_and_one_of_them_to_the_sum(
        self, modules: int, pipeline: int, added: int
    ) -> None:
        model = training().model.model_copy(update={"num_mtp_layers": modules})
        rank = rank_of(training(model), plan_of(pipeline=pipeline))
        time_s = look_up_of_module(rank).backward_compute_s[0] - 3 * rank.kernels.launch_s[0]
        moved = time_s * rank.offers.memory_bytes_per_s[0] * rank.kernels.memory_fraction[0]
        assert moved == pytest.approx(3 * 2 * TOKENS * HIDDEN + (2 + added) * ROWS * HIDDEN)
