"""Is a run with announced interruptions up for as long as the solution of its renewal equation?"""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.run_reference import columns
from simulator.run.columns import Runs
from simulator.run.course import Course

STEPS = 300
"""Steps of an interval, in which the trapezoidal rule is right to 0.02 % here."""


def solved_up_time(work: float, interval: float, commit: float, planned: float) -> float:
    """Up-time in mean up-times, with saves that take no time of training, and work of a whole number of steps.

    Up to the age x, a failure goes back to the newest save that has committed, and a stop loses nothing: with k(x) intervals
    committed, f(w) = 1 - exp(-w) + integral of exp(-x) (p f(w - x) + (1 - p) f(w - k(x) tau)) up to w, solved step by step.
    """
    step = interval / STEPS
    up_time = np.zeros(round(work / step) + 1)
    lasts = np.exp(-step * np.arange(len(up_time)))
    for place in range(1, len(up_time)):
        end = place * step
        commits = np.arange(1.0, end / interval + 1.0) * interval + commit
        left = -np.diff(np.exp(-np.array([0.0, *commits[commits < end - 1e-9], end])))
        stops = step * np.dot(lasts[1:place], up_time[place - 1 : 0 : -1])
        failures = sum(share * up_time[place - number * STEPS] for number, share in enumerate(left) if number)
        known = -math.expm1(-end) + planned * stops + (1.0 - planned) * failures
        # A stop at age 0, half of whose step counts, and a failure before the first commit leave all of the work.
        up_time[place] = known / (1.0 - planned * step / 2.0 - (1.0 - planned) * left[0])
    return float(up_time[-1])


def up_time(work: float, interval: float, commit: float, planned: float) -> float:
    row = columns(
        mtbf_s=1.0, restart_s=0.0, stall_s=0.0, work_s=work, interval_s=interval, commit_s=commit,
        kind_share=[1.0 - planned, 0.0, 0.0, planned],
    )  # fmt: skip
    return float(Course.of(Runs.of(row)).up_time.total_s[0])


@pytest.mark.parametrize(
    ("interval", "commit", "planned", "within"),
    [
        # That earlier saves add what they do in a long run costs this much: the more, the longer their commit.
        (1.5, 0.0, 0.7, 0.0015),
        (2.0, 0.0, 0.7, 0.0015),
        (3.0, 1.2, 0.5, 0.008),
        (3.0, 1.2, 0.7, 0.004),
    ],
)
def test_runs_of_a_few_saves_solve_their_renewal_equation(
    interval: float, commit: float, planned: float, within: float
) -> None:
    work = 2.5 * interval
    exact = solved_up_time(work, interval, commit, planned)
    assert up_time(work, interval, commit, planned) == pytest.approx(exact, rel=within)


@pytest.mark.parametrize("planned", [1e-6, 0.2])
def test_before_its_first_save_a_run_loses_all_but_what_stops_keep(planned: float) -> None:
    exact = math.log1p(planned * math.expm1(4.0)) / planned
    assert up_time(4.0, 8.0, 0.0, planned) == pytest.approx(exact, rel=1e-9)
    assert solved_up_time(4.0, 8.0, 0.0, planned) == pytest.approx(exact, rel=2e-4)
