"""Does MLflow already have this study? Its run is found by the study's hash, its designs by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from studies.tracking.mlflow_session import check_usable, mlflow_at, sqlite_file
from studies.tracking.tracker import Clock, Settle, StudyTracker

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

STUDY_TAG: Final = "study_hash"
RUNS_PER_PAGE: Final = 5_000
"""Runs requested at once; MLflow returns at most 50,000."""


def open_once(
    *,
    study_hash: str,
    experiment: str,
    run_name: str,
    tracking_uri: str,
    params: Mapping[str, str],
    tags: Mapping[str, str],
    clock: Clock,
    settle: Settle,
) -> StudyTracker:
    """Returns the run of a study: the existing one of the experiment, else a new one.

    Args:
        study_hash: identifies the study.
        experiment: name of the experiment.
        run_name: name of the study in the interface.
        tracking_uri: the store.
        params: settings of the study.
        tags: tags to filter by.
        clock: seconds since 1970.
        settle: see `StudyTracker.open`.

    Raises:
        TrackingError: the store cannot be used.
    """
    new = StudyTracker.reopen(
        experiment=experiment,
        tag=(STUDY_TAG, study_hash),
        tracking_uri=tracking_uri,
        clock=clock,
        settle=settle,
    )
    return new or StudyTracker.open(
        experiment=experiment,
        run_name=run_name,
        tracking_uri=tracking_uri,
        params=params,
        tags={**tags, STUDY_TAG: study_hash},
        clock=clock,
        settle=settle,
    )


def holds_study(*, study_hash: str, experiment: str, tracking_uri: str) -> bool:
    """Returns whether an experiment has the finished, not deleted run of a study; changes nothing.

    Args:
        study_hash: identifies the study.
        experiment: name of the experiment.
        tracking_uri: the store, absolute.

    Raises:
        TrackingError: the store cannot be used.
    """
    with mlflow_at(tracking_uri):
        file = sqlite_file(tracking_uri)
        if file is not None and not file.exists():
            return False  # asking MLflow would create it
        from mlflow import MlflowClient

        check_usable(tracking_uri)
        client = MlflowClient(tracking_uri=tracking_uri)
        found = client.get_experiment_by_name(experiment)
        condition = f"tags.`{STUDY_TAG}` = '{study_hash}' AND attributes.status = 'FINISHED'"
        return bool(found and client.search_runs([found.experiment_id], condition, max_results=1))


def finished_children(tracker: StudyTracker) -> frozenset[str]:
    """Returns the names of the finished child runs of a study's run, and deletes unfinished ones.

    Raises:
        TrackingError: the store cannot be used.
    """
    with mlflow_at(tracker.tracking_uri):
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=tracker.tracking_uri)
        experiment_id = client.get_run(tracker.run_id).info.experiment_id
        names = set()
        for run in _runs(client, experiment_id, f"tags.`mlflow.parentRunId` = '{tracker.run_id}'"):
            if run.info.status == "FINISHED":
                names.add(str(run.info.run_name))
            else:
                client.delete_run(run.info.run_id)
        return frozenset(names)


def _runs(client: MlflowClient, experiment_id: str, condition: str) -> list[Run]:
    runs: list[Run] = []
    token: str | None = None
    while True:
        page = client.search_runs([experiment_id], condition, max_results=RUNS_PER_PAGE, page_token=token)
        runs += page
        token = page.token
        if not token:
            return runs
