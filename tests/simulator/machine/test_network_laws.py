"""Do collectives keep the laws of any network: more to send, more ranks, later starts and slower links never save time?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.links import LinkConstants
from simulator.machine.network import all_gather_s, all_reduce_s, all_to_all_s, reduce_scatter_s
from simulator.table import Floats
from tests.simulator.machine.test_network import COLLECTIVES, cluster

ROUNDING = 1e-9
"""Sums of a few terms; their last bits may round either way."""
DELAYS = ("intra_latency_s", "intra_hop_s", "intra_ramp_s", "inter_latency_s", "inter_member_s")
RATES = (
    *("intra_bytes_per_s", "all_reduce_fraction", "gather_fraction", "all_to_all_fraction"),
    *("inter_bytes_per_s_per_gpu", "inter_fraction"),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One collective between `num_domains` times `members` ranks."""

    name: str
    num_bytes: float
    num_domains: int
    members: float
    links: LinkConstants

    @property
    def time_s(self) -> float:
        """What it takes."""
        group = {"group_size": self.num_domains * self.members, "members_per_domain": self.members}
        return float(COLLECTIVES[self.name](num_bytes=self.num_bytes, **group, links=self.links)[0])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any collective, on cards that are slower than what two ranks of a domain get: a quarter of NVLink, a tenth of a mesh."""
    family = draw(st.sampled_from(["ampere", "hopper", "blackwell", "cdna3"]))
    card = draw(st.floats(2e9, 200e9))
    ratio = draw(st.floats(10.0 if family == "cdna3" else 4.0, 40.0))
    fabric = draw(st.sampled_from(["infiniband-ndr", "roce"]))
    links = cluster(family, fabric=fabric, intra_bytes_per_s=ratio * card, inter_bytes_per_s_per_gpu=card)
    return Case(
        name=draw(st.sampled_from(sorted(COLLECTIVES))),
        num_bytes=draw(st.just(0.0) | st.floats(1.0, 1e12)),
        num_domains=draw(st.integers(1, 128)),
        members=draw(st.sampled_from([1.0, 2.0, 4.0, 8.0])),
        links=replace(
            links,
            gpus_per_card=np.array([draw(st.sampled_from([1.0, 2.0, 4.0, 8.0]))]),
            shared_card_fraction=np.array([draw(st.floats(0.1, 1.0))]),
        ),
    )


@given(case=cases(), name=st.sampled_from(DELAYS), factor=st.floats(1.0, 20.0))
def test_later_starts_and_steps_never_save_time(case: Case, name: str, factor: float) -> None:
    late = replace(case, links=replace(case.links, **{name: factor * getattr(case.links, name)}))
    assert late.time_s >= case.time_s * (1.0 - ROUNDING)


@given(case=cases(), name=st.sampled_from(RATES), factor=st.floats(1.0, 20.0))
def test_faster_links_never_cost_time(case: Case, name: str, factor: float) -> None:
    fast = replace(case, links=replace(case.links, **{name: factor * getattr(case.links, name)}))
    assert fast.time_s <= case.time_s * (1.0 + ROUNDING)


@given(case=cases(), more=st.integers(1, 128))
def test_more_domains_never_save_time(case: Case, more: int) -> None:
    assert replace(case, num_domains=case.num_domains + more).time_s >= case.time_s * (1.0 - ROUNDING)


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
@given(case=cases())
def test_a_message_of_nothing_takes_longer_in_a_group_of_twice_as_many(name: str, case: Case) -> None:
    # Calculon's latency does not depend on the size of a group.
    empty = replace(case, name=name, num_bytes=0.0, num_domains=max(2, case.num_domains))
    assert replace(empty, num_domains=2 * empty.num_domains).time_s > empty.time_s


@given(case=cases(), parts=st.sampled_from([2, 4, 8]))
def test_leaving_a_node_never_saves_time(case: Case, parts: int) -> None:
    near = replace(case, num_domains=1, members=8.0)
    assert replace(near, num_domains=parts, members=8.0 / parts).time_s >= near.time_s * (1.0 - ROUNDING)


@given(case=cases(), parts=st.sampled_from([2, 4, 8]))
def test_an_all_to_all_over_more_nodes_is_no_faster(case: Case, parts: int) -> None:
    few = replace(case, name="all_to_all", members=8.0)
    many = replace(few, num_domains=parts * few.num_domains, members=8.0 / parts)
    assert many.time_s >= few.time_s * (1.0 - ROUNDING)


@given(case=cases())
def test_an_all_reduce_takes_no_longer_than_its_two_halves(case: Case) -> None:
    both_s = sum(replace(case, name=name).time_s for name in ("reduce_scatter", "all_gather"))
    assert replace(case, name="all_reduce").time_s <= both_s * (1.0 + ROUNDING)


@pytest.mark.parametrize("collective", [all_reduce_s, all_gather_s, reduce_scatter_s, all_to_all_s])
@pytest.mark.parametrize("size", [2.0, 8.0])
def test_nothing_to_send_costs_start_and_steps_of_a_ring(
    collective: Callable[..., Floats], size: float
) -> None:
    links = cluster()
    steps = 2.0 * (size - 1.0)  # there and back, the most of all collectives
    most_s = links.intra_latency_s + steps * links.intra_hop_s
    found_s = collective(num_bytes=0.0, group_size=size, members_per_domain=size, links=links)
    assert links.intra_latency_s[0] < found_s[0] <= most_s[0] * (1.0 + ROUNDING)


@given(case=cases())
def test_two_ranks_of_a_node_never_beat_the_link_between_them(case: Case) -> None:
    two = replace(case, num_domains=1, members=2.0)
    trips = 2.0 if case.name == "all_reduce" else 1.0
    assert two.time_s > trips * case.num_bytes / 2.0 / case.links.intra_bytes_per_s[0]
