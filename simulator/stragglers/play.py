"""How much longer is a step with stragglers if every replica is played event by event? The reference for the fast depth.

Every sample is a step of a newly drawn fleet: factors of ranks, hosts and micro-batches are drawn, the pipeline of every
replica is played with its own durations (`simulator.stragglers.kernel`), the slowest replica ends the step, and everything
after the pipeline takes as long as before. Ranks are numbered as in Megatron-LM (tensor, context, data, pipeline) and fill the
nodes in this order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from simulator.domain.straggler_causes import Stragglers
from simulator.errors import InputError, Problem
from simulator.pipeline.groups import groups_problem, has_fitting_groups
from simulator.pipeline.shape import ONE_F_ONE_B, PipelineShape, stage_of
from simulator.stragglers.kernel import play_replicas
from simulator.stragglers.noise import draw_micro_batches
from simulator.stragglers.slowdown import StragglerDesigns
from simulator.table import Floats, Integers
from simulator.units import DAY

WEIGHT_GRADIENT_FRACTION = 0.5
"""Share of a backward that ZB-H1, ZB-V and DualPipeV do later: one of its two products."""


def play_slowdown(model: Stragglers, designs: StragglerDesigns, *, num_samples: int, seed: int) -> Floats:
    """Plays steps of one design and returns the slow-down of each, `(num_samples,)`.

    Args:
        model: the causes.
        designs: a table of one row; all stages except the last are alike.
        num_samples: steps, each with a fleet of its own.
        seed: of all draws.

    Raises:
        InputError: the table has not one row, or interleaving lacks whole groups of micro-batches.
    """
    design = _Design.of(designs)
    draw = np.random.Generator(np.random.PCG64(seed))
    ideal_s = _played_s(design, *design.durations_s(np.ones((1, design.num_stages, 1))))
    slowdowns = [
        1.0 + (_played_s(design, *_draw_durations_s(model, design, draw)) - ideal_s) / design.step_time_s
        for _ in range(num_samples)
    ]
    return np.array(slowdowns) * _draw_whole_steps(model, design, num_samples, draw)


@dataclass(frozen=True, kw_only=True)
class _Design:
    """One row of `StragglerDesigns` as plain numbers."""

    schedule: int
    num_replicas: int
    ranks_per_stage: int
    num_stages: int
    num_chunks_per_stage: int
    num_micro_batches: int
    group_size: int
    gpus_per_node: int
    cycle_s: float
    slowest_cycle_factor: float
    compute_fraction: float
    forward_fraction: float
    step_time_s: float

    @classmethod
    def of(cls, designs: StragglerDesigns) -> Self:
        if len(designs) != 1:
            raise InputError(
                [Problem(path="designs", value=f"{len(designs)} rows", rule="must have one row")]
            )
        design = cls(**{name: column[0].item() for name, column in designs.columns().items()})
        is_dealt = design.schedule == ONE_F_ONE_B and design.num_chunks_per_stage > 1
        groups = design.num_stages, design.num_micro_batches, design.group_size
        if is_dealt and not has_fitting_groups(*map(np.asarray, groups)):
            raise InputError([groups_problem(*groups)])
        return design

    @property
    def num_nodes(self) -> int:
        num_ranks = self.num_replicas * self.num_stages * self.ranks_per_stage
        return -(-num_ranks // self.gpus_per_node)

    def durations_s(self, forward: Floats, backward: Floats | None = None) -> tuple[Floats, Floats]:
        """Durations `(D, C, m)` of forwards and backwards whose compute is multiplied by factors `(D, p, m)`."""
        last = self.slowest_cycle_factor
        others = (self.num_stages - last) / max(self.num_stages - 1, 1)
        stages = np.full(self.num_stages, others)
        stages[-1] = last
        stage_s = stages[:, None] * self.cycle_s / self.num_chunks_per_stage
        shares = (self.forward_fraction, 1.0 - self.forward_fraction)
        pair = (forward, forward if backward is None else backward)
        return (
            self._of_chunks(pair[0], stage_s * shares[0]),
            self._of_chunks(pair[1], stage_s * shares[1]),
        )

    def _of_chunks(self, factors: Floats, stage_s: Floats) -> Floats:
        stretched = 1.0 + self.compute_fraction * (factors - 1.0)
        shape = (len(factors), self.num_stages, self.num_micro_batches)
        return np.ascontiguousarray(np.broadcast_to(stretched * stage_s, shape)[:, self.stage_of_chunks])

    @property
    def stage_of_chunks(self) -> Integers:
        """Stage of each chunk of the model, `(C,)`."""
        num_chunks = self.num_stages * self.num_chunks_per_stage
        shape = PipelineShape(
            self.schedule, self.num_stages, num_chunks, self.num_micro_batches, self.group_size
        )
        return np.array([stage_of(shape, chunk) for chunk in range(num_chunks)])


def _played_s(design: _Design, forward_s: Floats, backward_s: Floats) -> float:
    """Plays all replicas; the slowest one ends the pipeline of the step."""
    ends_s = play_replicas(
        design.num_stages,
        0.0,
        forward_s,
        backward_s,
        design.schedule,
        WEIGHT_GRADIENT_FRACTION,
        design.group_size,
    )
    return float(ends_s.max())


def _draw_durations_s(model: Stragglers, design: _Design, draw: np.random.Generator) -> tuple[Floats, Floats]:
    """Draws the durations `(D, C, m)` of one step of one fleet."""
    workers = _draw_workers(model, design, draw)[:, :, None]
    if design.num_stages > 1:
        workers[:, -1] *= model.stage_imbalance
    shape = (design.num_replicas, 1, design.num_micro_batches)
    forward, backward = draw_micro_batches(model, shape, draw)
    common = _mean_one_lognormal(model.step_log_deviation, (1, 1, 1), draw)
    durations_s = design.durations_s(workers * forward * common, workers * backward * common)
    _add_pauses(model, design, durations_s[0], draw)
    return durations_s


def _mean_one_lognormal(log_deviation: float, shape: tuple[int, ...], draw: np.random.Generator) -> Floats:
    return np.asarray(np.exp(log_deviation * draw.standard_normal(shape) - log_deviation**2 / 2.0))


def _draw_workers(model: Stragglers, design: _Design, draw: np.random.Generator) -> Floats:
    """Draws the factor of each stage of each replica, `(D, p)`: that of its slowest rank."""
    shape = (design.num_stages, design.num_replicas, design.ranks_per_stage)
    ranks = _mean_one_lognormal(model.rank_log_deviation, shape, draw)
    is_slow = draw.random(design.num_nodes) < model.slow_host_fraction
    node = np.arange(ranks.size).reshape(shape) // design.gpus_per_node
    return np.asarray((ranks * np.where(is_slow[node], model.slow_host_factor, 1.0)).max(axis=2).T)


def _add_pauses(model: Stragglers, design: _Design, forward_s: Floats, draw: np.random.Generator) -> None:
    """Adds pauses, each at a random forward of the stage that it hits."""
    if model.gc_pause_s == 0.0 or model.is_gc_synchronized:
        return
    healthy = (1.0 - 1.0 / model.gc_every_steps) ** design.ranks_per_stage
    shape = (design.num_replicas, design.num_stages)
    replica, stage = np.nonzero(draw.random(shape) >= healthy)
    place = draw.integers(0, design.num_chunks_per_stage, len(stage))  # among the chunks of the stage
    chunk = np.argsort(design.stage_of_chunks, kind="stable")[stage * design.num_chunks_per_stage + place]
    micro_batch = draw.integers(0, design.num_micro_batches, len(stage))
    forward_s[replica, chunk, micro_batch] += model.gc_pause_s


def _draw_whole_steps(
    model: Stragglers, design: _Design, num_samples: int, draw: np.random.Generator
) -> Floats:
    """Draws effects on whole steps: synchronised pauses and episodes."""
    factors = np.ones(num_samples)
    if model.is_gc_synchronized:
        pauses = draw.random(num_samples) < 1.0 / model.gc_every_steps
        factors += pauses * model.gc_pause_s / design.step_time_s
    mean_episodes = design.num_nodes * model.episodes_per_node_day * model.episode_s / DAY
    has_episode = draw.poisson(mean_episodes, num_samples) > 0
    return np.where(has_episode, model.episode_factor, 1.0) * factors
