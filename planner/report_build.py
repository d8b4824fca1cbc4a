"""How does a study become a report? Its answer, its designs, and what simulating the recommended one again tells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from constraints.evaluation import evaluate
from planner.durable import ANSWER, MERGED_FROM, job_of, stored_answer
from planner.output import ANSWER_FILE, JOB_FILE
from planner.recommendation import Design, Recommendation
from planner.report_breakdowns import breakdowns
from planner.report_data import DesignCounts, Figure, InputGroup, Report, Reproduction
from planner.report_designs import DesignCloud, cloud_of_study, cloud_of_table
from planner.report_flips import flips
from planner.report_front import errors_of, front_figure
from planner.report_inputs import inputs
from planner.report_scaling import scaling
from planner.report_spread import spreads
from planner.report_tornado import tornados
from planner.uncertainty import accuracy_of
from simulator.accuracy import step_time_error
from simulator.errors import StudyError
from simulator.job import Job
from simulator.plan import PlanTable
from studies.journal import Journal
from studies.recording import DESIGN_TABLE
from studies.tracking import software_tags


@dataclass(frozen=True, kw_only=True)
class DrawnReport:
    """A report with the designs that its page draws behind the front."""

    report: Report
    cloud: DesignCloud


def report_of_study(path: Path) -> DrawnReport:
    """Returns the report of a study that has ended.

    Raises:
        StudyError: the study cannot be read, or has no answer.
    """
    with Journal.read(path) as journal:
        facts = journal.facts
        if MERGED_FROM in facts:
            raise StudyError(f"study {path.stem} was merged from others and has no answer: report these")
        if ANSWER not in facts:
            raise StudyError(f"study {path.stem} has not ended: resume it, then report it")
        return build_report(job_of(facts), stored_answer(facts), cloud_of_study(journal))


def report_of_folder(folder: Path) -> DrawnReport:
    """Returns the report of what `capplan recommend --output` wrote.

    Raises:
        StudyError: a file is missing or not of this version.
    """
    try:
        job = Job.model_validate_json((folder / JOB_FILE).read_bytes())
        answer = Recommendation.model_validate_json((folder / ANSWER_FILE).read_bytes())
    except OSError as error:
        raise StudyError(f"{folder} holds no answer of `capplan recommend --output`: {error}") from error
    except ValidationError as error:
        raise StudyError(f"{folder} holds an answer of another version: {error}") from error
    return build_report(job, answer, cloud_of_table(folder / DESIGN_TABLE))


def build_report(job: Job, answer: Recommendation, cloud: DesignCloud) -> DrawnReport:
    """Returns the report of an answer.

    Args:
        job: what was asked.
        answer: what came out.
        cloud: the designs that were simulated.
    """
    drawn = cloud.thinned()
    best = answer.recommendation
    errors = errors_of(job, answer)
    report = Report(
        job=job,
        answer=answer,
        errors=errors,
        figures=tuple(_figures(job, answer, best, errors)) if best else (),
        inputs=_inputs(job, best),
        reproduction=_reproduction(answer),
        designs=DesignCounts(num_designs=cloud.num_simulated, num_drawn=len(drawn)),
    )
    return DrawnReport(report=report, cloud=drawn)


def _figures(job: Job, answer: Recommendation, best: Design, errors: dict[int, float]) -> list[Figure]:
    """All figures in reading order."""
    chosen = evaluate(job, PlanTable.from_plans([best.plan]))
    accuracy = accuracy_of(job, chosen)
    return [
        front_figure(answer, errors),
        *breakdowns(job, answer, best),
        *spreads(job, answer, chosen),
        flips(job, answer, best, accuracy),
        *tornados(job, best, accuracy),
        *scaling(job, answer, best),
    ]


def _inputs(job: Job, best: Design | None) -> tuple[InputGroup, ...]:
    """The inputs for the recommended offer; for the first one where nothing is recommended."""
    offer = best.plan.offer if best else 0
    precision = best.plan.precision if best else job.workload.precisions[0]
    has_experts = job.workload.model.experts is not None
    family = job.offers[offer].accelerator.family
    return inputs(job, offer, step_time_error(family, precision.value, has_experts=has_experts))


def _reproduction(answer: Recommendation) -> Reproduction:
    return Reproduction(
        command=f"capplan recommend {JOB_FILE} --seed {answer.seed}",
        capplan_version=answer.capplan_version,
        seed=answer.seed,
        catalog_hash=answer.catalog_hash,
        libraries=software_tags(),
    )
