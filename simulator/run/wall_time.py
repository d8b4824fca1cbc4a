"""How long does the whole run take, with saves, failures, restarts and stragglers?

The fast depth computes the expected run of every design from renewal theory
(`simulator.run.events.expected_ledger_and_delays`); `simulator.simulate.replicate` plays chosen designs event by event for
percentiles. Both use the same numbers, `simulator.run.columns`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from simulator.checkpoints.schemes import CheckpointTable, chosen_interval_s
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, PlanTable
from simulator.run.columns import RunColumns, RunOptions
from simulator.run.evaluation import evaluation_time_s
from simulator.run.events import expected_ledger_and_delays, optimal_interval_s
from simulator.run.interruptions import InterruptionTable, interruptions, mean_time_between_failures_s
from simulator.run.interval import longest_interval_s
from simulator.run.spare_nodes import max_loans, queue_wait_s
from simulator.run.stragglers import draw_straggler_slowdowns, expected_straggler_slowdown
from simulator.step.step import StepTable
from simulator.table import Booleans, Floats, Table, total
from simulator.units import DAY

BADPUT: Mapping[str, str] = {
    "checkpoint_stall_s": "unproductive_checkpoint_save_time",
    "checkpoint_restore_s": "unproductive_checkpoint_restore_time",
    "lost_work_s": "wasted_progress_from_disruption",
    "restart_s": "infrastructure_recovery_from_disruption",
    "replacement_wait_s": "infrastructure_recovery_from_disruption",
    "initialization_s": "accelerator_initialization",
    "straggler_s": "straggler",
    "checkpoint_tax_s": "checkpoint_tax",
    "backpressure_wait_s": "backpressure_wait",
    "evaluation_s": "custom_badput_events",
    "reduced_capacity_s": "other",
}
"""Unproductive time by its name in Google's goodput accounting (ml-goodput-measurement, arXiv 2502.06982), with three
additional names for what that does not distinguish. Reduced capacity is the cost of elasticity."""


@dataclass(frozen=True, kw_only=True)
class RunTable(Table):
    """The expected run, `(n,)`; the parts of wall time sum to `wall_time_s`."""

    wall_time_s: Floats
    """From the first start to the end of the last step."""
    productive_s: Floats
    """Steps that count, at the speed without stragglers."""
    straggler_s: Floats
    """Time that stragglers add to the steps that count."""
    evaluation_s: Floats
    """Evaluations of the model, stragglers included."""
    checkpoint_stall_s: Floats
    """Training stopped for saves."""
    checkpoint_tax_s: Floats
    """Slow-down by saves in the background."""
    backpressure_wait_s: Floats
    """Waiting for an earlier save."""
    lost_work_s: Floats
    """Work done after the last usable save, and repeated."""
    reduced_capacity_s: Floats
    """Work not done because a replica was missing."""
    restart_s: Floats
    """From interruptions to the next useful step, without the two parts below."""
    replacement_wait_s: Floats
    """Waiting for nodes that replace failed ones."""
    checkpoint_restore_s: Floats
    """Loading saves."""
    initialization_s: Floats
    """The first start."""
    goodput_fraction: Floats
    """Productive share of the wall time."""
    num_failures: Floats
    num_planned_stops: Floats
    mtbf_s: Floats
    """Mean up-time between failures of the job."""
    checkpoint_interval_s: Floats
    """Training time between saves."""
    makes_progress: Booleans
    """False where failures come faster than work can be saved; every time is then infinite."""
    calm_s: Floats
    """The run without interruptions and without the first start, a lower bound except for luck with stragglers."""
    num_calm: Floats
    """Expected interruptions within that time."""
    near_share: Floats
    """Share of the interruptions with near delays (`simulator.run.delays`; far ones follow); of these delays the"""
    near_mean_s: Floats
    """mean,"""
    near_variance_s2: Floats
    """variance"""
    near_third_s3: Floats
    """and third central moment."""
    far_share: Floats
    far_mean_s: Floats
    far_variance_s2: Floats
    far_third_s3: Floats

    @property
    def way_back_s(self) -> Floats:
        """Recovery time: from interruptions to the next useful step."""
        return self.restart_s + self.replacement_wait_s + self.checkpoint_restore_s

    def iteration_time_s(self, num_steps: float) -> Floats:
        """Returns the mean time per step over this number of steps, `(n,)`, including stragglers."""
        return (self.productive_s + self.straggler_s) / num_steps


PARTS = tuple(name for name in RunTable.names() if name == "productive_s" or name in BADPUT)
"""Columns that sum to the wall time."""


def expected_run(
    job: Job, plans: PlanTable, steps: StepTable, checkpoints: CheckpointTable, slowdown: Floats
) -> RunTable:
    """Returns the expected run of each design, whose stragglers slow its steps down by this factor, `(n,)`."""
    productive_s = job.workload.num_steps * steps.step_time_s
    evaluation_s = evaluation_time_s(job, plans, steps) * slowdown
    columns = run_columns(job, plans, steps, checkpoints, productive_s * slowdown + evaluation_s)
    ledger, delays = expected_ledger_and_delays(**columns)
    parts = {
        "productive_s": productive_s,
        "straggler_s": ledger.productive_s - evaluation_s - productive_s,
        "evaluation_s": evaluation_s,
        "initialization_s": np.full(len(plans), first_start_s(job)),
    } | {name: getattr(ledger, name) for name in PARTS if name != "productive_s" and hasattr(ledger, name)}
    wall_time_s = total(parts[name] for name in PARTS)
    return RunTable(
        wall_time_s=wall_time_s,
        **parts,
        goodput_fraction=productive_s / wall_time_s,
        num_failures=ledger.num_failures,
        num_planned_stops=ledger.num_planned,
        mtbf_s=mean_time_between_failures_s(job, plans),
        checkpoint_interval_s=np.asarray(columns["interval_s"]),
        makes_progress=np.isfinite(wall_time_s),
        calm_s=delays.calm_s,
        num_calm=delays.num_calm,
        **delays.by_class(),
    )


def replication_columns(
    job: Job,
    plans: PlanTable,
    steps: StepTable,
    checkpoints: CheckpointTable,
    *,
    num_replications: int,
    seed: int,
) -> RunColumns:
    """Returns the numbers that `simulator.simulate.replicate` plays; `work_s` has one column for each replication.

    The straggler slow-down of a replication is drawn from the distribution over fleets, not set to its mean.
    """
    slowdowns = draw_straggler_slowdowns(job, plans, steps, num_replications=num_replications, seed=seed)
    work_s = job.workload.num_steps * steps.step_time_s + evaluation_time_s(job, plans, steps)
    work_s = work_s[:, None] * slowdowns
    return run_columns(job, plans, steps, checkpoints, work_s)


def run_columns(
    job: Job, plans: PlanTable, steps: StepTable, checkpoints: CheckpointTable, work_s: Floats
) -> RunColumns:
    """Returns the numbers that define the runs of designs.

    Args:
        job: the job.
        plans: `(n,)` designs.
        steps: their steps.
        checkpoints: their saves.
        work_s: time of all steps, stragglers included; `(n,)`, or `(n, R)` with one column for each replication.
    """
    stops = interruptions(job, plans, checkpoints)
    options = _options(job, plans, checkpoints, stops)
    interval_s = _interval_s(job, plans, steps, checkpoints, stops, options)
    return {
        "work_s": work_s,
        "interval_s": interval_s,
        "policy": np.full(len(plans), job.checkpointing.backpressure.code),
        "mtbf_s": stops.mean_up_time_s,
        "stall_s": checkpoints.stall_s,
        "commit_s": checkpoints.commit_s,
        "tax_fraction": checkpoints.tax_fraction,
        "slots": checkpoints.slots,
        "restart_s": 0.0,
        **options,
    }


def _options(
    job: Job, plans: PlanTable, checkpoints: CheckpointTable, stops: InterruptionTable
) -> RunOptions:
    """The costs of interruptions, and what survives them."""
    reliability = job.reliability
    return {
        "weibull_shape": reliability.weibull_shape,
        "fails_during_restart": reliability.fails_during_restart,
        "restart_log_deviation": reliability.restart.log_deviation,
        "kind_share": stops.share,
        "kind_restart_s": stops.restart_s,
        "kind_nodes": stops.nodes,
        "kind_fast_survival": stops.fast_survival,
        "durable_every": checkpoints.durable_every,
        "durable_commit_s": checkpoints.durable_commit_s,
        "fast_load_s": checkpoints.fast_load_s,
        "durable_load_s": checkpoints.durable_load_s,
        "live_lag_s": checkpoints.live_lag_s,
        "reduced_capacity_s": checkpoints.missing_capacity_s,
        "num_spares": plans.num_spare_nodes.astype(np.float64),
        "repair_s": reliability.repair_days * DAY,
        "spare_wait_s": reliability.restart.replace_from_spare_s,
        "queue_wait_s": queue_wait_s(reliability),
        "max_loans": max_loans(job, plans),
    }


def _interval_s(
    job: Job,
    plans: PlanTable,
    steps: StepTable,
    checkpoints: CheckpointTable,
    stops: InterruptionTable,
    options: RunOptions,
) -> Floats:
    """Training time between saves: the plan's, the job's, or else the optimal one; infinite without saves."""
    never_saves = plans.checkpoint_scheme == CheckpointScheme.NONE.code
    iteration_s = steps.step_time_s
    if job.checkpointing.interval_steps is not None:
        iteration_s = iteration_s * expected_straggler_slowdown(job, plans, steps)
    asked_s = chosen_interval_s(job, plans, iteration_s)
    is_asked = ~np.isnan(asked_s) | never_saves
    if not is_asked.all():
        best_s = optimal_interval_s(
            mtbf_s=stops.mean_up_time_s,
            stall_s=checkpoints.stall_s,
            commit_s=checkpoints.commit_s,
            tax_fraction=checkpoints.tax_fraction,
            slots=checkpoints.slots,
            restart_s=0.0,
            # The value does not matter where nothing is saved, but it must be finite.
            minimum_interval_s=np.where(never_saves, 1.0, checkpoints.minimum_interval_s),
            **options,
        )
        best_s = np.minimum(best_s, longest_interval_s(job.checkpointing, checkpoints.stall_s))
        asked_s = np.where(np.isnan(asked_s), best_s, asked_s)
    return np.where(never_saves, np.inf, np.maximum(asked_s, checkpoints.minimum_interval_s))


def first_start_s(job: Job) -> float:
    """Returns the time from the start of the run to its first useful step."""
    return job.reliability.restart.initialize_s + job.reliability.restart.warm_up_s
