"""Which reasons are one rule with different figures? A rule is told once, and below it the figures of each reason.

A reason is written as `field = value: rule`, as rules of layouts (`rule: name = figure, ...; nearest name: value`), or as a
sentence with figures in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.text.human import counted

_CELL = re.compile(r"(?P<field>\w+) = (?P<value>[^:;]+): (?P<rule>.+)")
_BETWEEN_RULES = re.compile(r"; (?!nearest )")
_IN_BRACKETS = re.compile(r" \((\d[\d,.]*)\)")


@dataclass(frozen=True, kw_only=True)
class RuleGroup:
    """One rule, with the rows that break it."""

    rule: str
    """The rule without figures, or the whole reason where it is the only one of its rule."""
    rows: tuple[str, ...]
    """All rows, in the order of the reasons."""
    by_figures: Mapping[str, Sequence[str]]
    """Rows by the figures with which they break it; empty where there is one reason alone."""


def rule_groups(reasons: Mapping[str, Sequence[str]]) -> list[RuleGroup]:
    """Returns the rules of reasons, in the order of their first ones.

    Args:
        reasons: rows by their reason.
    """
    found: dict[str, dict[str, str]] = {}
    for reason in reasons:
        rule, figures = _rule_and_figures(reason)
        found.setdefault(rule, {})[figures] = reason
    return [_group(rule, by_figures, reasons) for rule, by_figures in found.items()]


def _group(rule: str, by_figures: Mapping[str, str], reasons: Mapping[str, Sequence[str]]) -> RuleGroup:
    rows = tuple(row for reason in by_figures.values() for row in reasons[reason])
    if len(by_figures) == 1:
        return RuleGroup(rule=next(iter(by_figures.values())), rows=rows, by_figures={})
    return RuleGroup(
        rule=rule, rows=rows, by_figures={figures: reasons[reason] for figures, reason in by_figures.items()}
    )


def _rule_and_figures(reason: str) -> tuple[str, str]:
    """The rule that a reason is about, and what differs from row to row."""
    if cell := _CELL.fullmatch(reason):
        return f"{cell['field']}: {cell['rule']}", f"{cell['field']} = {cell['value']}"
    parts = [part.partition(": ") for part in _BETWEEN_RULES.split(reason)]
    if all(" = " in figures for _, _, figures in parts):
        return "; ".join(rule for rule, _, _ in parts), _joined(figures for _, _, figures in parts)
    return _IN_BRACKETS.sub("", reason), " and ".join(_IN_BRACKETS.findall(reason))


def _joined(figures_of_rules: Iterable[str]) -> str:
    """Returns the figures of several rules, each figure once, and the values near them that keep the rules."""
    figures: dict[str, None] = {}
    nearest: list[str] = []
    for told in figures_of_rules:
        pairs, *way_out = told.split("; ")
        figures |= dict.fromkeys(pairs.split(", "))
        nearest += way_out
    return "; ".join([", ".join(figures), *dict.fromkeys(nearest)])


def shown_lines(groups: Sequence[RuleGroup], most_figures: int) -> Iterator[tuple[str, Sequence[str]]]:
    """Yields the lines of a table: each rule with its rows, and below it those of its figures, indented.

    Args:
        groups: what to show.
        most_figures: of one rule; the others share a line.
    """
    for group in groups:
        yield group.rule, group.rows
        named = list(group.by_figures.items())
        for figures, rows in named[:most_figures]:
            yield f"  {figures}", rows
        if rest := [row for _, rows in named[most_figures:] for row in rows]:
            more = counted(len(named) - most_figures, "other set of figures", "other sets of figures")
            yield f"  {more}", rest
