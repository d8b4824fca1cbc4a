"""How is a study recorded so that it can be compared with others? As an MLflow run, with its designs as child runs.

The run starts with the settings and software versions, gains a point per generation during the search, and ends with the
result, the files, and one child run per design. MLflow's global state (active run, tracking URI, environment) is neither
used nor changed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, final

from simulator.errors import StudyError, TrackingError
from simulator.units import MILLISECOND
from studies.tracking.bulk_points import Point, write_points
from studies.tracking.bulk_rows import bulk_engine
from studies.tracking.bulk_runs import BulkOutcome, write_runs
from studies.tracking.experiments import check_asked, experiment_id, software_tags
from studies.tracking.mlflow_session import (
    check_key,
    check_usable,
    make_file,
    mlflow_at,
    origin_tags,
    without_password,
)
from studies.tracking.run_table import RunTable
from studies.tracking.store_address import command_to_open, resolve_tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

MAX_WAITING_METRICS = 500
"""Most numbers that wait to be sent together: a call takes a few milliseconds, however many it carries."""

MAX_PARAMS_IN_CALL = 100
"""Most parameters that MLflow accepts in one call."""

MAX_WAITING_S = 5.0
"""How far the interface may lag behind the search."""

RETRY_AFTER_S = 20.0
"""How long a store is left alone after a failure, so that the study need not wait for it."""

INPUTS_FILE = "job.json"
"""File of a run with its inputs."""

RunStatus = Literal["FINISHED", "KILLED", "FAILED"]
Clock = Callable[[], float]
Settle = Callable[[], None]
"""Returns when everything that may be sent to MLflow is durably stored elsewhere."""


def nothing_to_wait_for() -> None:
    """For a study that is stored nowhere else, or is already durable."""


@final
class StudyTracker:
    """The MLflow run of one study; a context manager that ends the run however the study ends.

    Leaving the context without `finish` ends the run as FINISHED; an interrupt ends it as KILLED, an error as FAILED.

    Example:
        >>> import tempfile
        >>> uri = f"sqlite:///{tempfile.mkdtemp()}/mlflow.db"
        >>> with StudyTracker.open(experiment="llama", run_name="h100", tracking_uri=uri) as tracker:
        ...     tracker.log_generation(0, {"hypervolume": 0.4})
        ...     tracker.finish("FINISHED", {"cost_usd": 2.9e6})
        >>> tracker.run_name
        'h100'
    """

    def __init__(
        self,
        client: MlflowClient,
        run: Run,
        experiment: str,
        tracking_uri: str,
        clock: Clock,
        settle: Settle,
    ) -> None:
        """Takes over a running run; `open` starts one."""
        self._client = client
        self._run = run
        self._experiment = experiment
        self._tracking_uri = tracking_uri
        self._clock = clock
        self._settle = settle
        self._waiting: list[Point] = []
        self._sent_at_s = clock()
        self._failed_at_s = -math.inf
        self._failure = ""
        self._last_step = 0
        self._is_finished = False
        self._ending: RunStatus | None = None

    @classmethod
    def open(
        cls,
        *,
        experiment: str,
        run_name: str,
        tracking_uri: str | None = None,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        clock: Clock = time.time,
        settle: Settle = nothing_to_wait_for,
    ) -> Self:
        """Starts the run of a study.

        Args:
            experiment: experiment in which the study is compared; created if missing.
            run_name: name of the study in the interface.
            tracking_uri: the store; by default what MLFLOW_TRACKING_URI says, else an SQLite file
                `capplan-studies/mlflow.db` in the working folder. An experiment that is created in an SQLite
                store keeps its files in the folder `artifacts` next to it.
            params: settings and seed.
            tags: tags to filter by; software versions and the user are added.
            clock: seconds since 1970.
            settle: called before any result is sent; its exceptions are passed on.

        Raises:
            StudyError: MLflow does not accept a name or a text.
            TrackingError: the store cannot be used.
        """
        asked = dict(params or {})
        labels = {**origin_tags(), **software_tags(), **(tags or {})}
        check_asked(experiment, run_name, asked, labels)
        uri = resolve_tracking_uri(tracking_uri)
        with mlflow_at(uri):
            client = _client_of(uri)
            number = experiment_id(client, uri, experiment)
            run = client.create_run(number, _milliseconds(clock()), labels, run_name)
            tracker = cls(client, run, experiment, uri, clock, settle)
        try:
            tracker._log_params(asked)
        except BaseException as error:
            tracker._end_after(error)
            raise
        return tracker

    @classmethod
    def reopen(
        cls,
        *,
        experiment: str,
        tag: tuple[str, str],
        tracking_uri: str,
        clock: Clock,
        settle: Settle,
    ) -> Self | None:
        """Reopens an existing run of an experiment, found by a tag; `None` if there is none. Otherwise see `open`.

        A deleted run is restored, since its child runs are still there.

        Raises:
            TrackingError: the store cannot be used.
        """
        uri = resolve_tracking_uri(tracking_uri)
        with mlflow_at(uri):
            from mlflow.entities import LifecycleStage, ViewType

            client = _client_of(uri)
            found = client.get_experiment_by_name(experiment)
            condition = f"tags.`{tag[0]}` = '{tag[1]}'"
            runs = client.search_runs([found.experiment_id], condition, ViewType.ALL) if found else []
            if not runs:
                return None
            run = next((one for one in runs if one.info.lifecycle_stage == LifecycleStage.ACTIVE), runs[0])
            if run.info.lifecycle_stage != LifecycleStage.ACTIVE:
                client.restore_run(run.info.run_id)
            client.update_run(run.info.run_id, status="RUNNING")
            return cls(client, run, experiment, uri, clock, settle)

    @property
    def tracking_uri(self) -> str:
        """The store's absolute address; may contain a password."""
        return self._tracking_uri

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return self._experiment

    @property
    def run_id(self) -> str:
        """MLflow's id of the study's run."""
        return str(self._run.info.run_id)

    @property
    def run_name(self) -> str:
        """Name of the study in the interface."""
        return str(self._run.info.run_name)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began, by the tracker's clock."""
        return self._clock() - float(self._run.info.start_time) * MILLISECOND

    @property
    def is_resting(self) -> bool:
        """Whether the store failed so recently that it is left alone for now."""
        return self._clock() - self._failed_at_s < RETRY_AFTER_S

    @property
    def takes_thousands(self) -> bool:
        """Whether the store takes thousands of designs a second; else about ten (through a server)."""
        with mlflow_at(self._tracking_uri):
            return bulk_engine(self._client)[0] is not None

    @property
    def open_command(self) -> str:
        """A shell command that shows the experiment; `***` replaces a password."""
        return command_to_open(self._tracking_uri, self._run.info.experiment_id)

    def log_generation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Adds a point to each metric's curve; points are sent together, at the latest with `finish`.

        Args:
            step: generation, from 0.
            metrics: numbers by name; NaN and infinities are allowed.

        Raises:
            StudyError: the run has ended, or MLflow does not accept a name.
            TrackingError: the store cannot be used; unsent points are kept and sent with a later call.
        """
        self._check_running()
        self._wait(step, metrics)
        if self.is_resting:
            raise TrackingError(self._failure)
        is_late = self._clock() - self._sent_at_s >= MAX_WAITING_S
        if is_late or len(self._waiting) >= MAX_WAITING_METRICS:
            self._send()

    def log_artifact(self, path: Path, folder: str = "") -> None:
        """Copies a file into a folder of the run's files; raises as `log_generation` does."""
        self._check_running()
        if not path.is_file():
            raise StudyError(f"artifact {path} is not a file: write it before it is logged")
        with self._store():
            self._client.log_artifact(self.run_id, str(path), folder or None)

    def log_inputs(self, name: str, digest: str, profile: Mapping[str, object]) -> None:
        """Records the inputs of the study as the dataset of the run; raises as `log_generation` does.

        Args:
            name: name of the inputs.
            digest: equal for equal inputs, at most 36 characters.
            profile: their contents.
        """
        self._check_running()
        with mlflow_at(self._tracking_uri):
            from mlflow.entities import Dataset, DatasetInput

            source = json.dumps({"uri": f"runs:/{self.run_id}/{INPUTS_FILE}"})
            inputs = Dataset(name, digest, "local", source, profile=json.dumps(dict(profile)))
            self._client.log_inputs(self.run_id, [DatasetInput(inputs)])

    def log_designs(self, designs: RunTable) -> BulkOutcome:
        """Writes one child run per design; raises as `write_runs` does.

        If `takes_thousands` is false, pass only the front.
        """
        self._check_running()
        now_ms = _milliseconds(self._clock())
        return write_runs(
            self._tracking_uri, self._run.info.experiment_id, self.run_id, designs, started_at_ms=now_ms
        )

    def finish(
        self,
        status: RunStatus = "FINISHED",
        metrics: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Sends what is waiting and ends the run.

        Args:
            status: how the study ended.
            metrics: the result, which the interface's table shows and sorts by.
            tags: the result in words; unlike MLflow's parameters, tags can replace earlier ones.

        Raises:
            StudyError: the run has ended, or MLflow does not accept a name.
            TrackingError: the store cannot be used; `finish` may be called again.
        """
        self._check_running()
        self._ending = status
        self._wait(self._last_step, metrics or {})
        self._send()
        with mlflow_at(self._tracking_uri):
            from mlflow.entities import RunTag

            if tags:
                self._client.log_batch(self.run_id, tags=[RunTag(key, text) for key, text in tags.items()])
            self._client.set_terminated(self.run_id, status, _milliseconds(self._clock()))
        self._is_finished = True

    def end(self) -> None:
        """Ends a run that `finish` has not ended, or leaves it as it is if the store cannot be used."""
        if self._is_finished:
            return
        try:
            self.finish(self._ending or "FINISHED")
        except TrackingError:
            self.leave()

    def leave(self) -> None:
        """Leaves the run as it is, to be completed later; what is waiting is not sent."""
        self._is_finished = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_finished:
            return
        if error is None:
            self.finish()
        else:
            self._end_after(error)

    def __repr__(self) -> str:
        return (
            f"StudyTracker({self.run_name!r} in {self.experiment!r} at {without_password(self.tracking_uri)})"
        )

    def _end_after(self, error: BaseException) -> None:
        """Ends the run of a study that failed; the original error stays the visible one."""
        # If `finish` itself failed, the study has ended with the given status, and its result is waiting.
        status: RunStatus = "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"
        try:
            self.finish(self._ending or status)
        except StudyError as second:  # from MLflow's store, or from `settle`
            error.add_note(f"the run could not be ended either: {second}")

    def _check_running(self) -> None:
        if self._is_finished:
            raise StudyError(f"run {self.run_name!r} ({self.run_id}) has ended: log before finish()")

    def _wait(self, step: int, metrics: Mapping[str, float]) -> None:
        for key in metrics:
            check_key("metric", key)
        now_ms = _milliseconds(self._clock())
        self._last_step = max(self._last_step, step)
        self._waiting += [Point(key, float(value), now_ms, step) for key, value in metrics.items()]

    def _send(self) -> None:
        # Emptied only afterwards: points that are sent twice are recognised and stored once.
        with self._store():
            write_points(self._client, self.run_id, self._waiting)
        self._waiting.clear()
        self._sent_at_s = self._clock()

    @contextmanager
    def _store(self) -> Iterator[None]:
        """Context for sending results to MLflow; its success or failure decides how soon the next attempt is made."""
        self._settle()
        try:
            with mlflow_at(self._tracking_uri):
                yield
        except TrackingError as error:
            self._failed_at_s, self._failure = self._clock(), error.message
            raise
        self._failed_at_s = -math.inf

    def _log_params(self, params: Mapping[str, str]) -> None:
        with mlflow_at(self._tracking_uri):
            from mlflow.entities import Param

            every = [Param(key, value) for key, value in params.items()]
            for first in range(0, len(every), MAX_PARAMS_IN_CALL):
                self._client.log_batch(self.run_id, params=every[first : first + MAX_PARAMS_IN_CALL])


def _client_of(uri: str) -> MlflowClient:
    """A client, within `mlflow_at`, of a store that can be used; the file of a new one is made."""
    from mlflow import MlflowClient

    check_usable(uri)
    make_file(uri)
    return MlflowClient(tracking_uri=uri)


def _milliseconds(time_s: float) -> int:
    return round(time_s / MILLISECOND)
