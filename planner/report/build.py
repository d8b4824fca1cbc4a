"""How does a study become a report? From its answer, its designs, and a new simulation of the recommended design."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from constraints.evaluation import evaluate
from planner.recommended.output import JOB_FILE
from planner.recommended.recommendation import Design, Recommendation
from planner.report.breakdowns import breakdowns
from planner.report.data import Figure, Report, Reproduction, StepInterval
from planner.report.designs import DesignCloud, cloud_of_table, design_counts
from planner.report.fastest import FastestRuns
from planner.report.flips import flips
from planner.report.front import front_figure, step_intervals
from planner.report.inputs import inputs
from planner.report.scaling import scaling
from planner.report.spread import spreads
from planner.report.tornado import tornados
from planner.uncertain.sensitivity import Sensitivities, sensitivities
from planner.uncertain.uncertainty import accuracy_of
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from studies.files.design_log import DesignLog
from studies.progress import Progress, ignore
from studies.progress import Report as Told
from studies.tracking.experiments import software_tags


@dataclass(frozen=True, kw_only=True)
class DrawnReport:
    """A report, and the designs that its page draws behind the front."""

    report: Report
    cloud: DesignCloud

    def answering(self, answer: Recommendation) -> DrawnReport:
        """Returns the same report for an answer that differs only in where it is recorded."""
        return replace(self, report=self.report.model_copy(update={"answer": answer}))


def report_of_log(job: Job, answer: Recommendation, log: DesignLog, progress: Told) -> DrawnReport | None:
    """Returns the report of a search that has just ended, and closes its log.

    `None` if it was interrupted, because then the user does not want to wait.
    """
    if answer.status == "interrupted":
        return None
    log.close()
    return build_report(job, answer, cloud_of_table(log.path), progress)


def build_report(
    job: Job, answer: Recommendation, cloud: DesignCloud, progress: Told = ignore
) -> DrawnReport:
    """Returns the report of an answer.

    Args:
        job: the job.
        answer: the answer to the job.
        cloud: the designs that were simulated.
        progress: is told which part of the report is being computed.
    """
    drawn = cloud.thinned()
    best = answer.recommendation
    drivers = sensitivities(job, best.plan) if best else None
    intervals = step_intervals(job, answer)
    report = Report(
        job=job,
        answer=answer,
        step_intervals=intervals,
        figures=tuple(_figures(job, answer, best, drivers, intervals, cloud, progress))
        if best and drivers
        else (),
        inputs=inputs(job, drivers.inputs if drivers else ()),
        reproduction=_reproduction(answer),
        designs=design_counts(cloud, drawn),
    )
    return DrawnReport(report=report, cloud=drawn)


def _figures(
    job: Job,
    answer: Recommendation,
    best: Design,
    drivers: Sensitivities,
    intervals: Mapping[int, StepInterval],
    cloud: DesignCloud,
    progress: Told,
) -> Iterator[Figure]:
    """Yields all figures in reading order."""
    chosen = evaluate(job, PlanTable.from_plans([best.plan]))
    accuracy = accuracy_of(job, chosen.plans, 0)
    fastest = FastestRuns(job, best)
    parts: dict[str, Callable[[], Sequence[Figure]]] = {
        "the front": lambda: [front_figure(answer, intervals)],
        "breakdowns": lambda: breakdowns(job, answer, best),
        "uncertainty": lambda: spreads(job, answer, chosen),
        "sensitivity of the recommendation": lambda: [flips(job, answer, best, accuracy, fastest)],
        "sensitivity of the results": lambda: tornados(job, drivers),
        "scaling": lambda: scaling(job, answer, best, cloud, fastest),
    }
    for number, (name, make) in enumerate(parts.items()):
        progress(Progress(stage=f"report: {name}", num_done=number, num_total=len(parts)))
        yield from make()


def _reproduction(answer: Recommendation) -> Reproduction:
    return Reproduction(
        command=f"capplan recommend {JOB_FILE} --seed {answer.seed}",
        capplan_version=answer.capplan_version,
        seed=answer.seed,
        catalog_hash=answer.catalog_hash,
        libraries=software_tags(),
    )
