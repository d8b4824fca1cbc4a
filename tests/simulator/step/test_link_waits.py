"""Do passes wait for what they lose to other traffic on their links?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.job import Job
from simulator.domain.plan import Plan
from simulator.layout.chunks import split_layers
from simulator.machine.rank import Rank
from simulator.step.beside_shards import CARRIED_SCALE_UP, WAITED_SCALE_UP, parts_beside_s
from simulator.step.card_time import parts_card_s
from simulator.step.link_waits import OnLink, by_way, half_cards, on_link
from simulator.step.model_parts import ModelParts
from simulator.step.parts import Part
from simulator.traffic.layer_collectives import CORE_SHARE
from tests.simulator.builders import changed, job_of, plan_of, rented, table_of, training


def on_cards(job: Job, plan: Plan) -> tuple[Rank, ModelParts, OnLink]:
    table = table_of(plan)
    rank = Rank.of(job, table)
    parts = ModelParts.of(rank, split_layers(job.workload.model, table))
    carried_s = by_way(parts_card_s(rank, parts.kinds))
    return rank, parts, on_link(rank, parts, carried_s, half_cards, np.array([True]))


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


def test_in_a_mesh_rings_share_one_link_with_shards_and_nothing_else_does() -> None:
    workload = training("llama-3.1-8b", sequence_length=16_384, global_batch_size=2)
    job = job_of(workload, rented("mi300x"))
    rank, parts, _ = on_cards(job, plan_of(context=8, zero=3))
    forward_s, _ = parts_beside_s(rank, parts, None)
    # Seven eighths of 8 heads of keys and values, 2 bytes a value, over one of seven links of 64 GB/s, of which a send reaches
    # three quarters (AMD's figures, `simulator/data/link_efficiency.csv`).
    ring_s = 7 / 8 * 16_384 * 8 * 2 * 128 * 2 / (64e9 * 0.75)
    place = parts.kinds.index(Part.DENSE)
    assert forward_s[CARRIED_SCALE_UP, place, 0] == pytest.approx(ring_s, rel=2e-3)
    assert 0.0 < forward_s[WAITED_SCALE_UP, place, 0] <= forward_s[CARRIED_SCALE_UP, place, 0]
    rank, parts, _ = on_cards(job, plan_of(tensor=2, data=4, zero=3))
    forward_s, _ = parts_beside_s(rank, parts, None)
    assert (forward_s[CARRIED_SCALE_UP] == 0.0).all()
