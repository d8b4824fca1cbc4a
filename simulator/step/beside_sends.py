"""How much longer do the collectives of a pass take while sends between stages use its network cards?

Where a stage continues while it sends (interleaved and zero-bubble schedules), a send q of the previous pass is on the cards
together with each pass x. The collectives of the pass wait for it as for other traffic there (`simulator.step.link_waits`):

    pass = x + w' min(1, q/x)

Incoming sends use the other direction of the cards. They also arrive as a pass ends that waits for them, when the stage's own
send leaves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.layers.part_times import PartTimes
from simulator.machine.rank import Rank
from simulator.step.link_waits import WAYS, OnLink
from simulator.step.model_parts import ModelParts
from simulator.table import Booleans, Floats
from simulator.traffic.layer_collectives import Directions
from simulator.traffic.stage_sends import send_card_s, sends_block


def has_sends_beside(rank: Rank) -> Booleans:
    """Returns which designs have sends on network cards while their stages continue, `(n,)`."""
    return np.asarray(~sends_block(rank) & (send_card_s(rank) > 0.0))


def with_sends_beside(rank: Rank, parts: ModelParts, cards: OnLink | None) -> ModelParts:
    """Returns parts whose collectives take as long as they do next to sends."""
    is_beside = has_sends_beside(rank)
    if cards is None or not is_beside.any():
        return parts
    num_passes = 2.0 * rank.plans.pipeline_parallel * rank.plans.virtual_pipeline
    pass_s = parts.total("forward_s", "backward_s") / num_passes
    share = is_beside * np.minimum(1.0, send_card_s(rank) / pass_s)
    waits_s = zip(share * cards.waited_s[0], share * cards.waited_s[1], strict=True)
    times = {
        kind: _longer(times, wait_s)
        for (kind, times), wait_s in zip(parts.times.items(), waits_s, strict=True)
    }
    return replace(parts, times=times)


def _longer(times: PartTimes, waits_s: Directions) -> PartTimes:
    """Times of a part whose collectives take longer; tensor and expert parallelism share the increase in proportion."""
    changes: dict[str, Floats] = {}
    for way, wait_s in zip(WAYS, waits_s, strict=True):
        tensor_s, expert_s = (getattr(times, f"{way}_{name}_comm_s") for name in ("tensor", "expert"))
        shown_s = tensor_s + expert_s
        of_experts = np.divide(expert_s, shown_s, out=np.zeros_like(shown_s), where=shown_s > 0.0)
        changes[f"{way}_tensor_comm_s"] = tensor_s + (1.0 - of_experts) * wait_s
        changes[f"{way}_expert_comm_s"] = expert_s + of_experts * wait_s
    return replace(times, **changes)
