"""How do reports treat answers and studies from other versions of capplan?"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.cli.commands import main
from planner.compare.sides import read_side
from planner.report.data import BarsFigure
from planner.report.files import write_page
from planner.report.sources import report_of_folder
from simulator.errors import InputError
from studies.files.identity import hash_of, study_hash
from studies.files.journal import Journal
from studies.files.store import StudyStore
from tests.planner.report_studies import NOON, answered, drawn, job


def test_a_report_of_an_older_version_may_be_replaced(tmp_path: Path) -> None:
    target = write_page(drawn(), tmp_path / "page.html")
    text_of_older = target.read_text().replace("capplan report 4", "capplan report 3")
    target.write_text(text_of_older)
    write_page(drawn(), target)
    assert "capplan report 4" in target.read_text()[:2_000]


def without(text: str, *names: str) -> str:
    """JSON that lacks some fields."""
    return json.dumps({name: value for name, value in json.loads(text).items() if name not in names})


@pytest.mark.parametrize(
    ("file", "field"), [("recommendation.json", "num_feasible"), ("job.json", "workload")]
)
def test_a_folder_of_another_version_is_one_clear_error(
    file: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = tmp_path / "older"
    shutil.copytree(answered(), older)
    (older / file).write_text(without((older / file).read_text(), field))
    assert main(["report", str(older), "--output", str(tmp_path / "page.html")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("holds no answer of this version of capplan: run capplan recommend again") == 1
    assert not (tmp_path / "page.html").exists()


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The folder of the answer, with another `recommendation.json`."""
    copy = folder / "changed"
    shutil.copytree(answered(), copy)
    file = copy / "recommendation.json"
    answer = json.loads(file.read_text())
    change(answer)
    file.write_text(json.dumps(answer))
    return copy


MIXED: dict[str, Callable[[dict[str, Any]], object]] = {
    r"answers job other, not job llama-8b": lambda answer: answer.update(job="other"),
    r"has the objectives cost, and job llama-8b has time_to_train, cost": lambda answer: answer.update(
        objectives=["cost"]
    ),
    r"as offers\[7\], which job llama-8b does not offer": lambda answer: answer["recommendation"][
        "plan"
    ].update(offer=7),
    r"uses gaudi3 in": lambda answer: answer["front"][0].update(accelerator="gaudi3"),
    r"in nowhere as offers": lambda answer: answer["recommendation"].update(region="nowhere"),
    r"has the job_hash 0123, not [0-9a-f]{16} of job llama-8b": lambda answer: answer.update(job_hash="0123"),
}


@pytest.mark.parametrize("rule", MIXED)
def test_an_answer_beside_the_job_of_another_one_is_refused(rule: str, tmp_path: Path) -> None:
    folder = changed(tmp_path, MIXED[rule])
    with pytest.raises(InputError, match=rf"recommendation\.json .*{rule}"):
        report_of_folder(folder)
    with pytest.raises(InputError, match=rf"recommendation\.json .*{rule}"):
        read_side(str(folder))


def test_an_answer_in_a_form_of_later_versions_is_refused(tmp_path: Path) -> None:
    folder = changed(tmp_path, lambda answer: answer.update(schema_version=99))
    with pytest.raises(InputError, match="no answer of this version of capplan"):
        report_of_folder(folder)
    with pytest.raises(InputError, match="not an answer of this version of capplan"):
        read_side(str(folder))


def test_a_table_of_another_answer_is_refused(tmp_path: Path) -> None:
    folder = changed(tmp_path, lambda answer: answer["recommendation"].update(cost_usd=1.0))
    with pytest.raises(InputError, match=r"designs\.parquet lacks the recommended design"):
        report_of_folder(folder)


@pytest.mark.parametrize(
    ("column", "value"),
    [("cost_usd", "x"), ("tensor_parallel", [1]), ("excess_memory", "x"), ("recompute", b"\xff")],
)
def test_a_table_of_designs_with_other_values_is_one_clear_error(
    column: str, value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = changed(tmp_path, dict.copy)
    table = pq.read_table(folder / "designs.parquet")
    values = pa.array([value] * table.num_rows)
    pq.write_table(
        table.set_column(table.column_names.index(column), column, values), folder / "designs.parquet"
    )
    assert main(["report", str(folder), "--output", str(tmp_path / "page.html")]) == 1
    assert "designs.parquet is not a table of designs of this version: " in capsys.readouterr().err


@pytest.mark.parametrize("file", ["job.json", "recommendation.json"])
def test_files_of_an_answer_that_an_editor_saved_are_read_or_told(file: str, tmp_path: Path) -> None:
    folder = changed(tmp_path, dict.copy)
    text = (folder / file).read_text(encoding="utf-8")
    (folder / file).write_text(text, encoding="utf-8-sig")
    assert report_of_folder(folder).report.job.name == "llama-8b"
    assert read_side(str(folder)).job.name == "llama-8b"
    (folder / file).write_text(text, encoding="utf-16")
    for read in (report_of_folder, lambda each: read_side(str(each))):
        with pytest.raises(InputError, match=rf"(?s){file}.* is not UTF-8 text: it looks like UTF-16"):
            read(folder)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from planner.study.durable import run_study_of

    store = StudyStore(tmp_path_factory.mktemp("store"))
    return run_study_of(job(), seed=1, store=store, clock=lambda: NOON).path


@pytest.mark.parametrize(
    ("fact", "field", "commands"),
    [
        ("answer", "num_feasible", (["report"], ["study", "resume"], ["study", "sync"])),
        ("job", "workload", (["report"], ["study", "status"], ["study", "front"], ["study", "sync"])),
    ],
)
def test_a_study_of_another_version_is_one_clear_error(
    fact: str,
    field: str,
    commands: tuple[list[str], ...],
    study: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    older = tmp_path / study.name
    shutil.copy(study, older)
    with Journal.open(older) as journal:
        facts = {**journal.facts, fact: without(journal.facts[fact], field)}
        job_hash = hash_of([facts["job"]])
        hashes = {
            "job_hash": job_hash,
            "study_hash": study_hash(job_hash, facts["code_hash"], facts["seed"]),
        }
        journal.note({fact: facts[fact], **hashes})
    rule = f"the {fact} of this study was written by another version of capplan ({field}: Field required)"
    for words in commands:
        assert main([*words, older.stem, "--store", str(tmp_path)]) == 1
        assert capsys.readouterr().err.count(rule) == 1, words


def test_fields_that_an_older_answer_lacks_and_that_have_a_default_are_filled_in(tmp_path: Path) -> None:
    older = tmp_path / "older"
    shutil.copytree(answered(), older)
    file = older / "recommendation.json"
    file.write_text(without(file.read_text(), "what_if", "warnings"))
    assert report_of_folder(older).report.figures == drawn().report.figures
    # Without the best designs, the recommended one is drawn alone.
    file.write_text(without(file.read_text(), "best_of_each"))
    old, new = report_of_folder(older).report.figures, drawn().report.figures
    assert [figure.name for figure in old] == [figure.name for figure in new]
    (cost,) = (figure for figure in old if figure.name == "cost")
    assert isinstance(cost, BarsFigure)
    assert [bar.label.partition(":")[0] for bar in cost.bars] == ["recommended"]
