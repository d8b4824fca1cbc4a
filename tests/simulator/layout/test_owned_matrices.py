"""What does a replica own under Muon, and how are gradients reduced?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator import catalog
from simulator.domain.model import ModelShape
from simulator.domain.muon import Muon
from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.layout.chunks import split_layers
from simulator.layout.matrices import Matrix, Split, num_matrix_weights
from simulator.layout.model_states import StateBytes
from simulator.layout.newton_schulz import iterated
from simulator.layout.owned_matrices import (
    MatrixKinds,
    OwnedMatrices,
    deals_tensors,
    kinds_of,
    num_first_buckets,
    packed_in_chunks,
    padding,
    spread_weights,
    work_bytes,
)
from simulator.layout.stage_content import StageContent
from simulator.memory.peak import peak_memory
from simulator.table import total
from tests.simulator.builders import changed, gpt, memory_of, plan_of, table_of, training

SMALL = gpt(num_layers=16)
"""16 layers of four matrices; 2,048 wide."""
PACKED, DEALT = Muon(reduction="reduce_scatter"), Muon(reduction="all_reduce")
MIXTRAL = "mixtral-8x7b"
DEEPSEEK = changed(catalog.model("deepseek-v3"), num_mtp_layers=1)


def with_muon(model: str | ModelShape = SMALL, muon: Muon = PACKED, **changes: object) -> Workload:
    return changed(training(model), muon=muon, **changes)


def states(workload: Workload, plan: Plan) -> StateBytes:
    plans = table_of(plan)
    chunks = split_layers(workload.model, plans)
    return StateBytes.of(
        workload, plans, StageContent.of(workload, plans, chunks, np.zeros(1, dtype=np.int64))
    )


def owned_by(workload: Workload, plan: Plan) -> tuple[OwnedMatrices, ...]:
    plans = table_of(plan)
    chunks = split_layers(workload.model, plans)
    return OwnedMatrices.of(workload, plans, chunks, chunks.unlike_stages())


class TestStates:
    def test_without_zero_every_rank_has_all_states(self) -> None:
        found = states(with_muon(), plan_of(data=4, zero=0))
        matrices = num_matrix_weights(SMALL)
        assert found.optimizer[0] == pytest.approx(8.0 * matrices + 12.0 * (SMALL.num_parameters - matrices))
        assert found.gradients[0] == pytest.approx(4.0 * SMALL.num_parameters)
        assert found.weights[0] == pytest.approx(2.0 * SMALL.num_parameters)

    def test_a_lone_replica_has_all_under_zero_too(self) -> None:
        alone, whole = (states(with_muon(), plan_of(tensor=2, zero=zero)) for zero in (1, 0))
        for name in ("weights", "gradients", "optimizer"):
            assert getattr(alone, name)[0] == pytest.approx(getattr(whole, name)[0])

    def test_layers_that_divide_evenly_are_shared_evenly(self) -> None:
        """16 layers on two replicas: each has half of every kind."""
        found = states(with_muon(overlaps_gradient_sync=False), plan_of(data=2))
        matrices = num_matrix_weights(SMALL)
        assert found.optimizer[0] == pytest.approx(
            4.0 * matrices + 6.0 * (SMALL.num_parameters - matrices), rel=1e-3
        )
        assert found.gradients[0] == pytest.approx(4.0 * SMALL.num_parameters, rel=1e-3)

    def test_buffers_of_many_replicas_are_as_long_as_the_largest_matrix_times_their_number(self) -> None:
        found = states(with_muon(), plan_of(data=128))
        ends = SMALL.num_parameters - num_matrix_weights(SMALL)
        longest = 128 * 2048.0 * 8192
        assert found.gradients[0] == pytest.approx(4.0 * (ends + longest))
        assert found.weights[0] == pytest.approx(2.0 * (ends + longest))
        assert found.optimizer[0] == pytest.approx(8.0 * 2048 * 8192 + 12.0 * ends / 128)

    def test_dealt_tensors_are_not_padded(self) -> None:
        found = states(with_muon(muon=DEALT), plan_of(data=128))
        assert found.gradients[0] == pytest.approx(4.0 * SMALL.num_parameters)
        embedding = 51_200 * 2048.0  # larger than any matrix, on a rank of its own
        assert found.optimizer[0] == pytest.approx(12.0 * embedding, rel=1e-3)

    def test_states_have_the_size_that_is_given(self) -> None:
        wide, narrow = (
            states(with_muon(muon=Muon(state_bytes=size)), plan_of(data=4, zero=0)).optimizer[0]
            for size in (8, 6)
        )
        assert wide - narrow == pytest.approx(2.0 * num_matrix_weights(SMALL))

    def test_gradients_in_16_bits_are_copied_for_what_a_rank_updates(self) -> None:
        plan = plan_of(data=4)
        wide, narrow = (states(with_muon(gradient_bytes=size), plan).update[0] for size in (4, 2))
        updated = (states(with_muon(), plan).optimizer[0]) / 8.0
        assert narrow - wide == pytest.approx(4.0 * updated, rel=0.1)

    def test_what_is_gathered_behind_the_update_is_next_to_the_weights(self) -> None:
        run, plan = with_muon(muon=DEALT), plan_of(data=8)
        beside, behind = (
            states(changed(run, overlaps_parameter_gather=beside), plan).update[0] for beside in (True, False)
        )
        assert behind == pytest.approx(2.0 * SMALL.num_parameters)
        assert beside == pytest.approx(12.0 * 2048 * 8192 + 4.0 * 2048**2)
        packed = changed(with_muon(), overlaps_parameter_gather=False)
        assert states(packed, plan).update[0] == pytest.approx(beside)
        alone = changed(run, overlaps_parameter_gather=False)
        assert states(alone, plan_of()).update[0] == pytest.approx(beside)

    def test_routed_experts_are_gathered_after_the_others(self) -> None:
        run = with_muon(MIXTRAL, DEALT, overlaps_parameter_gather=False)
        routed = run.model.num_routed_parameters / 8
        assert states(run, plan_of(data=32, expert=8)).update[0] == pytest.approx(2.0 * routed)

    def test_matrices_of_other_stages_are_not_at_work(self) -> None:
        """Dense layers of DeepSeek-V3 are on the first of four stages; the widest matrix of the others leaves attention."""
        workload = with_muon(catalog.model("deepseek-v3"))
        plans = table_of(plan_of(pipeline=4, expert=8, data=8))
        stages = np.arange(4)[:, None]
        owned = OwnedMatrices.of(workload, plans, split_layers(workload.model, plans), stages)
        dense, other = (12.0 * 7168 * width + 4.0 * 7168**2 for width in (36_864, 16_384))
        assert work_bytes(workload, owned)[:, 0].tolist() == [dense, other, other, other]

    def test_memory_holds_padding_and_the_largest_matrix_at_work(self) -> None:
        plan = table_of(plan_of(tensor=2, data=2))
        chunks = split_layers(SMALL, plan)
        adam, muon = (peak_memory(each, plan, chunks) for each in (training(SMALL), with_muon()))
        largest = 2048.0 * 8192
        assert muon.update_bytes[0] == pytest.approx(14.0 * largest + 4.0 * 2048**2)
        assert adam.update_bytes[0] == 0.0
        assert muon.gradients_bytes[0] > adam.gradients_bytes[0]


class TestSharing:
    def test_norms_take_their_turns(self) -> None:
        """20 layers on 64 ranks: 41 norms, then 80 matrices. The 20 largest are dealt on the way back, to a rank each.

        Without the norms two of them would be at the turn, on the last rank.
        """
        workload = with_muon("llama-3.1-70b", DEALT)
        plans = table_of(plan_of(tensor=4, pipeline=4, data=64))
        (owned,) = OwnedMatrices.of(workload, plans, split_layers(workload.model, plans), np.array([[3]]))
        largest = int(np.argmax(owned.kinds.sizes.costs[0]))
        assert owned.costliest[largest, 0, 0] == 1.0
        assert owned.costliest.sum() == 1.0

    def test_the_final_norm_takes_a_turn(self) -> None:
        """Three norms and two tiny ends on eight ranks, then four matrices: both large ones are at the turn."""
        model = changed(gpt(num_layers=1, vocabulary_size=8), is_gated=False)
        workload = with_muon(model, DEALT)
        plans = table_of(plan_of(data=8))
        (owned,) = OwnedMatrices.of(workload, plans, split_layers(model, plans), np.array([[0]]))
        assert owned.costliest.sum() == 2.0

    def test_norms_and_biases_of_layers_and_modules(self) -> None:
        """Of a layer of DeepSeek-V3 norms of both blocks and of both latents; of a module three more."""
        plans = table_of(plan_of(data=8, expert=4))
        shared, routed = kinds_of(with_muon(DEEPSEEK), plans)
        assert shared.vectors.tolist() == [[4.0, 4.0, 7.0]]
        assert routed.vectors.tolist() == [[0.0, 0.0, 0.0]]
        of_experts = MatrixKinds.routed(with_muon("gpt-oss-120b", DEALT), plans)
        assert of_experts.vectors[0, :2].tolist() == [0.0, 2.0 * 128 / 4]

    @pytest.mark.parametrize(
        ("model", "pipeline", "numbers"),
        [
            (SMALL, 1, [2]),
            (SMALL, 2, [1, 1]),
            (gpt(num_layers=16, has_tied_embeddings=True), 1, [1]),
            (gpt(num_layers=16, has_tied_embeddings=True), 2, [1, 1]),  # and a copy of it
            (changed(SMALL, num_mtp_layers=1), 2, [1, 2]),
        ],
    )
    def test_ends_are_dealt_whole(self, model: ModelShape, pipeline: int, numbers: list[int]) -> None:
        workload = with_muon(model, DEALT)
        plans = table_of(plan_of(pipeline=pipeline, data=4))
        stages = np.arange(pipeline)[:, None]
        (owned,) = OwnedMatrices.of(workload, plans, split_layers(model, plans), stages)
        assert (owned.end_weights[:, 0] / (51_200 * 2048)).tolist() == numbers

    def test_the_format_in_which_gradients_travel_decides(self) -> None:
        """Buffers 1.52 times as long as 28 matrices: too long at 2 bytes, (2 · 2 + 2) / (2 + 2) = 1.5, but not at 4, 1.67."""
        model = gpt(num_layers=7)
        plans = table_of(plan_of(data=32))
        chunks = split_layers(model, plans)
        for size in (2, 4):
            workload = with_muon(model, Muon(), overlaps_gradient_sync=False, sync_bytes=size)
            assert deals_tensors(workload, plans, chunks).tolist() == [size == 2]

    def test_the_first_chunk_alone_has_several_buckets(self) -> None:
        workload = with_muon("llama-3.1-70b")
        plans = table_of(plan_of(tensor=2, pipeline=4, virtual=2, data=16))
        chunks = split_layers(workload.model, plans)
        (kinds,) = kinds_of(workload, plans)
        several, single = (
            packed_in_chunks(changed(workload, overlaps_gradient_sync=overlaps), plans, chunks, kinds)
            for overlaps in (True, False)
        )
        is_longer = several.buffer_weights[0] > single.buffer_weights[0]
        assert is_longer.tolist() == [True] + 7 * [False]

    def test_all_ranks_together_own_every_matrix(self) -> None:
        """Of equal layers on as many ranks as layers, the busiest owns one matrix of the most costly kind."""
        (owned,) = owned_by(with_muon(overlaps_gradient_sync=False), plan_of(data=16))
        assert owned.weights[0, 0] == num_matrix_weights(SMALL)
        assert owned.costliest[:, 0, 0].sum() >= 4 * 16 / 16

    @pytest.mark.parametrize("muon", [PACKED, DEALT])
    @pytest.mark.parametrize(
        "plan", [plan_of(data=8, expert=8), plan_of(tensor=2, pipeline=2, data=16, expert=4)]
    )
    def test_states_are_at_least_the_mean(self, muon: Muon, plan: Plan) -> None:
        for owned in owned_by(with_muon(MIXTRAL, muon), plan):
            assert np.all(owned.state_bytes >= 8.0 * owned.weights / owned.kinds.ranks * (1.0 - 1e-12))

    def test_routed_experts_have_replicas_of_their_own(self) -> None:
        """Eight experts on 8 of 32 replicas: four hold the same expert of 32 layers, and each updates 8 layers of it."""
        workload = with_muon(MIXTRAL, overlaps_gradient_sync=False)
        _, routed = owned_by(workload, plan_of(data=32, expert=8))
        model = workload.model
        assert routed.kinds.ranks.tolist() == [4]
        assert routed.weights[0, 0] == 32 * model.expert_parameters
        assert routed.state_bytes[0, 0] == pytest.approx(8.0 * 8 * model.expert_parameters, rel=0.35)

    def test_modules_are_on_the_last_stage(self) -> None:
        workload = with_muon(DEEPSEEK)
        plans = table_of(plan_of(pipeline=8, expert=8, data=8))
        chunks = split_layers(DEEPSEEK, plans)
        stages = np.arange(8)[:, None]
        shared, routed = OwnedMatrices.of(workload, plans, chunks, stages)
        weights = shared.weights[:, 0].sum() + 8 * routed.weights[:, 0].sum()
        assert weights == pytest.approx(num_matrix_weights(DEEPSEEK))
        assert np.all(spread_weights((shared.weights, routed.weights), (shared, routed)) == 0.0)

    def test_a_mean_of_layers_that_differ_is_shared_out(self) -> None:
        (owned,) = owned_by(with_muon("nemotron-h-8b"), plan_of(data=4))
        assert owned.weights[0, 0] == pytest.approx(num_matrix_weights(catalog.model("nemotron-h-8b")))
        assert owned.state_bytes[0, 0] >= 8.0 * owned.weights[0, 0] / 4


class TestReduction:
    def test_a_layout_has_the_way_that_moves_fewer_bytes(self) -> None:
        plans = table_of(*(plan_of(data=2**power) for power in range(9)))
        workload = with_muon(muon=Muon())
        chunks = split_layers(SMALL, plans)
        (kinds,) = kinds_of(workload, plans)
        held = num_matrix_weights(SMALL)
        padded = held + padding(with_muon(), plans, chunks)[0][:, 0]
        assert deals_tensors(workload, plans, chunks).tolist() == (10.0 * held < 6.0 * padded).tolist()
        assert not deals_tensors(workload, plans, chunks)[:4].any()
        assert deals_tensors(workload, plans, chunks)[-1]
        assert kinds.ranks.tolist() == [2**power for power in range(9)]

    def test_what_is_given_holds_and_nothing_is_dealt_without_zero(self) -> None:
        plans = table_of(plan_of(data=4), plan_of(data=4, zero=0))
        chunks = split_layers(SMALL, plans)
        assert deals_tensors(with_muon(muon=DEALT), plans, chunks).tolist() == [True, False]
        assert deals_tensors(with_muon(muon=PACKED), plans, chunks).tolist() == [False, False]
        assert deals_tensors(training(SMALL), plans, chunks).tolist() == [False, False]

    def test_experts_with_biases_are_dealt(self) -> None:
        model = catalog.model("gpt-oss-120b")
        plans = table_of(plan_of(data=2, expert=2))
        assert deals_tensors(with_muon(model, Muon()), plans, split_layers(model, plans)).all()

    def test_a_batch_of_both_ways_has_each_alone(self) -> None:
        plans = table_of(plan_of(data=2), plan_of(data=256))
        chunks = split_layers(SMALL, plans)
        (both,) = OwnedMatrices.of(with_muon(muon=Muon()), plans, chunks, chunks.unlike_stages())
        for row, muon in enumerate((PACKED, DEALT)):
            (alone,) = OwnedMatrices.of(with_muon(muon=muon), plans, chunks, chunks.unlike_stages())
            assert np.array_equal(both.state_bytes[:, row], alone.state_bytes[:, row])
            assert np.array_equal(both.costliest[..., row], alone.costliest[..., row])

    def test_dealt_buffers_have_no_padding(self) -> None:
        plans = table_of(plan_of(data=256))
        assert not total(padding(with_muon(muon=DEALT), plans, split_layers(SMALL, plans))).any()


class TestShapes:
    """A matrix of 4,096 x 1,024 on four ranks."""

    @pytest.mark.parametrize(
        ("split", "mode", "short", "long"),
        [
            (Split.ROWS, "duplicated", 1024, 4096),
            (Split.ROWS, "distributed", 1024, 1024),
            (Split.ROWS, "blockwise", 1024, 1024),
            (Split.COLUMNS, "duplicated", 1024, 4096),
            (Split.COLUMNS, "distributed", 4096, 256),  # the split side is the long one of X, however short
            (Split.COLUMNS, "blockwise", 256, 4096),
            (Split.NONE, "duplicated", 1024, 4096),
            (Split.NONE, "distributed", 1024, 4096),
        ],
    )
    def test_sides_of_what_is_multiplied(self, split: Split, mode: str, short: int, long: int) -> None:
        matrix = Matrix(pieces=(4096.0,), columns=1024.0, split=split)
        (piece,) = iterated(matrix, np.array([4]), mode)  # type: ignore[arg-type]
        assert (piece.short[0], piece.long[0]) == (short, long)
        assert piece.gathered[0] == (mode == "duplicated" and split is not Split.NONE)
        assert piece.summed[0] == (mode == "distributed" and split is not Split.NONE)

    def test_one_rank_shares_nothing(self) -> None:
        matrix = Matrix(pieces=(64.0, 32.0), columns=128.0, split=Split.ROWS)
        for mode in ("duplicated", "distributed", "blockwise"):
            pieces = iterated(matrix, np.array([1]), mode)
            assert [(each.short[0], each.long[0]) for each in pieces] == [(64, 128), (32, 128)]
            assert not any(each.gathered[0] or each.summed[0] for each in pieces)


class TestBuckets:
    def test_padded_buckets_of_the_first_chunk(self) -> None:
        """16 layers on two ranks: a bucket of 40 million weights, twice the largest matrix of 16.8 million, has two layers."""
        plans = table_of(plan_of(data=2), plan_of(data=128), plan_of(data=128, zero=0), plan_of(data=1))
        chunks = split_layers(SMALL, plans)
        found = num_first_buckets(with_muon(), plans, chunks)
        assert found[1:].tolist() == [2.0, np.inf, found[3]]
        assert 16 <= found[0] <= 18
        assert np.all(np.isinf(num_first_buckets(with_muon(muon=DEALT), plans, chunks)))

    def test_layouts_with_equally_many_replicas_of_experts_have_buckets_of_their_own(self) -> None:
        """In both, 128 ranks share out experts, but buckets grow with the replicas of all other weights: 512 and 128."""
        workload = with_muon("qwen3-30b-a3b")
        plans = plan_of(data=512, expert=4), plan_of(tensor=4, data=128, expert=4)
        assert kinds_of(workload, table_of(*plans))[-1].ranks.tolist() == [128, 128]
        alone = [memory_of(workload, plan).peak_bytes[0] for plan in plans]
        assert memory_of(workload, *plans).peak_bytes.tolist() == alone

    def test_those_of_routed_experts_count_if_there_are_more(self) -> None:
        plans = table_of(plan_of(data=8, expert=8))
        workload = with_muon(MIXTRAL)
        chunks = split_layers(workload.model, plans)
        shared, routed = (
            packed_in_chunks(workload, plans, chunks, kinds).num_buckets[0, 0]
            for kinds in kinds_of(workload, plans)
        )
        assert num_first_buckets(workload, plans, chunks).tolist() == [max(shared + 1, routed)]
        assert routed > shared + 1
