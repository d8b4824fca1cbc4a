"""Which steps did others measure and publish, and what does the simulator say of the same designs?

The configurations stand in data/published_steps.csv, one a row with its source; what a source leaves open and had to
be assumed is named in the column `assumed`, and rows that cannot be compared say why in `left_out_because`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from simulator import catalog
from simulator.hardware import Site
from simulator.job import Estimate, GpuRange, Job, Offer, Workload
from simulator.model import MixtureOfExperts, ModelShape
from simulator.plan import Plan, PlanTable
from simulator.reliability import RELIABILITY_PRESETS
from simulator.simulate import simulate

STEPS_FILE = Path(__file__).with_name("data") / "published_steps.csv"
RELIABILITY = RELIABILITY_PRESETS["typical"]
NOWHERE = Site(region="any", grid_kgco2e_per_kwh=0, electricity_usd_per_kwh=0, power_usage_effectiveness=1)
"""Place and prices play no part in a step."""

Row = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One published configuration beside its simulation."""

    row: Row
    """The published configuration, as it stands in the file."""
    family: str
    """Architecture of the accelerator."""
    simulated_s: float
    """Step without stragglers."""
    simulated_memory_bytes: float

    @property
    def is_production(self) -> bool:
        """Whether the measured time is the average of a run with its fleet's stragglers."""
        return self.row["is_production"] == "true"

    @property
    def expected_s(self) -> float:
        """The simulated time that is comparable with the measured one."""
        return self.simulated_s * (RELIABILITY.straggler_slowdown if self.is_production else 1.0)

    @property
    def error_fraction(self) -> float:
        """Relative error of the comparable time."""
        return self.expected_s / float(self.row["step_time_s"]) - 1.0

    @property
    def ideal_error_fraction(self) -> float:
        """Relative error of the step without stragglers."""
        return self.simulated_s / float(self.row["step_time_s"]) - 1.0

    @property
    def memory_error_fraction(self) -> float:
        """Relative error of the peak memory; NaN where none was published."""
        return self.simulated_memory_bytes / float(self.row["peak_memory_bytes"] or "nan") - 1.0


def read_rows() -> list[Row]:
    """Returns all published configurations, the left-out ones included."""
    with STEPS_FILE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def compare(rows: Sequence[Row]) -> list[Comparison]:
    """Returns every row beside its simulation; rows that share a job are simulated as one batch."""

    def key(row: Row) -> str:
        return job_of(row).model_dump_json()

    batches = groupby(sorted(rows, key=key), key=key)
    return [comparison for _, batch in batches for comparison in _simulated(list(batch))]


def job_of(row: Row) -> Job:
    """Returns the job of a published configuration."""
    accelerator = catalog.accelerator(row["accelerator"])
    offer = Offer(
        accelerator=accelerator,
        node=catalog.node(row["node"]),
        fabric=catalog.fabric(row["fabric"]),
        num_gpus=GpuRange(min=1, max=1_000_000),
        rent_usd_per_gpu_hour=Estimate(low=1, mid=1, high=1),
    )
    return Job(
        name=row["model"], workload=_workload(row), offers=(offer,), site=NOWHERE, reliability=RELIABILITY
    )


def plan_of(row: Row) -> Plan:
    """Returns the layout of a published configuration."""
    return Plan.model_validate(_filled(row, Plan) | {"offer": 0})


def _workload(row: Row) -> Workload:
    experts = MixtureOfExperts.model_validate(_filled(row, MixtureOfExperts)) if row["num_experts"] else None
    model = ModelShape.model_validate(
        _filled(row, ModelShape) | {"name": row["model"], "experts": experts, "source": "published"}
    )
    given = _filled(row, Workload) | {"precisions": (row["precision"],), "model": model}
    one_step = float(row["global_batch_size"]) * float(row["sequence_length"])
    return Workload.model_validate(given | {"tokens": one_step})


def _filled(row: Row, record: type[Plan | ModelShape | MixtureOfExperts | Workload]) -> dict[str, object]:
    """Returns the cells that are fields of a record and not empty."""
    return {
        name: row[name] for name in record.model_fields if row.get(name) and name not in ("model", "source")
    }


def _simulated(rows: Sequence[Row]) -> list[Comparison]:
    job = job_of(rows[0])
    outcomes = simulate(job, PlanTable.from_plans([plan_of(row) for row in rows]))
    return [
        Comparison(
            row=row,
            family=job.offers[0].accelerator.family,
            simulated_s=float(outcomes.steps.step_time_s[position]),
            simulated_memory_bytes=float(outcomes.summary.peak_memory_bytes[position]),
        )
        for position, row in enumerate(rows)
    ]
