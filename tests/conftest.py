"""What do all tests share? Properties without deadlines, and a fresh copy of a store that MLflow made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import settings

from studies.mlflow_session import mlflow_at

# The first example compiles kernels, and machines that are shared are as slow as they like.
# Each run draws other examples, so that few are many in the end.
settings.register_profile("shared-machine", deadline=None, max_examples=50)
settings.load_profile("shared-machine")

collect_ignore = ["planner/fake_torch.py"]
"""Is copied beside a script, and needs what is copied with it."""


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
