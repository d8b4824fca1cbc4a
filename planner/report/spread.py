"""When will the run end, and what will it cost? Histograms over replays of failures and stragglers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import numpy as np

from constraints.evaluation import Evaluation
from planner.recommended.recommendation import Design, Recommendation, Spread
from planner.report.data import HistogramFigure, Mark, Quantity
from planner.report.units import text
from planner.text import human
from planner.uncertain.uncertainty import replayed
from simulator.domain.job import Job
from simulator.table import Floats
from simulator.units import DAY

NUM_BINS: Final = 24
"""About the square root of the number of replays."""
DRAWN_FRACTION: Final = 0.985
"""Share of the replays that are drawn; the few longest ones would squeeze all others into a corner."""
LEAST_SPREAD: Final = 0.001
"""Replays closer together than this share of their value are all alike: labels have three digits."""
ALIKE_WIDTH: Final = 0.04
"""Width of the picture of replays that are all alike, as a share of their value."""
FAR: Final = 1.5
"""A limit this far beyond the drawn values is named in the note instead of drawn."""
LONGEST_DAYS: Final = 36_500.0
"""Longer runs are shown without calendar dates."""


def spreads(job: Job, answer: Recommendation, chosen: Evaluation) -> list[HistogramFigure]:
    """Returns the distributions of finish and cost of the recommended design (one row); none if a replay never ends."""
    uncertainty, best = answer.uncertainty, answer.recommendation
    if uncertainty is None or best is None:
        return []
    wall_s, cost_usd = replayed(job, chosen, answer.seed)
    if not (np.isfinite(wall_s).all() and np.isfinite(cost_usd).all()):
        return []
    finish, cost = uncertainty.time_to_train_days, uncertainty.cost_usd
    return [
        _histogram(
            "finish",
            f"95 % of runs end within {text(finish.p95, 'days')}",
            _dates(answer.created_at, finish),
            "days",
            wall_s / DAY,
            _marks(finish, {"deadline": job.limits.deadline_days}, "days"),
        ),
        _histogram(
            "cost-spread",
            f"95 % of runs cost at most {text(cost.p95, 'usd')}",
            _prices(best),
            "usd",
            cost_usd,
            _marks(cost, {"budget": job.limits.budget_usd}, "usd"),
        ),
    ]


def _prices(best: Design) -> str:
    """How far the price of the hardware alone moves the cost; nothing if it has no range."""
    low, high = human.dollars(best.cost_low_usd), human.dollars(best.cost_high_usd)
    return (
        ""
        if low == high
        else f"At the middle price; the price range of the hardware alone moves the cost from {low} to {high}."
    )


def _histogram(
    name: str, title: str, note: str, quantity: Quantity, values: Floats, marks: list[Mark]
) -> HistogramFigure:
    """The values in bins; the note names limits far beyond them."""
    drawn = values[values <= np.quantile(values, DRAWN_FRACTION)]
    counts, edges = _binned(drawn)
    end = float(edges[-1]) + (FAR - 1.0) * float(edges[-1] - edges[0])
    far = [mark.label for mark in marks if mark.value > end]
    longest = text(float(values.max()), quantity)
    beyond = [f"the largest is {longest}"] if len(drawn) < len(values) else []
    told = f" Not drawn: {'; '.join([*beyond, *far])}." if beyond or far else ""
    replays = f"{human.count(len(values))} replays of failures and stragglers."
    return HistogramFigure(
        name=name,
        title=title,
        note=f"{f'{replays} {note}'.rstrip()}{told}",
        quantity=quantity,
        edges=tuple(edges.tolist()),
        counts=tuple(counts.tolist()),
        num_beyond=len(values) - len(drawn),
        marks=tuple(mark for mark in marks if mark.value <= end),
    )


def _binned(values: Floats) -> tuple[Floats, Floats]:
    """Returns the number of values in each bin, and the edges; values that are all alike stand in the middle one."""
    low, high = float(values.min()), float(values.max())
    if high - low > LEAST_SPREAD * high:
        counts, edges = np.histogram(values, bins=NUM_BINS)
    else:
        ends = ((1.0 - ALIKE_WIDTH / 2.0) * low, (1.0 + ALIKE_WIDTH / 2.0) * high)
        counts, edges = np.histogram(values, bins=NUM_BINS + 1, range=ends)
    return counts, edges


def _marks(spread: Spread, limits: dict[str, float | None], quantity: Quantity) -> list[Mark]:
    """The percentiles, and the job's limits."""
    values = {"5 %": spread.p5, "median": spread.p50, "95 %": spread.p95, **limits}
    return [
        Mark(value=value, label=f"{name}: {text(value, quantity)}")
        for name, value in values.items()
        if value is not None
    ]


def _dates(created_at: str, finish: Spread) -> str:
    """The percentiles as calendar dates."""
    start = datetime.fromisoformat(created_at)
    if finish.p50 is None or finish.p95 is None or finish.p95 > LONGEST_DAYS:
        return ""
    half, late = (_date(start + timedelta(days=value)) for value in (finish.p50, finish.p95))
    ends = (
        f"95 % of runs end by {late}"
        if half == late
        else f"half of the runs end by {half} and 95 % by {late}"
    )
    return f"If started on {_date(start)}, the date of this answer, {ends}."


def _date(moment: datetime) -> str:
    return f"{moment.day} {moment:%B %Y}"
