"""How long do the biases of routed experts take, where no product adds them?

Transformer Engine adds the biases of the first product of experts in the product itself. Those of the second have to be
weighted by the router: Megatron Core (`TEGroupedMLP._apply_bias`) adds them with operators of PyTorch, expert by expert, in
the format of the router's weights, which DeepEP and Hybrid-EP deliver in 32 bits. Bytes of each value that experts return:

                    32 bits                                                     16 bits
    forward         product 4, sum 10, concatenation 8, back to 16 bits 6       product 2, sum 6, concatenation 4
    backward        to 32 bits 6, gradient of outputs back 6, of biases:        of biases: product 4, sum 2,
                    product 8, sum 4, of weights: product 8, sum 4,             of weights: product 4, sum 2,
                    concatenation 4                                             concatenation 4

A read of biases and of the router's weights, one a row or a column, is next to nothing. One kernel for all experts adds
biases of its own accord.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.domain.model import ExpertDispatch
from simulator.machine.rank import Rank
from simulator.table import Floats
from simulator.traffic.layer_collectives import Directions


@dataclass(frozen=True, kw_only=True)
class _Way:
    """What the operators of one direction do."""

    bytes_per_value: float
    kernels_per_expert: float
    kernels: float
    """For all experts of a rank."""
    trained_bytes_per_value: float = 0.0
    """Bytes among these that are gradients of biases, which frozen ones do not have."""
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
    """Returns whether experts have biases that are added by operators of their own."""
    experts = rank.workload.model.experts
    return experts is not None and experts.has_biases and rank.workload.expert_products == "separate"


def bias_launches(rank: Rank, num_local: Floats) -> Directions:
    """Returns the kernels of biases forward and backward for so many experts of a rank, `(n,)`."""
    forward, backward = (way.launches_of(rank, num_local) for way in _ways(rank))
    return forward, backward


def biases_s(rank: Rank, tokens: Floats, num_local: Floats) -> Directions:
    """Returns the time of them forward and backward.

    Args:
        rank: Ranks of the designs.
        tokens: Tokens that all experts of a rank compute.
        num_local: Experts of a rank.
    """
    values = tokens * rank.workload.model.hidden_size
    forward_s, backward_s = (
        rank.memory_bound_s(way.bytes_of(rank) * values, way.launches_of(rank, num_local))
        for way in _ways(rank)
    )
    return forward_s, backward_s


def _ways(rank: Rank) -> tuple[_Way, _Way]:
    dispatch = rank.workload.expert_dispatch
    return FORWARD[dispatch], BACKWARD[dispatch]
