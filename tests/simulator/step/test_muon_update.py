"""Does an update by Muon take the time of its products, copies, gathers and launches, and do replicas exchange its buffers?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.model import ModelShape
from simulator.domain.muon import Muon, TensorMode
from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.layout.chunks import split_layers
from simulator.layout.trained_weights import StepWeights
from simulator.machine.network import all_gather_s, all_reduce_s
from simulator.machine.rank import Rank
from simulator.replicas.replica_sync import ReplicaGroup, ReplicaTraffic
from simulator.step.gradient_buckets import Buckets
from simulator.step.model_parts import ModelParts
from simulator.step.muon_update import OPERATOR_S
from tests.simulator.builders import changed, gpt, plan_of, rank_of, step_of, training

H, F = 8192, 32_768
LARGE = changed(gpt(num_layers=1, hidden_size=H, num_heads=64, vocabulary_size=8), is_gated=False)
"""One layer of 24,576 x 8,192, 8,192 x 8,192, 32,768 x 8,192 and 8,192 x 32,768, and hardly anything else."""
PIECES = ((H, H), (H, H), (H, H), (H, H), (F, H), (H, F))
"""What is made orthogonal: queries, keys, values, output of attention, and both matrices of the feed-forward block."""
ADAM = 4 + 8 + 28 + 6 + 4 + 4
"""Bytes of a weight that Adam updates on a lone rank: tests/simulator/step/test_optimizer_step.py."""


def muon_run(model: ModelShape = LARGE, muon: Muon | None = None, **changes: object) -> Workload:
    return changed(training(model), muon=muon or Muon(), **changes)


def update_s(workload: Workload, plan: Plan) -> float:
    return float(step_of(workload, plan).optimizer_s[0])


def orthogonal_s(rank: Rank, shapes: tuple[tuple[int, int], ...], num_steps: int = 5) -> float:
    """Products and copies of pieces, written down once more."""
    found = 0.0
    for rows, columns in shapes:
        m, n = np.array([float(min(rows, columns))]), np.array([float(max(rows, columns))])
        products = rank.product_s(m, m, n) + rank.product_s(m, m, m) + rank.product_s(m, n, m)
        copies = rank.memory_bound_s(6.0 * (m * n + m * m), 2)
        once = rank.memory_bound_s(24.0 * m * n, 10)
        found += float((num_steps * (products + copies) + once)[0])
    return found


def weights_s(rank: Rank, plan: Plan) -> float:
    """What is moved once for every weight of the layer on a rank, queries, keys and values taken apart, and Adam's rest."""
    t = plan.tensor_parallel
    matrices = (12 * H * H * (48 + 18) + 3 * H * H * 16) / t
    whole = 12 * H * H / t * (4 + 4)  # zeroed and checked
    rest = (LARGE.num_parameters - 12 * H * H) / t * ADAM
    rate = rank.offers.memory_bytes_per_s[0] * rank.kernels.memory_fraction[0]
    return float((matrices + whole + rest) / rate + 50 * rank.kernels.launch_s[0])


class TestTime:
    @pytest.mark.parametrize("num_steps", [1, 5, 10])
    def test_a_lone_rank_does_all_steps_of_all_pieces(self, num_steps: int) -> None:
        workload, plan = muon_run(muon=Muon(num_steps=num_steps)), plan_of(zero=0)
        rank = rank_of(workload, plan)
        expected = orthogonal_s(rank, PIECES, num_steps) + weights_s(rank, plan)
        assert update_s(workload, plan) == pytest.approx(expected, rel=1e-9)

    def test_products_take_most_of_it(self) -> None:
        """4 m² n + 2 m³ for each piece and step, at no more than the peak, and no less than half of it."""
        flop = 5 * sum(4 * min(each) ** 2 * max(each) + 2 * min(each) ** 3 for each in PIECES)
        took_s = update_s(muon_run(), plan_of(zero=0))
        assert flop / 989.4e12 < took_s < 2 * flop / 989.4e12

    def test_every_rank_does_all_of_what_it_gathers(self) -> None:
        plan = plan_of(tensor=8, zero=0)
        rank = rank_of(muon_run(), plan)
        gathers = 0.0
        for rows, columns in PIECES:
            size = np.array([float(rows * columns)])
            gathers += float((all_gather_s(num_bytes=4.0 * size, **rank.tensor_group))[0])
            gathers += float(rank.memory_bound_s(8.0 * size, 0.0)[0])
        expected = orthogonal_s(rank, PIECES) + gathers + weights_s(rank, plan)
        assert update_s(muon_run(), plan) == pytest.approx(expected, rel=1e-9)

    def test_ranks_add_up_squares_where_each_multiplies_its_part(self) -> None:
        """The split side is the second one of X; of the output of attention and the second block the columns are split."""
        plan = plan_of(tensor=8, zero=0)
        workload = muon_run(muon=Muon(tensor_mode="distributed"))
        rank = rank_of(workload, plan)
        expected = weights_s(rank, plan)
        for side in (H, H, H, H, F, F):
            m, n = np.array([float(H)]), np.array([side / 8.0])
            products = rank.product_s(m, m, n) + rank.product_s(m, m, m) + rank.product_s(m, n, m)
            squares = all_reduce_s(num_bytes=2.0 * m * m, **rank.tensor_group)
            copies = rank.memory_bound_s(6.0 * (m * n + m * m), 2)
            expected += float((5 * (products + squares + copies) + rank.memory_bound_s(32.0 * m * n, 10))[0])
        assert update_s(workload, plan) == pytest.approx(expected, rel=1e-9)

    @pytest.mark.parametrize("tensor", [2, 8])
    def test_modes_that_share_the_work_take_less(self, tensor: int) -> None:
        modes: tuple[TensorMode, ...] = ("duplicated", "distributed", "blockwise")
        times = [
            update_s(muon_run(muon=Muon(tensor_mode=mode)), plan_of(tensor=tensor, zero=0)) for mode in modes
        ]
        assert times == sorted(times, reverse=True)

    def test_one_rank_has_no_modes(self) -> None:
        modes: tuple[TensorMode, ...] = ("duplicated", "distributed", "blockwise")
        times = {update_s(muon_run(muon=Muon(tensor_mode=mode)), plan_of(data=2)) for mode in modes}
        assert len(times) == 1

    def test_small_matrices_wait_for_the_host(self) -> None:
        """16 layers of six pieces, each of 35 operators."""
        tiny = gpt(num_layers=16, hidden_size=128, num_heads=2, vocabulary_size=8)
        least = 16 * 6 * (10 + 5 * 5) * OPERATOR_S
        assert least < update_s(muon_run(tiny), plan_of(zero=0)) < 1.1 * least

    def test_gradients_in_16_bits_are_cast(self) -> None:
        plan = plan_of(zero=0)
        rank = rank_of(muon_run(), plan)
        wide, narrow = (update_s(muon_run(gradient_bytes=size), plan) for size in (4, 2))
        # Six bytes of the cast; four less where gradients are zeroed and checked.
        cast = float(rank.memory_bound_s(np.array([12.0 * H * H * (6 - 4)]), 0.0)[0])
        assert narrow - wide == pytest.approx(cast, rel=1e-2)

    def test_a_power_cap_slows_products_alone(self) -> None:
        free = plan_of(zero=0)
        capped = changed(free, power_cap_fraction=0.5)
        rank, slow = (rank_of(muon_run(), plan) for plan in (free, capped))
        products = 0.0
        for each in PIECES:
            m, n = np.array([float(min(each))]), np.array([float(max(each))])
            products += 5 * float(
                (rank.product_s(m, m, n) + rank.product_s(m, m, m) + rank.product_s(m, n, m))[0]
            )
        longer = update_s(muon_run(), capped) - update_s(muon_run(), free)
        assert longer == pytest.approx((float(slow.compute_slowdown[0]) - 1.0) * products, rel=1e-6)

    def test_replicas_share_matrices_and_the_busiest_counts(self) -> None:
        """Four matrices on two ranks: the wide products of one block each, and the rest beside the cheaper one."""
        model = changed(LARGE, num_layers=1)
        alone, shared, each = (update_s(muon_run(model), plan_of(data=data)) for data in (1, 2, 4))
        assert alone / 2 < shared < alone
        assert shared > each > alone / 6
        many = update_s(muon_run(model), plan_of(data=64))
        assert many == pytest.approx(each, rel=0.05)  # a matrix is not divided any further

    def test_the_slowest_stage_counts(self) -> None:
        three = changed(LARGE, num_layers=3)  # one layer on the first stage, two on the second
        # Products of two accelerators take as long as those of the slower one.
        assert update_s(muon_run(three), plan_of(pipeline=2, zero=0)) == pytest.approx(
            2 * update_s(muon_run(), plan_of(zero=0)), rel=0.015
        )

    def test_experts_of_a_rank_are_updated_one_by_one(self) -> None:
        mixtral = training("mixtral-8x7b")
        plans = plan_of(data=8, expert=8), plan_of(data=8, expert=4)
        one, two = (update_s(changed(mixtral, muon=Muon()), plan) for plan in plans)
        # With half as many ranks of experts each has twice the experts, and shares them with another.
        assert two == pytest.approx(one, rel=0.1)
        assert one > 5 * update_s(mixtral, plans[0])


class TestAllWeightsOfARank:
    SMALL = gpt(num_layers=16)

    def longer_s(self, plan: Plan, one: Workload, other: Workload) -> tuple[Rank, float]:
        return rank_of(one, plan), update_s(other, plan) - update_s(one, plan)

    def test_padding_is_set_to_zero_and_checked(self) -> None:
        """Gradients of 4 bytes: twice as many for a buffer as long as the longest matrix times the replicas."""
        plan, run = plan_of(data=128), muon_run(self.SMALL, Muon(reduction="reduce_scatter"))
        rank, unchecked_s = self.longer_s(plan, changed(run, checks_gradients=False), run)
        buffers = 128 * 2048 * 8192 + 2 * 51_200 * 2048 + 33 * 2048
        expected = float(rank.memory_bound_s(np.array([4.0 * buffers]), 0.0)[0])
        assert unchecked_s == pytest.approx(expected, rel=1e-3)

    def test_gathered_tensors_are_copied_and_their_buffer_is_zeroed(self) -> None:
        plan = plan_of(data=128)
        run = muon_run(self.SMALL, Muon(reduction="all_reduce"))
        rank, zeroed_s = self.longer_s(plan, changed(run, overlaps_parameter_gather=False), run)
        size = float(self.SMALL.num_parameters)
        assert zeroed_s == pytest.approx(float(rank.memory_bound_s(np.array([4.0 * size]), 0.0)[0]))

    def test_what_is_copied(self) -> None:
        """A rank that owns one layer's block: beside its matrices, 4 bytes of every weight, and zeros again.

        Zeros, norm and division of gradients move 16 bytes for each weight of a buffer.
        """
        tiny = changed(LARGE, num_layers=1)
        plan = plan_of(data=64)
        packed, dealt = (muon_run(tiny, Muon(reduction=way)) for way in ("reduce_scatter", "all_reduce"))
        rank, longer_s = self.longer_s(plan, packed, dealt)
        held, buffer = float(tiny.num_parameters), 64.0 * H * F
        moved = 16.0 * held + 8.0 * held - 16.0 * buffer
        expected = float(rank.memory_bound_s(np.array([moved]), 0.0)[0])
        assert longer_s == pytest.approx(expected, rel=2e-3)

    def test_a_lone_replica_copies_nothing(self) -> None:
        times = {
            update_s(muon_run(self.SMALL, Muon(reduction=way)), plan_of())
            for way in ("reduce_scatter", "all_reduce")
        }
        assert max(times) == pytest.approx(min(times), rel=1e-12)


class TestTraffic:
    SMALL = gpt(num_layers=16)

    def traffic(self, muon: Muon | None, plan: Plan) -> tuple[float, float]:
        workload = changed(training(self.SMALL), muon=muon)
        rank = rank_of(workload, plan)
        weights = StepWeights.of(workload, rank.plans, split_layers(self.SMALL, rank.plans))
        found = ReplicaTraffic.of(rank, weights)
        return float(found.gradient_s[0, 0]), float(found.parameter_s[0, 0])

    def test_padding_is_reduced_and_gathered(self) -> None:
        plan = plan_of(data=128)
        rank = rank_of(training(self.SMALL), plan)
        ends = 2 * 51_200 * 2048 + (2 * 16 + 1) * 2048
        padded = np.array([[float(ends + 128 * 2048 * 8192)]])
        group = ReplicaGroup.of_shared(rank)
        gradient_s, parameter_s = self.traffic(Muon(reduction="reduce_scatter"), plan)
        assert gradient_s == pytest.approx(float(group.reduce_scatter_s(padded)[0, 0]))
        assert parameter_s == pytest.approx(float(group.all_gather_s(2.0 * padded)[0, 0]))

    def test_dealt_tensors_are_all_reduced(self) -> None:
        plan = plan_of(data=128)
        group = ReplicaGroup.of_shared(rank_of(training(self.SMALL), plan))
        weights = np.array([[float(self.SMALL.num_parameters)]])
        gradient_s, parameter_s = self.traffic(Muon(reduction="all_reduce"), plan)
        assert gradient_s == pytest.approx(float(group.all_reduce_s(weights)[0, 0]))
        assert parameter_s == pytest.approx(self.traffic(None, plan)[1])

    def test_muon_decides_how_gradients_are_reduced(self) -> None:
        """Whatever `scatters_gradients_from` says."""
        workload = changed(training(self.SMALL), muon=Muon(reduction="reduce_scatter"))
        other = changed(workload, scatters_gradients_from=3)
        plan = plan_of(data=8)
        assert step_of(workload, plan).step_time_s == step_of(other, plan).step_time_s

    def test_without_zero_traffic_is_that_of_adam(self) -> None:
        plan = plan_of(data=8, zero=0)
        assert self.traffic(Muon(), plan) == self.traffic(None, plan)

    def test_padded_buckets_are_few_and_hide_less(self) -> None:
        """On 128 ranks the longest matrix of 16.8 million weights is 2 billion: one bucket, and one for the embedding."""
        workload = changed(training(self.SMALL), muon=Muon(reduction="reduce_scatter"))
        rank = rank_of(workload, plan_of(data=128))
        chunks = split_layers(self.SMALL, rank.plans)
        weights = StepWeights.of(workload, rank.plans, chunks)
        parts = ModelParts.of(rank, chunks)
        assert Buckets.of(rank, parts, weights).gradients.tolist() == [[2]]
        other = rank_of(changed(workload, muon=Muon(reduction="all_reduce")), plan_of(data=128))
        assert Buckets.of(other, parts, weights).gradients[0, 0] > 2
