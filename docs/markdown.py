"""How are the tables of a page written, and where? Rows of cells as Markdown, and the marked parts that are regenerated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def replaced(text: str, name: str, body: str) -> str:
    """Returns a page with the part between `<!-- name -->` and `<!-- end -->` replaced."""
    start, end = f"<!-- {name} -->", "<!-- end -->"
    head, _, rest = text.partition(start)
    _, _, tail = rest.partition(end)
    return f"{head}{start}\n{body}\n{end}{tail}"


def table_of_numbers(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table with all columns but the first to the right."""
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def row_of_text(cells: Iterable[str]) -> str:
    """Returns a row of cells that may contain vertical bars."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
