"""Is the house in order? Imports run downhill, names and versions are pinned, files are fit to ship."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement

import planner
from planner.cli.commands import commands
from planner.cli.options.names import as_typed
from simulator.argument_names import Argument

ROOT = Path(__file__).parent.parent
FLOORS = ("simulator", "objectives", "constraints", "studies", "planner")
"""The rooms, lowest first."""
INNER_FLOORS = {
    "simulator": (
        ("accuracy",),
        ("domain",),
        ("catalog", "huggingface", "layout"),
        ("machine", "pipeline"),
        ("memory",),
        ("traffic",),
        ("layers",),
        ("replicas",),
        ("step",),
        ("stragglers", "deep"),
        ("checkpoints", "run"),
    ),
    "simulator/deep": (
        ("traces",),
        ("networks",),
        ("playing",),
        ("collectives",),
        ("traced_steps",),
        ("plans",),
    ),
    "planner": (
        ("text",),
        ("input",),
        ("measured",),
        ("calibration",),
        ("job",),
        ("recommended",),
        ("opendc", "uncertain", "what_if"),
        ("notes", "validation"),
        ("explain", "purchase"),
        ("goodput", "timeline"),
        ("deep", "launch", "one_design"),
        ("sweep", "trace", "views"),
        ("report",),
        ("tracking",),
        ("answer",),
        ("compare", "study"),
        ("cli",),
    ),
    "planner/cli": (("terminal",), ("options",), ("study", "trace")),
    "planner/measured": (
        ("frameworks",),
        ("cells",),
        ("hardware", "recomputation"),
        ("workload",),
        ("layout",),
        ("software",),
    ),
    "studies": (("designs",), ("files",), ("evaluation", "tracking"), ("searchers",)),
}
"""Packages of a room, lowest first; those of one floor may import each other. Modules beside them serve all or join all."""
MODULES = sorted(path for room in FLOORS for path in (ROOT / room).rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAX_LINES = 400
QUESTION_WORDS = ("What ", "Which ", "How ", "Where ", "Why ", "Who ", "When ")

PUBLIC = {
    "CapplanError",
    "Design",
    "Goodput",
    "Infeasibility",
    "InputError",
    "Job",
    "Launch",
    "Plan",
    "PlanExplanation",
    "PurchasePlan",
    "Recommendation",
    "SimulatedDesign",
    "SpaceExplanation",
    "StudyAnswer",
    "StudyError",
    "StudyStore",
    "Target",
    "TrackingError",
    "calibrate",
    "explain_plan",
    "explain_space",
    "launch_plan",
    "load_calibration",
    "load_fleet",
    "load_job",
    "load_sweep",
    "parse_job",
    "plan_purchase",
    "play_job_goodput",
    "recommend",
    "resume_study",
    "run_study_of",
    "run_sweep",
    "simulate_plan",
    "sweep_rows",
}
"""What programs may rely on; a change here is a change for users and belongs into CHANGELOG.md."""

IMPORT_NAMES = {"PyYAML": "yaml"}
"""Distributions that are imported under another name."""


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def outline(path: Path) -> tuple[str, tuple[ast.Import | ast.ImportFrom, ...]]:
    """The docstring of a module, and what it imports anywhere: inside functions and for the type checker, too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports = tuple(node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return ast.get_docstring(tree) or "", imports


def rooms_imported_by(path: Path) -> set[str]:
    found = set()
    for node in outline(path)[1]:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            assert node.level == 0, f"{relative(path)} imports relatively"
            found.add(node.module or "")
    return {name.partition(".")[0] for name in found} & {*FLOORS, "tests", "benchmarks", "docs"}


def modules(is_wrong: Callable[[Path], object]) -> list[str]:
    """The modules that are not as they should be; one test for all of them, as a thousand tests take longer to list."""
    assert len(MODULES) > 100
    return [relative(path) for path in MODULES if is_wrong(path)]


def test_imports_run_downhill_only() -> None:
    def leads_uphill(path: Path) -> bool:
        own = FLOORS.index(path.relative_to(ROOT).parts[0])
        return not rooms_imported_by(path) <= set(FLOORS[: own + 1])

    assert modules(leads_uphill) == []


@pytest.mark.parametrize("room", INNER_FLOORS)
def test_packages_of_a_room_import_downhill_only(room: str) -> None:
    floor = {package: number for number, packages in enumerate(INNER_FLOORS[room]) for package in packages}
    assert floor.keys() == {path.parent.name for path in (ROOT / room).glob("*/__init__.py")}

    def leads_uphill(path: Path) -> bool:
        package = path.relative_to(ROOT / room).parts[0] if path.is_relative_to(ROOT / room) else ""
        names = [node.module or "" for node in outline(path)[1] if isinstance(node, ast.ImportFrom)]
        prefix = room.replace("/", ".") + "."
        packages = [name.removeprefix(prefix).partition(".")[0] for name in names if name.startswith(prefix)]
        return package in floor and any(floor.get(other, 0) > floor[package] for other in packages)

    assert modules(leads_uphill) == []


def test_only_the_command_line_imports_the_command_line() -> None:
    def types_commands(path: Path) -> bool:
        is_part = path.is_relative_to(ROOT / "planner" / "cli") or path == ROOT / "planner" / "__main__.py"
        return not is_part and "from planner.cli" in path.read_text(encoding="utf-8")

    assert modules(types_commands) == []


def options_of_all_commands() -> set[str]:
    """Options of the command line, such as `--output`."""
    found, groups = set[str](), list[click.Group]([commands])
    while groups:
        for command in groups.pop().commands.values():
            if isinstance(command, click.Group):
                groups.append(command)
            found |= {name for parameter in command.params for name in parameter.opts if "--" in name}
    return found


def texts_of(tree: ast.AST) -> list[str]:
    """What a module may say: its texts without docstrings; `...` stands where values are put into one."""
    nodes = list(ast.walk(tree))
    silent = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    silent |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    told = []
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "..." for part in node.values)
            told.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            told.append(node.value)
    return told


PARTS_OF_COMMANDS = (
    "planner/launch/script.py",  # the script that starts another program
    "planner/job/typed_command.py",  # the command behind an answer, and the next ones
    "planner/tracking/page.py",  # the command that starts MLflow
)
"""Modules that put commands together, option by option."""
STUDY_OF_A_COMMAND = "... --store ..."
"""How `studies.files.store` calls a study behind `capplan study resume`."""


def test_messages_below_the_command_line_name_no_options() -> None:
    """Whoever calls a function has none; whole commands may be named, and what writes on a `Console` is read at a terminal."""
    options = options_of_all_commands()
    assert {"--output", "--gpus", "--keep"} <= options

    def names_options(path: Path) -> set[str]:
        text = path.read_text(encoding="utf-8")
        is_for_terminals = path.is_relative_to(ROOT / "planner" / "cli") or "import Console" in text
        if is_for_terminals or "--" not in text or relative(path) in PARTS_OF_COMMANDS:
            return set()
        texts = [each for each in texts_of(ast.parse(text)) if each != STUDY_OF_A_COMMAND]
        bare = re.sub(r"\b(?:capplan|mlflow) [a-z][^`;)]*", "", "\n".join(texts))
        return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", bare)) & options

    assert modules(names_options) == []


def test_every_argument_that_a_message_names_can_be_typed() -> None:
    known = options_of_all_commands() | {
        name.upper() for name in ("constraint", "file", "folder", "name", "script")
    }
    calls = [
        node
        for text in (path.read_text(encoding="utf-8") for path in MODULES)
        if "Argument(" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Argument"
    ]
    named = {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}
    assert len(named) > 20
    assert {name for name in named if as_typed(Argument(str(name))).split()[0] not in known} == {"tracking"}
    assert as_typed(Argument("tracking", "False")) in known


def test_no_module_imports_what_is_private_to_another() -> None:
    def pries(path: Path) -> bool:
        imports = (node for node in outline(path)[1] if isinstance(node, ast.ImportFrom))
        names = [alias.name for node in imports for alias in node.names]
        return any(name.startswith("_") and not name.endswith("__") for name in names)

    assert modules(pries) == []


def test_every_module_starts_with_the_question_that_it_answers() -> None:
    def asks_nothing(path: Path) -> bool:
        first_paragraph = outline(path)[0].partition("\n\n")[0]
        return "?" not in first_paragraph and not first_paragraph.startswith(QUESTION_WORDS)

    assert modules(asks_nothing) == []


def test_no_module_is_longer_than_a_reader_bears() -> None:
    assert modules(lambda path: len(path.read_text(encoding="utf-8").splitlines()) > MAX_LINES) == []


def test_the_public_names_are_pinned_and_can_be_imported() -> None:
    assert set(planner.__all__) == PUBLIC
    assert set(dir(planner)) >= PUBLIC
    for name in PUBLIC:
        assert getattr(planner, name).__name__ == name


def test_an_unknown_name_is_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'planner' has no attribute 'recomend'"):
        _ = planner.recomend  # type: ignore[attr-defined]


def test_importing_the_rooms_loads_nothing_heavy() -> None:
    code = f"import sys, {', '.join(FLOORS)}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (
        set(done.stdout.split()) & {"numpy", "pydantic", "mlflow", "numba", "scipy", "rich", "click"} == set()
    )


def test_every_room_is_marked_as_typed() -> None:
    assert [room for room in FLOORS if not (ROOT / room / "py.typed").exists()] == []


def test_the_changelog_is_headed_by_the_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == planner.__version__


def test_the_project_installs_all_rooms_and_nothing_else() -> None:
    assert set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == set(FLOORS)


REQUIREMENTS = [
    *PROJECT["project"]["dependencies"],
    *PROJECT["project"]["optional-dependencies"]["test"],
]


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_what_is_installed_lies_within_the_bounds_of_the_project(requirement: str) -> None:
    wanted = Requirement(requirement)
    assert wanted.specifier.contains(version(wanted.name), prereleases=True)


@pytest.mark.parametrize("requirement", PROJECT["project"]["dependencies"])
def test_every_dependency_can_be_imported_and_is_used(requirement: str) -> None:
    name = Requirement(requirement).name
    module = IMPORT_NAMES.get(name, name)
    import_module(module)
    users = [
        path
        for path in MODULES
        if re.search(rf"^\s*(import|from) {module}\b", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert users


def test_the_pinned_versions_satisfy_the_project_and_name_no_address() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {}
    for line in lines:
        if line and not line.startswith("#"):
            assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), line
            name, _, pinned = line.partition("==")
            pins[name.lower().replace("_", "-")] = pinned
    for text in REQUIREMENTS:
        wanted = Requirement(text)
        assert wanted.specifier.contains(pins[wanted.name.lower()]), text


SHIPPED_SUFFIXES = {
    ".py",
    ".md",
    ".csv",
    ".json",
    ".toml",
    ".txt",
    ".sh",
    ".yaml",
    ".yml",
    ".cfg",
    ".typed",
    "",
}
SKIPPED_FOLDERS = {"__pycache__", "build", "dist", "capplan-studies", "mlruns"}
FORBIDDEN = (
    "/" + "work/",
    "/" + "root/",
    "/" + "home/",
    "/" + "opt/",
    "pypi" + ".org",
    "files.python" + "hosted",
    "index" + "-url",
)
"""Places of one machine and addresses of package indexes; in pieces, so that this file does not contain them."""


def shipped_files() -> list[Path]:
    """Text files of the project; hidden folders hold caches and environments, except `.ci`."""
    files = []
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        is_hidden = any(part.startswith(".") and part != ".ci" for part in parts)
        if (
            path.is_file()
            and not is_hidden
            and not SKIPPED_FOLDERS & set(parts)
            and path.suffix in SHIPPED_SUFFIXES
        ):
            files.append(path)
    return files


def test_no_file_names_places_of_one_machine_or_package_indexes() -> None:
    found = {}
    for path in shipped_files():
        text = path.read_text(encoding="utf-8", errors="replace")  # some test data is broken on purpose
        if words := [word for word in FORBIDDEN if word in text]:
            found[relative(path)] = words
    assert found == {}


def test_no_program_and_no_example_depends_on_a_temporary_folder() -> None:
    shipped = [*MODULES, *(ROOT / "examples").glob("*.yaml")]
    assert [relative(path) for path in shipped if "/" + "tmp" in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_every_benchmark_finds_what_it_imports(path: Path) -> None:
    import_module(f"benchmarks.{path.stem}".removesuffix(".__init__"))
