"""Do passes wait for what they lose to other traffic on their links?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.job import Job
from simulator.domain.lora import ATTENTION_PRODUCTS, Lora
from simulator.domain.plan import Plan
from simulator.layout.chunks import split_layers
from simulator.machine.network import scale_up_rate
from simulator.machine.rank import Rank
from simulator.replicas.replica_sync import ReplicaTraffic
from simulator.simulate import simulate
from simulator.step.beside_shards import (
    BUSY,
    BUSY_CARDS,
    BUSY_SCALE_UP,
    CARRIED_CARDS,
    CARRIED_SCALE_UP,
    COVER,
    WAITED_SCALE_UP,
    BusyTimes,
    busy_share,
    gathers_busy_s,
    parts_beside_s,
)
from simulator.step.card_time import parts_card_s
from simulator.step.link_waits import OnLink, by_way, half_cards, on_link
from simulator.step.model_parts import ModelParts
from simulator.step.parts import Part
from simulator.step.shard_passes import shards_s
from simulator.traffic.layer_collectives import CORE_SHARE, Directions
from simulator.traffic.stage_sends import send_card_s
from tests.simulator.builders import changed, job_of, plan_of, rented, table_of, training

ADAPTERS = Lora(rank=16, targets=ATTENTION_PRODUCTS)


def on_cards(job: Job, plan: Plan) -> tuple[Rank, ModelParts, OnLink]:
    table = table_of(plan)
    rank = Rank.of(job, table)
    parts = ModelParts.of(rank, split_layers(job.workload.model, table))
    carried_s = by_way(parts_card_s(rank, parts.kinds))
    return rank, parts, on_link(rank, parts, carried_s, half_cards, np.array([True]))


def shards(rank: Rank, parts: ModelParts) -> Directions:
    traffic = ReplicaTraffic.of(rank, parts.weights)
    return traffic.forward_s, traffic.backward_s


def test_a_link_is_busy_all_the_time_that_it_is_busy_for_longer_than_that() -> None:
    busy_s = np.array([1.0, 3.0, 0.0, 100.0])
    whole_s = np.array([4.0, 2.0, 0.0, 0.0])  # A quotient by the least positive number would overflow.
    assert busy_share(busy_s, whole_s).tolist() == [0.25, 1.0, 0.0, 1.0]


def test_a_pass_waits_for_all_of_what_shows() -> None:
    workload = training("deepseek-v3", sequence_length=4096, global_batch_size=1024)
    _, _, cards = on_cards(job_of(workload), plan_of(expert=64, data=64))
    for carried_s, waited_s in zip(cards.carried_s, cards.waited_s, strict=True):
        assert carried_s.max() > 0.0
        assert waited_s == pytest.approx(carried_s)


def test_of_what_hides_a_pass_waits_for_no_more_than_has_no_time_to_spare() -> None:
    # Keys and values go round 16 ranks on two nodes behind the core, which grows with the square of the sequence.
    shares = []
    for sequence in (16_384, 65_536, 98_304, 131_072, 1_048_576):
        workload = training("llama-3.1-8b", sequence_length=sequence, global_batch_size=4)
        _, parts, cards = on_cards(job_of(workload), plan_of(context=16, data=4))
        place = parts.kinds.index(Part.DENSE)
        shares.append(float(cards.waited_s[0][place, 0] / cards.carried_s[0][place, 0]))
    # All of what shows, nothing but cores that are held longer of what is over early.
    assert shares[0] == pytest.approx(1.0)
    assert shares[-1] == pytest.approx(CORE_SHARE)
    assert shares == sorted(shares, reverse=True)


def test_collectives_elsewhere_that_show_make_a_pass_wait_for_no_ring_that_hides() -> None:
    # Tensor-parallel ranks inside a node show, rings between nodes hide.
    workload = training("llama-3.1-8b", sequence_length=262_144, global_batch_size=4)
    _, parts, cards = on_cards(job_of(workload), plan_of(tensor=8, context=2, data=4))
    place = parts.kinds.index(Part.DENSE)
    assert parts.times[Part.DENSE].forward_tensor_comm_s[0] > cards.carried_s[0][place, 0]
    assert cards.waited_s[0][place, 0] == pytest.approx(CORE_SHARE * cards.carried_s[0][place, 0])


def test_what_another_micro_batch_hides_of_an_exchange_waits_for_nothing() -> None:
    workload = training("qwen3-30b-a3b", sequence_length=4096, global_batch_size=64)
    plan = plan_of(expert=16, data=64)
    shown, hidden = (
        on_cards(job_of(changed(workload, overlaps_expert_exchange=overlaps)), plan)[2]
        for overlaps in (False, True)
    )
    # Backward 0.44 of it hides, a little less at half the rate; the rest takes a step 1/0.8 as long as its links
    # (`simulator.traffic.expert_exchange`).
    assert 0.56 / 0.8 < hidden.waited_s[1].sum() / shown.waited_s[1].sum() < 0.8


@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("accelerator", ["h100-pcie-80gb", "a100-pcie-80gb", "h100-sxm5-80gb"])
def test_collectives_of_a_node_do_not_turn_to_idle_cards_while_shards_are_on_their_links(
    accelerator: str, zero: int
) -> None:
    # The cards of half a group of eight are as fast as PCIe, or faster; its rings were laid when it was made.
    workload = training("llama-3.1-8b", sequence_length=4096, global_batch_size=2)
    rank, parts, _ = on_cards(job_of(workload, rented(accelerator)), plan_of(tensor=4, data=2, zero=zero))
    forward_s, _ = parts_beside_s(rank, parts, shards(rank, parts), None)
    place = parts.kinds.index(Part.DENSE)
    assert forward_s[CARRIED_SCALE_UP, place, 0] > 0.0
    assert forward_s[WAITED_SCALE_UP, place, 0] == pytest.approx(forward_s[CARRIED_SCALE_UP, place, 0])


def test_in_a_mesh_rings_share_one_link_with_shards_and_nothing_else_does() -> None:
    workload = training("llama-3.1-8b", sequence_length=16_384, global_batch_size=4)
    job = job_of(workload, rented("mi300x"))
    rank, parts, _ = on_cards(job, plan_of(context=8, zero=3))
    forward_s, _ = parts_beside_s(rank, parts, shards(rank, parts), None)
    # Seven eighths of 8 heads of keys and values, 2 bytes a value, over one of seven links of 64 GB/s, of which a send reaches
    # three quarters (AMD's figures, `simulator/data/link_efficiency.csv`).
    ring_s = 7 / 8 * 16_384 * 8 * 2 * 128 * 2 / (64e9 * 0.75)
    place = parts.kinds.index(Part.DENSE)
    assert forward_s[CARRIED_SCALE_UP, place, 0] == pytest.approx(ring_s, rel=2e-3)
    assert 0.0 < forward_s[WAITED_SCALE_UP, place, 0] <= forward_s[CARRIED_SCALE_UP, place, 0]
    rank, parts, _ = on_cards(job, plan_of(tensor=2, data=4, zero=3))
    forward_s, _ = parts_beside_s(rank, parts, shards(rank, parts), None)
    assert (forward_s[CARRIED_SCALE_UP] == 0.0).all()


@pytest.mark.parametrize(
    ("zero", "changes", "num_gathers", "num_trips"),
    [
        (2, {}, 0, 1),
        (3, {}, 1, 1),
        # Gradients that every rank receives go there and back.
        (2, {"scatters_gradients_from": 3}, 0, 2),
        # On the stream of the computation, they are no traffic beside it.
        (3, {"overlaps_gradient_sync": False}, 1, 0),
    ],
)
@pytest.mark.parametrize("adapters", [None, ADAPTERS])
def test_shards_are_on_links_for_the_time_of_their_own_bytes(
    zero: int, changes: dict[str, object], num_gathers: int, num_trips: int, adapters: Lora | None
) -> None:
    # Eight replicas of two ranks on two nodes: of 7/8 of the bytes a quarter is on a rank's cards, the rest inside its node.
    workload = changed(training("llama-3.1-8b"), lora=adapters, **changes)
    rank, parts, _ = on_cards(job_of(workload), plan_of(tensor=2, data=8, zero=zero))
    traffic_s = shards(rank, parts)
    _, backward_s = parts_beside_s(rank, parts, traffic_s, None)
    place, plans = parts.kinds.index(Part.DENSE), rank.plans
    weights, trained = (
        each.shared_on_rank(plans)[0, place] for each in (parts.weights.together, parts.weights.trained)
    )
    num_bytes = num_gathers * 2 * weights + num_trips * workload.wire_bytes * trained
    scale_up = scale_up_rate(rank.links.gather_fraction, 4, rank.links)
    for row, busy_s in (
        (BUSY_CARDS, 7 / 8 / 4 * num_bytes / rank.links.fabric_bytes_per_s),
        (BUSY_SCALE_UP, 7 / 8 * 3 / 4 * num_bytes / scale_up),
    ):
        assert backward_s[row, place] * traffic_s[1][0, place] == pytest.approx(busy_s)


def test_one_group_is_on_its_links_for_the_longer_of_their_times() -> None:
    busy = BusyTimes.of(np.array([3.0, 1.0]), np.array([2.0, 4.0]))
    assert busy.either_s.tolist() == [3.0, 4.0]


def test_routed_weights_are_on_links_behind_shared_ones() -> None:
    # Two nodes: all sixteen ranks share attention, and the two with the same experts, one on each node, share those.
    rank, parts, _ = on_cards(job_of(training("mixtral-8x7b")), plan_of(expert=8, data=16, zero=3))
    place, weights = parts.kinds.index(Part.EXPERT), parts.weights.together
    shared, routed = weights.shared_on_rank(rank.plans), weights.routed_on_rank(rank.workload, rank.plans)
    cards_s = 2 * (15 / 16 / 8 * shared + 1 / 2 * routed)[0, place] / rank.links.fabric_bytes_per_s[0]
    assert gathers_busy_s(rank, weights).cards_s[0, place] == pytest.approx(cards_s)


@pytest.mark.parametrize("tensor", [1, 16])
def test_shards_share_cards_with_sends_that_do_not_hold_up_their_stage(tensor: int) -> None:
    def carried_s(virtual: int) -> tuple[Rank, np.ndarray]:
        # The ranks of a stage, and those that share its weights, are on several nodes.
        plan = plan_of(tensor=tensor, pipeline=2, virtual=virtual, data=16, zero=3)
        rank, parts, cards = on_cards(job_of(training("llama-3.1-8b", global_batch_size=64)), plan)
        return rank, np.array(
            [way_s[CARRIED_CARDS] for way_s in parts_beside_s(rank, parts, shards(rank, parts), cards)]
        )

    _, blocked_s = carried_s(1)
    rank, beside_s = carried_s(2)
    assert (blocked_s > 0.0).any() == (tensor > 1)
    # Four chunks, each with a send, of 32 layers, an embedding and an output layer.
    assert beside_s - blocked_s == pytest.approx(4 / 34 * send_card_s(rank)[0])


@pytest.mark.parametrize("sequence", [256, 1024, 8192])
def test_reductions_of_a_group_meet_its_passes_for_as_long_as_they_last(sequence: int) -> None:
    workload = training("llama-3.1-8b", sequence_length=sequence, global_batch_size=16)
    plan = plan_of(tensor=2, pipeline=2, virtual=2, data=4, zero=2)
    rank, parts, _ = on_cards(job_of(workload), plan)
    traffic = ReplicaTraffic.of(rank, parts.weights)
    ways_s = parts_beside_s(rank, parts, (traffic.forward_s, traffic.backward_s), None)
    # The second chunk has layers alone, whose replicas and tensor-parallel ranks are on one node.
    place = parts.kinds.index(Part.DENSE)
    num_layers = parts.counts[Part.DENSE][0, 1]
    cover_s, own_s, waited_s = (
        num_layers * sum(float(way_s[row, place, 0]) for way_s in ways_s)
        for row in (COVER, CARRIED_SCALE_UP, WAITED_SCALE_UP)
    )
    stream_s, busy = num_layers * float(traffic.backward_s[0, place]), float(ways_s[1][BUSY, place, 0])
    own_s *= busy
    held_up_s = CORE_SHARE * min(cover_s, stream_s) + waited_s / cover_s * min(cover_s, busy * stream_s)
    # Behind the part of the passes without it, or beside all of them, it meets all of their collectives.
    met = min(1.0, stream_s / (cover_s + held_up_s - own_s))
    _, backward_s, groups_s = shards_s(rank, parts, traffic, None)
    assert own_s > 0.0
    assert backward_s[0, 1] == pytest.approx(held_up_s)
    assert groups_s[0, 1] == pytest.approx(stream_s + met * own_s)


@pytest.mark.parametrize("zero", [2, 3])
def test_a_faster_network_never_makes_a_step_with_adapters_longer(zero: int) -> None:
    # Latency outweighs the few bytes of their gradients.
    workload = changed(training("llama-3.1-8b", sequence_length=32_768, global_batch_size=64), lora=ADAPTERS)
    plan, node = plan_of(tensor=2, data=8, zero=zero), rented().node
    slow_s, fast_s = (
        simulate(
            job_of(workload, changed(rented(), node=changed(node, network_bytes_per_s=rate))), table_of(plan)
        ).steps.step_time_s[0]
        for rate in (node.network_bytes_per_s, 2.0 * node.network_bytes_per_s)
    )
    assert fast_s < slow_s
