"""Are the pages true to the code? Links, constants, names and code blocks of README.md and docs/."""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

from planner.input.yaml_text import parse_text
from planner.job.file import parse_job
from simulator.domain.job import Job
from tests.test_pages import RUN_PAGES

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
MODEL = [ROOT / "docs" / "model.md", *sorted((ROOT / "docs" / "model").glob("*.md"))]
"""The pages of the equations."""
PAGES = sorted([README, *(ROOT / "docs").rglob("*.md")])
ROOMS = ("simulator", "objectives", "constraints", "studies", "planner")
MODEL_ROOMS = ("simulator", "constraints")
"""Rooms that hold the model; every constant in them has its line in a page of the equations."""
NO_MODEL = {
    "simulator.checkpoints.schemes.NEVER_S": "infinity",
    "simulator.run.shared_plays.MOST_KEPT": "what is kept in memory",
    "simulator.domain.hardware.LEAST_BYTES_PER_S": "what is taken for a mistake in a figure",
    "simulator.domain.hardware.MOST_PUE": "what is taken for a mistake in a figure",
    "simulator.domain.hardware.NEARLY_ALIKE": "which words are taken for mistakes",
    "simulator.domain.layer_shares.MOST_LAYERS": "what is taken for a mistake in a figure",
    "simulator.domain.offer.MOST_GPUS": "what is taken for a mistake in a figure",
    "simulator.domain.reliability.MOST_S": "what is taken for a mistake in a figure",
    "simulator.domain.reliability.MOST_FAILURES": "what is taken for a mistake in a figure",
    "simulator.domain.reliability.LEAST_GPU_HOURS_PER_FAILURE": "what is taken for a mistake in a figure",
    "simulator.domain.reliability.GPU_HOURS_IN_1000_NODE_DAYS": "a change of units",
    "simulator.domain.reliability.LEAST_SHAPE": "what is taken for a mistake in a figure",
    "simulator.domain.reliability.MOST_SHAPE": "what is taken for a mistake in a figure",
    "simulator.errors.MOST_SHOWN": "how much a message shows",
    "simulator.layout.model_states.NEVER_SPLIT": "a ZeRO stage beyond the last",
    "simulator.huggingface.shape": "how other files are read",
    "simulator.huggingface.vision": "how other files are read",
    "simulator.step.timeline": "longest timeline",
    "simulator.step.beside_shards": "rows of a table",
    "simulator.step.step_events": "what stands for all of them, kinds of events, rounding",
    "simulator.memory.held_chunks": "where an order repeats itself, rounding",
    "simulator.run.columns": "where infinity begins",
    "simulator.run.announced.LEAST_SHARE": "rounding",
    "simulator.run.announced.MOST_EXPONENT": "largest exponent of a number",
    "simulator.run.events": "limit of the event loop",
    "simulator.run.draws": "codes of the event loop",
    "simulator.run.kernel": "codes and limits of the event loop",
    "simulator.run.up_time": "codes of the event loop, rounding",
    "simulator.deep.playing.circuit_kernel": "codes of the event loop",
    "simulator.deep.networks.circuits": "most ports, none",
    "simulator.deep.collectives.chosen_collectives": "how an algorithm is chosen",
    "simulator.deep.collectives.collective_times": "size of a buffer",
    "simulator.deep.collectives.patterns": "size of a part",
    "simulator.deep.traced_steps.step_sketch": "what is too much to look at",
    "simulator.deep.traced_steps.played_part": "what is large",
    "simulator.deep.networks.described_network": "what is taken for a mistake in a file",
    "simulator.deep.networks.described_cables": "how many mistakes are told",
    "simulator.deep.networks.slow_links": "what stands for no link",
    "simulator.deep.traces.csv_rows": "size of a cell",
    "simulator.deep.traced_steps.extrapolate": "what is refused early",
    "simulator.deep.traces.execution_graph": "what is taken for a mistake in a file",
    "simulator.deep.networks.heap": "codes, size of a node",
    "simulator.deep.traced_steps.hop": "what is taken for a mistake in an option",
    "simulator.deep.traced_steps.memory_tiers": "infinity",
    "simulator.deep.traced_steps.offload": "rounding",
    "simulator.deep.traced_steps.operator_model": "which lines are believed",
    "simulator.deep.traces.wire": "kinds of another format",
    "simulator.deep.traces.parallelism": "largest numbers",
    "simulator.deep.traces.trace": "no operator, no layer",
    "simulator.deep.traces.trace_build": "what is taken for a mistake in a file",
    "simulator.deep.traces.trace_file": "what is taken for a mistake in a file",
    "simulator.deep.traces.trace_text": "size of a file, length of a message",
    "simulator.deep.traced_steps.triosim": "rules of another simulator",
    "simulator.deep.traces.triosim_files": "another simulator's samples",
    "simulator.deep.traced_steps.triosim_pipeline": "rules of another simulator",
    "simulator.deep.plans.plan_cluster": "what is taken for a mistake in an option",
    "simulator.deep.plans.plan_export": "most nodes, size of one number",
    "simulator.deep.plans.plan_on_nodes": "cables of a way",
    "simulator.deep.plans.plan_pass": "rounding",
    "simulator.deep.plans.plan_items": "names of passes",
    "simulator.deep.plans.plan_operators": "names of traffic, rounding",
    "simulator.deep.plans.plan_shards": "names of ZeRO stages",
    "simulator.deep.plans.plan_step": "most accelerators that are played one by one",
    "simulator.deep.playing.play_kernel": "codes of the event loop, rounding",
    "simulator.deep.playing.bundles": "places of a list",
    "simulator.deep.playing.ripple": "places of a list, rounding",
    "simulator.deep.playing.sharing": "rounding, order of the work",
    "simulator.deep.playing.tasks": "codes of the event loop",
    "simulator.deep.playing.timers": "codes of the event loop",
    "simulator.deep.networks.ways": "a reference message, none, rounding",
    "simulator.pipeline.order": "codes and columns of the event loop",
    "simulator.pipeline.shape": "codes of the event loop",
    "simulator.pipeline.state": "sizes of a batch",
    "simulator.run_timeline": "longest log",
    "simulator.run.timeline_kernel": "codes of the event loop",
    "simulator.run.spread.LEAST_RISK": "what counts as no risk",
    "constraints.lattice.ROWS_PER_BLOCK": "size of a batch",
    "constraints.space.MOST_IN_MEMORY": "size of a batch",
    "simulator.domain.offer.MOST_COMMITMENT_DAYS": "what is taken for a mistake in a job",
    "simulator.domain.ownership.MOST_STAFF_USD_PER_YEAR": "what is taken for a mistake in a job",
    "simulator.domain.options.MOST_PURCHASE_USD_PER_NODE": "what is taken for a mistake in a job",
    "simulator.domain.options.MOST_RENT_USD_PER_GPU_HOUR": "what is taken for a mistake in a job",
    "simulator.domain.hourly": "length of a year and of a profile",
    "simulator.catalog.own": "size of a file",
    "simulator.catalog.own_rules": "what is taken for a mistake in a file",
    "simulator.pipeline.schedule.OPERATIONS_PER_THREAD": "size of a part",
    "simulator.run.events.RUNS_PER_THREAD": "size of a part",
    "simulator.simulate": "size of a batch",
    "simulator.accuracy.step_error.Z_80": "a quantile of the normal distribution",
    "simulator.table": "size of a number",
    "simulator.work_parts": "size of a part",
    "simulator.units": "units",
    "constraints.answers": "which values refinement tries",
    "constraints.bounds": "rounding",
    "constraints.space": "what stays in memory",
    "constraints.relaxation": "order of a search, digits of a proposal",
    "constraints.removal": "size of a batch",
    "constraints.layout_model.FURTHEST": "how far a search looks",
    "constraints.reach.REACH": "how far a search looks",
    "constraints.memory_model": "how far a search looks",
    "constraints.stage_balance": "rounding, effort of a solver",
    "constraints.best_cut": "rounding, effort of a search",
    "constraints.cut_bounds": "rounding",
}
"""Modules and constants that are not of the model, and why."""

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMENT = re.compile(r"^<!--.*-->$", re.MULTILINE)
TABLE = re.compile(r"^ *\|[ -].*\n(?:.*\S.*\n)*", re.MULTILINE)
"""A table and whatever follows it without an empty line."""
BAR = re.compile(r"(?<!\\)\|")
RULE = re.compile(r" *\|(?: ?:?-+:? ?\|)+")
HEADER = re.compile(rf"^\| `((?:{'|'.join(ROOMS)})[\w.]*)` \| value \|")
ROW = re.compile(r"^\| `([\w.]+)` \| ([^|]+) \|")
FITTED = {
    "constant, bf16": ("kernel_efficiency.csv", "family", {"dtype": "bf16"}),
    "constant, fp8": ("kernel_efficiency.csv", "family", {"dtype": "fp8"}),
    "constant, fp4": ("kernel_efficiency.csv", "family", {"dtype": "fp4"}),
    "constant, scale-up link": ("link_efficiency.csv", "link", {}),
    "constant, fabric": ("link_efficiency.csv", "link", {}),
}
"""Tables of fitted constants: by the head of their first column the file, the column that heads theirs, and the rows."""


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def name_of(page: Path) -> str:
    return page.name


def blocks(page: Path, language: str) -> list[str]:
    return [code for found, code in FENCE.findall(text_of(page)) if found == language]


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def tables(page: Path) -> Iterator[list[str]]:
    for block in text_of(page).split("\n\n"):
        lines = block.strip().splitlines()
        if len(lines) > 2 and lines[0].startswith("|"):
            yield lines


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def is_importable(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # a parent is missing, or is no package
        return False


def value_at(path: str) -> object:
    """The value of `package.module.Type.field`: a constant, the default of a field, or an entry of a mapping."""
    parts = path.split(".")
    module = next(".".join(parts[:k]) for k in range(len(parts), 0, -1) if is_importable(".".join(parts[:k])))
    value: object = import_module(module)
    for name in parts[module.count(".") + 1 :]:
        if isinstance(value, Mapping):
            value = value[name]
        elif isinstance(value, type) and issubclass(value, BaseModel):
            value = value.model_fields[name].default
        else:
            value = getattr(value, name)
    return value


def stated_constants() -> dict[str, str]:
    """Values in the pages of the equations, as text, by the path of the constant."""
    stated = {}
    for table in (found for page in MODEL for found in tables(page)):
        if head := HEADER.match(table[0]):
            for line in table[2:]:
                row = ROW.match(line)
                assert row, f"not a constant with a value: {line}"
                path = f"{head[1]}.{row[1]}"
                assert path not in stated, f"{path} is stated twice"
                stated[path] = row[2].strip()
    return stated


def fitted_constants() -> dict[tuple[str, str, str], tuple[str, str]]:
    """Value in the pages of the equations and in the file, as text, by table, column and constant."""
    pairs = {}
    for table in (found for page in MODEL for found in tables(page)):
        head, *columns = cells(table[0])
        if head not in FITTED:
            continue
        file, key, fixed = FITTED[head]
        with (ROOT / "simulator" / "data" / file).open(encoding="utf-8") as lines:
            rows = [row for row in csv.DictReader(lines) if fixed.items() <= row.items()]
        known = {(row[key], row["constant"]): row["value"] for row in rows}
        shown = columns[: columns.index("unit")]
        for line in table[2:]:
            name, *values = cells(line)
            for column, value in zip(shown, values, strict=False):
                constant = name.strip("`")
                pairs[head, column, constant] = value, known[column, constant]
    return pairs


def constants_of(module: ModuleType) -> set[str]:
    """Public numbers that a module defines itself."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    names = {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    public = {name for name in names if name.isupper() and not name.startswith("_")}
    return {name for name in public if isinstance(getattr(module, name), int | float)}


def modules_of(room: str) -> Iterator[ModuleType]:
    for path in sorted((ROOT / room).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(FENCE.sub("", text_of(page))):
        target, _, anchor = link.partition("#")
        if target.startswith(("http://", "https://")):
            continue
        file = (page.parent / target) if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_line_of_a_table_is_a_row_with_as_many_cells_as_its_head(page: Path) -> None:
    broken = []
    for table in TABLE.findall(COMMENT.sub("", FENCE.sub("", text_of(page)))):
        head, *others = table.strip().splitlines()
        num_bars = {len(BAR.findall(line)) if line.endswith("|") else 0 for line in (head, *others)}
        if not (others and RULE.fullmatch(others[0]) and len(num_bars) == 1):
            broken.append(head)
    assert broken == []


@pytest.mark.parametrize(("path", "stated"), stated_constants().items(), ids=str)
def test_every_constant_of_the_model_page_has_the_value_that_it_states(path: str, stated: str) -> None:
    value = value_at(path)
    assert isinstance(value, int | float), f"{path} is not a number"
    assert float(stated) == pytest.approx(float(value), rel=1e-12)


@pytest.mark.parametrize(("place", "values"), fitted_constants().items(), ids=str)
def test_every_fitted_constant_of_the_model_page_is_that_of_the_shipped_file(
    place: tuple[str, str, str], values: tuple[str, str]
) -> None:
    stated, shipped = values
    assert float(stated) == float(shipped), place


def test_all_tables_of_fitted_constants_are_read() -> None:
    assert {head for head, _, _ in fitted_constants()} == set(FITTED)


@pytest.mark.parametrize("room", MODEL_ROOMS)
def test_the_model_page_leaves_out_no_constant_of_the_model(room: str) -> None:
    constants = {
        f"{module.__name__}.{name}"
        for module in modules_of(room)
        if module.__name__ not in NO_MODEL
        for name in constants_of(module)
    }
    assert constants
    assert constants - stated_constants().keys() - NO_MODEL.keys() == set()


@pytest.mark.parametrize("name", NO_MODEL)
def test_what_is_said_to_be_no_part_of_the_model_exists(name: str) -> None:
    value = value_at(name)
    assert constants_of(value) if isinstance(value, ModuleType) else isinstance(value, int | float)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_module_and_file_that_a_page_names_exists(page: Path) -> None:
    missing = []
    for name in re.findall(r"`([\w./-]+)`", FENCE.sub("", text_of(page))):
        if name.endswith((".py", ".csv", ".yaml", ".md")) and "/" in name:
            if not any((folder / name).exists() for folder in (ROOT, page.parent)):
                missing.append(name)
        elif re.fullmatch(rf"({'|'.join((*ROOMS, 'benchmarks'))})(\.[a-z_]\w*)+", name):
            try:
                value_at(name)
            except (AttributeError, KeyError):
                missing.append(name)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_in_a_page_is_python_and_imports_what_exists(page: Path) -> None:
    for code in blocks(page, "python"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom):
                module = import_module(node.module or "")
                assert [name.name for name in node.names if not hasattr(module, name.name)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_yaml_in_a_page_can_be_read(page: Path) -> None:
    for code in blocks(page, "yaml"):
        assert isinstance(parse_text(code, source=page.name), Mapping)


# Pages that run as they are written (tests/test_pages.py) make the files that they name.
@pytest.mark.parametrize("page", [page for page in PAGES if page not in RUN_PAGES], ids=name_of)
def test_files_and_modules_in_the_commands_of_a_page_exist(page: Path) -> None:
    words = [word for code in blocks(page, "sh") for word in code.split()]
    files = [word for word in words if re.fullmatch(r"[\w./-]+\.(yaml|py|sh)", word)]
    modules = [after for word, after in pairwise(words) if word == "-m"]
    assert [file for file in files if not (ROOT / file).exists()] == []
    assert [module for module in modules if not is_importable(module)] == []


def readme_document() -> dict[str, object]:
    (code,) = blocks(README, "yaml")
    document = parse_text(code, source="README.md")
    assert isinstance(document, dict)
    return document


def readme_job(**fields: object) -> Job:
    """The job of the README with some fields replaced; `None` leaves one out."""
    document = {**readme_document(), **fields}
    return parse_job({name: value for name, value in document.items() if value is not None})


def test_the_job_of_the_readme_asks_what_it_says() -> None:
    job = readme_job()
    assert job.workload.model.name == "Llama 3.1 70B"
    # 4e6 tokens of 8,192 are 488.3 sequences, and within 5 % of that lies 512, the largest power of two.
    assert job.workload.global_batch_size == 512
    assert job.limits.budget_usd == 2.5e6
    assert [objective.value for objective in job.objectives] == ["time_to_train", "cost", "carbon"]


# The defaults are read from the generated page, which is compared with the types elsewhere.
@pytest.mark.parametrize(
    ("field", "documented"),
    [("objectives", "`[time_to_train, cost, carbon]`"), ("reliability", "`typical`")],
)
def test_what_the_readme_writes_out_as_default_is_the_documented_default(field: str, documented: str) -> None:
    page = ROOT / "docs" / "job-file.md"
    fields = [table for table in tables(page) if cells(table[0])[2:3] == ["left out"]]
    defaults = {cells(line)[0]: cells(line)[2] for table in fields for line in table[2:]}
    assert defaults[f"`{field}`"] == documented
    assert readme_job(**{field: None}) == readme_job()
