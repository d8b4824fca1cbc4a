"""In which ways can each job of a fleet run? On every offer the fastest design for each number of nodes."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from constraints.evaluation import Evaluation
from objectives.carbon import embodied_parts
from objectives.cost import storage_usd
from objectives.usage import Usage, num_held_gpus
from planner.calibration.file import load_calibration
from planner.input.record_input import parse_record
from planner.input.yaml_text import read_document
from planner.job.file import parse_job
from planner.job.sites import PROFILES
from planner.purchase.fleet import Fleet, FleetJob, FleetOffer
from simulator.domain.calibration import Calibration
from simulator.domain.hardware import Storage
from simulator.domain.job import Job, Objective
from simulator.domain.offer import MOST_GPUS, GpuRange
from simulator.domain.plan import Plan, PlanTable
from simulator.errors import InputError, Problem
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import phase_power
from simulator.units import HOUR, JOULES_PER_KWH, KILO
from studies.study import searched_front

OBJECTIVES = (Objective.TIME, Objective.COST, Objective.ENERGY)
"""What the designs of a job are traded off in; cost stands for node-hours."""
PARTS_OF_EFFORT = 8
"""Into how many parts the effort of a job's search is divided (choice): each doubling of nodes is searched with one of them."""
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
    idle_power_w: float
    """What the facility draws for its nodes and their network when nothing runs."""
    carbon_kgco2e: float
    """Greenhouse gases, as for the job alone."""
    operational_kgco2e: float
    """Those of the energy."""
    used_up_kgco2e: float
    """Those of making storage, which is used in every hour that counts, and replaced accelerators: the run's own."""
    storage_usd: float
    """Storage that is bought for the run."""
    plan: Plan
    """The decisions."""

    @property
    def duration_h(self) -> int:
        """Whole hours that the run takes."""
        return math.ceil(self.wall_s / HOUR)

    @property
    def above_idle_fraction(self) -> float:
        """Share of the energy that its nodes would not draw when idle."""
        idle_kwh = self.idle_power_w / KILO * self.wall_s / HOUR
        return max(0.0, 1.0 - idle_kwh / self.energy_kwh)


OF_THE_FLEET = ("site", "ownership")
"""Fields of a job that the fleet gives for all of them."""


def jobs_of(fleet: Fleet, folder: Path) -> tuple[tuple[Job, ...], ...]:
    """Returns for each offer of a fleet its jobs with this offer alone.

    Raises:
        InputError: jobs, offers, site or terms break rules; all of them are in `problems`, where they stand in the fleet.
    """
    found: list[tuple[Job, ...]] = []
    problems: dict[Problem, None] = {}  # in order, each once
    for number, offer in enumerate(fleet.offers):
        jobs = []
        for index, job in enumerate(fleet.jobs):
            try:
                jobs.append(job_on(fleet, job, offer, folder))
            except InputError as error:
                if error.source != _source(job):  # a file that cannot be read
                    raise
                problems |= {_placed(problem, number, index): None for problem in error.problems}
        found.append(tuple(jobs))
    if problems:
        raise InputError(list(problems), f"fleet {fleet.name}")
    return tuple(found)


def _placed(problem: Problem, offer: int, job: int) -> Problem:
    """A problem of a job with one offer alone, with its place in the fleet."""
    inside = problem.path.removeprefix("offers[0]")
    if inside != problem.path:
        return replace(problem, path=f"offers[{offer}]{inside}")
    is_shared = re.split(r"[.\[]", problem.path)[0] in OF_THE_FLEET
    return problem if is_shared else replace(problem, path=f"jobs[{job}].job.{problem.path}".rstrip("."))


def _source(job: FleetJob) -> str:
    return f"jobs: {job.name}"


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
        "offers": [{**hardware, "num_gpus": {"min": 1, "max": MOST_GPUS}, **_search_terms(offer)}],
        "site": _site_for(fleet, job, folder),
        "ownership": fleet.ownership,
        "objectives": [objective.value for objective in OBJECTIVES],
    }
    below = _folder(job, folder)
    elsewhere = _calibration_elsewhere(document.get("calibration"), below, fleet, offer)
    unread = ("preference", "what_if", *(["calibration"] if elsewhere else []))
    kept = {name: value for name, value in document.items() if name not in unread}
    parsed = parse_job({**kept, **replaced}, folder=below, source=_source(job))
    found = parsed.offers[0]
    size = found.node.num_accelerators
    most = size * min(offer.max_nodes, MOST_GPUS // size)
    sized = found.model_copy(update={"num_gpus": GpuRange(min=size, max=most)})
    limits = parsed.limits.model_copy(update={"budget_usd": None, "budget_probability": None})
    # Which hours a run meets is decided by the plan: they count with their mean, which is the flat figure.
    site = parsed.site.model_copy(update=dict.fromkeys(PROFILES))
    known = {"calibration": elsewhere} if elsewhere else {}
    return parsed.model_copy(update={"offers": (sized,), "limits": limits, "site": site, **known})


def _calibration_elsewhere(
    given: object, folder: Path, fleet: Fleet, offer: FleetOffer
) -> Calibration | None:
    """Returns the calibration of a job if it covers other offers of the fleet but not this one, with which alone it is refused.

    A calibration that breaks rules is told when the job is read.
    """
    try:
        if isinstance(given, str):
            found = load_calibration(folder / given)
        elif isinstance(given, Mapping):
            found = parse_record(Calibration, given)
        else:
            return None
    except InputError:
        return None
    covered = {one.accelerator for one in fleet.offers} & set(found.accelerators)
    return found if covered and offer.accelerator not in covered else None


def _site_for(fleet: Fleet, job: FleetJob, folder: Path) -> object:
    """The fleet's site with the paths of its profiles as they are from where those of a job start."""
    if not isinstance(fleet.site, Mapping):
        return fleet.site
    start = _folder(job, folder).resolve()
    files = {
        name: path for name in PROFILES if isinstance(path := fleet.site.get(name), str) and path.strip()
    }
    moved = {
        name: os.path.relpath((folder / path).resolve(), start)
        for name, path in files.items()
        if not Path(path).is_absolute()
    }
    return {**fleet.site, **moved}


def _search_terms(offer: FleetOffer) -> dict[str, float]:
    """The terms of an offer that its designs are searched with."""
    return {
        "rent_usd_per_gpu_hour": ANY_RENT,
        "interruptions_per_1000_node_days": offer.interruptions_per_1000_node_days,
    }


def used_always(job: Job) -> Job:
    """The job on nodes of which every hour is counted, so that none is left to be shared out among hours of use."""
    return job.model_copy(
        update={"ownership": job.ownership.model_copy(update={"utilization_fraction": 1.0})}
    )


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
    """Returns designs of a job that has one offer, from few nodes to many; each is faster by whole hours than all smaller ones.

    Args:
        job: the job.
        place: positions of the job and of the offer in the fleet.
        seed: of the searches.
    """
    fastest = None
    for part in _parts_by_size(job):
        fastest = _fastest(part, seed, fastest)
    if fastest is None:
        return ()
    found: list[Candidate] = []
    for row in range(len(fastest)):
        candidate = _candidate(job, fastest, row, place)
        if candidate.num_nodes <= _most_nodes(job) and (
            not found or candidate.duration_h < found[-1].duration_h
        ):
            found.append(candidate)
    return tuple(found)


def _parts_by_size(job: Job) -> Iterator[Job]:
    """The job for one node, for two, for 3 to 4, for 5 to 8, and so on: what is found for few does not depend on the most."""
    offer, search = job.offers[0], job.search
    effort = {
        "exhaustive_up_to": math.ceil(search.exhaustive_up_to / PARTS_OF_EFFORT),
        "max_evaluations": math.ceil(search.max_evaluations / PARTS_OF_EFFORT),
        "num_refinements": math.ceil(search.num_refinements / PARTS_OF_EFFORT),
    }
    size, fewest, most = offer.node.num_accelerators, 1, 1
    while fewest <= _most_nodes(job):
        num_gpus = GpuRange(min=size * fewest, max=min(size * most, MOST_GPUS))
        part = offer.model_copy(update={"num_gpus": num_gpus})
        yield job.model_copy(update={"offers": (part,), "search": search.model_copy(update=effort)})
        fewest, most = most + 1, 2 * most


def _most_nodes(job: Job) -> int:
    return job.offers[0].num_gpus.max // job.offers[0].node.num_accelerators


def _fastest(job: Job, seed: int, known: Evaluation | None) -> Evaluation | None:
    """The fastest feasible design for each number of held nodes, by that number, of all that a search sees and the known."""
    best = known

    def see(found: Evaluation) -> None:
        nonlocal best
        parts = [found.take(np.flatnonzero(found.is_feasible)), *([] if best is None else [best])]
        both = Evaluation.concatenate(parts)
        held = num_held_gpus(job, both.plans)
        order = np.lexsort((both.scores.energy_j, both.scores.time_to_train_s, held))
        _, first = np.unique(held[order], return_index=True)
        best = both.take(order[first]) if len(both) else best

    searched_front(job, seed, see)
    return best


def _candidate(job: Job, front: Evaluation, row: int, place: tuple[int, int]) -> Candidate:
    scores, nodes = front.scores, num_held_gpus(job, front.plans)[row] / job.offers[0].node.num_accelerators
    always, usage = used_always(job), Usage.of(front.outcomes)
    stored_kgco2e = embodied_parts(always, front.plans, usage)["embodied_storage_kgco2e"]
    return Candidate(
        job=place[0],
        offer=place[1],
        num_nodes=round(float(nodes)),
        wall_s=float(scores.time_to_train_s[row]),
        energy_kwh=float(scores.energy_j[row]) / JOULES_PER_KWH,
        peak_power_w=float(front.outcomes.power.peak_power_w[row]),
        idle_power_w=_idle_power_w(job, front.plans.plan(row)),
        carbon_kgco2e=float(scores.carbon_kgco2e[row]),
        operational_kgco2e=float(scores.operational_kgco2e[row]),
        used_up_kgco2e=float((stored_kgco2e + scores.embodied_replacements_kgco2e)[row]),
        storage_usd=float(storage_usd(always, usage)[row]),
        plan=front.plans.plan(row),
    )


def _idle_power_w(job: Job, plan: Plan) -> float:
    """What a design's nodes, spares too, and their network draw when idle; storage is the run's own."""
    bare, plans = job.model_copy(update={"storage": Storage()}), PlanTable.from_plans([plan])
    power = phase_power(bare, plans, OfferTable.from_job(bare).take(plans.offer))
    return float((power.idle_w + power.spares_w)[0])
