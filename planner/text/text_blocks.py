"""How is an answer written to a terminal? Titles, rows and sentences with rich, as in `planner.views.render`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

_INDENT = 2
_GAP = 2
"""Spaces between columns."""
BAR_LENGTH = 30
"""Length of a bar of 100 %, on lines that are long enough."""
_FULL_WIDTH = 100
"""Characters of a line on which bars have their full length."""
_BAR_SIGNS = frozenset(" █│#|")


def headline(console: Console, text: str, *, is_good: bool) -> None:
    """Writes the first line of an answer."""
    console.print(Text(text, style="bold green" if is_good else "bold red"))


def show_doubts(console: Console, texts: Iterable[str]) -> None:
    """Writes doubts about the first line of an answer."""
    for text in texts:
        console.print(Text(text, style="bold yellow"))


def title(console: Console, text: str) -> None:
    """Writes the heading of a section."""
    console.print()
    console.print(Text(text[0].upper() + text[1:], style="bold"))


def sentences(console: Console, texts: Iterable[str], *, indent: int = _INDENT) -> None:
    """Writes indented sentences."""
    for text in texts:
        console.print(Padding(Text(text), (0, 0, 0, indent)))


def command_line(console: Console, command: str) -> None:
    """Writes one line without wrapping it, so that it can be copied."""
    console.print(Text(" " * 2 * _INDENT + command, style="cyan"), soft_wrap=True)


def plain_table(*, gap: int = 2, shows_headings: bool = True) -> Table:
    """Returns a table without borders, with this gap between columns."""
    return Table(
        box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold", show_header=shows_headings
    )


def grid(console: Console, rows: Iterable[Sequence[str]]) -> None:
    """Writes rows of cells without a heading; words and bars are not broken if there is room for them."""
    cells = list(rows)
    columns = list(zip_longest(*cells, fillvalue=""))
    room = console.width - _INDENT - _GAP * (len(columns) - 1)
    table = Table.grid(padding=(0, _GAP, 0, 0))
    for width in _column_widths(columns, room):
        table.add_column(width=width, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(Padding(table, (0, 0, 0, _INDENT)))


def side_by_side(
    console: Console, rows: Sequence[Sequence[str]], *, num_first: int
) -> list[list[tuple[str, ...]]]:
    """Returns tables that have room beside each other's: each with the first columns and as many others as fit unbroken.

    Args:
        console: where they are written.
        rows: cells of one wide table, all rows of one length.
        num_first: columns that every table repeats.
    """
    widths = [max(map(cell_len, column)) + _GAP for column in zip(*rows, strict=True)]
    room = console.width - _INDENT + _GAP - sum(widths[:num_first])
    groups: list[list[int]] = []
    for column in range(num_first, len(widths)):
        if not groups or sum(widths[each] for each in groups[-1]) + widths[column] > room:
            groups.append([])
        groups[-1].append(column)
    return [[(*row[:num_first], *(row[column] for column in group)) for row in rows] for group in groups]


def _column_widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Returns column widths that fit into `room`: the widest column shrinks first, none below its longest word."""
    widths = [max(map(cell_len, column)) for column in columns]
    words = [max(map(_longest_word, column)) for column in columns]
    while sum(widths) > room:
        loose = [index for index, width in enumerate(widths) if width > words[index]]
        if not loose:
            break
        widths[max(loose, key=widths.__getitem__)] -= 1
    return widths


def _longest_word(cell: str) -> int:
    is_bar = _BAR_SIGNS.issuperset(cell)
    return cell_len(cell) if is_bar else max(map(cell_len, cell.split()), default=0)


def bar(console: Console, fraction: float) -> str:
    """Returns a bar, whole from 100 % on; in ASCII if the output cannot encode blocks."""
    sign = "█" if console.encoding.lower().startswith("utf") else "#"
    return sign * max(1, round(bar_length(console, BAR_LENGTH) * min(1.0, fraction)))


def bar_length(console: Console, full: int) -> int:
    """Returns the length of a bar, `full` on lines of `_FULL_WIDTH` and shorter on shorter lines."""
    return min(full, full * console.width // _FULL_WIDTH)
