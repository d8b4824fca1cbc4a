"""Which machines simulate a study? This process, workers started for it on this machine, or those of a Dask scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from planner.durable import EngineFor
from studies.engine import ThisProcess


@contextmanager
def machines(num_workers: int | None = None, scheduler: str | None = None) -> Iterator[EngineFor]:
    """Gives what `run_study_of` and `resume_study` take as `engine_for`; workers that it starts end with it.

    Args:
        num_workers: processes to start on this machine; none by default.
        scheduler: address of a Dask scheduler with workers of its own; takes precedence.

    Raises:
        EngineError: Dask is missing, nobody answers, or a worker has other code or libraries.
    """
    if scheduler is None and num_workers is None:
        yield ThisProcess
        return
    from studies.distributed import cluster_at, local_cluster

    with cluster_at(scheduler) if scheduler else local_cluster(num_workers or 1) as cluster:
        yield cluster.engine_for
