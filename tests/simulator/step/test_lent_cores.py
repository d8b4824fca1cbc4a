"""How much do the replicas lengthen a step whose passes lend them cores? Closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.layout.chunks import split_layers
from simulator.machine.rank import Rank
from simulator.pipeline.schedule import PipelineColumns
from simulator.step.lent_cores import LinkWaits, lent_to_replicas_s, replicas_core_share
from simulator.step.next_chunks import PassesBeside
from simulator.step.step import step_parts
from simulator.traffic.layer_collectives import CORE_SHARE, Directions
from tests.simulator.builders import job_of, plan_of, training

JOB = job_of(training(num_steps=100))


def lent_s(
    gradient_s: list[float],
    gather_s: list[float],
    *,
    is_split: bool = False,
    k: int = 4,
    chunks_per_stage: int = 1,
    num_beside: tuple[int, int] = (0, 0),
    waits: LinkWaits | None = None,
    copies_s: Directions | None = None,
) -> float:
    """What chunks lend, whose forward takes 1 s and whose backward 2 s, 1 s of it for weights.

    Traffic of later chunks of a stage is beside `num_beside` passes of another one, forward and backward.
    """
    chunks = np.ones((1, len(gradient_s)))
    num_stages = len(gradient_s) // chunks_per_stage
    follows = np.arange(len(gradient_s))[None] >= num_stages
    beside = PassesBeside(gathers=num_beside[0] * follows, reductions=num_beside[1] * follows)
    pipeline: PipelineColumns = {
        "num_stages": [num_stages],
        "num_chunks_per_stage": [chunks_per_stage],
        "num_micro_batches": [8],
        "chunk_forward_s": chunks,
        "chunk_backward_s": 2.0 * chunks,
        "chunk_weight_gradient_s": chunks,
        "send_s": [0.0],
        "send_blocks_sender": [False],
        "gradient_sync_s": [gradient_s],
        "parameter_gather_s": [gather_s],
        "num_overlap_buckets": [k],
    }
    share = np.array([CORE_SHARE])
    return float(lent_to_replicas_s(pipeline, beside, np.array([is_split]), share, waits, copies_s)[0])


def test_what_travels_beside_passes_takes_its_share_of_their_cores() -> None:
    # All but the last of four pieces; weights only beside the first forward of all.
    assert lent_s([0.8, 1.6, 0.4], [0.4, 0.4, 0.4]) == pytest.approx(CORE_SHARE * 0.75 * (2.8 + 0.4))


def test_a_pass_lends_no_longer_than_it_lasts_and_what_waits_for_traffic_anyway_shows_nothing() -> None:
    # The last backward of the second chunk is held up for 2 s; behind the first nothing is left but its gradients.
    assert lent_s([9.0, 9.0], [9.0, 9.0]) == pytest.approx(CORE_SHARE * 2.0)


def test_stages_of_zero_bubbles_lend_side_by_side() -> None:
    assert lent_s([0.8, 0.4], [0.0, 0.0], is_split=True) == pytest.approx(CORE_SHARE * 0.75 * 0.8)


def test_the_first_stage_makes_up_for_as_much_as_all_pieces_but_one_outlast_their_pass() -> None:
    # A backward of 2 s lends to three quarters of 2.3 s, and three quarters of 0.3 s come after it.
    assert lent_s([2.3], [0.0]) == pytest.approx(0.75 * (CORE_SHARE * 2.3 - 0.3))


def test_stages_of_zero_bubbles_lend_once_for_each_of_their_chunks() -> None:
    found_s = lent_s([0.8, 0.4, 0.4, 0.4], [0.0] * 4, is_split=True, chunks_per_stage=2)
    assert found_s == pytest.approx(2 * CORE_SHARE * 0.75 * 0.8)


def test_gradients_in_one_piece_take_cores_of_the_next_chunk_of_interleaved_stages_at_the_same_time() -> None:
    # Those of the third and the fourth chunk, on two stages; those of the first two have nothing beside them.
    found_s = lent_s([9.0, 9.0, 0.8, 0.4], [0.0] * 4, k=1, chunks_per_stage=2, num_beside=(0, 2))
    assert found_s == pytest.approx(CORE_SHARE * (0.8 + 0.4) / 2)


def test_gradients_that_outlast_the_passes_beside_them_hide_what_these_lend() -> None:
    # Two passes of 2 s each, 4 s of which lend; 4.3 s of gradients end 0.3 s after they would have.
    found_s = lent_s([0.0, 0.0, 4.3, 0.4], [0.0] * 4, k=1, chunks_per_stage=2, num_beside=(0, 2))
    assert found_s == pytest.approx((CORE_SHARE * 4.0 - 0.3 + CORE_SHARE * 0.4) / 2)
    assert lent_s([0.0, 0.0, 9.0, 9.0], [0.0] * 4, k=1, chunks_per_stage=2, num_beside=(0, 2)) == 0.0


def test_weights_of_later_chunks_take_cores_of_the_first_stage_of_interleaved_ones() -> None:
    # The third chunk is on the first stage, which computes from the start; the second stage waits while its weights come.
    found_s = lent_s([0.0] * 4, [0.0, 0.0, 0.8, 0.4], k=1, chunks_per_stage=2, num_beside=(2, 0))
    assert found_s == pytest.approx(CORE_SHARE * 0.8)
    assert lent_s([0.0] * 4, [0.0, 0.0, 4.0, 0.0], k=1, chunks_per_stage=2, num_beside=(2, 0)) == 0.0


def waits(gradient_s: list[float], gather_s: list[float]) -> LinkWaits:
    """Passes that wait half of their time for cards, with traffic that takes so long alone."""
    chunks = np.ones((1, len(gradient_s)))
    return LinkWaits(
        forward_s=0.5 * chunks,
        backward_s=chunks,
        parameter_gather_s=np.array([gather_s]),
        gradient_sync_s=np.array([gradient_s]),
    )


def test_a_pass_waits_for_as_long_as_traffic_is_on_its_cards_alone() -> None:
    # Gradients take twice as long beside collectives, and three quarters of them have the pass beside them. The last quarter
    # has no collectives beside it, nor has the first quarter of weights, which is played as if it had.
    cores_s, cards_s, apart_s = CORE_SHARE * 0.75 * (1.6 + 0.8), 0.5 * 0.75 * (0.8 + 0.4), 0.25 * (0.8 - 0.4)
    found_s = lent_s([0.8, 1.6], [0.0, 0.0], waits=waits([0.4, 0.8], [0.0, 0.0]))
    assert found_s == pytest.approx(cores_s + cards_s - apart_s)
    assert lent_s([0.0, 0.0], [0.8, 0.0], waits=waits([0.0, 0.0], [0.4, 0.0])) == pytest.approx(
        CORE_SHARE * 0.75 * 0.8 + 0.5 * 0.75 * 0.4 - apart_s
    )


def test_a_pass_and_the_traffic_beside_it_hold_each_other_up_once() -> None:
    # Gradients of 1.5 s take 2.25 s where 1 s of collectives in a pass of 2 s hold up three of their four pieces. They end at
    # 0.5 + 2.25 s, or behind a pass that waits for 3/4 of 1.5 s in its collectives, with the last piece as long as alone.
    pass_s = 2.0 + CORE_SHARE * 0.75 * 2.25 + 0.5 * 0.75 * 1.5
    found_s = lent_s([2.25], [0.0], waits=waits([1.5], [0.0]))
    assert 0.5 + 2.25 + found_s == pytest.approx(pass_s + 0.25 * 1.5)


def test_a_pass_that_waits_for_its_shards_lends_no_cores_meanwhile() -> None:
    # Half of the backward of 2 s.
    idle = replace(waits([0.4], [0.0]), idle_s=np.ones((1, 1)))
    assert lent_s([0.4], [0.0], waits=idle) == pytest.approx(0.75 * 0.4 * (0.5 * CORE_SHARE + 0.5))


def test_a_pass_that_waits_for_host_copies_anyway_makes_up_for_what_it_lends() -> None:
    # The second chunk's backward waits for 10 ms of copies, that of the first for longer than it lends; forwards for nothing.
    copies_s = np.zeros((1, 2)), np.array([[1.0, 0.01]])
    held_s = 0.75 * 0.8 * (CORE_SHARE + 0.5) - 0.01
    found_s = lent_s([0.8, 0.8], [0.0, 0.0], waits=waits([0.8, 0.8], [0.0, 0.0]), copies_s=copies_s)
    assert found_s == pytest.approx(held_s)


def test_gradients_of_weights_have_no_collectives_that_wait() -> None:
    found_s = lent_s([0.8], [0.0], is_split=True, waits=waits([0.4], [0.0]))
    assert found_s == pytest.approx(CORE_SHARE * 0.75 * 0.8)


@pytest.mark.parametrize("k", [0, 1])
def test_traffic_with_no_pass_beside_it_takes_no_cores(k: int) -> None:
    assert lent_s([0.8, 0.8], [0.4, 0.4], k=k) == 0.0


def test_sharded_weights_lend_in_every_micro_batch_and_not_once_more() -> None:
    assert lent_of(JOB, plan_of(data=128, zero=3)) == 0.0
    assert lent_of(JOB, plan_of(data=128, zero=1)) > 0.0


def test_a_group_with_fewer_cards_lends_fewer_cores() -> None:
    # Eight accelerators and cards in a node: 4 of NCCL's 16 channels for each member there, all of them inside the node.
    plans = [
        plan_of(tensor=8, data=8),
        plan_of(tensor=4, data=8),
        plan_of(data=64),
        plan_of(tensor=2, data=4),
    ]
    shares = replicas_core_share(Rank.of(JOB, PlanTable.from_plans(plans)))
    assert shares == pytest.approx(CORE_SHARE * np.array([0.25, 0.5, 1.0, 1.0]))


def test_copies_of_shards_lend_what_their_own_groups_occupy() -> None:
    # 64 replicas on eight nodes. Under ZeRO-3 only copies exchange once per step. Where a copy fills a node or two, each
    # accelerator is in a ring of its own, over one card, with 4 of 16 channels; with two copies on a node, two share a ring.
    groups = [(3, 8), (3, 16), (3, 4), (3, None), (1, 8)]
    plans = [plan_of(data=64, zero=zero, shards=ranks) for zero, ranks in groups]
    shares = replicas_core_share(Rank.of(JOB, PlanTable.from_plans(plans)))
    assert shares == pytest.approx(CORE_SHARE * np.array([0.25, 0.25, 0.5, 1.0, 1.0]))


def lent_of(job: Job, plan: Plan) -> float:
    plans = PlanTable.from_plans([plan])
    return float(step_parts(Rank.of(job, plans), split_layers(job.workload.model, plans)).lent_s[0])
