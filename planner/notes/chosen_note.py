"""What should a reader know of a plan whose attention sees chosen tokens? Kernels that are not there, or run otherwise."""

from __future__ import annotations

from planner.chosen_kernels import FRAMEWORK, scores_head_by_head, without_kernels
from simulator.domain.job import Job
from simulator.domain.plan import Plan

PAGE = "docs/model/sparse-attention.md"


def chosen_notes(job: Job, plan: Plan) -> list[str]:
    """Returns notes on a plan of a model with an indexer; none for other attention."""
    workload, indexer = job.workload, job.workload.model.indexer
    if indexer is None:
        return []
    notes = []
    if indexer.chosen_tokens >= workload.sequence_length:
        notes.append(
            f"The indexer chooses nothing: {indexer.chosen_tokens:,} tokens are all of a sequence of "
            f"{workload.sequence_length:,}, and attention to all tokens (without latent_attention.indexer) takes less."
        )
    missing = [f"{path} = {value} {rule}" for path, value, rule in without_kernels(job, plan)]
    if missing:
        notes.append(
            f"{FRAMEWORK} has no kernels for this attention as simulated: {'; '.join(missing)} ({PAGE})."
        )
    elif why := scores_head_by_head(job, plan):
        notes.append(
            f"{FRAMEWORK} of August 2026 computes the indexer's scores head by head in 32 bits where {why}: its steps are "
            f"longer than simulated until that is mended ({PAGE})."
        )
    return notes
