"""Which hardware does every design of a batch run on? The figures of the offers as columns, one row per offer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from simulator.domain.hardware import Precision, Site
from simulator.domain.job import Job
from simulator.domain.offer import Offer
from simulator.table import Floats, Integers, Table


@final
@dataclass(frozen=True, kw_only=True)
class OfferTable(Table):
    """Hardware figures `(n,)`, SI; `peak_flop_per_s` is `(n, 4)`, one column per `Precision`, NaN where absent."""

    gpus_per_node: Integers
    link_domain_size: Integers
    nodes_per_rack: Integers
    memory_bytes: Floats
    memory_bytes_per_s: Floats
    peak_flop_per_s: Floats
    thermal_design_power_w: Floats
    idle_power_w: Floats
    scale_up_bytes_per_s: Floats
    network_bytes_per_s: Floats
    """Network bandwidth of one accelerator's share of the node, after oversubscription."""
    network_ports_per_gpu: Floats
    """Ports of the fabric per accelerator, one for each network card."""
    host_power_w: Floats
    fan_power_w: Floats
    power_supply_efficiency_fraction: Floats
    host_memory_bytes: Floats
    host_copy_bytes_per_s: Floats
    host_memory_bytes_per_s: Floats
    embodied_gpu_kgco2e: Floats
    embodied_host_kgco2e: Floats
    switch_ports: Integers
    switch_power_w: Floats
    optic_power_w: Floats
    port_usd: Floats
    embodied_switch_kgco2e: Floats
    compute_power_fraction: Floats
    interruptions_per_1000_node_days: Floats
    power_usage_effectiveness: Floats
    """Mean PUE at full load, including the effect of the weather,"""
    peak_power_usage_effectiveness: Floats
    """and the PUE of the warmest hour."""
    cooling_fixed_fraction: Floats
    """Share of the cooling power that does not fall with the load, including the effect of the weather."""

    @classmethod
    def from_job(cls, job: Job) -> OfferTable:
        """Returns one row for each offer of the job; read-only, because a batch of designs asks for it tens of times."""
        for known, table in _latest:
            if known is job:
                return table
        rows = [_row(offer, job.site_of(offer)) for offer in job.offers]
        table = cls(**{name: _column([row[name] for row in rows], name) for name in cls.names()})
        for column in table.columns().values():
            column.flags.writeable = False
        _latest[:] = [(job, table)]
        return table

    def peak_of(self, precision: Integers) -> Floats:
        """Returns the dense peak of each row in a number format, given by its code, `(n,)`; NaN where there is none."""
        return np.take_along_axis(self.peak_flop_per_s, precision[:, None], axis=1)[:, 0]


_latest: list[tuple[Job, OfferTable]] = []
"""The most recent job; jobs do not change, so the same one has the same table."""
_COUNTS = ("gpus_per_node", "link_domain_size", "nodes_per_rack", "switch_ports")


def _column(values: Sequence[float | list[float]], name: str) -> NDArray[Any]:
    return np.array(values, dtype=np.int64 if name in _COUNTS else np.float64)


def _row(offer: Offer, site: Site) -> dict[str, float | list[float]]:
    chip, node, fabric = offer.accelerator, offer.node, offer.fabric
    pue, climate = site.power_usage_effectiveness, site.climate
    peaks = [chip.peak_flop_per_s(precision) for precision in Precision]
    return {
        "gpus_per_node": node.num_accelerators,
        "link_domain_size": node.link_domain_size,
        "nodes_per_rack": offer.nodes_per_rack or node.nodes_per_rack,
        "memory_bytes": chip.memory_bytes,
        "memory_bytes_per_s": chip.memory_bytes_per_s,
        "peak_flop_per_s": [float("nan") if peak is None else peak for peak in peaks],
        "thermal_design_power_w": chip.thermal_design_power_w,
        "idle_power_w": chip.idle_power_w,
        "scale_up_bytes_per_s": chip.scale_up_bytes_per_s,
        "network_bytes_per_s": node.network_bytes_per_s_per_accelerator / fabric.oversubscription,
        "network_ports_per_gpu": node.network_ports_per_accelerator,
        "host_power_w": node.host_power_w,
        "fan_power_w": node.fan_power_w,
        "power_supply_efficiency_fraction": node.power_supply_efficiency_fraction,
        "host_memory_bytes": node.host_memory_bytes,
        "host_copy_bytes_per_s": node.host_copy_bytes_per_s,
        "host_memory_bytes_per_s": node.host_memory_bytes_per_s,
        "embodied_gpu_kgco2e": chip.embodied_kgco2e,
        "embodied_host_kgco2e": node.embodied_host_kgco2e,
        "switch_ports": fabric.switch_ports,
        "switch_power_w": fabric.switch_power_w,
        "optic_power_w": fabric.optic_power_w,
        "port_usd": fabric.port_usd,
        "embodied_switch_kgco2e": fabric.embodied_switch_kgco2e,
        "compute_power_fraction": chip.compute_power_fraction,
        "interruptions_per_1000_node_days": offer.interruptions_per_1000_node_days,
        "power_usage_effectiveness": pue + (climate.mean_overhead if climate else 0.0),
        "peak_power_usage_effectiveness": pue + (climate.peak_overhead if climate else 0.0),
        "cooling_fixed_fraction": site.cooling_fixed_fraction,
    }
