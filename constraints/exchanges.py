"""Can context-parallel ranks exchange a sequence? The rule `context_exchange` for one choice of degrees."""

from __future__ import annotations

from constraints.layout import split_heads
from simulator.domain.job import Job
from simulator.domain.linear_attention import LinearAttention
from simulator.domain.offer import Offer


def can_exchange(job: Job, offer: Offer, tensor: int, context: int) -> bool:
    """Returns whether ranks that exchange heads have whole heads, and no window rules out a ring."""
    workload, model = job.workload, job.workload.model
    if not _can_exchange_linear(model.linear_attention, tensor, context):
        return False
    if model.compressed_attention and context > 1:
        return False
    near = min(context, max(1, offer.node.link_domain_size // tensor))
    exchanged = {"all_to_all": context, "hybrid": near}.get(workload.chosen_exchange, 1)
    has_ring = context > exchanged and workload.chosen_exchange != "all_gather"
    if has_ring and model.sliding_window:
        return False
    kv_heads = split_heads(model)
    splits = model.num_heads % (tensor * exchanged) == 0 and kv_heads % (tensor * exchanged) == 0
    return exchanged == 1 or (splits and context % exchanged == 0)


def _can_exchange_linear(linear: LinearAttention | None, tensor: int, context: int) -> bool:
    """Whether ranks can exchange heads of linear attention, of Mamba-2 with copies of the same keys if need be."""
    if linear is None:
        return True
    if linear.num_heads % (tensor * context):
        return False
    if linear.kind != "mamba-2":
        return linear.num_key_heads % (tensor * context) == 0
    keys = max(1, linear.num_key_heads // tensor)
    return max(keys, context) % min(keys, context) == 0
