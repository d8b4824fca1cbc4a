"""What do all tests share? Hypothesis without deadlines, temporary files, a fresh MLflow store, and pictures drawn once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from planner.report import files
from planner.report.data import Figure
from planner.report.designs import DesignCloud
from planner.report.plots import save_picture
from studies.tracking.mlflow_session import mlflow_at

# The first example compiles kernels, and machines that are shared are as slow as they like.
# Each run draws other examples, so that few are many in the end.
settings.register_profile("shared-machine", deadline=None, max_examples=50)
settings.load_profile("shared-machine")

collect_ignore = ["planner/fake_torch.py"]
"""Runs only as a copy next to a script, together with the files copied there."""


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Puts temporary files where pytest cleans up, including those of studies shared by several tests."""
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path_factory.mktemp("temporary"))
    yield
    tempfile.tempdir = before


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow store, created once because its migrations take two seconds."""
    file = tmp_path_factory.mktemp("template") / "mlflow.db"
    with mlflow_at(f"sqlite:///{file}"):
        from mlflow import MlflowClient

        MlflowClient(tracking_uri=f"sqlite:///{file}")
    return file


@pytest.fixture
def uri(tmp_path: Path, empty_store: Path) -> str:
    """Address of an SQLite store `mlflow.db` in the test's folder."""
    return f"sqlite:///{shutil.copy(empty_store, tmp_path / 'mlflow.db')}"


@pytest.fixture(scope="session")
def drawings() -> dict[tuple[object, ...], bytes]:
    """Drawn pictures by their content."""
    return {}


@pytest.fixture
def pictures_drawn_once(drawings: dict[tuple[object, ...], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws equal pictures only once: tests of a study's results need its pictures, but not drawn anew."""

    def saved(figure: Figure, cloud: DesignCloud, path: Path) -> None:
        columns = (cloud.design_id, cloud.broken, *cloud.numbers.values(), *cloud.codes.values())
        shown = (path.suffix, repr(figure), *cloud.words.items(), *(column.tobytes() for column in columns))
        if shown in drawings:
            path.write_bytes(drawings[shown])
        else:
            save_picture(figure, cloud, path)
            drawings[shown] = path.read_bytes()

    monkeypatch.setattr(files, "save_picture", saved)
