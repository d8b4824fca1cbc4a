"""Do nodes that fail several at a time, and during restarts, leave spares as often as they can be counted to?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import poisson

from benchmarks.run_reference import columns
from simulator.run import spares
from simulator.run.columns import Runs
from simulator.run.course import Course
from simulator.run.events import expected_ledger, simulate_runs

QUEUE_S = 1e-3
"""So short that waits hardly change how often nodes fail."""
FREE_SAVES: dict[str, Any] = {"interval_s": 10.0, "stall_s": 0.0, "commit_s": 0.0}


def waits_per_failure(**changes: object) -> float:
    row = columns(**FREE_SAVES | {"work_s": np.inf, "mtbf_s": 1000.0, "queue_wait_s": QUEUE_S} | changes)
    way_back = Course.of(Runs.of(row)).way_back
    return float((way_back.replacement_wait_s / way_back.num_failures / QUEUE_S)[0])


@pytest.mark.parametrize(
    ("num_spares", "num_losses"), [(3, 0), (4, 1), (6, 1), (7, 1), (8, 2), (11, 2), (12, 3)]
)
def test_domains_wait_if_those_in_repair_leave_less_than_a_domain(num_spares: int, num_losses: int) -> None:
    # Domains of four nodes, of which two are in repair on average.
    found = waits_per_failure(
        restart_s=0.0, kind_share=[0.0, 0.0, 1.0, 0.0], kind_nodes=[0.0, 1.0, 4.0, 0.0], num_spares=num_spares,
        repair_s=2000.0,
    )  # fmt: skip
    assert found == pytest.approx(poisson.sf(num_losses - 1, 2.0), rel=1e-4)


@pytest.mark.parametrize("num_spares", [2, 5, 9])
def test_where_restarts_fail_as_well_nodes_fail_at_any_time(num_spares: int) -> None:
    # One every 1,000 s, whatever the run does: five are in repair on average.
    found = waits_per_failure(
        restart_s=700.0, fails_during_restart=True, kind_share=[0.0, 1.0, 0.0, 0.0], kind_nodes=[0.0, 1.0, 4.0, 0.0],
        num_spares=num_spares, repair_s=5000.0,
    )  # fmt: skip
    assert found == pytest.approx(poisson.sf(num_spares - 1, 5.0), rel=1e-4)


@pytest.mark.parametrize(
    ("num_spares", "domain_nodes", "domain_share"), [(8, 8, 0.2), (4, 4, 0.1), (16, 16, 0.3)]
)
def test_nodes_and_domains_wait_once_more_are_lost_than_stood_by(
    num_spares: int, domain_nodes: int, domain_share: float
) -> None:
    # None comes back. Five failures on average, and the k-th waits if the first k have taken more nodes than there were spares.
    lost, expected = np.zeros(num_spares + 2), 0.0
    lost[0] = 1.0
    for number in range(1, 60):
        after = np.zeros(num_spares + 2)
        for nodes, share in ((1, 1.0 - domain_share), (domain_nodes, domain_share)):
            np.add.at(after, np.minimum(np.arange(num_spares + 2) + nodes, num_spares + 1), share * lost)
        lost = after
        expected += poisson.sf(number - 1, 5.0) * lost[-1]
    row = columns(
        work_s=5e4, mtbf_s=1e4, restart_s=0.0, kind_share=[0.0, 1.0 - domain_share, domain_share, 0.0],
        kind_nodes=[0.0, 1.0, domain_nodes, 0.0], num_spares=num_spares, repair_s=1e8, queue_wait_s=1000.0, **FREE_SAVES,
    )  # fmt: skip
    course = Course.of(Runs.of(row))
    waits = course.way_back.replacement_wait_s * course.up_time.total_s / 1e4 / 1000.0
    # The pool is played, with a standard error of about 1 %.
    assert waits == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("num_spares", "mean_in_repair"), [(3, 0.7), (4, 1.0)])
def test_where_nodes_fail_at_any_time_a_run_waits_while_more_are_in_repair_than_stood_by(
    num_spares: int, mean_in_repair: float
) -> None:
    # Nothing but repairs ends a wait, so that the share of the time spent waiting is that of more nodes in repair than spares.
    row = columns(
        work_s=np.inf, mtbf_s=1000.0, restart_s=0.0, fails_during_restart=True, kind_share=[0.0, 1.0, 0.0, 0.0],
        kind_nodes=[0.0, 1.0, 4.0, 0.0], num_spares=num_spares, repair_s=1000.0 * mean_in_repair, queue_wait_s=1e9,
        **FREE_SAVES,
    )  # fmt: skip
    way_back = Course.of(Runs.of(row)).way_back
    share = way_back.replacement_wait_s / (1000.0 + way_back.total_s)
    # A failure during a wait is counted as a wait of its own, in which nothing is done either.
    assert share == pytest.approx(poisson.sf(num_spares, mean_in_repair), rel=0.005)


@pytest.mark.parametrize("num_spares", [1, 4])
def test_a_queue_that_is_faster_than_a_spare_is_used_only_once_no_spare_is_left(num_spares: int) -> None:
    # No node comes back: of five failures on average the first wait for spares, all others for the queue.
    row = columns(
        work_s=5e4, mtbf_s=1e4, restart_s=0.0, kind_share=[0.0, 1.0, 0.0, 0.0], kind_nodes=[0.0, 1.0, 4.0, 0.0],
        num_spares=num_spares, repair_s=1e8, spare_wait_s=700.0, queue_wait_s=100.0, **FREE_SAVES,
    )  # fmt: skip
    with_spare = sum(poisson.sf(number, 5.0) for number in range(num_spares))
    ledger = expected_ledger(**row)
    # Work that is lost at a failure is 0.05 % of an up-time.
    assert ledger.num_failures == pytest.approx(5.0, rel=1e-3)
    assert ledger.replacement_wait_s == pytest.approx(
        700.0 * with_spare + 100.0 * (5.0 - with_spare), rel=5e-3
    )


@pytest.mark.parametrize(("num_spares", "repair"), [(0, 0.5), (1, 1.0)])
def test_the_first_nodes_that_come_back_end_waits_for_a_queue_half_as_long_as_the_run(
    num_spares: int, repair: float
) -> None:
    # A run as long as a repair, so that waits that begin late in it end with the return of the first node that failed.
    mtbf_s = 1e5
    row = columns(
        work_s=repair * mtbf_s, mtbf_s=mtbf_s, restart_s=0.0, kind_share=[0.0, 1.0, 0.0, 0.0], kind_nodes=[0.0, 1.0, 4.0, 0.0],
        num_spares=num_spares, repair_s=repair * mtbf_s, queue_wait_s=0.25 * mtbf_s, **FREE_SAVES,
    )  # fmt: skip
    runs = simulate_runs(num_replications=10_000, seed=3, **row)
    error_s = 4.0 * runs.replacement_wait_s.std() / 100.0
    found_s = runs.replacement_wait_s.mean()
    assert expected_ledger(**row).replacement_wait_s[0] == pytest.approx(
        found_s, abs=error_s + 0.02 * found_s
    )


@pytest.mark.parametrize(("num_spares", "max_loans"), [(0, 3), (1, 2), (3, 0)])
@pytest.mark.parametrize("mean_in_repair", [0.1, 0.7, 2.0])
def test_nodes_that_are_lent_at_once_are_as_good_as_spares(
    num_spares: int, max_loans: int, mean_in_repair: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Failures that find all three in repair wait for repairs: Erlang's loss system with four servers.
    monkeypatch.setattr(spares, "LEAST_WAIT_FRACTION", np.inf)  # by the formula alone
    row = columns(
        work_s=np.inf, mtbf_s=1000.0, restart_s=0.0, kind_share=[0.0, 1.0, 0.0, 0.0], kind_nodes=[0.0, 1.0, 4.0, 0.0],
        num_spares=num_spares, max_loans=max_loans, repair_s=1000.0 * mean_in_repair, queue_wait_s=QUEUE_S, **FREE_SAVES,
    )  # fmt: skip
    expected_s = poisson.pmf(4, mean_in_repair) / poisson.cdf(3, mean_in_repair) * 1000.0
    waits = Course.of(Runs.of(row)).waits.mean
    assert waits.for_repairs_s[0, 1] == pytest.approx(expected_s, rel=1e-9)
    assert 0.0 <= waits.for_queue_s[0, 1] <= QUEUE_S
