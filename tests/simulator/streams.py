"""Which models with hyper-connections do the simulator's tests use? Small ones of every kind of block."""

from __future__ import annotations

from simulator.domain.hyper_connections import HyperConnections
from simulator.domain.model import ModelShape
from tests.simulator.builders import changed, gpt
from tests.simulator.deep.plan_cases import MIXTURE
from tests.simulator.sparse import DENSE

FOUR_STREAMS = HyperConnections(num_streams=4, sinkhorn_iterations=20)


def with_streams(model: ModelShape, hyper: HyperConnections = FOUR_STREAMS) -> ModelShape:
    """Returns a model whose residual has several streams."""
    return changed(model, hyper_connections=hyper)


PLAIN = changed(gpt(num_layers=8), is_gated=True)
"""A dense model with one stream."""
STREAMS = with_streams(PLAIN)
"""The same with four."""
MIXED_STREAMS = with_streams(changed(MIXTURE, is_gated=True))
"""Experts behind four streams."""
LATENT_STREAMS = with_streams(DENSE)
"""Latent attention behind four streams."""
