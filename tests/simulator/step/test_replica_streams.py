"""What do the collectives of passes and the traffic of the replicas once per step hold each other up for?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.plan import Plan
from simulator.layout.chunks import split_layers
from simulator.layout.trained_weights import StepWeights
from simulator.machine.network import scale_up_rate
from simulator.machine.rank import Rank
from simulator.step.gradient_buckets import once_per_step_s
from simulator.step.model_parts import ModelParts
from simulator.step.replica_streams import OwnTraffic, beside_replicas
from simulator.table import Floats
from tests.simulator.builders import job_of, plan_of, rented, table_of, training


def own(carried_s: float, waited_s: float) -> OwnTraffic:
    one = np.ones((1, 1))
    return OwnTraffic(
        carried_s=(carried_s * one, carried_s * one),
        waited_s=(waited_s * one, waited_s * one),
    )


@pytest.mark.parametrize(
    ("share", "traffic_s", "held_s"),
    [
        (1.0, 4.0, 8.0),  # on scale-up links all the time
        (0.5, 1.0, 3.5),  # half a second of it to spare there
        (0.5, 4.0, 2.0),  # so much that only what is on the cards counts
        (0.0, 4.0, 2.0),
    ],
)
def test_the_link_that_holds_traffic_up_for_longer_counts(
    share: float, traffic_s: float, held_s: float
) -> None:
    one = np.ones((1, 1))
    found = own(2.0, 1.0)
    found.add_scale_up(np.array([0]), own(8.0, 6.0), (share * one,) * 2, (traffic_s * one,) * 2)
    for way in range(2):
        assert found.carried_s[way] == pytest.approx(held_s)
        assert found.waited_s[way] == pytest.approx(1.0 + share * 6.0)


def beside(plan: Plan, accelerator: str) -> tuple[Rank, OwnTraffic | None, Floats]:
    """The rank of Llama 3.1 8B, collectives of its passes on links of the replicas, and how long weights are gathered alone."""
    workload = training("llama-3.1-8b", sequence_length=2048, global_batch_size=plan.data_parallel)
    table = table_of(plan)
    rank = Rank.of(job_of(workload, rented(accelerator)), table)
    chunks = split_layers(workload.model, table)
    parts, weights = ModelParts.of(rank, chunks), StepWeights.of(workload, table, chunks)
    once_s = once_per_step_s(rank, parts, weights, None)
    return rank, beside_replicas(rank, parts, once_s, None), once_s[1]


@pytest.mark.parametrize("accelerator", ["a100-pcie-80gb", "h100-sxm5-80gb"])
def test_passes_wait_for_replicas_on_several_domains_for_as_long_as_these_are_on_scale_up_links(
    accelerator: str,
) -> None:
    _, in_domain, _ = beside(plan_of(tensor=4, data=2), accelerator)
    rank, leaving, gather_s = beside(plan_of(tensor=4, data=16), accelerator)
    assert in_domain is not None
    assert leaving is not None
    # Two members in a domain: half of 15/16 of the weights, 2 bytes each, passes from one to the other.
    passed_bytes = 15 / 16 / 2 * 2 * rank.workload.model.num_parameters / 4
    share = passed_bytes / scale_up_rate(rank.links.gather_fraction, 2, rank.links)[0] / gather_s[0, 0]
    assert 0.05 < share < 0.9
    assert leaving.waited_s[0][0, 0] == pytest.approx(share * in_domain.waited_s[0][0, 0], rel=1e-3)
    assert 0.0 <= leaving.carried_s[0][0, 0] < in_domain.carried_s[0][0, 0]


@pytest.mark.parametrize(
    ("plan", "accelerator"),
    [
        (plan_of(tensor=8, data=4), "h100-sxm5-80gb"),  # one replica in each domain
        (plan_of(data=32), "h100-sxm5-80gb"),  # no collectives in passes
        (plan_of(tensor=4, data=8, zero=3), "h100-sxm5-80gb"),  # shards share links with each part instead
    ],
)
def test_replicas_that_share_scale_up_links_with_nothing_hold_nothing_up(
    plan: Plan, accelerator: str
) -> None:
    assert beside(plan, accelerator)[1] is None


def test_ranks_that_share_a_sequence_meet_the_passes_as_replicas_of_their_weights_do() -> None:
    _, found, _ = beside(plan_of(tensor=4, context=2, data=1), "h100-sxm5-80gb")
    assert found is not None
    assert min(found.carried_s[0].min(), found.waited_s[0].min()) > 0.0
