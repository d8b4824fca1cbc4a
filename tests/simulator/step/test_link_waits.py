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
    BUSY_CARDS,
    BUSY_SCALE_UP,
    CARRIED_SCALE_UP,
    WAITED_SCALE_UP,
    busy_share,
    parts_beside_s,
)
from simulator.step.card_time import parts_card_s
from simulator.step.link_waits import OnLink, by_way, half_cards, on_link
from simulator.step.model_parts import ModelParts
from simulator.step.parts import Part
from simulator.traffic.layer_collectives import CORE_SHARE, Directions
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


@pytest.mark.parametrize("accelerator", ["h100-pcie-80gb", "a100-pcie-80gb", "h100-sxm5-80gb"])
def test_collectives_of_a_node_do_not_turn_to_idle_cards_while_shards_are_on_their_links(
    accelerator: str,
) -> None:
    # The cards of half a group of eight are as fast as PCIe, or faster; its rings were laid when it was made.
    workload = training("llama-3.1-8b", sequence_length=4096, global_batch_size=2)
    rank, parts, _ = on_cards(job_of(workload, rented(accelerator)), plan_of(tensor=4, data=2, zero=3))
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


@pytest.mark.parametrize(("zero", "num_gathers"), [(2, 0), (3, 1)])
@pytest.mark.parametrize("adapters", [None, ADAPTERS])
def test_shards_are_on_links_for_the_time_of_their_own_bytes(
    zero: int, num_gathers: int, adapters: Lora | None
) -> None:
    # Eight replicas of two ranks on two nodes: of 7/8 of the bytes a quarter is on a rank's cards, the rest inside its node.
    workload = changed(training("llama-3.1-8b"), lora=adapters)
    rank, parts, _ = on_cards(job_of(workload), plan_of(tensor=2, data=8, zero=zero))
    traffic_s = shards(rank, parts)
    _, backward_s = parts_beside_s(rank, parts, traffic_s, None)
    place, plans = parts.kinds.index(Part.DENSE), rank.plans
    weights, trained = (
        each.shared_on_rank(plans)[0, place] for each in (parts.weights.together, parts.weights.trained)
    )
    num_bytes = num_gathers * 2 * weights + workload.wire_bytes * trained
    scale_up = scale_up_rate(rank.links.gather_fraction, 4, rank.links)
    for row, busy_s in (
        (BUSY_CARDS, 7 / 8 / 4 * num_bytes / rank.links.fabric_bytes_per_s),
        (BUSY_SCALE_UP, 7 / 8 * 3 / 4 * num_bytes / scale_up),
    ):
        assert backward_s[row, place] * traffic_s[1][0, place] == pytest.approx(busy_s)


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
