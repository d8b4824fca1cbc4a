"""How does a pipeline respond to slow stages and to uneven micro-batches? In cycles, in nearly closed forms.

A cycle is a forward and a backward of one micro-batch on one stage; p stages, v chunks per stage, m micro-batches.

A slow stage. Every cycle of stage k of a balanced pipeline becomes longer by x cycles. With w = p-1-k stages behind it and f
the share of the forward in a cycle, the step becomes longer by

    last stage, GPipe   m x
    1F1B, v = 1         max(x max(m - w, 1), m x - w f (1 + x))
    1F1B, v > 1         max(x (N - (N-1)/v), m x - w f (1 + x))        N micro-batches of a chunk in turn, p or more
    ZB-H1, ZB-V         x (m - min(w, m) f)
    DualPipeV           x (m - min(w + p - 1, m) f)

The first term of 1F1B is a path through the pipeline without idle time: down to the last stage and back, along stage k for as
long as possible, and down again. The second is stage k busy from its first forward to its last backward. GPipe waits for the
slow stage in every forward and every backward. Under a zero bubble, only the first forwards of a stage, as many as there are
stages behind it, fall into its wait for the first gradient. The forms are exact for GPipe, 1F1B with v = 1, and ZB-H1 from m =
p on where f is a third and x at most 1 (tests compare every stage with the kernel). With v > 1 the form is a lower bound that
the kernel exceeds at the first stages: interleaving leaves slack in every round, so that a slightly slow stage costs almost
nothing. For ZB-V it is an upper bound from m = 2 p on where x is at most a half. The same holds for DualPipeV, where it is
exact at a half; less slow stages fall into the bubble that waiting for whole pairs leaves.

An ideal step is m cycles of the slowest stage, and of other stages

    GPipe, 1F1B         (p - 1) / v
    ZB-H1               f max(p - 1, 2 p - 1 - m)
    ZB-V                f max((p - 1) / 2, 2 p - 1 - m)
    DualPipeV           f (p - 1)                               (p/2 - 1)(F&B + B - 3 W) of p chunks, arXiv 2412.19437, table 2

Uneven micro-batches. Neighbouring stages wait for each other in every cycle while they work on different micro-batches.
`straggler_pipeline.csv` has the mean wait and the excess of the slowest replica, played by `benchmarks/straggler_pipeline.py`
with the pipeline kernel, per standard deviation of a cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from scipy.special import ndtr

from simulator.domain.plan import SPLIT_BACKWARD, Schedule, is_among
from simulator.order_statistics import expected_maximum
from simulator.pipeline.shape import DUAL_PIPE_V, GPIPE, ONE_F_ONE_B, ZB_V
from simulator.shipped import shipped_rows
from simulator.table import Floats, Integers

NoiseKind = Literal["lognormal", "sequences"]

_NUM_REPLICAS = (8, 64, 512, 4096)
"""Columns of the shipped table."""
_TINY = 1e-300
"""Replaces zero noise, relative to which everything would be infinitely far away."""
_FAR = 30.0
"""Gap in deviations beyond which no stage waits."""


def fill_cycles(
    schedule: Integers,
    num_stages: Integers,
    num_chunks: Integers,
    num_micro_batches: Integers,
    forward: Floats,
) -> Floats:
    """Returns how many cycles of other stages an ideal step has in addition to those of the slowest one, `(n,)`.

    Args:
        schedule: codes of `simulator.domain.plan.Schedule`.
        num_stages: p.
        num_chunks: v, of a stage.
        num_micro_batches: m.
        forward: share of the forward in a cycle.
    """
    p, m = num_stages, num_micro_batches
    known = np.where(schedule == ZB_V, (p - 1.0) / 2.0, p - 1.0)
    of_split = forward * np.maximum(known, 2.0 * p - 1.0 - m)
    return np.where(is_among(schedule, SPLIT_BACKWARD), of_split, (p - 1.0) / num_chunks)


@dataclass(frozen=True, kw_only=True)
class Pipelines:
    """Pipelines `(n,)`, or `(n, 1)` where their results are to be `(n, R)`."""

    schedule: Integers
    """Codes of `simulator.domain.plan.Schedule`."""
    num_stages: Integers
    num_chunks_per_stage: Integers
    num_micro_batches: Integers
    group_size: Integers
    """N, micro-batches that an interleaved stage takes through one chunk before the next."""
    forward_fraction: Floats
    """Share of the forward in a cycle."""
    last_cycle: Floats
    """Cycle of the last stage, in mean cycles of the stages; assumed to be the slowest one."""
    other_cycle: Floats
    """Cycle of every other stage, in the same unit."""

    @property
    def gap(self) -> Floats:
        """How much longer the cycle of the slowest stage is."""
        return self.last_cycle - self.other_cycle

    @property
    def fill(self) -> Floats:
        """Cycles of other stages in a step, in addition to those of the slowest one."""
        return fill_cycles(
            self.schedule,
            self.num_stages,
            self.num_chunks_per_stage,
            self.num_micro_batches,
            self.forward_fraction,
        )

    def slow_stage(self, extra: Floats, num_behind: Floats | float) -> Floats:
        """Returns how much longer the step is if every cycle of one stage is longer.

        Args:
            extra: by which every cycle of the stage is longer.
            num_behind: stages behind it; 0 is the last stage, p or more none at all.
        """
        p, v, m, n = self.num_stages, self.num_chunks_per_stage, self.num_micro_batches, self.group_size
        visible = np.maximum(0.0, extra - self.gap)
        num_absorbed = num_behind + np.where(self.schedule == DUAL_PIPE_V, p - 1, 0)
        tight_cycles = np.select(
            [self.schedule == GPIPE, is_among(self.schedule, SPLIT_BACKWARD), v == 1],
            [m, m - np.minimum(num_absorbed, m) * self.forward_fraction, np.maximum(m - num_behind, 1.0)],
            np.minimum(n - (n - 1.0) / v, m),
        )
        throughout = m * visible - num_absorbed * self.forward_fraction * (self.other_cycle + extra)
        of_last = np.where(self.schedule == DUAL_PIPE_V, tight_cycles, m) * extra
        longer = np.where(num_behind == 0, of_last, np.maximum(tight_cycles * visible, throughout))
        return np.asarray(np.where(num_behind < p, longer, 0.0))

    def noise(self, kind: NoiseKind, log_deviation: float, compute_fraction: Floats) -> MicroBatchNoise:
        """Returns the effect of uneven micro-batches with this standard deviation on the pipeline."""
        one = np.ones_like(self.num_stages)
        played = np.zeros((*self.num_stages.shape, 1 + len(_NUM_REPLICAS)))
        for code in np.unique(self.schedule):
            rows = self.schedule == code
            columns = (self.num_chunks_per_stage, self.num_stages, self.num_micro_batches)
            played[rows] = _table(kind, int(code)).at(*(column[rows] for column in columns))
        alone = _table(kind, ONE_F_ONE_B).at(one, one, self.num_micro_batches)
        deviation = log_deviation * compute_fraction
        return MicroBatchNoise(
            num_micro_batches=self.num_micro_batches,
            of_last=deviation * self.last_cycle,
            of_others=deviation * self.other_cycle,
            wait=played[..., 0],
            slowest=played[..., 1:],
            slowest_alone=alone[..., 1:],
        )


@dataclass(frozen=True, kw_only=True)
class MicroBatchNoise:
    """Effect of uneven micro-batches, with the same factors in all stages and both directions; `(n,)`."""

    num_micro_batches: Integers
    of_last: Floats
    """Standard deviation of the last stage's cycle from micro-batch to micro-batch."""
    of_others: Floats
    """Standard deviation of another stage's cycle from micro-batch to micro-batch."""
    wait: Floats
    """Mean wait per micro-batch in a balanced pipeline, in deviations."""
    slowest: Floats
    """`(n, k)`: excess of the slowest of each number in `_NUM_REPLICAS` over the mean replica, in deviations per root of
    micro-batches."""
    slowest_alone: Floats
    """`(n, k)`: as `slowest`, for a single stage, which waits for no other."""

    def waiting(self, gap: Floats) -> Floats:
        """Returns the mean wait in a step.

        If the slowest stage is ahead by a gap g, stages wait only for the excess over it: as much as normal draws with mean o,
        the wait without a gap in deviations, exceed g in a cycle, h(o - g) with h(x) = phi(x) + x Phi(x).
        """
        return np.asarray(self.num_micro_batches * self.of_others * self.wait * self._share(gap))

    def slowest_replica(self, num_replicas: Integers, gap: Floats) -> Floats:
        """Returns the excess of the slowest replica over the mean one.

        Its last stage differs whatever the gap; the contribution of waiting to that shrinks with the fourth root of waiting (by
        eye, on the grid of `tests/simulator/stragglers/test_straggler_play.py`).
        """
        alone = _slowest_of(self.slowest_alone, num_replicas)
        added = np.maximum(0.0, _slowest_of(self.slowest, num_replicas) - alone) * self._share(gap) ** 0.25
        return np.asarray(np.sqrt(self.num_micro_batches) * (self.of_last * alone + self.of_others * added))

    def _share(self, gap: Floats) -> Floats:
        """Share of the waiting that remains with a gap."""
        gaps = np.minimum(gap / np.maximum(self.of_others, _TINY), _FAR)
        return _expected_excess(self.wait - gaps) / _expected_excess(self.wait)


def _expected_excess(mean: Floats) -> Floats:
    """Mean of the positive part of a normal draw of deviation 1."""
    density = np.exp(-0.5 * mean**2) / np.sqrt(2.0 * np.pi)
    return np.asarray(np.maximum(0.0, density + mean * ndtr(mean)))


def _slowest_of(known: Floats, num_replicas: Integers) -> Floats:
    """Interpolates `(n, k)` in the expected maximum of that number of normal draws; extrapolates linearly beyond the table."""
    z, grid = expected_maximum(num_replicas), expected_maximum(_NUM_REPLICAS)
    found = z / grid[0] * known[..., 0]
    for index in range(1, len(grid)):
        slope = (known[..., index] - known[..., index - 1]) / (grid[index] - grid[index - 1])
        found = np.where(z > grid[index - 1], known[..., index - 1] + slope * (z - grid[index - 1]), found)
    return np.asarray(found)


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Played pipelines of one kind of noise by log2 of v, p and m/p."""

    axes: tuple[Floats, Floats, Floats]
    """Logarithms of consecutive powers of two."""
    values: Floats
    """`(V, P, M, 1 + len(_NUM_REPLICAS))`: the wait, then the slowest of each number of replicas."""

    def at(self, chunks: Integers, stages: Integers, micro_batches: Integers) -> Floats:
        """Looks up pipelines `(n,)`, each distinct one once; returns `(n, 1 + k)`."""
        columns = (chunks, stages, micro_batches)
        # Designs are many, shapes few. Each shape gets one number, because sorting rows would take longer than everything else.
        scale = micro_batches.max(initial=1) + 1
        keys = (chunks * (stages.max(initial=1) + 1) + stages) * scale + micro_batches
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        return self._interpolate(*(column.ravel()[first] for column in columns))[inverse.reshape(keys.shape)]

    def _interpolate(self, chunks: Integers, stages: Integers, micro_batches: Integers) -> Floats:
        """Interpolates between the eight neighbours; clamps at the edges of the table."""
        positions = (np.log2(chunks), np.log2(stages), np.log2(micro_batches / stages))
        sides = [_neighbours(axis, position) for axis, position in zip(self.axes, positions, strict=True)]
        found = np.zeros((*positions[0].shape, self.values.shape[-1]))
        for corner in np.ndindex(2, 2, 2):
            shares = [
                share if upper else 1.0 - share for upper, (_, share) in zip(corner, sides, strict=True)
            ]
            where = tuple(
                np.minimum(low + upper, len(axis) - 1)
                for axis, upper, (low, _) in zip(self.axes, corner, sides, strict=True)
            )
            found += (shares[0] * shares[1] * shares[2])[..., None] * self.values[where]
        return found


def _neighbours(axis: Floats, position: Floats) -> tuple[Integers, Floats]:
    """Returns the index of the grid point below each position, and the fraction of the way to the next one, 1 further."""
    inside = np.clip(position, axis[0], axis[-1])
    low = (inside - axis[0]).astype(np.int64)
    return low, np.asarray(inside - axis[low])


@cache
def _table(kind: NoiseKind, schedule: int) -> _Table:
    """Returns the part of the shipped table for a schedule; its rows are in the order of their first columns."""
    key = (kind, tuple(Schedule)[schedule].value)
    rows = [
        row for row in shipped_rows("data/straggler_pipeline.csv") if (row["kind"], row["schedule"]) == key
    ]
    chunks, stages, per_stage = (
        np.log2(sorted({float(row[name]) for row in rows}))
        for name in ("chunks_per_stage", "stages", "micro_batches_per_stage")
    )
    names = ("waiting", *(f"slowest_of_{count}" for count in _NUM_REPLICAS))
    values = np.array([[float(row[name]) for name in names] for row in rows])
    return _Table(
        axes=(chunks, stages, per_stage),
        values=values.reshape(len(chunks), len(stages), len(per_stage), len(names)),
    )
