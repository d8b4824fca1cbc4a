"""Does a profile average the hours of a run, and do its bounds hold for every longer one?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.hourly import HourlyProfile, synthetic_profile
from simulator.errors import InputError

HOUR = 3600.0
profiles = st.lists(st.floats(0.0, 2.0), min_size=1, max_size=30).map(
    lambda values: HourlyProfile(per_hour=tuple(values))
)


def test_the_mean_weighs_every_hour_by_its_share_of_the_run() -> None:
    profile = HourlyProfile(per_hour=(0.4, 0.1, 0.1))
    times_s = np.array([0.5, 1.0, 1.5, 3.0, 4.0, 3e6, np.inf]) * HOUR
    expected = [0.4, 0.4, 0.45 / 1.5, 0.2, 0.25, 0.2, 0.2]
    np.testing.assert_allclose(profile.mean_over(times_s), expected, rtol=1e-9)


@given(profile=profiles, hours=st.floats(0.01, 200.0), longer=st.floats(0.0, 500.0))
def test_no_longer_run_beats_the_bound(profile: HourlyProfile, hours: float, longer: float) -> None:
    least = profile.least_mean_over(np.array([hours * HOUR]))
    # Numbers without full precision, far below any grid or tariff, round as they like.
    mean = profile.mean_over(np.array([(hours + longer) * HOUR]))
    assert (mean >= least * (1 - 1e-12) - 1e-300).all()


@given(profile=profiles, start=st.integers(0, 100))
def test_a_later_start_turns_the_profile(profile: HourlyProfile, start: int) -> None:
    later = profile.from_hour(start)
    assert later.per_hour[0] == profile.per_hour[start % len(profile.per_hour)]
    assert later.mean == pytest.approx(profile.mean)


def test_a_synthetic_year_has_its_mean_and_its_swings() -> None:
    profile = synthetic_profile(mean=0.3, daily_amplitude=0.1, yearly_amplitude=0.05)
    assert len(profile.per_hour) == 8760
    assert profile.mean == pytest.approx(0.3)
    assert max(profile.per_hour) == pytest.approx(0.45)  # midnight in midwinter
    assert min(profile.per_hour) == pytest.approx(0.15, abs=1e-4)  # noon in midsummer


def test_amplitudes_beyond_the_mean_are_refused() -> None:
    with pytest.raises(InputError, match="together not exceed the mean"):
        synthetic_profile(mean=0.1, daily_amplitude=0.08, yearly_amplitude=0.05)
