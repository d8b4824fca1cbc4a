"""Is a curve whose points were written as rows the same, to MLflow, as one made through its interface?"""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simulator.errors import TrackingError
from studies.tracking import bulk_points
from studies.tracking.bulk_points import Point, write_points
from studies.tracking.mlflow_session import mlflow_at

if TYPE_CHECKING:
    from mlflow import MlflowClient

ODD_NUMBERS = [0.1, -0.0, math.nan, math.inf, -math.inf, 1e308, 5e-324]
POINTS = [
    Point("num_front", 1.0, 1_790_000_000_009, 1),
    *(Point("odd", number, 1_790_000_000_000 + step, step) for step, number in enumerate(ODD_NUMBERS)),
    *(Point("hypervolume", 0.1 * step, 1_790_000_000_000, step) for step in range(5)),
    Point("hypervolume", 0.9, 1_790_000_000_000, 2),  # behind later ones
    Point("cost_usd", 2.0, 1_790_000_000_000, 7),
    Point("cost_usd", 1.0, 1_790_000_000_001, 7),  # later, in the same step
    Point("num_front", 2.0, 1_790_000_000_000, 2),  # after the clock was set back
]


@pytest.fixture
def client(tmp_path: Path, empty_store: Path) -> MlflowClient:
    file = shutil.copy(empty_store, tmp_path / "mlflow.db")
    with mlflow_at(f"sqlite:///{file}"):
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=f"sqlite:///{file}")


def new_run(client: MlflowClient) -> str:
    with mlflow_at("store"):
        return str(client.create_run("0").info.run_id)


def write(client: MlflowClient, run_id: str, points: list[Point]) -> None:
    with mlflow_at("store"):
        write_points(client, run_id, points)


def shown(client: MlflowClient, run_id: str) -> tuple[str, str]:
    """All curves and the latest points, as texts: NaN is not equal to itself."""
    with mlflow_at("store"):
        keys = sorted({point.key for point in POINTS})
        curves = {key: sorted(map(repr, map(dict, client.get_metric_history(run_id, key)))) for key in keys}
        latest = sorted(client.get_run(run_id).data.metrics.items())
    return repr(curves).replace(run_id, "run"), repr(latest)


@pytest.fixture
def by_mlflow(client: MlflowClient, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """What MLflow shows of the points when it has written them itself."""
    run_id = new_run(client)
    with monkeypatch.context() as patch:
        patch.setattr(bulk_points, "bulk_engine", lambda _: (None, "asked for"))
        write(client, run_id, POINTS)
    return shown(client, run_id)


@pytest.mark.long
def test_mlflow_shows_the_same_as_of_points_that_it_wrote_itself(
    client: MlflowClient, by_mlflow: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "log_batch", None)  # nothing but rows
    run_id = new_run(client)
    write(client, run_id, POINTS)
    assert shown(client, run_id) == by_mlflow


@pytest.mark.long
def test_points_that_are_sent_again_or_in_another_order_change_nothing(
    client: MlflowClient, by_mlflow: tuple[str, str]
) -> None:
    run_id = new_run(client)
    for points in (POINTS[:3], POINTS[5:], POINTS[::-1], POINTS):
        write(client, run_id, points)
    assert shown(client, run_id) == by_mlflow


def test_curves_of_another_run_stay_as_they_are(client: MlflowClient, by_mlflow: tuple[str, str]) -> None:
    first, second = new_run(client), new_run(client)
    write(client, first, POINTS)
    write(client, second, [Point("hypervolume", 7.0, 1_790_000_000_000, 99)])
    assert shown(client, first) == by_mlflow


def test_no_points_are_no_change(client: MlflowClient) -> None:
    run_id = new_run(client)
    write(client, run_id, [])
    with mlflow_at("store"):
        assert client.get_run(run_id).data.metrics == {}


def test_a_run_that_was_deleted_takes_no_points(client: MlflowClient) -> None:
    run_id = new_run(client)
    with mlflow_at("store"):
        client.delete_run(run_id)
    with pytest.raises(TrackingError, match="must be in the 'active' state"):
        write(client, run_id, POINTS)
