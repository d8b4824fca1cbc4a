"""What does MLflow show of a study? Its settings, its inputs and its results."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from planner.job.in_short import in_short
from planner.recommended.design_words import layout
from planner.recommended.recommendation import MlflowRecord, Recommendation, Status
from simulator.domain.hardware import Site
from simulator.domain.job import Job
from simulator.domain.reliability import RELIABILITY_PRESETS, Reliability
from simulator.record import Record
from studies.tracking.mlflow_session import MAX_PARAM_CHARACTERS, without_password
from studies.tracking.recording import Ending, Recording
from studies.tracking.tracker import RunStatus, StudyTracker

RUN_STATUS: dict[Status, RunStatus] = {
    "recommended": "FINISHED",
    "infeasible": "FINISHED",
    "interrupted": "KILLED",
}
"""MLflow's names for the end of a study."""
RESULT_TAGS = ("recommended_accelerator", "recommended_layout", "recommended_design")
"""What is recommended, in words; the number of GPUs is a metric, to sort by."""
OFFER_FIELDS = (
    "num_gpus",
    "rent_usd_per_gpu_hour",
    "purchase_usd_per_node",
    "site",
    "max_nodes",
    "nodes_per_rack",
    "commitment_days",
    "interruptions_per_1000_node_days",
)
"""Fields of an offer that are parameters where they are set."""
WORKLOAD_FIELDS = ("model", "tokens", "sequence_length", "global_batch_size", "precisions")
"""Fields of the workload that are parameters under their own names, defaults included."""
RUN_SECTIONS = (
    "workload",
    "reliability",
    "checkpointing",
    "storage",
    "ownership",
    "operation",
    "carbon_scope",
    "input_factors",
)
"""Sections of a job whose fields are parameters where they are set."""
RESULTS = (
    "time_to_train_days",
    "cost_usd",
    "energy_kwh",
    "carbon_kgco2e",
    "mfu_fraction",
    "goodput_fraction",
)
"""Figures of a design that are shown next to the settings."""


def finish(
    recording: Recording,
    answer: Recommendation,
    files: list[Path],
    pictures: Sequence[Path],
    recorded_names: Collection[str] = (),
) -> None:
    """Completes the record of a study with its answer; arguments and errors as of `Recording.finish`."""
    ending = Ending(
        status=RUN_STATUS[answer.status],
        metrics=result_metrics(answer),
        tags=_result_tags(answer),
        recommended_id=answer.recommendation.design_id if answer.recommendation else None,
        tied_ids=answer.uncertainty.tied_designs if answer.uncertainty else (),
    )
    recording.finish(ending, files, pictures=pictures, recorded_names=recorded_names)


def result_metrics(answer: Recommendation) -> dict[str, float]:
    """What MLflow's table of studies shows and sorts by, in addition to the ends of the curves."""
    if answer.best is None:
        return {}
    figures = {name: float(getattr(answer.best, name)) for name in RESULTS}
    figures["num_gpus"] = float(answer.best.plan.num_gpus)
    return {f"recommended_{name}": value for name, value in figures.items()}


def _result_tags(answer: Recommendation) -> dict[str, str]:
    """The recommended cluster in words. A resumed study may change tags, but not parameters."""
    if answer.best is None:
        return {}
    texts = (answer.best.accelerator, layout(answer.best.plan), str(answer.best.design_id))
    return dict(zip(RESULT_TAGS, texts, strict=True))


def study_tags(job_hash: str, catalog_hash: str) -> dict[str, str]:
    """Tags by which a study is found: equal jobs have equal hashes, and the names of designs carry the start of the hash."""
    return {"job_hash": job_hash, "catalog_hash": catalog_hash}


def asked_params(job: Job, seed: int) -> dict[str, str]:
    """Returns what MLflow shows as the parameters of a study."""
    asked = {
        "job": job.name,
        "seed": str(seed),
        "model": job.workload.model.name,
        "tokens": f"{job.workload.tokens:g}",
        "sequence_length": str(job.workload.sequence_length),
        "global_batch_size": str(job.workload.global_batch_size),
        "precisions": ", ".join(job.workload.precisions),
        "offers": ", ".join(offer.accelerator.id for offer in job.offers),
        **_offered(job),
        "objectives": ", ".join(job.objectives),
        **({"preference": in_short(job.preference)} if job.preference else {}),
        "site": job.site.region,
        **_figures_of(job.site, "site"),
        "reliability": _preset(job.reliability),
        **({"calibration": in_short(job.calibration)} if job.calibration else {}),
        **{
            f"{name}_{field}": text
            for name in RUN_SECTIONS
            for field, text in _set_fields(getattr(job, name)).items()
            if name != "workload" or field not in WORKLOAD_FIELDS
        },
        **{f"limit_{name}": f"{value:g}" for name, value in job.limits if value is not None},
        **{f"search_{name}": _setting(value) for name, value in job.search},
        "search_generation_size": str(job.search.generation_size),
    }
    return {name: value[:MAX_PARAM_CHARACTERS] for name, value in asked.items()}


def _offered(job: Job) -> dict[str, str]:
    """Each offer by its place in the job: `64 to 1,024` for `offer_0_num_gpus`, `4 (3 to 6)` for its rent."""
    found: dict[str, str] = {}
    for place, offer in enumerate(job.offers):
        values = {name: getattr(offer, name) for name in OFFER_FIELDS}
        texts = {name: in_short(value) for name, value in values.items() if value not in (None, 0.0)}
        found |= {f"offer_{place}_{name}": text for name, text in texts.items()}
        found |= _figures_of(offer.site, f"offer_{place}_site") if offer.site else {}
    return found


def _figures_of(site: Site, name: str) -> dict[str, str]:
    """What is known of a site, without its name: `1.44` for `site_power_usage_effectiveness`."""
    return {f"{name}_{field}": text for field, text in _set_fields(site).items() if field != "region"}


def _preset(reliability: Reliability) -> str:
    """Name of the published fleet whose failures are assumed."""
    known = (name for name, preset in RELIABILITY_PRESETS.items() if preset == reliability)
    return next(known, "own")


def _set_fields(record: Record) -> dict[str, str]:
    """The fields of a section of a job that differ from their defaults, as text."""
    own = record.model_dump(exclude_defaults=True)
    return {name: in_short(getattr(record, name)) for name in own}


def _setting(value: object) -> str:
    """A setting of the search as text; unset ones are shown as defaults."""
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
    """Returns where MLflow has a study."""
    return MlflowRecord(
        tracking_uri=without_password(tracker.tracking_uri),
        experiment=tracker.experiment,
        run_name=tracker.run_name,
        num_designs=num_designs,
        num_design_runs=num_design_runs,
        open_with=tracker.open_command,
        run_id=tracker.run_id,
    )
