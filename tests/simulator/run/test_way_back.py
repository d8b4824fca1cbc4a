"""Which saves does an interruption go back to, and how long is the way back?"""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.run_reference import columns
from simulator.run.columns import Runs
from simulator.run.way_back import WayBack


def way_back(**changes: object) -> WayBack:
    return WayBack.with_spares(Runs.of(columns(**changes)))


def test_an_announced_save_is_lost_to_faults_that_strike_while_the_run_restarts() -> None:
    # Half of the stops are announced; every fault loses the fast level. A restart of M/10 meets one with
    # 1 - exp(-0.05).
    found = way_back(
        mtbf_s=1e4, restart_s=1e3, fails_during_restart=True,
        kind_share=[0.5, 0.0, 0.0, 0.5], kind_fast_survival=[0.0, 1.0, 1.0, 1.0], durable_every=4,
    )  # fmt: skip
    assert found.durable_share == pytest.approx(0.5 + 0.5 * -math.expm1(-0.05))
    assert found.fast_share == pytest.approx(0.0, abs=1e-12)


def test_a_fault_during_a_wait_for_a_node_loses_the_fast_level() -> None:
    # Announced stops wait 600 s for a spare; process faults, which lose the fast level, come once in 2e4 s meanwhile.
    found = way_back(
        mtbf_s=1e4, restart_s=0.0, spare_wait_s=600.0, fails_during_restart=True, durable_every=4,
        kind_nodes=[0.0, 0.0, 0.0, 1.0], kind_share=[0.5, 0.0, 0.0, 0.5],
        kind_fast_survival=[0.0, 1.0, 1.0, 1.0],
    )  # fmt: skip
    assert found.durable_share == pytest.approx(0.5 + 0.5 * -math.expm1(-0.03))


def test_each_kind_of_announced_and_other_stop_keeps_its_own_share() -> None:
    # Kinds are sorted by restart, the longest first: this order is not its own inverse.
    found = way_back(
        mtbf_s=1e9, fails_during_restart=True, durable_every=4, kind_share=[0.1, 0.2, 0.3, 0.4],
        kind_restart_s=[300.0, 20.0, 900.0, 2400.0], kind_fast_survival=[0.9, 0.6, 0.2, 1.0],
    )  # fmt: skip
    assert found.durable_share == pytest.approx(0.1 * 0.1 + 0.2 * 0.4 + 0.3 * 0.8, rel=1e-4)
    assert found.fast_share == pytest.approx(0.1 * 0.9 + 0.2 * 0.6 + 0.3 * 0.2, rel=1e-4)


def test_runs_that_are_only_stopped_with_notice_never_fail_on_their_way_back() -> None:
    found = way_back(fails_during_restart=True, kind_share=[0.0, 0.0, 0.0, 1.0])
    assert found.restart_s == pytest.approx(390.0)
    assert found.num_failures == 0.0


def test_announced_stops_of_a_run_without_saves_lose_the_fast_level_as_others_do() -> None:
    found = way_back(
        interval_s=np.inf, kind_share=[0.5, 0.0, 0.0, 0.5], kind_fast_survival=[1.0, 1.0, 1.0, 0.25], durable_every=4
    )  # fmt: skip
    assert found.durable_share == pytest.approx(0.5 * 0.75)
    assert found.fast_share == pytest.approx(1.0 - 0.5 * 0.75)
