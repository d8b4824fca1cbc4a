"""How short may intervals of saves that cost nothing but time be?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.domain.checkpointing import Checkpointing
from simulator.run.columns import BackPressure
from simulator.run.events import expected_goodput, optimal_interval_s
from simulator.run.interval import longest_interval_s

FREE: dict[str, Any] = {
    "mtbf_s": 1e4, "stall_s": 0.0, "commit_s": 100.0, "restart_s": 300.0, "minimum_interval_s": 1.0,
}  # fmt: skip


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_free_saves_are_as_frequent_as_slots_let_them(slots: int) -> None:
    found_s = optimal_interval_s(**FREE, tax_fraction=0.0, slots=slots)
    assert found_s == pytest.approx(100.0 / slots, rel=1e-6)


def test_the_best_interval_may_be_below_a_commit_that_slows_steps_down() -> None:
    # In 100 s of a commit, steps slowed down by a quarter do 80 s of work; a little more between saves is best.
    run = FREE | {"mtbf_s": 250.0, "tax_fraction": 0.25, "slots": 1}
    best_s = optimal_interval_s(**run)[0]
    assert 80.5 < best_s < 99.5
    del run["minimum_interval_s"]
    intervals_s = np.array([80.0, 100.0, best_s])
    found = expected_goodput(work_s=np.inf, interval_s=intervals_s, policy=BackPressure.SKIP, **run)
    assert found.argmax() == 2


@pytest.mark.parametrize(
    ("longest_s", "stall_s", "expected_s"),
    [
        # Daily saves stop a run for less than 1 % of the time until they take 864 s; then the stall is 1 % of the interval.
        (None, 0.0, 86_400.0),
        (None, 864.0, 86_400.0),
        (None, 8640.0, 864_000.0),
        (3600.0, 8640.0, 3600.0),
    ],
)
def test_the_usual_longest_interval_is_a_day_or_more_where_saves_take_long(
    longest_s: float | None, stall_s: float, expected_s: float
) -> None:
    checkpointing = Checkpointing(longest_interval_s=longest_s)
    assert longest_interval_s(checkpointing, np.array([stall_s])) == pytest.approx(expected_s)
