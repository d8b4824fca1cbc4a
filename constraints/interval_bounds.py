"""How good could a design become with another checkpoint interval? At best, saves cost nothing and lose no work.

Whatever the interval, a run has to do all steps, with stragglers and evaluations. Interruptions come at the same rate per
second of that time, and each takes its restart. Everything that depends on the interval is left out: stalls, slow-downs
and waits for saves, lost work, loads, waits for spare nodes, and missing replicas. Quantiles are those of such a run.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from constraints.evaluation import Evaluation
from objectives.carbon import least_kgco2e, replacement_kgco2e
from objectives.cost import cost_parts
from objectives.usage import Usage
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import PhasePower, phase_power
from simulator.run.spread import wall_time_quantile_s
from simulator.run.wall_time import RunTable
from simulator.table import Booleans, Floats, total
from simulator.units import DAY

WORK = ("productive_s", "straggler_s", "evaluation_s")
"""Parts of a run that no interval changes; their total time determines the number of interruptions."""
ENERGY_OF_WORK = (
    "compute_j",
    "communication_j",
    "pipeline_bubble_j",
    "optimizer_j",
    "straggler_j",
    "evaluation_j",
)
"""Parts of the energy that no interval changes."""
QUANTILE_FRACTION = 0.002
"""Share by which quantiles are lowered. They are computed from strata, so they may fall by 0.0008 where a run gets longer
and more variable (measured, 14,000 designs of 300 random jobs)."""


def least_by_intervals(job: Job, part: Evaluation) -> dict[str, Floats]:
    """Returns lower bounds on designs over all checkpoint intervals, `(n,)`, by the limits that an interval helps to keep."""
    run = undisturbed(job, part.outcomes.run)
    power = phase_power(job, part.plans, OfferTable.from_job(job).take(part.plans.offer))
    usage = _least_usage(part, run, power)
    return {
        "budget_usd": _least_cost_usd(job, part, run, power, usage),
        "deadline_days": _wall_s(job, part, run, job.limits.deadline_probability) / DAY,
        "carbon_kgco2e": least_kgco2e(job, part.plans, usage) + replacement_kgco2e(job, part.plans, run),
    }


def holds_with_any_spares(job: Job, part: Evaluation) -> Booleans:
    """Returns whether `least_by_intervals` of designs without spare nodes holds with any number of them, too, `(n,)`.

    Spares add cost and power, and shorten the waits for nodes, which the bound leaves out. They do nothing else, unless a
    run can be stopped while it waits, or replicas continue without a failed one: then spares change how often the whole
    run stops. A run that never ends without spares has no bound.
    """
    if job.reliability.fails_during_restart:
        return np.zeros(len(part), dtype=np.bool_)
    has_restarts_alike = part.plans.checkpoint_scheme != CheckpointScheme.REPLICA_FT.code
    return np.asarray(has_restarts_alike & part.outcomes.run.makes_progress)


def undisturbed(job: Job, run: RunTable) -> RunTable:
    """Returns the run without what depends on the interval; a run that never ends also loses its interruptions."""
    work_s = total(getattr(run, name) for name in WORK)
    ends, nothing = run.makes_progress, np.zeros(len(work_s))
    wall_s, way_back_s = (np.where(ends, time_s, 0.0) for time_s in (run.wall_time_s, run.way_back_s))
    up_s = wall_s - run.initialization_s - way_back_s
    share = np.divide(work_s, up_s, out=nothing.copy(), where=ends)
    # A restart that can itself fail takes longer, the longer the load after it.
    restarts_alike = ends & (not job.reliability.fails_during_restart)
    restart_s = _scaled(run.restart_s, share, restarts_alike)
    num_failures, num_planned = (
        _scaled(number, share, ends) for number in (run.num_failures, run.num_planned_stops)
    )
    undelayed = _with_restarts_alone(job, run, num_failures + num_planned, restart_s)
    return replace(
        undelayed,
        calm_s=work_s,
        checkpoint_stall_s=nothing,
        checkpoint_tax_s=nothing,
        backpressure_wait_s=nothing,
        lost_work_s=nothing,
        reduced_capacity_s=nothing,
        replacement_wait_s=nothing,
        checkpoint_restore_s=nothing,
        restart_s=restart_s,
        num_failures=num_failures,
        num_planned_stops=num_planned,
        wall_time_s=run.initialization_s + work_s + restart_s,
    )


def _with_restarts_alone(job: Job, run: RunTable, num: Floats, restart_s: Floats) -> RunTable:
    """Returns a run delayed only by `num` interruptions, whose restarts take `restart_s` in total."""
    mean_s = np.divide(restart_s, num, out=np.zeros(len(num)), where=num > 0.0)
    spread = math.expm1(job.reliability.restart.log_deviation**2)
    return replace(
        run,
        num_calm=num,
        near_share=np.ones(len(num)),
        near_mean_s=mean_s,
        near_variance_s2=spread * mean_s**2,
        near_third_s3=spread**2 * (spread + 3.0) * mean_s**3,
        far_share=np.zeros(len(num)),
    )


def _scaled(values: Floats, share: Floats, where: Booleans) -> Floats:
    return np.multiply(values, share, out=np.zeros(len(values)), where=where)


def _least_usage(part: Evaluation, run: RunTable, power: PhasePower) -> Usage:
    """What such a run uses: the energy of its steps, and of the remaining time at the power of an idle cluster."""
    work_j = total(getattr(part.outcomes.energy, name) for name in ENERGY_OF_WORK)
    standing_j = (run.initialization_s + run.restart_s) * power.stalled_w
    return Usage(
        wall_s=run.wall_time_s,
        energy_j=work_j + standing_j + run.wall_time_s * power.spares_w,
        peak_power_w=part.outcomes.power.peak_power_w,
    )


def _least_cost_usd(job: Job, part: Evaluation, run: RunTable, power: PhasePower, usage: Usage) -> Floats:
    """The least expected cost, or the cost of a run at the quantile of the wanted probability, at the least mean power."""
    late_s = _wall_s(job, part, run, job.limits.budget_probability)
    mean_w = np.minimum(usage.energy_j / usage.wall_s, power.least_w + power.spares_w)
    is_expected = job.limits.budget_probability is None
    energy_j = usage.energy_j if is_expected else late_s * mean_w
    lasting = replace(usage, wall_s=late_s, energy_j=energy_j)
    return total(cost_parts(job, part.plans, lasting, is_bound=True).values())


def _wall_s(job: Job, part: Evaluation, run: RunTable, probability: float | None) -> Floats:
    """The expected wall time, or a lower bound on the wall time that a run stays below with a given probability."""
    if probability is None:
        return run.wall_time_s
    late_s = wall_time_quantile_s(job, part.plans, part.outcomes.steps, run, probability)
    return late_s * (1.0 - QUANTILE_FRACTION)
