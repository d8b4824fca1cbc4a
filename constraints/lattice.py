"""Which layouts are there? Every valid way to split the model over the accelerators on offer, as one table.

The degrees are enumerated from divisors, so every row keeps all rules of `constraints.layout`. Data parallelism follows
from the batch, and the number of accelerators from that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import final

import numpy as np

from constraints.divisors import divisors
from constraints.layout import is_valid_layout
from constraints.scheme_rules import can_save_by
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.offer import Offer
from simulator.domain.plan import TO_AND_FRO, CheckpointScheme, PlanTable, Recompute, Schedule, is_interleaved
from simulator.layout.chunks import can_cut, cuts_evenly
from simulator.layout.expert_ranks import is_without_replicas
from simulator.layout.model_states import FULL_GRADIENT_BYTES
from simulator.machine.compute import SEPARATE_KERNELS
from simulator.pipeline.groups import has_fitting_groups
from simulator.run.spare_nodes import sufficient_spare_nodes
from simulator.table import Booleans, Integers

SHORTEST_PIECE = 2048
"""Tokens below which a sequence is not split further by default, because the ring's latency is no longer hidden."""
LARGEST_PIPELINE = 64
"""Most pipeline stages by default; published runs have at most 64."""
PRECISIONS_IN_16_BITS = frozenset({Precision.FP16, Precision.BF16})
"""Number formats whose matrix products cast no inputs."""
ROWS_PER_BLOCK = 16_384
"""Ways to split the model that are listed together; each gives a layout per recomputation, ZeRO stage and number format."""


@dataclass(frozen=True, kw_only=True)
class Degrees:
    """The ways to split a model that one offer allows, before data parallelism."""

    tensor: int
    pipeline: int
    virtual: int
    context: int


SPLIT_COLUMNS = (
    "offer",
    "tensor_parallel",
    "pipeline_parallel",
    "virtual_pipeline",
    "context_parallel",
    "expert_parallel",
    "data_parallel",
    "micro_batch_size",
)
"""Fields of a plan in the columns of a way to split a model."""


@dataclass(frozen=True, kw_only=True)
class RoughBlock:
    """Ways to split a model, from which the layouts of one block follow."""

    degrees: Integers
    """Rows (offer, t, p, v, c, e, d, micro-batch), `(n, 8)`: `SPLIT_COLUMNS`."""
    power_cap_fraction: float


def enumerate_layouts(job: Job) -> PlanTable:
    """Returns every valid layout under every power cap, with the first checkpoint scheme that it can have and no spares."""
    return PlanTable.concatenate([no_layouts(job), *layout_blocks(job)])


def no_layouts(job: Job) -> PlanTable:
    """Returns a table of layouts without rows."""
    return _with_choices(job, np.zeros((0, 8), dtype=np.int64))


def layout_blocks(job: Job) -> Iterator[PlanTable]:
    """Yields the layouts of `enumerate_layouts` in the same order, block by block, so any number of them fits in memory."""
    return (layouts_in(job, block) for block in rough_blocks(job))


def candidate_blocks(job: Job) -> Iterator[PlanTable]:
    """Yields all candidates, block by block: every layout, and those that fail only by a rule of layouts."""
    return (_candidates_in(job, block) for block in rough_blocks(job))


def rough_blocks(job: Job) -> Iterator[RoughBlock]:
    """Yields the blocks from which `layouts_in` makes those of `layout_blocks`."""
    index = BlockIndex(job)
    return (index.block(number) for number in range(len(index)))


@final
class BlockIndex:
    """Random access to the blocks of `rough_blocks` by number."""

    def __init__(self, job: Job) -> None:
        """Counts the ways to split the model without listing them."""
        self._job = job
        self._splits = _batch_splits(job)
        self._degrees = [
            (index, degrees)
            for index, offer in enumerate(job.offers)
            for degrees in _allowed_degrees(job, offer)
        ]
        self._first = [0]
        num_rows = 0
        for after, (index, degrees) in enumerate(self._degrees, start=1):
            num_rows += int(np.count_nonzero(_fits(job, index, degrees, self._splits)))
            if num_rows >= ROWS_PER_BLOCK:
                self._first.append(after)
                num_rows = 0
        if num_rows:
            self._first.append(len(self._degrees))

    def __len__(self) -> int:
        return len(self._job.power_caps) * (len(self._first) - 1)

    def block(self, number: int) -> RoughBlock:
        """Returns one block."""
        place, power_cap_fraction = self.place_of(number)
        chosen = self._degrees[self._first[place] : self._first[place + 1]]
        rows = [_with_data_parallel(self._job, index, degrees, self._splits) for index, degrees in chosen]
        return RoughBlock(degrees=np.concatenate(rows), power_cap_fraction=power_cap_fraction)

    def place_of(self, number: int) -> tuple[int, float]:
        """Returns the number of a block's degrees, and its power cap; blocks with the same number differ only in the cap."""
        cap, place = divmod(number, len(self._first) - 1)
        return place, self._job.power_caps[cap]


def layouts_in(job: Job, block: RoughBlock) -> PlanTable:
    """Returns the valid layouts of a block."""
    layouts = _candidates_in(job, block)
    return layouts.take(is_valid_layout(job, layouts))


def _candidates_in(job: Job, block: RoughBlock) -> PlanTable:
    layouts = _with_choices(job, block.degrees)
    return replace(
        layouts,
        checkpoint_scheme=_first_scheme(job, layouts),
        power_cap_fraction=np.full(len(layouts), block.power_cap_fraction),
    )


def _first_scheme(job: Job, layouts: PlanTable) -> Integers:
    """First allowed scheme that a layout can have, `(n,)`; the first of all where it can have none."""
    schemes = job.search.checkpoint_schemes
    can_save = can_save_by(job, layouts, schemes)
    return np.select(list(can_save.T), [scheme.code for scheme in schemes], schemes[0].code)


def cross_run_knobs(job: Job, layouts: PlanTable) -> PlanTable:
    """Returns each layout with every checkpoint scheme and number of spares it can have, all designs of a layout together."""
    knobs, spares = _run_knobs(job), sufficient_spare_nodes(job, layouts)
    row, knob = np.nonzero(_is_design(job, layouts, spares))
    chosen = np.array([(scheme.code, has_spares) for scheme, has_spares in knobs], dtype=np.int64)[knob]
    return replace(
        layouts.take(row), checkpoint_scheme=chosen[:, 0], num_spare_nodes=chosen[:, 1] * spares[row]
    )


def num_run_knobs(job: Job, layouts: PlanTable) -> Integers:
    """Returns how many designs `cross_run_knobs` makes of each layout, `(n,)`."""
    return np.asarray(_is_design(job, layouts, sufficient_spare_nodes(job, layouts)).sum(axis=1))


def _run_knobs(job: Job) -> list[tuple[CheckpointScheme, bool]]:
    return list(product(job.search.checkpoint_schemes, job.search.with_spares))


def _is_design(job: Job, layouts: PlanTable, spares: Integers) -> Booleans:
    """Whether a layout with sufficient `spares` `(n,)` makes a distinct design with each of k run knobs, `(n, k)`.

    Some schemes need peers or replicas. Where zero spares are sufficient, the designs with and without spares coincide.
    """
    schemes = job.search.checkpoint_schemes
    can_save = dict(zip(schemes, can_save_by(job, layouts, schemes).T, strict=True))
    is_own = (spares > 0) | (False not in job.search.with_spares)
    every = np.ones(len(layouts), dtype=np.bool_)
    columns = [can_save[scheme] & (is_own if has_spares else every) for scheme, has_spares in _run_knobs(job)]
    return np.column_stack(columns)


def _allowed_degrees(job: Job, offer: Offer) -> Iterator[Degrees]:
    """Yields every combination of tensor, pipeline, virtual-pipeline and context parallelism for an offer."""
    for t, (p, v), c in product(tensor_degrees(job, offer), pipelines(job), contexts(job)):
        if t * p * c <= offer.num_gpus.max:
            yield Degrees(tensor=t, pipeline=p, virtual=v, context=c)


def tensor_degrees(job: Job, offer: Offer) -> list[int]:
    """Degrees of tensor parallelism: those that the job lists, or divisors of the heads within a link domain."""
    if job.search.tensor_parallel:
        return list(job.search.tensor_parallel)
    return [t for t in divisors(job.workload.model.num_heads) if t <= offer.node.link_domain_size]


def listed_cuts(job: Job) -> Iterator[tuple[int, int]]:
    """Pairs of PP and VPP that the job lists, or all up to `LARGEST_PIPELINE` stages whose chunks the layers can fill."""
    search, most = job.search, _most_chunks(job)
    stages = search.pipeline_parallel or range(1, min(most, LARGEST_PIPELINE) + 1)
    chunks = search.virtual_pipeline or range(1, most + 1)
    return ((p, v) for p in stages for v in chunks if p > 1 or v == 1)


def filled_cuts(job: Job) -> list[tuple[int, int]]:
    """The listed pairs with no more chunks than layers can fill, whether or not they cut the layers."""
    most = _most_chunks(job)
    return [(p, v) for p, v in listed_cuts(job) if p * v <= most]


def _most_chunks(job: Job) -> int:
    model = job.workload.model  # whose first and last chunk may hold no layer
    return (model.indexer and model.indexer.most_chunks(model.num_layers)) or model.num_layers + 2


def pipelines(job: Job) -> list[tuple[int, int]]:
    """Pairs of PP and VPP that a search tries.

    These are all that cut the layers evenly, and plain pipelines of 2^k stages or of the listed numbers of stages. Where no
    number of chunks above 1 cuts evenly, such pipelines also try 2^k chunks on each stage, or the listed numbers of chunks, and
    they always try the two of a V. With every number of stages the jobs in `examples/` would have two to six times as many
    layouts.
    """
    model, search, stage_layers = job.workload.model, job.search, job.workload.stage_layers
    pairs = filled_cuts(job)
    p, v = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    is_even = cuts_evenly(model, stage_layers, p * v)
    needs_two = not set(TO_AND_FRO).isdisjoint(search.pipeline_schedules)
    is_tried = (v == 1) | ((v == 2) & needs_two) | ~np.isin(p, p[is_even & (v > 1)])
    is_tried &= _is_power_of_two(p) | (search.pipeline_parallel is not None)
    is_tried &= _is_power_of_two(v) | (search.virtual_pipeline is not None)
    if isinstance(stage_layers, tuple):
        is_tried = np.ones_like(is_tried)
    fits = can_cut(model, stage_layers, p * v) & (is_even | is_tried)
    return [pair for pair, fit in zip(pairs, fits, strict=True) if fit]


def _is_power_of_two(number: Integers) -> Booleans:
    return np.asarray(number & (number - 1) == 0)


def contexts(job: Job) -> list[int]:
    """Degrees of context parallelism: those that the job lists, or repeated halving down to `SHORTEST_PIECE`."""
    if job.search.context_parallel:
        return list(job.search.context_parallel)
    degrees = [1]
    while job.workload.sequence_length // (2 * degrees[-1]) >= SHORTEST_PIECE:
        degrees.append(2 * degrees[-1])
    return degrees


def experts(job: Job) -> list[int]:
    """Degrees of expert parallelism: those that the job lists, or divisors of the experts; 1 without any."""
    mixture = job.workload.model.experts
    return list(job.search.expert_parallel or divisors(mixture.num_experts)) if mixture else [1]


def _with_data_parallel(job: Job, index: int, degrees: Degrees, splits: Integers) -> Integers:
    """Rows (offer, t, p, v, c, e, d, micro-batch) of one offer and its degrees, `(n, 8)`."""
    micro_batch, expert, replicas, _ = splits[:, _fits(job, index, degrees, splits)]
    rows = np.empty((len(replicas), 8), dtype=np.int64)
    rows[:, :5] = (index, degrees.tensor, degrees.pipeline, degrees.virtual, degrees.context)
    rows[:, 5], rows[:, 6], rows[:, 7] = expert, replicas, micro_batch
    return rows


def _fits(job: Job, index: int, degrees: Degrees, splits: Integers) -> Booleans:
    """Which ways to split the batch take whole nodes within the range of an offer, `(k,)`."""
    offer = job.offers[index]
    _, expert, replicas, num_micro_batches = splits
    ranks = replicas * degrees.tensor * degrees.context
    num_gpus = ranks * degrees.pipeline
    fits = (num_gpus >= offer.num_gpus.min) & (num_gpus <= offer.num_gpus.max)
    fits &= (num_gpus % offer.node.num_accelerators == 0) & (expert <= ranks)
    if degrees.virtual > 1 and not set(TO_AND_FRO) & set(job.search.pipeline_schedules):
        sizes = job.search.interleaved_group_sizes or (degrees.pipeline,)
        p = np.asarray(degrees.pipeline)
        fits &= np.any([has_fitting_groups(p, num_micro_batches, np.asarray(size)) for size in sizes], axis=0)
    return np.asarray(fits)


def _batch_splits(job: Job) -> Integers:
    """All ways to split a batch: micro-batch, experts, replicas, and micro-batches of a replica, `(4, k)`."""
    batch = job.workload.global_batch_size
    splits = [
        (micro_batch, expert, replicas, batch // micro_batch // replicas)
        for micro_batch in job.search.micro_batch_sizes
        if batch % micro_batch == 0
        for expert in experts(job)
        for replicas in divisors(batch // micro_batch)
    ]
    return np.array(splits, dtype=np.int64).reshape(-1, 4).T


def _with_choices(job: Job, degrees: Integers) -> PlanTable:
    """Each row with every allowed recomputation, ZeRO stage, number format, and group of interleaved micro-batches."""
    search = job.search
    choices = np.array(
        [
            (r.code, stage, precision.code, schedule.code, is_hybrid, num_layers, group_size)
            for r in recomputations(job)
            for num_layers in ((0, *(search.recompute_num_layers or ())) if r is Recompute.FULL else (0,))
            for stage in search.searched_zero_stages
            for precision in job.workload.precisions
            for schedule in search.pipeline_schedules
            for is_hybrid in search.hybrid_sharding
            for group_size in _group_sizes(job, schedule)
        ],
        dtype=np.int64,
    )
    rows = np.repeat(degrees, len(choices), axis=0)
    chosen = np.tile(choices, (len(degrees), 1))
    offer, t, p, _, c, _, d, _ = rows.T
    table = PlanTable(
        **dict(zip(SPLIT_COLUMNS, rows.T, strict=True)),
        num_gpus=t * p * c * d,
        num_spare_nodes=np.zeros_like(offer),
        pipeline_schedule=chosen[:, 3],
        interleaved_group_size=np.where(chosen[:, 6] == p, 0, chosen[:, 6]),
        recompute=chosen[:, 0],
        recompute_num_layers=chosen[:, 5],
        zero_stage=chosen[:, 1],
        shard_ranks=np.where(chosen[:, 4] == 1, node_shard_ranks(job, offer, t), 0),
        precision=chosen[:, 2],
        checkpoint_scheme=np.full(len(offer), search.checkpoint_schemes[0].code),
        checkpoint_interval_s=np.full(len(offer), np.nan),
        power_cap_fraction=np.ones(len(offer)),
    )
    return table.take(_is_own_sharding(job, table) & _is_dealt_as_chosen(table, chosen[:, 6]))


def recomputations(job: Job) -> list[Recompute]:
    """Returns those that are allowed, without selective where it only costs time: fused attention to all keeps no scores."""
    workload, allowed = job.workload, job.search.recompute
    keeps_more = workload.attention in SEPARATE_KERNELS or workload.model.indexer
    is_idle = workload.recomputes_nothing or (workload.recomputes_core_alone and not keeps_more)
    is_beaten = is_idle and Recompute.NONE in allowed
    return [r for r in allowed if not (r is Recompute.SELECTIVE and is_beaten)]


def _group_sizes(job: Job, schedule: Schedule) -> tuple[int, ...]:
    """Group sizes of interleaved micro-batches that are tried with a schedule; 0: no groups, or the number of stages."""
    sizes = job.search.interleaved_group_sizes
    return (0, *sizes) if sizes and schedule is Schedule.ONE_F_ONE_B else (0,)


def _is_dealt_as_chosen(table: PlanTable, group_sizes: Integers) -> Booleans:
    """Whether a layout with groups has one of the listed sizes, and one without has 0, `(n,)`."""
    if not group_sizes.any():
        return np.ones(len(table), dtype=np.bool_)
    return np.asarray(is_interleaved(table) == (group_sizes > 0))


def _is_own_sharding(job: Job, table: PlanTable) -> Booleans:
    """Whether ZeRO stage and shard groups are tried and give a distinct layout, `(n,)`: groups of all ranks are as none.

    Where groups are mandatory, the rules of layouts alone decide which are allowed.
    """
    is_own = ~is_without_replicas(job.workload, table) | np.isin(table.zero_stage, _lone_stages(job))
    if not job.search.shards_more_in_pipelines:
        is_own &= (table.zero_stage < 2) | (table.pipeline_parallel == 1)
    if False not in job.search.hybrid_sharding:
        return is_own
    replicas = table.data_parallel * table.context_parallel
    has_groups = (table.zero_stage > 0) & (table.shard_ranks < replicas)
    return np.asarray(is_own & ((table.shard_ranks == 0) | has_groups))


def _lone_stages(job: Job) -> list[int]:
    """The listed ZeRO stages that differ where no weight has a replica: of stages that coincide, only the lowest."""
    workload = job.workload
    # What ranks that share nothing still gather in a pass, or add up in main memory.
    is_own_at_2 = workload.regathers_weights or workload.offloaded_gradient_fraction > 0.0
    # No weights in 32 bits that are their own master, and nothing that passes make of weights.
    has_plain_weights = (
        workload.gradient_bytes < FULL_GRADIENT_BYTES
        and workload.sharded_copies == "none"
        and workload.most_gathered_weights is None
        and PRECISIONS_IN_16_BITS.issuperset(workload.precisions)
    )
    differences = {1: workload.gathers_cast_weights, 2: is_own_at_2, 3: is_own_at_2 or not has_plain_weights}
    lowest: dict[int, int] = {}
    for stage in job.search.searched_zero_stages:
        lowest.setdefault(sum(differs for first, differs in differences.items() if first <= stage), stage)
    return list(lowest.values())


def node_shard_ranks(job: Job, offer: Integers, tensor: Integers) -> Integers:
    """Returns the ranks of a node that share one copy of the states under hybrid sharding, `(n,)`."""
    return np.maximum(1, np.array([each.node.num_accelerators for each in job.offers])[offer] // tensor)
