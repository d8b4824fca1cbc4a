"""Do the pages for people work as they are written? Their commands and programs run; the site has no broken link."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from docs import site
from planner.cli.commands import main
from studies.tracking.store_address import DEFAULT_FILE
from tests.support import cases_of

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
LONG_PAGES = [
    DOCS / "exit-codes.md",
    DOCS / "how-to" / "budget.md",
    DOCS / "how-to" / "buy.md",
    DOCS / "how-to" / "deadline.md",
    DOCS / "how-to" / "explain-a-step.md",
    DOCS / "how-to" / "own-cluster.md",
    DOCS / "how-to" / "own-prices.md",
    DOCS / "how-to" / "script.md",
    DOCS / "how-to" / "traces.md",
    DOCS / "how-to" / "tracking-server.md",
]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BASH = shutil.which("bash") or "bash"
INIT = re.compile(r"^capplan init job\.yaml .*?[^\\]$", re.MULTILINE | re.DOTALL)
STORE = re.compile(r"sqlite:///(\w+\.db)")
COMPOUND = re.compile(r"^(?:if|case) ", re.MULTILINE)
STEP = re.compile(r"^.*<<'END'\n(?:.*\n)*?END\n|^.+$", re.MULTILINE)
"""One line of a block for the shell, or what a line writes down up to `END`."""
PATIENCE_S = 600
OPERATORS, EXPANDED = "<>|&;()", set("$`#")
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


def steps(code: str) -> list[str]:
    """What a block for the shell does, one after another; what only the shell can take apart is one step."""
    return [code] if COMPOUND.search(code) else STEP.findall(code.replace("\\\n", " "))


def own_command(step: str) -> tuple[list[str], str | None] | None:
    """The arguments of `capplan`, and where its output goes; `None` for a step that needs the shell."""
    lexer = shlex.shlex(step, posix=True, punctuation_chars=OPERATORS)
    lexer.whitespace_split, lexer.commenters = True, ""
    if EXPANDED & set(step) or COMPOUND.search(step):
        return None
    program, *words = lexer
    file = words.pop() if words[-2:-1] == [">"] else None
    words = words[:-1] if file else words
    if program != "capplan" or any(set(word) <= set(OPERATORS) for word in words):
        return None
    return [
        found for word in words for found in (map(str, Path().glob(word)) if "*" in word else [word])
    ], file


def run_step(folder: Path, step: str) -> None:
    """Runs a step in the folder: `capplan` in this process, which has imported everything already."""
    command = own_command(step)
    if command is None:
        run_in_shell(folder, step)
        return
    arguments, file = command
    with redirect_stdout(StringIO()) as printed:
        code = main(arguments)
    assert code == 0, f"{step}\n{printed.getvalue()}"
    if file:
        Path(file).write_text(printed.getvalue(), encoding="utf-8")


def run_in_shell(folder: Path, code: str) -> None:
    """Runs commands as a user would, with `capplan` of this checkout."""
    command = folder / "bin" / "capplan"
    if not command.exists():
        command.parent.mkdir()
        command.write_text(
            f'#!/bin/sh\nexec {sys.executable} -c "import sys; from planner.cli.commands import main; sys.exit(main())" "$@"\n'
        )
        command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [BASH, "-euo", "pipefail", "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


def run_program(folder: Path, code: str) -> None:
    script = folder / "script.py"
    script.write_text(code, encoding="utf-8")
    runpy.run_path(str(script), run_name="__main__")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, where nobody has named a store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def first_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job file of getting-started.md."""
    folder = tmp_path_factory.mktemp("first")
    command = INIT.search((DOCS / "getting-started.md").read_text(encoding="utf-8"))
    assert command
    (step,) = steps(command[0])
    with chdir(folder):
        run_step(folder, step)
    quicken(folder)
    return folder / "job.yaml"


def quicken(folder: Path) -> None:
    """Leaves decisions out of the job in a folder that do not matter to what a page shows."""
    job = folder / "job.yaml"
    if job.exists() and FEWER_DESIGNS not in job.read_text(encoding="utf-8"):
        with job.open("a", encoding="utf-8") as file:
            file.write(FEWER_DESIGNS)


@pytest.mark.usefixtures("pictures_drawn_once")
@pytest.mark.parametrize("page", cases_of(RUN_PAGES, long=LONG_PAGES), ids=name_of)
def test_every_command_and_program_of_a_page_runs(
    page: Path, workplace: Path, first_job: Path, empty_store: Path
) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert blocks
    if page.name != "getting-started.md":
        shutil.copy(first_job, workplace)
    for store in (DEFAULT_FILE, *STORE.findall(text)):
        (workplace / store).parent.mkdir(exist_ok=True)
        shutil.copy(empty_store, workplace / store)
    for kind, code in blocks:
        if kind == "python":
            run_program(workplace, code)
        else:
            for step in steps(code):
                run_step(workplace, step)
        quicken(workplace)


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
