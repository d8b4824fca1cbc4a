"""How far above its bound does a simulated objective lie? A smooth function of the knobs, learned from a few designs.

Saves, failures, sends and the traffic between replicas add some tens of per cent to the bounds. A Gaussian process learns the
logarithm of that ratio, as in the scheme of two levels of simulation by Kennedy and O'Hagan (Biometrika 87(1), 2000):

    ln value(x) = ln bound(x) + r(x),   r ~ mean + GP(0, exp(-|x - y|^2 / 2 l^2))
"""

from __future__ import annotations

import math
from typing import final

import numpy as np

from simulator.activations import num_micro_batches
from simulator.compiled import compiled, inlined
from simulator.job import Job
from simulator.plan import PlanTable
from simulator.table import Floats

LENGTH_SCALE = 3.0
"""Distance in features over which ratios are alike; of 2, 3 and 4 all found the same fronts (docs/studies.md)."""
NUGGET = 1e-3
"""Variance of what the features do not explain, as a share of the whole."""
LOG_FEATURES = (
    "num_gpus",
    "tensor_parallel",
    "pipeline_parallel",
    "virtual_pipeline",
    "context_parallel",
    "expert_parallel",
    "micro_batch_size",
)
"""Knobs that count by their logarithm: two doublings are a distance of 1."""
CHOICES = (
    "offer",
    "recompute",
    "recompute_num_layers",
    "zero_stage",
    "shard_ranks",
    "precision",
    "checkpoint_scheme",
)
"""Knobs whose values are alike or not."""
NUM_CHOICES = len(CHOICES)
CAP_FACTOR = 2.0
"""Distance of a power cap of nothing from none."""


@final
class RatioModel:
    """A Gaussian process through some ratios."""

    def __init__(self, features: Floats, ratios: Floats) -> None:
        """Fits.

        Args:
            features: `(n, f)`, n at least 1.
            ratios: `(n, k)`.
        """
        self.mean: Floats = ratios.mean(axis=0)
        self._features = features
        self._weights = _weights(features, ratios - self.mean)

    def ratios(self, features: Floats) -> Floats:
        """Returns the expected ratios of designs with features `(m, f)`, `(m, k)`."""
        return np.asarray(_expected(features, self._features, self._weights) + self.mean)


def features_of(job: Job, plans: PlanTable) -> Floats:
    """Returns knobs as numbers `(n, f)` whose differences say how unlike two designs are; choices come last."""
    logs = [np.log2(getattr(plans, name)) / 2.0 for name in LOG_FEATURES]
    logs.append(np.log2(num_micro_batches(job.workload, plans)) / 2.0)
    others = [CAP_FACTOR * plans.power_cap_fraction, plans.num_spare_nodes > 0]
    choices = [getattr(plans, name) for name in CHOICES]
    return np.column_stack([*logs, *others, *choices]).astype(np.float64)


@inlined
def _fill_likeness(likeness: Floats, features: Floats, known: Floats) -> None:
    """Covariances `(n,)` of a design with others by features `(f,)`, `(f, n)`: squares of differences, 2 for other choices.

    Feature by feature, so that the processor compares several designs at once.
    """
    likeness[:] = 0.0
    num_numbers = len(features) - NUM_CHOICES
    for column in range(num_numbers):
        for other in range(len(likeness)):
            difference = features[column] - known[column, other]
            likeness[other] += difference * difference
    for column in range(num_numbers, len(features)):
        for other in range(len(likeness)):
            likeness[other] += 2.0 if features[column] != known[column, other] else 0.0
    for other in range(len(likeness)):
        likeness[other] = math.exp(-0.5 * likeness[other] / LENGTH_SCALE**2)


@compiled
def _expected(features: Floats, known: Floats, weights: Floats) -> Floats:
    """Covariances of designs `(m, f)` with known ones `(n, f)`, times weights `(n, k)`; `(m, k)`."""
    values = np.zeros((len(features), weights.shape[1]))
    columns, likeness = known.T.copy(), np.empty(len(known))
    for row in range(len(features)):
        _fill_likeness(likeness, features[row], columns)
        for other in range(len(known)):
            for column in range(weights.shape[1]):  # a sum of slices would make an array for each pair
                values[row, column] += likeness[other] * weights[other, column]
    return values


@compiled
def _weights(features: Floats, ratios: Floats) -> Floats:
    """Solves covariance x weights = ratios `(n, k)` by Cholesky's method, in one order on all machines; `(n, k)`."""
    size = len(features)
    root = np.zeros((size, size))
    columns, likeness = features.T.copy(), np.empty(size)
    for row in range(size):
        _fill_likeness(likeness, features[row], columns)
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
