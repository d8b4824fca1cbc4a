"""What is recorded of every evaluated design? The columns of the design table and of the designs' MLflow runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constraints.evaluation import Evaluation, evaluate
from simulator.domain.job import Job, Objective
from simulator.domain.plan import CHOICES, CheckpointScheme, Plan, PlanTable
from simulator.table import Integers
from simulator.units import DAY, JOULES_PER_KWH
from studies.designs.archive import Archive
from studies.designs.reduction import kept_of
from studies.files.identity import study_label
from studies.files.journal import Journal
from studies.tracking.run_table import RunTable

RUN_METRICS = (
    "time_to_train_days",
    "cost_usd",
    "energy_kwh",
    "carbon_kgco2e",
    "step_time_s",
    "mfu_fraction",
    "goodput_fraction",
    "num_failures",
    "peak_memory_bytes",
    "peak_power_w",
    "used_checkpoint_interval_s",
    "excess",
)
"""Figures by which designs are searched and compared in MLflow, in addition to the job's objectives. The design table has
all figures; in MLflow every figure of every run costs two rows of the store."""
OBJECTIVE_COLUMNS = {
    Objective.TIME: "time_to_train_days",
    Objective.COST: "cost_usd",
    Objective.ENERGY: "energy_kwh",
    Objective.CARBON: "carbon_kgco2e",
    Objective.TIME_P95: "time_to_train_p95_days",
    Objective.COST_P95: "cost_p95_usd",
    Objective.DEADLINE_RISK: "deadline_risk",
    Objective.BUDGET_RISK: "budget_risk",
}
"""Columns of the design table by the objective that they contain."""

Columns = dict[str, NDArray[np.generic]]


def design_columns(job: Job, evaluation: Evaluation, ids: Integers, stage: str) -> Columns:
    """Returns one column per figure, `(n,)`, with the unit in its name."""
    return {
        "design_id": ids,
        "stage": np.full(len(ids), stage),
        **plan_columns(job, evaluation.plans),
        **_metric_columns(evaluation),
        "is_feasible": evaluation.is_feasible,
    }


def no_designs(job: Job) -> Columns:
    """Returns the columns of a table without a design, `(0,)`, so that a study that simulated none has them, too."""
    none = PlanTable.from_plans([Plan(offer=0, num_gpus=1)]).take(slice(0, 0))
    return design_columns(job, evaluate(job, none), np.zeros(0, dtype=np.int64), "")


def study_columns(job: Job, journal: Journal) -> Iterator[Columns]:
    """Yields the columns of what was kept of each batch of a study, under the prices and limits of a job."""
    archive = Archive(job)
    for batch in journal.batches():
        found = batch.found(job)
        ids = archive.add(found)
        yield design_columns(job, kept_of(found), ids, batch.stage)


def plan_columns(job: Job, plans: PlanTable) -> Columns:
    """Returns the decisions, with choices as words."""
    accelerators = np.array([offer.accelerator.id for offer in job.offers])
    columns: Columns = {"accelerator": accelerators[plans.offer]}
    for name, column in plans.columns().items():
        words = np.array([choice.value for choice in CHOICES[name]]) if name in CHOICES else None
        columns[name] = column if words is None else words[column]
    return columns


def _metric_columns(evaluation: Evaluation) -> Columns:
    """Returns the results."""
    scores, run, steps = evaluation.scores, evaluation.outcomes.run, evaluation.outcomes.steps
    power, summary = evaluation.outcomes.power, evaluation.outcomes.summary
    excess = {f"excess_{name}": column for name, column in evaluation.excess.columns().items()}
    return {
        "time_to_train_days": scores.time_to_train_s / DAY,
        "time_to_train_p95_days": scores.time_to_train_p95_s / DAY,
        "cost_usd": scores.cost_usd,
        "cost_p95_usd": scores.cost_p95_usd,
        "deadline_risk": scores.deadline_risk,
        "budget_risk": scores.budget_risk,
        "energy_kwh": scores.energy_j / JOULES_PER_KWH,
        "carbon_kgco2e": scores.carbon_kgco2e,
        "operational_kgco2e": scores.operational_kgco2e,
        "market_kgco2e": scores.market_kgco2e,
        "embodied_kgco2e": scores.embodied_kgco2e,
        "water_l": scores.water_l,
        **steps.columns(),
        "mfu_fraction": summary.mfu_fraction,
        "goodput_fraction": run.goodput_fraction,
        "num_failures": run.num_failures,
        "used_checkpoint_interval_s": run.checkpoint_interval_s,
        "checkpoint_stall_s": run.checkpoint_stall_s,
        "lost_work_s": run.lost_work_s,
        "restart_s": run.restart_s,
        "straggler_s": run.straggler_s,
        "peak_memory_bytes": summary.peak_memory_bytes,
        "peak_power_w": power.peak_power_w,
        "mean_power_w": summary.mean_power_w,
        "hall_power_w": power.hall_power_w,
        "rack_power_w": power.rack_power_w,
        "power_swing_w": power.power_swing_w,
        "power_ramp_w_per_s": power.power_ramp_w_per_s,
        "power_range_fraction": power.power_range_fraction,
        **excess,
    }


@dataclass(frozen=True, kw_only=True)
class Marks:
    """How the designs of a study are marked in MLflow."""

    front: frozenset[int]
    """Numbers of the designs on the front; designs that hardly differ count once."""
    recommended: int | None
    """Number of the recommended design, if there is one."""
    tied: frozenset[int] = frozenset()
    """Numbers of the designs that the model cannot distinguish from the recommended one."""


def _run_metrics(job: Job) -> tuple[str, ...]:
    """Returns the figures of a design's MLflow run: those of every job, and the job's objectives."""
    return tuple(dict.fromkeys([*RUN_METRICS, *(OBJECTIVE_COLUMNS[name] for name in job.objectives)]))


def run_name(number: int, study: str) -> str:
    """Returns the name of a design's MLflow run, with the label of its study."""
    return f"design {number} of {study}"


def design_runs(
    job: Job, evaluation: Evaluation, ids: Integers, marks: Marks, rank_of: Sequence[str]
) -> RunTable:
    """Returns designs as MLflow shows them: decisions as parameters, figures as metrics, marks as tags.

    Non-dominated designs that are not on the front are marked as near it: they are equal, or nearly equal, to designs on it.

    Args:
        job: the question.
        evaluation: the designs.
        ids: their numbers, `(n,)`.
        marks: how they are marked.
        rank_of: their ranks among all designs of the study, `(n,)`.
    """
    params = {
        name: [str(value) for value in column.tolist()]
        for name, column in plan_columns(job, evaluation.plans).items()
    }
    params["checkpoint_interval_s"] = _used_intervals(evaluation)
    metrics = {**_metric_columns(evaluation), "excess": evaluation.excess.total}
    numbers = ids.tolist()
    places = [
        "near" if rank == "1" and number not in marks.front else rank
        for number, rank in zip(numbers, rank_of, strict=True)
    ]
    study = study_label(job)
    return RunTable(
        names=[run_name(number, study) for number in numbers],
        params=params,
        metrics={name: metrics[name] for name in _run_metrics(job)},
        tags={
            "feasible": [_flag(is_feasible) for is_feasible in evaluation.is_feasible.tolist()],
            "front": [_flag(number in marks.front) for number in numbers],
            "near_front": [_flag(place == "near") for place in places],
            "rank": places,
            "recommended": [_flag(number == marks.recommended) for number in numbers],
            "tied": [_flag(number in marks.tied) for number in numbers],
        },
    )


def ranks(job: Job, evaluation: Evaluation) -> list[str]:
    """Returns the rank of each design: 1 if no other one here beats it, 2 if none does once these are removed, and so on.

    Designs that break a limit or never end have `none`.
    """
    from moocore import pareto_rank

    values = evaluation.objectives(job)
    rows = np.flatnonzero(evaluation.is_feasible & np.isfinite(values).all(axis=1))
    found = ["none"] * len(evaluation)
    for row, rank in zip(rows.tolist(), pareto_rank(values[rows]).tolist() if len(rows) else (), strict=True):
        found[row] = str(rank + 1)
    return found


def _used_intervals(evaluation: Evaluation) -> list[str]:
    """Checkpoint intervals as simulated, since a plan that leaves the interval open names none."""
    never = evaluation.plans.checkpoint_scheme == CheckpointScheme.NONE.code
    used_s = evaluation.outcomes.run.checkpoint_interval_s.tolist()
    return [
        "never" if is_never else str(one_s) for one_s, is_never in zip(used_s, never.tolist(), strict=True)
    ]


def _flag(is_so: bool) -> str:
    return "1" if is_so else "0"
