"""How much do the micro-batches of one step differ, and what is the distribution of the factors?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from simulator.domain.straggler_causes import Stragglers
from simulator.shipped import shipped_rows
from simulator.table import Floats

_QUANTILES = (np.arange(20_000) + 0.5) / 20_000


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """Factors of uneven sequences by probability, each direction with mean 1."""

    probability: Floats
    forward: Floats
    backward: Floats

    def factors(self, uniforms: Floats) -> tuple[Floats, Floats]:
        """Returns the factors of forwards and backwards for uniform draws of any shape; one draw gives both directions."""
        return (
            np.interp(uniforms, self.probability, self.forward),
            np.interp(uniforms, self.probability, self.backward),
        )


@cache
def sequence_quantiles() -> Quantiles:
    """Returns the shipped quantiles; a micro-batch that is long forward is also long backward (correlation 0.99)."""
    rows = shipped_rows("data/straggler_sequence.csv")
    probability, forward, backward = (
        np.array([float(row[name]) for row in rows]) for name in ("percentile", "forward", "backward")
    )
    probability /= 100.0
    return Quantiles(
        probability=probability,
        forward=forward / np.trapezoid(forward, probability),
        backward=backward / np.trapezoid(backward, probability),
    )


@cache
def sequence_deviation() -> float:
    """Returns the standard deviation of a micro-batch's forward plus backward, with the backward twice as long."""
    forward, backward = sequence_quantiles().factors(_QUANTILES)
    return float(np.std((forward + 2.0 * backward) / 3.0))


def draw_micro_batches(
    model: Stragglers, shape: tuple[int, ...], draw: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draws the forward and backward factors of micro-batches, each with mean 1."""
    deviation = model.micro_batch_log_deviation
    jitter = np.exp(deviation * draw.standard_normal(shape) - deviation**2 / 2.0)
    if not model.has_uneven_sequences:
        return jitter, jitter
    forward, backward = sequence_quantiles().factors(draw.random(shape))
    return jitter * forward, jitter * backward
