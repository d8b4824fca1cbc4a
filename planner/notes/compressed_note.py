"""What should a reader know of a plan whose attention sees compressed tokens? What chooses nothing, and what is missing."""

from __future__ import annotations

from planner.chosen_kernels import FRAMEWORK
from simulator.domain.job import Job
from simulator.domain.plan import Plan, Recompute

PAGE = "docs/model/compressed-attention.md"


def compressed_notes(job: Job, plan: Plan) -> list[str]:
    """Returns notes on a plan of a model with compressed attention; none for other attention."""
    workload, compressed = job.workload, job.workload.model.compressed_attention
    if compressed is None:
        return []
    without = f"{FRAMEWORK}'s main branch of August 2026 has no attention to compressed tokens"
    notes = [f"{without}: steps are simulated as its branch dev runs them, with fused kernels ({PAGE})."]
    number = compressed.chosen_tokens * compressed.chosen_ratio
    if compressed.num_chosen_layers and number >= workload.sequence_length:
        notes.append(
            f"The indexer chooses nothing: {compressed.chosen_tokens:,} compressed tokens are all of a sequence of "
            f"{workload.sequence_length:,}."
        )
    if plan.recompute is Recompute.SELECTIVE and workload.recomputes_nothing:
        notes.append(
            "Selective recomputation computes nothing again, since the core of compressed attention never is: name "
            "mla_up_proj, layernorm or mhc in workload.recompute_modules."
        )
    return notes
