"""How do the pages become a site? Every page of docs/ and the README as HTML, with navigation, for any browser, offline.

python -m docs.site --output DIR      writes the site into a new folder DIR; open DIR/index.html

The site keeps the folders of the repository: docs/model.md becomes docs/model.html, and files to which pages link, such as
examples, are copied to where the links expect them. Nothing is loaded from elsewhere, and no script runs.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from os.path import relpath
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from planner.text.page_frame import page

ROOT = Path(__file__).parents[1]
HOME = Path("README.md")
SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Start",
        (
            "README.md",
            "docs/getting-started.md",
            "docs/concepts.md",
            "docs/by-hand.md",
            "docs/limits.md",
        ),
    ),
    (
        "How to",
        (
            "docs/how-to/budget.md",
            "docs/how-to/deadline.md",
            "docs/how-to/own-cluster.md",
            "docs/how-to/frameworks.md",
            "docs/how-to/muon.md",
            "docs/how-to/images.md",
            "docs/how-to/buy.md",
            "docs/how-to/power-cap.md",
            "docs/how-to/own-prices.md",
            "docs/how-to/carbon-report.md",
            "docs/calibrate.md",
            "docs/how-to/checkpoint-schemes.md",
            "docs/how-to/uneven-stages.md",
            "docs/how-to/explain-a-step.md",
            "docs/how-to/traces.md",
            "docs/how-to/opendc.md",
            "docs/how-to/long-sequences.md",
            "docs/how-to/script.md",
            "docs/how-to/tracking-server.md",
            "docs/many-machines.md",
        ),
    ),
    (
        "Commands",
        (
            "docs/simulate.md",
            "docs/launch.md",
            "docs/timeline.md",
            "docs/goodput.md",
            "docs/sweep.md",
            "docs/studies.md",
            "docs/compare.md",
            "docs/report.md",
            "docs/constraints.md",
            "docs/purchase.md",
            "docs/network-file.md",
            "docs/exit-codes.md",
        ),
    ),
    ("Files", ("docs/job-file.md", "docs/measured-rows.md", "docs/answer.md", "docs/schemas.md")),
    (
        "The equations",
        (
            "docs/model.md",
            "docs/model/layouts.md",
            "docs/model/memory.md",
            "docs/model/kernels.md",
            "docs/model/network.md",
            "docs/model/layers.md",
            "docs/model/experts.md",
            "docs/model/context-parallelism.md",
            "docs/model/sparse-attention.md",
            "docs/model/compressed-attention.md",
            "docs/model/hybrids.md",
            "docs/model/hyper-connections.md",
            "docs/model/vision.md",
            "docs/model/adapters.md",
            "docs/model/pipeline.md",
            "docs/model/replicas.md",
            "docs/model/muon.md",
            "docs/model/checkpoints.md",
            "docs/model/run.md",
            "docs/model/stragglers.md",
            "docs/model/power-cost-carbon.md",
            "docs/model/search.md",
        ),
    ),
    (
        "How it works",
        (
            "docs/deep.md",
            "docs/deep/plans.md",
            "docs/deep/comparisons.md",
            "docs/cost-energy-carbon.md",
            "docs/validation.md",
            "docs/whole-runs.md",
            "docs/perfsim.md",
            "docs/systems.md",
            "docs/catalog-sources.md",
        ),
    ),
)
"""Headings of the navigation with their pages in reading order; all other pages follow under `More`."""
STYLE = """\
header { border-bottom: 1px solid var(--line); } header a { color: var(--ink); font-weight: 650; text-decoration: none; }
header p, .frame { max-width: 82rem; margin: 0 auto; padding: 0.7rem 1rem; }
.frame { display: grid; grid-template-columns: 15rem minmax(0, 1fr); gap: 2rem; align-items: start; }
.frame main { grid-column: 2; grid-row: 1; max-width: none; min-width: 0; margin: 0; padding: 0 0 4rem; }
.frame main > * { max-width: 52rem; } .frame main > pre, .frame main > .wide { max-width: 66rem; }
header p { display: flex; justify-content: space-between; } header .pages { display: none; }
nav.site { grid-column: 1; grid-row: 1; position: sticky; top: 0;
  max-height: 100vh; overflow-y: auto; overscroll-behavior: contain; scrollbar-gutter: stable; padding: 0.6rem 0 1.5rem;
  font-size: 0.92rem; }
nav.site h2 { margin: 1rem 0 0.2rem; font-size: 0.8rem; color: var(--soft);
  text-transform: uppercase; letter-spacing: 0.05em; }
nav.site ul { margin: 0; padding: 0; list-style: none; } nav.site a { display: block; padding: 0.15rem 0; }
nav.site a[aria-current] { color: var(--ink); font-weight: 650; text-decoration: none; }
.around { display: flex; justify-content: space-between; gap: 1rem; margin-top: 3rem; border-top: 1px solid var(--line); }
.skip { position: absolute; left: -99rem; } .skip:focus { left: 1rem; }
img { max-width: 100%; height: auto; background: #fff; } blockquote { margin-left: 0; color: var(--soft); }
@media (max-width: 52rem) { .frame { display: block; } nav.site { position: static; max-height: none; }
  header .pages { display: inline; } }
@media (max-width: 34rem) { main .wide table, main .wide tbody, main .wide tr, main .wide td { display: block; }
  main .wide thead { position: absolute; left: -99rem; }
  main .wide tr { padding: 0.5rem 0; border-bottom: 1px solid var(--line); }
  main .wide td { padding: 0.1rem 0; border: 0; overflow-wrap: anywhere; } main .wide td:empty { display: none; }
  main .wide td[data-head]::before { content: attr(data-head) ": "; color: var(--soft); } }
@media print { nav.site, header, .around { display: none; } .frame { display: block; } }
"""
LINKS = ("href", "src")


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of the site."""

    source: Path
    """Its Markdown, relative to the repository."""
    title: str
    """Its first heading."""

    @property
    def target(self) -> Path:
        """Path of its HTML in the site."""
        return Path("index.html") if self.source == HOME else self.source.with_suffix(".html")


def build(output: Path) -> list[Path]:
    """Writes the site into a folder and returns its pages.

    Raises:
        FileNotFoundError: a page links to a file that does not exist.
    """
    sections = _sections()
    ordered = [found for _, pages in sections for found in pages]
    written = []
    for index, found in enumerate(ordered):
        around = (
            ordered[index - 1] if index else None,
            ordered[index + 1] if index + 1 < len(ordered) else None,
        )
        file = output / found.target
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_html(found, sections, around, output), encoding="utf-8")
        written.append(file)
    return written


def _sections() -> list[tuple[str, list[Page]]]:
    """Returns the navigation with all pages that exist."""
    sources = [HOME, *(path.relative_to(ROOT) for path in sorted((ROOT / "docs").rglob("*.md")))]
    pages = {str(source): Page(source=source, title=_title(source)) for source in sources}
    named = {name for _, names in SECTIONS for name in names}
    others = [found for name, found in pages.items() if name not in named]
    found = [(head, [pages[name] for name in names if name in pages]) for head, names in SECTIONS]
    return [*found, *([("More", others)] if others else [])]


def _title(source: Path) -> str:
    match = re.search(r"^# (.+)$", (ROOT / source).read_text(encoding="utf-8"), re.MULTILINE)
    return match[1].strip().replace("`", "") if match else source.stem


def _html(
    found: Page,
    sections: list[tuple[str, list[Page]]],
    around: tuple[Page | None, Page | None],
    output: Path,
) -> str:
    text = (ROOT / found.source).read_text(encoding="utf-8")
    home = _path(found, Path("index.html"))
    body = (
        '<a class="skip" href="#content">To the text</a>\n'
        f'<header><p><a href="{home}">capplan</a><a class="pages" href="#pages">All pages</a></p></header>\n'
        f'<div class="frame">\n<main id="content">\n{_rendered(text, found, output)}{_around(found, around)}</main>\n'
        f"{_navigation(found, sections)}\n</div>"
    )
    title = "capplan" if found.source == HOME else f"{found.title} - capplan"
    return page(title, body, style=STYLE)


def _navigation(current: Page, sections: list[tuple[str, list[Page]]]) -> str:
    lines = ['<nav class="site" id="pages" aria-label="Pages">']
    for head, pages in sections:
        lines.append(f"<h2>{escape(head)}</h2><ul>")
        for each in pages:
            mark = ' aria-current="page"' if each == current else ""
            title = "Overview" if each.source == HOME else each.title
            lines.append(f'<li><a href="{_path(current, each.target)}"{mark}>{escape(title)}</a></li>')
        lines.append("</ul>")
    return "\n".join([*lines, "</nav>"])


def _around(current: Page, around: tuple[Page | None, Page | None]) -> str:
    """Links to the previous and the next page."""
    links = [
        f'<p><a rel="{rel}" href="{_path(current, each.target)}">{word} {escape(each.title)}</a></p>'
        if each
        else "<p></p>"
        for each, rel, word in zip(around, ("prev", "next"), ("Before:", "Next:"), strict=True)
    ]
    return f'<div class="around">{"".join(links)}</div>\n'


def _path(current: Page, target: Path) -> str:
    return Path(relpath(target, current.target.parent)).as_posix()


def _rendered(text: str, found: Page, output: Path) -> str:
    """Returns a page's Markdown as HTML; its links lead to pages of the site and to files that are copied."""
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    tokens = parser.parse(text)
    used: dict[str, int] = {}
    for position, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", anchor(tokens[position + 1].content, used))
        for inner in token.children or ():
            _relink(inner, found, output)
    _name_cells(tokens)
    html: str = parser.renderer.render(tokens, parser.options, {})
    return html.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")


def _name_cells(tokens: list[Token]) -> None:
    """Labels the cells of tables with the heading of their column, which is shown where columns are stacked."""
    heads: list[str] = []
    column = 0
    for position, token in enumerate(tokens):
        match token.type:
            case "thead_open":
                heads = []
            case "tr_open":
                column = 0
            case "th_open":
                heads.append(tokens[position + 1].content.replace("`", ""))
            case "td_open":
                if column and heads[column]:
                    token.attrSet("data-head", heads[column])
                column += 1


def anchor(heading: str, used: dict[str, int]) -> str:
    """Returns the anchor of a heading as GitHub makes it; repeated headings get a number."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
    number = used.get(slug, 0)
    used[slug] = number + 1
    return f"{slug}-{number}" if number else slug


def _relink(token: Token, found: Page, output: Path) -> None:
    for name in LINKS:
        link = token.attrs.get(name)
        if isinstance(link, str) and link and not link.startswith(("#", "http://", "https://", "mailto:")):
            token.attrSet(name, _site_link(link, found, output))


def _site_link(link: str, found: Page, output: Path) -> str:
    """Returns the target in the site of a link between files of the repository; copies files that are not pages."""
    place, hash_sign, fragment = link.partition("#")
    source = Path(relpath((ROOT / found.source).parent / place, ROOT))
    if not (ROOT / source).is_file():
        raise FileNotFoundError(f"{found.source} links to {link}, which is no file of the repository")
    if source.suffix == ".md":
        target = Path("index.html") if source == HOME else source.with_suffix(".html")
        return _path(found, target) + hash_sign + fragment
    copy = output / source
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / source, copy)
    return _path(found, source) + hash_sign + fragment


def broken_links(output: Path) -> Iterator[str]:
    """Yields the links of a written site that lead nowhere."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(output.rglob("*.html"))}
    anchors = {path: set(re.findall(r'\sid="([^"]+)"', text)) for path, text in pages.items()}
    for path, text in pages.items():
        for link in re.findall(r'(?:href|src)="([^"]*)"', text):
            if not link.startswith(("http://", "https://", "mailto:")) and not _leads(path, link, anchors):
                yield f"{path.relative_to(output)}: {link}"


def _leads(path: Path, link: str, anchors: Mapping[Path, set[str]]) -> bool:
    place, _, fragment = link.partition("#")
    target = (path.parent / place).resolve() if place else path
    return target.is_file() and (not fragment or fragment in anchors.get(target, ()))


def main() -> int:
    """Writes the site; returns the exit code."""
    parser = argparse.ArgumentParser(description="Build the documentation as a site.")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to write into")
    output = parser.parse_args().output.resolve()
    pages = build(output)
    broken = list(broken_links(output))
    for link in broken:
        print(f"broken link in {link}", file=sys.stderr)  # noqa: T201
    print(f"{len(pages)} pages in {output}; open {output / 'index.html'}")  # noqa: T201
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
