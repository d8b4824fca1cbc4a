"""Why can a measured run not be simulated? Its cells make no job or plan, its layout breaks a rule, or it is too fast."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pydantic import ValidationError

from constraints.layout import LAYOUT_RULES, layout_excess
from constraints.layout_rule import LayoutRule
from planner.layout_figures import broken_rule_text
from planner.measured.limits import format_reason, speed_reason
from planner.measured.runs import JobCells, Row, job_cells, job_of, plan_of
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.errors import InputError
from simulator.table import Booleans

RULES_OF_LEASING = ("gpu_range", "whole_nodes")
"""Layout rules about what can be rented; they do not apply to a measured run."""
MOST_PASSES = 4_000_000
"""Micro-batches times chunks of one step above which its simulation would not fit into memory; real steps have 1e5."""
_Built = TypeVar("_Built")


def reason_against(row: Row) -> str:
    """Returns why a configuration cannot be simulated, with the values that break rules of layouts; empty where it can."""
    job, plan = _valid(job_of, row), _valid(plan_of, row)
    if isinstance(job, str) or isinstance(plan, str):
        return job if isinstance(job, str) else str(plan)
    if reason := _run_reason(job, plan):
        return reason
    (broken,) = layout_excess(job, PlanTable.from_plans([plan])) != 0.0
    told = "; ".join(broken_rule_text(job, plan, rule) for rule in _broken_rules(broken))
    return told or speed_reason(job, plan, _step_time_s(row))


def reasons_against(rows: Sequence[Row]) -> list[str]:
    """Returns the same for several, in order, without values; the layouts of one job are checked as one batch."""
    jobs: dict[JobCells, Job | str] = {}
    batches: dict[JobCells, dict[int, Plan]] = {}
    reasons: list[str] = []
    for position, row in enumerate(rows):
        cells = job_cells(row)
        if cells not in jobs:
            jobs[cells] = _valid(job_of, row)
        job, plan = jobs[cells], _valid(plan_of, row)
        if isinstance(job, str) or isinstance(plan, str):
            reasons.append(job if isinstance(job, str) else str(plan))
            continue
        reasons.append(_run_reason(job, plan))
        if not reasons[position]:
            batches.setdefault(cells, {})[position] = plan
    for cells, plans in batches.items():
        job = jobs[cells]
        assert isinstance(job, Job)
        times_s = [_step_time_s(rows[position]) for position in plans]
        for position, reason in zip(plans, _layout_reasons(job, list(plans.values()), times_s), strict=True):
            reasons[position] = reason
    return reasons


def _step_time_s(row: Row) -> float:
    """Returns the measured step, which is of any length where none was measured."""
    return float(row["step_time_s"] or math.inf)


def _valid(build: Callable[[Row], _Built], row: Row) -> _Built | str:
    """Returns what is built from a row, or why it cannot be built."""
    try:
        return build(row)
    except ValidationError as error:
        return "; ".join(_rule_text(str(e["loc"][-1]) if e["loc"] else "", e["msg"]) for e in error.errors())
    except InputError as error:
        return "; ".join(str(problem) for problem in error.problems)


def _run_reason(job: Job, plan: Plan) -> str:
    """Returns why a run cannot be simulated with any layout: too many passes, or an unsupported number format."""
    passes = job.workload.global_batch_size // (plan.data_parallel * plan.micro_batch_size)
    if passes * plan.pipeline_parallel * plan.virtual_pipeline > MOST_PASSES:
        return f"more than {MOST_PASSES:,} passes of micro-batches through chunks of the model in one step"
    return format_reason(job, plan)


def _layout_reasons(job: Job, plans: Sequence[Plan], times_s: Sequence[float]) -> Iterator[str]:
    """Returns why each plan cannot have run with its step time; empty for those that can."""
    broken = layout_excess(job, PlanTable.from_plans(plans)) != 0.0
    for plan, of_plan, time_s in zip(plans, broken, times_s, strict=True):
        rules = "; ".join(rule.sentence for rule in _broken_rules(of_plan))
        yield rules or speed_reason(job, plan, time_s)


def _broken_rules(broken: Booleans) -> list[LayoutRule]:
    """Returns the rules that a layout breaks, from flags `(len(LAYOUT_RULES),)`."""
    rules = zip(LAYOUT_RULES, broken, strict=True)
    return [rule for rule, is_broken in rules if is_broken and rule.name not in RULES_OF_LEASING]


def _rule_text(field: str, message: str) -> str:
    text = message.removeprefix("Value error, ")
    return f"{field}: {text}" if field else text
