"""Which designs of the front are indistinguishable from the recommended one? Those whose order the draws leave open."""

from __future__ import annotations

import numpy as np

from constraints.evaluation import Evaluation
from planner.recommended.comparisons import SURE_FRACTION
from planner.uncertain.drawn_front import drawn_front
from simulator.domain.job import Job
from simulator.table import Booleans, Floats, Integers

BATCH = 60
"""Designs drawn at a time, those nearest to the recommended one first, until no design of a batch is tied with it."""


def tied_designs(job: Job, front: Evaluation, row: int, seed: int) -> Booleans:
    """Returns the designs with no objective that is surely higher or lower than that of a row, without that row, `(n,)`.

    Surely: in `SURE_FRACTION` of the draws or more. What two designs share cancels: all of the error of a step where the
    layout is the same, that of the accelerator where only the accelerator is.

    Args:
        job: the job, for its objectives and ranges.
        front: the designs.
        row: the chosen one.
        seed: of the draws.
    """
    is_tied = np.zeros(len(front), dtype=np.bool_)
    others = _nearest_first(job, front, row)
    if 0 < len(others) < BATCH:  # as many as `input_uncertainty_of` draws, too
        is_tied[others] = _tied(drawn_front(job, front, seed)[1].values, row, others)
        return is_tied
    for start in range(0, len(others), BATCH):
        batch = others[start : start + BATCH]
        _, drawn = drawn_front(job, front.take(np.concatenate([[row], batch])), seed)
        found = _tied(drawn.values, 0, np.arange(1, len(batch) + 1))
        is_tied[batch] = found
        if not found.any():
            break
    return is_tied


def _nearest_first(job: Job, front: Evaluation, row: int) -> Integers:
    """The other rows by the largest ratio of an objective; risks, of which ratios say little, left out."""
    columns = [k for k, objective in enumerate(job.objectives) if not objective.is_risk]
    logs = np.log(np.maximum(front.objectives(job)[:, columns], np.finfo(np.float64).tiny))
    distance = np.abs(logs - logs[row]).max(axis=1, initial=0.0)
    order = np.argsort(distance, kind="stable")
    return np.asarray(order[order != row])


def _tied(values: Floats, row: int, others: Integers) -> Booleans:
    """Which of the others are tied with a row, by draws `(r, n, k)`."""
    return np.asarray(~surely_ordered(values[:, others], values[:, row : row + 1]).any(axis=1))


def surely_ordered(values: Floats, reference: Floats) -> Booleans:
    """Returns which objectives are less in nearly all draws, or more in nearly all, than those of a reference, `(n, k)`.

    Args:
        values: of n designs, `(r, n, k)`.
        reference: of the one that they are compared with, `(r, 1, k)`.
    """
    is_less, is_more = (values < reference).mean(axis=0), (values > reference).mean(axis=0)
    return np.asarray(np.maximum(is_less, is_more) >= SURE_FRACTION)
