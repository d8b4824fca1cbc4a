"""How far above its bound does a simulated objective lie? A smooth function of the knobs, learned from a few designs.

Saves, failures, sends and the traffic between replicas add some tens of per cent to the bounds. A Gaussian process learns the
logarithm of that ratio, as in the scheme of two levels of simulation by Kennedy and O'Hagan (Biometrika 87(1), 2000):

    ln value(x) = ln bound(x) + r(x),   r ~ mean + GP(0, exp(-|x - y|^2 / 2 l^2))
"""

from __future__ import annotations

from typing import final

import numpy as np

from simulator.activations import num_micro_batches
from simulator.hardware import Precision
from simulator.job import Job
from simulator.plan import CheckpointScheme, PlanTable, Recompute
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
CAP_FACTOR = 2.0
"""Distance of a power cap of nothing from none."""


@final
class RatioModel:
    """A Gaussian process through some ratios."""

    def __init__(self, features: Floats, ratios: Floats) -> None:
        """Fits.

        Args:
            features: `(n, f)`.
            ratios: `(n, k)`.
        """
        self.mean: Floats = ratios.mean(axis=0)
        self._features = features
        covariance = _covariance(features, features) + NUGGET * np.eye(len(features))
        self._weights: Floats = np.linalg.solve(covariance, ratios - self.mean)

    def ratios(self, features: Floats) -> Floats:
        """Returns the expected ratios of designs with features `(m, f)`, `(m, k)`."""
        return np.asarray(_covariance(features, self._features) @ self._weights + self.mean)


def _covariance(first: Floats, second: Floats) -> Floats:
    """Likeness of designs by their features, `(n, m)`."""
    squares = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1) - 2.0 * first @ second.T
    return np.asarray(np.exp(np.maximum(squares, 0.0) * (-0.5 / LENGTH_SCALE**2)))


def features_of(job: Job, plans: PlanTable) -> Floats:
    """Knobs as numbers `(n, f)` whose differences say how unlike two designs are; choices are one column each."""
    logs = [np.log2(getattr(plans, name)) / 2.0 for name in LOG_FEATURES]
    logs.append(np.log2(num_micro_batches(job.workload, plans)) / 2.0)
    choices = {
        "offer": len(job.offers),
        "recompute": len(Recompute),
        "zero_stage": 4,
        "precision": len(Precision),
        "checkpoint_scheme": len(CheckpointScheme),
    }
    hot = [getattr(plans, name)[:, None] == np.arange(size) for name, size in choices.items()]
    others = [CAP_FACTOR * plans.power_cap_fraction, plans.num_spare_nodes > 0]
    return np.column_stack([*logs, *hot, *others]).astype(np.float64)
