"""How does an answer look on a terminal? Titles, rows and sentences with rich, as in `planner.views.render`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

_INDENT = 2
BAR_LENGTH = 30
"""Characters of a part that is everything."""


def headline(console: Console, text: str, *, is_good: bool) -> None:
    """Writes the first line of an answer."""
    console.print(Text(text, style="bold green" if is_good else "bold red"))


def doubt(console: Console, text: str) -> None:
    """Writes what calls the first line of an answer in question, where there is anything."""
    if text:
        console.print(Text(text, style="bold yellow"))


def title(console: Console, text: str) -> None:
    """Writes the heading of a section."""
    console.print()
    console.print(Text(text[0].upper() + text[1:], style="bold"))


def sentences(console: Console, texts: Iterable[str], *, indent: int = _INDENT) -> None:
    """Writes indented sentences."""
    for text in texts:
        console.print(Padding(Text(text), (0, 0, 0, indent)))


def plain_table(*, gap: int = 2, shows_headings: bool = True) -> Table:
    """Returns a table without lines, its columns so many characters apart."""
    return Table(
        box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold", show_header=shows_headings
    )


def grid(console: Console, rows: Iterable[Sequence[str]]) -> None:
    """Writes rows of cells under each other, without a heading."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(Padding(table, (0, 0, 0, _INDENT)))


def bar(console: Console, fraction: float) -> str:
    """Returns a bar; plain signs where the output cannot carry blocks."""
    sign = "█" if console.encoding.lower().startswith("utf") else "#"
    return sign * max(1, round(BAR_LENGTH * fraction))
