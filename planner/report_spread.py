"""When will the run end, and what will it cost? How often each came out when failures and stragglers were replayed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import numpy as np

from constraints.evaluation import Evaluation
from planner import human
from planner.recommendation import Recommendation, Spread, Uncertainty
from planner.report_data import HistogramFigure, Mark, Quantity
from planner.report_units import text
from planner.uncertainty import replayed
from simulator.job import Job
from simulator.table import Floats
from simulator.units import DAY

NUM_BINS: Final = 24
"""About the square root of the number of replays."""


def spreads(
    job: Job, answer: Recommendation, chosen: Evaluation, uncertainty: Uncertainty
) -> list[HistogramFigure]:
    """Returns how finish and cost of the recommended design, one row, are distributed; none where a replay never ends."""
    wall_s, cost_usd = replayed(job, chosen, answer.seed)
    if not (np.isfinite(wall_s).all() and np.isfinite(cost_usd).all()):
        return []
    finish, cost = uncertainty.time_to_train_days, uncertainty.cost_usd
    replays = f"{human.count(uncertainty.num_replays)} replays of failures and stragglers"
    return [
        HistogramFigure(
            name="finish",
            title=f"19 of 20 runs end within {text(finish.p95, 'days')}",
            note=f"{replays}. {_dates(answer.created_at, finish)}",
            quantity="days",
            edges=_edges(wall_s / DAY),
            counts=_counts(wall_s / DAY),
            marks=_marks(finish, job.limits.deadline_days, "deadline", "days"),
        ),
        HistogramFigure(
            name="cost-spread",
            title=f"19 of 20 runs cost at most {text(cost.p95, 'usd')}",
            note=f"{replays}, at the middle price; the price alone moves it from "
            f"{human.dollars(_low(answer))} to {human.dollars(_high(answer))}.",
            quantity="usd",
            edges=_edges(cost_usd),
            counts=_counts(cost_usd),
            marks=_marks(cost, job.limits.budget_usd, "budget", "usd"),
        ),
    ]


def _edges(values: Floats) -> tuple[float, ...]:
    return tuple(np.histogram_bin_edges(values, bins=NUM_BINS).tolist())


def _counts(values: Floats) -> tuple[int, ...]:
    return tuple(np.histogram(values, bins=NUM_BINS)[0].tolist())


def _marks(spread: Spread, limit: float | None, limit_name: str, quantity: Quantity) -> tuple[Mark, ...]:
    """The percentiles, and the limit where the job has one."""
    values = {"5 %": spread.p5, "half": spread.p50, "95 %": spread.p95, limit_name: limit}
    return tuple(
        Mark(value=value, label=f"{name}: {text(value, quantity)}")
        for name, value in values.items()
        if value is not None
    )


def _dates(created_at: str, finish: Spread) -> str:
    """What the percentiles are on the calendar."""
    start = datetime.fromisoformat(created_at)
    if finish.p50 is None or finish.p95 is None:
        return ""
    half, late = (_date(start + timedelta(days=value)) for value in (finish.p50, finish.p95))
    return f"Begun on {_date(start)}, when this was answered, half of the runs end by {half} and 19 of 20 by {late}."


def _date(moment: datetime) -> str:
    return f"{moment.day} {moment:%B %Y}"


def _low(answer: Recommendation) -> float:
    assert answer.recommendation is not None
    return answer.recommendation.cost_low_usd


def _high(answer: Recommendation) -> float:
    assert answer.recommendation is not None
    return answer.recommendation.cost_high_usd
