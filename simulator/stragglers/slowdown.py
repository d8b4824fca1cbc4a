"""How much longer is a step with stragglers, given their causes and the layout? The fast depth, and draws of it.

Ranks wait for each other where they synchronise: the t c tensor- and context-parallel ranks of a stage at every operator,
stages through the pipeline's schedule, replicas once per step. With N = t c p D ranks, and kappa the compute share of a cycle,
the parts in cycles of a stage (`simulator.stragglers.pipeline`) are

    last stage     its factor u makes it slower by kappa (u - 1)
    ranks          the slowest of N makes its stage slower by kappa (exp(sigma z_N - sigma^2/2) - 1), z_N by Blom
    slow hosts     the last stage that has one is slower by kappa times their excess
    micro-batches  stages wait for unlike ones, and the step for the slowest of D replicas
    pauses         as many as the replica with most of them has, each as far as the pipeline does not hide it
    episodes       stretch the step of the whole job while at least one lasts

Ranks and micro-batches combine as the root of the sum of squares. Without a pipeline that is exact: the slowest of D replicas
with variance sigma_rank^2 + sigma_micro_batch^2 / m. A slow host replaces both if it costs more. `simulator.stragglers.play`
plays the same causes event by event and is the reference for these forms.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, assert_never

import numpy as np
from scipy.special import bdtr, pdtrik

from simulator.domain.plan import PlanTable, interleaved_groups, splits_backward
from simulator.domain.straggler_causes import StragglerModel, StragglerPrior, Stragglers
from simulator.domain.workload import Workload
from simulator.layout.forward_share import forward_share
from simulator.layout.micro_batches import num_micro_batches
from simulator.order_statistics import (
    drawn_maximum,
    expected_maximum,
    lognormal_factor,
)
from simulator.step.step import StepTable
from simulator.stragglers.noise import sequence_deviation
from simulator.stragglers.pipeline import MicroBatchNoise, NoiseKind, Pipelines, fill_cycles
from simulator.table import Floats, Integers, Table, total
from simulator.units import DAY

_FEWEST_HITS = 1e-9
"""Probability below which further pauses of a replica are ignored."""
_SMALLEST_UNIFORM = 2.0**-53
"""Minimum distance of uniform draws from 0 and 1, where normal quantiles are infinite."""


@dataclass(frozen=True, kw_only=True)
class StragglerDesigns(Table):
    """Properties of each design that stragglers act on, `(n,)`."""

    schedule: Integers
    """Codes of `simulator.domain.plan.Schedule`."""
    num_replicas: Integers
    """D."""
    ranks_per_stage: Integers
    """t c, of one replica."""
    num_stages: Integers
    """p."""
    num_chunks_per_stage: Integers
    """v."""
    num_micro_batches: Integers
    """m, of one replica in one step."""
    group_size: Integers
    """N, micro-batches that an interleaved stage takes through one chunk before the next."""
    gpus_per_node: Integers
    """Accelerators that one slow host slows down."""
    cycle_s: Floats
    """Forward and backward of one micro-batch on a stage including exposed traffic, the mean over stages."""
    slowest_cycle_factor: Floats
    """Cycle of the slowest stage over the mean, at least 1."""
    compute_fraction: Floats
    """Share of a cycle that is compute."""
    forward_fraction: Floats
    """Share of a cycle that is forward."""
    step_time_s: Floats
    """The step without stragglers."""

    @classmethod
    def of(
        cls, workload: Workload, plans: PlanTable, steps: StepTable, gpus_per_node: Integers | int
    ) -> Self:
        """Returns these properties of simulated steps.

        The slowest stage follows from the time of the pipeline: with c the mean cycle, that is p c / v + (m - 1/v) c_max; if
        backwards are split, the fill of `simulator.stragglers.pipeline` plus m c_max.
        """
        m, p, v = num_micro_batches(workload, plans), plans.pipeline_parallel, plans.virtual_pipeline
        forward = forward_share(workload, plans)
        traffic_s = steps.tensor_comm_s + steps.expert_comm_s + steps.shard_comm_s + steps.pipeline_send_s
        busy_s = steps.compute_s + traffic_s + steps.host_copy_s
        cycles = (busy_s + steps.pipeline_bubble_s) / (busy_s / m)
        is_split = splits_backward(plans)
        fill = np.where(is_split, fill_cycles(plans.pipeline_schedule, p, v, m, forward), p / v)
        of_slowest = np.where(is_split, m, np.maximum(m - 1.0 / v, 1.0))
        slowest = np.where((p > 1) & (m * v > 1), np.clip((cycles - fill) / of_slowest, 1.0, p), 1.0)
        return cls(
            schedule=plans.pipeline_schedule,
            num_replicas=plans.data_parallel,
            ranks_per_stage=plans.tensor_parallel * plans.context_parallel,
            num_stages=p,
            num_chunks_per_stage=v,
            num_micro_batches=m,
            group_size=interleaved_groups(plans),
            gpus_per_node=np.broadcast_to(np.asarray(gpus_per_node, dtype=np.int64), m.shape),
            cycle_s=busy_s / m,
            slowest_cycle_factor=slowest,
            compute_fraction=steps.compute_s / busy_s,
            forward_fraction=forward,
            step_time_s=steps.step_time_s,
        )

    @property
    def num_ranks(self) -> Integers:
        """N, all training accelerators."""
        return self.ranks_per_stage * self.num_stages * self.num_replicas

    @property
    def num_nodes(self) -> Floats:
        """Number of training nodes."""
        return np.maximum(1.0, self.num_ranks / self.gpus_per_node)

    def as_columns(self) -> Self:
        """Returns every column as `(n, 1)`, so that it broadcasts with draws `(n, R)` or `(R,)`."""
        columns: dict[str, Any] = {name: column[:, None] for name, column in self.columns().items()}
        return type(self)(**columns)


@dataclass(frozen=True, kw_only=True)
class _Fleet:
    """The luck of a fleet's ranks: expectations `(n,)`, or draws `(n, R)`."""

    z_last: Floats
    """Slowest rank of the last stages, in deviations."""
    z_others: Floats
    """Slowest rank of the other stages."""
    slow_host: tuple[tuple[Floats, Floats], ...]
    """Cases of slow hosts: probability, and number of stages behind the last stage that has one; p or more where none has."""
    episode_share: Floats
    """Share of the run with an episode."""


def expected_slowdown(model: StragglerModel, designs: StragglerDesigns) -> Floats:
    """Returns the expected slow-down S >= 1 of each design, `(n,)`; exactly 1 without causes."""
    match model:
        case StragglerPrior():
            mean = np.exp(model.log_mean + model.log_deviation**2 / 2.0)
            return np.full(len(designs), 1.0 + mean)
        case Stragglers():
            return _slowdown(model, designs, _expected_fleet(model, designs))
        case _:
            assert_never(model)


def draw_slowdowns(
    model: StragglerModel,
    designs: StragglerDesigns,
    *,
    num_replications: int,
    seed: int,
    run_s: Floats | float | None = None,
) -> Floats:
    """Draws the slow-down of whole runs, `(n, R)`; replication r has the same luck in every design.

    Variation from step to step averages out; drawn are the ranks and hosts of the fleet and the episodes of the run.

    Args:
        model: the stragglers.
        designs: `(n,)` designs.
        num_replications: R.
        seed: of the draws.
        run_s: `(n,)` or one run length, for the number of episodes; None, and runs that are not finite, use their
            long-run share.
    """
    draw = np.random.Generator(np.random.PCG64(seed))
    match model:
        case StragglerPrior():
            normal = draw.standard_normal(num_replications)
            slowdowns = 1.0 + np.exp(model.log_mean + model.log_deviation * normal)
            return np.broadcast_to(slowdowns, (len(designs), num_replications))
        case Stragglers():
            columns = designs.as_columns()
            length_s = None if run_s is None else np.asarray(run_s, dtype=np.float64).reshape(-1, 1)
            uniforms = np.clip(draw.random((4, num_replications)), _SMALLEST_UNIFORM, 1.0 - _SMALLEST_UNIFORM)
            fleet = _drawn_fleet(model, columns, uniforms, length_s)
            slowdowns = _slowdown(model, columns, fleet)
            return np.broadcast_to(slowdowns, (len(designs), num_replications))
        case _:
            assert_never(model)


def _healthy_stage_log(model: Stragglers, designs: StragglerDesigns) -> Floats:
    """Natural logarithm of the probability that no host of a stage is slow."""
    return np.asarray(designs.num_nodes / designs.num_stages * np.log(1.0 - model.slow_host_fraction))


def _long_run_episode_share(model: Stragglers, designs: StragglerDesigns) -> Floats:
    """Share of time with at least one episode somewhere in the job (Poisson arrivals)."""
    rate_per_s = designs.num_nodes * model.episodes_per_node_day / DAY
    return np.asarray(-np.expm1(-rate_per_s * model.episode_s))


def _expected_fleet(model: Stragglers, designs: StragglerDesigns) -> _Fleet:
    of_last = designs.num_ranks // designs.num_stages
    return _Fleet(
        z_last=expected_maximum(of_last),
        z_others=expected_maximum(designs.num_ranks - of_last),
        slow_host=_slow_host_cases(model, designs),
        episode_share=_long_run_episode_share(model, designs),
    )


def _slow_host_cases(model: Stragglers, designs: StragglerDesigns) -> tuple[tuple[Floats, Floats], ...]:
    """Each stage in turn as the last one with a slow host: none behind it has one."""
    if model.slow_host_fraction == 0.0 or model.slow_host_factor == 1.0:
        return ()
    healthy = np.exp(_healthy_stage_log(model, designs))
    behind = (np.asarray(float(count)) for count in range(int(designs.num_stages.max(initial=0))))
    return tuple((healthy**count * (1.0 - healthy), count) for count in behind)


def _drawn_fleet(
    model: Stragglers, designs: StragglerDesigns, uniforms: Floats, run_s: Floats | None
) -> _Fleet:
    """Draws fleets from `(4, R)` uniform numbers for designs of `(n, 1)`."""
    of_last = designs.num_ranks // designs.num_stages
    # Counted from the last stage, the number of stages before the first one with a slow host is geometric.
    healthy_log = np.minimum(_healthy_stage_log(model, designs), -1e-300)
    behind = np.floor(np.log(uniforms[2]) / healthy_log)
    return _Fleet(
        z_last=drawn_maximum(of_last, uniforms[0]),
        z_others=drawn_maximum(designs.num_ranks - of_last, uniforms[1]),
        slow_host=((np.ones_like(behind), behind),),
        episode_share=_drawn_episode_share(model, designs, uniforms[3], run_s),
    )


def _drawn_episode_share(
    model: Stragglers, designs: StragglerDesigns, uniforms: Floats, run_s: Floats | None
) -> Floats:
    """Draws the number of episodes in a run, and the resulting share of its time with at least one."""
    long_run = _long_run_episode_share(model, designs)
    if run_s is None or model.episodes_per_node_day == 0.0:
        return long_run
    ends = np.isfinite(run_s) & (run_s > 0.0)
    length_s = np.where(ends, run_s, DAY)
    mean = designs.num_nodes * model.episodes_per_node_day * length_s / DAY
    # The smallest count whose probability is not below u; not a number where none at all is likelier than u.
    count = np.ceil(np.nan_to_num(np.maximum(0.0, pdtrik(uniforms, mean))))
    return np.asarray(np.where(ends, -np.expm1(-count * model.episode_s / length_s), long_run))


def _slowdown(model: Stragglers, designs: StragglerDesigns, fleet: _Fleet) -> Floats:
    """Slow-down of designs with the given luck of a fleet."""
    imbalance, shape = _with_imbalance(model, designs)
    cycles = imbalance + _noise_cycles(model, designs, shape, fleet)
    longer_s = cycles * designs.cycle_s + _pause_s(model, designs, shape)
    of_steps = 1.0 + longer_s / designs.step_time_s
    return np.asarray(of_steps * (1.0 + fleet.episode_share * (model.episode_factor - 1.0)))


def _with_imbalance(model: Stragglers, designs: StragglerDesigns) -> tuple[Floats, Pipelines]:
    """Cost in cycles of a slower last stage, and the resulting pipeline."""
    p, slowest = designs.num_stages, designs.slowest_cycle_factor
    extra = np.where(p > 1, designs.compute_fraction * (model.stage_imbalance - 1.0) * slowest, 0.0)
    shape = Pipelines(
        schedule=designs.schedule,
        num_stages=p,
        num_chunks_per_stage=designs.num_chunks_per_stage,
        num_micro_batches=designs.num_micro_batches,
        group_size=designs.group_size,
        forward_fraction=designs.forward_fraction,
        last_cycle=slowest + extra,
        other_cycle=np.where(p > 1, (p - slowest) / np.maximum(p - 1, 1), slowest + extra),
    )
    return shape.slow_stage(extra, 0.0), shape


def _noise_cycles(model: Stragglers, designs: StragglerDesigns, shape: Pipelines, fleet: _Fleet) -> Floats:
    """Cost in cycles of ranks, hosts and micro-batches."""
    of_last = designs.compute_fraction * shape.last_cycle
    of_others = designs.compute_fraction * shape.other_cycle
    typical, slowest_rank = _rank_cycles(model, designs, shape, fleet, of_last, of_others)
    kinds = _micro_batch_noise(model, designs, shape)
    slowest_replica = _root_sum([kind.slowest_replica(designs.num_replicas, shape.gap) for kind in kinds])
    waiting = _root_sum([kind.waiting(shape.gap) for kind in kinds])
    noise = typical + waiting + np.hypot(slowest_rank, slowest_replica)
    host = model.slow_host_factor - 1.0
    gap = np.maximum(shape.gap, of_others * host)
    behind_host = typical + _root_sum([kind.waiting(gap) for kind in kinds])
    cycles = noise
    for probability, behind in fleet.slow_host:
        extra = np.where(behind == 0, of_last, of_others) * host
        cycles = cycles + probability * np.maximum(0.0, shape.slow_stage(extra, behind) + behind_host - noise)
    return np.asarray(cycles)


def _micro_batch_noise(
    model: Stragglers, designs: StragglerDesigns, shape: Pipelines
) -> list[MicroBatchNoise]:
    """Returns the noise of each kind of uneven micro-batches that the model has."""
    deviations: dict[NoiseKind, float] = {
        "lognormal": model.micro_batch_log_deviation,
        "sequences": sequence_deviation() if model.has_uneven_sequences else 0.0,
    }
    return [
        shape.noise(kind, deviation, designs.compute_fraction)
        for kind, deviation in deviations.items()
        if deviation > 0.0
    ]


def _root_sum(parts: Sequence[Floats]) -> Floats | float:
    """Root of the sum of squares."""
    return np.sqrt(total(part * part for part in parts)) if parts else 0.0


def _rank_cycles(
    model: Stragglers,
    designs: StragglerDesigns,
    shape: Pipelines,
    fleet: _Fleet,
    of_last: Floats,
    of_others: Floats,
) -> tuple[Floats, Floats]:
    """Cost in cycles of ranks everywhere, as the slowest of each t c, and the additional cost of the slowest of all."""
    factor = functools.partial(lognormal_factor, model.rank_log_deviation)
    typical = factor(expected_maximum(designs.ranks_per_stage)) - 1.0
    path = shape.num_micro_batches * of_last + shape.fill * of_others
    beyond_last, beyond_others = (
        np.maximum(0.0, factor(z) - 1.0 - typical) for z in (fleet.z_last, fleet.z_others)
    )
    p = shape.num_stages
    slowest = np.maximum(
        shape.slow_stage(of_last * beyond_last, 0.0),
        shape.slow_stage(of_others * beyond_others, np.where(p > 1, p / 2.0, p)),
    )
    return np.asarray(path * typical), slowest


def _pause_s(model: Stragglers, designs: StragglerDesigns, shape: Pipelines) -> Floats:
    """Time that garbage-collection pauses add to a step."""
    pause_s = model.gc_pause_s
    if pause_s == 0.0 or model.is_gc_synchronized:
        return np.full(designs.num_stages.shape, pause_s / model.gc_every_steps)
    hit = -np.expm1(designs.ranks_per_stage * np.log1p(-1.0 / max(model.gc_every_steps, 1.0 + 1e-12)))
    return pause_s * _most_hits(designs, hit) * _visible_fraction(pause_s, designs, shape)


def _most_hits(designs: StragglerDesigns, hit: Floats) -> Floats:
    """Expected number of pausing stages in the replica with most of them: the maximum of D binomial counts."""
    expected = np.zeros(designs.num_stages.shape)
    for count in range(int(designs.num_stages.max())):
        at_most = bdtr(np.minimum(count, designs.num_stages).astype(np.float64), designs.num_stages, hit)
        more = np.where(count < designs.num_stages, 1.0 - at_most**designs.num_replicas, 0.0)
        more = np.where(more < _FEWEST_HITS, 0.0, more)
        expected += more
        if not more.any():
            break
    return expected


def _visible_fraction(pause_s: float, designs: StragglerDesigns, shape: Pipelines) -> Floats:
    """Share of a pause at a random stage and micro-batch that lengthens the step.

    A pause is treated as an excess of its stage spread over all cycles, in a pipeline of equal stages.
    """
    p, m = designs.num_stages, designs.num_micro_batches
    excess = pause_s / designs.cycle_s / m
    balanced = replace(shape, last_cycle=shape.other_cycle)
    return np.asarray((1.0 + (p - 1.0) * balanced.slow_stage(excess, p / 2.0) / (m * excess)) / p)
