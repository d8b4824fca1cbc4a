"""Where did the energy of the run go? Every second of the run times the power of its phase."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.checkpoint import CheckpointTable
from simulator.job import Job
from simulator.offer_table import OfferTable
from simulator.plan import PlanTable
from simulator.power import phase_power
from simulator.run import RunTable
from simulator.step import StepTable
from simulator.table import Floats, Table, total


@dataclass(frozen=True, kw_only=True)
class EnergyTable(Table):
    """Facility energy of the run by phase, J `(n,)`, cooling and conversion losses (PUE) included."""

    compute_j: Floats
    """Matrix products, attention, memory-bound operators and recomputation of steps that count."""
    communication_j: Floats
    """Exposed collectives and sends of steps that count."""
    pipeline_bubble_j: Floats
    """Waiting for other stages."""
    optimizer_j: Floats
    straggler_j: Floats
    """Waiting for stragglers."""
    checkpoint_j: Floats
    """Stalls for saves, waiting for earlier saves, the slow-down while saves are written, moving their bytes, and servers
    that only saves need."""
    lost_work_j: Floats
    """Steps that a failure undid."""
    restart_j: Floats
    """From failures to the next useful step, the first start, and waiting for a missing replica."""
    spare_j: Floats
    """Spare nodes, idle during the whole run."""

    @property
    def total_j(self) -> Floats:
        """Sum of the phases."""
        return total(getattr(self, name) for name in self.names())


def run_energy(
    job: Job,
    plans: PlanTable,
    offers: OfferTable,
    steps: StepTable,
    run: RunTable,
    checkpoints: CheckpointTable,
) -> EnergyTable:
    """Returns the energy of each design; `offers` holds one row per design.

    Lost work draws what a step draws on average; the slow-down by background saves draws as communication does.
    """
    power = phase_power(job, plans, offers)
    num_steps = job.workload.num_steps
    communication_s = (
        steps.tensor_comm_s
        + steps.expert_comm_s
        + steps.shard_comm_s
        + steps.pipeline_send_s
        + steps.gradient_sync_s
    )
    step_parts = {
        "compute_j": num_steps * steps.compute_s * power.compute_w,
        "communication_j": num_steps * communication_s * power.communication_w,
        "pipeline_bubble_j": num_steps * steps.pipeline_bubble_s * power.waiting_w,
        "optimizer_j": num_steps * steps.optimizer_s * power.optimizer_w,
    }
    step_w = total(step_parts.values()) / run.productive_s
    stalled_s = run.checkpoint_stall_s + run.backpressure_wait_s
    return EnergyTable(
        **step_parts,
        straggler_j=run.straggler_s * power.waiting_w,
        checkpoint_j=stalled_s * power.stalled_w
        + run.checkpoint_tax_s * power.communication_w
        + _saving_j(job, run, checkpoints),
        lost_work_j=run.lost_work_s * step_w,
        restart_j=(run.way_back_s + run.initialization_s) * power.stalled_w
        + run.reduced_capacity_s * power.waiting_w,
        spare_j=np.where(plans.num_spare_nodes > 0, run.wall_time_s, 0.0) * power.spares_w,
    )


def _saving_j(job: Job, run: RunTable, checkpoints: CheckpointTable) -> Floats:
    """Energy of saves beside the accelerators: moved bytes and replays of every save, and servers all the time."""
    worked_s = run.productive_s + run.straggler_s + run.lost_work_s
    # Runs without progress are infinite in `total_j` as it is; a save that is never made costs nothing.
    num_saves = np.where(run.makes_progress, worked_s, 0.0) / run.checkpoint_interval_s
    servers_j = checkpoints.extra_power_w * np.where(run.makes_progress, run.wall_time_s, 0.0)
    return (num_saves * checkpoints.save_energy_j + servers_j) * job.site.power_usage_effectiveness
