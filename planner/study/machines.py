"""Where is a study simulated? In this process, by workers started on this machine, or by those of a Dask scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

from planner.input.arguments import check_count, check_text
from studies.evaluation.engine import Engine, ThisProcess

if TYPE_CHECKING:
    from planner.study.durable import Counts
    from simulator.domain.job import Job
    from studies.evaluation.distributed import Cluster


@final
class Machines:
    """What `run_study_of` and `resume_study` take as `engine_for`."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        """Takes over workers; by default there is only this process."""
        self._cluster = cluster

    def __call__(self, job: Job) -> Engine:
        """Returns the engine that simulates the designs of a job."""
        return ThisProcess(job) if self._cluster is None else self._cluster.engine_for(job)

    def idle_note(self, counts: Counts) -> str:
        """Returns a note if there are workers but this process simulated everything; otherwise an empty text."""
        from studies.evaluation.distributed import LEAST_DESIGNS_PER_CHUNK

        if self._cluster is None or self._cluster.has_simulated or counts.num_simulated == 0:
            return ""
        return (
            f"The workers simulated nothing: batches of fewer than {LEAST_DESIGNS_PER_CHUNK:,} designs stay in this process, "
            "and all were smaller. Workers help exhaustive searches and large populations (search.population_size)."
        )


@contextmanager
def machines(num_workers: int | None = None, scheduler: str | None = None) -> Iterator[Machines]:
    """Yields what `run_study_of` and `resume_study` take as `engine_for`; workers started here end with the context.

    Args:
        num_workers: processes to start on this machine; none by default.
        scheduler: address of a Dask scheduler with workers of its own; takes precedence.

    Raises:
        InputError: `num_workers` is not a number of workers, or the address is not text.
        EngineError: Dask is missing, nothing answers, or a worker has other code or libraries.
    """
    _check(num_workers, scheduler)
    if scheduler is None and num_workers is None:
        yield Machines()
        return
    from studies.evaluation.distributed import cluster_at, local_cluster

    with cluster_at(scheduler) if scheduler is not None else local_cluster(num_workers or 1) as cluster:
        yield Machines(cluster)


def _check(num_workers: int | None, scheduler: str | None) -> None:
    if num_workers is not None:
        check_count(num_workers, "num_workers")
    if scheduler is not None:
        check_text(scheduler, "scheduler")
