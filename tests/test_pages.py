"""Do the pages for people work as they are written? Their commands and programs run; the site has no broken link."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs import site
from planner.cli import main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RUN_PAGES = [
    DOCS / "getting-started.md",
    *sorted((DOCS / "how-to").glob("*.md")),
    DOCS / "timeline.md",
    DOCS / "compare.md",
    DOCS / "schemas.md",
    DOCS / "exit-codes.md",
]
"""Pages whose blocks run from the first to the last in one folder, which has the job of getting-started.md."""
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BASH = shutil.which("bash") or "bash"
INIT = re.compile(r"^capplan init job\.yaml .*?[^\\]$", re.MULTILINE | re.DOTALL)
PATIENCE_S = 600
SHELL_SIGNS = set("|<>&;$`*#")
FEWER_DESIGNS = """
search:
  micro_batch_sizes: [1]
  recompute: [none]
  zero_stages: [1]
  virtual_pipeline: [1, 10]
  checkpoint_schemes: [async]
  with_spares: [true]
  num_refinements: 0
"""
"""Behind the job file of a page, so that its searches take a second each."""


def name_of(page: Path) -> str:
    return str(page.relative_to(DOCS))


def plain_commands(kind: str, code: str) -> list[list[str]] | None:
    """The arguments of every line of a block that does nothing but call `capplan`; `None` for any other block."""
    lines = code.replace("\\\n", " ").splitlines()
    is_plain = kind == "sh" and all(
        line.startswith("capplan ") and not SHELL_SIGNS & set(line) for line in lines
    )
    return [shlex.split(line)[1:] for line in lines] if is_plain else None


def run(folder: Path, kind: str, code: str) -> subprocess.CompletedProcess[str]:
    """Runs one block as a user would, with `capplan` of this checkout."""
    command = folder / "bin" / "capplan"
    if not command.exists():
        command.parent.mkdir()
        command.write_text(
            f'#!/bin/sh\nexec {sys.executable} -c "import sys; from planner.cli import main; sys.exit(main())" "$@"\n'
        )
        command.chmod(0o755)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"},
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    arguments = [BASH, "-euo", "pipefail", "-c"] if kind == "sh" else [sys.executable, "-c"]
    return subprocess.run(
        [*arguments, code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


@pytest.fixture(scope="session")
def first_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job file of getting-started.md."""
    folder = tmp_path_factory.mktemp("first")
    command = INIT.search((DOCS / "getting-started.md").read_text(encoding="utf-8"))
    assert command
    done = run(folder, "sh", command[0])
    assert done.returncode == 0, done.stderr
    quicken(folder)
    return folder / "job.yaml"


def quicken(folder: Path) -> None:
    """Leaves decisions out of the job in a folder that do not matter to what a page shows."""
    job = folder / "job.yaml"
    if job.exists() and FEWER_DESIGNS not in job.read_text(encoding="utf-8"):
        with job.open("a", encoding="utf-8") as file:
            file.write(FEWER_DESIGNS)


@pytest.mark.parametrize("page", RUN_PAGES, ids=name_of)
def test_every_command_and_program_of_a_page_runs(
    page: Path, tmp_path: Path, first_job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert blocks
    if page.name != "getting-started.md":
        shutil.copy(first_job, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for kind, code in blocks:
        commands = plain_commands(kind, code)
        if commands is None:
            done = run(tmp_path, kind, code)
            assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        else:  # in this process, which has imported everything already
            assert [main(command) for command in commands] == [0] * len(commands), code
        quicken(tmp_path)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    site.build(folder)
    return folder


class TestSite:
    def test_every_page_is_there_and_in_the_navigation(self, built: Path) -> None:
        sources = [ROOT / "README.md", *DOCS.rglob("*.md")]
        pages = [path for path in built.rglob("*.html") if "schemas" not in path.parts]
        assert len(pages) == len(sources)
        home = (built / "index.html").read_text(encoding="utf-8")
        navigation = home.partition("<nav")[2].partition("</nav>")[0]
        assert navigation.count("<li>") == len(sources)

    def test_pages_that_are_named_in_the_navigation_exist(self) -> None:
        assert [name for _, names in site.SECTIONS for name in names if not (ROOT / name).is_file()] == []

    def test_no_link_and_no_anchor_is_broken(self, built: Path) -> None:
        assert list(site.broken_links(built)) == []

    def test_broken_links_and_anchors_are_found(self, tmp_path: Path) -> None:
        (tmp_path / "a.html").write_text(
            '<h1 id="top"></h1><a href="#top"></a><a href="#no"></a><a href="b.html"></a>', encoding="utf-8"
        )
        assert list(site.broken_links(tmp_path)) == ["a.html: #no", "a.html: b.html"]

    def test_pages_load_nothing_from_elsewhere_and_run_nothing(self, built: Path) -> None:
        for path in built.rglob("*.html"):
            text = path.read_text(encoding="utf-8")
            assert "<script" not in text
            assert re.findall(r'(?:src|<link[^>]*href)="https?:', text) == []

    def test_tables_and_headings_are_rendered(self, built: Path) -> None:
        text = (built / "docs" / "exit-codes.html").read_text(encoding="utf-8")
        assert '<h1 id="exit-codes">Exit codes</h1>' in text
        assert "<td>130</td>" in text

    def test_a_page_that_links_to_nothing_is_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "docs").mkdir()
        (tmp_path / "README.md").write_text("# Home\n[gone](docs/gone.md)\n", encoding="utf-8")
        monkeypatch.setattr(site, "ROOT", tmp_path)
        with pytest.raises(FileNotFoundError, match=r"README\.md links to docs/gone\.md"):
            site.build(tmp_path / "out")

    @pytest.mark.parametrize(
        ("heading", "expected"),
        [("What comes out", "what-comes-out"), ("`--json`, again", "--json-again"), ("[A](b.md) c", "a-c")],
    )
    def test_anchors_are_those_of_github(self, heading: str, expected: str) -> None:
        used: dict[str, int] = {}
        assert [site.anchor(heading, used), site.anchor(heading, used)] == [expected, f"{expected}-1"]
