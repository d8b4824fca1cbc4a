"""Which answers and designs do the tests of bests, cases and draws compare?"""

from __future__ import annotations

from constraints.evaluation import Evaluation, evaluate
from planner.recommended.comparisons import WhatIfCase
from planner.what_if.cases import what_if_cases
from simulator.domain.job import Job
from tests.support import plans_with

HOURLY = {"region": "us-iowa", "grid_profile": {"mean": 0.4, "daily_amplitude": 0.3}}


def chosen_of(job: Job, **plan: object) -> Evaluation:
    return evaluate(job, plans_with({"num_gpus": 16, "zero_stage": 3, **plan}))


def case_of(job: Job, name: str) -> WhatIfCase:
    cases = what_if_cases(job, chosen_of(job), lambda other: evaluate(other, plans_with({"num_gpus": 32})))
    return next(case for case in cases if case.case.startswith(name))
