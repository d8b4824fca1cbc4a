"""How long do the biases of routed experts take when no product adds them?

Transformer Engine adds the biases of the experts' first product in the product itself. Those of the second must first be
weighted by the router: Megatron Core (`TEGroupedMLP._apply_bias`) adds them with PyTorch operators, expert by expert, in the
format of the router's weights, which DeepEP and Hybrid-EP deliver in 32 bits. Bytes per value that experts return:

                    32 bits                                                     16 bits
    forward         product 4, sum 10, concatenation 8, back to 16 bits 6       product 2, sum 6, concatenation 4
    backward        to 32 bits 6, gradient of outputs back 6, of biases:        of biases: product 4, sum 2,
                    product 8, sum 4, of weights: product 8, sum 4,             of weights: product 4, sum 2,
                    concatenation 4                                             concatenation 4

Reading the biases and the router's weights, one per column or row, costs next to nothing. A single kernel for all experts adds
biases itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.domain.choices import ExpertDispatch
from simulator.machine.rank import Rank
from simulator.table import Floats
from simulator.traffic.layer_collectives import Directions


@dataclass(frozen=True, kw_only=True)
class _Way:
    """The operators of one direction."""

    bytes_per_value: float
    kernels_per_expert: float
    kernels: float
    """For all experts of a rank together."""
    trained_bytes_per_value: float = 0.0
    """The part of these bytes that belongs to gradients of biases, which frozen biases do not have."""
    trained_kernels_per_expert: float = 0.0

    def bytes_of(self, rank: Rank) -> float:
        """Bytes of a value."""
        return self.bytes_per_value - (self.trained_bytes_per_value if rank.workload.lora else 0.0)

    def launches_of(self, rank: Rank, num_local: Floats) -> Floats:
        """Kernels for so many experts of a rank."""
        frozen = self.trained_kernels_per_expert if rank.workload.lora else 0.0
        return (self.kernels_per_expert - frozen) * num_local + self.kernels


FORWARD: Mapping[ExpertDispatch, _Way] = {
    "deduplicated": _Way(bytes_per_value=28.0, kernels_per_expert=2.0, kernels=2.0),
    "all_to_all": _Way(bytes_per_value=12.0, kernels_per_expert=2.0, kernels=1.0),
}
"""Adding biases forward, with weights of the router in 32 and in 16 bits."""
BACKWARD: Mapping[ExpertDispatch, _Way] = {
    "deduplicated": _Way(
        bytes_per_value=40.0,
        kernels_per_expert=6.0,
        kernels=2.0,
        trained_bytes_per_value=12.0,
        trained_kernels_per_expert=3.0,
    ),
    "all_to_all": _Way(
        bytes_per_value=16.0,
        kernels_per_expert=4.0,
        kernels=1.0,
        trained_bytes_per_value=6.0,
        trained_kernels_per_expert=2.0,
    ),
}
"""Adding biases backward, with weights of the router in 32 and in 16 bits."""


def are_apart(rank: Rank) -> bool:
    """Returns whether experts have biases that separate operators add."""
    experts = rank.workload.model.experts
    return experts is not None and experts.has_biases and rank.workload.expert_products == "separate"


def bias_launches(rank: Rank, num_local: Floats) -> Directions:
    """Returns the bias kernels forward and backward for this number of experts on a rank, `(n,)`."""
    forward, backward = (way.launches_of(rank, num_local) for way in _ways(rank))
    return forward, backward


def biases_s(rank: Rank, tokens: Floats, num_local: Floats) -> Directions:
    """Returns the time of the biases forward and backward.

    Args:
        rank: Ranks of the designs.
        tokens: Tokens that all experts of a rank compute.
        num_local: Experts of a rank.
    """
    values = tokens * rank.workload.model.expert_input_size
    forward_s, backward_s = (
        rank.memory_bound_s(way.bytes_of(rank) * values, way.launches_of(rank, num_local))
        for way in _ways(rank)
    )
    return forward_s, backward_s


def _ways(rank: Rank) -> tuple[_Way, _Way]:
    dispatch = rank.workload.expert_dispatch
    return FORWARD[dispatch], BACKWARD[dispatch]
