"""Which form do files and answers have? JSON Schemas of job and network files and of every `--json`, from the types."""

from __future__ import annotations

from pydantic import BaseModel

from planner.calibration.answer import CalibrationAnswer
from planner.compare.comparison import Comparison
from planner.deep.answer import DeepStep
from planner.explain.explanation import Explanation
from planner.goodput.answer import Goodput
from planner.job.schema_file import DIALECT, job_file_schema, schema_as_text
from planner.json_forms import (
    CatalogAnswer,
    StudyExport,
    StudyMerge,
    StudySync,
    SweepAnswer,
    TrackingPage,
    ValidationAnswer,
    WrittenJob,
)
from planner.launch.answer import Launch
from planner.layer_cut import LayerCut
from planner.one_design.measured_row import MeasuredRow
from planner.one_design.simulated_design import SimulatedDesign
from planner.opendc.failures import TracedFailures
from planner.purchase.plan import PurchasePlan
from planner.recommended.recommendation import Recommendation
from planner.report.data import Report
from planner.study.reports import StudyFront, StudyList, StudyStatus
from planner.timeline.run import TimelineAnswer
from planner.trace.hop_simulation import HopAnswer
from planner.trace.play import PlayAnswer
from planner.trace.simulation import TraceAnswer
from simulator.deep.networks.network_file import NetworkFile

JOB, NETWORK = "job", "network"
ANSWERS: dict[str, type[BaseModel]] = {
    "answer": Recommendation,
    "simulate": SimulatedDesign,
    "simulate-deep": DeepStep,
    "launch": Launch,
    "timeline": TimelineAnswer,
    "trace-simulate": TraceAnswer,
    "trace-hop": HopAnswer,
    "trace-play": PlayAnswer,
    "compare": Comparison,
    "balance": LayerCut,
    "goodput": Goodput,
    "explain": Explanation,
    "purchase": PurchasePlan,
    "sweep": SweepAnswer,
    "validate": ValidationAnswer,
    "validate-row": MeasuredRow,
    "calibrate": CalibrationAnswer,
    "catalog": CatalogAnswer,
    "study-status": StudyStatus,
    "study-front": StudyFront,
    "study-list": StudyList,
    "study-export": StudyExport,
    "study-merge": StudyMerge,
    "study-sync": StudySync,
    "report": Report,
    "ui": TrackingPage,
    "init": WrittenJob,
    "opendc-failures": TracedFailures,
}
"""What each command prints with `--json`; `report` is what `report --format json` writes, `answer` is that of recommend,
study run and study resume, `balance` that of explain --balance, `simulate-deep` that of simulate --depth deep, `validate-row`
that of validate --row."""
NAMES = (JOB, NETWORK, *ANSWERS)


def schema_text(name: str) -> str:
    """Returns a JSON Schema as text with a line end.

    Args:
        name: one of `NAMES`.
    """
    match name:
        case "job":
            schema = job_file_schema()
        case "network":
            schema = {"$schema": DIALECT, **NetworkFile.model_json_schema()}
        case _:
            schema = _answer_schema(ANSWERS[name])
    return schema_as_text(schema)


def _answer_schema(model: type[BaseModel]) -> dict[str, object]:
    """Returns the schema of what a type is printed as."""
    return {"$schema": DIALECT, **model.model_json_schema(mode="serialization")}
