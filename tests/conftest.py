"""What do all tests share? Which of them are long, temporary files, an empty MLflow store, and a picture of each name."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from planner.recommended.recommendation import Recommendation
from planner.report import files
from planner.report.build import DrawnReport, build_report
from planner.report.data import Figure
from planner.report.designs import DesignCloud
from planner.report.plots import save_picture
from planner.tracking import sending
from simulator.domain.job import Job
from studies.tracking.mlflow_session import mlflow_at

# The first example compiles kernels, and machines that are shared are as slow as they like.
# Each run draws other examples, so that few are many in the end.
settings.register_profile("short", deadline=None, max_examples=20)
settings.register_profile("long", deadline=None, max_examples=100)

collect_ignore = ["planner/fake_torch.py"]
"""Runs only as a copy next to a script, together with the files copied there."""


def pytest_configure(config: pytest.Config) -> None:
    """Draws fewer examples where the long tests are left out."""
    settings.load_profile("short" if config.getoption("markexpr") == "not long" else "long")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks as long what `short(cases)` leaves out: all cases of its test but so many, spread evenly over them."""
    tests: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        if (marker := item.get_closest_marker("short")) and not item.get_closest_marker("long"):
            (num_kept,) = marker.args
            tests.setdefault((item.nodeid.partition("[")[0], num_kept), []).append(item)
    for (_, num_kept), cases in tests.items():
        kept = {round(place) for place in np.linspace(0, len(cases) - 1, num_kept)}
        for place, case in enumerate(cases):
            if place not in kept:
                case.add_marker("long")


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
def drawings() -> dict[str, bytes]:
    """The first picture of each name."""
    return {}


@pytest.fixture(scope="session")
def built_reports() -> dict[tuple[object, ...], DrawnReport]:
    """Reports by what they are built from."""
    return {}


@pytest.fixture
def pictures_drawn_once(
    drawings: dict[str, bytes],
    built_reports: dict[tuple[object, ...], DrawnReport],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Builds equal reports once for MLflow, and draws one picture of each name: tests of deliveries look at none of them."""

    def saved(figure: Figure, cloud: DesignCloud, path: Path) -> None:
        if path.name not in drawings:
            save_picture(figure, cloud, path)
            drawings[path.name] = path.read_bytes()
        path.write_bytes(drawings[path.name])

    def built(job: Job, answer: Recommendation, cloud: DesignCloud) -> DrawnReport:
        columns = (cloud.design_id, cloud.broken, *cloud.numbers.values(), *cloud.codes.values())
        known = (
            job.model_dump_json(),
            answer.model_dump_json(),
            repr(cloud.words),
            *(one.tobytes() for one in columns),
        )
        if known not in built_reports:
            built_reports[known] = build_report(job, answer, cloud)
        return built_reports[known]

    monkeypatch.setattr(files, "save_picture", saved)
    monkeypatch.setattr(sending, "build_report", built)
