"""How much memory does each pipeline stage need on its accelerators, and on its hosts? By component."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from constraints.evaluation import Evaluation
from planner.recommended.design_words import part_words
from planner.text import human
from simulator.domain.job import Job
from simulator.machine.offer_table import OfferTable
from simulator.memory.peak import memory_by_stage
from simulator.record import Record
from simulator.step.offload import offloaded_bytes_per_node


class StageMemory(Record):
    """Memory of one accelerator of a stage."""

    stage: int
    """Number of the stage, from 0."""
    parts_bytes: dict[str, float]
    """Bytes by component, named as in `memory_bytes` of the design."""
    peak_bytes: float
    """Sum of the components."""


class HostMemory(Record):
    """Main memory of the fullest node."""

    saves_bytes: float
    """Copies of saves under way and kept."""
    offloaded_bytes: float
    """Activations and optimizer states that are not on the accelerators."""
    capacity_bytes: float
    """What the node has."""


def stage_memory(job: Job, evaluation: Evaluation) -> tuple[StageMemory, ...]:
    """Returns the memory of every stage of a plan, evaluated in one row, from the first stage to the last."""
    table = memory_by_stage(job.workload, evaluation.plans.plan(0))
    columns = {name: column.tolist() for name, column in table.columns().items()}
    return tuple(
        StageMemory(
            stage=row,
            parts_bytes={name: values[row] for name, values in columns.items()},
            peak_bytes=peak,
        )
        for row, peak in enumerate(table.peak_bytes.tolist())
    )


def host_memory(job: Job, evaluation: Evaluation) -> HostMemory:
    """Returns what the fullest node of a plan, evaluated in one row, keeps in main memory."""
    offers = OfferTable.from_job(job).take(evaluation.plans.offer)
    offloaded = offloaded_bytes_per_node(job, evaluation.plans, offers)
    return HostMemory(
        saves_bytes=float(evaluation.outcomes.checkpoints.host_memory_bytes[0]),
        offloaded_bytes=float(offloaded[0]),
        capacity_bytes=job.offers[int(evaluation.plans.offer[0])].node.host_memory_bytes,
    )


def stage_rows(stages: Sequence[StageMemory]) -> Iterator[tuple[str, ...]]:
    """Yields a line for all stages in a row that hold the same: their numbers, the sum, and the components."""
    for _, members in groupby(stages, key=lambda stage: stage.parts_bytes):
        alike = list(members)
        first, last = alike[0], alike[-1]
        name = f"stage {first.stage}" if first is last else f"stages {first.stage} to {last.stage}"
        parts = (
            f"{part_words(part)} {human.memory(value)}"
            for part, value in first.parts_bytes.items()
            if value > 0.0
        )
        yield name, human.memory(first.peak_bytes), ", ".join(parts)


def host_text(host: HostMemory) -> str:
    """Returns the memory of a host in one line."""
    used = host.saves_bytes + host.offloaded_bytes
    return (
        f"{human.memory(used)} of {human.memory(host.capacity_bytes)} of a node: saves {human.memory(host.saves_bytes)}, "
        f"offloaded {human.memory(host.offloaded_bytes)}"
    )
