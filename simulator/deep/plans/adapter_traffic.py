"""Which collectives do adapters add to a layer? Those of the fast depth, one after the other."""

from __future__ import annotations

from simulator.deep.plans.plan_collectives import Collective, Group, Operation, all_to_all, ring
from simulator.deep.plans.plan_items import moves
from simulator.domain.lora import AdaptedProduct
from simulator.machine.rank import Rank
from simulator.traffic.adapter_exchange import AdapterTraffic, adapter_traffic

Collectives = tuple[Collective, ...]


def adapter_collectives(rank: Rank, products: tuple[AdaptedProduct, ...]) -> tuple[Collectives, Collectives]:
    """Returns the collectives of these products' adapters, forward and backward, for the only design of `rank`."""
    forward, backward = adapter_traffic(rank, products)
    return _collectives(rank, forward), _collectives(rank, backward)


def _collectives(rank: Rank, traffic: AdapterTraffic) -> Collectives:
    group = Group.of(rank, 1, int(rank.plans.tensor_parallel[0]))
    rings = {Operation.ALL_REDUCE: traffic.summed, Operation.ALL_GATHER: traffic.gathered}
    return moves(
        *(
            ring(f"adapter {operation.value}", operation, float(each[0]), group, rank.links)
            for operation, sizes in rings.items()
            for each in sizes
        ),
        *(all_to_all("adapter all-to-all", float(each[0]), group, rank.links) for each in traffic.exchanged),
    )
