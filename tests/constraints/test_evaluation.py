"""Is what designs are worth the same whoever shares the work, and is it shared at all?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from constraints import evaluation as module
from constraints.evaluation import judge
from constraints.space import pruned_space
from simulator import threads
from simulator.simulate import simulate
from simulator.threads import on_threads
from tests.support import A100_RENTED, H100_RENTED, job_with

JOB = job_with(H100_RENTED, A100_RENTED, limits={"budget_usd": 1e5, "deadline_days": 2.0})


def test_the_number_of_threads_changes_no_byte_of_scores_and_excesses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans = pruned_space(JOB).designs().take(slice(0, 5_000))
    outcomes = simulate(JOB, plans)
    shared: list[int] = []

    def watched(function: Callable[[object], object], items: list[object]) -> list[object]:
        shared.append(len(items))
        return on_threads(function, items)

    monkeypatch.setattr(module, "on_threads", watched)
    monkeypatch.setattr(threads, "get_num_threads", lambda: 1)
    alone = judge(JOB, plans, outcomes)
    assert shared == []
    monkeypatch.setattr(module, "LEAST_DESIGNS_PER_THREAD", len(plans) // 3)
    monkeypatch.setattr(threads, "get_num_threads", lambda: 3)
    together = judge(JOB, plans, outcomes)
    assert shared == [3]
    assert len(alone) == len(together) > 100
    for part in ("scores", "excess"):
        for name, column in getattr(alone, part).columns().items():
            assert column.tobytes() == getattr(together, part).columns()[name].tobytes(), name
