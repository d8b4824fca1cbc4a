"""Where did the energy of the run go? Each second of the run is multiplied by the power of its phase.

`BUCKETS` names every bucket of the run's ledger with its power and its part of the energy; a test fails for a missing bucket.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simulator.checkpoints.schemes import CheckpointTable
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import PhasePower, facility_w_per_w, phase_power
from simulator.run.wall_time import RunTable
from simulator.step.step import StepTable
from simulator.table import Floats, Table, total

PhaseName = Literal["step", "communication", "evaluation", "waiting", "stalled"]
"""A power: `step` is the mean over a step, the others are columns of `simulator.machine.power.PhasePower`."""

BUCKETS: Mapping[str, tuple[PhaseName, str]] = {
    "straggler_s": ("waiting", "straggler_j"),
    "evaluation_s": ("evaluation", "evaluation_j"),
    "checkpoint_stall_s": ("stalled", "checkpoint_j"),
    "backpressure_wait_s": ("stalled", "checkpoint_j"),
    "checkpoint_tax_s": ("communication", "checkpoint_j"),
    "lost_work_s": ("step", "lost_work_j"),
    "reduced_capacity_s": ("waiting", "restart_j"),
    "restart_s": ("stalled", "restart_j"),
    "replacement_wait_s": ("stalled", "restart_j"),
    "checkpoint_restore_s": ("stalled", "restart_j"),
    "initialization_s": ("stalled", "restart_j"),
}
"""Power and part of the energy for every ledger bucket except the productive one, which is split further by its steps.

The slow-down by background saves draws the power of communication, and lost work that of an average step.
"""


@dataclass(frozen=True, kw_only=True)
class EnergyTable(Table):
    """Facility energy of the run by phase, J `(n,)`, including cooling and conversion losses (PUE)."""

    compute_j: Floats
    """Matrix products, attention, memory-bound operators and recomputation in steps that count."""
    communication_j: Floats
    """Exposed collectives and sends in steps that count."""
    pipeline_bubble_j: Floats
    """Waiting for other stages."""
    optimizer_j: Floats
    straggler_j: Floats
    """Waiting for stragglers."""
    evaluation_j: Floats
    """Evaluations of the model."""
    checkpoint_j: Floats
    """Stalls for saves, waiting for earlier saves, the slow-down while saves are written, moving their bytes, and servers
    dedicated to saves."""
    lost_work_j: Floats
    """Steps that a failure undid."""
    restart_j: Floats
    """From failures to the next useful step, the first start, and waiting for a missing replica."""
    spare_j: Floats
    """Idle spare nodes, throughout the run."""

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
    """Returns the energy of each design; `offers` holds one row per design."""
    power = phase_power(job, plans, offers)
    parts = _step_energy(job, steps, power)
    step_w = total(parts.values()) / run.productive_s
    for bucket, (phase, part) in BUCKETS.items():
        watts = step_w if phase == "step" else getattr(power, f"{phase}_w")
        energy_j = getattr(run, bucket) * watts
        parts[part] = parts[part] + energy_j if part in parts else energy_j
    parts["checkpoint_j"] = parts["checkpoint_j"] + _saving_j(offers, run, checkpoints)
    has_spares = plans.num_spare_nodes > 0
    return EnergyTable(**parts, spare_j=np.where(has_spares, run.wall_time_s, 0.0) * power.spares_w)


def _step_energy(job: Job, steps: StepTable, power: PhasePower) -> dict[str, Floats]:
    """Energy of the steps that count; sends and gradient synchronisation are long enough to have a power of their own."""
    within_layers_s = steps.tensor_comm_s + steps.expert_comm_s + steps.shard_comm_s + steps.host_copy_s
    compute_j, communication_j = power.busy_energy_j(steps.compute_s, within_layers_s)
    between_layers_s = steps.pipeline_send_s + steps.gradient_sync_s
    num_steps = job.workload.num_steps
    return {
        "compute_j": num_steps * compute_j,
        "communication_j": num_steps * (communication_j + between_layers_s * power.communication_w),
        "pipeline_bubble_j": num_steps * steps.pipeline_bubble_s * power.waiting_w,
        "optimizer_j": num_steps * steps.optimizer_s * power.optimizer_w,
    }


def _saving_j(offers: OfferTable, run: RunTable, checkpoints: CheckpointTable) -> Floats:
    """Energy of saves outside the accelerators: moved bytes and replays of every save, and servers at all times."""
    worked_s = run.productive_s + run.straggler_s + run.evaluation_s + run.lost_work_s
    # Runs without progress are already infinite in `total_j`; a save that is never made costs nothing.
    num_saves = np.where(run.makes_progress, worked_s, 0.0) / run.checkpoint_interval_s
    # Every phase already includes the fixed part of the nodes' cooling.
    moved_j = (
        num_saves * checkpoints.save_energy_j * facility_w_per_w(offers, offers.power_usage_effectiveness)
    )
    return moved_j + servers_w(offers, checkpoints) * np.where(run.makes_progress, run.wall_time_s, 0.0)


def servers_w(offers: OfferTable, checkpoints: CheckpointTable) -> Floats:
    """Returns the facility power of servers dedicated to saves, `(n,)`: they never idle, and neither does their cooling."""
    return checkpoints.extra_power_w * offers.power_usage_effectiveness
