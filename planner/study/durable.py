"""How is a job answered so that nothing is lost if the machine fails? As a study with a journal, which can be resumed.

capplan study run JOB.yaml      begins a study
capplan study resume NAME       continues where it was killed, and gives the same answer
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self, get_args

from constraints.space import pruned_space
from planner.answer.recommend import Clock, search_and_answer, utc_now
from planner.input.arguments import check_choice, check_functions, check_kind, path_given
from planner.input.given import checked_job
from planner.recommended.recommendation import Recommendation
from planner.recommended.study_facts import (
    ANSWER,
    DELIVERED_TO,
    STATUS,
    TRACKED_IN,
    check_not_merged,
    job_of,
    keep_of,
    stored_answer,
)
from planner.tracking.delivery import delivered
from planner.tracking.sending import Target, telling
from simulator.domain.job import Job
from simulator.domain.search_options import Algorithm
from simulator.errors import StudyError, TrackingError, words_of
from studies.evaluation.engine import Engine, ThisProcess
from studies.evaluation.evaluator import JournaledSimulation
from studies.files.identity import Identity, Keep
from studies.files.journal import Journal
from studies.files.store import StudyStore, only_runner
from studies.progress import RECORDING_IN_MLFLOW, Progress, Report, Stop, ignore, never_stop
from studies.study import chosen_algorithm

EngineFor = Callable[[Job], Engine]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Where the evaluations of one start of a study came from."""

    num_read_back: int
    """Designs that the journal held."""
    num_reused: int
    """Designs that another study had simulated."""
    num_simulated: int

    @classmethod
    def of(cls, evaluator: JournaledSimulation) -> Self:
        """Returns the counts of a search so far."""
        return cls(
            num_read_back=evaluator.num_read_back,
            num_reused=evaluator.num_reused,
            num_simulated=evaluator.num_simulated,
        )


@dataclass(frozen=True, kw_only=True)
class StudyAnswer:
    """The result of one start of a study."""

    path: Path
    """The study's file."""
    answer: Recommendation
    """The answer; it says where MLflow has the study if the study was sent there while it ran."""
    counts: Counts
    tracking_failure: str = ""
    """Why MLflow does not have the whole study although it was to be sent there; else empty."""


def run_study_of(
    job: Job,
    *,
    seed: int = 0,
    store: StudyStore | None = None,
    progress: Report = ignore,
    should_stop: Stop = never_stop,
    clock: Clock = utc_now,
    engine_for: EngineFor = ThisProcess,
    keep: Keep = "all",
    target: Target | None = None,
) -> StudyAnswer:
    """Begins a study of a job and searches until it is answered or stopped.

    Args:
        job: the question.
        seed: seed of everything random; the same job, code and seed are the same study.
        store: where the study is stored.
        progress: receives progress reports.
        should_stop: called between batches; true stops the search.
        clock: time of day for `created_at`.
        engine_for: returns the engine that simulates the designs of a job; it does not affect the result.
        keep: which designs an exhaustive search keeps: `all`, or the `front` of every block of designs, with counts.
        target: MLflow store to which the study is sent while it runs; if that fails, the study goes on.

    Raises:
        InputError: the job, the seed or another argument breaks a rule.
        StudyError: this study already exists, the store cannot be written to, or `keep` is `front` for a search that is not
            exhaustive.
    """
    job = checked_job(job, seed)
    check_choice(keep, "keep", get_args(Keep))
    check_functions(clock=clock)
    _check_means(store, target, progress, should_stop, engine_for)
    store = store or StudyStore()
    if keep == "front":
        _check_exhaustive(job)
    path = store.create(job, seed, clock(), keep)
    return resume_study(
        path,
        store=store,
        progress=progress,
        should_stop=should_stop,
        engine_for=engine_for,
        target=target,
    )


def resume_study(
    path: str | Path,
    *,
    store: StudyStore | None = None,
    progress: Report = ignore,
    should_stop: Stop = never_stop,
    engine_for: EngineFor = ThisProcess,
    target: Target | None = None,
) -> StudyAnswer:
    """Continues a study until it is answered or stopped.

    An answered study returns its answer again, and sends to MLflow what is missing there.

    Args:
        path: the study's file.
        store: store whose other studies' evaluations are reused.
        progress: receives progress reports.
        should_stop: called between batches; true stops the search.
        engine_for: see `run_study_of`.
        target: see `run_study_of`.

    Raises:
        InputError: an argument breaks a rule.
        StudyError: the study does not exist, is being run by another process, is a merged one, is damaged, was begun by
            other code, or cannot be written to.
        EngineError: the engine cannot simulate; what was written is kept.
    """
    path = path_given(path, of="a study")
    _check_means(store, target, progress, should_stop, engine_for)
    store = store or StudyStore(path.parent)
    if target is None and (ended := _told_again(path)):
        return ended
    with only_runner(path), Journal.open(path) as journal:
        if ANSWER in journal.facts:
            _announce_recording(progress, target)
            return _answered(journal, journal.facts, target)
        return _searched(journal, store, engine_for, target, progress, should_stop)


def _searched(
    journal: Journal,
    store: StudyStore,
    engine_for: EngineFor,
    target: Target | None,
    progress: Report,
    should_stop: Stop,
) -> StudyAnswer:
    """Searches from where the journal ends until the study is answered or stopped."""
    facts, name = journal.facts, journal.path.stem
    job, seed = _resumable(name, facts)
    if target is not None:
        journal.note({TRACKED_IN: target.place})
    known = store.known_designs(journal.path)
    with (
        JournaledSimulation(job, journal, known, engine_for(job)) as evaluator,
        telling(job, facts, name, target, evaluator.elapsed_s, evaluator.settle) as told,
    ):
        answer = search_and_answer(
            job,
            seed,
            told.recording,
            evaluator,
            now=datetime.fromisoformat(facts["created_at"]),
            reducer=evaluator.reductions if keep_of(facts) == "front" else None,
            progress=progress,
            should_stop=should_stop,
        )
        evaluator.settle()
        if answer.status != "interrupted":
            journal.note({ANSWER: answer.model_dump_json(), STATUS: answer.status})
        _announce_recording(progress, target)
        record = told.finish(answer)
    if record is not None and target is not None:
        journal.note({DELIVERED_TO: target.place})
        answer = answer.model_copy(update={"mlflow": record})
    counts = Counts.of(evaluator)
    return StudyAnswer(path=journal.path, answer=answer, counts=counts, tracking_failure=told.failure)


def _announce_recording(progress: Report, target: Target | None) -> None:
    """Reports that MLflow is sent the end of a study, if it is sent at all."""
    if target is not None:
        progress(Progress(stage=RECORDING_IN_MLFLOW, num_done=0, num_total=None))


def _check_means(
    store: StudyStore | None,
    target: Target | None,
    progress: Report,
    should_stop: Stop,
    engine_for: EngineFor,
) -> None:
    """Raises `InputError` if an argument for running a study is of the wrong kind."""
    if store is not None:
        check_kind(store, "store", StudyStore, "must be a StudyStore, such as StudyStore(Path('studies'))")
    if target is not None:
        check_kind(target, "target", Target, "must be a Target, such as Target(experiment='spring')")
    check_functions(progress=progress, should_stop=should_stop, engine_for=engine_for)


def _check_exhaustive(job: Job) -> None:
    """Raises `StudyError` if the search cannot keep only fronts."""
    algorithm = job.search.algorithm
    if algorithm is Algorithm.AUTO:
        space = pruned_space(job)
        if chosen_algorithm(job, space) is Algorithm.EXHAUSTIVE:
            return
        raise StudyError(
            f"keep front needs an exhaustive search, and the space has {space.num_designs:,} designs, more than "
            f"search.exhaustive_up_to ({job.search.exhaustive_up_to:,}): set search.algorithm to exhaustive, or keep all"
        )
    if algorithm is not Algorithm.EXHAUSTIVE:
        raise StudyError(
            f"keep front needs an exhaustive search, and search.algorithm is {algorithm.value}: set it to exhaustive, or "
            "keep all"
        )


def _told_again(path: Path) -> StudyAnswer | None:
    """The answer of a study that has ended, without writing anything; `None` if it has not ended."""
    with Journal.read(path) as journal:
        facts = journal.facts
        return _answered(journal, facts, None) if ANSWER in facts else None


def _answered(journal: Journal, facts: dict[str, str], target: Target | None) -> StudyAnswer:
    """The answer of a study that has ended; if it was killed, MLflow may still lack the end."""
    journal.check()
    answer, failure = stored_answer(facts), ""
    if target is not None:
        try:
            answer = answer.model_copy(update={"mlflow": delivered(journal, facts, target).record})
        except (TrackingError, OSError) as error:  # OSError: not even a temporary folder can be created
            failure = words_of(error)
    counts = Counts(num_read_back=journal.num_designs, num_reused=0, num_simulated=0)
    return StudyAnswer(path=journal.path, answer=answer, counts=counts, tracking_failure=failure)


def _resumable(name: str, facts: dict[str, str]) -> tuple[Job, int]:
    """Returns job and seed of a study that this code can resume; raises `StudyError` otherwise."""
    check_not_merged(name, facts, "resume")
    job, seed = job_of(facts), int(facts["seed"])
    now, then = Identity.of(job, seed).code, facts["code_hash"]
    if now != then:
        raise StudyError(
            f"study {name} was started by other code or libraries (hash {then}, now {now}), which may search "
            "differently: run the job as a new study; if the simulator is the same, it reuses the simulated designs"
        )
    return job, seed
