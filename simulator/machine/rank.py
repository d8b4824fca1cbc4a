"""Which rank does an operator run on? Everything that the price of an operator depends on, one row per design."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import Self, TypeVar

import numpy as np

from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.links import LinkConstants
from simulator.domain.lora import AdaptedProduct
from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.layout.casts import (
    LARGEST_BYTES,
    gathered_bytes,
    is_cast,
    num_cast_kernels,
    product_bytes,
    sums_largest,
)
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.layout.micro_batches import micro_batch_tokens
from simulator.layout.model_states import adds_in_products
from simulator.machine.compute import (
    ALIGNED_ELEMENTS,
    NARROW_ACCUMULATE_BYTES,
    OUTPUT_BYTES,
    KernelConstants,
    gemm_time_s,
    memory_bound_time_s,
)
from simulator.machine.network import Group, all_gather_s, all_reduce_s, reduce_scatter_s
from simulator.machine.offer_constants import OfferConstants, offer_constants
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import slowdown_under_cap
from simulator.machine.products import ONE_PRODUCT, Batch, Gathered
from simulator.machine.training import TrainingConstants, training_constants
from simulator.table import Booleans, Floats, Integers

Found = TypeVar("Found")
_OF_KERNELS = "found of kernels"


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One rank of every design: its work, its place in the layout, and the speed of its kernels and links."""

    workload: Workload
    plans: PlanTable
    offers: OfferTable
    constants: OfferConstants
    """Source of the constants for number formats other than the plan's."""
    kernels: KernelConstants
    links: LinkConstants
    training: TrainingConstants
    sustained_fraction: Floats
    """Speed of matrix products in a training step relative to products measured alone."""
    compute_slowdown: Floats
    """Factor on compute under a power cap."""

    @classmethod
    def of(cls, job: Job, plans: PlanTable, training: TrainingConstants | None = None) -> Self:
        """Returns a rank of every plan of a job, `(n,)`, with the shipped constants of training unless others are given.

        The job's calibration takes precedence over them.
        """
        constants = offer_constants(job, training or training_constants())
        offers = OfferTable.from_job(job).take(plans.offer)
        kernels, sustained_fraction = constants.of_products(plans)
        return cls(
            workload=job.workload,
            plans=plans,
            offers=offers,
            constants=constants,
            kernels=kernels,
            links=constants.links.take(plans.offer),
            training=constants.training,
            sustained_fraction=sustained_fraction,
            compute_slowdown=slowdown_under_cap(offers, plans.power_cap_fraction),
        )

    def take(self, rows: Integers) -> Self:
        """Returns the chosen ranks."""
        return replace(
            self,
            plans=self.plans.take(rows),
            offers=self.offers.take(rows),
            kernels=self.kernels.take(rows),
            links=self.links.take(rows),
            sustained_fraction=self.sustained_fraction[rows],
            compute_slowdown=self.compute_slowdown[rows],
        )

    def on_links(self, links: LinkConstants) -> Self:
        """Returns the same ranks on another network; results of `of_kernels` are kept."""
        found = replace(self, links=links)
        vars(found)[_OF_KERNELS] = vars(self).setdefault(_OF_KERNELS, {})
        return found

    def of_kernels(self, key: tuple[object, ...], find: Callable[[], Found]) -> Found:
        """Returns a result that depends on kernels alone, computed once for all networks that the ranks are on."""
        kept = vars(self).setdefault(_OF_KERNELS, {})
        if key not in kept:
            kept[key] = find()
        return kept[key]  # type: ignore[no-any-return]

    @cached_property
    def in_16_bits(self) -> Self:
        """The rank as seen by products that stay in 16 bits while others use 8 or 4: output layers, routers and adapters."""
        are_cast = is_cast(self.plans)
        if not np.any(are_cast):
            return self
        formats = np.where(are_cast, Precision.BF16.code, self.plans.precision)
        plans = replace(self.plans, precision=formats)
        kernels, sustained_fraction = self.constants.of_products(plans)
        return replace(self, plans=plans, kernels=kernels, sustained_fraction=sustained_fraction)

    @cached_property
    def tokens(self) -> Floats:
        """Tokens of one micro-batch on one context-parallel rank (T)."""
        return micro_batch_tokens(self.workload, self.plans)

    @cached_property
    def hidden_bytes(self) -> Floats:
        """Residual stream of one micro-batch."""
        return ACTIVATION_BYTES * self.tokens * self.workload.model.hidden_size

    @cached_property
    def hidden_gather_s(self) -> Floats:
        """All-gather of the residual stream between tensor-parallel ranks; a reduce-scatter takes as long."""
        return all_gather_s(num_bytes=self.hidden_bytes, **self.tensor_group)

    @cached_property
    def block_gather_bytes(self) -> tuple[Floats, Floats]:
        """Bytes that tensor-parallel ranks gather in a block of a layer: its input forward, the gradient backward."""
        if not self._gathers_cast:
            return self.hidden_bytes, self.hidden_bytes
        forward, backward = gathered_bytes(self.workload, self.plans)
        values = self.tokens * self.workload.model.hidden_size
        return forward * values, backward * values

    @cached_property
    def block_gather_s(self) -> tuple[Floats, Floats]:
        """Time to gather these bytes, forward and backward."""
        if not self._gathers_cast:
            return self.hidden_gather_s, self.hidden_gather_s
        forward_s, backward_s = (
            all_gather_s(num_bytes=num_bytes, **self.tensor_group) for num_bytes in self.block_gather_bytes
        )
        return forward_s, backward_s

    @cached_property
    def largest_bytes(self) -> Floats:
        """Bytes that tensor-parallel ranks all-reduce before a gather: the largest value, where scales cover whole tensors."""
        is_summed = self._gathers_cast & sums_largest(self.workload, self.plans)
        return np.where(is_summed, LARGEST_BYTES, 0.0)

    @cached_property
    def largest_s(self) -> Floats:
        """Time to all-reduce the largest value before a gather."""
        if not np.any(self.largest_bytes):
            return np.zeros(len(self.plans))
        return np.where(
            self.largest_bytes > 0.0, all_reduce_s(num_bytes=self.largest_bytes, **self.tensor_group), 0.0
        )

    @cached_property
    def _gathers_cast(self) -> bool:
        workload = self.workload
        is_asked = workload.gathers_cast_inputs and workload.has_sequence_parallel
        return is_asked and bool(np.any(is_cast(self.plans)))

    @cached_property
    def hidden_all_reduce_s(self) -> Floats:
        """All-reduce of the residual stream between tensor-parallel ranks."""
        return all_reduce_s(num_bytes=self.hidden_bytes, **self.tensor_group)

    def input_gradient_sum_s(self, num_bytes: Floats) -> Floats:
        """Returns the time for tensor-parallel ranks to sum an input gradient of this size, `(n,)`.

        With sequence parallelism each rank needs only the part for its own tokens.
        """
        collective_s = reduce_scatter_s if self.workload.has_sequence_parallel else all_reduce_s
        return collective_s(num_bytes=num_bytes, **self.tensor_group)

    @cached_property
    def tensor_group(self) -> Group:
        """The tensor-parallel ranks."""
        tensor = self.plans.tensor_parallel
        return {
            "group_size": tensor.astype(np.float64),
            "members_per_domain": members_in_domain(self, 1, tensor),
            "links": self.links,
        }

    @cached_property
    def split_tokens(self) -> Floats:
        """Tokens whose norms and residuals one rank computes: a share of T with sequence parallelism."""
        return (
            self.tokens / self.plans.tensor_parallel if self.workload.has_sequence_parallel else self.tokens
        )

    @cached_property
    def sustained_flop_per_s(self) -> Floats:
        """Dense peak of the plan's number format at the clock of a training step."""
        return np.asarray(self.offers.peak_of(self.plans.precision) * self.sustained_fraction)

    @cached_property
    def element_bytes(self) -> Floats:
        """Bytes of one input of a matrix product."""
        return product_bytes(self.plans)

    @cached_property
    def cast_bytes(self) -> Floats:
        """Bytes moved to cast one input of a matrix product."""
        return np.asarray(self.kernels.cast_bytes_per_element * self.training.cast_ratio)

    @cached_property
    def kernels_per_cast(self) -> Floats:
        """Kernels that cast one input of a matrix product."""
        return num_cast_kernels(self.workload, self.plans, np.ones(len(self.plans)))

    @cached_property
    def unaligned_slowdown(self) -> Floats:
        """Slowdown of an output layer's products if its share of the vocabulary does not fill the kernels' tiles."""
        vocabulary = self.workload.model.vocabulary_size / self.plans.tensor_parallel
        is_aligned = np.floor(vocabulary) % ALIGNED_ELEMENTS == 0
        return np.where(is_aligned, 1.0, 1.0 / self.training.unaligned_fraction)

    def gemm_s(self, m: Floats, n: Floats, k: Floats, batch: Batch = ONE_PRODUCT) -> tuple[Floats, Floats]:
        """Forward and backward (input and weight gradient) of a product (m, k) x (k, n).

        With 8-bit inputs, activations are cast before the forward product and their gradients before the backward products. The
        product accumulates a gradient only if the rank keeps it whole (and no separate kernel adds it, `added_gradient_bytes`).
        """
        casts_s = self._casts_s(m, n, k, batch)
        forward_s = self._product_s(m, n, k, batch) + casts_s[0]
        backward_s = (
            self.input_gradient_s(m, n, k, batch) + self.weight_gradient_s(m, n, k, batch) + casts_s[1]
        )
        return forward_s, backward_s

    def product_s(self, m: Floats, n: Floats, k: Floats) -> Floats:
        """Returns the time of a product (m, k) x (k, n) alone, without casts, `(n,)`."""
        return self._product_s(m, n, k, ONE_PRODUCT)

    def input_gradient_s(self, m: Floats, n: Floats, k: Floats, batch: Batch = ONE_PRODUCT) -> Floats:
        """The part of `gemm_s`'s backward that computes the gradient of the input."""
        return self._product_s(m, k, n, batch)

    def _casts_s(self, m: Floats, n: Floats, k: Floats, batch: Batch) -> tuple[Floats, Floats]:
        """Casts of the input forward and of the gradient backward, with the transposition for the gradient of weights.

        Where ranks gather after the cast, each casts its own tokens. Adapters take the input of their product in 16 bits, so
        all of it is cast. Frozen weights need no copy by columns.
        """
        cast_bytes = self.cast_bytes * batch.num_gemms * m
        num_kernels = self.kernels_per_cast * batch.num_casts
        shares, transposed = self._cast_shares(batch), self._transposed_share(batch)
        turned = transposed * (k if batch.gathered is Gathered.INPUT else n)
        return (
            self.memory_bound_s(cast_bytes * k * shares[0], num_kernels),
            self.memory_bound_s(cast_bytes * (n * shares[1] + turned), num_kernels + (turned > 0.0)),
        )

    def _cast_shares(self, batch: Batch) -> tuple[Floats | float, Floats | float]:
        """Bytes relative to a cast of all tokens to both layouts, for the input forward and the gradient backward."""
        whole = self._rows_alone_share if self.workload.lora else 1.0
        if not self._gathers_cast or batch.gathered is Gathered.NOTHING:
            return whole, whole
        own = self._own_rows_share if self.workload.lora else self._gathered_cast_shares[0]
        if batch.gathered is Gathered.GRADIENT:
            return whole, own
        return (whole if self.is_adapted(batch.name) else own), whole

    def _transposed_share(self, batch: Batch) -> Floats | float:
        """Bytes, relative to such a cast, to turn gathered rows into columns."""
        is_whole = batch.gathered is Gathered.NOTHING or not self._gathers_cast
        return 0.0 if is_whole or self.workload.lora else self._gathered_cast_shares[1]

    @cached_property
    def _rows_alone_share(self) -> Floats:
        return np.asarray(self.constants.one_layout_shares[self.constants.pair(self.plans), 0])

    @cached_property
    def _own_rows_share(self) -> Floats:
        return self._rows_alone_share / self.plans.tensor_parallel

    def is_adapted(self, product: AdaptedProduct | None) -> bool:
        """Returns whether a product of a layer has an adapter."""
        return self.workload.lora is not None and product in self.workload.lora.targets

    @cached_property
    def _gathered_cast_shares(self) -> tuple[Floats, Floats]:
        """Bytes relative to a cast of all tokens: to cast a rank's own tokens, and to transpose what it gathered."""
        own, transposed = self.constants.gathered_cast_shares[self.constants.pair(self.plans)].T
        tensor, is_split = self.plans.tensor_parallel, self.plans.tensor_parallel > 1
        return np.where(is_split, own / tensor, 1.0), is_split * is_cast(self.plans) * transposed

    def weight_gradient_s(self, m: Floats, n: Floats, k: Floats, batch: Batch = ONE_PRODUCT) -> Floats:
        """The part of `gemm_s`'s backward that computes the gradient of the weights; zero if they are frozen."""
        if self.workload.lora is not None:
            return np.zeros_like(m)
        is_whole = self.adds_in_product
        return self._product_s(
            k,
            n,
            m,
            batch,
            output_bytes=np.where(is_whole, NARROW_ACCUMULATE_BYTES, OUTPUT_BYTES),
            weight_gradient=is_whole & (self.workload.gradient_bytes >= 4),
        )

    @cached_property
    def adds_in_product(self) -> Booleans:
        """Whether products accumulate weight gradients over micro-batches themselves, `(n,)`."""
        return adds_in_products(self.workload, self.plans)

    def _product_s(
        self,
        m: Floats,
        n: Floats,
        k: Floats,
        batch: Batch,
        *,
        output_bytes: Floats | float = OUTPUT_BYTES,
        weight_gradient: Booleans | bool = False,
    ) -> Floats:
        return gemm_time_s(
            m=m,
            n=n,
            k=k,
            bytes_per_element=self.element_bytes,
            peak_flop_per_s=self.sustained_flop_per_s,
            memory_bytes_per_s=self.offers.memory_bytes_per_s,
            constants=self.kernels,
            num_gemms=batch.num_gemms,
            num_kernels=batch.num_kernels,
            output_bytes=output_bytes,
            weight_gradient=weight_gradient,
        )

    def memory_bound_s(self, num_bytes: Floats, num_kernels: Floats | float) -> Floats:
        """Operators that only move data."""
        return memory_bound_time_s(
            num_bytes=num_bytes,
            memory_bytes_per_s=self.offers.memory_bytes_per_s,
            constants=self.kernels,
            num_kernels=num_kernels,
        )


def once_per_rank(find: Callable[[Rank], Found]) -> Callable[[Rank], Found]:
    """Returns a function of a rank that is evaluated once per rank: its result is kept there, as by a cached property."""
    name = f"{find.__module__}.{find.__qualname__}"

    @wraps(find)
    def found(rank: Rank) -> Found:
        kept = vars(rank)
        if name not in kept:
            kept[name] = find(rank)
        return kept[name]  # type: ignore[no-any-return]

    return found


def members_in_domain(rank: Rank, stride: Integers | int, group_size: Integers | Floats) -> Floats:
    """Returns how many members of a group with this stride between ranks sit in one link domain, `(n,)`.

    Nodes are used whole and ranks fill them one after another. A group that does not fill a node evenly straddles two, and all
    wait for the domain with the fewest members. Groups begin at multiples of their span, so of a group that leaves a node,
    gcd(span, node)/stride members sit together. A run within one node has no such group. In racks of several nodes, a run is
    assumed to be placed so that no group that fits a rack straddles two (`planner.notes.placement_note`); larger ones are
    spread evenly over as few racks as hold them.
    """
    offers, size = rank.offers, np.asarray(group_size, dtype=np.int64)
    domain = offers.link_domain_size
    reachable = np.maximum(domain // stride, 1)
    num_racks = -(-size // reachable)
    is_rack = domain > offers.gpus_per_node
    in_node = np.where(rank.plans.num_gpus <= domain, size, np.gcd(stride * size, domain) // stride)
    together = np.where(is_rack, size // num_racks, in_node)
    return np.maximum(together, 1).astype(np.float64)
