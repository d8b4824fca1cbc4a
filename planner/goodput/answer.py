"""What goodput does a run with given saves and failures reach? Replications, closed form and optimum.

The event loop and the closed form are those of every recommendation (`simulator.run.events`); here their numbers
are given directly instead of being derived from a job.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, cast

import numpy as np
from pydantic import Field

from planner import __version__
from planner.goodput.schemes import JobRun
from planner.input.problems import Findings
from planner.input.record_input import validated
from planner.input.schema import model_at
from planner.text import human
from simulator.errors import InputError, Problem
from simulator.order_statistics import percentiles
from simulator.record import Record
from simulator.run.columns import BackPressure, RunColumns
from simulator.run.events import (
    RunLedger,
    RunReplications,
    expected_goodput,
    expected_ledger,
    optimal_interval_s,
    simulate_runs,
)
from simulator.run.kernel import MAX_FAILURES
from simulator.table import Floats

Policy = Literal["skip", "wait", "widen"]
"""Names of `simulator.run.columns.BackPressure`, in lower case."""

NUM_REPLICATIONS = 400
NUM_FAILURES = 1000.0
"""Failures during the default amount of work: the mean of `NUM_REPLICATIONS` is then known to about 0.02 %."""
LEAST_INTERVALS, MOST_INTERVALS = 100.0, 30_000.0
"""Bounds of the default amount of work, so that the run has many saves and takes seconds to simulate."""
MAX_EVENTS = 1e9
"""Most saves and failures, over all replications, that are simulated: about half a minute on two cores."""
SHORTEST_OPTIMUM_S = 1.0
"""Shortest best interval that is searched: less than a training step takes."""
SHORTEST_S, LONGEST_S = 1e-3, 1e12
"""A millisecond and thirty thousand years; saves and failures closer together, and times beyond, are mistakes."""

BUCKETS = tuple(name for name in RunLedger.names() if name.endswith("_s"))
"""Categories of the wall time of a run."""


class RunInputs(Record):
    """Parameters of one run, and the number of replications."""

    mtbf_s: float = Field(ge=SHORTEST_S, le=LONGEST_S)
    """Mean up-time between failures; nothing fails during a restart."""
    interval_s: float | None = Field(default=None, ge=SHORTEST_S, le=LONGEST_S)
    """Work between saves; default: the interval with the highest expected goodput."""
    stall_s: float = Field(default=0.0, ge=0, le=LONGEST_S)
    """Time that training stops for each save; the state is copied at its start."""
    commit_s: float = Field(default=0.0, ge=0, le=LONGEST_S)
    """Time from the end of the stall until the save can be restored."""
    restart_s: float = Field(default=0.0, ge=0, le=LONGEST_S)
    """Time from a failure to the next useful work."""
    tax_fraction: float = Field(default=0.0, ge=0, le=1000)
    """Extra time per second of work while a save is in flight."""
    slots: int = Field(default=1, ge=1, le=1000)
    """Most saves that may be uncommitted at the same time."""
    policy: Policy = "skip"
    """What happens when a save is due and no slot is free: the save is skipped (skip), training stalls (wait), or training
    continues and the save starts as soon as a slot is free (widen)."""
    work_s: float | None = Field(default=None, gt=0, le=LONGEST_S)
    """Work to do; default: enough for 1,000 failures, within 100 to 30,000 intervals."""
    num_replications: int = Field(default=NUM_REPLICATIONS, ge=1, le=1_000_000)
    """Simulated runs."""
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    """Seed of the failures; the same inputs, version and seed give the same answer."""


class Percentiles(Record):
    """Distribution over the replications."""

    p5: float
    """5th percentile of the replications."""
    p50: float
    """Median."""
    p95: float
    """95th percentile of the replications."""


class Goodput(Record):
    """Goodput of a run; every share is work over wall time."""

    schema_version: int = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    capplan_version: str
    """Version that answered."""
    inputs: RunInputs
    """Inputs, with the interval and the work that were used."""
    goodput: float
    """Mean over the replications; 0 for a run that never ends."""
    goodput_standard_error: float | None
    """Standard error of that mean; null for a single replication."""
    percentiles: Percentiles
    """Percentiles of the goodput of the replications."""
    ledger: dict[str, float] | None
    """Breakdown of the mean wall time; sums to `wall_time_s`. Null if a replication never ends."""
    wall_time_s: float | None
    """Mean wall time; null if a replication never ends."""
    num_failures: float | None
    """Mean number of failures; null if a replication never ends."""
    expected_goodput: float
    """Closed form: the same work over the expected wall time."""
    optimal_interval_s: float
    """Interval with the highest expected goodput of a long run; at least one second, and no saves queue for slots."""
    optimal_goodput: float
    """Closed form at that interval."""
    of_job: JobRun | None = None
    """The job and the plan behind the inputs, and the goodput of other checkpoint schemes; null without a job."""


def run_inputs(values: dict[str, object], option_names: dict[str, str] | None = None) -> RunInputs:
    """Returns the inputs of a run.

    Args:
        values: fields of `RunInputs`.
        option_names: under which names problems are reported, where these are not the fields'.

    Raises:
        InputError: values break rules; all of them are in `problems`.
    """
    findings = Findings(partial(model_at, root=RunInputs))
    for field, option in (option_names or {}).items():
        findings.rename((field,), (option,))
    return validated(RunInputs, values, findings)


def play_goodput(inputs: RunInputs, *, interval_name: str = "interval_s") -> Goodput:
    """Simulates a run event by event, and compares it with its closed form.

    Args:
        inputs: the run; `run_inputs` checks them.
        interval_name: under which name an interval that is too short is reported.

    Raises:
        InputError: the run has too many saves or failures to be played.

    Example:
        >>> answer = play_goodput(RunInputs(mtbf_s=10980, interval_s=371, stall_s=0.8, commit_s=60, restart_s=390))
        >>> round(answer.goodput, 3), round(answer.expected_goodput, 3)
        (0.942, 0.942)
    """
    best_s = _best_interval_s(inputs)
    used = inputs.model_copy(update={"interval_s": inputs.interval_s or best_s})
    used = used.model_copy(update={"work_s": inputs.work_s or _default_work_s(used)})
    return play_run(used, _columns(used), best_s, interval_name=interval_name)


def play_run(used: RunInputs, columns: RunColumns, best_s: float, *, interval_name: str) -> Goodput:
    """Simulates a fully specified run.

    Args:
        used: its numbers as a reader knows them.
        columns: the same and what else it takes to play it; one row.
        best_s: interval of the largest expected goodput.
        interval_name: under which name an interval that is too short is reported.

    Raises:
        InputError: the run has too many saves or failures to be played.
    """
    _refuse_what_takes_hours(used, columns, interval_name)
    runs = simulate_runs(num_replications=used.num_replications, seed=used.seed, **columns)
    return _answer(used, columns, runs, best_s)


def _answer(used: RunInputs, columns: RunColumns, runs: RunReplications, best_s: float) -> Goodput:
    optimum: RunColumns = {**columns, "interval_s": np.array([best_s])}
    wall_s = runs.wall_s[0]
    goodput = runs.productive_s[0] / np.where(np.isfinite(wall_s), wall_s, 1.0) * np.isfinite(wall_s)
    ends = bool(np.isfinite(wall_s).all())
    return Goodput(
        capplan_version=__version__,
        inputs=used,
        goodput=float(np.mean(goodput)),
        goodput_standard_error=_standard_error(goodput),
        percentiles=_percentiles(goodput),
        ledger={name: float(np.mean(getattr(runs, name)[0])) for name in BUCKETS} if ends else None,
        wall_time_s=float(np.mean(wall_s)) if ends else None,
        num_failures=float(np.mean(runs.num_failures[0])) if ends else None,
        expected_goodput=float(expected_goodput(**columns)[0]),
        optimal_interval_s=best_s,
        optimal_goodput=float(expected_goodput(**optimum)[0]),
    )


def _columns(inputs: RunInputs) -> RunColumns:
    """Returns one run as columns of one row."""
    return {
        "work_s": np.array([inputs.work_s], dtype=np.float64),
        "mtbf_s": inputs.mtbf_s,
        "interval_s": np.array([inputs.interval_s], dtype=np.float64),
        "stall_s": inputs.stall_s,
        "commit_s": inputs.commit_s,
        "tax_fraction": inputs.tax_fraction,
        "slots": inputs.slots,
        "policy": BackPressure[inputs.policy.upper()],
        "restart_s": inputs.restart_s,
    }


def _best_interval_s(inputs: RunInputs) -> float:
    best_s = optimal_interval_s(
        mtbf_s=inputs.mtbf_s,
        stall_s=inputs.stall_s,
        commit_s=inputs.commit_s,
        tax_fraction=inputs.tax_fraction,
        slots=inputs.slots,
        restart_s=inputs.restart_s,
        minimum_interval_s=SHORTEST_OPTIMUM_S,
    )
    return float(best_s[0])


def _default_work_s(inputs: RunInputs) -> float:
    """Returns the work that has `NUM_FAILURES` failures, within the bounds in intervals."""
    endless: RunColumns = {**_columns(inputs), "work_s": np.array([np.inf])}
    work_per_up_time = float(expected_goodput(**endless)[0]) * (1.0 + inputs.restart_s / inputs.mtbf_s)
    work_s = NUM_FAILURES * inputs.mtbf_s * work_per_up_time
    interval_s = cast(float, inputs.interval_s)
    return min(LONGEST_S, max(LEAST_INTERVALS * interval_s, min(work_s, MOST_INTERVALS * interval_s)))


def _refuse_what_takes_hours(inputs: RunInputs, columns: RunColumns, interval_name: str) -> None:
    """Raises if there are more saves and failures than can be simulated."""
    num_events = inputs.num_replications * _num_run_events(columns)
    if num_events <= MAX_EVENTS:
        return
    work = human.duration(cast(float, inputs.work_s))
    rule = (
        f"makes {num_events:.2g} saves and failures in {human.count(inputs.num_replications)} replications of "
        f"{work} of work; at most {MAX_EVENTS:.0e} are simulated: give a longer interval, less work or fewer replications"
    )
    raise InputError(
        [Problem(path=interval_name, value=human.typed(cast(float, inputs.interval_s)), rule=rule)]
    )


def _num_run_events(columns: RunColumns) -> float:
    """Returns about how many saves come due and failures happen in one replication of a run of one row.

    Work that is lost is done again, and its saves with it. The event loop gives up after `MAX_FAILURES` failures.
    """
    ledger = expected_ledger(**columns)
    num_failures = min(float(ledger.num_failures[0]), float(MAX_FAILURES))
    done_s = float(np.asarray(columns["work_s"]).reshape(-1)[0] + ledger.lost_work_s[0])
    most_s = MAX_FAILURES * float(np.asarray(columns["mtbf_s"]).reshape(-1)[0])
    return min(done_s, most_s) / float(np.asarray(columns["interval_s"]).reshape(-1)[0]) + num_failures


def _standard_error(values: Floats) -> float | None:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def _percentiles(values: Floats) -> Percentiles:
    p5, p50, p95 = percentiles(values)
    return Percentiles(p5=p5, p50=p50, p95=p95)
