"""Are start-up, steps and bytes of a collective those of its ring, its tree or its two ways, each taken alone?

Of messages of nothing only steps remain, of huge ones only bytes; cards that are far too slow leave only the scale-up link.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.domain.links import LinkConstants
from simulator.machine.network import (
    Group,
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    forwarded_exchange_s,
    gather_busy_s,
    point_to_point_s,
)
from tests.simulator.machine.test_network import Collective, cluster

HUGE = 1e15
"""Bytes beside which start-up, steps and the root of a pipeline are below 0.1 %."""


def with_links(**columns: float) -> LinkConstants:
    """H100 nodes with some constants replaced."""
    return replace(cluster(), **{name: np.array([value]) for name, value in columns.items()})


def inside(size: float, **columns: float) -> Group:
    """A group in one domain, with cards that take a second for each step unless told otherwise."""
    links = with_links(**{"inter_latency_s": 1.0, "inter_bytes_per_s_per_gpu": 1.0, **columns})
    return {"group_size": size, "members_per_domain": size, "links": links}


@pytest.mark.parametrize(("size", "steps"), [(2, 1), (4, 3), (8, 7), (64, 14)])
def test_empty_rings_inside_a_domain_pass_every_member_up_to_eight_and_then_grow_by_logarithm(
    size: float, steps: float
) -> None:
    # A ring of n has n - 1 steps for each trip (Patarasuk and Yuan 2009); 64 are twice the logarithm of 8.
    group = inside(size)
    start_s, hop_s = group["links"].intra_latency_s, group["links"].intra_hop_s
    for collective, trips in ((all_gather_s, 1), (all_reduce_s, 2)):
        found_s = collective(num_bytes=0.0, **group)
        assert found_s == pytest.approx(start_s + trips * steps * hop_s, rel=1e-12)


def test_huge_all_to_alls_of_many_in_a_domain_stay_on_its_links_where_cards_are_slower() -> None:
    group = inside(16.0)
    rate = 450e9 * group["links"].all_to_all_fraction
    assert all_to_all_s(num_bytes=HUGE, **group) == pytest.approx(15 / 16 * HUGE / rate, rel=1e-3)


@pytest.mark.parametrize(
    ("collective", "fraction", "size", "on_links"),
    [
        # All bytes of one domain are on its links; an all-gather of two passes on 7/8 of them, an all-to-all keeps 7/16.
        (all_gather_s, "gather_fraction", 8, 7 / 8),
        (all_gather_s, "gather_fraction", 16, 15 / 16 * 7 / 8),
        (all_reduce_s, "all_reduce_fraction", 16, 2 * 15 / 16 * 7 / 8),
        (all_to_all_s, "all_to_all_fraction", 16, 7 / 16),
    ],
)
def test_bytes_on_scale_up_links_alone_are_those_of_the_way_that_a_collective_takes(
    collective: Collective, fraction: str, size: int, on_links: float
) -> None:
    group: Group = {
        "group_size": float(size),
        "members_per_domain": 8.0,
        "links": cluster().on_scale_up_alone(),
    }
    expected_s = on_links / (450e9 * getattr(cluster(), fraction)[0])
    assert collective(num_bytes=1.0, **group) == pytest.approx(expected_s, rel=1e-9)


def test_an_exchange_of_many_in_one_domain_does_not_leave_it_for_cards_that_cost_nothing() -> None:
    links = cluster().on_scale_up_alone()
    time_s = all_to_all_s(num_bytes=HUGE, group_size=16.0, members_per_domain=16.0, links=links)
    assert time_s == pytest.approx(15 / 16 * HUGE / (450e9 * cluster().all_to_all_fraction), rel=1e-9)


def test_a_gather_of_twelve_that_turns_to_cards_is_on_links_as_in_two_domains_of_six() -> None:
    # Accelerators share cards in pairs, and a ring of six of eight goes through one.
    links = with_links(
        inter_bytes_per_s_per_gpu=400e9, gpus_per_card=2.0, shared_card_fraction=0.5, group_exponent=0.4
    )
    one, two = (
        gather_busy_s(num_bytes=HUGE, group_size=12.0, members_per_domain=members, links=links)
        for members in (12.0, 6.0)
    )
    assert one[0] > 0.0
    assert one == two


@pytest.mark.parametrize(
    ("collective", "fraction", "card_share"),
    # Eight cards together carry a little more than a link, of which they need 7/8; of an all-to-all half of the bytes are on
    # cards, and 15/16 on links that it does not leave.
    [
        (all_gather_s, "gather_fraction", 0.13),
        (all_reduce_s, "all_reduce_fraction", 0.13),
        (all_to_all_s, "all_to_all_fraction", 0.8),
    ],
)
def test_a_group_that_shares_its_links_takes_longer_by_as_much_on_whichever_way(
    collective: Collective, fraction: str, card_share: float
) -> None:
    link = 450e9 * getattr(cluster(), fraction)[0] / cluster().inter_fraction[0]
    alone = inside(16.0, inter_bytes_per_s_per_gpu=card_share * link)
    near = inside(16.0)
    assert collective(num_bytes=HUGE, **alone)[0] < 0.99 * collective(num_bytes=HUGE, **near)[0]
    for group in (alone, near):
        links = group["links"]
        half = replace(
            links, intra_bytes_per_s=links.intra_bytes_per_s / 2, scale_up_fraction=np.array([0.5])
        )
        shared: Group = {**group, "links": half}
        ratio = collective(num_bytes=HUGE, **shared) / collective(num_bytes=HUGE, **group)
        assert ratio == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize("size", [2.0, 4.0, 8.0, 64.0])
def test_a_gather_that_stays_in_its_domain_is_on_its_links_all_the_time(size: float) -> None:
    group = inside(size)
    card_s, scale_up_s = gather_busy_s(num_bytes=HUGE, **group)
    assert card_s == 0.0
    assert scale_up_s == pytest.approx(all_gather_s(num_bytes=HUGE, **group), rel=1e-3)


@pytest.mark.parametrize("collective", [all_gather_s, all_reduce_s])
def test_many_in_a_domain_leave_it_after_eight_where_cards_are_faster(collective: Collective) -> None:
    # Cards alone: the scale-up link of 1 TB/s carries 7/8 of what eight cards of 50 GB/s do with ease.
    slow_rings = {"intra_hop_s": 1.0, "intra_bytes_per_s": 1e12}
    many = inside(64.0, inter_latency_s=1e-5, inter_bytes_per_s_per_gpu=5e10, **slow_rings)
    apart: Group = {**many, "members_per_domain": 8.0}
    assert collective(num_bytes=1e9, **many) == pytest.approx(collective(num_bytes=1e9, **apart), rel=1e-12)
    four: Group = {**many, "group_size": 8.0, "members_per_domain": 4.0}
    eight: Group = {**many, "group_size": 8.0, "members_per_domain": 8.0}
    assert collective(num_bytes=1e9, **eight) == pytest.approx(collective(num_bytes=1e9, **four), rel=1e-12)


def test_a_scale_up_link_slower_than_a_card_makes_no_ring_slower_than_that_card() -> None:
    links = with_links(intra_bytes_per_s=1e9)
    group: Group = {"group_size": 64.0, "members_per_domain": 4.0, "links": links}
    card = 50e9 * links.inter_fraction
    assert all_gather_s(num_bytes=HUGE, **group) == pytest.approx(63 / 64 * HUGE / card, rel=1e-3)


@pytest.mark.parametrize(("domains", "members"), [(2.0, 1.0), (4.0, 8.0), (128.0, 2.0)])
def test_steps_through_the_fabric_are_those_of_a_ring_over_domains_or_of_a_tree(
    domains: float, members: float
) -> None:
    links = with_links(inter_latency_s=1.5e-5, inter_member_s=3e-6)
    group: Group = {"group_size": domains * members, "members_per_domain": members, "links": links}
    start_s = links.intra_latency_s[0]
    lap_s = domains * (1.5e-5 + (members - 1) * 3e-6) * (1 - 1 / (domains * members))
    assert all_gather_s(num_bytes=0.0, **group)[0] == pytest.approx(start_s + lap_s, rel=1e-12)
    # A chain inside each domain, a binary tree of the domains, to the root and back.
    tree_s = 2 * ((members - 1) * 3e-6 + np.log2(domains) * 1.5e-5)
    assert all_reduce_s(num_bytes=0.0, **group)[0] == pytest.approx(start_s + tree_s, rel=1e-12)
    # Large messages go round the ring, twice: what they take beyond their bytes, twice as many of which take twice as long.
    once_s, twice_s = (all_reduce_s(num_bytes=num_bytes, **group)[0] for num_bytes in (1e12, 2e12))
    assert 2 * once_s - twice_s == pytest.approx(start_s + 2 * lap_s, rel=1e-6)


def test_a_tree_pays_the_root_of_its_pipeline() -> None:
    # V/B + h a + 2 sqrt(h a V/B) with h a the latency to the root and back: four times the latency where both are equal.
    links = with_links(inter_latency_s=1e-4, inter_member_s=1e-5)
    group: Group = {"group_size": 2048.0, "members_per_domain": 1.0, "links": links}
    latency_s = 2 * 11 * 1e-4
    num_bytes = latency_s * 50e9 * links.inter_fraction[0] / (2 * 2047 / 2048)
    found_s = all_reduce_s(num_bytes=num_bytes, **group)[0]
    assert found_s == pytest.approx(links.intra_latency_s[0] + 4 * latency_s, rel=1e-9)


def test_one_way_of_a_forwarded_exchange_takes_its_bytes_and_two_equal_ones_less_than_both() -> None:
    links = cluster()
    group: Group = {"group_size": 32.0, "members_per_domain": 8.0, "links": links}
    # Through the fabric as any collective; inside, 0.72 of the links' 450 GB/s.
    far_bytes, near_bytes = 50e9 * links.inter_fraction[0] * 1e4, 0.72 * 450e9 * 1e4
    far_s, near_s, both_s = (
        forwarded_exchange_s(near_bytes=near, far_bytes=far, **group)[0]
        for near, far in ((0.0, far_bytes), (near_bytes, 0.0), (near_bytes, far_bytes))
    )
    assert far_s == pytest.approx(1e4, rel=1e-6)
    assert near_s == pytest.approx(1e4, rel=1e-6)
    assert 1.2e4 < both_s < 1.8e4  # neither one way alone nor both after each other


def test_a_message_to_another_domain_takes_a_step_and_its_own_share_of_a_card() -> None:
    links = cluster()
    far_s = point_to_point_s(num_bytes=1e9, is_same_domain=False, links=links)
    rate = 50e9 * links.inter_point_to_point_fraction
    assert far_s == pytest.approx(links.intra_latency_s + links.inter_latency_s + 1e9 / rate, rel=1e-12)
