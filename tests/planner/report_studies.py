"""Which studies do the tests of the report show? A small one with limits that exclude some designs, searched once."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from planner.answer.recommend import recommend
from planner.report.build import DrawnReport
from planner.report.data import StepInterval
from planner.report.designs import METRICS, design_counts
from planner.report.front import front_figure
from planner.report.sources import report_of_folder
from simulator.domain.job import Job
from simulator.domain.limits import Limits
from simulator.domain.offer import Estimate
from tests.studies.study_jobs import small_job

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
RENTS = {"h100-sxm5-80gb": (2.0, 2.6, 7.0), "a100-sxm4-80gb": (0.7, 0.9, 1.3)}
"""USD per hour, low, middle and high: ranges wide enough for the recommendation to change within them."""


def job() -> Job:
    """Llama 3.1 8B on H100, which are faster, or A100, which are cheaper, with a budget that some designs exceed."""
    found = small_job(
        tensor_parallel=[1, 2], context_parallel=[1, 2], virtual_pipeline=[1], with_spares=[True]
    )
    offers = tuple(
        offer.model_copy(
            update={"rent_usd_per_gpu_hour": Estimate(low=low, mid=mid, high=high), "price_source": "a quote"}
        )
        for offer, (low, mid, high) in zip(found.offers, RENTS.values(), strict=True)
    )
    limits = Limits(budget_usd=2.4e4, deadline_days=30.0)
    return found.model_copy(update={"offers": offers, "limits": limits, "name": "llama-8b"})


@functools.cache
def answered() -> Path:
    """The folder that `capplan recommend --output` writes for that job."""
    folder = Path(tempfile.mkdtemp(prefix="capplan-test-")) / "answer"
    recommend(job(), seed=1, tracking=False, output=folder, clock=lambda: NOON)
    return folder


@functools.cache
def drawn() -> DrawnReport:
    """The report of that answer."""
    return report_of_folder(answered())


def large(num_designs: int, num_front: int) -> DrawnReport:
    """A report of many real designs with random figures, the worst case for compression.

    Along its front, costs fall and times rise.
    """
    report, few = drawn().report, drawn().cloud
    best = report.answer.recommendation
    assert best is not None
    front = tuple(
        best.model_copy(
            update={
                "design_id": number,
                "cost_usd": best.cost_usd * 1.001**-number,
                "time_to_train_days": best.time_to_train_days * 1.001**number,
            }
        )
        for number in range(num_front)
    )
    answer = report.answer.model_copy(update={"front": front, "recommendation": front[0]})
    interval = StepInterval(low_fraction=0.97, high_fraction=1.05)
    intervals = {design.design_id: interval for design in front}
    rng = np.random.default_rng(1)
    rows, noise = rng.integers(0, len(few), num_designs), rng.lognormal(0.0, 0.3, num_designs)
    numbers = {
        name: column[rows] * (noise if name in METRICS else 1.0) for name, column in few.numbers.items()
    }
    cloud = replace(
        few.take(rows), num_simulated=num_designs, design_id=np.arange(num_designs), numbers=numbers
    )
    update = {
        "answer": answer,
        "step_intervals": intervals,
        "figures": (front_figure(answer, intervals), *report.figures[1:]),
        "designs": design_counts(cloud, cloud),
    }
    return DrawnReport(report=report.model_copy(update=update), cloud=cloud)
