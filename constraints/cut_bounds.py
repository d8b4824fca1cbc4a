"""Which cuts of the layers could fit and be as fast as a given step? All of them, counted first and then listed.

With one chunk on a stage, everything before stage r is the layers up to its first one, however they are cut. So r, a and b
alone decide whether stage r may hold the layers from a to b. Let m be the micro-batches, T = F + B the two passes of the
stage, and S those of the whole model:

    step >= m T + (passes of the layers before the stage)                          any schedule that waits for weight gradients
    step >= m T + (forward passes of the layers before the stage)                  zero bubble
    step >= S + (m - 1) T - (min(p - r, m) - 1) F                                  1F1B

The last bound holds because a stage does min(p - r, m) of its m forward passes before its first backward pass, which waits
until the first micro-batch has passed through the whole model and back (Narayanan et al., arXiv 2104.04473, section 2.2.1).
The bounds leave out sends, replica traffic and the optimizer. The layers of a stage must also fit the memory that remains
after the least that a stage needs otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from constraints.plan_costs import PlanCosts
from constraints.stage_balance import sums_before
from simulator.domain.plan import SPLIT_BACKWARD, Schedule
from simulator.table import Booleans, Floats, Integers

SLACK = 1e-9
"""Share by which sums may differ because of their order."""


@dataclass(frozen=True, kw_only=True)
class FastCuts:
    """The cuts of one plan that could fit the memory and be as fast as a given step."""

    is_allowed: Booleans
    """`(p, L + 1, L + 1)` whether a stage may hold the layers from one place to another."""
    num_endings: Floats
    """`(p + 1, L + 1)` ways to cut the layers after a place into the remaining stages."""

    @property
    def count(self) -> float:
        """Number of cuts; not exact above 2^53."""
        return float(self.num_endings[0, 0])

    def listed(self) -> Integers:
        """Returns all cuts, `(count, p)`; check `count` first."""
        return np.array(list(self._from(0, 0)), dtype=np.int64).reshape(-1, len(self.is_allowed))

    def _from(self, stage: int, start: int) -> Iterator[tuple[int, ...]]:
        if stage == len(self.is_allowed):
            yield ()
            return
        ends = np.flatnonzero(self.is_allowed[stage, start] & (self.num_endings[stage + 1] > 0))
        for end in ends.tolist():
            for rest in self._from(stage + 1, end):
                yield end - start, *rest


def fast_cuts(costs: PlanCosts, *, num_micro_batches: int, schedule: Schedule, step_s: float) -> FastCuts:
    """Returns the cuts with one chunk on a stage whose bounds exceed neither a step nor the memory.

    The first and the last stage may be empty; every other one holds at least one layer.

    Args:
        costs: costs of the layers; one chunk on each of p stages.
        num_micro_batches: m.
        schedule: schedule of the pipeline.
        step_s: step time that the bounds are compared with.
    """
    num_stages, num_places = costs.num_held.shape[1], len(costs.layers.layer_s) + 1
    num_layers = np.arange(num_places) - np.arange(num_places)[:, None]
    is_allowed = np.zeros((num_stages, num_places, num_places), dtype=np.bool_)
    num_endings = np.zeros((num_stages + 1, num_places))
    num_endings[-1, -1] = 1.0
    for stage in reversed(range(num_stages)):
        least = 0 if stage in (0, num_stages - 1) else 1
        is_fast = _bound_s(costs, stage, num_micro_batches, schedule) <= step_s * (1.0 + SLACK)
        is_allowed[stage] = (num_layers >= least) & is_fast & _may_fit(costs, stage)
        num_endings[stage] = is_allowed[stage] @ num_endings[stage + 1]
    return FastCuts(is_allowed=is_allowed, num_endings=num_endings)


def _bound_s(costs: PlanCosts, stage: int, num_micro_batches: int, schedule: Schedule) -> Floats:
    """The least step when a stage has the layers from one place to another, `(L + 1, L + 1)`."""
    layers, num_stages, m = costs.layers, costs.num_held.shape[1], num_micro_batches
    passes_s, forward_s = sums_before(layers.layer_s), sums_before(costs.layer_forward_s)
    ends_s = (stage == 0) * layers.embedding_s + (stage == num_stages - 1) * layers.output_s
    own_s = passes_s - passes_s[:, None] + ends_s
    if schedule in SPLIT_BACKWARD:
        return np.asarray(m * own_s + forward_s[:, None])
    before_s = passes_s[:, None] + (stage > 0) * layers.embedding_s
    bound_s = np.asarray(m * own_s + before_s)
    if schedule is not Schedule.ONE_F_ONE_B:
        return bound_s
    all_s = passes_s[-1] + layers.embedding_s + layers.output_s
    own_forward_s = forward_s - forward_s[:, None] + ends_s  # at most
    num_first = min(num_stages - stage, m)
    return np.asarray(np.maximum(bound_s, all_s + (m - 1) * own_s - (num_first - 1) * own_forward_s))


def _may_fit(costs: PlanCosts, stage: int) -> Booleans:
    """Whether a stage could hold the layers from one place to another, `(L + 1, L + 1)`; an empty range always fits."""
    layers = costs.layers
    bytes_ = sums_before(layers.layer_bytes + costs.num_held[0, stage] * layers.activation_bytes)
    free_bytes = float(costs.most_free_bytes[stage])
    held_bytes = bytes_ - bytes_[:, None]
    return np.asarray((held_bytes <= free_bytes + SLACK * abs(bytes_[-1])) | (held_bytes == 0.0))
