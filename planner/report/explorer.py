"""How is the front explored? On a canvas on which the page's script draws it, or, without a mouse, in a table."""

from __future__ import annotations

from typing import Final

from planner.recommended.design_words import layout, offer_words, site_words
from planner.recommended.told_apart import unseen_decisions
from planner.report.data import DesignCounts, FrontFigure, Quantity, Report, StepInterval
from planner.report.front import role_of
from planner.report.html import Html, joined, tag
from planner.report.tables import number, table
from planner.report.units import text
from planner.text import human
from studies.designs.spread_rows import spread_rows

MOST_ROWS: Final = 500
"""Most designs in the table of the front; the record has all of them."""
COLUMNS: tuple[tuple[str, str, Quantity], ...] = (
    ("time", "time_to_train_days", "days"),
    ("cost", "cost_usd", "usd"),
    ("energy", "energy_kwh", "kwh"),
    ("carbon", "carbon_kgco2e", "kgco2e"),
    ("peak power", "peak_power_w", "w"),
    ("memory", "peak_memory_bytes", "bytes"),
    ("MFU", "mfu_fraction", "fraction"),
    ("goodput", "goodput_fraction", "fraction"),
)
"""Columns of the table of the front, each with field and unit."""


def explorer(report: Report) -> Html:
    """Returns the figure of the front with its controls, and the table of the front."""
    figures = [figure for figure in report.figures if isinstance(figure, FrontFigure)]
    return joined(*(_stage(report, figure) for figure in figures), _front_table(report))


def _stage(report: Report, figure: FrontFigure) -> Html:
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("h3", figure.title, id="front-title"),
            tag("p", f"{figure.note} {_held_text(report.designs)}", class_="note", id="front-note"),
        ),
        tag(
            "div",
            _controls(),
            _scatter(),
            tag("p", class_="note", id="num-beyond", role="status"),
            _legend(report, figure),
            _details(),
            _parallel(),
            class_="scripted",
        ),
        tag(
            "noscript",
            tag("p", "The picture needs JavaScript; the table below lists the designs of the front."),
        ),
        id="front",
        role="group",
        aria_labelledby="front-title",
    )


def _held_text(counts: DesignCounts) -> str:
    """How many designs of each kind the page holds; the picture shows those near the front, and counts the others."""
    kinds = (
        (counts.num_feasible_drawn, counts.num_feasible, "feasible designs"),
        (counts.num_broken_drawn, counts.num_broken, "designs that violate a limit"),
    )
    held = [f"{human.count(shown)} of {human.count(total)} {kind}" for shown, total, kind in kinds if total]
    endless = counts.num_designs - counts.num_feasible - counts.num_broken
    never = f"; {human.count(endless)} designs whose run never ends are not shown" if endless else ""
    return f"On this page: {' and '.join(held)}{never}."


def _controls() -> Html:
    boxes = {
        "show-beaten": "dominated designs",
        "show-broken": "designs that violate a limit",
        "show-far": "designs far from the front",
        "show-errors": "error bars",
    }
    return tag(
        "form",
        *(
            tag("label", f"{name} ", tag("select", id=f"axis-{axis}"))
            for axis, name in (("x", "horizontal"), ("y", "vertical"))
        ),
        *(
            tag("label", tag("input", type="checkbox", id=key, checked=key != "show-far"), f" {name}")
            for key, name in boxes.items()
        ),
        tag("label", tag("input", type="checkbox", id="log-scale"), " logarithmic"),
        class_="controls",
        aria_label="Options of the picture",
    )


def _scatter() -> Html:
    return tag(
        "div",
        tag("canvas", id="cloud"),
        tag("canvas", id="overlay"),
        tag("div", id="tip", class_="tip", hidden=True),
        id="scatter",
        class_="stage",
        tabindex="0",
        role="application",
        aria_roledescription="scatter plot",
        aria_labelledby="front-title",
        aria_describedby="front-help",
    )


def _legend(report: Report, figure: FrontFigure) -> Html:
    names = {
        "recommended": "recommended",
        "tied": "indistinguishable from it",
        "front": "on the front",
        "beaten": "dominated",
        "broken": "violates a limit",
    }
    roles = {point.role for point in figure.points}
    counts = report.designs
    is_drawn = {
        **{role: role in roles for role in ("recommended", "tied", "front")},
        "beaten": counts.num_feasible_drawn > len(report.answer.front),
        "broken": counts.num_broken_drawn > 0,
    }
    keys = {key: name for key, name in names.items() if is_drawn[key]}
    return tag(
        "ul",
        *(tag("li", tag("span", class_=f"symbol {key}"), name) for key, name in keys.items()),
        class_="legend",
        aria_hidden="true",
    )


def _details() -> Html:
    return joined(
        tag(
            "p",
            "Point at a design, or move along the front with the arrow keys. To filter designs, drag over the picture or "
            "along a scale below; Escape clears the filter.",
            class_="note",
            id="front-help",
        ),
        tag("div", id="chosen", class_="chosen", aria_live="polite"),
    )


def _parallel() -> Html:
    return joined(
        tag("h4", "All figures of a design at once", id="parallel-title"),
        tag(
            "p",
            "Each line is a design of the front and crosses each scale at its value; low values are on the left.",
            class_="note",
        ),
        tag(
            "div",
            tag("canvas", id="parallel-lines"),
            id="parallel",
            class_="stage",
            role="img",
            aria_labelledby="parallel-title",
        ),
        tag(
            "p",
            tag("span", id="num-kept", role="status"),
            " ",
            tag("button", "Clear filters", id="clear-filters", type="button"),
        ),
        tag(
            "details",
            tag("summary", "Enter filters as numbers"),
            tag("div", id="typed-filters", class_="typed"),
        ),
    )


def _front_table(report: Report) -> Html:
    """The front; if it is too long for a page, some of its designs, evenly spread."""
    front = report.answer.front
    shown = spread_rows(len(front), MOST_ROWS).tolist()
    unseen = unseen_decisions([front[row] for row in shown])
    rows = [_row(report, row, told) for row, told in zip(shown, unseen, strict=True)]
    heading = ["design", "accelerators", "layout", *(name for name, _, _ in COLUMNS), "80 % interval", "role"]
    designs = human.designs(len(front))
    title = designs if len(rows) == len(front) else f"{human.count(len(rows))} of {designs}"
    return tag(
        "details",
        tag("summary", f"The front as a table, {title}"),
        table("Designs of the front, ordered by the first objective", heading, rows),
        id="front-table",
    )


def _row(report: Report, row: int, unseen: str) -> list[str]:
    design, place = report.answer.front[row], f"answer.front.{row}"
    button = tag(
        "button",
        str(design.design_id),
        type="button",
        class_="pick",
        data_design=design.design_id,
        aria_label=f"Show design {design.design_id} in the picture",
    )
    role, interval = role_of(report.answer, design), report.step_intervals[design.design_id]
    figures = [
        number(getattr(design, field), text(getattr(design, field), quantity), f"{place}.{field}")
        for _, field, quantity in COLUMNS
    ]
    offer = offer_words(design, report.answer.front)
    return [
        button,
        f"{human.count(design.plan.num_gpus)} x {design.accelerator}{offer}{site_words(report.answer, design)}",
        f"{layout(design.plan)}{unseen}",
        *figures,
        _interval(interval, f"step_intervals.{design.design_id}"),
        "" if role == "front" else role,
    ]


def _interval(interval: StepInterval, path: str) -> Html:
    """How far the ends of the interval of a step are from it."""
    low, high = (
        number(end, human.signed_percent(end - 1.0, num_decimals=0), f"{path}.{name}")
        for name, end in interval
    )
    return joined(low, " to ", high)
