"""Do the collectives, sends and gradients of one job take the sum of their bytes on the cards that they share?"""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.lora import ATTENTION_PRODUCTS, AdaptedProduct, Lora
from simulator.domain.plan import Plan, Recompute, Schedule
from simulator.domain.workload import Workload
from simulator.layers.layer_costs import dense_layer
from simulator.layers.token_prediction import projection_traffic_s
from simulator.layout.chunks import split_layers
from simulator.machine.network import scale_up_rate
from simulator.pipeline.kernel import streamed_end_s
from simulator.replicas.replica_sync import ReplicaTraffic
from simulator.step.card_time import (
    beside_own_traffic_s,
    part_traffic_s,
    parts_card_s,
    uses_cards,
    with_last_send_s,
)
from simulator.step.model_parts import ModelParts
from simulator.step.parts import Part
from simulator.step.shard_passes import shards_s
from simulator.step.step import StepParts, step_parts
from simulator.traffic.layer_collectives import CORE_SHARE
from simulator.traffic.stage_sends import send_card_s, send_s
from tests.simulator.builders import changed, gpt, plan_of, rank_of, step_of, training
from tests.simulator.sparse import DENSE as LATENT
from tests.simulator.sparse import SMALL as SPARSE

CARD_BYTES_PER_S = 50e9 * 0.96
"""The node's share of one H100 at 400 Gbit/s, times what rings through InfiniBand reach (aliyun/SimAI, nic_ratio.csv)."""
DENSE = training("llama-3.1-70b", sequence_length=4096, global_batch_size=64)
ROUTED = training("deepseek-v3", sequence_length=4096, global_batch_size=1024)


def parts_of(workload: Workload, *plans: Plan) -> StepParts:
    rank = rank_of(workload, *plans)
    return step_parts(rank, split_layers(workload.model, rank.plans))


def step_s(workload: Workload, *plans: Plan) -> float:
    """The step of the first of some designs that are simulated together."""
    return float(step_of(workload, *plans).step_time_s[0])


def played_end_s(pass_s: float, stream_s: float, own_s: float, num_pieces: int) -> float:
    """Own traffic and pieces of the stream through one card in the order in which they come, each own part first."""
    free_s = 0.0
    for piece in range(num_pieces):
        free_s = max(free_s, piece * pass_s / num_pieces) + own_s / num_pieces
        if piece:
            free_s += stream_s / num_pieces
    return max(free_s, pass_s) + stream_s / num_pieces


@given(
    pass_s=st.floats(1e-3, 1.0),
    stream_s=st.floats(1e-6, 5.0),
    own_fraction=st.floats(1e-6, 1.0),
    num_pieces=st.integers(2, 12),
)
def test_a_stream_beside_own_traffic_ends_when_both_are_played_piece_by_piece(
    pass_s: float, stream_s: float, own_fraction: float, num_pieces: int
) -> None:
    own_s = own_fraction * pass_s
    longer_s = beside_own_traffic_s(
        np.array([[stream_s]]), np.array([[pass_s]]), np.array([[own_s]]), np.array([[num_pieces]])
    )
    end_s = streamed_end_s(0.0, pass_s, 0.0, float(longer_s[0, 0]), num_pieces)
    assert end_s == pytest.approx(played_end_s(pass_s, stream_s, own_s, num_pieces), rel=1e-9)


def test_no_stream_and_no_own_traffic_leave_everything_as_it_is() -> None:
    pass_s, none_s = np.full((1, 3), 0.1), np.zeros((1, 3))
    stream_s, eight = np.array([[0.0, 0.02, 0.3]]), np.full((1, 3), 8)
    assert (beside_own_traffic_s(stream_s, pass_s, none_s, eight) == stream_s).all()
    assert beside_own_traffic_s(stream_s, pass_s, np.full((1, 3), 0.05), eight)[0, 0] == 0.0


@pytest.mark.parametrize("num_pieces", [0, 1])
def test_what_travels_behind_its_pass_meets_none_of_its_traffic(num_pieces: int) -> None:
    stream_s, pass_s = np.array([[0.02, 0.3]]), np.full((1, 2), 0.1)
    longer_s = beside_own_traffic_s(stream_s, pass_s, pass_s, np.full((1, 2), num_pieces))
    np.testing.assert_allclose(longer_s, stream_s)


class TestCardTime:
    def test_tensor_parallelism_of_two_nodes_moves_its_rings_over_all_cards(self) -> None:
        rank = rank_of(DENSE, plan_of(tensor=16, data=4))
        forward_s, backward_s = parts_card_s(rank, [Part.DENSE])[0]
        # A gather and a scatter around each of two blocks: 15/16 of 4096 x 8192 bf16 values over eight cards.
        ring_s = 15 / 16 * 2 * 4096 * 8192 / (8 * CARD_BYTES_PER_S)
        assert forward_s[0] == pytest.approx(4 * ring_s)
        # Backward both inputs are gathered once more.
        assert backward_s[0] == pytest.approx(6 * ring_s)

    def test_experts_of_eight_nodes_send_what_leaves_the_node_over_their_own_card(self) -> None:
        rank = rank_of(ROUTED, plan_of(expert=64, data=64))
        forward_s, _ = parts_card_s(rank, [Part.EXPERT])[0]
        # Dispatch and combine of eight copies of 7168 bf16 values, 56 of 64 of them to other nodes.
        exchange_s = 56 / 64 * 8 * 2 * 4096 * 7168 / CARD_BYTES_PER_S
        assert forward_s[0] == pytest.approx(2 * exchange_s)

    def test_full_recomputation_sends_everything_of_the_forward_pass_again(self) -> None:
        plans = [plan_of(expert=64, data=64, recompute=choice) for choice in (Recompute.NONE, Recompute.FULL)]
        forward_s, backward_s = parts_card_s(rank_of(ROUTED, *plans), [Part.EXPERT])[0]
        assert backward_s[1] == pytest.approx(backward_s[0] + forward_s[0])

    def test_a_recomputed_block_sends_what_enters_and_leaves_it_and_its_adapters_again(self) -> None:
        def card_s(targets: tuple[AdaptedProduct, ...], recompute: Recompute) -> tuple[float, float]:
            lora = Lora(rank=64, targets=targets) if targets else None
            workload = changed(DENSE, lora=lora, recompute_modules=("mlp",))
            plan = plan_of(tensor=16, data=4, recompute=recompute)
            forward_s, backward_s = parts_card_s(rank_of(workload, plan), [Part.DENSE])[0]
            return float(forward_s[0]), float(backward_s[0])

        (plain_s, _), (of_attention_s, _), (of_all_s, backward_s) = (
            card_s(targets, Recompute.NONE) for targets in ((), ATTENTION_PRODUCTS, tuple(AdaptedProduct))
        )
        _, with_again_s = card_s(tuple(AdaptedProduct), Recompute.SELECTIVE)
        # One of the two blocks, and the adapters that are not those of attention.
        assert with_again_s - backward_s == pytest.approx(plain_s / 2 + of_all_s - of_attention_s)
        assert of_all_s > of_attention_s > plain_s

    @pytest.mark.parametrize(("recompute", "num_again"), [(Recompute.NONE, 0), (Recompute.FULL, 3)])
    def test_a_module_of_token_prediction_adds_its_look_up_and_projection_to_a_layer(
        self, recompute: Recompute, num_again: int
    ) -> None:
        rank = rank_of(ROUTED, plan_of(tensor=16, expert=8, data=8, recompute=recompute))
        layer_s, module_s = parts_card_s(rank, [Part.EXPERT, Part.MODULE])
        ring_s = 15 / 16 * 2 * 4096 * 7168 / (8 * CARD_BYTES_PER_S)
        # The look-up leaves by a scatter. Two hidden states are gathered in front of the projection and one behind it; backward
        # their gradients take the same ways, and the inputs are gathered again. Recomputation does not repeat the look-up.
        assert module_s[0][0] - layer_s[0][0] == pytest.approx((1 + 2 + 1) * ring_s)
        assert module_s[1][0] - layer_s[1][0] == pytest.approx((1 + 2 + 1 + 2 + num_again) * ring_s)

    def test_what_stays_in_a_node_needs_no_card(self) -> None:
        near = rank_of(DENSE, plan_of(tensor=8, data=8), plan_of(tensor=2, context=4, data=8))
        assert not uses_cards(near)
        parts_s = parts_card_s(near, (Part.EMBEDDING, Part.DENSE, Part.OUTPUT))
        assert all((times_s == 0.0).all() for part in parts_s for times_s in part)


def test_gradients_carry_the_last_send_of_all_chunks_but_the_first() -> None:
    plan = plan_of(tensor=8, pipeline=4, data=2, zero=1)
    rank = rank_of(DENSE, plan)
    # All three sends leave their node: an eighth of 4096 x 8192 bf16 values over one card, of which sends reach 0.7213
    # (microsoft/vidur, send_recv of two nodes).
    assert send_card_s(rank)[0] == pytest.approx(2 * 4096 * 8192 / 8 / (50e9 * 0.7213))
    gradients_s = np.array([[0.3, 0.2, 0.2, 0.0]])
    assert with_last_send_s(gradients_s, np.array([0.01])) == pytest.approx(
        np.array([[0.3, 0.21, 0.21, 0.0]])
    )


@pytest.mark.parametrize(("is_beside", "num_rings", "rel"), [(False, 322, 0.01), (True, 483, 0.02)])
def test_gradients_wait_for_the_traffic_of_the_pass_they_travel_beside(
    *, is_beside: bool, num_rings: int, rel: float
) -> None:
    workload = changed(DENSE, overlaps_input_gradients=is_beside)
    # Tensor parallelism over two nodes and its replicas use the same cards; inside one node it does not use them.
    shared, apart = (
        parts_of(workload, plan_of(tensor=tensor, data=data, zero=0)).pipeline
        for tensor, data in ((16, 8), (8, 16))
    )
    ring_s = [
        2 * (data - 1) / data * 4 * DENSE.model.num_parameters / tensor / CARD_BYTES_PER_S
        for tensor, data in ((16, 8), (8, 16))
    ]
    assert np.asarray(apart["gradient_sync_s"])[0, 0] == pytest.approx(ring_s[1], rel=0.01)
    # Backward, four rings over eight cards in each of 80 layers and one at either end, with sums beside products six and three;
    # all but the first eighth of them passes before the last piece of the gradients.
    tensor_s = num_rings * 15 / 16 * 2 * 4096 * 8192 / (8 * CARD_BYTES_PER_S)
    expected_s = ring_s[0] + 7 / 8 * tensor_s
    assert np.asarray(shared["gradient_sync_s"])[0, 0] == pytest.approx(expected_s, rel=rel)


def test_gradients_behind_all_passes_take_as_long_whatever_stages_have_sent() -> None:
    plan = plan_of(tensor=8, pipeline=4, data=2, zero=1)
    late = changed(DENSE, overlaps_gradient_sync=False)
    short, long = (
        parts_of(changed(late, sequence_length=tokens), plan).pipeline["gradient_sync_s"]
        for tokens in (512, 4096)
    )
    np.testing.assert_array_equal(short, long)


@pytest.mark.parametrize(
    ("virtual", "schedule", "num_rings"),
    [
        (2, Schedule.ONE_F_ONE_B, 322 + 483),
        (1, Schedule.ZB_H1, 322 + 322),  # nothing is gathered again for gradients of weights that come later
        (1, Schedule.ONE_F_ONE_B, 0),  # the stage stands still for its sends
    ],
)
def test_sends_beside_passes_share_the_cards_for_as_long_as_these_use_them(
    virtual: int, schedule: Schedule, num_rings: int
) -> None:
    plan = plan_of(tensor=16, pipeline=4, virtual=virtual, data=2, schedule=schedule)
    rank, made = rank_of(DENSE, plan), parts_of(DENSE, plan).pipeline
    # Four rings over eight cards forward in each of 80 layers, four or six backward, and those of the two ends.
    tensor_s = num_rings * 15 / 16 * 2 * 4096 * 8192 / (8 * CARD_BYTES_PER_S)
    passes_s = sum(np.asarray(made[name]).sum() for name in ("chunk_forward_s", "chunk_backward_s"))
    beside_s = np.asarray(made["send_s"]) - send_s(rank)
    assert beside_s == pytest.approx(tensor_s / passes_s * send_card_s(rank), rel=1e-6)


def test_as_many_sends_leave_a_node_as_stages_have_ranks_astride_of_one() -> None:
    workload = training(gpt(num_layers=24, hidden_size=1024, num_heads=8, vocabulary_size=1024))
    for pipeline, stage in product((2, 3, 4, 6), range(1, 14)):
        rank = rank_of(workload, plan_of(pipeline=pipeline, data=stage))
        nodes = np.arange(pipeline * stage).reshape(pipeline, stage) // 8
        num_far = (nodes[1:] != nodes[:-1]).any(axis=1).sum()
        whole_s = 2 * rank.tokens[0] * 1024 / rank.links.far_send_bytes_per_s[0]
        assert send_card_s(rank)[0] == pytest.approx(num_far / (pipeline - 1) * whole_s)


def shared_s(part_s: float, own_s: float, other_s: float) -> float:
    """How much longer a part is whose collectives, spread over it, have half of the cards while other traffic uses them."""
    windows, time_s = 4_000, 0.0
    for _ in range(windows):
        free_s = (part_s - own_s) / windows
        together_s = min(own_s / windows, max(0.0, other_s - free_s))
        time_s += part_s / windows + together_s
        other_s = max(0.0, other_s - free_s - together_s)
    return time_s + other_s - part_s


@pytest.mark.parametrize("sequence", [128, 512, 2048, 8192])
@pytest.mark.parametrize(("tensor", "data"), [(2, 4), (4, 8)])
def test_shards_and_the_collectives_of_a_part_have_half_of_the_scale_up_links_each(
    sequence: int, tensor: int, data: int
) -> None:
    model = gpt(num_layers=8, hidden_size=4096, num_heads=32, vocabulary_size=1024)
    workload = training(model, sequence_length=sequence, global_batch_size=data)
    rank = rank_of(workload, plan_of(tensor=tensor, data=data, zero=3))
    parts = ModelParts.of(rank, split_layers(model, rank.plans))
    traffic = ReplicaTraffic.of(rank, parts.weights)
    gathers_s = dict(zip(parts.times, traffic.forward_s[0], strict=True))
    # Rings of one direction in a node have (n - 1)/n of a buffer, those of two members in each of two nodes half of that.
    ring_s = (
        (1 - 1 / tensor)
        * 2
        * 4096
        * sequence
        / scale_up_rate(rank.links.gather_fraction, tensor, rank.links)[0]
    )
    members = min(data, 8 // tensor)
    near = (1 - 1 / data) * (1.0 if members == data else 1 - 1 / members)
    near_rate = scale_up_rate(rank.links.gather_fraction, members, rank.links)[0]
    weights = dict(zip(parts.times, parts.weights.trained.shared_on_rank(rank.plans)[0], strict=True))
    expected_s = gathers_s[Part.EMBEDDING]
    for kind, following in pairwise([Part.EMBEDDING, *[Part.DENSE] * 8, Part.OUTPUT]):
        part_s, own_s = float(parts.times[kind].forward_s[0]), (4 if kind is Part.DENSE else 1) * ring_s
        gather_s, near_s = gathers_s[following], near * 2 * weights[following] / near_rate
        lent_s = CORE_SHARE * min(part_s, gather_s) + shared_s(part_s, own_s, min(part_s, near_s))
        # Of a gather its bytes alone are on these links; what the cards carry as well is soon through them.
        busy = near * 2 * weights[kind] / near_rate / gathers_s[kind]
        held_up_s = busy * own_s if members == data else 0.0
        expected_s += max(lent_s, gather_s + held_up_s - part_s)
    assert shards_s(rank, parts, traffic, None)[0][0, 0] == pytest.approx(expected_s, rel=2e-3)


def test_a_group_of_six_astride_nodes_of_eight_takes_as_long_alone_as_beside_a_wide_one() -> None:
    workload = training(gpt(num_layers=8, hidden_size=6144, num_heads=48, vocabulary_size=1536))

    astride, wide = plan_of(tensor=6, data=8, zero=3), plan_of(tensor=12, data=4, zero=3)
    assert uses_cards(rank_of(workload, astride))
    assert step_s(workload, astride) == step_s(workload, astride, wide)


def test_a_design_takes_as_long_alone_as_beside_one_that_shares_its_cards() -> None:
    near, far = plan_of(tensor=8, pipeline=2, data=4, zero=1), plan_of(tensor=16, pipeline=2, data=2, zero=1)
    alone, together = parts_of(DENSE, near).pipeline, parts_of(DENSE, near, far).pipeline
    for name in ("gradient_sync_s", "parameter_gather_s", "chunk_backward_s", "send_s"):
        assert (np.asarray(alone[name])[0] == np.asarray(together[name])[0]).all(), name


def test_parts_of_one_set_of_experts_on_two_nodes_use_their_cards() -> None:
    whole = training("mixtral-8x7b", sequence_length=1024, global_batch_size=256)
    workload = changed(whole, expert_tensor_parallel=16)
    plans = plan_of(data=64, zero=2), plan_of(expert=2, data=64, zero=2)
    assert uses_cards(rank_of(workload, plans[0]))
    alone, beside = (step_s(workload, *each) for each in (plans[:1], plans))
    assert alone == beside


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL])
def test_what_computation_hides_and_shows_of_a_layer_is_at_least_what_it_shows(recompute: Recompute) -> None:
    for model in (SPARSE, LATENT):
        rank = rank_of(training(model), plan_of(tensor=8, recompute=recompute))
        layer = dense_layer(rank)
        whole_s = part_traffic_s(rank, Part.DENSE)
        assert layer.forward_tensor_comm_s <= whole_s[0] * (1.0 + 1e-12)
        assert layer.backward_tensor_comm_s <= whole_s[1] * (1.0 + 1e-12)


@pytest.mark.parametrize("module", [0, 1])
def test_a_frozen_embedding_sends_nothing_backward(module: int) -> None:
    model = changed(gpt(), num_mtp_layers=module)
    trained, frozen = (
        rank_of(changed(training(model), lora=lora), plan_of(tensor=8)) for lora in (None, Lora(rank=8))
    )
    assert part_traffic_s(trained, Part.EMBEDDING)[1] > 0.0
    assert part_traffic_s(frozen, Part.EMBEDDING)[1] == 0.0
    if module:
        less = projection_traffic_s(trained)[1] - projection_traffic_s(frozen)[1]
        assert less >= part_traffic_s(trained, Part.EMBEDDING)[1]
