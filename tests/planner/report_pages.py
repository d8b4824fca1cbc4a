"""Which words, numbers and records does a report's page contain?"""

from __future__ import annotations

import base64
import gzip
from html.parser import HTMLParser

from planner.recommended.recommendation import Design
from planner.report.data import Report
from tests.planner.report_studies import drawn


class Page(HTMLParser):
    """The content of a page as a browser sees it: numbers with their paths, scripts by id, tags, and texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.numbers: list[tuple[str, str, str]] = []
        self.scripts: dict[str, str] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: dict[str, str | None] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = dict(attrs) | {"tag": tag}
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        name = self._open.get("id")
        if self._open.get("tag") == "data":
            place, value = self._open["data-path"], self._open["value"]
            assert place is not None
            assert value is not None
            self.numbers.append((place, value, data))
            self._open = {}
        elif self._open.get("tag") == "script" and name:
            self.scripts[name] = self.scripts.get(name, "") + data

    def record(self) -> str:
        """The record in the page."""
        return gzip.decompress(base64.b64decode(self.scripts["report-data"])).decode()


def best_of(report: Report) -> Design:
    assert report.answer.recommendation is not None
    return report.answer.recommendation


def figure(name: str) -> object:
    return {each.name: each for each in drawn().report.figures}[name]
