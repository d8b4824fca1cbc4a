"""What does a worker of a cluster do with a chunk of designs? It simulates them and returns columns as bytes.

Only functions of this module are sent to workers, by name; their arguments and results are texts and serialised columns. A
worker whose code or libraries differ from the study's rejects every chunk.
"""

from __future__ import annotations

import json
import platform
import struct
import threading
import zlib
from functools import lru_cache

import numpy as np
from numba import set_num_threads

from constraints.space import PrunedBlock
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.errors import EngineError
from simulator.simulate import simulate
from studies.designs.blocks import BlockPart, BlockWorker
from studies.designs.payload import PLANS, from_bytes, parts_of, to_bytes
from studies.files.identity import SEARCH_LIBRARIES, SEARCH_ROOMS, code_hash

_ONE_AT_A_TIME = threading.Lock()
"""Numba's thread pool cannot be called from several threads of a process."""
_NUMBERS = struct.Struct("<QQQ")
_NUMBER = struct.Struct("<Q")
PRUNED_COUNTS = ("num_layouts", "num_kept", "num_designs", "num_pruned")
"""What is sent of a pruned block in addition to its bits."""


def own_code() -> str:
    """Returns the hash of the code and libraries of this process; equal hashes give equal results."""
    return code_hash(SEARCH_ROOMS, SEARCH_LIBRARIES)


def packed_job(job: Job) -> bytes:
    """Returns a job as sent with every chunk, about 3 kB."""
    return zlib.compress(job.model_dump_json().encode())


def packed_plans(plans: PlanTable) -> bytes:
    """Returns designs as sent to a worker."""
    return to_bytes({PLANS: plans})


def simulate_chunk(job: bytes, code: str, designs: bytes) -> bytes:
    """Simulates designs and returns their outcomes.

    Args:
        job: from `packed_job`.
        code: `own_code` of the study's process.
        designs: from `packed_plans`.

    Raises:
        EngineError: this worker has other code.
    """
    _check_code(code)
    with _ONE_AT_A_TIME:
        set_num_threads(1)  # a machine has one worker per core
        return to_bytes(parts_of(simulate(_job_of(job), from_bytes(designs).plans())))


def reduce_part(job: bytes, code: str, part: bytes) -> bytes:
    """Returns the front and the counts of a part of the space, from `packed_part`; see `simulate_chunk`."""
    _check_code(code)
    with _ONE_AT_A_TIME:
        set_num_threads(1)
        return _worker_of(job).reduce(_part_of(part)).to_bytes()


def prune_block(job: bytes, code: str, number: bytes) -> bytes:
    """Prunes a block, from `packed_number`; `read_pruned` reads the result. See `simulate_chunk`."""
    _check_code(code)
    with _ONE_AT_A_TIME:
        set_num_threads(1)
        found = _worker_of(job).prune(*_NUMBER.unpack(number))
    head = json.dumps({name: getattr(found, name) for name in PRUNED_COUNTS}).encode()
    return _NUMBER.pack(len(head)) + head + zlib.compress(found.kept_bits.tobytes(), 1)


def _check_code(code: str) -> None:
    """Raises an EngineError if the code of this process differs from the study's."""
    if own_code() != code:
        raise EngineError(
            f"a Dask worker on {platform.node()} has other code or libraries than the study (hash {own_code()}, not "
            f"{code}): install the same version there, start the worker again, then resume"
        )


def packed_part(part: BlockPart) -> bytes:
    """Returns a part of a space as sent to a worker: three numbers and one bit for each layout of its block."""
    return zlib.compress(_NUMBERS.pack(part.number, part.first, part.last) + part.kept)


def packed_number(number: int) -> bytes:
    """Returns the number of a block as sent to a worker."""
    return _NUMBER.pack(number)


def read_pruned(payload: bytes) -> PrunedBlock:
    """Reads the result of `prune_block`."""
    (size,) = _NUMBER.unpack_from(payload)
    head, bits = payload[_NUMBER.size : _NUMBER.size + size], payload[_NUMBER.size + size :]
    return PrunedBlock(**json.loads(head), kept_bits=np.frombuffer(zlib.decompress(bits), dtype=np.uint8))


def _part_of(packed: bytes) -> BlockPart:
    payload = zlib.decompress(packed)
    number, first, last = _NUMBERS.unpack_from(payload)
    return BlockPart(number=number, first=first, last=last, kept=payload[_NUMBERS.size :])


@lru_cache(maxsize=1)
def _worker_of(packed: bytes) -> BlockWorker:
    return BlockWorker(_job_of(packed))


@lru_cache(maxsize=4)
def _job_of(packed: bytes) -> Job:
    return Job.model_validate_json(zlib.decompress(packed))
