"""Do many processes give what one gives, whatever happens to them, and refuse what would make a difference?"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client

from constraints.lattice import BlockIndex
from constraints.limits import with_limits
from constraints.space import PrunedBlock, pruned_space, space_of
from planner.study.durable import Counts, StudyAnswer, resume_study, run_study_of
from planner.study.machines import machines
from planner.study.reports import front_of, status_of
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.errors import EngineError
from simulator.simulate import Outcomes
from studies import exhaustive
from studies.designs.blocks import BlockPart
from studies.designs.reduction import Reduction
from studies.evaluation import distributed, distributed_tasks, evaluator
from studies.evaluation.distributed import Cluster, cluster_at, local_cluster
from studies.evaluation.engine import Engine, Pending, ThisProcess
from studies.files.identity import Keep
from studies.files.store import StudyStore
from studies.progress import Progress, Report, Stop, ignore, never_stop
from tests.studies.study_jobs import small_job

pytestmark = pytest.mark.long
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DESIGNS_PER_BLOCK = 700


def client_of(cluster: Cluster) -> Client:
    """A connection to its scheduler."""
    return Client(cluster.address)  # type: ignore[no-untyped-call]  # distributed has no types here


def process_ids(cluster: Cluster) -> list[int]:
    """The processes of both workers; one that was killed before is back first."""
    with client_of(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        return list(client.run(os.getpid).values())


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two workers, which cost seconds to start."""
    with local_cluster(2) as workers:
        yield workers


@pytest.fixture(scope="module", autouse=True)
def _small_chunks() -> Iterator[None]:
    """Chunks so small that the tests' few designs make many of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed, "LEAST_DESIGNS_PER_CHUNK", 20)
        patch.setattr(exhaustive, "DESIGNS_PER_BATCH", DESIGNS_PER_BLOCK)
        patch.setattr(exhaustive, "LEAST_PER_PART", DESIGNS_PER_BLOCK)
        patch.setattr(evaluator, "LEAST_SHARED_BLOCKS", 1)
        yield


def job_of(**search: object) -> Job:
    """About four thousand designs."""
    settings = {"tensor_parallel": [1, 2], "context_parallel": [1], "pipeline_parallel": [1, 2]}
    return small_job(**{**settings, **search})


NSGA2 = {"algorithm": "nsga2", "max_evaluations": 300, "population_size": 60, "num_refinements": 1}


def run(
    folder: Path,
    job: Job,
    cluster: Cluster | None = None,
    *,
    keep: Keep = "all",
    progress: Report = ignore,
    should_stop: Stop = never_stop,
) -> StudyAnswer:
    return run_study_of(
        job,
        seed=1,
        store=StudyStore(folder),
        clock=lambda: NOW,
        engine_for=cluster.engine_for if cluster else ThisProcess,
        keep=keep,
        progress=progress,
        should_stop=should_stop,
    )


def stop_after(num_batches: int) -> Stop:
    left = iter([False] * num_batches)
    return lambda: next(left, True)


def written(study: StudyAnswer) -> list[tuple[object, ...]]:
    """Everything that a journal says about designs, as bytes; only the seconds are left out."""
    with closing(sqlite3.connect(study.path)) as connection:
        query = "SELECT number, stage, num_designs, keys, payload FROM batches ORDER BY number"
        return connection.execute(query).fetchall()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> StudyAnswer:
    """The study of `job_of()`, by one process from start to end."""
    return run(tmp_path_factory.mktemp("whole"), job_of())


def assert_equal(found: StudyAnswer, expected: StudyAnswer) -> None:
    assert found.answer.model_dump_json() == expected.answer.model_dump_json()
    assert written(found) == written(expected)


@pytest.mark.parametrize(
    ("search", "keep"),
    [({"num_refinements": 1}, "all"), ({"num_refinements": 1}, "front"), (NSGA2, "all")],
    ids=["exhaustive", "exhaustive-front", "nsga2"],
)
def test_two_workers_write_the_bytes_that_one_process_writes(
    tmp_path: Path, cluster: Cluster, search: dict[str, object], keep: Keep
) -> None:
    job = job_of(**search)
    alone = run(tmp_path / "alone", job, keep=keep)
    shared = run(tmp_path / "shared", job, cluster, keep=keep)
    assert len(written(alone)) > 4
    assert_equal(shared, alone)


def test_a_worker_that_is_killed_in_the_middle_changes_nothing(
    tmp_path: Path, cluster: Cluster, whole: StudyAnswer
) -> None:
    killed: list[int] = []

    def kill_a_worker(progress: Progress) -> None:
        if not killed and progress.num_done > DESIGNS_PER_BLOCK:
            pids = process_ids(cluster)
            killed.append(pids[0])
            os.kill(pids[0], signal.SIGKILL)

    shared = run(tmp_path / "shared", job_of(), cluster, progress=kill_a_worker)
    assert len(killed) == 1
    assert_equal(shared, whole)


def test_a_space_that_two_workers_prune_is_that_of_one_process_though_one_of_them_is_killed(
    cluster: Cluster,
) -> None:
    # A block for each power cap; the budget keeps some layouts out, the power limit others.
    caps = np.linspace(0.6, 1.0, 40).round(3).tolist()
    bounds = pruned_space(job_of(power_caps=caps)).bounds
    limits = {name: float(np.quantile(getattr(bounds, name), 0.7)) for name in ("budget_usd", "power_w")}
    job = with_limits(job_of(power_caps=caps), limits)
    alone, engine = pruned_space(job), cluster.engine_for(job)
    num_blocks = len(BlockIndex(job))
    assert num_blocks == len(alone.kept_bits) == len(caps)
    pending = [engine.prune(number) for number in range(num_blocks)]
    first = pending[0]()
    os.kill(process_ids(cluster)[1], signal.SIGKILL)
    shared = space_of(job, [first, *(wait() for wait in pending[1:])])
    assert {"budget_usd", "power_w"} <= set(alone.num_pruned)
    assert 0 < alone.num_kept < alone.num_layouts
    for name in ("num_layouts", "num_kept", "num_designs", "num_pruned"):
        assert getattr(shared, name) == getattr(alone, name), name
    np.testing.assert_array_equal(np.concatenate(shared.kept_bits), np.concatenate(alone.kept_bits))


def test_only_a_space_of_many_blocks_goes_to_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(Engine):
        """Has two workers, and counts the blocks that they prune."""

        num_ahead = 4

        def __init__(self, job: Job) -> None:
            self._here = ThisProcess(job)

        def simulate(self, plans: PlanTable, *, is_awaited: bool) -> Pending[Outcomes]:
            return self._here.simulate(plans, is_awaited=is_awaited)

        def prune(self, number: int) -> Pending[PrunedBlock]:
            numbers.append(number)
            return self._here.prune(number)

        def reduce(self, part: BlockPart) -> Pending[Reduction]:
            return self._here.reduce(part)

    numbers: list[int] = []
    monkeypatch.setattr(evaluator, "LEAST_SHARED_BLOCKS", 3)
    for caps, expected in (([1.0, 0.9], []), ([1.0, 0.9, 0.8], [0, 1, 2])):
        job = job_of(power_caps=caps, tensor_parallel=[1], pipeline_parallel=[1])
        shared = run_study_of(job, seed=1, store=StudyStore(tmp_path), clock=lambda: NOW, engine_for=Counting)
        assert numbers == expected
        assert_equal(shared, run(tmp_path / "alone", job))


def test_a_study_goes_on_with_other_machines_than_it_was_begun_with(
    tmp_path: Path, cluster: Cluster, whole: StudyAnswer
) -> None:
    stopped = run(tmp_path / "stopped", job_of(), cluster, should_stop=stop_after(2))
    assert stopped.answer.status == "interrupted"
    resumed = resume_study(stopped.path, engine_for=cluster.engine_for)
    assert resumed.counts.num_read_back == 2 * DESIGNS_PER_BLOCK
    assert_equal(resumed, whole)


@pytest.mark.parametrize("resume_alone", [True, False])
def test_fronts_of_blocks_add_up_to_the_answer_that_all_designs_give(
    tmp_path: Path, cluster: Cluster, whole: StudyAnswer, *, resume_alone: bool
) -> None:
    stopped = run(tmp_path / "front", job_of(), cluster, keep="front", should_stop=stop_after(2))
    resumed = resume_study(stopped.path, engine_for=ThisProcess if resume_alone else cluster.engine_for)
    assert resumed.counts.num_read_back > 0
    assert resumed.answer.model_dump_json() == whole.answer.model_dump_json()
    assert front_of(resumed.path).front == whole.answer.front
    status = status_of(resumed.path)
    assert (status.num_designs, status.num_feasible) == (
        whole.answer.num_evaluated,
        whole.answer.num_feasible,
    )
    assert resumed.path.stat().st_size < whole.path.stat().st_size / 2


def test_a_study_takes_over_what_another_one_has_simulated_and_sends_only_the_rest(
    tmp_path: Path, cluster: Cluster, whole: StudyAnswer
) -> None:
    first = run(tmp_path, job_of(tensor_parallel=[1]), cluster)
    both = run(tmp_path, job_of(), cluster)
    assert both.counts.num_reused == first.answer.num_evaluated
    assert both.counts.num_simulated == both.answer.num_evaluated - both.counts.num_reused
    assert both.answer.front == whole.answer.front


def test_workers_to_whom_no_batch_was_worth_sending_are_told_to_have_been_idle(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "LEAST_DESIGNS_PER_CHUNK", 1_024)
    with machines(scheduler=cluster.address) as engine_for:

        def begun(folder: str) -> Counts:
            store = StudyStore(tmp_path / folder)
            stop = stop_after(2)
            return run_study_of(job_of(**NSGA2), store=store, engine_for=engine_for, should_stop=stop).counts

        kept = begun("kept")
        assert engine_for.idle_note(kept).startswith(
            "The workers simulated nothing: batches of fewer than 1,024 designs stay in this process"
        )
        assert engine_for.idle_note(replace(kept, num_simulated=0)) == ""
        monkeypatch.setattr(distributed, "LEAST_DESIGNS_PER_CHUNK", 20)
        assert engine_for.idle_note(begun("sent")) == ""
    with machines() as alone:
        assert alone.idle_note(kept) == ""


def test_workers_with_other_code_are_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed_tasks, "code_hash", lambda *_: "0" * 16)
    with (
        pytest.raises(
            EngineError, match=r"2 of 2 workers cannot be used: tcp.* here 0000.* install the same"
        ),
        cluster_at(cluster.address),
    ):
        pass


class AskedWorkers:
    """Stands in for a client of Dask whose workers have said something when they were asked for their code."""

    def __init__(self, *said: object) -> None:
        self._said = {f"tcp://10.0.0.{number}:1": one for number, one in enumerate(said, 1)}

    def wait_for_workers(self, *_: object, **__: object) -> None:
        """They are there."""

    def run(self, *_: object, **__: object) -> dict[str, object]:
        """What they say."""
        return self._said


def asked(*said: object) -> Cluster:
    return Cluster(AskedWorkers(*said), "tcp://10.0.0.9:8786")  # type: ignore[arg-type]


def test_a_worker_that_is_lost_while_it_is_asked_for_its_code_ends_nothing() -> None:
    from distributed.comm.core import CommClosedError

    gone = (CommClosedError("in <TCP>: Stream is closed"), ConnectionRefusedError(111, "refused"))
    asked(gone[0], distributed_tasks.own_code(), gone[1])
    for others in (("0" * 32,), (ModuleNotFoundError("No module named 'studies'"),)):
        with pytest.raises(EngineError, match=r"1 of 2 workers cannot be used: tcp://10\.0\.0\.3:1 has"):
            asked(gone[0], distributed_tasks.own_code(), *others)


def test_workers_that_are_all_lost_at_the_start_are_told_from_workers_with_other_code() -> None:
    from distributed.comm.core import CommClosedError

    with pytest.raises(
        EngineError, match=r"10\.0\.0\.9:8786: all workers \(2\) were lost at the start.*resume"
    ):
        asked(CommClosedError("closed"), TimeoutError("no answer"))


def test_a_worker_that_cannot_read_its_own_code_is_no_lost_one() -> None:
    with pytest.raises(EngineError, match=r"no such version of capplan \(FileNotFoundError"):
        asked(FileNotFoundError(2, "No such file", "simulator/step/step.py"))


def test_a_worker_with_other_code_that_comes_later_refuses_every_chunk(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed_tasks, "code_hash", lambda *_: "0" * 16)
    with pytest.raises(EngineError, match=r"other code or libraries than the study.*then resume"):
        run(tmp_path, job_of(), cluster)


def test_a_scheduler_that_does_not_answer_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "CONNECT_TIMEOUT_S", 1)
    with (
        pytest.raises(EngineError, match=r"tcp://127\.0\.0\.1:9 does not answer.*dask scheduler"),
        machines(scheduler="tcp://127.0.0.1:9"),
    ):
        pass


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "find_spec", lambda _: None)
    with pytest.raises(EngineError, match=r"pip install 'capplan\[dask\]'"), machines(num_workers=2):
        pass


def test_a_scheduler_that_goes_away_ends_the_study_and_what_was_written_is_there(
    tmp_path: Path, whole: StudyAnswer
) -> None:
    # In place of half a minute, for which Dask waits twice for who does not answer.
    with dask.config.set({"distributed.comm.timeouts.connect": "5s"}), local_cluster(1) as workers:

        def end_it(progress: Progress) -> None:
            if progress.num_done > DESIGNS_PER_BLOCK:
                with client_of(workers) as client:
                    client.shutdown()

        with pytest.raises(EngineError, match=r"what was written is kept.*then resume"):
            run(tmp_path / "broken", job_of(), workers, progress=end_it)
    (path,) = StudyStore(tmp_path / "broken").paths()
    resumed = resume_study(path)
    assert resumed.counts.num_read_back >= DESIGNS_PER_BLOCK
    assert_equal(resumed, whole)


def test_both_ways_to_name_machines_at_once_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from planner.cli.commands import main

    both = ["--workers", "2", "--scheduler", "tcp://127.0.0.1:8786"]
    assert main(["study", "run", "job.yaml", *both]) == 2
    assert "give one of them" in capsys.readouterr().err


def test_designs_that_share_a_chunk_come_out_as_alone(cluster: Cluster) -> None:
    job = job_of()
    plans = next(pruned_space(job).design_batches(300))
    engine = cluster.engine_for(job)
    whole = engine.simulate(plans, is_awaited=True)().columns()
    alone = ThisProcess(job).simulate(plans.take(slice(7, 8)), is_awaited=True)().columns()
    for name, column in alone.items():
        np.testing.assert_array_equal(whole[name][7:8], column, err_msg=name)
