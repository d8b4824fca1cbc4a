"""Which experiment does a study belong to, and does MLflow accept its names and texts? Checked before a run is created."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING

from simulator.errors import StudyError, TrackingError
from studies.files.store import DEFAULT_FOLDER
from studies.tracking.mlflow_server import is_server
from studies.tracking.mlflow_session import (
    MAX_KEY_CHARACTERS,
    MAX_PARAM_CHARACTERS,
    MAX_TAG_CHARACTERS,
    artifact_folder,
    check_key,
    check_texts,
    sqlite_file,
    without_password,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

TAGGED_SOFTWARE = ("capplan", "numpy", "pymoo", "optuna", "ortools", "mlflow")
"""Distributions on whose versions the result of a study can depend."""


def experiment_id(client: MlflowClient, uri: str, name: str) -> str:
    """Returns the experiment's id; creates a missing experiment."""
    from mlflow.exceptions import MlflowException

    location = _location(uri)
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, location))
        except MlflowException:  # another study may have created it in the meantime
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        way_out = (
            f"restore it (mlflow experiments restore --experiment-id {found.experiment_id}) or choose another"
        )
        raise TrackingError(
            f"MLflow store {without_password(uri)}: experiment {name!r} is deleted; {way_out}"
        )
    return str(found.experiment_id)


def _location(uri: str) -> str | None:
    """Where a new experiment keeps its files: next to the database, or in the working folder; a server decides itself."""
    if is_server(uri):
        return None
    file = sqlite_file(uri) or DEFAULT_FOLDER.resolve() / "mlflow.db"
    return artifact_folder(file).as_uri()


def check_asked(experiment: str, run_name: str, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
    """Raises a StudyError for a name or a text that MLflow does not accept."""
    for what, name in (("experiment", experiment), ("run name", run_name)):
        if not name.strip():
            raise StudyError(f"{what} is empty: give it a name by which people will find it")
        check_texts(what, [name], MAX_KEY_CHARACTERS)
    for kind, texts, limit in (("param", params, MAX_PARAM_CHARACTERS), ("tag", tags, MAX_TAG_CHARACTERS)):
        for key, text in texts.items():
            check_key(kind, key)
            check_texts(f"{kind} {key!r}", [text], limit)


def software_tags() -> dict[str, str]:
    """Returns the versions of the software on which a study's result depends, such as `numpy_version`."""
    tags = {"python_version": platform.python_version()}
    for name in TAGGED_SOFTWARE:
        try:
            tags[f"{name}_version"] = metadata.version(name)
        except metadata.PackageNotFoundError:  # run from the source tree, or without an optional package
            tags[f"{name}_version"] = "not installed"
    return tags
