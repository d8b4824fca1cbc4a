"""How much power does the cluster draw in each phase of the run?

P_gpu(phase)  = max(idle, min(max(floor, min(f(phase), f(compute))), cap)) TDP
P_node(phase) = (gpus P_gpu + P_host) / eta_psu + P_fan;    host and fans follow the accelerators' load
P_IT(phase)   = sum of nodes + switches and optics + storage
P_facility    = P_IT + (PUE - 1) (fixed P_IT at peak + (1 - fixed) P_IT)

Energy uses the PUE of mean weather, peaks and swings that of the warmest hour.

Collectives inside the layers are shorter than the averaging time of an accelerator's power limit. They and the computation
around them therefore share one limit: where computation alone would draw f > 1, the pauses make room for it. At the lower clock
of a cap c, computation would draw f c. The fractions are fitted to, or read from, metered runs; a flat "TDP x hours" misses
node power by 17-33 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.table import Floats, Integers, Table


@dataclass(frozen=True, kw_only=True)
class PhaseFractions:
    """Power of one accelerator in each phase as a share of its TDP; for computation, each accelerator has its own."""

    communication: float = 0.52
    """Exposed collective: 0.50-0.55, solved from the 8-node LoRA run of MLPerf Training v4.0; weak."""
    optimizer: float = 0.75
    """Memory-bound work; estimate between communication and compute."""
    evaluation: float = 0.86
    """Forward passes: evaluation blocks of the metered GPT-3 run on 512 H100 (6.31 kW a node)."""
    waiting: float = 0.50
    """Pipeline bubble or waiting for a straggler: the kernels spin as in a collective that moves nothing. Upper end of an
    estimate of 0.35-0.5, because the figure for collectives includes such spinning."""
    stalled: float = 0.20
    """Checkpoint stall, restart: 0.15-0.25 (GPU meters of OLMo 2, arXiv 2501.00656, at its checkpoints)."""


PHASE_FRACTIONS = PhaseFractions()
HOST_IDLE_FRACTION = 0.78
FAN_IDLE_FRACTION = 0.50
"""Share of the host and fan power that idle nodes draw: from the 2.1 kW (immersed) and 2.7 kW (air) of H100 nodes while a job
starts, with accelerators at 110-150 W (meters of MLPerf Training v4.0 and v4.1)."""
CAP_EXPONENT = 2.0
"""Clock loss under a power cap: time grows by ((f - idle)/(cap - idle))^(1/2); range of the exponent 1.3-3
(power-cap traces of Zeus, NSDI 2023)."""

_LEAST_ROOM = 1e-3
"""Share of the TDP that a cap below idle power still leaves for computing: tiny, but positive."""
_ROUNDING = 1e-9
"""Rounding tolerance, in tiers, for the logarithm of a full tree."""


def slowdown_under_cap(offers: OfferTable, cap_fraction: Floats) -> Floats:
    """Returns the slowdown of dense compute under a power cap, `(n,)`; 1 is no effect."""
    idle = offers.idle_power_w / offers.thermal_design_power_w
    room = np.maximum(cap_fraction - idle, _LEAST_ROOM)
    uncapped = np.minimum(offers.compute_power_fraction, 1.0)
    return np.asarray(np.maximum(1.0, (uncapped - idle) / room) ** (1.0 / CAP_EXPONENT))


@dataclass(frozen=True, kw_only=True)
class PhasePower:
    """Facility power of the training nodes in each phase, and of loads common to all phases; W, `(n,)`."""

    compute_w: Floats
    """Every accelerator computing, at its power limit."""
    unlimited_compute_w: Floats
    """Every accelerator computing, without any power limit."""
    communication_w: Floats
    optimizer_w: Floats
    evaluation_w: Floats
    waiting_w: Floats
    stalled_w: Floats
    idle_w: Floats
    """Nothing running, as in a pause."""
    spares_w: Floats
    """Idle spare nodes, which draw this throughout the run in every phase."""

    @property
    def least_w(self) -> Floats:
        """Least power of any phase of a run."""
        phases = (self.compute_w, self.communication_w, self.optimizer_w, self.evaluation_w)
        return np.asarray(np.min((*phases, self.waiting_w, self.stalled_w), axis=0))

    def busy_energy_j(self, compute_s: Floats, communication_s: Floats) -> tuple[Floats, Floats]:
        """Returns the energy of computation and of the short collectives in between, `(n,)` each."""
        demand_j = compute_s * self.unlimited_compute_w + communication_s * self.communication_w
        limit_j = (compute_s + communication_s) * self.compute_w
        held = np.minimum(1.0, limit_j / np.where(demand_j > 0.0, demand_j, 1.0))
        held = np.where(np.isnan(demand_j), np.nan, held)
        return held * compute_s * self.unlimited_compute_w, held * communication_s * self.communication_w


@dataclass(frozen=True, kw_only=True)
class PowerTable(Table):
    """Peaks and swings of power, in W except where stated, `(n,)`."""

    peak_power_w: Floats
    """Highest power of the facility: every accelerator computing, spares idle, in the warmest hour."""
    hall_power_w: Floats
    """IT power at the facility's peak."""
    cooling_power_w: Floats
    """Power of cooling and the building at the facility's peak."""
    rack_power_w: Floats
    """IT power of the nodes of one rack, all of them computing."""
    power_swing_w: Floats
    """Largest step change of facility power: from computing to standing still, in the warmest hour."""
    power_ramp_w_per_s: Floats
    """Fastest change of facility power: this swing over the response time of the accelerators, W/s."""
    power_range_fraction: Floats
    """The swing as a share of the peak, for the IT power of the training nodes."""


def phase_power(job: Job, plans: PlanTable, offers: OfferTable) -> PhasePower:
    """Returns the facility's power in each phase; every phase includes the fabric and storage."""
    it = _ItPower.of(job, plans, offers)
    fixed_w = (offers.power_usage_effectiveness - 1.0) * offers.cooling_fixed_fraction * it.peak_w
    varying = facility_w_per_w(offers, offers.power_usage_effectiveness)

    def facility(share: Floats) -> Floats:
        return it.training_w(share) * varying + fixed_w

    return PhasePower(
        compute_w=facility(it.computing),
        # A cap lowers the clock, and with it the power that computation would draw without a limit.
        unlimited_compute_w=facility(it.computing * np.maximum(offers.compute_power_fraction, 1.0)),
        communication_w=facility(it.held(PHASE_FRACTIONS.communication)),
        optimizer_w=facility(it.held(PHASE_FRACTIONS.optimizer)),
        evaluation_w=facility(it.held(PHASE_FRACTIONS.evaluation)),
        waiting_w=facility(it.held(PHASE_FRACTIONS.waiting)),
        stalled_w=facility(it.held(PHASE_FRACTIONS.stalled)),
        idle_w=facility(it.idle),
        spares_w=it.spares_w * varying,
    )


def power_levels(
    job: Job, plans: PlanTable, offers: OfferTable, servers_w: Floats | float = 0.0
) -> PowerTable:
    """Returns peaks and swings of power, `(n,)`, averaged over seconds: swings within a step are not resolved.

    Args:
        job: the job.
        plans: `(n,)` designs.
        offers: one row per design.
        servers_w: IT power of equipment outside the nodes that never idles.
    """
    it = _ItPower.of(job, plans, offers)
    computing_w, standing_w = (
        it.training_w(share) for share in (it.computing, it.held(PHASE_FRACTIONS.stalled))
    )
    swing_w = (computing_w - standing_w) * facility_w_per_w(offers, offers.peak_power_usage_effectiveness)
    hall_w = np.asarray(it.peak_w + servers_w)
    return PowerTable(
        peak_power_w=hall_w * offers.peak_power_usage_effectiveness,
        hall_power_w=hall_w,
        cooling_power_w=hall_w * (offers.peak_power_usage_effectiveness - 1.0),
        rack_power_w=np.minimum(offers.nodes_per_rack, np.ceil(it.num_nodes)) * it.node_w(it.computing),
        power_swing_w=swing_w,
        power_ramp_w_per_s=swing_w / job.operation.power_ramp_s,
        power_range_fraction=(computing_w - standing_w) / computing_w,
    )


def facility_w_per_w(offers: OfferTable, power_usage_effectiveness: Floats) -> Floats:
    """Returns facility watts per additional watt of IT power, `(n,)`; the fixed part of the overhead is drawn anyway."""
    return 1.0 + (power_usage_effectiveness - 1.0) * (1.0 - offers.cooling_fixed_fraction)


@dataclass(frozen=True, kw_only=True)
class _ItPower:
    """Power of the nodes, the fabric and the storage, before cooling."""

    offers: OfferTable
    cap: Floats
    floor: float
    num_nodes: Floats
    shared_w: Floats
    spares_w: Floats

    @classmethod
    def of(cls, job: Job, plans: PlanTable, offers: OfferTable) -> _ItPower:
        fabric_w = plans.num_gpus * fabric_power_per_gpu(plans, offers)
        bare = cls(
            offers=offers,
            cap=plans.power_cap_fraction,
            floor=job.operation.power_floor_fraction,
            num_nodes=plans.num_gpus / offers.gpus_per_node,
            shared_w=fabric_w + job.storage.power_w,
            spares_w=np.zeros(len(plans)),
        )
        return replace(bare, spares_w=plans.num_spare_nodes * bare.node_w(bare.idle))

    @cached_property
    def idle(self) -> Floats:
        """Idle accelerators, as a share of the TDP."""
        return self.offers.idle_power_w / self.offers.thermal_design_power_w

    @cached_property
    def peak_w(self) -> Floats:
        """Every accelerator computing, spares idle."""
        return self.training_w(self.computing) + self.spares_w

    @cached_property
    def computing(self) -> Floats:
        """Computing accelerators, as a share of the TDP."""
        return self.held(1.0)

    def held(self, fraction: float) -> Floats:
        """A phase's share of the TDP, from idle power or the floor of filler work up to the cap; computation draws most."""
        drawn = np.minimum(fraction, self.offers.compute_power_fraction)
        return np.maximum(self.idle, np.minimum(np.maximum(drawn, self.floor), self.cap))

    def training_w(self, fraction: Floats) -> Floats:
        return self.num_nodes * self.node_w(fraction) + self.shared_w

    def node_w(self, fraction: Floats) -> Floats:
        """Power of one node whose accelerators draw this share of their TDP."""
        offers, load = self.offers, (fraction - self.idle) / np.maximum(1.0 - self.idle, _LEAST_ROOM)
        host_w = offers.host_power_w * (HOST_IDLE_FRACTION + (1.0 - HOST_IDLE_FRACTION) * load)
        fan_w = offers.fan_power_w * (FAN_IDLE_FRACTION + (1.0 - FAN_IDLE_FRACTION) * load)
        parts_w = offers.gpus_per_node * fraction * offers.thermal_design_power_w + host_w
        return parts_w / offers.power_supply_efficiency_fraction + fan_w


def fabric_tiers(plans: PlanTable, offers: OfferTable) -> Integers:
    """Returns the tiers of the fat tree that joins all accelerators, `(n,)`; 0 within one link domain.

    T tiers of k-port switches join 2 (k/2)^T ports. Where accelerators have several ports, each joins them all in a tree of its
    own (rails).
    """
    joined_ports = plans.num_gpus * np.minimum(1.0, offers.network_ports_per_gpu)
    tiers = np.log(np.maximum(joined_ports, 2.0) / 2.0) / np.log(offers.switch_ports / 2.0)
    whole_tiers = np.ceil(tiers - _ROUNDING)
    within_domain = plans.num_gpus <= offers.link_domain_size
    return np.where(within_domain, 0, np.maximum(1, whole_tiers)).astype(np.int64)


def fabric_power_per_gpu(plans: PlanTable, offers: OfferTable) -> Floats:
    """Returns the power of switches and optics implied by the topology, W per accelerator `(n,)`.

    A full fat tree of T tiers has (2 T - 1) switch ports and 2 T transceiver ends per port of a node. Sanity check: 67 W for
    512 accelerators in two tiers; the submitter of MLPerf Training v4.0 estimated 116 W.
    """
    optics_w = 2 * fabric_tiers(plans, offers) * offers.network_ports_per_gpu * offers.optic_power_w
    return switches_per_gpu(plans, offers) * offers.switch_power_w + optics_w


def switches_per_gpu(plans: PlanTable, offers: OfferTable) -> Floats:
    """Returns switches per accelerator in full fat trees, `(n,)`: 2 T - 1 ports for each of its own."""
    ports = np.maximum(0, 2 * fabric_tiers(plans, offers) - 1) * offers.network_ports_per_gpu
    return ports / offers.switch_ports
