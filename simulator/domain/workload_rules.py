"""Which choices of a run contradict its model? Every rule is told with the value that breaks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.domain.workload import Workload


def chosen_tokens_rule(workload: Workload) -> str | None:
    """Returns what attention to chosen tokens excludes; `None` if the run has nothing of it."""
    needed = {
        "attention": ("flash", "whose kernels are its own"),
        "context_exchange": ("all_gather", "which chooses among the keys of all ranks"),
        "selective_recompute": ("attention", "whose core is computed again as a whole"),
    }
    for name, (value, why) in needed.items():
        if (given := getattr(workload, name)) not in (None, value):
            return f"{name} ({given}) excludes latent_attention.indexer, {why}; set {name}: {value}"
    return None
