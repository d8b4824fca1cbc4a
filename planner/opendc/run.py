"""How much power does the cluster draw at each moment of one run? Its events as pieces of constant power, for other simulators.

Every piece has the power of its phase. Training has one power for the whole run: the run's energy less that of all other
pieces, divided by the training time. The pieces therefore add up to the run's energy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import PhasePower, facility_w_per_w, phase_power
from simulator.run.energy import BUCKETS, servers_w
from simulator.run_timeline import NUM_INTERRUPTIONS, RunEventKind, RunEvents, RunTimeline, run_timeline
from simulator.simulate import Outcomes, simulate
from simulator.table import Floats

BUCKET_OF: Mapping[RunEventKind, str] = {
    RunEventKind.SAVE: "checkpoint_stall_s",
    RunEventKind.SAVE_AHEAD: "checkpoint_stall_s",
    RunEventKind.BACKPRESSURE_WAIT: "backpressure_wait_s",
    RunEventKind.REDUCED_CAPACITY: "reduced_capacity_s",
    RunEventKind.REPLACEMENT_WAIT: "replacement_wait_s",
    RunEventKind.RESTART: "restart_s",
    RunEventKind.RESTORE: "checkpoint_restore_s",
    RunEventKind.INITIALIZATION: "initialization_s",
}
"""Bucket of the run's ledger to which an event of the foreground belongs; training belongs to several."""


@dataclass(frozen=True, kw_only=True)
class DrawnRun:
    """The power of one run of one plan: facility power, cooling included."""

    timeline: RunTimeline
    edges_s: Floats
    """Edges of the pieces, in seconds since the first start, beginning with 0, `(k + 1,)`."""
    power_w: Floats
    """Power of the training nodes in each piece, `(k,)`."""
    idle_w: float
    """Power of the training nodes when nothing runs."""
    most_w: float
    """Highest power of the training nodes in any piece, and in a step."""
    spares_w: float
    """Power of all spare nodes together."""
    num_nodes: int
    """Nodes that train."""
    num_spare_nodes: int

    def every(self, period_s: float) -> Self:
        """Returns the same run in pieces of one length, each with its mean power; the last one may be shorter."""
        wall_s = float(self.edges_s[-1])
        edges_s = np.append(np.arange(0.0, wall_s, period_s), wall_s)
        energy_j = np.append(0.0, np.cumsum(self.power_w * np.diff(self.edges_s)))
        power_w = np.diff(np.interp(edges_s, self.edges_s, energy_j)) / np.diff(edges_s)
        return replace(self, edges_s=edges_s, power_w=power_w)


def drawn_run(job: Job, plan: Plan, *, seed: int, replication: int) -> DrawnRun:
    """Returns the power of one run of a plan.

    Args:
        job: the job.
        plan: a plan with a valid layout (`constraints.layout`), whose run ends.
        seed: seed of the replays of an answer.
        replication: which replay, from 0.

    Raises:
        InputError: the run never ends, or has too many interruptions to be written out.
    """
    timeline = run_timeline(job, plan, seed=seed, replication=replication)
    plans = PlanTable.from_plans([plan])
    offers = OfferTable.from_job(job).take(plans.offer)
    outcomes = simulate(job, plans)
    power = phase_power(job, plans, offers)
    # The fixed part of the cooling is drawn in every phase already.
    cooled = float(facility_w_per_w(offers, offers.power_usage_effectiveness)[0])
    beside_w = float(servers_w(offers, outcomes.checkpoints)[0])
    pieces = _pieces(timeline.events)
    power_w = _powers(pieces, power, _energy_j(timeline, outcomes, power, cooled)) + beside_w
    node = job.offers[plan.offer].node
    return DrawnRun(
        timeline=timeline,
        edges_s=np.append(pieces.start_s, timeline.wall_time_s),
        power_w=power_w,
        idle_w=float(power.idle_w[0]) + beside_w,
        most_w=max(float(power.compute_w[0]) + beside_w, float(power_w.max())),
        spares_w=float(power.spares_w[0]) if plan.num_spare_nodes else 0.0,
        num_nodes=-(-plan.num_gpus // node.num_accelerators),
        num_spare_nodes=plan.num_spare_nodes,
    )


def _pieces(events: RunEvents) -> RunEvents:
    """Returns the events of the foreground that last; they follow each other without a gap."""
    is_long = events.end_s > events.start_s
    return events.take(~events.is_background & (events.kind >= NUM_INTERRUPTIONS) & is_long)


def _powers(pieces: RunEvents, power: PhasePower, energy_j: float) -> Floats:
    """Returns the power of each piece, `(k,)`; the power of training follows from the energy of the whole run."""
    lengths_s = pieces.end_s - pieces.start_s
    power_w = np.zeros(len(pieces))
    for kind, bucket in BUCKET_OF.items():
        power_w[pieces.kind == kind.code] = _phase_w(power, bucket)
    trains = pieces.kind == RunEventKind.TRAINING.code
    rest_j = energy_j - float(np.sum(power_w * lengths_s))
    power_w[trains] = rest_j / float(np.sum(lengths_s[trains]))
    return power_w


def _energy_j(timeline: RunTimeline, outcomes: Outcomes, power: PhasePower, cooled: float) -> float:
    """Returns the energy of the nodes that train, and of moving the bytes of saves, in one run."""
    run, energy = outcomes.run, outcomes.energy
    steps_j = energy.compute_j + energy.communication_j + energy.pipeline_bubble_j + energy.optimizer_j
    step_w = float((steps_j / run.productive_s)[0])
    seconds = _seconds(timeline)
    phases_j = sum(
        spent_s * (step_w if BUCKETS[bucket][0] == "step" else _phase_w(power, bucket))
        for bucket, spent_s in seconds.items()
    )
    num_saves = (timeline.work_s + seconds["lost_work_s"]) / float(run.checkpoint_interval_s[0])
    saves_j = num_saves * float(outcomes.checkpoints.save_energy_j[0]) * cooled
    return timeline.steps_s * step_w + phases_j + saves_j


def _seconds(timeline: RunTimeline) -> dict[str, float]:
    """Returns the time that the run spends on anything but steps that count, by bucket."""
    ledger = timeline.ledger
    columns = {name: float(getattr(ledger, name)[0, 0]) for name in ledger.names() if name in BUCKETS}
    first_start_s = timeline.wall_time_s - float(ledger.wall_s[0, 0])
    return {
        **columns,
        "straggler_s": timeline.straggler_s,
        "evaluation_s": timeline.evaluation_s,
        "initialization_s": first_start_s,
    }


def _phase_w(power: PhasePower, bucket: str) -> float:
    return float(getattr(power, f"{BUCKETS[bucket][0]}_w")[0])
