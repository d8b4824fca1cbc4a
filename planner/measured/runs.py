"""Which steps did others measure, and what does the simulator predict for the same designs?

A measured run is a row of text cells named as in `data/published_steps.csv`: fields of `ModelShape`, `MixtureOfExperts`,
`Workload` and `Plan`, catalogue names of the hardware, what was measured (`step_time_s`, `peak_memory_bytes`) and its
source. What a source leaves open and had to be assumed is named in the column `assumed`. Rows that cannot be compared give
the reason in `left_out_because`. `planner.measured.rows` makes such rows from files with other columns, and
`planner.measured.row_reasons` says which ones cannot be simulated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import get_args

import numpy as np

from planner.measured.prefixed_cells import (
    OF_COMPRESSED,
    OF_IMAGES,
    OF_INDEXER,
    OF_LINEAR_ATTENTION,
    OF_MUON,
    OF_STREAMS,
    PREFIXED,
    encoder_fields,
    fields_in,
)
from planner.measured.software.framework_habits import habits_of
from simulator import catalog
from simulator.domain.attention_span import SlidingWindow
from simulator.domain.blocks import LatentAttention, MixtureOfExperts
from simulator.domain.calibration import Calibration
from simulator.domain.documents import Documents
from simulator.domain.hardware import Node, Site
from simulator.domain.job import Job
from simulator.domain.model import ModelShape
from simulator.domain.offer import Estimate, GpuRange, Offer
from simulator.domain.plan import Plan, PlanTable
from simulator.domain.reliability import RELIABILITY_PRESETS
from simulator.domain.workload import Workload
from simulator.machine.training import training_constants
from simulator.memory.peak import MemoryKind, memory_of_loss
from simulator.shipped import shipped_rows
from simulator.simulate import steps_and_memory

STEPS_FILE = "data/published_steps.csv"
RELIABILITY = RELIABILITY_PRESETS["typical"]
NOWHERE = Site(region="any", grid_kgco2e_per_kwh=0, electricity_usd_per_kwh=0, power_usage_effectiveness=1)
"""Place and prices play no part in a step."""
OUT_OF_MEMORY = "ran out of memory: no step time"
"""Reason for a row without a step time whose layout is known: it tests memory instead."""

Row = Mapping[str, str]
JobCells = frozenset[tuple[str, str]]
"""Names and cells that determine a row's job."""
_OF_A_JOB = (Workload, ModelShape, MixtureOfExperts, LatentAttention, SlidingWindow, Documents, Node)
_OF_A_PLAN_ALONE = Plan.model_fields.keys() - {
    "precision",
    *(name for record in _OF_A_JOB for name in record.model_fields),
}
"""Cells that do not affect a row's job (`job_of`)."""
DECIDING = {
    *("accelerator", "node", "fabric", "lora_rank", "lora_targets", "lora_all_to_all"),
    *PREFIXED,
    *(
        name
        for record in (Plan, *_OF_A_JOB)
        for name in record.model_fields
        if name not in ("model", "source")
    ),
}
"""Cells that decide how a row is simulated."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One measured configuration and its simulation."""

    row: Row
    """The measured configuration."""
    family: str
    """Architecture of the accelerator."""
    simulated_s: float
    """Simulated step without stragglers."""
    simulated_memory_bytes: float
    """Peak memory use of the fullest stage's device, everything included; larger than the device if the design cannot run."""
    planned_memory_bytes: float
    """The same without pressure on the allocator: the memory that a plan has to provide."""
    memory_kind: MemoryKind
    """What the published peak counts; the whole device where none was published."""
    comparable_memory_bytes: float
    """The simulated peak of that kind."""
    capacity_bytes: float
    """Memory of one accelerator."""

    @property
    def kind(self) -> tuple[str, str, str]:
        """Architecture, number format, and `dense` or `experts`: the groups by which errors are kept."""
        return self.family, self.row["precision"], network_of(self.row)

    @property
    def is_production(self) -> bool:
        """Whether the measured time is the average of a production run and so includes its fleet's stragglers."""
        return self.row["is_production"] == "true"

    @property
    def measured_s(self) -> float:
        """Measured step; NaN where none was published."""
        return float(self.row["step_time_s"] or "nan")

    @property
    def is_timed(self) -> bool:
        """Whether a step time was published."""
        return math.isfinite(self.measured_s)

    @property
    def expected_s(self) -> float:
        """The simulated time to compare with the measured one."""
        return self.simulated_s * (fleet_slowdown(int(self.row["num_gpus"])) if self.is_production else 1.0)

    @property
    def error_fraction(self) -> float:
        """Relative error of the comparable time."""
        return self.expected_s / self.measured_s - 1.0

    @property
    def memory_error_fraction(self) -> float:
        """Relative error of the peak memory; NaN where none was published, or nothing comparable is simulated."""
        published = self.row["peak_memory_bytes"] if self.has_memory_verdict else ""
        return self.comparable_memory_bytes / float(published or "nan") - 1.0

    @property
    def has_memory_verdict(self) -> bool:
        """Whether the simulation keeps the same things in memory as the run; remarks say where it does not."""
        return self.row.get("has_memory_verdict", "true") == "true"

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether the measured run did not fit."""
        return self.row["left_out_because"] == OUT_OF_MEMORY

    @property
    def ran(self) -> bool:
        """Whether the run is known to have fitted: it has a step time or a peak memory, or was a production run."""
        is_told = self.is_timed or self.is_production or bool(self.row["peak_memory_bytes"])
        return is_told and not self.ran_out_of_memory

    @property
    def may_recompute(self) -> bool:
        """Whether the run is simulated without recomputation only because its row does not say what it recomputes."""
        return self.row["recompute"] in ("", "none") and is_untold(self.row, "recompute")

    @property
    def is_too_large(self) -> bool:
        """Whether the simulated run does not fit."""
        return self.simulated_memory_bytes > self.capacity_bytes

    @property
    def is_pressed(self) -> bool:
        """Whether the simulated run fills its device, so that the allocator has to free its cached memory."""
        return self.simulated_memory_bytes >= self.capacity_bytes

    @property
    def may_be_too_large(self) -> bool:
        """Whether the run does not fit, or may not because its memory is not judged."""
        return self.is_too_large or not self.has_memory_verdict

    @property
    def tokens_per_step(self) -> float:
        """Tokens per step."""
        return float(self.row["global_batch_size"]) * float(self.row["sequence_length"])


def network_of(row: Row) -> str:
    """Returns the kind of network by which errors are kept: `dense` or `experts`."""
    return "experts" if row["num_experts"] else "dense"


def fleet_slowdown(num_gpus: int) -> float:
    """Returns by how much the average step of a fleet is slower than the simulated one.

    The published straggler statistic is relative to identical accelerators (arXiv 2505.05713). It therefore includes the wait
    for the slowest accelerator, which the simulated step already has.
    """
    slowest = float(training_constants().slowest_of(np.array([num_gpus]))[0])
    return max(1.0, RELIABILITY.straggler_slowdown / slowest)


def read_rows() -> list[Row]:
    """Returns all shipped configurations, the left-out ones included."""
    return list(shipped_rows(STEPS_FILE, "planner"))


def compare(rows: Sequence[Row], calibration: Calibration | None = None) -> list[Comparison]:
    """Returns every row with its simulation, in the given order; rows that share a job are simulated as one batch.

    Args:
        rows: measured configurations.
        calibration: constants of the cluster that they ran on; if omitted, the published ones.
    """
    written: dict[JobCells, str] = {}
    keys = []
    for row in rows:
        cells = job_cells(row)
        if cells not in written:
            written[cells] = job_of(row).model_dump_json()
        keys.append(written[cells])
    found: dict[int, Comparison] = {}
    for _, batch in groupby(sorted(range(len(rows)), key=keys.__getitem__), key=keys.__getitem__):
        positions = list(batch)
        found |= zip(
            positions, _simulated([rows[position] for position in positions], calibration), strict=True
        )
    return [found[position] for position in range(len(rows))]


def on_cluster(job: Job, calibration: Calibration | None) -> Job:
    """Returns the job of a row with the constants of its cluster; those of other accelerators do not hold for it."""
    is_covered = calibration is not None and job.offers[0].accelerator.id in calibration.accelerators
    return job.model_copy(update={"calibration": calibration if is_covered else None})


def _simulated(rows: Sequence[Row], calibration: Calibration | None) -> list[Comparison]:
    job = on_cluster(job_of(rows[0]), calibration)
    plans = PlanTable.from_plans([plan_of(row) for row in rows])
    steps, memory = steps_and_memory(job, plans)
    accelerator = job.offers[0].accelerator
    peaks = memory.peak_on(accelerator.memory_bytes)
    are_last = [row.get("memory_stage") == "last" for row in rows]
    of_loss = memory_of_loss(job.workload, plans) if any(are_last) else memory
    published = [of_loss if is_last else memory for is_last in are_last]
    return [
        Comparison(
            row=row,
            family=accelerator.family,
            simulated_s=float(steps.step_time_s[position]),
            simulated_memory_bytes=float(peaks[position]),
            planned_memory_bytes=float(memory.peak_bytes[position]),
            memory_kind=memory_kind(row),
            comparable_memory_bytes=float(
                published[position].peak_of(memory_kind(row), accelerator.memory_bytes)[position]
            ),
            capacity_bytes=accelerator.memory_bytes,
        )
        for position, row in enumerate(rows)
    ]


def job_cells(row: Row) -> JobCells:
    """Returns the cells that determine a row's job: rows that agree in them have the same job."""
    return frozenset((name, cell) for name, cell in row.items() if name not in _OF_A_PLAN_ALONE)


def job_of(row: Row) -> Job:
    """Returns the job of a measured configuration."""
    offer = Offer(
        accelerator=catalog.accelerator(row["accelerator"]),
        node=node_of_row(row),
        fabric=catalog.fabric(row["fabric"]),
        num_gpus=GpuRange(min=1, max=1_000_000),
        rent_usd_per_gpu_hour=Estimate(low=1, mid=1, high=1),
    )
    return Job(
        name=row["model"], workload=_workload(row), offers=(offer,), site=NOWHERE, reliability=RELIABILITY
    )


def is_untold(row: Row, column: str) -> bool:
    """Returns whether the value in a column was assumed because the source does not state it."""
    return column in row["assumed"].split()


def remarks_of(row: Row) -> list[str]:
    """Returns the remarks on cells that were approximated or not understood."""
    return row.get("remarks", "").splitlines()


def known_reason(row: Row) -> str | None:
    """Returns what may explain the error of a row: remarks and notes, or what had to be assumed; `None` if nothing does."""
    if said := "; ".join([*remarks_of(row), *filter(None, [row.get("notes")])]):
        return said
    assumed = row["assumed"].split()
    return f"assumed: {', '.join(assumed)}" if assumed else None


def plan_of(row: Row) -> Plan:
    """Returns the layout of a measured configuration."""
    return Plan.model_validate(_filled(row, Plan) | {"offer": 0})


def whole_share(row: Row) -> int:
    """Returns the number of sequences per step that a rank processes."""
    return int(row["global_batch_size"]) // int(row["data_parallel"])


def node_of_row(row: Row) -> Node:
    """Returns the node from the catalogue, changed as the row says."""
    known = catalog.node(row["node"])
    given = {
        name: row[name]
        for name in ("num_accelerators", "link_domain_size", "network_bytes_per_s", "num_network_cards")
        if row.get(name)
    }
    return Node.model_validate(known.model_dump() | given) if given else known


def _workload(row: Row) -> Workload:
    given = _filled(row, Workload)
    if row.get("lora_rank"):
        given["lora"] = {
            "rank": row["lora_rank"],
            "targets": row["lora_targets"].split(),
            "exchanges_by_all_to_all": row["lora_all_to_all"],
        }
    if row.get("stage_layers"):
        given["stage_layers"] = tuple(map(int, row["stage_layers"].split()))
    if row.get("recompute_modules"):
        given["recompute_modules"] = row["recompute_modules"].split()
    one_step = float(row["global_batch_size"]) * float(row["sequence_length"])
    return Workload.model_validate(
        given
        | {
            "precisions": (row["precision"],),
            "model": _network(row),
            "documents": _filled(row, Documents) if row.get("mean_tokens") else None,
            "muon": fields_in(row, OF_MUON),
            "images": fields_in(row, OF_IMAGES),
            "tokens": one_step,
        }
    )


def _network(row: Row) -> ModelShape:
    """Returns the network of a row, including the records of those parts that it has."""
    experts = MixtureOfExperts.model_validate(_filled(row, MixtureOfExperts)) if row["num_experts"] else None
    latent = (
        LatentAttention.model_validate(
            {**_filled(row, LatentAttention), "indexer": fields_in(row, OF_INDEXER)}
        )
        if row.get("key_value_rank")
        else None
    )
    window = _filled(row, SlidingWindow) if row.get("window_tokens") else None
    parts = {
        "experts": experts,
        "latent_attention": latent,
        "sliding_window": window,
        "linear_attention": fields_in(row, OF_LINEAR_ATTENTION),
        "compressed_attention": fields_in(row, OF_COMPRESSED),
        "hyper_connections": fields_in(row, OF_STREAMS),
        "vision": encoder_fields(row),
    }
    return ModelShape.model_validate(
        _filled(row, ModelShape) | parts | {"name": row["model"], "source": "measured"}
    )


def _filled(
    row: Row,
    record: type[
        Plan | ModelShape | MixtureOfExperts | LatentAttention | SlidingWindow | Documents | Workload
    ],
) -> dict[str, object]:
    """Returns the non-empty cells that are fields of a record."""
    return {
        name: row[name] for name in record.model_fields if row.get(name) and name not in ("model", "source")
    }


def memory_kind(row: Row) -> MemoryKind:
    """Returns what the published peak of a row counts; if the row does not say, what users of its framework publish.

    Where no peak was published, it is the memory of the whole device.
    """
    if not row["peak_memory_bytes"]:
        return "device"
    family = catalog.accelerator(row["accelerator"]).kernel_family
    found = row.get("memory_kind") or habits_of(row["group"], family, row["precision"]).memory_kind
    return next(kind for kind in get_args(MemoryKind) if kind == found)
