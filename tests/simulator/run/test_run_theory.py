"""Does the event loop play what renewal theory says? The cross-checks X1 to X5 and X12 to X14, and bounds.

The loop is under test, closed forms are the expectation. Where nothing else is said, a goodput may be off by its
tolerance, which is that of a closed form, and by four standard errors, missed by chance once in 16,000.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtri

from benchmarks.run_reference import SKIP, WAIT, columns, wall_s
from simulator.errors import InputError
from simulator.run.events import (
    BackPressure,
    expected_goodput,
    expected_ledger,
    expected_ledger_and_delays,
    optimal_interval_s,
    simulate_runs,
)
from simulator.table import Floats


def goodput(num_failures: float, num_replications: int = 100, **changes: object) -> tuple[float, float]:
    """Goodput of runs that meet about so many failures in all, and four of its standard errors."""
    row = columns(**changes)
    row["work_s"] = num_failures / num_replications * np.asarray(row["mtbf_s"])
    runs = simulate_runs(num_replications=num_replications, seed=11, **row)
    shares = runs.productive_s[0] / runs.wall_s[0]
    # Ratio of means: long walls count for more than short ones.
    ratio = runs.productive_s.sum() / runs.wall_s.sum()
    return float(ratio), 4.0 * float(shares.std()) / math.sqrt(num_replications)


class TestX1Restarts:
    # X1: (M + R)(exp((tau + delta)/M) - 1), and M exp(R/M)(exp((tau + delta)/M) - 1) if restarts fail, too (Daly,
    # FGCS 22, 2006), as printed with their Monte Carlo in two decimals.
    @pytest.mark.parametrize(
        ("mtbf_s", "interval_s", "stall_s", "restart_s", "safe_s", "failing_s"),
        [
            (10980, 1500, 60, 300, 1722.06, 1722.69),
            (10980, 600, 20, 390, 660.49, 660.90),
            (3600, 900, 120, 600, 1375.70, 1393.03),
        ],
    )
    def test_a_segment_takes_its_closed_form_under_both_conventions(
        self,
        mtbf_s: float,
        interval_s: float,
        stall_s: float,
        restart_s: float,
        safe_s: float,
        failing_s: float,
    ) -> None:
        for fails, segment_s in ((False, safe_s), (True, failing_s)):
            found, error = goodput(
                20_000, mtbf_s=mtbf_s, interval_s=interval_s, stall_s=stall_s, commit_s=0.0,
                restart_s=restart_s, fails_during_restart=fails,
            )  # fmt: skip
            assert found == pytest.approx(interval_s / segment_s, rel=0.005, abs=error)
            assert error < 0.01

    @pytest.mark.parametrize("log_deviation", [0.0, 0.5])
    def test_restarts_that_fail_have_their_mean(self, log_deviation: float) -> None:
        # X1: the mean way back is M (exp(R/M) - 1); with lognormal R it is M (1/E[exp(-R/M)] - 1), as each attempt
        # draws its own. E[...] by a sum over a million quantiles.
        mtbf_s, restart_s = 1000.0, 600.0
        quantiles = (np.arange(1_000_000) + 0.5) / 1_000_000
        normal = ndtri(quantiles)
        durations = restart_s * np.exp(log_deviation * normal - log_deviation**2 / 2.0)
        mean_s = mtbf_s * (1.0 / np.exp(-durations / mtbf_s).mean() - 1.0)
        row = columns(
            work_s=1e6, mtbf_s=mtbf_s, interval_s=10.0, stall_s=0.0, commit_s=0.0, restart_s=restart_s,
            fails_during_restart=True, restart_log_deviation=log_deviation,
        )  # fmt: skip
        runs = simulate_runs(num_replications=200, seed=2, **row)
        up_times = (runs.wall_s - runs.restart_s).sum() / mtbf_s
        assert runs.restart_s.sum() / up_times == pytest.approx(mean_s, rel=0.01)  # 2e5 up-times: 4 sigma
        assert expected_ledger(**row).restart_s[0] == pytest.approx(runs.restart_s.mean(), rel=0.01)

    def test_lognormal_restarts_keep_their_mean(self) -> None:
        row = columns(work_s=1e7, mtbf_s=1000.0, interval_s=10.0, stall_s=0.0, commit_s=0.0, restart_s=600.0)
        row["restart_log_deviation"] = 0.5
        runs = simulate_runs(num_replications=50, seed=2, **row)
        # 5e5 restarts; the coefficient of variation is sqrt(exp(0.25) - 1) = 0.53.
        per_failure_s = runs.restart_s.sum() / runs.num_failures.sum()
        assert per_failure_s == pytest.approx(600.0, rel=4 * 0.53 / math.sqrt(5e5))

    def test_restarts_longer_than_the_up_time_never_end_and_do_not_hang(self) -> None:
        row = columns(mtbf_s=10.0, restart_s=600.0, fails_during_restart=True)
        runs = simulate_runs(num_replications=2, seed=1, **row)
        assert np.isinf(runs.wall_s).all()
        assert expected_goodput(**row) == pytest.approx(0.0, abs=1e-20)


class TestX2BestInterval:
    @pytest.mark.parametrize(
        ("stall_s", "mtbf_s", "interval_s"),
        [(5, 10980, 328.0), (60, 10980, 1108.2), (300, 10980, 2370.7), (60, 1080, 321.2)],
    )
    def test_the_loop_has_its_best_goodput_at_lamberts_interval(
        self, stall_s: float, mtbf_s: float, interval_s: float
    ) -> None:
        # X2: tau = M (1 + W(-exp(-delta/M - 1))); common luck makes the differences sharp.
        factors = np.array([1.0, 0.25, 0.5, 0.7, 1.4, 2.0, 4.0])
        row = columns(
            work_s=100 * mtbf_s, mtbf_s=mtbf_s, interval_s=interval_s * factors, stall_s=stall_s, commit_s=0.0
        )
        runs = simulate_runs(num_replications=100, seed=3, **row)
        found = runs.productive_s.sum(axis=1) / runs.wall_s.sum(axis=1)
        assert found.max() <= found[0] + 0.001


class TestX3AsynchronousSaves:
    # X3: G = tau exp(-(tau + s + P)/M) / ((M + R)(1 - exp(-c/M))), c = s + max(tau + min(a P/(1 + a), a tau), P) for
    # one slot and WAIT; for SKIP the interval is tau ceil(P/tau). Random parameters over the whole range.
    @given(
        st.floats(600, 1e6), st.floats(0.003, 0.3), st.floats(0, 0.3), st.floats(0, 3), st.floats(0, 1),
        st.floats(0, 0.5), st.sampled_from([SKIP, WAIT]),
    )  # fmt: skip
    def test_one_slot_has_the_closed_form(
        self,
        mtbf_s: float,
        interval: float,
        stall: float,
        commit: float,
        restart: float,
        tax: float,
        policy: int,
    ) -> None:
        tau = interval * mtbf_s
        late = 1.0 if policy == WAIT else max(1.0, math.ceil(commit / (1.0 + tax) - 1e-6))
        s, p, r = stall * tau, commit * tau, restart * mtbf_s
        effective = tau * late
        c = s + max(effective + min(tax * p / (1 + tax), tax * effective), p)
        # The first save after a restart comes after one interval, whatever is skipped later.
        first = math.exp(-(tau + s + p) / mtbf_s)
        gained = first * (tau + effective * math.exp(-c / mtbf_s) / -math.expm1(-c / mtbf_s))
        closed = gained / (mtbf_s + r)
        found, error = goodput(
            2000, 10, mtbf_s=mtbf_s, interval_s=tau, stall_s=s, commit_s=p, restart_s=r, tax_fraction=tax,
            policy=policy,
        )  # fmt: skip
        # Ten runs of 200 failures each: the end of a run, which no save follows, is up to 0.5 % of it.
        assert found == pytest.approx(closed, rel=0.008, abs=max(error, 0.02 * closed))

    def test_slots_give_the_tabled_goodputs(self) -> None:
        # Monte Carlo of an independent program over 4e8 s: 2 and 4 slots.
        for slots, tabled in ((2, 0.62460), (4, 0.92646)):
            found, error = goodput(
                20_000,
                mtbf_s=10980,
                interval_s=100,
                stall_s=1,
                commit_s=300,
                restart_s=390,
                slots=slots,
                policy=WAIT,
            )
            assert found == pytest.approx(tabled, rel=0.003, abs=error)


class TestX4Throughput:
    @pytest.mark.parametrize(("interval_s", "commit_s"), [(100.0, 300.0), (100.0, 30.0), (0.5, 60.0)])
    def test_without_failures_a_slow_commit_sets_the_pace(self, interval_s: float, commit_s: float) -> None:
        # X4: tau / (s + max(tau, P)), exact: here n - 1 whole cycles between a first and a last interval.
        num = 10_000
        row = columns(
            work_s=num * interval_s,
            mtbf_s=np.inf,
            interval_s=interval_s,
            stall_s=1.0,
            commit_s=commit_s,
            policy=WAIT,
        )
        runs = simulate_runs(num_replications=1, seed=1, **row)
        cycles_s = (num - 2) * (1.0 + max(interval_s, commit_s))
        assert runs.wall_s[0, 0] == pytest.approx(interval_s + cycles_s + 1.0 + interval_s, rel=1e-9)


class TestX5Weibull:
    # X5: G = tau sum_j S(c1 + P + j c) / (M + R) with the survival function S of a Weibull law of mean M; printed for
    # the first row with its Monte Carlo (four digits).
    @pytest.mark.parametrize(
        ("shape", "closed", "monte_carlo"),
        [(0.5, 0.9447, 0.9448), (0.7, 0.9430, 0.9428), (1.0, 0.9422, 0.9421), (1.5, 0.9421, 0.9421)],
    )
    def test_the_shape_of_the_up_times_has_its_printed_goodput(
        self, shape: float, closed: float, monte_carlo: float
    ) -> None:
        run: dict[str, Any] = {
            "mtbf_s": 10980, "interval_s": 371, "stall_s": 0.8, "commit_s": 60, "restart_s": 390, "weibull_shape": shape,
        }  # fmt: skip
        found, error = goodput(40_000, **run)
        assert found == pytest.approx(monte_carlo, rel=0.0005, abs=error)
        exact = expected_goodput(**columns(**run, work_s=np.inf))
        assert exact == pytest.approx(closed, abs=6e-5)  # four printed digits

    @given(st.sampled_from([0.5, 0.7, 1.0, 1.5]), st.floats(600, 1e6), st.floats(0.003, 0.5), st.floats(0, 1))
    def test_long_runs_have_the_renewal_sum(
        self, shape: float, mtbf_s: float, interval: float, commit: float
    ) -> None:
        tau, scale_s = interval * mtbf_s, mtbf_s / math.gamma(1 + 1 / shape)
        p = commit * tau
        commits_s = tau + p + tau * np.arange(200_000)
        closed = tau * np.exp(-((commits_s / scale_s) ** shape)).sum() / (mtbf_s + 100.0)
        row = columns(
            work_s=np.inf, mtbf_s=mtbf_s, interval_s=tau, stall_s=0.0, commit_s=p, restart_s=100.0,
            weibull_shape=shape,
        )  # fmt: skip
        # The sum is cut at 200,000 terms; at shape 0.5 and an interval of 0.003 M that leaves 1e-14 of it.
        assert expected_goodput(**row) == pytest.approx(closed, rel=1e-6)

    @pytest.mark.parametrize("shape", [0.5, 1.0, 1.5])
    @pytest.mark.parametrize("work", [0.3, 3.0, np.inf])
    def test_without_saves_a_run_needs_one_up_time_for_all_of_its_work(
        self, shape: float, work: float
    ) -> None:
        # The others are as many as a geometric law says, and their mean length is the integral of the survival function.
        scale = 1 / math.gamma(1 + 1 / shape)
        lasts = math.exp(-((work / scale) ** shape))
        up_time = float(quad(lambda age: math.exp(-((age / scale) ** shape)), 0.0, work)[0])
        closed = work / (up_time / lasts + (1 / lasts - 1) * 0.01) if lasts else 0.0
        run = {
            "mtbf_s": 1e4,
            "restart_s": 100.0,
            "weibull_shape": shape,
            "interval_s": np.inf,
            "work_s": work * 1e4,
        }
        assert expected_goodput(**columns(**run)) == pytest.approx(closed, rel=1e-6)
        if work < np.inf:
            runs = simulate_runs(num_replications=4000, seed=3, **columns(**run))
            played = runs.productive_s.sum() / runs.wall_s.sum()
            # The number of up-times is geometric, so the length of a run deviates from its mean by up to that mean.
            assert played == pytest.approx(closed, rel=4 / math.sqrt(4000))

    @pytest.mark.parametrize("shape", [0.7, 1.5])
    @pytest.mark.parametrize("survives", [0.0, 1.0])
    def test_with_stops_that_keep_their_work_two_levels_have_the_goodput_of_replays(
        self, shape: float, survives: float
    ) -> None:
        run: dict[str, Any] = {
            "mtbf_s": 1e4, "interval_s": 1e3, "stall_s": 20.0, "commit_s": 60.0, "restart_s": 300.0, "work_s": 2e6,
            "weibull_shape": shape, "kind_share": [0.2, 0.2, 0.0, 0.6], "kind_fast_survival": [1.0, 0.0, 0.0, survives],
            "durable_every": 20, "durable_commit_s": 400.0,
        }  # fmt: skip
        row = columns(**run)
        runs = simulate_runs(num_replications=200, seed=5, **row)
        played = runs.productive_s.sum() / runs.wall_s.sum()
        assert expected_goodput(**row)[0] == pytest.approx(played, abs=0.01)

    @pytest.mark.parametrize("shape", [0.5, 0.7, 1.5])
    @pytest.mark.parametrize(("apart", "interval"), [(1, 0.3), (4, 0.1), (10, 0.1), (200, 0.002)])
    @pytest.mark.parametrize("stall", [0.0, 0.5])
    def test_where_all_go_back_to_the_durable_level_its_saves_alone_count(
        self, shape: float, apart: int, interval: float, stall: float
    ) -> None:
        # Each up-time begins at a durable save, and every k-th of its saves is durable d after its stall: one level with k tau
        # between saves, k tau sum_j S(j k (tau + s) + d) / (M + R). Classes of numbers of saves are within 0.12 points of that.
        mtbf_s, scale_s = 1e4, 1e4 / math.gamma(1 + 1 / shape)
        tau, written_s = interval * mtbf_s, 300.0
        ages_s = apart * (tau + stall * tau) * np.arange(1, 4000) + written_s
        closed = apart * tau * np.exp(-((ages_s / scale_s) ** shape)).sum() / (mtbf_s + 100.0)
        row = columns(
            work_s=np.inf, mtbf_s=mtbf_s, interval_s=tau, stall_s=stall * tau, commit_s=0.0, restart_s=100.0,
            weibull_shape=shape, kind_share=[0.0, 1.0, 0.0, 0.0], kind_fast_survival=[1.0, 0.0, 0.0, 1.0],
            durable_every=apart, durable_commit_s=written_s,
        )  # fmt: skip
        assert expected_goodput(**row) == pytest.approx(closed, abs=0.002)

    @pytest.mark.parametrize("shape", [0.5, 0.7, 1.5])
    @pytest.mark.parametrize(("apart", "interval", "lost"), [(1, 0.3, 0.5), (5, 0.1, 0.3), (20, 0.05, 0.7)])
    def test_two_levels_have_the_goodput_of_replays(
        self, shape: float, apart: int, interval: float, lost: float
    ) -> None:
        run: dict[str, Any] = {
            "mtbf_s": 1e4, "interval_s": interval * 1e4, "stall_s": 20.0, "commit_s": 60.0, "restart_s": 300.0, "work_s": 2e6,
            "weibull_shape": shape, "kind_share": [1.0 - lost, lost, 0.0, 0.0], "kind_fast_survival": [1.0, 0.0, 0.0, 1.0],
            "durable_every": apart, "durable_commit_s": 400.0,
        }  # fmt: skip
        row = columns(**run)
        runs = simulate_runs(num_replications=200, seed=5, **row)
        # Runs of 200 up-times are not quite long ones: at shape 0.5 they lose half a point more.
        played = runs.productive_s.sum() / runs.wall_s.sum()
        assert expected_goodput(**row)[0] == pytest.approx(played, abs=0.01)

    @pytest.mark.parametrize("shape", [0.5, 0.7, 1.5])
    @pytest.mark.parametrize(("missing", "lag"), [(0.0, 0.2), (0.3, 0.0), (0.3, 0.2)])
    def test_live_replicas_lose_what_they_lag_behind_and_what_is_missing(
        self, shape: float, missing: float, lag: float
    ) -> None:
        # Of an up-time U of mean M = 1 that has no save, min(U, r + l) is lost, and it is all that is: E[min(U, x)] is the
        # integral of the survival function up to x.
        mtbf_s, scale = 1e4, 1 / math.gamma(1 + 1 / shape)
        lost = float(quad(lambda age: math.exp(-((age / scale) ** shape)), 0.0, missing + lag)[0])
        row = columns(
            work_s=np.inf, mtbf_s=mtbf_s, interval_s=100 * mtbf_s, stall_s=0.0, commit_s=0.0, restart_s=100.0,
            weibull_shape=shape, live_lag_s=lag * mtbf_s, reduced_capacity_s=missing * mtbf_s,
        )  # fmt: skip
        # A save every hundred up-times shortens the lag of one in a hundred of them.
        assert expected_goodput(**row) == pytest.approx((1 - lost) / 1.01, abs=0.002)

    @pytest.mark.parametrize("shape", [0.5, 0.7, 1.5])
    @pytest.mark.parametrize(("apart", "lost"), [(1, 0.5), (10, 0.3), (15, 0.7)])
    def test_live_replicas_have_the_goodput_of_replays(self, shape: float, apart: int, lost: float) -> None:
        run: dict[str, Any] = {
            "mtbf_s": 1e4, "interval_s": 2e3, "stall_s": 20.0, "commit_s": 60.0, "restart_s": 300.0, "work_s": 2e6,
            "weibull_shape": shape, "kind_share": [1.0 - lost, lost, 0.0, 0.0], "kind_fast_survival": [1.0, 0.0, 0.0, 1.0],
            "durable_every": apart, "durable_commit_s": 400.0, "live_lag_s": 100.0, "reduced_capacity_s": 500.0,
        }  # fmt: skip
        row = columns(**run)
        runs = simulate_runs(num_replications=200, seed=5, **row)
        # A sum of up-times is taken for a Weibull law, which costs a point where few of them make up a durable save.
        played = runs.productive_s.sum() / runs.wall_s.sum()
        assert expected_goodput(**row)[0] == pytest.approx(played, abs=0.015)


class TestX12Ledger:
    def test_ten_thousand_random_runs_sum_to_their_wall_times(self) -> None:
        row = random_runs(10_000, seed=1)
        runs = simulate_runs(num_replications=1, seed=4, **row)
        finite = np.isfinite(runs.wall_s)
        assert finite.mean() > 0.9
        assert wall_s(runs)[finite] == pytest.approx(runs.wall_s[finite], rel=1e-9)

    @pytest.mark.long
    def test_no_figure_of_ten_thousand_random_runs_is_negative_or_unknown(self) -> None:
        row = random_runs(10_000, seed=2)
        # What never ends is played until its 200,000th failure, so that few of these have to do.
        endless = ~np.isfinite(row["interval_s"]) & (row["work_s"] > 10.0 * row["mtbf_s"])
        row["interval_s"][endless & (np.arange(10_000) % 100 > 0)] = 600.0
        runs, ledger = simulate_runs(num_replications=1, seed=4, **row), expected_ledger(**row)
        for table in (runs, ledger):
            for name in table.names():
                values = getattr(table, name)
                assert not np.isnan(values).any(), name
                assert (values >= -1e-9 * row["mtbf_s"].reshape(values.shape)).all(), name
        share = expected_goodput(**row)
        assert ((share >= 0.0) & (share <= 1.0 + 1e-12)).all()

    @pytest.mark.parametrize("factor", [2.0**-9, 2.0**9])
    def test_no_expectation_depends_on_the_unit_of_time(self, factor: float) -> None:
        row = random_runs(1000, seed=3)
        other = {name: column * factor if name.endswith("_s") else column for name, column in row.items()}
        (ledger, delays), (scaled, scaled_delays) = (
            expected_ledger_and_delays(**one) for one in (row, other)
        )
        for name in ledger.names():
            unit, share = (
                (factor, wall_s(ledger)) if name.endswith("_s") else (1.0, ledger.num_failures + 1.0)
            )
            assert (np.abs(getattr(scaled, name) / unit - getattr(ledger, name)) < 1e-6 * share).all(), name
        assert (np.abs(scaled_delays.share - delays.share) <= 1e-9).all()
        assert scaled_delays.mean_s / factor == pytest.approx(delays.mean_s, rel=1e-6)
        square_s2 = delays.variance_s2 + delays.mean_s**2
        assert (np.abs(scaled_delays.variance_s2 / factor**2 - delays.variance_s2) <= 1e-6 * square_s2).all()
        assert expected_goodput(**other) == pytest.approx(expected_goodput(**row), abs=1e-9)

    def test_expected_ledgers_are_near_the_means_of_random_runs(self) -> None:
        row = random_runs(600, seed=3)
        usual = (row["work_s"] > 20 * row["mtbf_s"]) & (
            row["interval_s"] * row["durable_every"] < 0.1 * row["mtbf_s"]
        )
        some = {name: column[usual] for name, column in row.items()} | {"weibull_shape": np.ones(usual.sum())}
        runs, ledger = simulate_runs(num_replications=200, seed=5, **some), expected_ledger(**some)
        off = wall_s(ledger) / runs.wall_s.mean(axis=1) - 1.0
        assert usual.sum() > 30
        # Waits for nodes are what is furthest off (`simulator.run.spares`).
        assert np.abs(off).mean() < 0.01


class TestX13Limits:
    def test_without_failures_only_saves_take_time(self) -> None:
        # X13: tau / (tau + s) for rate 0.
        row = columns(work_s=1e9, mtbf_s=np.inf, interval_s=600.0, stall_s=5.0, commit_s=60.0)
        runs = simulate_runs(num_replications=1, seed=1, **row)
        assert runs.productive_s / runs.wall_s == pytest.approx(600 / 605, rel=1e-6)

    def test_endless_restarts_leave_nothing(self) -> None:
        row = columns(work_s=1e6, restart_s=1e12)
        runs = simulate_runs(num_replications=1, seed=1, **row)
        assert runs.productive_s / runs.wall_s == pytest.approx(0.0, abs=1e-6)

    def test_a_save_every_microsecond_costs_no_time_to_play_if_it_is_free(self) -> None:
        row = columns(work_s=1e7, interval_s=1e-6, stall_s=0.0, commit_s=0.0, restart_s=0.0)
        runs = simulate_runs(num_replications=10, seed=1, **row)
        assert runs.wall_s == pytest.approx(1e7, rel=1e-9)


class TestX14Monotony:
    @given(
        st.floats(600, 1e5), st.floats(0.01, 0.5), st.floats(0, 0.3), st.floats(0, 0.9), st.floats(0, 0.5),
        st.sampled_from(["stall_s", "commit_s", "restart_s", "tax_fraction", "mtbf_s"]),
    )  # fmt: skip
    def test_with_the_same_luck_worse_saves_and_more_failures_never_help(
        self, mtbf_s: float, interval: float, stall: float, commit: float, tax: float, worse: str
    ) -> None:
        # X14, policy WAIT; common random numbers.
        interval_s = interval * mtbf_s
        row = columns(
            work_s=100 * mtbf_s, mtbf_s=mtbf_s, interval_s=interval_s, stall_s=stall * interval_s,
            commit_s=commit * interval_s, tax_fraction=tax, policy=WAIT,
        )  # fmt: skip
        factor = 0.8 if worse == "mtbf_s" else 1.25
        changed = columns(**{**row, worse: float(row[worse]) * factor + 1e-3})  # type: ignore[literal-required]
        better, poorer = (simulate_runs(num_replications=20, seed=6, **r).wall_s[0] for r in (row, changed))
        noise = 4.0 * float((poorer - better).std()) / math.sqrt(20)
        assert poorer.mean() >= better.mean() * (1.0 - 1e-12) - noise


class TestBounds:
    @pytest.mark.parametrize("policy", BackPressure)
    @pytest.mark.parametrize("slots", [1, 4])
    def test_saves_far_shorter_than_rounding_do_not_hang(self, policy: BackPressure, slots: int) -> None:
        row = columns(
            work_s=1e15,
            mtbf_s=np.inf,
            interval_s=1e-12,
            stall_s=0.0,
            commit_s=0.0,
            slots=slots,
            policy=policy,
        )
        runs = simulate_runs(num_replications=1, seed=1, **row)
        assert runs.wall_s == pytest.approx(1e15)

    def test_more_saves_at_a_time_than_can_be_played_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"interval_s = 1e-06: makes more than 1e\+08 saves"):
            simulate_runs(
                num_replications=1, seed=1, **columns(work_s=1e6, interval_s=1e-6, commit_s=1e-5, slots=4)
            )

    def test_an_interval_with_the_new_columns_is_near_the_best_of_a_fine_sweep(self) -> None:
        draw = np.random.default_rng(5)
        for _ in range(40):
            mtbf_s, commit_s = 10 ** draw.uniform(2.8, 6), 10 ** draw.uniform(-2, 1.5)
            run: dict[str, Any] = {
                "mtbf_s": mtbf_s,
                "stall_s": 10 ** draw.uniform(-2, 1.5),
                "commit_s": commit_s,
                "tax_fraction": draw.uniform(0, 0.2),
                "slots": 1,
                "restart_s": 0.05 * mtbf_s,
                "kind_share": draw.dirichlet([1, 1, 1, 0.5]),
                "kind_fast_survival": [1.0, draw.uniform(0.5, 1), draw.uniform(), 1.0],
                "durable_every": draw.integers(1, 30),
                "durable_commit_s": commit_s * draw.uniform(1, 5),
            }
            if draw.random() < 0.3:
                run |= {"live_lag_s": 1e-3 * mtbf_s, "reduced_capacity_s": 0.01 * mtbf_s}
            best_s = optimal_interval_s(**run, minimum_interval_s=1.0)[0]
            lowest_s = max(1.0, commit_s / (1.0 + run["tax_fraction"]))
            sweep_s = np.append(np.maximum(lowest_s, best_s * np.geomspace(0.05, 20, 600)), best_s)
            found = expected_goodput(work_s=np.inf, interval_s=sweep_s, policy=SKIP, **run)
            assert found[-1] >= found.max() - 0.001

    def test_intervals_of_two_levels_with_any_saves_are_near_the_best_of_a_sweep(self) -> None:
        run = runs_with_two_levels(500, seed=1)
        best_s = optimal_interval_s(**run, minimum_interval_s=1e-9)
        # Below it, saves queue for slots.
        lowest_s = (run["stall_s"] + run["commit_s"]) / run["slots"] - run["stall_s"]
        lowest_s = np.maximum(1e-9, lowest_s / (1.0 + run["tax_fraction"]))
        found = [
            expected_goodput(
                work_s=np.inf, interval_s=np.maximum(lowest_s, best_s * factor), policy=SKIP, **run
            )
            for factor in (1.0, *np.geomspace(0.02, 50.0, 150))
        ]
        lost = 1.0 - found[0] / np.max(found, axis=0)
        # Goodput jumps wherever another whole number of saves fits into a write to the durable level.
        assert lost.mean() < 3e-4
        assert lost.max() < 0.02

    def test_a_batch_of_intervals_is_its_rows_one_by_one(self) -> None:
        run = runs_with_two_levels(60, seed=2)
        together_s = optimal_interval_s(**run, minimum_interval_s=1.0)
        for row, found_s in enumerate(together_s.tolist()):
            alone = {name: column[row : row + 1] for name, column in run.items()}
            assert optimal_interval_s(**alone, minimum_interval_s=1.0).tolist() == [found_s]

    @pytest.mark.parametrize("durable_commit_s", [190.0, 600.0])
    def test_a_whole_number_of_saves_goes_into_a_writing_that_takes_longer(
        self, durable_commit_s: float
    ) -> None:
        run: dict[str, Any] = {
            "mtbf_s": 1025.0,
            "stall_s": 16.0,
            "commit_s": 17.0,
            "tax_fraction": 0.02,
            "slots": 1,
            "restart_s": 60.0,
            "kind_share": (0.5, 0.5, 0.0, 0.0),
            "kind_fast_survival": (1.0, 0.0, 1.0, 1.0),
            "durable_every": 1,
            "durable_commit_s": durable_commit_s,
        }
        best_s = optimal_interval_s(**run, minimum_interval_s=1.0)[0]
        sweep_s = np.append(np.geomspace(20.0, 1000.0, 600), best_s)
        found = expected_goodput(work_s=np.inf, interval_s=sweep_s, policy=SKIP, **run)
        assert found[-1] >= 0.995 * found.max()

    def test_no_interval_that_is_tried_is_below_the_shortest(self) -> None:
        run: dict[str, Any] = {
            "mtbf_s": 1e4, "stall_s": 0.0, "commit_s": 0.0, "tax_fraction": 0.0, "slots": 1, "restart_s": 0.0,
            "kind_share": (0.5, 0.5, 0.0, 0.0), "kind_fast_survival": (1.0, 0.0, 1.0, 1.0), "durable_every": 10,
        }  # fmt: skip
        assert optimal_interval_s(**run, minimum_interval_s=3e3).tolist() == [3e3]

    @pytest.mark.parametrize(
        ("durable_every", "durable_commit_s", "planned"), [(1, 2.5e4, 0.0), (20, 2e4, 0.2)]
    )
    def test_durable_saves_that_are_up_times_apart_have_an_interval_near_the_best(
        self, durable_every: int, durable_commit_s: float, planned: float
    ) -> None:
        # An interval that takes a loss in proportion to it makes 0.95 and 0.91 of what the best one does.
        run: dict[str, Any] = {
            "mtbf_s": 1e4, "stall_s": 40.0, "commit_s": 50.0, "tax_fraction": 0.02, "slots": 1, "restart_s": 100.0,
            "kind_share": (0.5 - planned, 0.5, 0.0, planned), "kind_fast_survival": (1.0, 0.0, 1.0, 0.5),
            "durable_every": durable_every, "durable_commit_s": durable_commit_s,
        }  # fmt: skip
        best_s = optimal_interval_s(**run, minimum_interval_s=1.0)[0]
        sweep_s = np.append(np.maximum(50.0, best_s * np.geomspace(0.02, 50, 600)), best_s)
        found = expected_goodput(work_s=np.inf, interval_s=sweep_s, policy=SKIP, **run)
        assert found[-1] >= 0.99 * found.max()


def runs_with_two_levels(num: int, seed: int) -> dict[str, Floats]:
    """Runs with any slots and taxes, a third of them with live replicas; 0.1 to 100 % of their faults lose the fast level."""
    draw = np.random.default_rng(seed)

    def log(low: float, high: float) -> Floats:
        return np.exp(draw.uniform(np.log(low), np.log(high), num))

    mtbf_s, none, ones = log(600, 1e6), np.zeros(num), np.ones(num)
    commit_s, durable = mtbf_s * log(1e-5, 0.1), log(1e-3, 1.0)
    return {
        "mtbf_s": mtbf_s,
        "stall_s": mtbf_s * log(1e-5, 0.1),
        "commit_s": commit_s,
        "tax_fraction": draw.uniform(0, 0.9, num),
        "slots": draw.integers(1, 5, num).astype(float),
        "restart_s": mtbf_s * log(1e-4, 0.1),
        "kind_share": np.column_stack([1.0 - durable, durable, none, none]),
        "kind_fast_survival": np.column_stack([ones, none, ones, ones]),
        "durable_every": draw.integers(1, 20, num).astype(float),
        "durable_commit_s": np.maximum(commit_s, mtbf_s * log(1e-3, 3.0)),
        "live_lag_s": np.where(draw.random(num) < 0.3, mtbf_s * log(1e-5, 0.01), np.inf),
    }


def random_runs(num: int, seed: int) -> dict[str, Floats]:
    """Runs with everything that a run may have, over the whole range: mean up-times of 10 min to 12 days."""
    draw = np.random.default_rng(seed)

    def log(low: float, high: float) -> Floats:
        return np.exp(draw.uniform(np.log(low), np.log(high), num))

    def often(values: Floats, otherwise: float) -> Floats:
        return np.where(draw.random(num) < 0.5, values, otherwise)

    mtbf_s = log(600, 1e6)
    interval_s = mtbf_s * log(0.003, 0.5)
    commit_s = interval_s * often(log(1e-3, 3.0), 0.0)
    ones = np.ones((num, 1))
    survival = np.column_stack([ones, often(draw.random(num), 1.0), draw.random(num), ones])
    return {
        "work_s": mtbf_s * log(0.1, 100),
        "mtbf_s": mtbf_s,
        "interval_s": often(interval_s, np.inf) if seed == 2 else interval_s,
        "stall_s": interval_s * often(log(1e-4, 0.5), 0.0),
        "commit_s": commit_s,
        "tax_fraction": often(log(1e-3, 1.0), 0.0),
        "slots": draw.integers(1, 5, num).astype(float),
        "policy": draw.integers(0, 3, num).astype(float),
        "restart_s": mtbf_s * log(1e-4, 0.3),
        "weibull_shape": often(draw.uniform(0.5, 1.5, num), 1.0),
        "fails_during_restart": draw.integers(0, 2, num).astype(float),
        "restart_log_deviation": often(draw.uniform(0, 0.8, num), 0.0),
        "kind_share": draw.dirichlet([1.0, 1.0, 0.3, 0.3], num),
        "kind_fast_survival": survival,
        "kind_nodes": np.column_stack([0 * ones, ones, draw.integers(1, 9, num), 0 * ones]),
        "durable_every": draw.integers(1, 20, num).astype(float),
        "durable_commit_s": np.maximum(commit_s, interval_s * log(1e-3, 10.0)),
        "fast_load_s": mtbf_s * log(1e-4, 0.01),
        "durable_load_s": mtbf_s * log(1e-4, 0.03),
        "live_lag_s": often(mtbf_s * log(1e-5, 0.1), np.inf),
        "reduced_capacity_s": often(mtbf_s * log(1e-4, 0.1), 0.0),
        "num_spares": often(draw.integers(0, 30, num).astype(float), np.inf),
        "repair_s": mtbf_s * log(0.1, 20),
        "spare_wait_s": mtbf_s * log(1e-4, 0.02),
        "queue_wait_s": mtbf_s * log(1e-3, 0.3),
    }
