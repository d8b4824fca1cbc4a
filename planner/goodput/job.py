"""What goodput does a job's run reach, and with which checkpoint scheme is it highest?

A job and a plan become the numbers of a run (`simulator.run.wall_time.run_columns`), once for each checkpoint scheme in one
batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt

from constraints.evaluation import Evaluation, evaluate
from planner.calibration.notes import calibration_notes
from planner.explain.runnable_plan import obstacles, plan_that_runs
from planner.explain.violations import limit_violations
from planner.goodput.answer import LONGEST_S, NUM_REPLICATIONS, Goodput, RunInputs, play_run, run_inputs
from planner.goodput.schemes import JobRun, SchemeGoodput
from planner.input.given import valid_job
from planner.job.named_model import told_changes
from planner.notes.interval_note import interval_notes
from planner.notes.reasons import RULES
from planner.notes.servers_note import server_notes
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, Plan, PlanTable
from simulator.errors import InputError, Problem
from simulator.record import finite_or_none
from simulator.run.columns import NUM_KINDS, BackPressure, RunColumns, Runs
from simulator.run.course import Course
from simulator.run.events import expected_goodput, optimal_interval_s
from simulator.run.interval import longest_interval_s
from simulator.run.wall_time import run_columns
from simulator.run.way_back import WayBack
from simulator.table import Booleans, Floats

OF_THE_RUN = ("restart_s", "policy", "work_s")
"""Values that may be given for the run, regardless of its scheme."""
OF_THE_SCHEME = ("stall_s", "commit_s", "tax_fraction", "slots")
"""Values that may be given for the scheme of the plan; the other schemes keep their own."""

_WAYS_BACK = ("fast_load_s", "durable_load_s", "spare_wait_s", "queue_wait_s", "restart_log_deviation")
"""What comes on top of a restart in a job's run, and its spread."""


def play_job_goodput(
    job: Job,
    written: Mapping[str, object],
    numbers: Mapping[str, object] | None = None,
    *,
    num_replications: int = NUM_REPLICATIONS,
    seed: int = 0,
    option_names: dict[str, str] | None = None,
) -> Goodput:
    """Simulates the run of a plan, and compares all checkpoint schemes that the plan can use.

    Args:
        job: the job.
        written: the plan, see `planner.input.plan_input.plan_of`.
        numbers: fields of `RunInputs` to take instead of the job's: `OF_THE_RUN` and `OF_THE_SCHEME`.
        num_replications: runs that are played.
        seed: of the failures.
        option_names: under which names problems of the numbers are reported, where these are not the fields'.

    Raises:
        InputError: the plan or a number breaks a rule, or the plan cannot be run.

    Example:
        >>> from planner import load_job
        >>> plan = {"tp": 4, "pp": 12, "dp": 8, "mbs": 2, "recompute": "full", "checkpoint_scheme": "sync_sharded"}
        >>> answer = play_job_goodput(load_job("examples/bloom-176b.yaml"), plan, num_replications=20)
        >>> answer.inputs.stall_s > 40
        True
    """
    names = option_names or {}
    given = _checked(numbers or {}, names)
    job = valid_job(job)
    plan = plan_that_runs(job, written)
    runs = _Runs.of(job, plan, given)
    typed = {name: option for name, option in names.items() if name in {*given, "num_replications", "seed"}}
    values = {**runs.numbers(0), "num_replications": num_replications, "seed": seed}
    used = run_inputs(values, typed)
    interval_name = names.get("interval_s", "checkpoint_interval_s")
    best_s = min(LONGEST_S, float(runs.column("interval_s")[runs.row_of(plan.checkpoint_scheme)]))
    answer = play_run(used, runs.columns_of(0), best_s, interval_name=interval_name)
    return answer.model_copy(update={"of_job": runs.description(tuple(given))})


def _checked(numbers: Mapping[str, object], names: dict[str, str]) -> dict[str, object]:
    """Returns the numbers that are given, by the rules of `RunInputs`; the up-time, which is the job's, may be any."""
    known = (*OF_THE_RUN, *OF_THE_SCHEME)
    if unknown := sorted(set(numbers) - set(known)):
        rule = f"is none of {', '.join(known)}"
        raise InputError([Problem(path=name, value="", rule=rule) for name in unknown])
    checked = run_inputs({**numbers, "mtbf_s": 1.0}, names)
    return {name: getattr(checked, name) for name in numbers if numbers[name] is not None}


@dataclass(frozen=True, kw_only=True)
class _Runs:
    """The run of a plan in row 0, and behind it with every scheme that can be used, at the best interval."""

    job: Job
    plan: Plan
    schemes: tuple[CheckpointScheme, ...]
    """Of the rows from 1 on."""
    problems: dict[CheckpointScheme, str]
    """Why the other schemes cannot be used."""
    evaluation: Evaluation
    columns: RunColumns

    @classmethod
    def of(cls, job: Job, plan: Plan, given: Mapping[str, object]) -> _Runs:
        """Returns the runs with some values given instead of derived."""
        candidates = {
            scheme: plan.model_copy(update={"checkpoint_scheme": scheme, "checkpoint_interval_s": None})
            for scheme in CheckpointScheme
        }
        problems = {
            scheme: "; ".join(rule.sentence for rule in broken)
            for scheme, other in candidates.items()
            if (broken := obstacles(job, other))
        }
        schemes = tuple(scheme for scheme in candidates if scheme not in problems)
        plans = PlanTable.from_plans([plan, *(candidates[scheme] for scheme in schemes)])
        evaluation = evaluate(job, plans)
        columns = _columns(job, evaluation, given)
        return cls(
            job=job,
            plan=plan,
            schemes=schemes,
            problems=problems,
            evaluation=evaluation,
            columns=columns,
        )

    def row_of(self, scheme: CheckpointScheme) -> int:
        """Returns the row in which a scheme has its best interval."""
        return 1 + self.schemes.index(scheme)

    def column(self, name: str) -> Floats:
        """Returns one number of all runs, `(n,)`."""
        values: Mapping[str, object] = cast(Mapping[str, object], self.columns)
        return np.broadcast_to(np.asarray(values[name], dtype=np.float64), len(self.evaluation))

    @cached_property
    def way_back(self) -> WayBack:
        """Mean way back from an interruption by what it is spent on."""
        return Course.of(Runs.of(self.columns)).way_back

    @property
    def restart_s(self) -> Floats:
        """Mean way back from an interruption, loads and waits for nodes included, `(n,)`."""
        return self.way_back.total_s

    def columns_of(self, row: int) -> RunColumns:
        """Returns all parameters of one run."""
        num_rows = len(self.evaluation)
        taken = {
            name: array[row : row + 1] if (array := np.asarray(column)).shape[:1] == (num_rows,) else column
            for name, column in self.columns.items()
        }
        return cast(RunColumns, taken)

    def numbers(self, row: int) -> dict[str, object]:
        """Returns one run as fields of `RunInputs`; what has no end is as long as can be given there."""
        row_of = {
            name: float(self.column(name)[row]) for name in RunInputs.model_fields if name in self.columns
        }
        row_of |= {name: min(LONGEST_S, row_of[name]) for name in ("interval_s", "mtbf_s")}
        row_of["restart_s"] = float(self.restart_s[row])
        policy = BackPressure(int(row_of.pop("policy"))).name.lower()
        return {**row_of, "slots": int(row_of["slots"]), "policy": policy}

    def description(self, overridden: tuple[str, ...]) -> JobRun:
        """Returns the origin of the values of row 0, and the goodput of the schemes."""
        outcomes = self.evaluation.outcomes
        checkpoints, run = outcomes.checkpoints, outcomes.run
        iteration_s = float(run.iteration_time_s(self.job.workload.num_steps)[0])
        interval_s = float(self.column("interval_s")[0])
        return JobRun(
            job=self.job.name,
            plan=self.plan,
            iteration_time_s=iteration_s,
            interval_steps=finite_or_none(interval_s / iteration_s),
            minimum_interval_s=finite_or_none(float(checkpoints.minimum_interval_s[0])),
            load_s=float(self.way_back.checkpoint_restore_s[0]),
            bytes_per_save=float(checkpoints.bytes_per_save[0]),
            host_memory_bytes=float(checkpoints.host_memory_bytes[0]),
            host_memory_capacity_bytes=self.job.offers[self.plan.offer].node.host_memory_bytes,
            design_goodput_fraction=float(run.goodput_fraction[0]),
            overridden=overridden,
            schemes=self._scheme_goodputs(),
            warnings=self._warnings(),
        )

    def _scheme_goodputs(self) -> tuple[SchemeGoodput, ...]:
        goodputs = expected_goodput(**self.columns)
        found = [
            self._scheme_goodput(scheme, row, float(goodputs[row]))
            for row, scheme in enumerate(self.schemes, 1)
        ]
        useless = [SchemeGoodput(scheme=scheme, problem=problem) for scheme, problem in self.problems.items()]
        return (*sorted(found, key=lambda row: (row.goodput is None, -(row.goodput or 0.0))), *useless)

    def _scheme_goodput(self, scheme: CheckpointScheme, row: int, goodput: float) -> SchemeGoodput:
        checkpoints = self.evaluation.outcomes.checkpoints
        is_too_large = bool(self.evaluation.excess.host_memory[row] > 0.0)
        return SchemeGoodput(
            scheme=scheme,
            goodput=None if is_too_large else goodput,
            interval_s=finite_or_none(float(self.column("interval_s")[row])),
            stall_s=float(self.column("stall_s")[row]),
            commit_s=float(self.column("commit_s")[row]),
            tax_fraction=float(self.column("tax_fraction")[row]),
            restart_s=float(self.restart_s[row]),
            slots=int(self.column("slots")[row]),
            minimum_interval_s=finite_or_none(float(checkpoints.minimum_interval_s[row])),
            host_memory_bytes=float(checkpoints.host_memory_bytes[row]),
            network_bytes_per_save=float(checkpoints.network_bytes_per_save[row]),
            storage_bytes=float(checkpoints.storage_bytes[row]),
            save_energy_j=float(checkpoints.save_energy_j[row]),
            num_servers=int(checkpoints.num_servers[row]),
            extra_power_w=float(checkpoints.extra_power_w[row]),
            problem=RULES["host_memory"] if is_too_large else "",
        )

    def _warnings(self) -> tuple[str, ...]:
        own = self.evaluation.take(np.zeros(1, dtype=np.intp))
        broken = [rule for rule in limit_violations(self.job, own) if rule.kind == "physics"]
        notes = [rule.sentence for rule in broken if rule.constraint != "progress"]
        notes += interval_notes(self.plan, float(self.column("interval_s")[0]), own)
        notes += [*server_notes(own.outcomes.checkpoints, 0), *calibration_notes(self.job)]
        return (*notes, *told_changes(self.job.workload.model.source))


def _columns(job: Job, evaluation: Evaluation, given: Mapping[str, object]) -> RunColumns:
    """Returns the runs as the recommendation has them, all steps with stragglers as work, with some numbers replaced."""
    outcomes = evaluation.outcomes
    work_s = outcomes.run.productive_s + outcomes.run.straggler_s
    columns = run_columns(job, evaluation.plans, outcomes.steps, outcomes.checkpoints, work_s)
    columns = _with_numbers(columns, evaluation.plans, given) if given else columns
    is_own = evaluation.plans.checkpoint_scheme == evaluation.plans.checkpoint_scheme[0]
    # With another commit time the scheme's own limit does not hold any more.
    is_limited = ~(is_own & bool({"commit_s", "slots"} & set(given)))
    return _with_best_intervals(job, columns, evaluation, is_limited)


def _with_numbers(columns: RunColumns, plans: PlanTable, given: Mapping[str, object]) -> RunColumns:
    """Returns the runs with some numbers replaced."""
    is_own = plans.checkpoint_scheme == plans.checkpoint_scheme[0]
    changed = cast(dict[str, npt.ArrayLike], dict(columns))
    for name, value in given.items():
        number = BackPressure[str(value).upper()] if name == "policy" else value
        kept = np.broadcast_to(np.asarray(changed[name], dtype=np.float64), len(plans))
        changed[name] = np.where(is_own | (name in OF_THE_RUN), np.asarray(number, dtype=np.float64), kept)
    # Saves are written to the durable level from the fast one, and later by as much as they commit later there.
    durable_s, commit_s = np.asarray(columns["durable_commit_s"]), np.asarray(columns["commit_s"])
    late_s = np.subtract(durable_s, commit_s, out=np.zeros(len(plans)), where=durable_s > commit_s)
    changed["durable_commit_s"] = np.asarray(changed["commit_s"]) + late_s
    if "restart_s" in given:
        # The number stands for the whole way back, whatever stopped the run.
        every_kind_s = np.repeat(np.asarray(changed["restart_s"])[:, None], NUM_KINDS, axis=1)
        changed |= {"kind_restart_s": every_kind_s} | dict.fromkeys(_WAYS_BACK, 0.0)
        changed["max_loans"] = np.inf
    return cast(RunColumns, changed)


def _with_best_intervals(
    job: Job, columns: RunColumns, evaluation: Evaluation, is_limited: Booleans
) -> RunColumns:
    """Returns the runs at their best intervals, but that of the plan where it or its job says how often to save."""
    plans, outcomes = evaluation.plans, evaluation.outcomes
    is_open = plans.checkpoint_scheme != CheckpointScheme.NONE.code
    is_open[0] &= np.isnan(plans.checkpoint_interval_s[0]) and not job.checkpointing.is_interval_given
    # What stands where nothing is saved has to be finite.
    least_s = np.where(
        is_open & is_limited, outcomes.checkpoints.minimum_interval_s, outcomes.steps.step_time_s
    )
    options = {name: columns[name] for name in columns.keys() - {"work_s", "interval_s", "policy"}}  # type: ignore[literal-required]
    best_s = optimal_interval_s(**options, minimum_interval_s=least_s)
    longest_s = longest_interval_s(job.checkpointing, np.asarray(columns["stall_s"]))
    best_s = np.maximum(least_s, np.minimum(best_s, longest_s))
    return {**columns, "interval_s": np.where(is_open, best_s, np.asarray(columns["interval_s"]))}
