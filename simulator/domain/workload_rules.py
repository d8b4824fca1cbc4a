"""Which choices of a run contradict its model? Every rule is told with the value that breaks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.domain.workload import Workload


def chosen_tokens_rule(workload: Workload) -> str | None:
    """Returns what attention to chosen tokens excludes; `None` if the run has nothing of it."""
    named = "latent_attention.indexer"
    if workload.attention != "flash":
        return (
            f"attention ({workload.attention}) excludes {named}, which has kernels of its own; leave it out"
        )
    if workload.context_exchange not in (None, "all_gather"):
        return (
            f"context_exchange ({workload.context_exchange}) excludes {named}, which chooses among the keys of all ranks; "
            "leave it out"
        )
    if workload.selective_recompute != "attention":
        return f"selective_recompute ({workload.selective_recompute}) excludes {named}; leave it out"
    return None
