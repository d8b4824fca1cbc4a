"""How does a plan's run get into OpenDC? As a workload, a topology, a carbon trace and an experiment that joins them.

Every training node is a host, and every host has one task whose fragments are the pieces of the run. The usage of each
fragment is chosen so that its host draws the power that capplan computes (`planner.opendc.topology`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from planner.input.own_files import OUTPUT, check_folder, filling
from planner.opendc.files import (
    CARBON,
    FAILURES,
    FRAGMENTS,
    POWER_SOURCE,
    TASKS,
    Columns,
    Form,
    broken,
    write_parquet,
)
from planner.opendc.run import DrawnRun, drawn_run
from planner.opendc.topology import FULL_MHZ, ExportedRun, experiment, topology
from simulator.argument_names import Argument, Words
from simulator.domain.hourly import HOURS_PER_DAY
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from simulator.run_timeline import NUM_INTERRUPTIONS, RunEventKind
from simulator.table import Floats, Integers
from simulator.units import HOUR, JOULES_PER_KWH, KILO, MILLISECOND

MOST_ROWS = 20_000_000
"""Most fragments that are written; OpenDC keeps them in memory."""
ROWS_PER_GROUP = 1_000_000
"""Fragments that are built at once."""
FILES = (
    "experiment.json",
    "topology.json",
    "carbon.parquet",
    "failures.parquet",
    "powerSource.parquet",
    "workload",
)
"""Files in the folder of an experiment."""
NEVER = -1
"""OpenDC's deadline of a task without one."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """What an export contains."""

    num_tasks: int
    num_fragments: int
    """Of all tasks together."""
    energy_kwh: float
    """Energy of the whole run, spare nodes included, which OpenDC should reproduce."""


def export_opendc(
    job: Job,
    plan: Plan,
    folder: Path,
    *,
    start: datetime,
    seed: int = 0,
    replication: int = 0,
    period_s: float | None = None,
) -> Written:
    """Writes one run of a plan as an experiment of OpenDC.

    Args:
        job: the job.
        plan: a plan whose run ends.
        folder: where the files go; it is created. Either all files are written, or none.
        start: when the run begins, in UTC without a zone.
        seed: seed of the replays of an answer.
        replication: which replay, from 0.
        period_s: length of the fragments; default: one fragment for each event of the run.

    Raises:
        InputError: the run cannot be written, or the folder cannot be written to or holds an experiment already.
    """
    _check_folder(folder)
    run = drawn_run(job, plan, seed=seed, replication=replication)
    exported = ExportedRun(job=job, plan=plan, run=run if period_s is None else run.every(period_s))
    _check_size(exported.run)
    _check_end(exported.run, start)
    with filling(folder) as new:
        _write(exported, new, start)
    num_fragments = run.num_nodes * len(_milliseconds(exported.run)[0])
    return Written(num_tasks=run.num_nodes, num_fragments=num_fragments, energy_kwh=_energy_kwh(run))


def _write(exported: ExportedRun, folder: Path, start: datetime) -> None:
    """Writes all files; raises `OSError` where one cannot be written."""
    intensities = _intensities(exported)
    tables: tuple[tuple[str, Form, Iterable[Columns]], ...] = (
        ("carbon.parquet", CARBON, [_carbon(intensities, start)]),
        ("failures.parquet", FAILURES, [_failures(exported)]),
        ("powerSource.parquet", POWER_SOURCE, [_power_source(exported, intensities, start)]),
        ("workload/tasks.parquet", TASKS, [_tasks(exported, start)]),
        ("workload/fragments.parquet", FRAGMENTS, _fragments(exported)),
    )
    documents = (("topology.json", topology(exported)), ("experiment.json", experiment(exported)))
    (folder / "workload").mkdir()
    for name, form, parts in tables:
        write_parquet(folder / name, form, parts)
    for name, document in documents:
        (folder / name).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _check_size(run: DrawnRun) -> None:
    num_rows = run.num_nodes * len(run.power_w)
    if num_rows > MOST_ROWS:
        most = f"must be at most {MOST_ROWS:,}, nodes times pieces of the run; "
        rule = Words(most, Argument("period_s", "3600"), " makes one piece of an hour")
        raise broken("fragments", f"{num_rows:,}", rule)


def _check_end(run: DrawnRun, start: datetime) -> None:
    num_days = _num_days(run)
    if num_days > (datetime.max.replace(tzinfo=UTC) - start.replace(tzinfo=UTC)).days:
        days = "a day" if num_days == 1 else f"{num_days:,} days"
        rule = f"must be earlier: the run takes {days}, and the calendar ends with the year 9999"
        raise broken(Argument("start"), f"{start:%Y-%m-%d}", rule)


def _num_days(run: DrawnRun) -> int:
    """Returns how many whole days cover the run."""
    return int(run.edges_s[-1] // (HOURS_PER_DAY * HOUR)) + 1


def _check_folder(folder: Path) -> None:
    """Refuses a folder that has a file of such a name, which may be the user's own: nothing is replaced."""
    if taken := [name for name in FILES if (folder / name).exists()]:
        rule = f"holds {taken[0]} already, and experiments are never overwritten: choose another folder"
        raise broken(OUTPUT, str(folder), rule)
    check_folder(folder)


def _energy_kwh(run: DrawnRun) -> float:
    lengths_s = np.diff(run.edges_s)
    return float(np.sum((run.power_w + run.spares_w) * lengths_s)) / JOULES_PER_KWH


def _milliseconds(run: DrawnRun) -> tuple[Integers, Floats]:
    """Returns the lengths in whole milliseconds, which sum to the run's, and the powers of pieces that last at least one."""
    edges_ms = np.round(run.edges_s / MILLISECOND).astype(np.int64)
    lengths_ms = edges_ms[1:] - edges_ms[:-1]
    return lengths_ms[lengths_ms > 0], run.power_w[lengths_ms > 0]


def _tasks(exported: ExportedRun, start: datetime) -> Columns:
    """Returns one task for each node that trains."""
    import pyarrow as pa

    num, node = exported.run.num_nodes, exported.node
    none = pa.array([[]] * num, type=pa.list_(pa.int32()))
    return {
        "id": np.arange(num),
        "name": pa.array([f"{exported.cluster_name}-{index}" for index in range(num)]),
        "submission_time": pa.array([start] * num, type=pa.timestamp("ms")),
        "duration": np.full(num, int(_milliseconds(exported.run)[0].sum())),
        "cpu_count": np.ones(num),
        "cpu_capacity": np.full(num, FULL_MHZ),
        # With one task per host the memory of a task has no effect, but the field is required.
        "mem_capacity": np.full(num, int(node.host_memory_bytes / 2.0 / KILO)),
        "gpu_count": np.full(num, node.num_accelerators),
        "gpu_capacity": np.full(num, node.num_accelerators * FULL_MHZ),
        "parents": none,
        "children": none,
        "deferrable": np.zeros(num, dtype=np.bool_),
        "deadline": np.full(num, NEVER),
    }


def _fragments(exported: ExportedRun) -> Iterator[Columns]:
    """Yields the fragments of whole tasks, some tasks at a time."""
    run, num_accelerators = exported.run, exported.node.num_accelerators
    lengths_ms, power_w = _milliseconds(run)
    used_mhz = (power_w - run.idle_w) / (run.most_w - run.idle_w) * FULL_MHZ
    at_once = max(1, ROWS_PER_GROUP // len(lengths_ms))
    for first in range(0, run.num_nodes, at_once):
        ids = np.arange(first, min(first + at_once, run.num_nodes))
        yield {
            "id": np.repeat(ids, len(lengths_ms)),
            "duration": np.tile(lengths_ms, len(ids)),
            "cpu_usage": np.tile(used_mhz, len(ids)),
            "gpu_usage": np.tile(used_mhz * num_accelerators, len(ids)),
        }


def _intensities(exported: ExportedRun) -> Floats:
    """Returns the grid's intensity in every hour of whole days that cover the run, g/kWh."""
    site = exported.site
    per_hour = site.grid_profile.per_hour if site.grid_profile else (site.grid_kgco2e_per_kwh,)
    return np.resize(np.asarray(per_hour) * KILO, _num_days(exported.run) * HOURS_PER_DAY)


def _carbon(intensities: Floats, start: datetime) -> Columns:
    import pyarrow as pa

    times = [start + timedelta(hours=hour) for hour in range(len(intensities))]
    return {"timestamp": pa.array(times, type=pa.timestamp("ms")), "carbon_intensity": intensities}


def _failures(exported: ExportedRun) -> Columns:
    """Returns the interruptions: time since the previous one, time until training resumes, and the share of nodes that stop."""
    run, reliability = exported.run, exported.job.reliability
    events = run.timeline.events
    stops = events.take((events.kind < NUM_INTERRUPTIONS) & ~events.is_background)
    trains = events.take(events.kind == RunEventKind.TRAINING.code)
    later = np.searchsorted(trains.start_s, stops.start_s)
    goes_on_s = np.append(trains.start_s, run.timeline.wall_time_s)[later]
    is_domain = stops.kind == RunEventKind.DOMAIN_FAULT.code
    num_down = np.where(is_domain, reliability.nodes_per_domain, 1.0)
    return {
        "failure_interval": np.diff(np.round(stops.start_s / MILLISECOND), prepend=0.0).astype(np.int64),
        "failure_duration": np.round((goes_on_s - stops.start_s) / MILLISECOND).astype(np.int64),
        "failure_intensity": np.minimum(1.0, num_down / run.num_nodes),
    }


def _power_source(exported: ExportedRun, intensities: Floats, start: datetime) -> Columns:
    """Returns what OpenDC would write every hour for the source of the cluster's power."""
    import pyarrow as pa

    hourly = exported.run.every(HOUR)
    power_w = hourly.power_w + hourly.spares_w
    energy_j, num = power_w * np.diff(hourly.edges_s), len(power_w)
    ends_ms = np.round(hourly.edges_s[1:] / MILLISECOND).astype(np.int64)
    began_ms = int(start.replace(tzinfo=UTC).timestamp() / MILLISECOND)
    return {
        "timestamp": ends_ms,
        "timestamp_absolute": ends_ms + began_ms,
        "source_name": pa.array([exported.source_name] * num),
        "cluster_name": pa.array([exported.cluster_name] * num),
        "power_draw": power_w.astype(np.float32),
        "energy_usage": energy_j.astype(np.float32),
        "carbon_intensity": intensities[:num].astype(np.float32),
        "carbon_emission": (energy_j / JOULES_PER_KWH * intensities[:num]).astype(np.float32),
    }
