"""How are designs simulated on many machines? In chunks over a Dask cluster, with results identical to a single process.

    with local_cluster(4) as cluster:                    # four processes on this machine
    with cluster_at("tcp://10.0.0.1:8786") as cluster:   # the workers of a scheduler
        engine = cluster.engine_for(job)

A chunk whose worker is lost goes to another one. Results are combined in the order of the chunks, so they depend neither on
the number of workers nor on their speed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, final

import numpy as np

from constraints.space import PrunedBlock
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.errors import EngineError
from simulator.simulate import Outcomes, simulate
from simulator.work_parts import equal_parts
from studies.designs.blocks import BlockPart
from studies.designs.payload import from_bytes
from studies.designs.reduction import Reduction, read_reduction
from studies.evaluation.engine import Engine, Pending

if TYPE_CHECKING:
    from distributed import Client, Future

LEAST_DESIGNS_PER_CHUNK: Final = 1_024
"""Smaller batches take less time to simulate than to send there and back, so they stay in the process of the study."""
CHUNKS_PER_WORKER: Final = 2
"""Chunks in flight per worker: one is being simulated while the next one is already there."""
CONNECT_TIMEOUT_S: Final = 10
"""How long the scheduler may take to answer."""
WORKER_TIMEOUT_S: Final = 60.0
"""How long to wait for a worker, at the start and after the last one was lost."""
POLL_S: Final = 2.0
"""Pause between two checks for a live worker."""

Work = Callable[[bytes, str, bytes], bytes]
"""A function of `studies.evaluation.distributed_tasks`."""


@final
class Cluster:
    """The workers of a Dask scheduler, all with the same code as this process."""

    def __init__(self, client: Client, address: str) -> None:
        """Takes over a connection made by `local_cluster` or `cluster_at`.

        Raises:
            EngineError: no worker appears, all of them are lost, or one has other code or libraries.
        """
        self._client = client
        self.address = address
        """Where the scheduler is."""
        self.has_simulated = False
        """Whether any designs were sent there; small batches stay in the process of the study."""
        with self._failures():
            self._wait_for_worker()
            self._check_code()

    @property
    def num_workers(self) -> int:
        """Workers that the scheduler has now."""
        # A lost scheduler does not answer.
        return len(self._client.scheduler_info(n_workers=-1).get("workers", ()))

    def engine_for(self, job: Job) -> Engine:
        """Returns the engine that simulates the designs of a job on these workers."""
        return DaskEngine(job, self)

    def submit(self, work: Work, job: bytes, chunk: bytes) -> Pending[bytes]:
        """Submits a chunk.

        Raises:
            EngineError: the scheduler is gone; while waiting for the result, also: all workers are gone, or the chunk
                has crashed several of them.
        """
        from studies.evaluation.distributed_tasks import own_code

        with self._failures():
            # Not pure: Dask need not check whether it has seen the same chunk before.
            future = self._client.submit(work, job, own_code(), chunk, pure=False)
        return lambda: self._result(future)

    def _result(self, future: Future[bytes]) -> bytes:
        with self._failures():
            while True:
                with suppress(TimeoutError):
                    return future.result(timeout=POLL_S)
                if self.num_workers == 0:
                    self._wait_for_worker()

    def _wait_for_worker(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=WORKER_TIMEOUT_S)
        except TimeoutError:
            raise EngineError(
                f"Dask scheduler {self.address} has no worker (waited {WORKER_TIMEOUT_S:g} s); start one: "
                f"dask worker {self.address} --nthreads 1"
            ) from None

    def _check_code(self) -> None:
        """Raises if a worker has other code; workers that join later check themselves at every chunk."""
        from studies.evaluation.distributed_tasks import own_code

        asked = self._client.run(own_code, on_error="return")
        # A worker that is lost meanwhile does not report its code, and its chunks go to others.
        found = {worker: code for worker, code in asked.items() if not _is_lost(code)}
        if not found:
            raise EngineError(
                f"Dask scheduler {self.address}: all workers ({len(asked)}) were lost at the start, for lack of memory "
                "perhaps: see their logs, then resume"
            )
        others = {worker: code for worker, code in found.items() if code != own_code()}
        if others:
            worker, code = next(iter(others.items()))
            has = f"has other code or libraries (hash {code}, here {own_code()})"
            if isinstance(code, BaseException):
                has = f"has no such version of capplan ({type(code).__name__}: {code})"
            raise EngineError(
                f"Dask scheduler {self.address}: {len(others)} of {len(found)} workers cannot be used: {worker} {has}; "
                "install the same version of capplan and its libraries there, and start the workers again"
            )

    def _failures(self) -> AbstractContextManager[None]:
        return _failures_at(self.address)


@final
class DaskEngine(Engine):
    """Sends designs to the workers of a cluster."""

    def __init__(self, job: Job, cluster: Cluster) -> None:
        """Packs the job, which is sent with every chunk so that workers that join later have it, too."""
        from studies.evaluation.distributed_tasks import packed_job

        self._job = job
        self._packed = packed_job(job)
        self._cluster = cluster

    @property
    def num_ahead(self) -> int:
        """See `Engine.num_ahead`."""
        return CHUNKS_PER_WORKER * self._cluster.num_workers

    def simulate(self, plans: PlanTable, *, is_awaited: bool) -> Pending[Outcomes]:
        """See `Engine.simulate`; an awaited batch is split among all workers if it is large enough."""
        from studies.evaluation.distributed_tasks import packed_plans, simulate_chunk

        if len(plans) < LEAST_DESIGNS_PER_CHUNK:
            return lambda: simulate(self._job, plans)
        self._cluster.has_simulated = True
        num_chunks = (
            min(self._cluster.num_workers, len(plans) // LEAST_DESIGNS_PER_CHUNK) if is_awaited else 1
        )
        parts = equal_parts(self._job, plans, num_chunks) if num_chunks > 1 else [np.arange(len(plans))]
        pending = [
            self._cluster.submit(simulate_chunk, self._packed, packed_plans(plans.take(rows)))
            for rows in parts
        ]
        places = np.argsort(np.concatenate(parts))
        return lambda: Outcomes.concatenate([from_bytes(result()).outcomes() for result in pending]).take(
            places
        )

    def prune(self, number: int) -> Pending[PrunedBlock]:
        """See `Engine.prune`."""
        from studies.evaluation.distributed_tasks import packed_number, prune_block, read_pruned

        pending = self._cluster.submit(prune_block, self._packed, packed_number(number))
        return lambda: read_pruned(pending())

    def reduce(self, part: BlockPart) -> Pending[Reduction]:
        """See `Engine.reduce`."""
        from studies.evaluation.distributed_tasks import packed_part, reduce_part

        self._cluster.has_simulated = True
        pending = self._cluster.submit(reduce_part, self._packed, packed_part(part))
        return lambda: read_reduction(self._job, from_bytes(pending()))


@contextmanager
def local_cluster(num_workers: int) -> Iterator[Cluster]:
    """Runs workers on this machine, a process each, for the duration of the context.

    Raises:
        EngineError: Dask is not installed, or the workers cannot be started.
    """
    _check_installed()
    with _silence(), ExitStack() as stack:
        from distributed import Client, LocalCluster

        with _failures_at("on this machine"):
            workers = stack.enter_context(
                LocalCluster(  # type: ignore[no-untyped-call]
                    n_workers=num_workers,
                    threads_per_worker=1,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                )
            )
            client = stack.enter_context(Client(workers))  # type: ignore[no-untyped-call]
        yield Cluster(client, str(workers.scheduler_address))


@contextmanager
def cluster_at(address: str) -> Iterator[Cluster]:
    """Connects to a scheduler that was started elsewhere and keeps running after the context.

    Args:
        address: such as `tcp://10.0.0.1:8786`.

    Raises:
        EngineError: Dask is not installed, nothing answers, no worker appears, or one has other code.
    """
    _check_installed()
    with _silence(), ExitStack() as stack:
        from distributed import Client

        try:
            client = stack.enter_context(Client(address, timeout=CONNECT_TIMEOUT_S))  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise EngineError(
                f"Dask scheduler {address} does not answer ({error}); see that it runs (dask scheduler) and that its "
                "address is the one that it prints, such as tcp://10.0.0.1:8786"
            ) from error
        yield Cluster(client, address)


def _is_lost(said: object) -> bool:
    """Whether a worker could not be reached: a connection error, which names no file."""
    return isinstance(said, OSError) and said.filename is None


def _check_installed() -> None:
    if find_spec("distributed") is None:
        raise EngineError("Dask is not installed: pip install 'capplan[dask]'")


@contextmanager
def _failures_at(address: str) -> Iterator[None]:
    """Turns every failure of a cluster into an EngineError that says what to do."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError

    try:
        yield
    except KilledWorker as error:
        raise EngineError(
            f"Dask scheduler {address}: one chunk has ended {error.allowed_failures + 1} workers, for lack of memory "
            "perhaps: see their logs, then resume"
        ) from error
    except (FutureCancelledError, OSError) as error:
        raise EngineError(
            f"Dask scheduler {address} is gone ({type(error).__name__}): what was written is kept; start it and its "
            "workers, then resume"
        ) from error


@contextmanager
def _silence() -> Iterator[None]:
    """Keeps Dask's log off the screen; what it says about an error is in the EngineError."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
