"""Are runs with stops that only the fast level, or the durable one, outlives as long as their renewal equations say?

All in mean up-times: of all interruptions, a share `kept` are stops whose work stays on the fast level alone, `saved` are stops
that are saved durably, and the others are faults that go back to the newest durable save. Saves are durable at once.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.run_reference import columns
from simulator.run.columns import Runs
from simulator.run.course import Course
from simulator.table import Floats

MTBF_S = 1e4
STEPS = 40
"""Steps of an interval, in which the trapezoidal rule is right to 0.2 % here."""
AT_ONCE = 1e-6
"""A durable save a moment after its commit: with none, both levels would be one."""


def up_time(
    work: float, interval: float, kept: float, saved: float, stall: float = 0.0, commit: float = 0.0
) -> float:
    times = {"work_s": work, "interval_s": interval, "stall_s": stall, "commit_s": commit}
    row = columns(
        **{name: time * MTBF_S for name, time in times.items()}, mtbf_s=MTBF_S, restart_s=0.0,
        durable_commit_s=(commit + AT_ONCE) * MTBF_S, kind_share=[0.0, 1.0 - kept - saved, 0.0, kept + saved],
        kind_fast_survival=[1.0, 0.0, 1.0, kept / (kept + saved)],
    )  # fmt: skip
    return float(Course.of(Runs.of(row)).up_time.total_s[0]) / MTBF_S


def solved_up_time(work: float, interval: float, kept: float, saved: float) -> float:
    """Up-time of a run, solved step by step on a grid of the work that is left.

    What is left after an interruption depends on what is left on the durable level, too: `fast[v][w]` is the up-time with w to
    do and v not durable. It is linear in the unknown `fast[v][v]`, from which a fault begins anew.
    """
    step = interval / STEPS
    lasts = np.exp(-step * np.arange(round(work / step) + 1))
    whole, fast = np.zeros(len(lasts)), [np.zeros(1)]

    def weights(first: int, last: int) -> Floats:
        """Of ages from one to another, in each of which an interruption may come."""
        weight: Floats = np.full(last - first + 1, step) * lasts[first : last + 1]
        weight[[0, -1]] /= 2.0
        return weight

    for durable in range(1, len(lasts)):
        known, factor = np.zeros(durable + 1), np.zeros(durable + 1)
        for left in range(1, durable + 1):
            end = min(STEPS, left)
            weight, ages = weights(0, end), left - np.arange(1, end + 1)
            sure = 1.0 - lasts[left] + np.dot(weight[1:], kept * known[ages] + saved * whole[ages])
            again = (1.0 - kept - saved) * (1.0 - lasts[end]) + kept * np.dot(weight[1:], factor[ages])
            if left < durable:
                sure += saved * weight[0] * whole[left]
            else:
                again += saved * weight[0]
            for begin in range(STEPS, left, STEPS):
                end, rest = min(begin + STEPS, left), left - begin
                ages = left - np.arange(begin, end + 1)
                sure += np.dot(weights(begin, end), kept * fast[rest][ages] + saved * whole[ages])
                sure += (1.0 - kept - saved) * (lasts[begin] - lasts[end]) * whole[rest]
            known[left], factor[left] = (value / (1.0 - kept * weight[0]) for value in (sure, again))
        whole[durable] = known[durable] / (1.0 - factor[durable])
        fast.append(known + factor * whole[durable])
    return float(whole[-1])


@pytest.mark.parametrize(
    ("work", "interval", "kept", "saved", "within"),
    [
        (2.0, 2.0, 0.3, 0.4, 0.002),
        (1.5, 1.0, 0.5, 0.0, 0.002),
        (2.5, 1.0, 0.5, 0.0, 0.004),
        (5.0, 2.0, 0.4, 0.0, 0.01),
        # Which durable saves are late by stops that are saved is neglected.
        (1.5, 1.0, 0.3, 0.3, 0.015),
        (2.5, 1.0, 0.5, 0.1, 0.015),
        (4.0, 1.0, 0.3, 0.3, 0.015),
        (5.0, 2.0, 0.2, 0.5, 0.015),
    ],
)
def test_runs_of_a_few_durable_saves_solve_their_renewal_equation(
    work: float, interval: float, kept: float, saved: float, within: float
) -> None:
    exact = solved_up_time(work, interval, kept, saved)
    assert up_time(work, interval, kept, saved) == pytest.approx(exact, rel=within)


@pytest.mark.parametrize(
    ("interval", "stall", "kept", "saved", "within"),
    [
        (1.0, 0.0, 0.5, 0.0, 1e-5),
        (1.0, 0.0, 0.3, 0.3, 1e-5),
        (2.0, 0.0, 0.5, 0.3, 1e-5),
        # Work is taken to grow evenly with the age of an up-time.
        (1.5, 0.5, 0.5, 0.3, 0.025),
        (1.5, 0.5, 0.3, 0.5, 0.025),
    ],
)
def test_a_long_run_loses_what_is_not_durable_at_a_fault(
    interval: float, stall: float, kept: float, saved: float, within: float
) -> None:
    # A fault meets the mean state, whose age is exponential: with c from save to save and E = exp(-c), it has done m since the
    # save before, or since the interruption, beside what the up-time began with if no save has come: L = m + kept L (1 - E).
    cycle = interval + stall
    ended, works = -math.expm1(-cycle), -math.expm1(-interval)
    since = (works - interval * math.exp(-cycle)) / ended
    lost = since / (1.0 - kept * ended)
    exact = 1.0 / (works / ended - (1.0 - kept - saved) * lost)
    found = up_time(1e5, interval, kept, saved, stall) / 1e5
    assert found == pytest.approx(exact, rel=within)


@pytest.mark.parametrize(("interval", "commit"), [(1.0, 0.5), (1.0, 0.9), (0.5, 0.2)])
def test_a_save_that_is_durable_when_it_commits_is_awaited_once(interval: float, commit: float) -> None:
    # Stops that hardly ever come change one in a thousand up-times: exp(t1) (1 - exp(-tau))/tau of one level of saves.
    exact = math.exp(interval + commit) * -math.expm1(-interval) / interval
    assert up_time(1e5, interval, 1e-3, 0.0, commit=commit) / 1e5 == pytest.approx(exact, rel=1e-3)
