"""Does the command line keep its promises? Output, exit codes, messages, signals; the search itself is replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from planner.cli import catalog, recommend
from planner.cli import commands as cli
from planner.cli.options import shared
from planner.cli.options.names import message_of
from planner.cli.trace import options
from planner.input import arguments
from planner.recommended.output import FrontFormat
from planner.recommended.recommendation import Recommendation
from simulator.catalog import Kind, figures, names, rent
from simulator.deep.traces import parallelism
from simulator.errors import InputError, Problem, StudyError, TrackingError, unwritten
from studies.files import store
from tests.planner.hand_made import infeasible, interrupted, recommended
from tests.planner.imports import printed_without_heavy_imports

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "examples" / "llama-3.1-70b.yaml")

Search = Callable[..., Recommendation]


class Recorded:
    """Stands for the search; keeps what it was asked and answers by hand."""

    def __init__(self, answer: Recommendation) -> None:
        self.answer = answer
        self.options: dict[str, object] = {}

    def __call__(self, job: object, **options: object) -> Recommendation:
        self.options = {"job": job, **options}
        return self.answer


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Search], None]:
    def replace(search: Search) -> None:
        monkeypatch.setattr("planner.answer.recommend.recommend", search)

    return replace


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "planner.cli", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_package_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "planner", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, run("--version").stdout)


def test_constants_that_are_copied_for_a_quick_start_are_those_of_their_originals() -> None:
    assert shared.LARGEST_SEED == arguments.LARGEST_SEED
    assert shared.STORE == store.DEFAULT_FOLDER
    assert options.MOST_GPUS == parallelism.MOST_GPUS


def test_help_and_version_answer_without_any_heavy_import() -> None:
    shown = printed_without_heavy_imports(
        "from planner.cli.commands import main\n"
        "assert [main([o]) for o in ('--help', '--version')] == [0, 0]\n"
        "assert main(['recommend', '--help']) == main(['catalog', '--help']) == 0\n"
        "assert main(['study', '--help']) == main(['study', 'resume', '--help']) == 0\n"
    )
    assert "Usage: capplan [OPTIONS] COMMAND" in shown


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == "capplan 0.1.0\n"


def test_the_choices_of_the_command_line_are_those_of_the_program() -> None:
    assert tuple(kind.value for kind in Kind) == catalog.KINDS
    assert get_args(FrontFormat) == recommend.FRONT_FORMATS


@pytest.mark.parametrize(
    ("answer", "code", "first_line"),
    [
        (recommended(), 0, "Recommended: 1,024 x h100-sxm5-80gb for 31.4 days and $1.85 M"),
        (infeasible(), 3, "No design meets all limits"),
        (
            interrupted(),
            130,
            "Interrupted; best design so far: 1,024 x h100-sxm5-80gb for 31.4 days and $1.85 M",
        ),
    ],
)
def test_the_exit_code_says_how_it_ended(
    answer: Recommendation,
    code: int,
    first_line: str,
    answering: Callable[[Search], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    answering(Recorded(answer))
    assert cli.main(["recommend", EXAMPLE]) == code
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == first_line
    assert err == ""


@pytest.mark.parametrize("answer", [recommended(), infeasible(), interrupted()])
def test_json_is_one_object_that_reads_back_as_the_answer(
    answer: Recommendation, answering: Callable[[Search], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def chatty(_job: object, **_options: object) -> Recommendation:
        sys.stdout.write("a library talks\n")
        return answer

    answering(chatty)
    cli.main(["recommend", EXAMPLE, "--json"])
    out, err = capsys.readouterr()
    assert Recommendation.model_validate(json.loads(out)).status == answer.status
    assert json.loads(out) == answer.model_dump(mode="json")
    assert err == "a library talks\n"


def test_options_reach_the_search(answering: Callable[[Search], None], tmp_path: Path) -> None:
    search = Recorded(recommended())
    answering(search)
    (tmp_path / "out").mkdir()
    options = [
        "--seed",
        "9",
        "--tracking-uri",
        "sqlite:///x.db",
        "--experiment",
        "budget",
        "--format",
        "parquet",
    ]
    limits = ["--set", "limits.budget_usd=4e6", "--set", "limits.deadline_days=50"]
    assert cli.main(["recommend", EXAMPLE, *options, *limits, "--output", str(tmp_path / "out")]) == 0
    asked = search.options
    assert asked["job"].limits.budget_usd == 4e6  # type: ignore[attr-defined]
    assert asked["job"].limits.deadline_days == 50  # type: ignore[attr-defined]
    assert {
        name: asked[name] for name in ("seed", "tracking", "tracking_uri", "experiment", "front_format")
    } == {
        "seed": 9,
        "tracking": True,
        "tracking_uri": "sqlite:///x.db",
        "experiment": "budget",
        "front_format": "parquet",
    }
    assert asked["output"] == tmp_path / "out"


def test_tracking_can_be_left_out(answering: Callable[[Search], None]) -> None:
    search = Recorded(recommended())
    answering(search)
    assert cli.main(["recommend", EXAMPLE, "--no-tracking"]) == 0
    assert search.options["tracking"] is False


def test_written_files_are_listed(
    answering: Callable[[Search], None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "front.csv").touch()
    answering(Recorded(recommended()))
    cli.main(["recommend", EXAMPLE, "--output", str(tmp_path)])
    assert f"    {tmp_path}/front.csv\n" in capsys.readouterr().out


def test_a_relaxation_is_tried_by_adding_to_the_typed_command(
    answering: Callable[[Search], None], capsys: pytest.CaptureFixture[str]
) -> None:
    answering(Recorded(infeasible()))
    typed = ["--seed", "4", "--no-tracking", "--set", "limits.power_w=9e6", "--set", "name='a b'"]
    typed += ["--set", "limits.budget_usd=1.5e6", "--quiet"]  # replaced, not given twice
    cli.main(["recommend", EXAMPLE, *typed])
    expected = (
        f"""capplan recommend {EXAMPLE} --set limits.power_w=9e6 --set 'name='"'"'a b'"'"'' """
        "--set limits.budget_usd=1.85e6 --set limits.num_gpus=1024 --seed 4 --no-tracking\n"
    )
    assert f"    {expected}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["recommend", "missing.yaml"], "cannot be read"),
        (
            ["recommend", EXAMPLE, "--set", "limits.budgt=1"],
            "limits.budgt = 1: unknown field; nearest: budget_usd",
        ),
        (["recommend", EXAMPLE, "--set", "nonsense"], "must be a path, = and a value"),
        (["recommend"], "Missing argument 'JOB.yaml'"),
        (["trace", "simulate", EXAMPLE], "Missing option '--gpus'"),
        (["recommend", EXAMPLE, "--seed", "-1"], "-1 is not in the range"),
        (["recommend", EXAMPLE, "--format", "xml"], "'xml' is not one of 'csv', 'parquet'"),
        (["recommend", EXAMPLE, "--format", "csv"], "give --output DIR, too"),
        (["recommend", EXAMPLE, "--json", "--brief"], "leave out --json, or --brief"),
        (["recommend", EXAMPLE, "--no-tracking", "--tracking-uri", "x"], "contradict each other"),
        (
            ["recommend", EXAMPLE, "--output", "/dev/null/x"],
            "--output = /dev/null/x: cannot be a folder, since /dev/null is a file: choose another name",
        ),
        (["recommend", EXAMPLE, "--experiment", " "], "Invalid value for '--experiment': must not be empty"),
        (
            ["study", "run", EXAMPLE, "--experiment", ""],
            "Invalid value for '--experiment': must not be empty",
        ),
        (["catalog", "cars"], "'cars' is not one of 'accelerators'"),
        (["catalog", "accelerators", "h100"], "nearest: h100-sxm5-80gb"),
        (["catalog", "accelerators", ""], "NAME = '': must not be empty"),
        (["catalog", "accelerators", "", "--json"], "NAME = '': must not be empty"),
        (["sing"], "No such command 'sing'"),
    ],
)
def test_broken_input_ends_with_two_and_one_message(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError([Problem(path="limits.power_w", value="1", rule="is too low")]), 2),
        (TrackingError("store x: refused"), 1),
        (StudyError("designs.parquet exists"), 1),
        (OSError(28, "No space left on device"), 1),
        (unwritten("output", "page.html", OSError(28, "No space left on device")), 1),
        (unwritten("output", "page.html", OSError(36, "File name too long")), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_of_the_search_become_a_message_and_a_code(
    error: BaseException, code: int, answering: Callable[[Search], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(_job: object, **_options: object) -> Recommendation:
        raise error

    answering(failing)
    assert cli.main(["recommend", EXAMPLE]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.strip().startswith("Error: ")
    assert (message_of(error) or "interrupted") in err


def test_the_first_interrupt_asks_the_search_to_stop_and_shows_what_it_found(
    answering: Callable[[Search], None], capfd: pytest.CaptureFixture[str]
) -> None:
    def search(_job: object, **options: Callable[[], bool]) -> Recommendation:
        assert not options["should_stop"]()
        signal.raise_signal(signal.SIGINT)
        assert options["should_stop"]()
        return interrupted()

    before = signal.getsignal(signal.SIGINT)
    answering(search)
    assert cli.main(["recommend", EXAMPLE, "--json"]) == 130
    out, err = capfd.readouterr()
    assert json.loads(out)["status"] == "interrupted"
    assert err == "\nStopping; what was evaluated will be shown. Ctrl-C again ends at once.\n"
    assert signal.getsignal(signal.SIGINT) == before


def test_the_second_interrupt_ends_at_once(
    answering: Callable[[Search], None], capfd: pytest.CaptureFixture[str]
) -> None:
    def search(_job: object, **_options: object) -> Recommendation:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the search went on")

    before = signal.getsignal(signal.SIGINT)
    answering(search)
    assert cli.main(["recommend", EXAMPLE]) == 130
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == "Error: interrupted; nothing is kept"
    assert signal.getsignal(signal.SIGINT) == before


def test_a_reader_that_has_gone_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "planner.cli", "catalog", "sites"]
    done = subprocess.run(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.long
def test_an_output_without_space_is_named() -> None:
    command = [sys.executable, "-m", "planner.cli", "catalog", "sites"]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    told = "Error: the answer cannot be written to stdout: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told)


def test_an_output_without_unicode_still_gets_the_answer() -> None:
    command = [sys.executable, "-m", "planner.cli", "catalog", "accelerators", "h100-sxm5-80gb"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert "H100 SXM5 80GB" in done.stdout


def test_the_catalogue_lists_kinds_with_their_entries(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["catalog"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["sites", str(len(names(Kind.SITES)))] in [row[:2] for row in rows]
    assert {row[0] for row in rows if row} >= {kind.value for kind in Kind}


@pytest.mark.parametrize("kind", [kind.value for kind in Kind])
def test_every_entry_of_a_kind_of_the_catalogue_is_one_line_of_a_pipe(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["catalog", kind]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(names(Kind(kind)))


def test_the_catalogue_shows_an_entry_with_unit_source_date_and_confidence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["catalog", "accelerators", "h100-sxm5-80gb"]) == 0
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    # NVIDIA's data sheet of the H100 SXM: 3.35 TB/s, up to 700 W.
    assert "memory bandwidth 3,350 GB/s MLE-ACC; EPOCH-CHIP 2026-08 verified" in rows
    assert any(row.startswith("thermal design power 700 W ") for row in rows)


def test_the_catalogue_shows_habits_by_the_names_of_the_fields_that_they_fill(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["catalog", "frameworks", "deepspeed"]) == 0
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert any(row.startswith("sync_buffer_bytes 2 GB DEEPSPEED: ") for row in rows)
    assert any(row.startswith("zero_stages 2, 3 DEEPSPEED: ") for row in rows)


def test_whole_numbers_of_the_catalogue_are_never_rounded(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["catalog", "models", "kimi-k2"]) == 0
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert any(row.startswith("num parameters 1,026,408,084,480 count ") for row in rows)
    # YAML reads 1e+12 without a point as text.
    assert any(row.startswith("published parameters 1,000,000,000,000 count ") for row in rows)


def test_the_rents_of_an_accelerator_start_with_what_a_job_would_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["catalog", "rents", "h100-sxm5-80gb"]) == 0
    assert "A job without its own price uses $" in capsys.readouterr().out


def test_the_list_of_rents_has_their_range_and_the_newest_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["catalog", "rents"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    (row,) = [row for row in rows if row[:1] == ["h100-sxm5-80gb"]]
    estimate, _ = rent("h100-sxm5-80gb")
    assert estimate.low < estimate.mid < estimate.high
    newest = max(figure.date for figure in figures(Kind.RENTS, "h100-sxm5-80gb"))
    assert row[1:] == [f"${price:.2f}" for price in (estimate.low, estimate.mid, estimate.high)] + [newest]


def test_prices_that_no_run_can_rely_on_make_no_rent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text(
        "kind,id,quantity,value,unit,source,date,confidence\n"
        "rents,h100-sxm5-80gb,spot,1.10,USD/GPU-hour,our contract,2026-10,verified\n",
        encoding="utf-8",
    )
    own = ["--with", str(prices)]
    assert cli.main(["catalog", "rents", *own]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["h100-sxm5-80gb", "2026-10"] in rows
    assert cli.main(["catalog", "rents", "h100-sxm5-80gb", *own]) == 0
    shown = capsys.readouterr().out
    assert "A job without its own price" not in shown
    assert "1.1" in shown


def test_a_single_rent_is_no_range(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text(
        "kind,id,quantity,value,unit,source,date,confidence\n"
        "rents,h100-sxm5-80gb,on_demand,2.20,USD/GPU-hour,our contract,2026-10,verified\n",
        encoding="utf-8",
    )
    assert cli.main(["catalog", "rents", "h100-sxm5-80gb", "--with", str(prices)]) == 0
    assert "A job without its own price uses $2.20 per GPU-hour." in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["nodes"], ["models", "llama-3.1-70b"], ["sites", "us-iowa"]])
def test_the_catalogue_prints_one_json_object(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["catalog", *arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == {"schema_version", "entries" if arguments else "kinds"}
    content = printed["entries" if arguments else "kinds"]
    if len(arguments) == 2:
        assert list(content) == arguments[1:]
        assert set(content[arguments[1]][0]) == {"quantity", "value", "unit", "source", "date", "confidence"}
    else:
        assert set(content) == set(names(Kind(arguments[0])) if arguments else [kind.value for kind in Kind])


@pytest.mark.parametrize(
    "arguments", [["catalog"], ["trace", "convert", "a", "b", "--batch-size", "1", "--output", "c"]]
)
def test_a_package_of_the_same_name_from_elsewhere_is_named(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "objectives").mkdir()
    (tmp_path / "objectives" / "__init__.py").touch()
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    command = [
        sys.executable,
        "-P",
        "-c",
        f"import sys; from planner.cli.commands import main; sys.exit(main({arguments}))",
    ]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"Error: package objectives is taken from {tmp_path}, not from {ROOT}" in done.stderr


def test_progress_goes_to_a_terminal_line_and_names_stage_count_and_best() -> None:
    import io

    from rich.console import Console

    from planner.cli.terminal.progress_line import progress_line
    from studies.progress import Progress

    stream = io.StringIO()
    with progress_line(Console(file=stream, force_terminal=True, width=100)) as report:
        report(Progress(stage="searching [all]", num_done=12, num_total=None))
        report(Progress(stage="searching [all]", num_done=345, num_total=678, best="31.4 days"))
    assert all(words in stream.getvalue() for words in ("searching [all]", "345/678", "31.4 days"))


@pytest.mark.long
def test_nothing_but_the_answer_is_written_where_stderr_is_no_terminal(tmp_path: Path) -> None:
    job = str(ROOT / "examples" / "bloom-176b.yaml")
    narrow = ["--set", "search.num_refinements=0", "--no-tracking", "--output", str(tmp_path / "new")]
    done = run("recommend", job, *narrow)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Recommended: ")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "designs.parquet",
        "front.csv",
        "job.json",
        "recommendation.json",
        "report.html",
    ]
