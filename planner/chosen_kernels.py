"""Does Megatron-LM have the kernels with which attention to chosen tokens is simulated, and does it run them as simulated?

As of August 2026 (`dsa_cudnn_kernels.py` of Megatron Core, with FlashMLA and the cuDNN frontend).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.shared_choices import shares_choices
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.layout.kept_inputs import WIDE_BYTES
from simulator.layout.micro_batches import micro_batch_tokens
from simulator.memory.indexer_widths import MOST_SCORE_BYTES

FRAMEWORK = "Megatron-LM"
HEAD_TILES = {"hopper": 64, "blackwell": 128}
"""Heads of a rank, or a multiple or a divisor of them, that its kernels for chosen tokens take, by family of accelerators."""
CHOSEN_LATENT = 512
"""Width of the latents that these kernels take."""


def without_kernels(job: Job, plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Yields path, value and rule of everything in a plan that these kernels do not take."""
    model, accelerator = job.workload.model, job.offers[plan.offer].accelerator
    assert model.latent_attention is not None
    tile, heads = HEAD_TILES.get(accelerator.kernel_family), model.num_heads // plan.tensor_parallel
    if tile is None:
        rule = f"{FRAMEWORK} has fused attention to chosen tokens on Hopper and Blackwell; take an offer of these"
        yield f"offers[{plan.offer}].accelerator", accelerator.id, rule
    elif heads % tile and tile % heads:
        rule = f"leaves {heads} heads to a rank, and attention to chosen tokens takes divisors and multiples of {tile}"
        yield "tensor_parallel", str(plan.tensor_parallel), rule
    if (width := model.latent_attention.key_value_rank) != CHOSEN_LATENT:
        rule = f"must be {CHOSEN_LATENT} for {FRAMEWORK}'s fused attention to chosen tokens"
        yield "workload.model.latent_attention.key_value_rank", str(width), rule


def scores_head_by_head(job: Job, plan: Plan) -> str:
    """Returns why it computes the scores of a plan head by head, which takes longer than simulated; empty where it does not."""
    workload = job.workload
    tokens = micro_batch_tokens(workload, PlanTable.from_plans([plan]))
    if shares_choices(workload.model):
        return "layers share an indexer"
    if plan.context_parallel > 1:
        return "ranks share sequences"
    if workload.documents:
        return "documents are packed"
    is_long = bool(np.any(WIDE_BYTES * tokens * workload.sequence_length > MOST_SCORE_BYTES))
    return "scores take more than 1 GiB" if is_long else ""
