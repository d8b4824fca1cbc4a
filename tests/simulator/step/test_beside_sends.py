"""Do passes wait for sends between stages, and sends for gradients, that are on the same network cards?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.layout.chunks import split_layers
from simulator.machine.rank import Rank
from simulator.simulate import simulate
from simulator.step.beside_sends import with_sends_beside
from simulator.step.card_time import last_sends_wait_s, parts_card_s
from simulator.step.link_waits import by_way, half_cards, on_link
from simulator.step.model_parts import ModelParts
from simulator.step.parts import Part
from simulator.traffic.stage_sends import send_card_s
from tests.simulator.builders import job_of, plan_of, table_of, training


def test_exchanges_wait_for_sends_where_the_stage_goes_on() -> None:
    workload = training("qwen3-30b-a3b", sequence_length=2048, global_batch_size=256)
    table = table_of(*(plan_of(pipeline=4, virtual=virtual, expert=16, data=32) for virtual in (4, 1)))
    rank = Rank.of(job_of(workload), table)
    parts = ModelParts.of(rank, split_layers(workload.model, table))
    carried_s = by_way(parts_card_s(rank, parts.kinds))
    cards = on_link(rank, parts, carried_s, half_cards, np.array([True, True]))
    added_s = with_sends_beside(rank, parts, cards).total("forward_s") - parts.total("forward_s")
    # One send beside each of 16 forward passes, over which 48 exchanges are spread.
    pass_s = parts.total("forward_s", "backward_s")[0] / (2 * 16)
    waited_s = cards.waited_s[0][parts.kinds.index(Part.EXPERT), 0]
    assert added_s[0] == pytest.approx(48 * waited_s * send_card_s(rank)[0] / pass_s)
    assert added_s[1] == 0.0


def test_the_last_sends_have_half_of_the_cards_while_gradients_of_their_chunks_are_there() -> None:
    gradients_s = np.array([[0.3, 0.2, 0.2, 0.004]])
    assert last_sends_wait_s(gradients_s, np.array([0.01])) == pytest.approx(0.01 + 0.01 + 0.004)


def test_passes_that_wait_for_sends_lengthen_the_step_by_what_the_breakdown_says() -> None:
    experts = training("qwen3-30b-a3b", sequence_length=2048, global_batch_size=256)
    for workload, plan in (
        (experts, plan_of(pipeline=4, virtual=4, expert=16, data=32)),
        (training("llama-3.1-70b", global_batch_size=16), plan_of(tensor=16, pipeline=4, virtual=5, data=2)),
    ):
        columns = simulate(job_of(workload), table_of(plan)).steps.columns()
        step_s = columns.pop("step_time_s")
        assert sum(columns.values()) == pytest.approx(step_s, rel=1e-12)
