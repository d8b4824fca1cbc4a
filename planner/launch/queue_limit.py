"""When does a job end itself, so that its save is complete before the queue ends it?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from constraints.evaluation import Evaluation
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme
from simulator.units import DAY, MINUTE

ROOM_S = 300.0
"""Time for processes to end, and for file systems that are slower than usual; estimate."""


def job_limit_s(job: Job) -> float | None:
    """Returns how long the queue lets a job run; `None` without a limit."""
    days = job.reliability.queue_limit_days
    return None if days is None else days * DAY


def exit_minutes(job: Job, evaluation: Evaluation) -> int | None:
    """Returns the minutes after which the only design ends a job with a save to the file system; `None` without a reason to.

    Before the limit of the queue, there is room for the step that is under way, another one, and the whole save; or as good as
    none, where the limit is too short for it.
    """
    left_s = _left_s(job, evaluation)
    return None if left_s is None else max(1, math.floor(left_s / MINUTE))


def _left_s(job: Job, evaluation: Evaluation) -> float | None:
    """Returns the time until the only design must begin to end a job; `None` without a limit or saves."""
    limit_s, outcomes = job_limit_s(job), evaluation.outcomes
    if limit_s is None or evaluation.plans.plan(0).checkpoint_scheme is CheckpointScheme.NONE:
        return None
    step_s = float(outcomes.run.iteration_time_s(job.workload.num_steps)[0])
    save_s = float(outcomes.checkpoints.stall_s[0] + outcomes.checkpoints.durable_commit_s[0])
    return limit_s - 2.0 * step_s - save_s - ROOM_S


def queue_remarks(job: Job, evaluation: Evaluation) -> Iterator[str]:
    """Yields how many jobs the run takes, if the queue limits them, and whether a job has time to end itself with a save."""
    limit_s, left_s = job_limit_s(job), _left_s(job, evaluation)
    if limit_s is None:
        return
    if left_s is not None and left_s < MINUTE:
        yield (
            f"A job cannot end itself in time: two steps, a save and {human.duration(ROOM_S)} for the end leave less than a "
            f"minute of reliability.queue_limit_days ({human.duration(limit_s)})."
        )
    stops = float(evaluation.outcomes.run.num_planned_stops[0])
    if math.isfinite(stops):
        jobs = human.count(math.ceil(stops) + 1)
        yield f"The queue ends jobs after {human.duration(limit_s)}: submit about {jobs} with --dependency=singleton."
