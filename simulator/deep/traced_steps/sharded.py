"""When are the weights of sharded replicas gathered, and their gradients scattered? Layer by layer, while others compute.

As in fully sharded data parallelism (Zhao et al. 2023) and ZeRO-3 (Rajbhandari et al. 2020), each replica keeps a part of
all weights. A layer computes once its weights are gathered; meanwhile the next layer's weights are gathered. The layer that
was computed last is still there, so the backward pass begins without a gather. Gradients of a layer are reduced to the
replica that keeps their part as soon as they are complete, one layer after another.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from simulator.deep.collectives.schedules import Traffic
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.deep.traces.trace import NO_LAYER, OperatorTrace
from simulator.table import Floats, Integers


@dataclass(kw_only=True)
class ShardedStage:
    """Adds the traffic of one stage's layers, in the order in which they compute. Tasks are `(replicas, parts)`."""

    graph: TaskGraphBuilder
    traffic: Traffic
    ranks: Integers
    """`(replicas, parts)` accelerators of the stage."""
    shape: tuple[int, ...]
    """Numbers of replicas and parts that are played, the first ones."""
    layer_bytes: Floats
    """`(num_layers,)` bytes of weights on one accelerator, once they are gathered."""
    gradient_bytes: Floats
    """`(n,)` bytes of gradients that are complete after each operator."""
    scattered: Integers = field(init=False)
    """Tasks at which the gradients so far are scattered."""
    _begun: Integers = field(init=False)
    """Tasks at which the current layer, and therefore the gather of the next one, may begin."""
    _layer: int = NO_LAYER

    def __post_init__(self) -> None:
        self.scattered = self._begun = np.full(self.shape, NONE)

    def gather(self, layer: int, after: Integers) -> Integers:
        """Adds the gather of a layer that follows some tasks; returns the tasks at which the layer can begin."""
        if layer == self._layer:
            return after
        self._layer = layer
        num_bytes = float(self.layer_bytes[layer])
        if num_bytes == 0.0:
            return after
        there = self.traffic.all_gather(self.ranks.T, num_bytes, self._begun.T).T
        self._begun = self.graph.add("weights ready", after=[after, there]).reshape(after.shape)
        return self._begun

    def scatter(self, operators: Integers, done: Integers) -> None:
        """Adds the scatter of the gradients that `operators`, done at the tasks `done`, have completed."""
        num_bytes = float(self.gradient_bytes[operators].sum())
        if num_bytes > 0.0:
            ready = self.graph.add("gradients ready", after=[done, self.scattered]).reshape(done.shape)
            self.scattered = self.traffic.reduce_scatter(self.ranks.T, num_bytes, ready.T).T


def bytes_of_layers(trace: OperatorTrace, parameter_bytes: Floats) -> tuple[Floats, Floats]:
    """Returns the bytes of the weights of each layer, `(num_layers,)`, and of gradients by operator, `(n,)`.

    Args:
        trace: the trace that has the layers.
        parameter_bytes: `(m,)` bytes of each tensor on one accelerator.
    """
    ready, num_bytes = trace.gradient_ready[trace.parameters], parameter_bytes[trace.parameters]
    by_layer = np.bincount(trace.layer[ready], weights=num_bytes, minlength=trace.num_layers)
    by_operator = np.bincount(ready, weights=num_bytes, minlength=len(trace))
    return np.asarray(by_layer, dtype=np.float64), np.asarray(by_operator, dtype=np.float64)
