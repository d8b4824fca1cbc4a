"""When are two studies the same, and when can one reuse the simulations of another? Hashes of their content.

    simulation   what simulated designs depend on: workload, hardware on offer, storage, site, reliability, simulator
    job          the whole question, with the space that its search spans, limits, prices and objectives
    code         everything that decides which designs are tried: all packages below the planner, and the libraries
    study        job, code, seed, and which designs are kept

Equal hashes mean equal results to the last bit on one machine type. Only the code that began a study can continue it.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Literal, Self

from simulator.domain.job import Job

Keep = Literal["all", "front"]
"""Which designs a study keeps: all, or the front of every block of designs, with counts."""

NUM_DIGITS = 16
"""Hexadecimal digits of a hash: two of a million studies share 64 bits with a probability of 3e-8."""
NUM_LABEL_DIGITS = 6
"""Digits of a hash for human readers: enough to distinguish the studies of one job name."""
SIMULATION_ROOMS = ("simulator",)
SEARCH_ROOMS = ("simulator", "objectives", "constraints", "studies")
SIMULATION_LIBRARIES = ("numpy", "numba", "scipy")
SEARCH_LIBRARIES = (*SIMULATION_LIBRARIES, "moocore", "pymoo", "optuna", "ortools")
FIELDS_NOT_SIMULATED = ("name", "limits", "objectives", "preference", "search", "ownership")
OFFER_FIELDS_NOT_SIMULATED = ("num_gpus", "rent_usd_per_gpu_hour", "purchase_usd_per_node", "price_source")
"""Fields of a job and of its offers that affect which designs are tried and how they score, but not their simulation."""
SOURCE_SUFFIXES = (".py", ".csv", ".yaml")
"""Files of a package on which results depend: code, catalogue and fitted constants."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The hashes of one study, hexadecimal."""

    simulation: str
    """Hash of everything on which simulated designs depend."""
    job: str
    """Hash of the whole question."""
    code: str
    """Hash of the code and the libraries that answer it."""
    seed: int
    """Seed of everything random."""
    keep: Keep = "all"
    """Which designs are kept; this changes the contents of the journal and of MLflow, but not the answer."""

    @classmethod
    def of(cls, job: Job, seed: int, keep: Keep = "all") -> Self:
        """Returns the identity of a study of this job by the code that is running."""
        return cls(
            simulation=hash_of([_simulated_part(job), code_hash(SIMULATION_ROOMS, SIMULATION_LIBRARIES)]),
            job=job_hash(job),
            code=code_hash(SEARCH_ROOMS, SEARCH_LIBRARIES),
            seed=seed,
            keep=keep,
        )

    @property
    def study(self) -> str:
        """Hash of the study as a whole."""
        return study_hash(self.job, self.code, str(self.seed), self.keep)


def job_hash(job: Job) -> str:
    """Returns the hash of a whole question."""
    return hash_of([job.model_dump_json()])


def study_label(job: Job) -> str:
    """Returns the name of a study's run, also in the names of its designs: its job, and the start of the job's hash."""
    return f"{job.name} {job_hash(job)[:NUM_LABEL_DIGITS]}"


@cache
def code_hash(rooms: tuple[str, ...], libraries: tuple[str, ...]) -> str:
    """Returns the hash of all source and data files of some packages and of the versions of some libraries."""
    versions = [f"{name} {metadata.version(name)}" for name in libraries]
    return hash_of([platform.machine(), *versions, *(part for room in rooms for part in _sources(room))])


def study_hash(job_hash: str, code: str, seed: str, keep: str = "all") -> str:
    """Returns the hash of a study from the hashes of its job and code, its seed, and what it keeps."""
    return hash_of([job_hash, code, seed, *([] if keep == "all" else [keep])])


def _sources(room: str) -> Iterable[str]:
    """Yields names and hashes of a package's files, in an order that does not depend on the file system."""
    folder = Path(str(import_module(room).__file__)).parent
    for file in sorted(folder.rglob("*"), key=lambda file: file.relative_to(folder).as_posix()):
        if file.suffix in SOURCE_SUFFIXES:
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            yield f"{room}/{file.relative_to(folder).as_posix()} {content}"


def _simulated_part(job: Job) -> str:
    """What `simulator.simulate` may read of a job, as text; new fields are included until they are excluded here."""
    offers = {"__all__": set(OFFER_FIELDS_NOT_SIMULATED)}
    return job.model_dump_json(exclude={**dict.fromkeys(FIELDS_NOT_SIMULATED, True), "offers": offers})


def hash_of(parts: Iterable[str]) -> str:
    """Returns the hash of a sequence of texts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)} ".encode())
        digest.update(part.encode())
    return digest.hexdigest()[:NUM_DIGITS]
