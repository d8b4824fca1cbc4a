"""Which machines does OpenDC simulate for a run? The nodes of the cluster as hosts, their power models, and the experiment.

The power of a host rises linearly from that of an idle node to the highest of the run; both include the node's share of
network, storage and cooling. Megahertz have no physical meaning here: each accelerator has 1,000 of them, and is one core of
its host's GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.opendc.run import DrawnRun
from simulator.domain.hardware import Node, Site
from simulator.domain.job import Job
from simulator.domain.offer import Offer
from simulator.domain.plan import Plan
from simulator.units import GIGA, HOUR, MEGA, MIB

FULL_MHZ = 1000.0
"""Clock of one accelerator, and of a node's processors; at the highest power all of it is in use."""


@dataclass(frozen=True, kw_only=True)
class ExportedRun:
    """A run with the machines that it uses."""

    job: Job
    plan: Plan
    run: DrawnRun

    @property
    def offer(self) -> Offer:
        """The offer that the plan takes."""
        return self.job.offers[self.plan.offer]

    @property
    def node(self) -> Node:
        """One of its servers."""
        return self.offer.node

    @property
    def site(self) -> Site:
        """Where its servers are."""
        return self.job.site_of(self.offer)

    @property
    def cluster_name(self) -> str:
        """Name of the cluster."""
        return self.job.name or "cluster"

    @property
    def source_name(self) -> str:
        """Name of the cluster's power source."""
        return self.site.region or "grid"


def topology(exported: ExportedRun) -> dict[str, object]:
    """Returns the content of topology.json: the nodes that train, and spare ones, which are idle."""
    run = exported.run
    hosts = [_hosts(exported, exported.node.id, run.num_nodes, run.idle_w)]
    if run.num_spare_nodes:
        hosts.append(_hosts(exported, f"{exported.node.id}-spare", run.num_spare_nodes, run.spares_w))
    source = {"name": exported.source_name, "carbonTracePath": "carbon.parquet"}
    cluster = {"name": exported.cluster_name, "count": 1, "hosts": hosts, "powerSource": source}
    return {"clusters": [cluster]}


def experiment(exported: ExportedRun) -> dict[str, object]:
    """Returns the content of experiment.json; OpenDC is started in the folder of the files."""
    return {
        "name": exported.cluster_name,
        "topologies": [{"pathToFile": "topology.json"}],
        "workloads": [{"pathToFile": "workload", "type": "ComputeWorkload"}],
        "exportModels": [{"exportInterval": int(HOUR)}],
    }


def _hosts(exported: ExportedRun, name: str, count: int, idle_w: float) -> dict[str, object]:
    """Returns equal nodes; `idle_w` is the power of all of them together when nothing runs."""
    accelerator, node = exported.offer.accelerator, exported.node
    most_w = exported.run.most_w / exported.run.num_nodes
    return {
        "name": name,
        "count": count,
        "cpu": {"coreCount": 1, "coreSpeed": FULL_MHZ},
        "memory": {"memorySize": f"{node.host_memory_bytes / MIB:.0f} MiB"},
        # The power of the whole node is assigned to its accelerators.
        "cpuPowerModel": _linear(0.0, 0.0),
        # A host of OpenDC stops at its fifth device (`FlowDistributor` has four places): one stands for all.
        "gpu": {
            "count": 1,
            "coreCount": node.num_accelerators,
            "coreSpeed": FULL_MHZ,
            "memorySize": f"{node.num_accelerators * accelerator.memory_bytes / MEGA:.0f} MB",
            "memoryBandwidth": f"{node.num_accelerators * accelerator.memory_bytes_per_s / GIGA:.0f} GBps",
            "vendor": accelerator.vendor,
            "modelName": accelerator.name,
        },
        "gpuPowerModel": _linear(idle_w / count, most_w),
    }


def _linear(idle_w: float, most_w: float) -> dict[str, object]:
    return {"modelType": "linear", "power": most_w, "idlePower": idle_w, "maxPower": most_w}
