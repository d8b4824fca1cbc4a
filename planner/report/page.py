"""How does a report become one page? The record as HTML, with styles, script and designs embedded.

The page shows all of its text and figures without the script; with it the front can be explored.
"""

from __future__ import annotations

from datetime import datetime
from importlib import resources
from string import Template
from typing import Final

from planner.report.build import DrawnReport
from planner.report.data import Figure, Report
from planner.report.designs import packed, zipped
from planner.report.figures import show_figure
from planner.report.html import Html, joined, tag
from planner.report.sections import (
    alternatives,
    comparisons,
    inputs,
    rejected,
    reproduction,
    verdict,
)
from planner.text import human
from simulator.units import GIGA, TERA

SCRIPTS: Final = (
    "record.js",
    "numbers.js",
    "designs.js",
    "scales.js",
    "scatter.js",
    "parallel.js",
    "controls.js",
)
"""The parts of the page's script, in order of their dependencies; they share one scope."""
SECTIONS: Final = {
    "where": ("Breakdowns", ("cost", "energy", "carbon", "run", "step", "memory")),
    "sure": ("Uncertainty of time and cost", ("finish", "cost-spread")),
    "change": ("Sensitivity of the recommendation", ("flips", "drivers-")),
    "scale": ("Scaling", ("scaling", "scaling-cost")),
}
"""Headings of the sections with figures, and the prefixes of the names of their figures."""


def page(drawn: DrawnReport) -> str:
    """Returns the report as one HTML file."""
    report = drawn.report
    sections = {
        "recommendation": ("Recommendation", verdict(report)),
        "front": ("Alternatives", alternatives(report)),
        **{name: (title, _figures(report, begins)) for name, (title, begins) in SECTIONS.items()},
        "compared": ("Uncertain inputs and what-if cases", comparisons(report.answer)),
        "rejected": ("Excluded designs", rejected(report.answer)),
        "inputs": ("Inputs", inputs(report)),
        "reproduce": ("Reproduce this answer", reproduction(report)),
    }
    shown = {name: entry for name, entry in sections.items() if entry[1]}
    layout, designs = packed(drawn.cloud)
    values = {
        "title": tag("title", f"{report.job.name}: capplan report"),
        "generator": report.format,
        "heading": joined(tag("h1", report.job.name), tag("p", _asked(report), class_="note")),
        "style": _file("report.css"),
        "script": "\n".join(_file(name) for name in SCRIPTS),
        "navigation": _navigation({name: title for name, (title, _) in shown.items()}),
        "sections": joined(*(_section(name, *entry) for name, entry in shown.items())),
        "report": zipped(report.model_dump_json().encode()),
        "layout": _embedded(layout),
        "designs": designs,
    }
    return Template(_file("page.html")).substitute(values)


def _asked(report: Report) -> str:
    """Returns the question in one line."""
    workload = report.job.workload
    size, word = (TERA, "trillion") if workload.tokens >= TERA else (GIGA, "billion")
    trained = f"{workload.model.name} on {human.digits(workload.tokens / size)} {word} tokens"
    answered = datetime.fromisoformat(report.answer.created_at)
    day = f"{answered.day} {answered:%B %Y}"
    return (
        f"{trained}; answered on {day} by capplan {report.answer.capplan_version}, seed {report.answer.seed}."
    )


def _figures(report: Report, begins: tuple[str, ...]) -> Html:
    return joined(*(show_figure(figure) for figure in report.figures if _is_in(figure, begins)))


def _is_in(figure: Figure, begins: tuple[str, ...]) -> bool:
    """Whether a figure belongs to a section; a name that ends with a hyphen is a prefix."""
    return any(
        figure.name == name or (name.endswith("-") and figure.name.startswith(name)) for name in begins
    )


def _section(name: str, title: str, content: Html) -> Html:
    return tag(
        "section",
        tag("h2", title, id=f"{name}-heading"),
        content,
        id=f"s-{name}",
        aria_labelledby=f"{name}-heading",
    )


def _navigation(titles: dict[str, str]) -> Html:
    links = [tag("li", tag("a", title, href=f"#s-{name}")) for name, title in titles.items()]
    return tag("nav", tag("ul", *links), aria_label="Sections")


def _embedded(text: str) -> str:
    """Returns JSON that cannot close the script element around it."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _file(name: str) -> str:
    return (resources.files("planner") / "report" / "page_parts" / name).read_text(encoding="utf-8")
