"""Who sends updates to whom? Communication graphs of decentralised training.

A graph is `(e, 2)` pairs of sender and receiver. The three rings are those of Hop (Luo et al., ASPLOS 2019, section 7);
neighbours send to each other both ways.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simulator.errors import InputError, Problem
from simulator.record import Choice
from simulator.table import Integers


class HopGraph(Choice):
    """Graphs that a word can name."""

    RING = "ring"
    """Each worker is joined to the two next to it."""
    RING_BASED = "ring-based"
    """A ring in which each worker is also joined to the one opposite."""
    DOUBLE_RING = "double-ring"
    """Two ring-based graphs of half of the workers each, joined worker by worker."""
    COMPLETE = "complete"
    """Each worker is joined to all others."""


def hop_graph(kind: HopGraph, num_workers: int) -> Integers:
    """Returns a graph, `(e, 2)`.

    Raises:
        InputError: there are too few workers for it, or their number does not divide as it needs.
    """
    half = num_workers // 2
    match kind:
        case HopGraph.RING:
            _require(kind, num_workers, num_workers >= 2, "at least 2 workers")
            return _both_ways(_circle(num_workers))
        case HopGraph.RING_BASED:
            _require(
                kind, num_workers, num_workers >= 2 and num_workers % 2 == 0, "an even number of workers"
            )
            return _both_ways(_circle(num_workers), _opposite(num_workers))
        case HopGraph.DOUBLE_RING:
            _require(kind, num_workers, num_workers >= 4 and num_workers % 4 == 0, "workers in fours")
            one = np.concatenate([_circle(half), _opposite(half)])
            rungs = np.stack([np.arange(half), np.arange(half) + half], axis=1)
            return _both_ways(one, one + half, rungs)
        case HopGraph.COMPLETE:
            _require(kind, num_workers, num_workers >= 2, "at least 2 workers")
            return _both_ways(np.stack(np.triu_indices(num_workers, 1), axis=1))


def checked_graph(pairs: ArrayLike, num_workers: int) -> Integers:
    """Returns a given graph, sorted.

    Raises:
        InputError: a pair names a worker that does not exist, joins a worker to itself or is repeated; a worker sends to
            nobody or hears from nobody.
    """
    edges = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    outside = ((edges < 0) | (edges >= num_workers)).any(axis=1)
    rules = (
        (outside, f"must be two workers, 0 to {num_workers - 1}, sender and receiver"),
        (edges[:, 0] == edges[:, 1], "joins a worker to itself, which needs no message"),
    )
    problems = [
        Problem(path=f"graph[{row}]", value=str(edges[row].tolist()), rule=rule)
        for is_wrong, rule in rules
        for row in np.flatnonzero(is_wrong)[:1].tolist()
    ]
    unique = np.unique(edges, axis=0)
    if len(unique) < len(edges):
        problems.append(Problem(path="graph", value="", rule="names a pair twice"))
    problems += [
        Problem(path="graph", value=f"worker {worker}", rule=f"{what}: add a pair")
        for column, what in ((0, "sends to nobody"), (1, "hears from nobody"))
        for worker in sorted(set(range(num_workers)) - set(edges[:, column].tolist()))[:1]
    ]
    if problems:
        raise InputError(problems)
    return unique


def _require(kind: HopGraph, num_workers: int, is_right: bool, needs: str) -> None:
    if not is_right:
        raise InputError([Problem(path="graph", value=kind.value, rule=f"needs {needs}, not {num_workers}")])


def _circle(num_workers: int) -> Integers:
    workers = np.arange(num_workers)
    return np.stack([workers, (workers + 1) % num_workers], axis=1)


def _opposite(num_workers: int) -> Integers:
    workers = np.arange(num_workers // 2)
    return np.stack([workers, workers + num_workers // 2], axis=1)


def _both_ways(*parts: Integers) -> Integers:
    """Pairs and their reverses, each once; with two or four workers some pairs of a ring coincide."""
    pairs = np.concatenate(parts)
    return np.asarray(np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0))
