"""Which saves survive a failure? The probability that lost nodes do not hold all copies of any shard."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simulator.domain.checkpointing import PeerPlacement
from simulator.table import Booleans, Floats


def peer_survival(
    *, num_nodes: npt.ArrayLike, num_copies: int, num_lost: int, placement: PeerPlacement
) -> Floats:
    """Returns the probability that every shard survives in the memory of another node when some nodes are lost, `(n,)`.

    The lost nodes are random, except that under `CROSS_DOMAIN` nodes of one failure domain never hold the same shard. With k of
    n nodes lost, and H sets of m nodes that hold a shard each, the probability that all of one set are lost is

        C(n - m, k - m) / C(n, k) = product over i < m of (k - i)/(n - i),

    so that P >= 1 - H times this (Gemini, SOSP 2023): exact for k <= m, a lower bound for more.

    Args:
        num_nodes: n, `(n,)` or one.
        num_copies: m, the own one included.
        num_lost: k.
        placement: which nodes hold the copies; under `CROSS_DOMAIN` the lost ones are those of one domain.
    """
    nodes = np.atleast_1d(np.asarray(num_nodes, dtype=np.float64))
    if num_lost < num_copies or placement is PeerPlacement.CROSS_DOMAIN:
        return np.where(nodes > num_lost, 1.0, 0.0)
    lost = np.arange(num_copies, dtype=np.float64)
    one_set = np.prod((num_lost - lost) / np.maximum(nodes[:, None] - lost, 1.0), axis=1)
    expected = _holder_sets(nodes, num_copies, placement) * one_set
    return np.asarray(np.maximum(0.0, 1.0 - expected))  # 0 if all are lost: then one set is, surely


def _holder_sets(nodes: Floats, num_copies: int, placement: PeerPlacement) -> Floats:
    """Number of node sets that hold one shard together; nodes left over by the groups join the last one as a ring (Gemini)."""
    rest = np.mod(nodes, num_copies)
    groups = np.floor(nodes / num_copies) - 1.0 + np.where(rest == 0.0, 1.0, num_copies + rest)
    return nodes if placement is PeerPlacement.RING else groups


def replicas_outlast(
    *, num_copies: npt.ArrayLike, copy_ranks: npt.ArrayLike, lost_ranks: npt.ArrayLike
) -> Booleans:
    """Returns where a whole copy of every stage is left when neighbouring ranks are lost, `(n,)`.

    The copies of a stage are neighbours, t c ranks each, or t z in shard groups: the lost ranks must fit into all but one.
    """
    return np.asarray((np.asarray(num_copies) - 1) * np.asarray(copy_ranks) >= lost_ranks)
