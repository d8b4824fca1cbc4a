"""What do tensor-parallel ranks exchange for the adapters of a layer, in addition to what the frozen products exchange?

Adapters are split like the products next to them (`ParallelLinearAdapter` of NeMo and Megatron-Bridge). With T tokens, h hidden
values, rank r and t ranks:

    outputs split     A by columns, gathered: T r forward; T r summed backward, and T h without sequence parallelism, since the
                      gradient of what enters the block is summed for A alone
    inputs split      A by rows, summed: T r forward; T r summed backward, and B by columns: T h gathered forward, and backward
                      the gradient of each rank's tokens with sequence parallelism. An all-to-all sends T h/t either way

Nothing hides these collectives. With sequence parallelism the input of A is what its block has gathered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.domain.lora import SPLIT_OUTPUTS, AdaptedProduct
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.machine.network import all_gather_s, all_reduce_s, all_to_all_s
from simulator.machine.rank import Rank
from simulator.table import Floats, total
from simulator.traffic.layer_collectives import Directions


@dataclass(frozen=True, kw_only=True)
class AdapterTraffic:
    """Bytes of the collectives of adapters in one direction, one after the other, `(n,)` each."""

    summed: tuple[Floats, ...] = ()
    gathered: tuple[Floats, ...] = ()
    exchanged: tuple[Floats, ...] = ()
    """What a rank sends in an all-to-all, its own part included."""

    @property
    def num_collectives(self) -> int:
        """How many collectives there are."""
        return len(self.summed) + len(self.gathered) + len(self.exchanged)


def adapter_exchange_s(rank: Rank, products: tuple[AdaptedProduct, ...]) -> Directions:
    """Returns the times of the collectives of the adapters next to these products, forward and backward, `(n,)` each."""
    forward, backward = adapter_traffic(rank, products)
    return _seconds(rank, forward), _seconds(rank, backward)


def adapter_traffic(
    rank: Rank, products: tuple[AdaptedProduct, ...]
) -> tuple[AdapterTraffic, AdapterTraffic]:
    """Returns what these adapters exchange, forward and backward; products without an adapter exchange nothing."""
    adapted = [each for each in products if rank.is_adapted(each)]
    num_entering = sum(each in SPLIT_OUTPUTS for each in adapted)
    num_leaving = len(adapted) - num_entering
    small = (_small_bytes(rank),)
    is_split = rank.workload.has_sequence_parallel
    inputs = () if is_split else num_entering * (rank.hidden_bytes,)
    summed = len(adapted) * small + inputs
    results = num_leaving * (rank.hidden_bytes,)
    if exchanges(rank):
        sent = tuple(each / rank.plans.tensor_parallel for each in results)
        return (
            AdapterTraffic(summed=num_leaving * small, gathered=num_entering * small, exchanged=sent),
            AdapterTraffic(summed=summed, exchanged=sent),
        )
    return (
        AdapterTraffic(summed=num_leaving * small, gathered=num_entering * small + results),
        AdapterTraffic(summed=summed, gathered=results if is_split else ()),
    )


def exchanges(rank: Rank) -> bool:
    """Returns whether all-to-alls bring each rank the adapter outputs of its own tokens."""
    workload = rank.workload
    is_asked = workload.lora is not None and workload.lora.exchanges_by_all_to_all
    return is_asked and workload.has_sequence_parallel


def _small_bytes(rank: Rank) -> Floats:
    """The values between A and B, of all tokens."""
    lora = rank.workload.lora
    return ACTIVATION_BYTES * rank.tokens * (lora.rank if lora else 0)


def _seconds(rank: Rank, traffic: AdapterTraffic) -> Floats:
    group = rank.tensor_group
    return total(
        [
            np.zeros(len(rank.plans)),
            *(all_reduce_s(num_bytes=each, **group) for each in traffic.summed),
            *(all_gather_s(num_bytes=each, **group) for each in traffic.gathered),
            *(all_to_all_s(num_bytes=each, **group) for each in traffic.exchanged),
        ]
    )
