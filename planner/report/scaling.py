"""How do time and cost scale with the number of accelerators? The best designs over the sizes of an offer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.recommended.recommendation import Design, Recommendation
from planner.report.breakdowns import shown_name
from planner.report.data import Line, LinePoint, LinesFigure, Mark, Quantity
from planner.report.designs import DesignCloud
from planner.report.fastest import FastestRuns
from planner.report.rivals import sizes_of
from planner.report.units import text
from planner.text import human
from planner.text.limit_words import are_feasible
from simulator.domain.job import Job
from simulator.table import Booleans, Floats
from simulator.units import DAY
from studies.designs.archive import SAME_WITHIN_FRACTION

MOST_SIZES: Final = 10
"""Most sizes of each accelerator that are drawn, in addition to the recommended one and, for costs, the ends."""
MOST_CURVES: Final = 3
"""Most accelerators that are compared, those of the front first."""
LEAST_SIZES: Final = 2
"""Least sizes for a curve; two show whether doubling pays off."""
LEAST_GAIN: Final = 2.0**0.5
"""Speed-up from doubling the accelerators below which it barely pays off: each one adds less than half of its share."""
DOUBLE: Final = 1.9
"""Ratio of sizes from which the larger one counts as double the smaller one."""

DECISIVE: Final = {"node", "num_gpus", "fabric", "max_nodes", "interruptions_per_1000_node_days"}
"""Terms of an offer that decide how long its runs take at which sizes."""

_Run = tuple[float, float]
"""Number of accelerators, and days or USD."""


@dataclass(frozen=True)
class _Curve:
    """The best figure of one accelerator at each of its sizes."""

    accelerator: str
    runs: tuple[_Run, ...]
    end_of_gain: float | None = None
    """First size whose doubling does not pay off; `None` if every known doubling does."""
    has_doubles: bool = False
    """Whether any double of a size is known."""


def scaling(
    job: Job, answer: Recommendation, best: Design, cloud: DesignCloud, fastest: FastestRuns
) -> list[LinesFigure]:
    """Returns time and cost against the number of accelerators, each only if enough sizes are known.

    Args:
        job: the job.
        answer: the answer to the job.
        best: the recommended design.
        cloud: all simulated designs.
        fastest: the fastest runs of the job.
    """
    known = [best.accelerator, *(design.accelerator for design in answer.front)]
    known = list(dict.fromkeys([*known, *(offer.accelerator.id for offer in job.offers)]))
    names, left_out = known[:MOST_CURVES], known[MOST_CURVES:]
    times = [_time_curve(job, name, best, cloud, fastest) for name in names]
    costs = [_Curve(name, _cheapest(name, answer, best, cloud)) for name in names]
    mixed = [name for name in names if len(set(_are_bought(job, name))) > 1]
    return [*_time_figure(times, best, left_out), *_cost_figure(costs, answer, best, left_out, mixed)]


def _are_bought(job: Job, name: str) -> list[bool]:
    """Whether each offer of an accelerator is for sale."""
    return [offer.purchase_usd_per_node is not None for offer in job.offers if offer.accelerator.id == name]


def _long(curves: list[_Curve]) -> list[_Curve]:
    return [curve for curve in curves if len(curve.runs) >= LEAST_SIZES]


def _short_text(curves: list[_Curve]) -> str:
    """The accelerators without a curve, and the reason."""
    names = [curve.accelerator for curve in curves if len(curve.runs) < LEAST_SIZES]
    return f" Not drawn: {', '.join(names)}, with fewer than {LEAST_SIZES} such sizes." if names else ""


def _left_out_text(names: list[str]) -> str:
    """The accelerators on offer that are not compared."""
    return (
        f" Not compared: {', '.join(names)}; at most {MOST_CURVES} accelerators are drawn." if names else ""
    )


def _time_figure(known: list[_Curve], best: Design, left_out: list[str]) -> Iterator[LinesFigure]:
    curves = _long(known)
    if not curves:
        return
    lines = tuple(_line(curve) for curve in curves)
    dashed = (
        " Dashed vertical line: the size from which doubling the accelerators gives a speed-up below 1.41."
        if any(line.mark for line in lines)
        else ""
    )
    yield LinesFigure(
        name="scaling",
        title=curve_title(curves[0]),
        note=(
            "Time to train of the fastest simulated layout with at most this many accelerators, at the recommended ZeRO "
            "stage and regardless of limits; sizes that are not faster than a smaller one are not drawn. "
            f"Diamond: the recommended design.{dashed}{_short_text(known)}{_left_out_text(left_out)}"
        ),
        x_label="accelerators",
        quantity="days",
        lines=lines,
        chosen=_chosen(best, best.time_to_train_days, "days"),
    )


def _cost_figure(
    known: list[_Curve], answer: Recommendation, best: Design, left_out: list[str], mixed: list[str]
) -> Iterator[LinesFigure]:
    curves = _long(known)
    if not curves or best.cost_usd == 0.0:
        return
    feasible = are_feasible(1, has_limits=answer.has_limits)
    of_both = f" Rented or bought, whichever is cheaper at a size: {', '.join(mixed)}." if mixed else ""
    yield LinesFigure(
        name="scaling-cost",
        title=_cost_title(curves),
        note=(
            f"Cost of the cheapest simulated design of each size that {feasible}. Of many sizes, the cheapest of "
            "each group of neighbours is drawn; sizes between the points may cost more, because they split batch or "
            f"layers unevenly. Diamond: the recommended design.{of_both}{_short_text(known)}{_left_out_text(left_out)}"
        ),
        is_joined=False,
        x_label="accelerators",
        quantity="usd",
        lines=tuple(_line(curve) for curve in curves),
        chosen=_chosen(best, best.cost_usd, "usd"),
    )


def _time_curve(job: Job, name: str, best: Design, cloud: DesignCloud, fastest: FastestRuns) -> _Curve:
    """The fastest runs of one accelerator with at most as many as each size of its offers has.

    Sizes without a layout, or at which no run ends, are left out.
    """
    simulated = _least_by_size(cloud, name, cloud.days, cloud.is_possible)
    runs = [(float(size), days) for size, days in simulated.items() if np.isfinite(days)]
    drawn: set[int] = set()
    for offer in _unlike_offers(job, name):
        sizes = sizes_of(job, offer, best.plan.num_gpus, MOST_SIZES)
        drawn.update(sizes)
        for size, run in zip(sizes, fastest.at(offer, sizes), strict=True):
            laid_out_s = float(run.scores.time_to_train_s[0]) if run is not None else np.inf
            runs += [(float(size), laid_out_s / DAY)] if np.isfinite(laid_out_s) else []
    known = {size for size, _ in runs}
    return curve_of(name, [(size, _fastest_within(runs, size)) for size in sorted(drawn & known)])


def _unlike_offers(job: Job, name: str) -> list[int]:
    """The offers of an accelerator, one of those whose runs take the same time at the same sizes."""
    unlike: dict[str, int] = {}
    for number, offer in enumerate(job.offers):
        if offer.accelerator.id == name:
            unlike.setdefault(offer.model_dump_json(include=DECISIVE), number)
    return list(unlike.values())


def _fastest_within(runs: list[_Run], size: float) -> _Run:
    """The fastest run with at most `size` accelerators."""
    return min((run for run in runs if run[0] <= size), key=lambda run: (run[1], run[0]))


def curve_of(name: str, fastest: list[tuple[float, _Run]]) -> _Curve:
    """Returns the curve of the fastest run within each size, by increasing size; each run once."""
    runs = tuple(dict.fromkeys(run for _, run in fastest))
    doubles = [
        (few, next(((size, run) for size, run in fastest if size >= DOUBLE * few[0]), None)) for few in runs
    ]
    known = [(few, *double) for few, double in doubles if double is not None]
    ends = (
        size
        for (size, days), more, (_, fewer_days) in known
        if days / fewer_days < LEAST_GAIN ** np.log2(more / size)
    )
    return _Curve(name, runs, next(ends, None), has_doubles=bool(known))


def _cheapest(name: str, answer: Recommendation, best: Design, cloud: DesignCloud) -> tuple[_Run, ...]:
    """The lowest cost of one accelerator by size in the study; designs of the front keep the front's figures.

    Sizes that cost nothing have no place on a logarithmic axis.
    """
    found = _least_by_size(cloud, name, cloud.cost_usd, cloud.broken == 0)
    for design in answer.front:
        size = design.plan.num_gpus
        # The front shows only one of several nearly equal designs, which need not be the cheapest of them.
        is_same = design.cost_usd <= found.get(size, np.inf) * (1.0 + SAME_WITHIN_FRACTION)
        if design.accelerator == name and is_same:
            found[size] = design.cost_usd
    kept = few_sizes(found) | ({best.plan.num_gpus} & found.keys())
    return tuple((float(size), found[size]) for size in sorted(kept) if found[size] > 0.0)


def few_sizes(costs: Mapping[int, float]) -> set[int]:
    """Returns the smallest and the largest of many sizes, and the cheapest of each group of neighbours.

    A size that splits the batch or the layers badly would hide what its neighbours cost.

    Args:
        costs: the cost of each size, in any unit.
    """
    sizes = sorted(costs)
    groups = np.array_split(sizes, min(len(sizes), MOST_SIZES)) if sizes else []
    cheapest = {min(group.tolist(), key=costs.__getitem__) for group in groups}
    return cheapest | {*sizes[:1], *sizes[-1:]}


def _least_by_size(cloud: DesignCloud, name: str, values: Floats, is_taken: Booleans) -> dict[int, float]:
    """The smallest value of one accelerator at each size, among the rows in `is_taken`."""
    if name not in cloud.accelerators:
        return {}
    rows = np.flatnonzero(is_taken & (cloud.accelerator == cloud.accelerators.index(name)))
    sizes, place = np.unique(cloud.num_gpus[rows], return_inverse=True)
    least = np.full(len(sizes), np.inf)
    np.minimum.at(least, place, values[rows])
    return {int(size): float(value) for size, value in zip(sizes, least, strict=True)}


def _line(curve: _Curve) -> Line:
    end = curve.end_of_gain
    mark = None
    if end is not None:
        mark = Mark(value=end, label=f"{human.count(end)} {curve.accelerator}")
    sizes, values = zip(*curve.runs, strict=True)
    return Line(label=curve.accelerator, x=sizes, y=values, mark=mark)


def _chosen(best: Design, value: float, quantity: Quantity) -> LinePoint:
    """The recommended design, which need not be the fastest layout of its size."""
    label = f"recommended: {shown_name(best)}, {text(value, quantity)}"
    return LinePoint(x=float(best.plan.num_gpus), y=value, label=label)


def curve_title(curve: _Curve) -> str:
    """Returns what a curve of times shows, in words."""
    end = curve.end_of_gain
    if end is None:
        (fewest, most_days), (most, fewest_days) = curve.runs[0], curve.runs[-1]
        sizes = f"{human.count(fewest)} to {human.count(most)} {curve.accelerator}"
        if curve.has_doubles:
            return f"Every doubling pays off from {sizes}"
        return f"{sizes}: {text(most_days, 'days')} to {text(fewest_days, 'days')}"
    return f"Beyond {human.count(end)} {curve.accelerator}, doubling barely pays off"


def _cost_title(curves: list[_Curve]) -> str:
    cost_usd, size, name = min(
        (cost, size, curve.accelerator) for curve in curves for size, cost in curve.runs
    )
    return f"Lowest cost: {text(cost_usd, 'usd')} with {human.count(size)} {name}"
