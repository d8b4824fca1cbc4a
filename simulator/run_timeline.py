"""When does what happen in one run of a plan? Saves, interruptions and recoveries of one replication, with their times.

This is the detailed view of a run: the events that `simulator.simulate.replicate` sums for this replication.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.errors import InputError, Problem
from simulator.record import Choice
from simulator.run.columns import FOREVER_S, RunColumns, Runs
from simulator.run.evaluation import evaluation_time_s
from simulator.run.events import RunReplications, simulate_runs
from simulator.run.state import Records, designs_of
from simulator.run.timeline_kernel import LOGGED, log_run
from simulator.run.wall_time import first_start_s, replication_columns
from simulator.simulate import simulate
from simulator.table import Booleans, Floats, Integers, Table

MOST_LOGGED = 100_000
"""Maximum number of logged events; for a run with more, saves are left out. As a trace this is about 20 MB."""


class RunEventKind(Choice):
    """Kinds of events; the first four are the interruptions of `simulator.run.columns.Interruption`."""

    PROCESS_FAULT = "process_fault"
    NODE_FAULT = "node_fault"
    DOMAIN_FAULT = "domain_fault"
    PLANNED_STOP = "planned_stop"
    SAVE = "save"
    """Training is stopped for a save."""
    BACKPRESSURE_WAIT = "backpressure_wait"
    """Training is stopped until an earlier save has ended."""
    COMMIT = "commit"
    """A save is on its way, and training goes on."""
    DURABLE_WRITE = "durable_write"
    """A save is on its way to storage that survives the nodes."""
    REDUCED_CAPACITY = "reduced_capacity"
    """A replica is missing; as time without work."""
    SAVE_AHEAD = "save_ahead"
    """The save before a planned stop, up to its commit."""
    REPLACEMENT_WAIT = "replacement_wait"
    RESTART = "restart"
    RESTORE = "restore"
    TRAINING = "training"
    """Steps, including those that are lost later."""
    INITIALIZATION = "initialization"
    """The first start."""


NUM_INTERRUPTIONS = 4
"""Number of kinds that happen at an instant."""
BACKGROUND = (RunEventKind.COMMIT, RunEventKind.DURABLE_WRITE)
"""Kinds during which training continues."""


@dataclass(frozen=True, kw_only=True)
class RunEvents(Table):
    """Events of one run, `(k,)`, by start time; in the foreground they follow each other without a gap."""

    kind: Integers
    """Codes of `RunEventKind`."""
    start_s: Floats
    """Time since the first start."""
    end_s: Floats
    value_s: Floats
    """Of an interruption, or a restart that failed and began anew: lost work. Of a save: work that it holds."""
    is_background: Booleans
    """Whether training continues meanwhile."""
    is_lost: Booleans
    """Whether an interruption ended it: a save that can never be restored."""


@dataclass(frozen=True, kw_only=True)
class RunTimeline:
    """One run of one plan."""

    seed: int
    replication: int
    wall_time_s: float
    """From the first start to the end of the last step."""
    work_s: float
    """Training that counts, including stragglers and evaluations."""
    steps_s: float
    """Steps that count, at the speed without stragglers."""
    straggler_s: float
    """Time that stragglers add in this run to the steps that count."""
    evaluation_s: float
    """Evaluations of the model, including stragglers."""
    has_saves: bool
    """Whether saves are among the events; not if there are too many."""
    events: RunEvents
    ledger: RunReplications
    """Breakdown of this run's seconds, `(1, 1)`; without the first start."""


def run_timeline(job: Job, plan: Plan, *, seed: int = 0, replication: int = 0) -> RunTimeline:
    """Returns one run of a plan, event by event.

    Args:
        job: the job.
        plan: a plan with a valid layout (`constraints.layout`).
        seed: of the answer's replays.
        replication: its number, from 0.

    Raises:
        InputError: the run never ends, or has too many interruptions to log.
    """
    plans = PlanTable.from_plans([plan])
    outcomes = simulate(job, plans)
    columns = replication_columns(
        job, plans, outcomes.steps, outcomes.checkpoints, num_replications=replication + 1, seed=seed
    )
    played = simulate_runs(**columns, num_replications=replication + 1, seed=seed)
    ledger = RunReplications(**{name: column[:, replication:] for name, column in played.columns().items()})  # type: ignore[arg-type]  # the names are its own
    wall_s, start_s = float(ledger.wall_s[0, 0]), first_start_s(job)
    if not wall_s < FOREVER_S:
        raise _problem("never ends", replication)
    log, has_saves = _logged(columns, seed, replication)
    work_s = float(ledger.productive_s[0, 0])
    steps_s = job.workload.num_steps * float(outcomes.steps.step_time_s[0])
    unhindered_evaluation_s = float(evaluation_time_s(job, plans, outcomes.steps)[0])
    # The slow-down of this run is the same for its steps and its evaluations.
    evaluation_s = work_s * unhindered_evaluation_s / (steps_s + unhindered_evaluation_s)
    return RunTimeline(
        seed=seed,
        replication=replication,
        wall_time_s=start_s + wall_s,
        work_s=work_s,
        steps_s=steps_s,
        straggler_s=work_s - evaluation_s - steps_s,
        evaluation_s=evaluation_s,
        has_saves=has_saves,
        events=_events(log, wall_s, start_s),
        ledger=ledger,
    )


def _logged(columns: RunColumns, seed: int, replication: int) -> tuple[Records, bool]:
    """Returns the log of a run that ends, and whether its saves fitted."""
    work_s = float(np.asarray(columns["work_s"])[0, replication])
    designs = designs_of(Runs.of({**columns, "work_s": np.zeros(1)}))
    for logs_saves in (True, False):
        log = np.zeros(MOST_LOGGED, dtype=LOGGED)
        num = log_run(designs, work_s, seed, replication, logs_saves, log)
        if 0 <= num <= MOST_LOGGED:
            return log[:num], logs_saves
    raise _problem(f"has more than {MOST_LOGGED:,} interruptions to write out", replication)


def _events(log: Records, wall_s: float, start_s: float) -> RunEvents:
    """Returns the log as a table on the clock of the whole run, including the periods between its events."""
    kind, begin_s, end_s = log["kind"], log["start_s"], np.minimum(log["end_s"], wall_s)
    stops_s = begin_s[kind < NUM_INTERRUPTIONS]
    position = np.searchsorted(stops_s, begin_s, side="right")
    next_stop_s = np.append(stops_s, np.inf)[position]
    # A save dies with what it was made from; whether one on its way to storage does, the log knows.
    is_commit = kind == RunEventKind.COMMIT.code
    is_cut = is_commit & (end_s > next_stop_s)
    end_s = np.where(is_cut, next_stop_s, end_s)
    is_write = kind == RunEventKind.DURABLE_WRITE.code
    is_lost = is_cut | (is_write & np.isin(end_s, stops_s))
    is_background = np.isin(kind, [member.code for member in BACKGROUND])
    logged = RunEvents(
        kind=kind,
        start_s=begin_s + start_s,
        end_s=end_s + start_s,
        value_s=log["value_s"],
        is_background=is_background,
        is_lost=is_lost,
    )
    between = _between(logged, start_s, start_s + wall_s)
    first = _plain(RunEventKind.INITIALIZATION, np.zeros(1), np.full(1, start_s))
    events = RunEvents.concatenate([first, logged, between])
    events = events.take(events.end_s >= events.start_s)
    return events.take(np.lexsort((events.end_s, events.is_background, events.start_s)))


def _between(logged: RunEvents, start_s: float, end_s: float) -> RunEvents:
    """Training: the periods between the other foreground events."""
    own = logged.take(~logged.is_background)
    begins_s = np.append(start_s, own.end_s)
    ends_s = np.append(own.start_s, end_s)
    is_long = ends_s > begins_s
    return _plain(RunEventKind.TRAINING, begins_s[is_long], ends_s[is_long])


def _plain(kind: RunEventKind, start_s: Floats, end_s: Floats) -> RunEvents:
    no = np.zeros(len(start_s), dtype=np.bool_)
    return RunEvents(
        kind=np.full(len(start_s), kind.code),
        start_s=start_s,
        end_s=end_s,
        value_s=np.zeros(len(start_s)),
        is_background=no,
        is_lost=no,
    )


def _problem(what: str, replication: int) -> InputError:
    rule = f"{what}: choose another one, or a plan that fails less often"
    return InputError([Problem(path="replication", value=str(replication), rule=rule)])
