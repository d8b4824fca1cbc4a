"""What happens to a study on a full disk or in a read-only folder? One clear error, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner.recommended.output import answer_json
from planner.study.durable import StudyAnswer, resume_study, run_study_of
from planner.study.reports import state_of
from planner.tracking.sending import Target
from simulator.errors import EngineError, StudyError
from studies.files import design_log, design_parts
from studies.files.journal import Journal
from studies.files.store import StudyStore
from tests.planner.studies_run import NOW, job_of

pytestmark = [pytest.mark.usefixtures("pictures_drawn_once"), pytest.mark.long]

ROOT = Path(__file__).parents[3]
JOB = job_of(num_refinements=0)
AS_ANYBODY = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
"""Takes away root's right to write where nobody may."""

ONE_AFTER_THE_OTHER = """
import contextlib, io, json, sys
from planner.cli.commands import main

def done(arguments):
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(arguments)
    return {"code": code, "output": output.getvalue(), "errors": errors.getvalue()}

print(json.dumps([done(arguments) for arguments in json.load(sys.stdin)]))
"""
"""Runs commands in one process and prints what each of them does."""

FILL_UP = """
import resource, sys
from pathlib import Path
from planner.study.durable import resume_study
from simulator.errors import StudyError
path = Path(sys.argv[1])

def fill_up(progress):
    if progress.num_done > 30:  # from here on no file of this process may grow beyond what the log has now
        size = path.with_name(path.name + "-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

try:
    resume_study(path, progress=fill_up)
except StudyError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> StudyAnswer:
    """A study that had space enough."""
    store = StudyStore(tmp_path_factory.mktemp("whole"))
    return run_study_of(JOB, seed=1, store=store, clock=lambda: NOW)


def test_a_full_disk_ends_the_study_with_one_error_and_it_goes_on_once_there_is_space(
    tmp_path: Path, whole: StudyAnswer
) -> None:
    path = StudyStore(tmp_path).create(JOB, 1, NOW)
    done = subprocess.run(
        [sys.executable, "-c", FILL_UP, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    (message,) = done.stdout.splitlines()
    assert message.startswith(f"study {path}: ")
    assert message.endswith("see that there is space and the right to write, then resume")
    num_designs = state_of(path).num_designs
    # The last batch that progress tells of may be on its way still.
    assert 0 < num_designs < whole.answer.num_evaluated
    resumed = resume_study(path)
    assert resumed.counts.num_read_back == num_designs
    assert resumed.answer.model_dump_json() == whole.answer.model_dump_json()


@pytest.mark.parametrize("is_told", [False, True])
def test_what_broke_off_a_search_is_the_error_though_the_last_batch_cannot_be_written_either(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    def no_space(*_: object) -> None:
        raise StudyError("No space left on device")

    asked = iter([False])

    def lose_all_workers() -> bool:
        monkeypatch.setattr(Journal, "append", no_space)
        if next(asked, True):
            raise EngineError("all workers were lost")
        return False

    store, target = StudyStore(tmp_path), Target(tracking_uri=uri) if is_told else None
    with pytest.raises(EngineError, match="all workers were lost") as caught:
        run_study_of(JOB, store=store, should_stop=lose_all_workers, target=target)
    (note,) = caught.value.__notes__
    what = "run could not be ended" if is_told else "last batch could not be written"
    assert note == f"the {what} either: No space left on device"


def test_a_disk_that_is_full_for_what_mlflow_gets_costs_the_study_nothing(
    tmp_path: Path, whole: StudyAnswer, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> None:
        raise StudyError("design log part-00001.parquet cannot be written: No space left on device")

    monkeypatch.setattr(design_parts, "DESIGNS_PER_PART", 20)
    monkeypatch.setattr(design_log.DesignLog, "close", no_space)
    study = run_study_of(
        JOB, seed=1, store=StudyStore(tmp_path), clock=lambda: NOW, target=Target(tracking_uri=uri)
    )
    assert "No space left on device" in study.tracking_failure
    assert study.answer.model_dump_json() == whole.answer.model_dump_json()
    assert state_of(study.path).delivered_to == ()


def test_a_study_that_may_only_be_read_can_be_looked_at_and_says_why_it_does_not_go_on(
    tmp_path: Path, whole: StudyAnswer
) -> None:
    store = tmp_path / "store"
    calls = iter([False] * 3)
    path = run_study_of(
        JOB, seed=1, store=StudyStore(store), clock=lambda: NOW, should_stop=lambda: next(calls, True)
    ).path
    before = path.read_bytes()
    path.chmod(0o444)
    store.chmod(0o555)

    commands = [
        ["study", "status", path.stem, "--json"],
        ["study", "resume", path.stem, "--no-tracking"],
        ["study", "run", "examples/llama-3.1-70b.yaml", "--no-tracking"],
    ]
    done = subprocess.run(
        [*AS_ANYBODY, sys.executable, "-c", ONE_AFTER_THE_OTHER],
        input=json.dumps([[*command, "--store", str(store)] for command in commands]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    status, resumed, begun = json.loads(done.stdout)
    assert status["code"] == 0, status["errors"]
    assert '"state": "stopped"' in status["output"]
    assert resumed["code"] == 1
    (message,) = resumed["errors"].splitlines()
    place = f"Error: study {path.stem}: {store}: "
    assert message in [
        f"{place}{reason}; see that the folder can be written to"
        for reason in ("Permission denied", "Read-only file system")
    ]
    assert begun["code"] == 1
    (message,) = begun["errors"].splitlines()
    assert (
        "nothing of it is there yet: see that there is space and the right to write, then try again"
        in message
    )
    store.chmod(0o755)
    assert [file.name for file in store.iterdir()] == [path.name]
    assert path.read_bytes() == before
    path.chmod(0o644)
    assert resume_study(path).answer.model_dump_json() == whole.answer.model_dump_json()


def test_the_answer_of_a_study_that_may_only_be_read_is_shown_again(
    tmp_path: Path, whole: StudyAnswer
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    path = store / whole.path.name
    path.write_bytes(whole.path.read_bytes())
    path.chmod(0o444)
    store.chmod(0o555)
    code = "import sys; from planner.cli.commands import main; sys.exit(main())"
    resume = ["study", "resume", path.stem, "--store", str(store), "--no-tracking", "--json"]
    shown = subprocess.run(
        [*AS_ANYBODY, sys.executable, "-c", code, *resume],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    store.chmod(0o755)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == answer_json(whole.answer)
    assert list(store.iterdir()) == [path]


def test_a_merged_study_without_space_says_that_nothing_of_it_is_there(
    tmp_path: Path, whole: StudyAnswer
) -> None:
    store = StudyStore(tmp_path)
    calls = iter([False] * 2)
    other = run_study_of(
        JOB, seed=2, store=store, clock=lambda: NOW, should_stop=lambda: next(calls, True)
    ).path
    code = (
        "import resource, sys\nfrom datetime import UTC, datetime\nfrom pathlib import Path\n"
        "from planner.study.merge import merge_studies\nfrom simulator.errors import StudyError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))\n"
        "paths = [Path(text) for text in sys.argv[1:]]\n"
        "try:\n    merge_studies(paths[:2], paths[2], datetime(2026, 1, 2, tzinfo=UTC))\n"
        "except StudyError as error:\n    print(error)\n"
    )
    both = tmp_path / "both.study"
    command = [sys.executable, "-c", code, str(whole.path), str(other), str(both)]
    merged = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert merged.returncode == 0, merged.stderr
    assert "nothing of it is there yet" in merged.stdout
    assert list(tmp_path.iterdir()) == [other]
