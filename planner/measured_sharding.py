"""What do the replicas of a measured run shard, and within which groups? From what people write in one cell."""

from __future__ import annotations

import re


def zero_stage(written: str) -> int | None:
    """Returns what the replicas shard; `None` where nothing is said."""
    text = written.lower()
    if digit := re.search(r"zero[- _]?(\d)", text) or re.fullmatch(r"([0-3])", text):
        return min(3, int(digit[1]))
    if re.search("fsdp|full_shard|hsdp|hybrid", text):
        return 3
    if re.search("distributed|dist[- _]opt", text):
        return 1
    return 0 if text in ("none", "no", "ddp") else None


def shard_ranks(written: str, *, replicas: int, node_ranks: int) -> int | None:
    """Returns the ranks of a shard group, as written or those of a node; `None` where all replicas are one group.

    Args:
        written: such as `megatron-fsdp shard 8` or `HSDP`.
        replicas: ranks that hold the same weights without sharding.
        node_ranks: those of them that share a node.
    """
    text = written.lower()
    given = re.search(r"shard[ _=]*(\d+)", text)
    if given is None and not re.search("hsdp|hybrid", text):
        return None
    ranks = int(given[1]) if given else node_ranks
    return ranks if 0 < ranks < replicas else None
