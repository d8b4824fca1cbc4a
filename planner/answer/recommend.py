"""What should I buy, and how do I run it? The one call that answers a job."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np

from constraints.evaluation import Evaluation
from constraints.limits import set_limits
from planner.answer.destination import Destination
from planner.explain.infeasible import explain
from planner.input.arguments import (
    check_choice,
    check_functions,
    check_switches,
    check_text,
    path_given,
    refused,
)
from planner.input.given import checked_job
from planner.job.unused_search import search_notes
from planner.notes.carbon_scope import scope_text
from planner.notes.cautions import cautions_on_answer, cautions_on_failure
from planner.notes.hardware_notes import hardware_notes
from planner.notes.reasons import rejections, why_chosen
from planner.notes.servers_note import server_notes
from planner.recommended.bests import bests_of
from planner.recommended.choice import chosen_row
from planner.recommended.comparisons import InputUncertainty, WhatIfCase
from planner.recommended.designs import designs_of
from planner.recommended.output import FrontFormat, output_folder
from planner.recommended.recommendation import Infeasibility, Recommendation, Status
from planner.recommended.same_accelerators import same_accelerators
from planner.text.algorithm_text import algorithm_text
from planner.tracking.content import asked_params, inputs_profile, study_tags
from planner.uncertain.input_uncertainty import input_uncertainty_of
from planner.uncertain.uncertainty import uncertainty_of
from planner.what_if.cases import what_if_cases
from simulator.argument_names import Argument, Words
from simulator.catalog import catalog_hash
from simulator.domain.job import Job
from simulator.errors import TrackingError
from simulator.table import Integers
from studies.evaluation.evaluator import Evaluator, Simulation
from studies.exhaustive import Reducer
from studies.files.identity import job_hash, study_label
from studies.progress import Progress, Report, Stop, ignore, never_stop
from studies.search import Searcher
from studies.study import StudyResult, refined_study, run_study, searched_front
from studies.tracking.experiments import software_tags
from studies.tracking.recording import Recording
from studies.tracking.store_address import asked_store
from studies.tracking.tracker import StudyTracker

Clock = Callable[[], datetime]

EXACT_STAGE = "exact search for the lowest values"


def utc_now() -> datetime:
    """Returns the time of day."""
    return datetime.now(UTC)


def recommend(
    job: Job,
    *,
    seed: int = 0,
    tracking: bool = True,
    tracking_uri: str | None = None,
    experiment: str = "capplan",
    output: str | Path | None = None,
    front_format: FrontFormat = "csv",
    with_report: bool = True,
    progress: Report = ignore,
    should_stop: Stop = never_stop,
    clock: Clock = utc_now,
) -> Recommendation:
    """Searches the designs of a job and recommends one.

    Args:
        job: the question; `load_job` reads it from a file.
        seed: seed of everything random; the same job, version and seed give the same answer.
        tracking: whether MLflow records the study; its address is `tracking_uri`.
        tracking_uri: MLflow store; by default MLFLOW_TRACKING_URI, else `capplan-studies/mlflow.db` in the working folder.
        experiment: MLflow experiment that the study belongs to.
        output: folder for `recommendation.json`, the front, the table of all designs and the report; none by default.
        front_format: `csv` or `parquet`.
        with_report: whether a page that explains the answer is written to `output` and, with a picture of each of its
            figures, to MLflow; this takes a few seconds.
        progress: receives progress reports.
        should_stop: called between batches; if true, the best of what was evaluated is returned.
        clock: time of day for `created_at`.

    Returns:
        The recommendation with front, reasons and record; `status` says whether limits were proven too tight.

    Raises:
        InputError: the job, the seed or another argument breaks a rule, `output` cannot be written to, or MLflow has no such
            kind of store.
        StudyError: another process is writing an answer into `output`.
        TrackingError: the MLflow store cannot be used from the start.

    Example:
        >>> from planner import load_job, recommend
        >>> answer = recommend(load_job("examples/bloom-176b.yaml"), seed=1, tracking=False)
        >>> answer.best.accelerator, answer.best.plan.num_gpus <= 416
        ('a100-sxm4-80gb', True)
    """
    job = checked_job(job, seed)
    check_choice(front_format, "front_format", get_args(FrontFormat))
    check_functions(progress=progress, should_stop=should_stop, clock=clock)
    check_switches(tracking=tracking, with_report=with_report)
    if tracking:
        _check_store(tracking_uri, experiment)
    asked = _folder(output)
    tracked: AbstractContextManager[StudyTracker | None] = nullcontext()
    if tracking:
        tracked = _tracked(job, seed, tracking_uri, experiment, progress)
    with asked as folder, tempfile.TemporaryDirectory(prefix="capplan-") as scratch, tracked as tracker:
        destination = Destination(
            job=job,
            output=folder,
            scratch=Path(scratch),
            front_format=front_format,
            has_report=with_report,
            tracker=tracker,
        )
        with destination.recording() as recording:
            answer = search_and_answer(
                job, seed, recording, Simulation(job), now=clock(), progress=progress, should_stop=should_stop
            )
            return destination.deliver(answer, recording, progress)


def _folder(output: str | Path | None) -> AbstractContextManager[Path | None]:
    """Context with the folder for the answer, which must be empty or new; None where none is wanted."""
    if output is None:
        return nullcontext()
    return output_folder(path_given(output, "output", "a folder"))


def _check_store(tracking_uri: str | None, experiment: str) -> None:
    """Raises `InputError` for an invalid store or an invalid name of an experiment."""
    if tracking_uri is not None:
        check_text(tracking_uri, "tracking_uri")
    check_text(experiment, "experiment")
    if not experiment.strip():
        raise refused("experiment", experiment, "must not be empty")
    asked_store(tracking_uri)


def search_and_answer(
    job: Job,
    seed: int,
    recording: Recording,
    evaluator: Evaluator,
    *,
    now: datetime,
    reducer: Reducer | None = None,
    progress: Report,
    should_stop: Stop,
) -> Recommendation:
    """Searches the designs of a job and returns the answer, without where it is recorded.

    Args:
        job: the question.
        seed: seed of everything random.
        recording: receives everything that is evaluated.
        evaluator: where evaluations come from.
        now: time of day for `created_at`.
        reducer: evaluates an exhaustive search that keeps only fronts; by default every design is kept.
        progress: receives progress reports.
        should_stop: called between batches; true stops the search.
    """
    searcher = Searcher(
        job=job,
        archive=recording.archive,
        evaluator=evaluator,
        record=recording.record,
        report=progress,
        should_stop=should_stop,
    )
    result = run_study(searcher, seed=seed, reducer=reducer)
    finding = _explained(job, result, should_stop)
    if isinstance(finding, Evaluation) and len(finding):  # without rows: the proof was stopped
        recording.record(evaluator.evaluate(finding.plans, EXACT_STAGE), EXACT_STAGE)
        # A searcher of its own, which has seen none of the designs, so that it may start from any.
        result = refined_study(replace(searcher), result, seed=seed)
    infeasibility = finding if isinstance(finding, Infeasibility) else None
    return _answer(job, seed, result, infeasibility, now)


def _explained(job: Job, result: StudyResult, should_stop: Stop) -> Infeasibility | Evaluation | None:
    """If nothing was found, the proof of infeasibility, or a design that the search had missed."""
    if result.archive.front is not None or not result.is_complete:
        return None
    return explain(job, result.space, should_stop=should_stop)


class _Choice(NamedTuple):
    """What is recommended."""

    front: Evaluation
    ids: Integers
    """Numbers of its designs, `(n,)`."""
    row: int
    """Of the recommended design."""


def _answer(
    job: Job, seed: int, result: StudyResult, infeasibility: Infeasibility | None, now: datetime
) -> Recommendation:
    front, ids = result.archive.distinct_front()
    choice = None if front is None else _Choice(front, ids, chosen_row(job, front))
    designs = () if front is None else designs_of(job, front, ids)
    best = designs[choice.row] if choice else None
    uncertainty = uncertainty_of(job, *choice, seed) if choice else None
    unsure, cases = _compared(job, choice, seed) if choice else (None, ())
    others = same_accelerators(job, best.plan) if best and result.is_complete else None
    return Recommendation(
        capplan_version=software_tags()["capplan_version"],
        catalog_hash=catalog_hash(),
        job=job.name,
        job_hash=job_hash(job),
        seed=seed,
        created_at=now.isoformat(timespec="seconds"),
        status=_status(result, infeasibility),
        recommendation=best,
        why=why_chosen(job, choice.front, choice.row, result.archive.tally) if choice else (),
        uncertainty=uncertainty,
        objectives=tuple(objective.value for objective in job.objectives),
        front=designs,
        rejected=rejections(job, result),
        num_evaluated=result.archive.num_evaluated,
        num_feasible=result.archive.num_feasible,
        has_limits=bool(set_limits(job)),
        algorithm=algorithm_text(job, result),
        infeasibility=infeasibility,
        carbon_scope=scope_text(job),
        regions=tuple(dict.fromkeys(job.site_of(offer).region for offer in job.offers)),
        best_of_each=bests_of(job, *choice) if choice else (),
        other_choices=others.choices() if others else (),
        input_uncertainty=unsure,
        what_if=cases,
        mlflow=None,
        warnings=(
            *hardware_notes(job.offers),
            *(server_notes(choice.front.outcomes.checkpoints, choice.row) if choice else ()),
            *(
                cautions_on_answer(job, choice.front, best, uncertainty, others)
                if choice and best
                else cautions_on_failure(job)
            ),
            *search_notes(job, result.algorithm, result.space.num_designs),
        ),
    )


def _status(result: StudyResult, infeasibility: Infeasibility | None) -> Status:
    if infeasibility is not None:
        return "infeasible"
    is_answered = result.is_complete and result.archive.front is not None
    return "recommended" if is_answered else "interrupted"


def _compared(job: Job, choice: _Choice, seed: int) -> tuple[InputUncertainty | None, tuple[WhatIfCase, ...]]:
    """What the recommended design is compared with."""
    chosen = choice.front.take(np.array([choice.row]))
    cases = what_if_cases(job, chosen, lambda other: _best_of(other, seed))
    return input_uncertainty_of(job, *choice, seed), cases


def _best_of(job: Job, seed: int) -> Evaluation | None:
    """The recommended design of another job, one row."""
    front = searched_front(job, seed)
    return None if front is None else front.take(np.array([chosen_row(job, front)]))


@contextmanager
def _tracked(
    job: Job, seed: int, tracking_uri: str | None, experiment: str, progress: Report
) -> Iterator[StudyTracker]:
    """Context with the MLflow run of a study and its settings; the run is ended in any case.

    A store that fails after the search takes nothing from the answer, which says that MLflow does not have all of it.
    """
    progress(Progress(stage="opening the MLflow store", num_done=0, num_total=None))
    try:
        opened = StudyTracker.open(
            experiment=experiment,
            run_name=study_label(job),
            tracking_uri=tracking_uri,
            params=asked_params(job, seed),
            tags=study_tags(job_hash(job), catalog_hash()),
        )
    except TrackingError as error:
        without = (Argument("tracking", "False"), " answers without MLflow.")
        raise TrackingError(Words(error.message, ". Nothing has been simulated; ", *without)) from error
    with opened as tracker:
        tracker.log_inputs(job.name, job_hash(job), inputs_profile(job))
        yield tracker
        tracker.end()
