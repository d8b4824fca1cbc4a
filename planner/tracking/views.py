"""What does MLflow show first? Views of an experiment with the columns and charts that distinguish studies and designs.

MLflow stores a view that is shared by a link as a tag of its experiment, `mlflow.sharedViewState.KEY`, and opens it if an
address ends with `viewStateShareKey=KEY`. Users' own views are not affected.
"""

from __future__ import annotations

import json
from typing import Final

from planner.tracking.content import RESULT_TAGS, RESULTS
from simulator.errors import TrackingError
from studies.tracking.mlflow_session import mlflow_at

STUDIES: Final = "capplan-studies"
"""Key of the view of studies: settings and recommendations."""
FRONT: Final = "capplan-front"
"""Key of the view of the designs on the fronts, with parallel coordinates."""
_TAG: Final = "mlflow.sharedViewState."
_MOST_RUNS: Final = 200
"""Most lines in a chart."""
_DECISIONS: Final = (
    "accelerator",
    "num_gpus",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "micro_batch_size",
    "checkpoint_scheme",
)
_ASKED: Final = (
    *("job", "model", "offers", "offer_0_num_gpus", "offer_0_rent_usd_per_gpu_hour", "site", "reliability"),
    *("limit_budget_usd", "limit_deadline_days", "seed"),
)


def keep_views(uri: str, experiment: str) -> bool:
    """Writes both views into an experiment; returns whether they are there, which is not the case in a read-only store."""
    try:
        with mlflow_at(uri):
            from mlflow import MlflowClient

            client = MlflowClient(uri)
            known = client.get_experiment(experiment).tags
            for key, view in ((STUDIES, _studies_view()), (FRONT, front_view())):
                text = json.dumps(view)
                if known.get(_TAG + key) != text:
                    client.set_experiment_tag(experiment, _TAG + key, text)
    except TrackingError:
        return False
    return True


def _studies_view() -> dict[str, object]:
    """Returns the view of the studies of an experiment, newest first."""
    recommended = [f"recommended_{name}" for name in RESULTS]
    columns = [
        *_columns("params", _ASKED),
        *_columns("tags", RESULT_TAGS),
        *_columns("metrics", ["recommended_num_gpus", *recommended, "num_evaluated", "num_front"]),
    ]
    return {
        "searchFilter": "tags.capplan_version != ''",  # designs have none
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "selectedColumns": columns,
        **_pictures("Recommendations", ["job", "offers"], recommended[:4]),
    }


def front_view() -> dict[str, object]:
    """Returns the view of the designs on the fronts of an experiment, the fastest first."""
    columns = [*_columns("params", _DECISIONS), *_columns("metrics", RESULTS)]
    return {
        "searchFilter": "tags.front = '1'",
        "orderByKey": "metrics.`time_to_train_days`",
        "orderByAsc": True,
        "selectedColumns": [*columns, *_columns("tags", ["recommended", "tied"])],
        **_pictures("Designs of the fronts", ["accelerator", "num_gpus"], list(RESULTS[:4])),
    }


def _columns(kind: str, names: list[str] | tuple[str, ...]) -> list[str]:
    return [f"{kind}.`{name}`" for name in names]


def _pictures(title: str, params: list[str], metrics: list[str]) -> dict[str, object]:
    """Parallel coordinates, and below them a plot of the first two figures against each other."""
    common = {
        "metricSectionId": "capplan",
        "deleted": False,
        "isGenerated": False,
        "runsCountToCompare": _MOST_RUNS,
    }
    across, up = ({"key": name, "type": "METRIC"} for name in metrics[:2])
    return {
        "runsHiddenMode": "SHOWALL",
        "compareRunSections": [
            {"uuid": "capplan", "name": title, "display": True, "isReordered": False, "columns": 1}
        ],
        "compareRunCharts": [
            {
                **common,
                "uuid": "capplan-parallel",
                "type": "PARALLEL",
                "selectedParams": params,
                "selectedMetrics": metrics,
                "showAllRuns": True,
            },
            {**common, "uuid": "capplan-scatter", "type": "SCATTER", "xaxis": across, "yaxis": up},
        ],
    }
