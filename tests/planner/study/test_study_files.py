"""Are files of studies found, merged, and called damaged when they are?"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from planner.compare.sides import read_side
from planner.recommended.study_facts import leaves_of
from planner.study.durable import resume_study
from planner.study.export import export_designs
from planner.study.merge import merge_studies
from planner.study.reports import front_of, list_studies, state_of, status_of
from planner.tracking.delivery import deliver
from planner.tracking.sending import Target
from simulator.domain.limits import Limits
from simulator.errors import StudyError
from studies.files.journal import Journal
from studies.files.store import StudyStore
from tests.planner.studies_run import NOW, exhaustive_job, job_of, keys_of, made, run, stop_after

BLOOM = str(Path(__file__).parents[3] / "examples" / "bloom-176b.yaml")


def test_an_export_says_of_how_many_simulated_designs_a_study_kept_fronts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner.cli.commands import main

    study = made(tmp_path, job=exhaustive_job(), keep="front")
    text, table = tmp_path / "kept.csv", tmp_path / "kept.parquet"
    command = ["study", "export", study.path.stem, "--store", str(tmp_path)]
    assert main([*command, str(text)]) == 0
    num_rows, num_simulated = len(text.read_text().splitlines()) - 1, study.answer.num_evaluated
    assert 0 < num_rows < num_simulated
    told = f"{num_rows:,} of {num_simulated:,} designs (this study keeps fronts) in {text}\n"
    assert capsys.readouterr().out == told
    assert main([*command, str(table), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["num_designs"], answer["num_simulated"], answer["keep"]) == (
        num_rows,
        num_simulated,
        "front",
    )
    other = run(tmp_path, job=job_of(algorithm="random"), should_stop=stop_after(0)).path
    with pytest.raises(StudyError, match="export of it has only these: run the job anew with keep=all"):
        merge_studies([study.path, other], tmp_path / "both.study", NOW)


def test_a_file_that_is_no_study_does_not_hide_the_others(tmp_path: Path) -> None:
    study = made(tmp_path, num_batches=0)
    (tmp_path / "broken.study").write_bytes(b"nothing that SQLite knows" * 100)
    states = {state.name: state.state for state in list_studies(StudyStore(tmp_path))}
    assert states == {"broken": "damaged", study.path.stem: "stopped"}
    assert resume_study(study.path).counts.num_reused == 0


def test_the_list_tells_a_study_of_another_version_from_a_damaged_one_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner.cli.commands import main

    older = made(tmp_path, num_batches=0).path
    with sqlite3.connect(older) as database:
        database.execute("UPDATE facts SET value = 'capplan study 1' WHERE name = 'format'")
    database.close()
    (tmp_path / "broken.study").write_bytes(b"nothing that SQLite knows" * 100)
    states = {state.name: state.state for state in list_studies(StudyStore(tmp_path))}
    assert states == {"broken": "damaged", older.stem: "other_version"}
    assert main(["study", "list", "--store", str(tmp_path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"{older.stem} other version 0" in told
    assert "study of another version: 'capplan study 1' instead of 'capplan study 4'" in told
    assert "broken: study" in told
    assert "file is not a database" in told


def test_a_study_whose_job_was_changed_in_its_file_is_damaged_for_every_command(tmp_path: Path) -> None:
    study = run(tmp_path, job=job_of().model_copy(update={"limits": Limits(budget_usd=250_000.0)}))
    content = study.path.read_bytes()
    written = b'"budget_usd":250000.0'
    assert content.count(written) == 1
    study.path.write_bytes(content.replace(written, b'"budget_usd":7950.000'))
    (state,) = list_studies(StudyStore(tmp_path))
    assert state.state == "damaged"
    target = Target(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    for command in (
        lambda: status_of(study.path),
        lambda: front_of(study.path),
        lambda: resume_study(study.path),
        lambda: resume_study(study.path, target=target),
        lambda: deliver(study.path, tracking_uri=target.tracking_uri),
        lambda: export_designs(study.path, tmp_path / "designs.csv"),
    ):
        with pytest.raises(StudyError, match="is damaged"):
            command()
    assert [path.name for path in tmp_path.iterdir()] == [study.path.name]


@pytest.mark.parametrize("fact", ["job_hash", "study_hash", "code_hash", "seed"])
def test_a_job_that_is_not_that_of_the_hashes_is_refused(tmp_path: Path, fact: str) -> None:
    path = made(tmp_path, num_batches=1).path
    with Journal.open(path) as journal:
        journal.note({fact: "7"})  # with a right checksum
    with pytest.raises(StudyError, match="damaged, because its job, code and seed do not match its hash"):
        resume_study(path)


def test_merged_studies_hold_each_design_once_and_the_front_of_all(tmp_path: Path) -> None:
    first, second = made(tmp_path, seed=1), made(tmp_path, seed=2)
    target = StudyStore(tmp_path).path_named("both")
    num_designs = merge_studies([first.path, second.path], target, NOW)
    union = np.union1d(keys_of(first.path), keys_of(second.path))
    np.testing.assert_array_equal(np.sort(keys_of(target)), union)
    np.testing.assert_array_equal(keys_of(target)[: len(keys_of(first.path))], keys_of(first.path))
    assert num_designs == len(union) < len(keys_of(first.path)) + len(keys_of(second.path))
    merged = front_of(target)
    assert merged.study.state == "merged"
    assert merged.study.merged_from == (first.path.stem, second.path.stem)
    best = min(design.cost_usd for study in (first, second) for design in study.answer.front)
    assert min(design.cost_usd for design in merged.front) == best
    with pytest.raises(StudyError, match="was merged from"):
        resume_study(target)
    with pytest.raises(StudyError, match=f"deliver these: {first.path.stem}, {second.path.stem}"):
        deliver(target, tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    with pytest.raises(StudyError, match=f"compare these: {first.path.stem}, {second.path.stem}"):
        read_side(target.stem, StudyStore(tmp_path))


def test_a_study_that_comes_in_by_two_ways_counts_once(tmp_path: Path) -> None:
    first, second = (made(tmp_path, seed=seed, num_batches=3).path for seed in (1, 2))
    both, again, other = (StudyStore(tmp_path).path_named(name) for name in ("both", "again", "other"))
    seconds = state_of(first).elapsed_s + state_of(second).elapsed_s
    merge_studies([first, second], both, NOW)
    merge_studies([first, both], again, NOW)
    merge_studies([both, second], other, NOW)
    for path in (both, again, other):
        state = status_of(path)
        assert state.merged_from == (first.stem, second.stem)
        assert state.seed is None
        assert state.elapsed_s == pytest.approx(seconds, rel=1e-12)
        np.testing.assert_array_equal(keys_of(path), keys_of(both))
    with pytest.raises(StudyError, match=f"deliver these: {first.stem}, {second.stem}"):
        deliver(again, tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")


def test_what_a_study_did_since_it_was_merged_comes_in_with_a_second_merger(tmp_path: Path) -> None:
    first, second = (made(tmp_path, seed=seed, num_batches=2).path for seed in (1, 2))
    both, again = (StudyStore(tmp_path).path_named(name) for name in ("both", "again"))
    merge_studies([first, second], both, NOW)
    resume_study(first, should_stop=stop_after(5))
    merge_studies([both, first], again, NOW)
    union = np.union1d(keys_of(first), keys_of(second))
    np.testing.assert_array_equal(np.sort(keys_of(again)), union)
    assert len(union) > len(keys_of(both))
    seconds = state_of(first).elapsed_s + state_of(second).elapsed_s
    assert state_of(again).elapsed_s == pytest.approx(seconds, rel=1e-12)


def test_time_goes_on_from_one_study_of_a_merger_to_the_next(tmp_path: Path) -> None:
    def times_s(path: Path) -> list[float]:
        with Journal.read(path) as journal:
            return [batch.elapsed_s for batch in journal.batches()]

    paths = [
        made(tmp_path, seed=seed, num_batches=num_batches).path
        for seed, num_batches in ((1, 3), (2, 2), (3, 2))
    ]
    every, again = (StudyStore(tmp_path).path_named(name) for name in ("every", "again"))
    merge_studies(paths, every, NOW)
    began_s = np.cumsum([0.0, *(state_of(path).elapsed_s for path in paths)])
    expected = pytest.approx(
        [began + time_s for began, path in zip(began_s, paths, strict=False) for time_s in times_s(path)],
        rel=1e-12,
    )
    assert times_s(every) == expected
    merge_studies([paths[0], every], again, NOW)  # the other studies begin in the middle of their file
    assert times_s(again) == expected
    np.testing.assert_array_equal(keys_of(again), keys_of(every))
    for path in (every, again):
        with Journal.read(path) as journal:
            leaves = leaves_of(journal.facts)
            assert [leaf.num_batches for leaf in leaves] == [len(times_s(each)) for each in paths]
            assert sum(leaf.num_batches for leaf in leaves) == journal.num_batches


def test_studies_of_one_seed_merge_into_one_of_that_seed(tmp_path: Path) -> None:
    jobs = (job_of(), job_of(algorithm="random"))
    first, second = (run(tmp_path, job=job, should_stop=stop_after(1)).path for job in jobs)
    merge_studies([first, second], tmp_path / "both.study", NOW)
    assert state_of(tmp_path / "both.study").seed == 1


def test_a_merge_that_fails_leaves_nothing_where_the_new_study_was_to_be(tmp_path: Path) -> None:
    first, second = (made(tmp_path, seed=seed, num_batches=2).path for seed in (1, 2))
    with sqlite3.connect(second) as database:
        database.execute("UPDATE batches SET checksum = x'00' WHERE number = 1")
    database.close()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StudyError, match="batch 1 is damaged"):
        merge_studies([first, second], tmp_path / "both.study", NOW)
    assert sorted(tmp_path.iterdir()) == before


def test_the_file_of_a_study_is_called_by_the_words_of_its_job_without_what_commands_take_for_options(
    tmp_path: Path,
) -> None:
    job = job_of().model_copy(update={"name": "--7B, try 2."})
    assert StudyStore(tmp_path).path_for(job, seed=1).name.startswith("7B-try-2-")


def test_a_study_is_called_by_its_hash_or_the_start_of_it(tmp_path: Path) -> None:
    path = made(tmp_path, num_batches=0).path
    with Journal.read(path) as journal:
        whole_hash = journal.facts["study_hash"]
    store = StudyStore(tmp_path)
    for length in (4, 7, 8, 9, len(whole_hash)):
        assert store.find(whole_hash[:length]) == path
    for name in (whole_hash[:3], f"{whole_hash}0", ""):
        with pytest.raises(StudyError, match="there is no such study"):
            store.find(name)


def test_a_study_is_called_by_the_start_of_its_name_where_no_other_one_begins_so(tmp_path: Path) -> None:
    first, second = (made(tmp_path, seed=seed, num_batches=0).path for seed in (1, 2))
    store = StudyStore(tmp_path)
    both = store.path_named("together")
    merge_studies([first, second], both, NOW)
    assert store.find("toge") == store.find("together") == store.find("together.study") == both
    assert store.find(first.stem[:-3]) == first
    shared = first.stem[: first.stem.rindex("-") + 1]
    with pytest.raises(StudyError, match=f"several studies begin so .*there are: .*{second.stem}"):
        store.find(shared)
    with pytest.raises(StudyError, match="there is no such study"):
        store.find("tog")


def test_a_study_is_called_by_the_path_of_its_file_with_the_suffix_or_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run(tmp_path / "kept", should_stop=stop_after(0)).path
    elsewhere = StudyStore(tmp_path / "other")
    assert elsewhere.find(str(path)) == elsewhere.find(str(path.with_suffix(""))) == path
    monkeypatch.chdir(path.parent)
    assert elsewhere.find(path.stem) == Path(path.name)
    assert StudyStore(path.parent).find(path.stem) == path


def test_a_file_that_is_not_called_like_a_study_is_said_to_lack_the_suffix(tmp_path: Path) -> None:
    copy = tmp_path / "backup.sqlite"
    copy.write_bytes(made(tmp_path, num_batches=0).path.read_bytes())
    with pytest.raises(StudyError, match=r"backup\.sqlite is a file, but not of a study: .* end in \.study"):
        StudyStore(tmp_path).find(str(copy))


@pytest.mark.parametrize("place", ["job.yaml", "job.yaml/below"])
def test_a_store_that_is_a_file_is_refused_by_every_command_and_nothing_is_written(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner.cli.commands import main

    (tmp_path / "job.yaml").write_text("workload: {}")
    store = ["--store", str(tmp_path / place)]
    for command in (
        ["list"],
        ["run", BLOOM],
        ["sync"],
        ["status", "any"],
        ["merge", "a", "b", "--into", "c"],
    ):
        assert main(["study", *command, *store]) == 1
        told = capsys.readouterr()
        assert f"{tmp_path / 'job.yaml'} is a file: name another folder with --store" in told.err
        assert told.out == ""
    assert (tmp_path / "job.yaml").read_text() == "workload: {}"
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


def test_a_folder_of_studies_that_is_not_there_is_named_and_made_with_the_first_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner.cli.commands import main

    missing = tmp_path / "typed" / "wrong"
    assert main(["study", "list", "--store", str(missing)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith(f"No studies in {missing}, which does not exist yet; start one with")
    assert main(["study", "status", "any", "--store", str(missing)]) == 1
    assert f"no such study in {missing}, which is no folder yet" in capsys.readouterr().err
    assert run(missing, should_stop=stop_after(0)).path.parent == missing
    assert main(["study", "list", "--store", str(tmp_path)]) == 0
    assert "not there" not in capsys.readouterr().out


@pytest.mark.parametrize("num_bytes", [0, 50, 5000])
def test_a_file_that_was_cut_short_is_called_damaged_and_not_a_lack_of_space(
    tmp_path: Path, num_bytes: int
) -> None:
    path = made(tmp_path, num_batches=2).path
    path.write_bytes(path.read_bytes()[:num_bytes])
    with pytest.raises(StudyError, match="damaged, cut short, or no study") as raised:
        status_of(path)
    assert "space" not in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"a letter\n", b"\x89PNG\r\n" + bytes(4096)])
def test_another_file_in_the_place_of_a_study_is_not_called_the_same_job(
    tmp_path: Path, content: bytes
) -> None:
    store = StudyStore(tmp_path)
    path = store.path_for(job_of(), 1)
    path.write_bytes(content)
    with pytest.raises(StudyError, match=r"or no study .*move it away and run the job as a new study"):
        run(tmp_path)
    assert path.read_bytes() == content


def test_a_folder_in_the_place_of_a_study_is_called_no_file(tmp_path: Path) -> None:
    path = StudyStore(tmp_path).path_for(job_of(), 1)
    path.mkdir()
    with pytest.raises(StudyError, match=rf"^{path} is no file, and so no study$"):
        run(tmp_path)


def test_another_study_under_the_name_of_a_new_one_is_not_called_the_same_job(tmp_path: Path) -> None:
    other = made(tmp_path, num_batches=1, seed=2).path
    path = other.rename(StudyStore(tmp_path).path_for(job_of(), 1))
    with pytest.raises(StudyError, match="holds another study, though it is called as this one would be"):
        run(tmp_path)
    assert state_of(path).seed == 2


def test_an_ended_study_with_damaged_designs_is_refused_by_all_that_reads_it(tmp_path: Path) -> None:
    study = made(tmp_path)
    with sqlite3.connect(study.path) as database:
        database.execute("UPDATE batches SET payload = zeroblob(length(payload)) WHERE number = 1")
    database.close()
    for read in (status_of, front_of, resume_study):
        with pytest.raises(StudyError, match="batch 1 is damaged"):
            read(study.path)


def test_a_new_study_takes_away_what_a_killed_process_left_and_nothing_else(tmp_path: Path) -> None:
    killed = (
        "import os\n"
        "from pathlib import Path\n"
        "from studies.files.journal import Journal\n"
        f"with Journal.draft(Path({str(tmp_path)!r}) / 'other.study', {{'seed': '1'}}):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", killed], check=False, timeout=60)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".other.study.")
    of_a_living_process = left.with_name(left.name.replace(left.suffix, f".{os.getppid()}"))
    of_another_machine = left.with_name(".other.study.elsewhere.1")
    left.with_name(f"{left.name}-journal").touch()
    of_a_living_process.touch()
    of_another_machine.touch()
    Journal.create(tmp_path / "new.study", {"seed": "1"}).close()
    assert set(tmp_path.iterdir()) == {tmp_path / "new.study", of_a_living_process, of_another_machine}
