"""Which operators and collectives does a layer have, in which order? Times are those of the fast depth.

A layer is two blocks; tensor-parallel ranks meet where a block begins and ends (`simulator.traffic.layer_collectives`):

    attention     norms - gather - projections - core - output product - scatter
    feed-forward  norms - gather - products or experts - scatter

In a hybrid the first block has a share of each kind of block that mixes tokens, and a scan behind the core.
Blocks that read the same input share their collectives; their results are summed before the scatter.

The keys and values of other context-parallel ranks arrive before or during the core; tokens go to their experts before the
experts' products and come back after them. The backward pass is the mirror image, after whatever is recomputed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.deep.plans.adapter_traffic import adapter_collectives
from simulator.deep.plans.operator_names import (
    CORE,
    EXPERT,
    FEED_FORWARD,
    HOST,
    INDEXER,
    NORMS,
    OUTPUT_PRODUCT,
    PRODUCTS,
    PROJECTIONS,
    ROUTER,
    SCAN,
    SUM,
)
from simulator.deep.plans.plan_collectives import Collective
from simulator.deep.plans.plan_context import context_core, linear_scan
from simulator.deep.plans.plan_expert_traffic import expert_traffic, map_traffic
from simulator.deep.plans.plan_input_gradients import TENSOR, with_sums
from simulator.deep.plans.plan_items import (
    LENT,
    Items,
    PartPasses,
    beside,
    between,
    between_operators,
    moves,
    work,
    works_of,
)
from simulator.deep.plans.tensor_ends import TensorEnds
from simulator.domain.lora import FEED_FORWARD_PRODUCTS, AdaptedProduct
from simulator.domain.plan import Recompute
from simulator.layers.adapter_costs import adapters_s
from simulator.layers.attention_costs import choice_s, raised_s
from simulator.layers.input_gradients import (
    entered_in_attention,
    entered_in_feed_forward,
    sums_beside_product,
)
from simulator.layers.layer_costs import (
    INTO_LATENT,
    OUT_OF_LATENT,
    ROUTED_EXPERTS,
    beside_core_s,
    dense_layer,
    expert_layer,
    feed_forward_operators,
    selected_s,
)
from simulator.layers.linear_costs import cores_s, projections_s, scan_s
from simulator.layers.moved_operators import block_sums_s, moved_operators_s
from simulator.layers.part_times import PartTimes
from simulator.layers.recomputed_modules import SHARED_EXPERTS, repeats_block, repeats_core
from simulator.layers.weight_gradients import (
    dense_layer_weight_gradients_s,
    expert_layer_weight_gradients_s,
)
from simulator.machine.rank import Rank
from simulator.table import Floats
from simulator.traffic.expert_exchange import HIDDEN_EXCHANGE_SHARE, hidden_in_pairs_s, hides_in_pairs
from simulator.traffic.layer_collectives import entered_products, num_blocks

Pair = tuple[float, float]
"""Seconds forward and backward."""


def layer_passes(rank: Rank, *, is_expert: bool) -> PartPasses:
    """Returns the passes through one layer, of the only design of `rank`."""
    return _Layer(rank=rank, is_expert=is_expert).passes()


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """One layer; every `_pair` is seconds forward and backward, including the slowdown of a power cap."""

    rank: Rank
    is_expert: bool

    def passes(self) -> PartPasses:
        """Returns the passes; the time that the host adds is the fast depth's time beyond that of the operators."""
        times = self.times
        forward, backward = self._forward(), self._backward()
        recompute = int(self.rank.plans.recompute[0])
        again: Items = ()
        if recompute == Recompute.FULL.code:
            again = forward
        elif recompute == Recompute.SELECTIVE.code:
            again = self._selected()
        forward_wait_s, backward_wait_s = self._host_waits_s(times)
        weights_s = expert_layer_weight_gradients_s if self.is_expert else dense_layer_weight_gradients_s
        return PartPasses(
            forward=(*between_operators(HOST, forward_wait_s, forward), *self._paired_wait(0)),
            backward=(
                *between_operators(HOST, backward_wait_s, (*again, *backward)),
                *self._paired_wait(1),
            ),
            weight_gradient_s=float(weights_s(self.rank)[0]),
        )

    @cached_property
    def times(self) -> PartTimes:
        return expert_layer(self.rank) if self.is_expert else dense_layer(self.rank)

    @cached_property
    def operators(self) -> dict[str, Pair]:
        """All operators by name."""
        rank = self.rank
        slowdown = float(rank.compute_slowdown[0])
        before_s, behind_s = projections_s(rank)
        moved_s = _pair(moved_operators_s(rank, is_expert=self.is_expert), 0.5)
        found = {
            PROJECTIONS: _pair(before_s, slowdown),
            CORE: _pair(cores_s(rank), slowdown),
            OUTPUT_PRODUCT: _pair(behind_s, slowdown),
            NORMS: moved_s,
        }
        if rank.workload.model.linear_attention:
            found[SCAN] = _pair(scan_s(rank), 1.0)
        if rank.workload.model.chooses_tokens:
            found[INDEXER] = _pair(choice_s(rank), 1.0)
        products = feed_forward_operators(rank, is_expert=self.is_expert)
        found |= {name: _pair(seconds, 1.0) for name, seconds in products.items()}
        if rank.workload.model.parallel_block:
            found[SUM] = _pair(block_sums_s(rank, is_expert=self.is_expert), 1.0)
        if rank.workload.lora:
            found["adapters"] = _pair(adapters_s(rank), 1.0)
        return found

    def _work(self, way: int, *names: str) -> Items:
        return tuple(
            item
            for name in names
            if name in self.operators
            for item in work(name, self.operators[name][way], has_weights=way == 1 and name in PRODUCTS)
        )

    def _total_s(self, way: int) -> float:
        """Total of all operators; `NORMS` counts twice because it is in both blocks."""
        return sum(pair[way] for pair in self.operators.values()) + self.operators[NORMS][way]

    def _host_waits_s(self, times: PartTimes) -> Pair:
        again_s = {
            Recompute.FULL.code: self._total_s(0),
            Recompute.SELECTIVE.code: self._selected_s(),
        }.get(int(self.rank.plans.recompute[0]), 0.0)
        all_s = self._total_s(0), self._total_s(1) + again_s
        have_s = float(times.forward_compute_s[0]), float(times.backward_compute_s[0])
        # Both are sums of the same numbers in different orders: a rounding error is not a wait.
        return _beyond(have_s[0], all_s[0]), _beyond(have_s[1], all_s[1])

    def _selected_s(self) -> float:
        forward_s, core_s = (np.array([seconds]) for seconds in (self._total_s(0), self._core_s(0)))
        return float(selected_s(self.rank, forward_s, core_s, is_expert=self.is_expert)[0])

    def _selected(self) -> Items:
        """What selective recomputation repeats: operators, and the traffic around them where a whole block is repeated."""
        ends = TensorEnds.of_block(self.rank, AdaptedProduct.FC1)
        is_block = bool(repeats_block(self.rank, is_expert=self.is_expert)[0])
        block = self._repeated_block()
        core = self._repeated_core()
        told_s = sum(each.duration_s for each in works_of((*core, *block)) if not each.label.startswith(LENT))
        leaving = () if self._is_side_by_side else ends.leaving[0]
        around = (ends.entering[0], leaving) if is_block else ((), ())
        adapters = adapter_collectives(self.rank, FEED_FORWARD_PRODUCTS)[0] if is_block else ()
        rest = work("recomputed operators", _beyond(self._selected_s(), told_s))
        return (*core, *rest, *self._around(around[0], block, around[1]), *adapters)

    def _repeated_core(self) -> Items:
        """The attention core, if it is repeated together with what other ranks exchange for it."""
        has_others = int(self.rank.plans.context_parallel[0]) > 1 or TensorEnds.of_indexer(self.rank)[0]
        return self._core(0) if has_others and bool(repeats_core(self.rank)[0]) else ()

    def _repeated_block(self) -> Items:
        """Products of the second block that are recomputed between its collectives."""
        modules = self.rank.workload.modules_again
        if ("moe" if self.is_expert else "mlp") in modules:
            return self._experts(0)
        return self._work(0, SHARED_EXPERTS) if "shared_experts" in modules else ()

    @property
    def _is_side_by_side(self) -> bool:
        """Whether both blocks are entered and left together."""
        is_parallel = self.rank.workload.model.parallel_block is not None
        return is_parallel and num_blocks(self.rank, is_expert=self.is_expert) > 1

    def _side_by_side(self, way: int) -> Items:
        """Both blocks between their collectives, with half of the memory-bound operators on either side."""
        ends, norms = TensorEnds.of_block(self.rank), self._work(way, NORMS)
        entered = entered_products(self.rank, is_expert=self.is_expert)
        entering = [(names[0], TensorEnds.of_block(self.rank, *names).entering[way]) for names in entered]
        leaving = ends.leaving[way]
        if self.rank.workload.model.latent_attention:
            entering.insert(0, (AdaptedProduct.QKV, TensorEnds.of_attention(self.rank).entering[way]))
        blocks = self._attention(way), self._experts(way)
        sums = (*self._adapters(way), *self._work(way, SUM))
        if way == 0:
            gathered = tuple(each for _, traffic in entering for each in traffic)
            items = (*norms, *self._around(gathered, (*blocks[0], *blocks[1], *sums), leaving), *norms)
        else:
            items = (
                *norms,
                *self._backward_around(leaving, (*blocks[1], *blocks[0], *sums), entering),
                *norms,
            )
        return self._hidden_exchange(items, way)

    def _forward(self) -> Items:
        if self._is_side_by_side:
            return self._side_by_side(0)
        ends, experts = TensorEnds.of_block(self.rank, AdaptedProduct.FC1), self._experts(0)
        mixing = TensorEnds.of_attention(self.rank)
        attention = (
            *self._work(0, NORMS),
            *self._around(mixing.entering[0], self._attention(0), mixing.leaving[0]),
        )
        split = num_blocks(self.rank, is_expert=self.is_expert) > 1
        around = (ends.entering[0], ends.leaving[0]) if split else ((), ())
        feed_forward = (
            *self._work(0, NORMS),
            *self._around(around[0], experts, around[1]),
            *self._adapters(0),
            *self._work(0, SUM),
        )
        return self._hidden_exchange((*attention, *feed_forward), way=0)

    def _backward(self) -> Items:
        if self._is_side_by_side:
            return self._side_by_side(1)
        ends, experts = TensorEnds.of_block(self.rank, AdaptedProduct.FC1), self._experts(1)
        split = num_blocks(self.rank, is_expert=self.is_expert) > 1
        products = (
            self._backward_around(ends.leaving[1], experts, [(AdaptedProduct.FC1, ends.entering[1])])
            if split
            else experts
        )
        feed_forward = (
            *self._work(1, SUM),
            *self._adapters(1),
            *products,
            *self._work(1, NORMS),
        )
        mixing = TensorEnds.of_attention(self.rank)
        summed = [(AdaptedProduct.QKV, mixing.entering[1])]
        attention = (
            *self._backward_around(mixing.leaving[1], self._attention(1), summed),
            *self._work(1, NORMS),
        )
        return self._hidden_exchange((*feed_forward, *attention), way=1)

    def _adapters(self, way: int) -> Items:
        """The adapters of a layer, followed by what they exchange."""
        return (
            *self._work(way, "adapters"),
            *adapter_collectives(self.rank, tuple(AdaptedProduct))[way],
        )

    def _around(self, first: tuple[Collective, ...], items: Items, last: tuple[Collective, ...]) -> Items:
        """A block between its collectives; software may overlap a share of these, in pieces, with the products."""
        workload = self.rank.workload
        if not (workload.overlaps_tensor_comm and workload.has_sequence_parallel):
            return (*first, *items, *last)
        share = self.rank.training.hidden_tensor_fraction
        hidden = tuple(each.scaled(share) for each in (*first, *last))
        shown = [tuple(each.scaled(1.0 - share) for each in ends) for ends in (first, last)]
        return (*shown[0], *beside(hidden, items, lent_to=TENSOR), *shown[1])

    def _backward_around(
        self,
        first: tuple[Collective, ...],
        items: Items,
        summed: Sequence[tuple[AdaptedProduct, tuple[Collective, ...]]],
    ) -> Items:
        """The backward pass of a block between its collectives, where the gradients of its inputs are summed."""
        if not sums_beside_product(self.rank)[0]:
            return self._around(first, items, tuple(each for _, traffic in summed for each in traffic))
        for name, traffic in summed:
            if name is AdaptedProduct.QKV:
                label = PROJECTIONS
                entered = entered_in_attention(self.rank, is_expert=self.is_expert)
            else:
                label = SHARED_EXPERTS if self.is_expert else FEED_FORWARD
                entered = entered_in_feed_forward(self.rank, is_expert=self.is_expert)
            items = with_sums(self.rank, items, label, entered, traffic)
        return (*first, *items)

    def _attention(self, way: int) -> Items:
        names = (PROJECTIONS, OUTPUT_PRODUCT)
        before, behind = (self._work(way, name) for name in (names if way == 0 else reversed(names)))
        return (*before, *self._core(way), *self._scan(way), *behind)

    def _scan(self, way: int) -> Items:
        """The scan of linear attention between what context-parallel ranks exchange; nothing without such blocks."""
        return linear_scan(self.rank, self._work(way, SCAN), way)

    def _core(self, way: int) -> Items:
        names = (INDEXER, CORE) if way == 0 else (CORE, INDEXER)
        core = context_core(self.rank, self._work(way, *names), way)
        exchanged = TensorEnds.of_indexer(self.rank)[way]
        return (*exchanged, *core) if way == 0 else (*core, *exchanged)

    def _core_s(self, way: int) -> float:
        """Time of the attention core, where tokens are chosen with the indexer and what a checkpoint repeats with both."""
        if INDEXER not in self.operators:
            return self.operators[CORE][way]
        raised = float((raised_s(self.rank) * self.rank.compute_slowdown)[0]) if way == 0 else 0.0
        return self.operators[CORE][way] + raised + self.operators[INDEXER][way]

    def _experts(self, way: int) -> Items:
        """The products of the second block; tokens travel before and after those of the experts."""
        if not self.is_expert:
            return self._work(way, FEED_FORWARD)
        sent, returned = expert_traffic(self.rank, way)
        if way == 1:
            sent, returned = returned, sent
        routing, shared = self._work(way, ROUTER, INTO_LATENT, "permutation"), self._work(way, SHARED_EXPERTS)
        behind = self._work(way, OUT_OF_LATENT)
        if self.rank.workload.overlaps_shared_experts and shared:
            maps = map_traffic(self.rank, way)
            hidden = tuple(each for each in (*sent, *returned) if each not in maps)
            shared, sent, returned = beside(hidden, shared, lent_to=EXPERT), maps, ()
        shown = 1.0 - self._hidden_share(way)
        sent, returned = (tuple(each.scaled(shown) for each in each_way) for each_way in (sent, returned))
        products = (*moves(*sent), *self._work(way, ROUTED_EXPERTS), *moves(*returned))
        if way == 0:
            return (*routing, *products, *behind, *shared)
        return (*shared, *behind, *products, *routing)

    @property
    def _is_paired(self) -> bool:
        """Whether the traffic of experts hides only in pairs of a forward and a backward."""
        return self.is_expert and hides_in_pairs(self.rank)

    def _paired_wait(self, way: int) -> Items:
        """How much longer a pass waits for the host if it is one of a pair."""
        if not self._is_paired:
            return ()
        hidden_s = hidden_in_pairs_s(self.rank, self._cover_s(0), self._cover_s(1))
        found_s = (self.times.forward_hidden_s, self.times.backward_hidden_s)[way]
        return work(HOST, _beyond(float(hidden_s[way][0]), float(found_s[0])), in_pairs=True)

    def _hidden_share(self, way: int) -> float:
        """Share of the traffic of experts in one direction that is hidden behind another micro-batch."""
        if not (self.is_expert and self.rank.workload.overlaps_expert_exchange):
            return 0.0
        if self._is_paired:
            return 1.0
        exchange_s = sum(each.alone_s for each_way in expert_traffic(self.rank, way) for each in each_way)
        cover_s = float(self._cover_s(way)[0])
        return min(HIDDEN_EXCHANGE_SHARE, cover_s / exchange_s) if exchange_s > 0.0 else 0.0

    def _cover_s(self, way: int) -> Floats:
        """The part of a pass that may hide the traffic of experts, `(1,)`."""
        total_s, core_s = (np.array([seconds]) for seconds in (self._total_s(way), self._core_s(way)))
        return beside_core_s(self.rank, total_s, core_s)

    def _hidden_exchange(self, items: Items, way: int) -> Items:
        """A pass, overlapped with the expert traffic of another micro-batch."""
        share = self._hidden_share(way)
        if share == 0.0:
            return items
        sent, returned = expert_traffic(self.rank, way)
        if self._is_paired:
            return beside((*sent, *returned), items, lent_to=EXPERT, in_pairs=True)
        return between(tuple(each.scaled(share) for each in (*sent, *returned)), items)


def _pair(seconds: tuple[np.ndarray, np.ndarray], factor: float) -> Pair:
    return factor * float(seconds[0][0]), factor * float(seconds[1][0])


ROUNDING_FRACTION = 1e-9
"""A wait for the host below this share of a pass is a rounding error."""


def _beyond(whole_s: float, parts_s: float) -> float:
    return whole_s - parts_s if whole_s - parts_s > ROUNDING_FRACTION * whole_s else 0.0
