"""How did the tokens of a measured run reach their experts? As its columns and notes say, or by its framework's habit."""

from __future__ import annotations

import re

from planner.measured.cells import notes as measured_notes
from planner.measured.cells.told import Told
from planner.measured.cells.words import affirmed
from planner.measured.frameworks.habits import Habits
from planner.measured.hardware.nodes import MeasuredNode
from planner.measured.workload.shape import has_experts
from simulator.domain.model import ModelShape

BALANCED = 1.0
"""The capacity that balanced routing fills, which is that of experts that drop tokens where nothing says which."""
_DROPS_TOKENS = re.compile(
    r"tokens?[- ]?drop(?![^;]*\bnot stated)|drop(?:s|ped|ping)?[- ]tokens?|tokens (?:is |are |were )?dropped",
    re.IGNORECASE,
)
_CAPACITY = re.compile(
    r"(?:capacity[-_ ]factor(?: of)?|\b(?:capacity|cf)(?=[ =:]*\d\.\d))[ =:]*(\d{1,4}(?:\.\d{1,6})?)",
    re.IGNORECASE,
)


def expert_habits(
    told: Told, known: ModelShape | None, habits: Habits, node: MeasuredNode, *, num_ranks: int
) -> dict[str, object]:
    """Returns how tokens travel, whether anything hides this, and how experts compute; nothing for a dense network.

    Args:
        told: the row.
        known: the catalogue's model of the same name and size.
        habits: those of the framework.
        node: what they ran on.
        num_ranks: ranks that share the experts.
    """
    if not has_experts(told, known):
        if (told.cells.count("etp") or 1) > 1:
            told.remark("etp", "left out: the model has no experts")
        return {}
    notes, capacity = told.text("notes"), _capacity_factor(told)
    is_padded = capacity is not None and habits.pads_to_capacity
    is_hybrid_ep = measured_notes.dispatches_by_hybrid_ep(notes)
    is_hidden = measured_notes.hides_expert_exchange(notes)
    if is_hidden is None:
        is_hidden = told.default(
            "expert_overlap", habits.overlaps_far_experts and num_ranks > node.link_domain_size
        )
    dispatch = measured_notes.expert_dispatch(notes) or ("all_to_all" if is_padded else "")
    across_nodes = habits.dispatch_across_nodes if num_ranks > node.num_accelerators else None
    return {
        "expert_dispatch": dispatch
        or told.default("expert_dispatch", across_nodes or habits.expert_dispatch),
        "expert_products": told.default("expert_products", habits.expert_products),
        "overlaps_expert_exchange": is_hidden,
        "expert_capacity_factor": capacity,
        "fills_expert_rows": is_padded or is_hybrid_ep,
        "gathers_routing_maps": is_hybrid_ep,
        "expert_tensor_parallel": told.cells.count("etp") or measured_notes.expert_tensor_parallel(notes),
        "dispatches_in_8_bits": measured_notes.dispatches_in_8_bits(notes) or habits.dispatches_in_8_bits,
        "overlaps_shared_experts": (
            measured_notes.overlaps_shared_experts(notes) or habits.overlaps_shared_experts
        )
        and not (is_hidden or _reads_latents(known)),
    }


def _reads_latents(known: ModelShape | None) -> bool:
    """Experts that read a latent exclude an exchange behind shared experts."""
    return bool(known and known.experts and known.experts.latent_size)


def _capacity_factor(told: Told) -> float | None:
    """Returns the maximum number of tokens per expert over the mean; `None` if no tokens are dropped."""
    notes = told.text("notes")
    if found := affirmed(_CAPACITY, notes):
        if float(found[1]) < BALANCED:
            told.remark("notes", "capacity factors below 1 are not simulated; taken as 1")
        return max(BALANCED, float(found[1]))
    return BALANCED if affirmed(_DROPS_TOKENS, notes) else None
