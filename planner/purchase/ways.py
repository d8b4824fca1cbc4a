"""In which ways can each job of a fleet run? Designs from its Pareto fronts, one front for every offer, by number of nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from constraints.evaluation import Evaluation
from objectives.usage import num_held_gpus
from planner.job.file import parse_job
from planner.purchase.fleet import Fleet, FleetJob, FleetOffer
from planner.yaml_text import read_document
from simulator.errors import InputError, Problem
from simulator.job import Job, Objective
from simulator.offer import GpuRange
from simulator.plan import Plan
from simulator.units import HOUR, JOULES_PER_KWH
from studies.study import searched_front

OBJECTIVES = (Objective.TIME, Objective.COST, Objective.ENERGY)
"""What the designs of a job are traded off in; cost stands for node-hours."""
MOST_SIZES = 12
"""Designs of a job on one offer that are considered, at different numbers of nodes."""
ANY_RENT = 1.0
"""USD per accelerator-hour of the search: the price moves no design, since it is the same for all of an offer."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One design of a job on one offer."""

    job: int
    """Position of the job."""
    offer: int
    """Position of the offer."""
    num_nodes: int
    """Nodes that are held, spares too."""
    wall_s: float
    """Expected length of the run."""
    energy_kwh: float
    """Energy of the facility."""
    peak_power_w: float
    """Most that the facility draws."""
    carbon_kgco2e: float
    """Greenhouse gases."""
    storage_usd: float
    """Storage that is bought for the run."""
    plan: Plan
    """The decisions."""

    @property
    def duration_h(self) -> int:
        """Whole hours that the run takes."""
        return math.ceil(self.wall_s / HOUR)


def job_on(fleet: Fleet, job: FleetJob, offer: FleetOffer, folder: Path) -> Job:
    """Returns a job of the fleet with one offer alone, at the fleet's site.

    Raises:
        InputError: the job breaks rules; all of them are in `problems`.
    """
    document = document_of(job, folder)
    names = ("accelerator", "node", "fabric")
    hardware = {name: getattr(offer, name) for name in names if getattr(offer, name) is not None}
    replaced: dict[str, object] = {
        "name": job.name,
        "offers": [{**hardware, "num_gpus": {"min": 1, "max": 1_000_000}, "rent_usd_per_gpu_hour": ANY_RENT}],
        "site": fleet.site,
        "ownership": {**fleet.ownership, "utilization_fraction": 1.0},
        "objectives": [objective.value for objective in OBJECTIVES],
    }
    kept = {name: value for name, value in document.items() if name not in ("preference", "what_if")}
    parsed = parse_job({**kept, **replaced}, folder=_folder(job, folder), source=f"jobs: {job.name}")
    found = parsed.offers[0]
    size = found.node.num_accelerators
    sized = found.model_copy(update={"num_gpus": GpuRange(min=size, max=size * offer.max_nodes)})
    limits = parsed.limits.model_copy(update={"budget_usd": None, "budget_probability": None})
    return parsed.model_copy(update={"offers": (sized,), "limits": limits})


def document_of(job: FleetJob, folder: Path) -> Mapping[str, object]:
    """Returns what stands in the job file of a job of the fleet.

    Raises:
        InputError: the file cannot be read, or is no job file.
    """
    if isinstance(job.job, dict):
        return job.job
    document = read_document(folder / job.job)
    if not isinstance(document, Mapping):
        raise InputError([Problem(path="jobs", value=job.job, rule="must be a job file")], job.name)
    return document


def _folder(job: FleetJob, folder: Path) -> Path:
    """Where relative paths of a job start."""
    return (folder / job.job).parent if isinstance(job.job, str) else folder


def candidates_of(job: Job, place: tuple[int, int], seed: int) -> tuple[Candidate, ...]:
    """Returns designs of a job that has one offer, from few nodes to many; each is faster than all smaller ones.

    Args:
        job: the job.
        place: positions of the job and of the offer in the fleet.
        seed: of the search.
    """
    front = searched_front(job, seed)
    if front is None:
        return ()
    return tuple(_candidate(job, front, row, place) for row in _chosen_rows(job, front))


def _chosen_rows(job: Job, front: Evaluation) -> list[int]:
    """Rows of a front: for each number of nodes the fastest, no larger cluster that is slower, and `MOST_SIZES` at most."""
    held, wall_s = num_held_gpus(job, front.plans), front.scores.time_to_train_s
    rows: list[int] = []
    for row in np.lexsort((wall_s, held)).tolist():
        if not rows or (held[row] > held[rows[-1]] and wall_s[row] < wall_s[rows[-1]]):
            rows.append(row)
    places = np.linspace(0, len(rows) - 1, min(MOST_SIZES, len(rows)))
    return [rows[place] for place in np.rint(places).astype(int).tolist()]


def _candidate(job: Job, front: Evaluation, row: int, place: tuple[int, int]) -> Candidate:
    nodes = num_held_gpus(job, front.plans)[row] / job.offers[0].node.num_accelerators
    return Candidate(
        job=place[0],
        offer=place[1],
        num_nodes=round(float(nodes)),
        wall_s=float(front.scores.time_to_train_s[row]),
        energy_kwh=float(front.scores.energy_j[row]) / JOULES_PER_KWH,
        peak_power_w=float(front.outcomes.summary.peak_power_w[row]),
        carbon_kgco2e=float(front.scores.carbon_kgco2e[row]),
        storage_usd=float(front.scores.storage_usd[row]),
        plan=front.plans.plan(row),
    )
