"""What do all HTML pages share? One frame: a title, a body, and a style for light and dark, screen and paper.

A page loads nothing else, so it opens offline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """\
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6472; --line: #d8dde4; --ground: #fff; --raised: #f5f7f9;
  --accent: #0b5cad; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #a2abb8; --line: #39414d; --ground: #14181e;
  --raised: #1d232b; --accent: #7db8f5; } }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: var(--ground); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { margin-top: 2.2rem; font-size: 1.25rem; } h3 { font-size: 1.05rem; }
a { color: var(--accent); } a:focus-visible, summary:focus-visible { outline: 2px solid var(--accent); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.92rem; }
th, td { padding: 0.3rem 0.8rem 0.3rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.sum td { border-top: 2px solid var(--ink); font-weight: 600; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.88em; }
pre { overflow-x: auto; padding: 0.8rem 1rem; background: var(--raised); border-radius: 6px; }
.note { color: var(--soft); }
@media print { main { max-width: none; } a { color: inherit; } pre, .wide { overflow: visible; } }
"""
"""Style of every page."""


def page(title: str, body: str, *, style: str = "") -> str:
    """Returns a whole page.

    Args:
        title: plain text.
        body: HTML of the main part.
        style: more style than `STYLE`.
    """
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers_from: int = 0, has_sum: bool = False
) -> str:
    """Returns a table of plain texts.

    Args:
        heads: of the columns.
        rows: cells as plain text.
        numbers_from: columns from here on are numbers; 0: none.
        has_sum: whether the last row is the sum of the others.
    """

    def cell(tag: str, index: int, text: str) -> str:
        kind = ' class="number"' if numbers_from and index >= numbers_from else ""
        if tag == "td" and index and heads[index]:
            kind += f' data-head="{escape(heads[index])}"'
        return f"<{tag}{kind}>{escape(text)}</{tag}>"

    lines = [list(row) for row in rows]
    marks = [' class="sum"' if has_sum and number == len(lines) - 1 else "" for number in range(len(lines))]
    body = "\n".join(
        f"<tr{mark}>{''.join(cell('td', index, text) for index, text in enumerate(line))}</tr>"
        for mark, line in zip(marks, lines, strict=True)
    )
    head = "".join(cell("th", index, text) for index, text in enumerate(heads))
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
    )
