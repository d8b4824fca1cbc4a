"""In which groups do interleaved stages run micro-batches through their chunks, and which group sizes fit?

A stage of v chunks runs N micro-batches through its first chunk, the same N through the next one, and so on; then the next N.
Narayanan et al. (arXiv 2104.04473) use N = p. Megatron Core allows larger N (`microbatch_group_size_per_vp_stage`), as in Llama
3 (arXiv 2407.21783, section 3.3.2): a stage then holds more activations, sends hide behind N - p passes, and p need not divide
m. With N = m all micro-batches pass one chunk before the next (breadth-first: Lamy-Poirier, arXiv 2211.05953).
"""

from __future__ import annotations

import numpy as np

from simulator.errors import Problem
from simulator.table import Booleans, Integers


def has_fitting_groups(num_stages: Integers, num_micro_batches: Integers, group_size: Integers) -> Booleans:
    """Returns whether groups of N fit, `(n,)`: p <= N <= m, and m mod N is 0 or at least p.

    With smaller groups, stages would wait for results that they sent themselves; Megatron Core refuses them
    (`forward_backward_pipelining_with_interleaving`).
    """
    return np.asarray(groups_excess(num_stages, num_micro_batches, group_size) == 0.0)


def groups_excess(num_stages: Integers, num_micro_batches: Integers, group_size: Integers) -> Integers:
    """Returns how far groups of N >= 1 are from fitting, in micro-batches, `(n,)`; 0 fits."""
    p, m, n = num_stages, num_micro_batches, group_size
    left = np.mod(m, n)
    lacking = np.where(left > 0, np.minimum(left, np.maximum(0, p - left)), 0)
    return np.asarray(np.maximum(0, p - n) + np.maximum(0, n - m) + lacking)


def groups_problem(num_stages: int, num_micro_batches: int, group_size: int) -> Problem:
    """Returns what is wrong with groups that do not fit."""
    p, m, n = num_stages, num_micro_batches, group_size
    if n == p:
        rule = f"must be a multiple of num_stages ({p}) when a stage has several chunks"
        return Problem(path="num_micro_batches", value=str(m), rule=rule)
    rule = f"must be from num_stages ({p}) to num_micro_batches ({m}), and leave none of these over, or {p} and more"
    return Problem(path="group_size", value=str(n), rule=rule)


def last_group_size(num_micro_batches: Integers, group_size: Integers) -> Integers:
    """Returns the number of micro-batches in the last group, `(n,)`."""
    return num_micro_batches - (num_micro_batches - 1) // group_size * group_size
