"""Do copies outlast what is lost as often as counting says?"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.checkpoints.survival import peer_survival, replicas_outlast
from simulator.domain.checkpointing import PeerPlacement

GROUP, RING = PeerPlacement.GROUP, PeerPlacement.RING


def survival(
    num_nodes: int, num_copies: int, num_lost: int, placement: PeerPlacement = PeerPlacement.GROUP
) -> float:
    return float(
        peer_survival(
            num_nodes=num_nodes, num_copies=num_copies, num_lost=num_lost, placement=placement
        ).item()
    )


def holders_of(num_nodes: int, num_copies: int, placement: PeerPlacement) -> list[set[int]]:
    """Sets of nodes that hold one shard: disjoint groups, or windows of a ring."""
    starts = range(0, num_nodes, num_copies) if placement is PeerPlacement.GROUP else range(num_nodes)
    return [{(start + i) % num_nodes for i in range(num_copies)} for start in starts]


def counted(num_nodes: int, num_copies: int, num_lost: int, placement: PeerPlacement) -> float:
    """Share of all ways to lose nodes that leave a holder of every shard."""
    holders = holders_of(num_nodes, num_copies, placement)
    losses = [set(lost) for lost in combinations(range(num_nodes), num_lost)]
    return float(np.mean([not any(group <= lost for group in holders) for lost in losses]))


@pytest.mark.parametrize(
    ("num_nodes", "num_copies", "num_lost", "expected"),
    [
        (16, 2, 2, 0.93333),
        (16, 2, 3, 0.8000),
        (128, 2, 2, 0.99213),
        (128, 2, 3, 0.97638),
        (128, 4, 4, 0.999997),
    ],
)
def test_groups_outlast_losses_as_gemini_says(
    num_nodes: int, num_copies: int, num_lost: int, expected: float
) -> None:
    # X9, consistency: Gemini, SOSP 2023, with the example of 16 machines.
    assert survival(num_nodes, num_copies, num_lost) == pytest.approx(expected, abs=5e-6)


@pytest.mark.parametrize("placement", [GROUP, RING])
@pytest.mark.parametrize("num_copies", [2, 4])
def test_the_loss_of_as_many_nodes_as_there_are_copies_is_counted_exactly(
    num_copies: int, placement: PeerPlacement
) -> None:
    # X9, validates: all ways to lose m of 16 nodes.
    expected = counted(16, num_copies, num_copies, placement)
    assert survival(16, num_copies, num_copies, placement) == pytest.approx(expected, rel=1e-12)


@given(
    groups=st.integers(2, 5),
    num_copies=st.integers(2, 3),
    num_lost=st.integers(1, 6),
    placement=st.sampled_from([GROUP, RING]),
)
def test_more_losses_are_bounded_from_below(
    groups: int, num_copies: int, num_lost: int, placement: PeerPlacement
) -> None:
    num_nodes = groups * num_copies
    num_lost = min(num_lost, num_nodes)
    exact = counted(num_nodes, num_copies, num_lost, placement)
    bound = survival(num_nodes, num_copies, num_lost, placement)
    assert 0.0 <= bound <= exact + 1e-12
    if num_lost < num_copies:
        assert bound == exact == 1.0


def test_a_node_that_groups_leave_over_joins_a_ring() -> None:
    # Seven nodes in pairs: two pairs and a ring of three, so 2 + 3 of the 21 ways to lose two nodes lose a shard.
    assert survival(7, 2, 2) == pytest.approx(1 - 5 / 21)


def test_copies_in_other_domains_outlast_one_domain_and_not_the_whole_cluster() -> None:
    cross = PeerPlacement.CROSS_DOMAIN
    assert survival(16, 2, 8, cross) == 1.0
    assert survival(8, 2, 8, cross) == 0.0
    assert survival(8, 2, 8, GROUP) == 0.0


def test_nobody_outlasts_the_loss_of_all_nodes() -> None:
    assert survival(1, 2, 1) == 0.0
    assert survival(2, 2, 5) == 0.0


@pytest.mark.parametrize(
    ("num_copies", "copy_ranks", "lost_ranks", "expected"),
    [
        (1, 8, 1, False),  # one replica has no other
        (2, 8, 8, True),  # two nodes, one lost
        (2, 4, 8, False),  # both replicas on one node
        (8, 1, 8, False),
        (9, 1, 8, True),
        (4, 8, 32, False),
    ],
)
def test_a_replica_is_left_where_the_lost_ranks_fit_beside_it(
    num_copies: int, copy_ranks: int, lost_ranks: int, *, expected: bool
) -> None:
    outlasts = replicas_outlast(num_copies=num_copies, copy_ranks=copy_ranks, lost_ranks=lost_ranks)
    assert bool(outlasts) is expected
