"""How much power does the cluster draw in each phase of the run?

P_gpu(phase)  = max(idle, min(f(phase), cap) TDP)
P_node(phase) = (gpus P_gpu + P_host) / eta_psu + P_fan
P_facility    = (sum of nodes + switches and optics + storage) PUE

The phase fractions f are fitted to or read from metered runs; flat "TDP x hours" misses node power by 17-33 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.job import Job
from simulator.offer_table import OfferTable
from simulator.plan import PlanTable
from simulator.table import Floats, Integers


@dataclass(frozen=True, kw_only=True)
class PhaseFractions:
    """Power of one accelerator in each phase as a share of its TDP."""

    compute: float = 0.96
    """Tensor cores busy under 3D parallelism: 512 H100 of MLPerf Training v4.0 GPT-3, power meters of 64 nodes."""
    communication: float = 0.52
    """Exposed collective: 0.50-0.55, solved from the 8-node LoRA run of MLPerf Training v4.0; weak."""
    optimizer: float = 0.75
    """Memory-bound work; estimate between communication and compute."""
    waiting: float = 0.42
    """Pipeline bubble or waiting for a straggler, kernels spinning; estimate 0.35-0.5."""
    stalled: float = 0.20
    """Checkpoint stall, restart: 0.15-0.25 (GPU meters of OLMo 2, arXiv 2501.00656, at its checkpoints)."""


PHASE_FRACTIONS = PhaseFractions()
CAP_EXPONENT = 2.0
"""Clock loss under a power cap: time grows by ((f - idle)/(cap - idle))^(1/2); range of the exponent 1.3-3
(power-cap traces of Zeus, NSDI 2023)."""

_LEAST_ROOM = 1e-3
"""Share of the TDP that a cap below the idle power leaves for computing: next to nothing, but not less."""
_ROUNDING = 1e-9
"""Tiers by which the logarithm of a full tree may come out too large."""


def slowdown_under_cap(offers: OfferTable, cap_fraction: Floats) -> Floats:
    """Returns by how much dense compute takes longer under a power cap, `(n,)`, 1 for no effect."""
    idle = offers.idle_power_w / offers.thermal_design_power_w
    room = np.maximum(cap_fraction - idle, _LEAST_ROOM)
    return np.asarray(np.maximum(1.0, (PHASE_FRACTIONS.compute - idle) / room) ** (1.0 / CAP_EXPONENT))


@dataclass(frozen=True, kw_only=True)
class PhasePower:
    """Facility power of the training nodes in each phase, and of what is there in all phases; W, `(n,)`."""

    compute_w: Floats
    communication_w: Floats
    optimizer_w: Floats
    waiting_w: Floats
    stalled_w: Floats
    spares_w: Floats
    """Idle spare nodes; drawn during the whole run beside every phase."""


def phase_power(job: Job, plans: PlanTable, offers: OfferTable) -> PhasePower:
    """Returns the power that the facility draws in each phase; the fabric and storage are part of every phase."""
    nodes = plans.num_gpus / offers.gpus_per_node
    shared_w = plans.num_gpus * fabric_power_per_gpu(plans, offers) + job.storage.capacity_power_w
    pue = job.site.power_usage_effectiveness

    def facility(fraction: float) -> Floats:
        capped = np.minimum(fraction, plans.power_cap_fraction)
        gpu_w = np.maximum(offers.idle_power_w, capped * offers.thermal_design_power_w)
        return (nodes * _node_power(offers, gpu_w) + shared_w) * pue

    return PhasePower(
        compute_w=facility(PHASE_FRACTIONS.compute),
        communication_w=facility(PHASE_FRACTIONS.communication),
        optimizer_w=facility(PHASE_FRACTIONS.optimizer),
        waiting_w=facility(PHASE_FRACTIONS.waiting),
        stalled_w=facility(PHASE_FRACTIONS.stalled),
        spares_w=plans.num_spare_nodes * _node_power(offers, offers.idle_power_w) * pue,
    )


def peak_power(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    """Returns the most that the facility draws: every accelerator computing, spares idle; W, `(n,)`."""
    power = phase_power(job, plans, offers)
    return power.compute_w + power.spares_w


def _node_power(offers: OfferTable, gpu_w: Floats) -> Floats:
    parts_w = offers.gpus_per_node * gpu_w + offers.host_power_w
    return parts_w / offers.power_supply_efficiency_fraction + offers.fan_power_w


def fabric_tiers(plans: PlanTable, offers: OfferTable) -> Integers:
    """Returns the tiers of the fat tree that joins all accelerators, `(n,)`; 0 within one link domain.

    T tiers of k-port switches join 2 (k/2)^T ports.
    """
    tiers = np.log(np.maximum(plans.num_gpus, 2) / 2.0) / np.log(offers.switch_ports / 2.0)
    whole_tiers = np.ceil(tiers - _ROUNDING)
    within_domain = plans.num_gpus <= offers.link_domain_size
    return np.where(within_domain, 0, np.maximum(1, whole_tiers)).astype(np.int64)


def fabric_power_per_gpu(plans: PlanTable, offers: OfferTable) -> Floats:
    """Returns switches and optics counted from the topology, W per accelerator `(n,)`.

    A full fat tree of T tiers has (2 T - 1) switch ports and 2 T transceiver ends per accelerator. Sanity: 95 W for
    512 accelerators in two tiers; the submitter of MLPerf Training v4.0 declared 116 W.
    """
    tiers = fabric_tiers(plans, offers)
    ports = np.maximum(0, 2 * tiers - 1)
    return ports * offers.switch_power_w / offers.switch_ports + 2 * tiers * offers.optic_power_w
