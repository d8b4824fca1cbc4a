"""How much faster are more accelerators, and where do they stop paying? The fastest layouts over the sizes of an offer."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from planner import human
from planner.recommendation import Design, Recommendation
from planner.report_breakdowns import shown_name
from planner.report_data import Line, LinePoint, LinesFigure, Mark, Quantity
from planner.report_rivals import sizes_of
from planner.report_units import text
from planner.sweep import fastest_at
from simulator.job import Job
from simulator.units import DAY

MOST_SIZES: Final = 10
"""Sizes of each accelerator that are simulated."""
MOST_CURVES: Final = 3
"""Accelerators of the front that are compared."""
LEAST_SIZES: Final = 3
"""Fewer sizes make no curve."""
LEAST_GAIN: Final = 2.0**0.5
"""Speed-up by twice the accelerators below which they hardly pay: each further one adds less than half of its share."""


_Run = tuple[float, float, float]
"""Number of accelerators, days and USD."""


@dataclass(frozen=True)
class _Curve:
    """The fastest layout of one accelerator at every size that can be laid out."""

    accelerator: str
    num_gpus: tuple[float, ...]
    days: tuple[float, ...]
    cost_usd: tuple[float, ...]
    end_of_gain: float | None
    """First size whose double is not worth it; `None` where every double that was simulated is."""


def scaling(job: Job, answer: Recommendation, best: Design) -> list[LinesFigure]:
    """Returns time and cost against the number of accelerators; none where too few sizes can be laid out."""
    offers = {design.accelerator: design.plan.offer for design in (*reversed(answer.front), best)}
    names = [best.accelerator, *(name for name in offers if name != best.accelerator)]
    found = [_curve(_alike(job, best), offers[name], best) for name in names[:MOST_CURVES]]
    curves = [curve for curve in found if len(curve.num_gpus) >= LEAST_SIZES]
    if not curves:
        return []
    lines = tuple(_line(curve, curve.days) for curve in curves)
    dashed = (
        " Dashed and upright: the size from which twice the accelerators are less than 1.41 times as fast."
        if any(line.mark for line in lines)
        else ""
    )
    return [
        LinesFigure(
            name="scaling",
            title=_title(curves[0]),
            note=(
                "Time to train with the fastest layout of every size that may be taken, at the recommended ZeRO stage, "
                f"whatever the limits say, as long as more are faster. Diamond: the recommended design.{dashed}"
            ),
            x_label="accelerators",
            quantity="days",
            lines=lines,
            chosen=_chosen(best, best.time_to_train_days, "days"),
        ),
        LinesFigure(
            name="scaling-cost",
            title=_cost_title(curves),
            note=(
                "Cost of the same runs. The recommended design may cost less than the fastest layout of its size, since "
                "it is the best compromise of all layouts."
            ),
            x_label="accelerators",
            quantity="usd",
            lines=tuple(_line(curve, curve.cost_usd) for curve in curves),
            chosen=_chosen(best, best.cost_usd, "usd"),
        ),
    ]


def _alike(job: Job, best: Design) -> Job:
    """The job with the recommended ZeRO stage, so that a size takes a fraction of a second."""
    chosen = {"zero_stages": (best.plan.zero_stage,)}
    return job.model_copy(update={"search": job.search.model_copy(update=chosen)})


def _curve(job: Job, offer: int, best: Design) -> _Curve:
    """The runs of one offer at its sizes; what cannot be laid out, or never ends, is left out."""
    alone = job.model_copy(update={"offers": (job.offers[offer],)})
    sizes = sizes_of(job, offer, best.plan.num_gpus, MOST_SIZES)
    runs = [(float(size), fastest_at(alone, size)) for size in sizes]
    known = [
        (size, float(run.scores.time_to_train_s[0]) / DAY, float(run.scores.cost_usd[0]))
        for size, run in runs
        if run is not None and np.isfinite(run.scores.time_to_train_s[0])
    ]
    end = _end_of_gain(known)
    shown = _while_faster(known)
    columns = [tuple(run[place] for run in shown) for place in range(3)]
    return _Curve(job.offers[offer].accelerator.id, columns[0], columns[1], columns[2], end)


def _end_of_gain(runs: list[_Run]) -> float | None:
    for (size, days, _), (more, fewer_days, _) in pairwise(runs):
        if days / fewer_days < LEAST_GAIN ** np.log2(more / size):
            return size
    return None


def _while_faster(runs: list[_Run]) -> list[_Run]:
    """The runs up to the last one that is faster than the one before."""
    slower = (row for row in range(1, len(runs)) if runs[row][1] >= runs[row - 1][1])
    return runs[: next(slower, len(runs))]


def _line(curve: _Curve, values: tuple[float, ...]) -> Line:
    end = curve.end_of_gain
    mark = None
    if end is not None:
        mark = Mark(value=end, label=f"{human.count(end)} {curve.accelerator}")
    return Line(label=curve.accelerator, x=curve.num_gpus, y=values, mark=mark)


def _chosen(best: Design, value: float, quantity: Quantity) -> LinePoint:
    """The recommended design, which need not be the fastest layout of its size."""
    label = f"recommended: {shown_name(best)}, {text(value, quantity)}"
    return LinePoint(x=float(best.plan.num_gpus), y=value, label=label)


def _title(curve: _Curve) -> str:
    end = curve.end_of_gain
    if end is None:
        return f"Up to {human.count(curve.num_gpus[-1])} {curve.accelerator} every doubling pays"
    return f"Beyond {human.count(end)} {curve.accelerator} doubling hardly pays"


def _cost_title(curves: list[_Curve]) -> str:
    cheapest = min(curves, key=lambda curve: min(curve.cost_usd))
    row = int(np.argmin(cheapest.cost_usd))
    size = human.count(cheapest.num_gpus[row])
    return (
        f"Among the fastest layouts that of {size} {cheapest.accelerator} costs least, "
        f"{text(cheapest.cost_usd[row], 'usd')}"
    )
