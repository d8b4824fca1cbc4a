"""How far above its bound does a simulated objective lie? A smooth function of the knobs, learned from a few designs.

Saves, failures, sends and replica traffic add some tens of per cent to the bounds; ZeRO-3 and missing spares may double
them. A Gaussian process learns the logarithm of that ratio, as in the two-level scheme of Kennedy and O'Hagan (Biometrika
87(1), 2000). It is additive (Duvenaud, Nickisch and Rasmussen, NIPS 2011, arXiv 1112.4394): one term for the layout, and one
for the way to run it, which is learned from all layouts:

    ln value(x) = ln bound(x) + r(x),   r ~ mean + GP(0, (exp(-|x - y|^2 / 2 l^2) + exp(-d(x, y)^2 / 2 l^2)) / 2)

|x - y| compares layouts; d compares scheme, spares, offer and number of accelerators.
"""

from __future__ import annotations

import math
from typing import final

import numpy as np

from simulator.compiled import compiled, inlined
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.layout.micro_batches import num_micro_batches
from simulator.table import Floats

LENGTH_SCALE = 3.0
"""Distance in features over which ratios are correlated."""
NUGGET = 1e-3
"""Variance that the features do not explain, as a share of the total."""
LOG_FEATURES = (
    "num_gpus",
    "tensor_parallel",
    "pipeline_parallel",
    "virtual_pipeline",
    "context_parallel",
    "expert_parallel",
    "micro_batch_size",
)
"""Knobs that enter by their logarithm, as `num_micro_batches` does: two doublings are a distance of 1."""
CHOICES = (
    "offer",
    "recompute",
    "recompute_num_layers",
    "shard_ranks",
    "interleaved_group_size",
    "precision",
    "zero_stage",
    "checkpoint_scheme",
)
"""Categorical knobs, whose values are equal or not."""
FEATURES = (*LOG_FEATURES, "num_micro_batches", "power_cap_fraction", "has_spares", *CHOICES)
"""Features by which designs are compared, column by column."""
NUM_CHOICES = len(CHOICES)
_NUM_FEATURES = len(FEATURES)
_NUM_GPUS, _HAS_SPARES, _OFFER, _ZERO_STAGE, _CHECKPOINT_SCHEME = (
    FEATURES.index(name) for name in ("num_gpus", "has_spares", "offer", "zero_stage", "checkpoint_scheme")
)
UNLIKE_CHOICES = 2.0
"""Squared distance of two designs that differ in one categorical knob."""
UNLIKE_RUNS = 18.0
"""Squared distance of two ways to run that differ in the scheme, or in whether there are spares."""
UNLIKE_SHARDING = 36.0
"""Squared distance of two layouts by ZeRO stage: the ratio of ZeRO-3 says next to nothing about the other stages."""
HOPE = 0.5
"""Standard deviations by which ratios of designs unlike all known ones are assumed to be lower than expected. So regions
known only from a few bad designs are tried again."""
CAP_FACTOR = 2.0
"""Distance between a power cap of 0 and no cap."""


@final
class RatioModel:
    """A Gaussian process through some ratios."""

    def __init__(self, features: Floats, ratios: Floats) -> None:
        """Fits.

        Args:
            features: `FEATURES` of the designs, `(n, f)`, n at least 1.
            ratios: `(n, k)`; the last column is not an objective.
        """
        self.mean: Floats = ratios.mean(axis=0)
        self._features = features
        self._weights = _weights(features, ratios - self.mean)
        # The maximum-likelihood amplitude of the process; optimism does not apply to what no objective measures.
        self._deviation = np.sqrt(np.maximum(0.0, ((ratios - self.mean) * self._weights).mean(axis=0)))
        self._deviation[-1] = 0.0

    def ratios(self, features: Floats) -> Floats:
        """Returns the ratios of designs with features `(m, f)`, `(m, k)`: the expected ones, lowered by `HOPE` if uncertain.

        If c is the correlation with the nearest known design, the deviation is at most sqrt(1 - c^2) times the process's.
        """
        expected, likeness = _expected(features, self._features, self._weights)
        unsure = np.sqrt(np.maximum(0.0, 1.0 - likeness**2))
        return np.asarray(expected + self.mean - HOPE * unsure[:, None] * self._deviation)


def features_of(job: Job, plans: PlanTable) -> Floats:
    """Returns the `FEATURES` of designs as numbers `(n, f)` whose differences measure how different two designs are."""
    columns = {name: np.log2(getattr(plans, name)) / 2.0 for name in LOG_FEATURES}
    columns |= {
        "num_micro_batches": np.log2(num_micro_batches(job.workload, plans)) / 2.0,
        "power_cap_fraction": CAP_FACTOR * plans.power_cap_fraction,
        "has_spares": plans.num_spare_nodes > 0,
    }
    columns |= {name: getattr(plans, name) for name in CHOICES}
    return np.column_stack([columns[name] for name in FEATURES]).astype(np.float64)


@inlined
def _fill_likeness(likeness: Floats, run: Floats, features: Floats, known: Floats) -> None:
    """Covariances `(n,)` of a design with others from features `(f,)`, `(f, n)`; `run` is scratch space of the same size.

    It loops feature by feature, so that the processor compares several designs at once.
    """
    for other in range(len(likeness)):
        run[other] = (features[_NUM_GPUS] - known[_NUM_GPUS, other]) ** 2
        run[other] += UNLIKE_CHOICES if features[_OFFER] != known[_OFFER, other] else 0.0
        run[other] += UNLIKE_RUNS if features[_CHECKPOINT_SCHEME] != known[_CHECKPOINT_SCHEME, other] else 0.0
        run[other] += UNLIKE_RUNS if features[_HAS_SPARES] != known[_HAS_SPARES, other] else 0.0
    likeness[:] = 0.0
    for column in range(_HAS_SPARES):
        for other in range(len(likeness)):
            difference = features[column] - known[column, other]
            likeness[other] += difference * difference
    for column in range(_NUM_FEATURES - NUM_CHOICES, _NUM_FEATURES):
        if column != _CHECKPOINT_SCHEME:
            distance = UNLIKE_SHARDING if column == _ZERO_STAGE else UNLIKE_CHOICES
            for other in range(len(likeness)):
                likeness[other] += distance if features[column] != known[column, other] else 0.0
    scale = -0.5 / LENGTH_SCALE**2
    for other in range(len(likeness)):
        likeness[other] = 0.5 * (math.exp(scale * likeness[other]) + math.exp(scale * run[other]))


@compiled
def _expected(features: Floats, known: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Covariances of designs `(m, f)` with known ones `(n, f)`, times weights `(n, k)`: `(m, k)`; and the largest, `(m,)`."""
    values, largest = np.zeros((len(features), weights.shape[1])), np.zeros(len(features))
    columns, likeness, run = known.T.copy(), np.empty(len(known)), np.empty(len(known))
    for row in range(len(features)):
        _fill_likeness(likeness, run, features[row], columns)
        for other in range(len(known)):
            largest[row] = max(largest[row], likeness[other])
            for column in range(weights.shape[1]):  # summing slices would allocate an array for each pair
                values[row, column] += likeness[other] * weights[other, column]
    return values, largest


@compiled
def _weights(features: Floats, ratios: Floats) -> Floats:
    """Solves covariance x weights = ratios `(n, k)` by Cholesky decomposition, in the same order on all machines; `(n, k)`."""
    size = len(features)
    root = np.zeros((size, size))
    columns, likeness, run = features.T.copy(), np.empty(size), np.empty(size)
    for row in range(size):
        _fill_likeness(likeness, run, features[row], columns)
        for column in range(row + 1):
            value = likeness[column]
            if row == column:
                value += NUGGET
            for inner in range(column):
                value -= root[row, inner] * root[column, inner]
            root[row, column] = math.sqrt(value) if row == column else value / root[column, column]
    weights = ratios.copy()
    for row in range(size):
        for inner in range(row):
            weights[row] -= root[row, inner] * weights[inner]
        weights[row] /= root[row, row]
    for row in range(size - 1, -1, -1):
        for inner in range(row + 1, size):
            weights[row] -= root[inner, row] * weights[inner]
        weights[row] /= root[row, row]
    return weights
