"""How long does the whole run take, with saves, failures, restarts and stragglers?

The fast depth gives the expected run of every design from renewal theory (`simulator.run_events.expected_ledger`);
`replicate_runs` plays chosen designs event by event for percentiles. Both use the same numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import pdtrc, pdtrik

from simulator.checkpoint import CheckpointTable
from simulator.evaluation import evaluation_time_s
from simulator.job import Job
from simulator.offer_table import OfferTable
from simulator.plan import CheckpointScheme, PlanTable
from simulator.run_columns import BackPressure, RunColumns
from simulator.run_events import RunReplications, expected_ledger, optimal_interval_s, simulate_runs
from simulator.step import StepTable
from simulator.table import Booleans, Floats, Integers, Table, total
from simulator.units import DAY

GPUS_PER_COUNTED_NODE = 8.0
"""Published failure rates count nodes of eight accelerators; a larger or smaller node fails in proportion."""
SPARE_CONFIDENCE = 0.99
"""Share of failures that `sufficient_spare_nodes` covers."""
GUESSED_MFU_FRACTION = 0.4
"""Share of the peak at which `sufficient_spare_nodes` guesses the length of a run that is not simulated yet. A heuristic
for a decision, not physics: how long the run takes, and how often it waits for a node, does not rest on it."""
_NO_FAILURE_MEAN = -math.log(SPARE_CONFIDENCE)
"""Mean number of failures with which there is none in `SPARE_CONFIDENCE` of all cases: e^-mean."""


@dataclass(frozen=True, kw_only=True)
class RunTable(Table):
    """The expected run, `(n,)`; the parts of wall time sum to `wall_time_s`."""

    wall_time_s: Floats
    """From the first start to the end of the last step."""
    productive_s: Floats
    """Steps that count, at the speed without stragglers."""
    straggler_s: Floats
    """What stragglers add to the steps that count."""
    evaluation_s: Floats
    """Evaluations of the model, stragglers included."""
    checkpoint_stall_s: Floats
    """Training stopped for saves."""
    checkpoint_tax_s: Floats
    """Slow-down by saves in the background."""
    backpressure_wait_s: Floats
    """Waiting for an earlier save."""
    lost_work_s: Floats
    """Work done after the last usable save and done again."""
    restart_s: Floats
    """From failures to the next useful step."""
    initialization_s: Floats
    """The first start."""
    goodput_fraction: Floats
    """Productive share of the wall time."""
    num_failures: Floats
    mtbf_s: Floats
    """Mean up-time between failures of the job."""
    checkpoint_interval_s: Floats
    """Training time between saves that was used."""
    makes_progress: Booleans
    """False where failures come faster than work can be saved: every time is infinite then."""

    @property
    def way_back_s(self) -> Floats:
        """Time from failures to the next useful step."""
        return self.restart_s


def expected_run(job: Job, plans: PlanTable, steps: StepTable, checkpoints: CheckpointTable) -> RunTable:
    """Returns the expected run of each design."""
    work_s = job.workload.num_steps * steps.step_time_s
    slowdown = job.reliability.straggler_slowdown
    evaluation_s = evaluation_time_s(job, steps) * slowdown
    columns = _run_columns(job, plans, steps, checkpoints, work_s * slowdown + evaluation_s)
    ledger = expected_ledger(**columns)
    parts = {
        "productive_s": work_s,
        "straggler_s": ledger.productive_s - evaluation_s - work_s,
        "evaluation_s": evaluation_s,
        "checkpoint_stall_s": ledger.checkpoint_stall_s,
        "checkpoint_tax_s": ledger.checkpoint_tax_s,
        "backpressure_wait_s": ledger.backpressure_wait_s,
        "lost_work_s": ledger.lost_work_s,
        "restart_s": ledger.restart_s,
        "initialization_s": np.full(len(plans), first_start_s(job)),
    }
    wall_time_s = total(parts.values())
    return RunTable(
        wall_time_s=wall_time_s,
        **parts,
        goodput_fraction=work_s / wall_time_s,
        num_failures=ledger.num_failures,
        mtbf_s=np.asarray(columns["mtbf_s"]),
        checkpoint_interval_s=np.asarray(columns["interval_s"]),
        makes_progress=np.isfinite(wall_time_s),
    )


def replicate_runs(
    job: Job,
    plans: PlanTable,
    steps: StepTable,
    checkpoints: CheckpointTable,
    *,
    num_replications: int,
    seed: int,
) -> RunReplications:
    """Plays each design event by event; replication r sees the same failures and stragglers in every design.

    The straggler slow-down of a replication is drawn from the fleet's distribution instead of its mean.
    """
    slowdowns = _straggler_slowdowns(job, num_replications, seed)
    work_s = (job.workload.num_steps * steps.step_time_s + evaluation_time_s(job, steps))[:, None] * slowdowns
    columns = _run_columns(job, plans, steps, checkpoints, work_s)
    return simulate_runs(**columns, num_replications=num_replications, seed=seed)


def _straggler_slowdowns(job: Job, num_replications: int, seed: int) -> Floats:
    reliability = job.reliability
    if reliability.straggler_log_mean is None:
        return np.ones(num_replications)
    normal = np.random.Generator(np.random.PCG64(seed)).standard_normal(num_replications)
    return 1.0 + np.exp(reliability.straggler_log_mean + reliability.straggler_log_deviation * normal)


def _run_columns(
    job: Job, plans: PlanTable, steps: StepTable, checkpoints: CheckpointTable, work_s: Floats
) -> RunColumns:
    """Returns what both depths of the run are played with; `work_s` is `(n,)` or `(n, R)`."""
    mtbf_s = mean_time_between_failures_s(job, plans)
    expected_work_s = job.workload.num_steps * steps.step_time_s * job.reliability.straggler_slowdown
    restart_s = _restart_s(job, plans, expected_work_s) + checkpoints.load_s
    return {
        "work_s": work_s,
        "mtbf_s": mtbf_s,
        "interval_s": _interval_s(plans, checkpoints, mtbf_s, restart_s),
        "stall_s": checkpoints.stall_s,
        "commit_s": checkpoints.commit_s,
        "tax_fraction": checkpoints.tax_fraction,
        "slots": checkpoints.slots,
        "policy": np.full(len(plans), BackPressure.SKIP),
        "restart_s": restart_s,
    }


def _interval_s(plans: PlanTable, checkpoints: CheckpointTable, mtbf_s: Floats, restart_s: Floats) -> Floats:
    """Training time between saves: the plan's, or the one that loses least; infinite without saves."""
    never_saves = plans.checkpoint_scheme == CheckpointScheme.NONE.code
    best_s = optimal_interval_s(
        mtbf_s=mtbf_s,
        stall_s=checkpoints.stall_s,
        commit_s=checkpoints.commit_s,
        tax_fraction=checkpoints.tax_fraction,
        slots=checkpoints.slots,
        restart_s=restart_s,
        # What stands where nothing is saved does not matter, but has to be finite.
        minimum_interval_s=np.where(never_saves, 1.0, checkpoints.minimum_interval_s),
    )
    chosen_s = np.where(np.isnan(plans.checkpoint_interval_s), best_s, plans.checkpoint_interval_s)
    return np.where(never_saves, np.inf, np.maximum(chosen_s, checkpoints.minimum_interval_s))


def first_start_s(job: Job) -> float:
    """Returns the time from the start of the run to its first useful step."""
    return job.reliability.restart.initialize_s + job.reliability.restart.warm_up_s


def least_slowdown(job: Job) -> float:
    """Returns a slow-down by stragglers that neither the expected run nor any limited quantile of it stays below.

    A quantile from the median on is at least that of the stragglers alone.
    """
    reliability, limits = job.reliability, job.limits
    is_quantile_limited = limits.deadline_probability is not None or limits.budget_probability is not None
    if reliability.straggler_log_mean is None or not is_quantile_limited:
        return reliability.straggler_slowdown
    return min(reliability.straggler_slowdown, 1.0 + math.exp(reliability.straggler_log_mean))


def mean_time_between_failures_s(job: Job, plans: PlanTable) -> Floats:
    """Returns the mean up-time of the job, `(n,)`: M = 1000 days / (nodes x failures per 1000 node-days).

    Nodes that a landlord takes back count as failures.
    """
    failures, reclaims = _events_per_1000_days(job, plans)
    return 1000.0 * DAY / (failures + reclaims)


def _events_per_1000_days(job: Job, plans: PlanTable) -> tuple[Floats, Floats]:
    """Failures of the job, and nodes that the landlord takes back, `(n,)` each."""
    failures = plans.num_gpus / GPUS_PER_COUNTED_NODE * job.reliability.failures_per_1000_node_days
    offers = OfferTable.from_job(job).take(plans.offer)
    return failures, plans.num_gpus / offers.gpus_per_node * offers.interruptions_per_1000_node_days


def node_fault_fraction(job: Job, plans: PlanTable) -> Floats:
    """Returns the share of the failures that put a node out of service, `(n,)`; process faults do not."""
    failures, reclaims = _events_per_1000_days(job, plans)
    node_failures = failures * (1.0 - job.reliability.process_fault_fraction)
    return (node_failures + reclaims) / (failures + reclaims)


def spare_shortage_probability(job: Job, plans: PlanTable, run_s: Floats | float) -> Floats:
    """Returns how likely no spare is left at a failure: P(X >= spares) with X ~ Poisson(nodes in repair).

    Args:
        job: the job.
        plans: `(n,)` designs.
        run_s: `(n,)` or one length of the runs.
    """
    in_repair = _nodes_in_repair(job, plans, run_s)
    return np.where(plans.num_spare_nodes > 0, pdtrc(plans.num_spare_nodes - 1.0, in_repair), 1.0)


def sufficient_spare_nodes(job: Job, plans: PlanTable) -> Integers:
    """Returns the fewest spare nodes, `(n,)`, with which a failure finds one in `SPARE_CONFIDENCE` of all cases.

    None where the run is likely to end, with the same confidence, before any node fails.
    """
    run_s = _guessed_run_s(job, plans)
    ends_before = _node_failures_within(job, plans, run_s) <= _NO_FAILURE_MEAN
    in_repair = _nodes_in_repair(job, plans, run_s)
    # Below that mean one spare is enough, and the percentile of the continuous distribution would be negative.
    percentile = pdtrik(SPARE_CONFIDENCE, np.maximum(in_repair, _NO_FAILURE_MEAN))
    spares = np.where(in_repair <= _NO_FAILURE_MEAN, 1.0, np.ceil(percentile + 1.0))
    return np.asarray(np.where(ends_before, 0.0, spares), dtype=np.int64)


def _guessed_run_s(job: Job, plans: PlanTable) -> Floats:
    """Length of the run at `GUESSED_MFU_FRACTION` of the peak, `(n,)`; NaN where the number format is missing."""
    workload, offers = job.workload, OfferTable.from_job(job).take(plans.offer)
    flop = workload.tokens * workload.model.model_flop_per_token(workload.sequence_length)
    peak = np.take_along_axis(offers.peak_flop_per_s, plans.precision[:, None], axis=1)[:, 0]
    return np.asarray(flop / (plans.num_gpus * peak * GUESSED_MFU_FRACTION))


def _nodes_in_repair(job: Job, plans: PlanTable, run_s: Floats | float) -> Floats:
    """Mean number of failed nodes on repair, `(n,)` (Little's law): none is longer there than the run is under way."""
    # What has no step has no length either; the smaller of the two that is a number keeps its spares finite.
    return _node_failures_within(job, plans, np.fmin(job.reliability.repair_days * DAY, run_s))


def _node_failures_within(job: Job, plans: PlanTable, time_s: Floats) -> Floats:
    """Mean number of failures in a time that put a node out of service, `(n,)`; process faults do not."""
    num_failures = time_s / mean_time_between_failures_s(job, plans)
    return num_failures * node_fault_fraction(job, plans)


def _restart_s(job: Job, plans: PlanTable, run_s: Floats) -> Floats:
    """From the fault to the first step, without loading; process faults need no other node."""
    restart = job.reliability.restart
    shortage = spare_shortage_probability(job, plans, run_s)
    replace_s = shortage * restart.replace_from_queue_s + (1.0 - shortage) * restart.replace_from_spare_s
    return (
        restart.detect_s
        + restart.diagnose_s
        + node_fault_fraction(job, plans) * replace_s
        + restart.initialize_s
        + restart.warm_up_s
    )
