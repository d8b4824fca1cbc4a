"""Which measured steps are the constants of training fitted on, and what does the simulator say for given constants?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from benchmarks.convert_vtrain import converted, write_runs
from planner.measured_rows import Unmodelled, read_measured
from planner.measured_runs import Row, fleet_slowdown, job_of, plan_of, reason_against
from simulator.chunks import split_layers
from simulator.job import Job
from simulator.plan import PlanTable
from simulator.rank import Rank
from simulator.step import simulate_step
from simulator.table import Floats
from simulator.training import TrainingConstants

TIERS = ("A", "")
"""Complete rows with a published speed, and those of files that do not grade theirs."""
_RELEASE = re.compile(r"( (v?\d|container|[(\d]|performance|A100|H100).*|[(:,].*)$")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Steps of one job."""

    positions: NDArray[np.intp]
    job: Job
    plans: PlanTable


@dataclass(frozen=True, kw_only=True)
class MeasuredSteps:
    """`n` dense configurations, each with its mean measured time."""

    rows: tuple[Row, ...]
    measured_s: Floats
    batches: tuple[Batch, ...]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> MeasuredSteps:
        """Returns the configurations of rows; those that share a `config_key` count once."""
        alike: dict[str, list[Row]] = {}
        for row in rows:
            alike.setdefault(row["config_key"], []).append(row)
        first = [members[0] for members in alike.values()]
        measured_s = [_expected_ideal_s(members) for members in alike.values()]
        return cls(rows=tuple(first), measured_s=np.array(measured_s), batches=tuple(_batches(first)))

    def take(self, chosen: NDArray[np.bool_]) -> MeasuredSteps:
        """Returns some of the configurations."""
        rows = [row for row, is_chosen in zip(self.rows, chosen, strict=True) if is_chosen]
        return MeasuredSteps(
            rows=tuple(rows), measured_s=self.measured_s[chosen], batches=tuple(_batches(rows))
        )

    def log_errors(self, constants: TrainingConstants) -> Floats:
        """Returns ln(simulated / measured), `(n,)`."""
        simulated_s = np.empty(len(self.rows))
        for batch in self.batches:
            rank = Rank.of(batch.job, batch.plans, constants)
            steps = simulate_step(rank, split_layers(batch.job.workload.model, batch.plans))
            simulated_s[batch.positions] = steps.step_time_s
        return np.asarray(np.log(simulated_s / self.measured_s))

    @property
    def sources(self) -> NDArray[np.str_]:
        """Publisher of each configuration, whatever the release of its software."""
        return np.array([source_of(row["group"]) for row in self.rows])

    @property
    def models(self) -> NDArray[np.str_]:
        """Model of each configuration; variants of one model are the same."""
        return np.array([re.sub(r" \(.*|(?<=BLOOM)-.*", "", row["model"]) for row in self.rows])


def source_of(group: str) -> str:
    """Returns the publisher of a row, without release or cluster."""
    return "BigScience" if "BLOOM" in group else _RELEASE.sub("", group)


def read_steps(measured: Path, vtrain: Path) -> MeasuredSteps:
    """Returns all dense configurations of a file of training runs and of a folder of vTrain."""
    with TemporaryDirectory() as folder:
        files = [measured]
        for path in sorted(vtrain.glob("ground_truth_*.csv")):
            files.append(Path(folder) / path.name)
            write_runs(converted(path), files[-1])
        rows = [row for path in files for row in read_measured(path)]
    return MeasuredSteps.of([row for row in rows if not isinstance(row, Unmodelled) and _is_scored(row)])


def _is_scored(row: Row) -> bool:
    is_timed = bool(row["step_time_s"]) and not row["left_out_because"]
    return is_timed and row["tier"] in TIERS and not row["num_experts"] and not reason_against(row)


def _expected_ideal_s(rows: Sequence[Row]) -> float:
    """Mean measured step without the stragglers of a fleet."""
    slowdown = fleet_slowdown(int(rows[0]["num_gpus"])) if rows[0]["is_production"] == "true" else 1.0
    return float(np.mean([float(row["step_time_s"]) for row in rows])) / slowdown


def _batches(rows: Sequence[Row]) -> list[Batch]:
    keys = [job_of(row).model_dump_json() for row in rows]
    found = []
    for _, members in groupby(sorted(range(len(rows)), key=keys.__getitem__), key=keys.__getitem__):
        positions = list(members)
        plans = PlanTable.from_plans([plan_of(rows[position]) for position in positions])
        found.append(Batch(positions=np.array(positions), job=job_of(rows[positions[0]]), plans=plans))
    return found
