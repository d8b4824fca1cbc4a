"""How do `--scheme` and `--interval` change a plan? They become decisions of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.input.plan_input import plan_of, read_plan
from planner.job.file import load_job
from planner.job.free_interval import without_interval
from planner.text.interval_text import Interval
from simulator.domain.job import Job
from simulator.record import finite_or_none


def job_and_plan(
    file: str,
    overrides: Sequence[str],
    plan: str,
    *,
    scheme: str | None,
    interval: Interval | None,
) -> tuple[Job, dict[str, object]]:
    """Reads a job and a plan of it, and returns both; the plan is as it was written, with its saves as in `with_saves`.

    Where the interval that loses least is asked for, the job has none either.

    Args:
        file: path of the job file.
        overrides: values that replace those of the job, see `planner.job.file.load_job`.
        plan: decisions or a file of them, see `planner.input.plan_input.read_plan`.
        scheme: name of a checkpoint scheme.
        interval: what `planner.text.interval_text.parse_interval` returned.

    Raises:
        InputError: the file, a value or the plan is broken.
    """
    job = load_job(file, overrides)
    if interval == Interval():
        job = without_interval(job)
    return job, with_saves(job, read_plan(plan), scheme=scheme, interval=interval)


def with_saves(
    job: Job, written: Mapping[str, object], *, scheme: str | None = None, interval: Interval | None = None
) -> dict[str, object]:
    """Returns a plan as written with another checkpoint scheme and interval; what is `None` stays as it is.

    Steps are turned into seconds of training as the run does them, stragglers included.

    Args:
        job: the job.
        written: the plan, see `planner.input.plan_input.plan_of`.
        scheme: name of a checkpoint scheme.
        interval: what `planner.text.interval_text.parse_interval` returned.

    Raises:
        InputError: steps were given, and the plan has a problem of its own.
    """
    fields = dict(written)
    if scheme is not None:
        fields["checkpoint_scheme"] = scheme
    if interval is not None:
        fields["checkpoint_interval_s"] = interval.seconds
    if interval is not None and interval.steps is not None:
        fields["checkpoint_interval_s"] = _seconds_of_steps(job, fields, interval.steps)
    return fields


def _seconds_of_steps(job: Job, written: Mapping[str, object], steps: int) -> float | None:
    """Returns how long so many steps take; `None` for a layout that cannot run, which is reported elsewhere."""
    from planner.explain.runnable_plan import obstacles
    from simulator.domain.plan import PlanTable
    from simulator.simulate import simulate

    plan, num_gpus = plan_of(job, written)
    if obstacles(job, plan, num_gpus):
        return None
    run = simulate(job, PlanTable.from_plans([plan])).run
    iteration_s = float(run.iteration_time_s(job.workload.num_steps)[0])
    return finite_or_none(steps * iteration_s)
