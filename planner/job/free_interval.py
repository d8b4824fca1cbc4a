"""Which job leaves open how often the training state is saved? The one without an interval of its own."""

from __future__ import annotations

from simulator.domain.job import Job


def without_interval(job: Job) -> Job:
    """Returns the job without an interval of its own between saves, so that the one that loses least is chosen."""
    none = {"interval_s": None, "interval_steps": None}
    return job.model_copy(update={"checkpointing": job.checkpointing.model_copy(update=none)})
