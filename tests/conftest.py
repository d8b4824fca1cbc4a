"""Which MLflow store may a test write to? A fresh copy of one that MLflow made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from studies.mlflow_session import mlflow_at


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store as MLflow makes it, once: its migrations take two seconds."""
    file = tmp_path_factory.mktemp("template") / "mlflow.db"
    with mlflow_at(f"sqlite:///{file}"):
        from mlflow import MlflowClient

        MlflowClient(tracking_uri=f"sqlite:///{file}")
    return file


@pytest.fixture
def uri(tmp_path: Path, empty_store: Path) -> str:
    """Address of an SQLite store `mlflow.db` in the test's folder."""
    return f"sqlite:///{shutil.copy(empty_store, tmp_path / 'mlflow.db')}"
