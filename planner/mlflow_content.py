"""What does MLflow show of a study? What was asked, on what, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from planner.recommendation import MlflowRecord, Recommendation, Status
from simulator.job import Job
from studies.mlflow_session import MAX_PARAM_CHARACTERS, without_password
from studies.recording import Recording
from studies.tracking import RunStatus, StudyTracker

RUN_STATUS: dict[Status, RunStatus] = {
    "recommended": "FINISHED",
    "infeasible": "FINISHED",
    "interrupted": "KILLED",
}
"""How MLflow calls the end of a study."""
RESULTS = (
    "time_to_train_days",
    "cost_usd",
    "energy_kwh",
    "carbon_kgco2e",
    "mfu_fraction",
    "goodput_fraction",
)
"""Figures of a design that are shown beside what was asked."""


def finish(
    recording: Recording,
    answer: Recommendation,
    files: list[Path],
    pictures: Sequence[Path],
    recorded_names: Collection[str] = (),
) -> None:
    """Completes the record of a study with its answer; arguments and errors as of `Recording.finish`."""
    recording.finish(
        RUN_STATUS[answer.status],
        result_metrics(answer),
        files,
        pictures=pictures,
        recommended_id=answer.recommendation.design_id if answer.recommendation else None,
        tied_ids=answer.uncertainty.tied_designs if answer.uncertainty else (),
        recorded_names=recorded_names,
    )


def result_metrics(answer: Recommendation) -> dict[str, float]:
    """What MLflow's table of studies shows and sorts by, beside the ends of the curves."""
    if answer.best is None:
        return {}
    return {f"recommended_{name}": float(getattr(answer.best, name)) for name in RESULTS}


def asked_params(job: Job, seed: int) -> dict[str, str]:
    """Returns what MLflow shows as the parameters of a study."""
    asked = {
        "job": job.name,
        "seed": str(seed),
        "model": job.workload.model.name,
        "tokens": f"{job.workload.tokens:g}",
        "sequence_length": str(job.workload.sequence_length),
        "global_batch_size": str(job.workload.global_batch_size),
        "offers": ", ".join(offer.accelerator.id for offer in job.offers),
        "objectives": ", ".join(job.objectives),
        "site": job.site.region,
        **{f"limit_{name}": f"{value:g}" for name, value in job.limits if value is not None},
        **{f"search_{name}": _setting(value) for name, value in job.search},
        "search_generation_size": str(job.search.generation_size),
    }
    return {name: value[:MAX_PARAM_CHARACTERS] for name, value in asked.items()}


def _setting(value: object) -> str:
    """A setting of the search as text; what the job leaves to the default is called so."""
    if value is None:
        return "default"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def inputs_profile(job: Job) -> dict[str, object]:
    """Returns what MLflow shows of the inputs of a study."""
    return {
        "model": job.workload.model.name,
        "tokens": job.workload.tokens,
        "offers": [offer.accelerator.id for offer in job.offers],
        "objectives": [objective.value for objective in job.objectives],
        "limits": {name: value for name, value in job.limits if value is not None},
    }


def record_of(tracker: StudyTracker, num_designs: int, num_design_runs: int) -> MlflowRecord:
    """Returns where MLflow holds a study."""
    return MlflowRecord(
        tracking_uri=without_password(tracker.tracking_uri),
        experiment=tracker.experiment,
        run_name=tracker.run_name,
        num_designs=num_designs,
        num_design_runs=num_design_runs,
        open_with=tracker.open_command,
        run_id=tracker.run_id,
    )
