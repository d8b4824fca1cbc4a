"""What does the front look like? A picture of it for MLflow's files, which needs nothing but a browser to be seen."""

from __future__ import annotations

import io
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from planner import human

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from planner.recommendation import Design, Recommendation

FIGURES_OF_A_DESIGN = {
    "time_to_train_days": "time to train, days",
    "cost_usd": "cost, USD",
    "energy_kwh": "energy, kWh",
    "carbon_kgco2e": "carbon, kg CO2e",
}
"""What is drawn of each design, with its unit."""
PANEL_INCHES = 4.0


def front_figures(answer: Recommendation) -> dict[str, bytes]:
    """Returns the figures of an answer by file name; none where there is no front."""
    if not answer.front:
        return {}
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Equal fronts give equal files, and texts stay texts.
    with mpl.rc_context({"svg.hashsalt": "capplan", "svg.fonttype": "none"}):
        trade_offs, parallel = Figure(layout="constrained"), Figure(layout="constrained")
        _draw_trade_offs(trade_offs, answer)
        _draw_parallel(parallel.subplots(), answer)
        return {"front.svg": _svg(trade_offs), "front-parallel.svg": _svg(parallel)}


def _draw_trade_offs(figure: Figure, answer: Recommendation) -> None:
    """A panel for every pair of figures: a dot per design, the recommended one ringed."""
    pairs = list(combinations(FIGURES_OF_A_DESIGN, 2))
    figure.set_size_inches(3 * PANEL_INCHES, -(-len(pairs) // 3) * PANEL_INCHES)
    panels = figure.subplots(-(-len(pairs) // 3), 3)
    for panel, (first, second) in zip(np.ravel(panels), pairs, strict=True):
        panel.scatter(_values(answer.front, first), _values(answer.front, second), s=18)
        if answer.recommendation is not None:
            best = (answer.recommendation,)
            panel.scatter(
                _values(best, first), _values(best, second), s=90, facecolors="none", edgecolors="C3"
            )
        panel.set_xlabel(FIGURES_OF_A_DESIGN[first])
        panel.set_ylabel(FIGURES_OF_A_DESIGN[second])
    figure.suptitle(
        f"{answer.job}: front of {human.count(len(answer.front))} designs, recommended one ringed"
    )


def _draw_parallel(panel: Axes, answer: Recommendation) -> None:
    """A line per design over all figures, each between its least and largest value on the front."""
    names = list(FIGURES_OF_A_DESIGN)
    values = np.column_stack([_values(answer.front, name) for name in names])
    low, width = values.min(axis=0), np.ptp(values, axis=0)
    heights = np.where(width > 0.0, (values - low) / np.where(width > 0.0, width, 1.0), 0.5)
    recommended = answer.recommendation.design_id if answer.recommendation else None
    for design, line in zip(answer.front, heights, strict=True):
        is_best = design.design_id == recommended
        panel.plot(
            line, color="C3" if is_best else "C0", linewidth=2.5 if is_best else 0.8, zorder=2 + is_best
        )
    labels = [
        f"{FIGURES_OF_A_DESIGN[name]}\n{least:.4g} to {most:.4g}"
        for name, least, most in zip(names, low, values.max(axis=0), strict=True)
    ]
    panel.set_xticks(range(len(names)), labels)
    panel.set_yticks([0.0, 1.0], ["least", "most"])
    panel.set_title(f"{answer.job}: front, recommended design thick")


def _values(designs: tuple[Design, ...], name: str) -> list[float]:
    return [float(getattr(design, name)) for design in designs]


def _svg(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()
