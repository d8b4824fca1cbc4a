"""Where and how long is a job searched? The lists of decisions, the algorithm, and what it may cost."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from simulator.domain.options import PowerCap
from simulator.domain.plan import CheckpointScheme, Recompute, Schedule
from simulator.record import Choice, Record


class Algorithm(Choice):
    """How the space of designs is searched."""

    AUTO = "auto"
    """Exhaustive where the space is small enough, otherwise NSGA-II."""
    EXHAUSTIVE = "exhaustive"
    """All designs, in the order of their layouts: the front is proven."""
    NSGA2 = "nsga2"
    """NSGA-II by pymoo, then the neighbours of the front."""
    NSGA3 = "nsga3"
    """NSGA-III by pymoo, for four objectives and more, then the neighbours of the front."""
    OPTUNA_TPE = "optuna_tpe"
    """Tree-structured Parzen estimators by Optuna: few evaluations, each of them slow to choose."""
    OPTUNA_NSGA2 = "optuna_nsga2"
    """NSGA-II by Optuna."""
    OPTUNA_GP = "optuna_gp"
    """Gaussian processes by Optuna; needs PyTorch."""
    RANDOM = "random"
    """Designs drawn at random, none twice: what every search has to beat."""


LOWEST_POWER_CAP = 0.6
"""Lowest power cap where the job names none; below about half the energy rises again (Zeus, NSDI 2023)."""


class Search(Record):
    """Where and how long to search; lists that are left out mean everything that is possible."""

    algorithm: Algorithm = Algorithm.AUTO
    """Search algorithm."""
    exhaustive_up_to: PositiveInt = 400_000
    """Largest number of designs that `auto` searches exhaustively."""
    max_evaluations: PositiveInt = Field(default=20_000, le=100_000_000)
    """Designs that a search may evaluate, over all restarts, unless it is exhaustive; refinements come on top."""
    max_seconds: PositiveFloat | None = None
    """Seconds after which a search that is not exhaustive ends, and the refinement after any search, over all starts of the
    study; left out: no limit."""
    stagnation_evaluations: PositiveInt | None = None
    """Evaluations without a better front after which a restart ends; left out: those of 25 generations."""
    least_gain_fraction: float = Field(default=1e-4, ge=0, le=1)
    """Share by which the volume that the front dominates must grow meanwhile for the front to count as better."""
    population_size: int | None = Field(default=None, ge=8, le=100_000)
    """Designs per generation; left out: a hundredth of `max_evaluations`, from 8 to 1000."""
    num_restarts: PositiveInt = Field(default=2, le=100)
    """Independent runs, from different corners of the space, whose fronts are merged."""
    num_refinements: int = Field(default=20, ge=0, le=1000)
    """Optuna trials per front design, 40 designs at most, for its checkpoint interval, where the job gives none, and power
    cap; 0: none. They come on top of `max_evaluations` and end with `max_seconds`."""
    memory_headroom_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of the memory of every accelerator that a design must leave free, such as 0.1, so that it fits although the memory
    model is not exact."""
    tensor_parallel: tuple[PositiveInt, ...] | None = None
    """Allowed TP degrees."""
    pipeline_parallel: tuple[PositiveInt, ...] | None = None
    """Allowed PP degrees."""
    virtual_pipeline: tuple[PositiveInt, ...] | None = None
    """Allowed VPP degrees."""
    pipeline_schedules: tuple[Schedule, ...] = (Schedule.ONE_F_ONE_B,)
    """Allowed orders of the pipeline; the others are kept out by default, since few frameworks have them. DualPipe
    on p stages is `dual_pipe_v` on p/2."""
    interleaved_group_sizes: tuple[PositiveInt, ...] | None = None
    """Allowed micro-batches that an interleaved stage takes through one chunk before the next; left out: as many as stages."""
    context_parallel: tuple[PositiveInt, ...] | None = None
    """Allowed CP degrees."""
    expert_parallel: tuple[PositiveInt, ...] | None = None
    """Allowed EP degrees."""
    micro_batch_sizes: tuple[PositiveInt, ...] = (1, 2, 4, 8)
    """Allowed sequences per micro-batch."""
    recompute: tuple[Recompute, ...] = tuple(Recompute)
    """Allowed activation recomputation."""
    recompute_num_layers: tuple[PositiveInt, ...] | None = None
    """Layers of a chunk, or of a group, that full recomputation is tried with beside all of them; left out: none."""
    zero_stages: tuple[Annotated[int, Field(ge=0, le=3)], ...] = (1, 2, 3)
    """Allowed ZeRO stages."""
    hybrid_sharding: tuple[bool, ...] = (False,)
    """Whether what ZeRO shards is shared by the ranks of a node only, each node having a copy (HSDP), or by all replicas;
    `[false, true]` tries both."""
    checkpoint_schemes: tuple[CheckpointScheme, ...] = (
        CheckpointScheme.SYNC_SHARDED,
        CheckpointScheme.ASYNC,
        CheckpointScheme.IN_MEMORY_PEER,
        CheckpointScheme.GRADIENT_ASSISTED,
    )
    """Allowed checkpoint schemes; names of systems, such as `gockpt` or `gemini`, stand for what they do."""
    with_spares: tuple[bool, ...] = (True, False)
    """Whether spare nodes are taken (as many as cover the failed ones in 99 of 100 cases), not taken, or both tried; runs
    that are likely to end before a node fails need none."""
    power_caps: tuple[PowerCap, ...] | None = None
    """Power limits of the accelerators to search over, as shares of their TDP; refinement works between them. Left
    out: 1, and under a limit on power or carbon 0.8 and 0.6 too; refinement then works from 0.6 to 1. None of these is below
    `operation.power_floor_fraction`."""

    @property
    def generation_size(self) -> int:
        """Designs per generation: as many as named, or as leave generations enough to learn from each other."""
        return self.population_size or min(1_000, max(8, self.max_evaluations // 100))

    @model_validator(mode="after")
    def _lists_are_usable(self) -> Self:
        for name in self.__class__.model_fields:
            value = getattr(self, name)
            if isinstance(value, tuple) and not value:
                raise ValueError(f"{name} must not be empty; leave it out for the default")
            if isinstance(value, tuple) and len(set(value)) != len(value):
                raise ValueError(f"{name} names {_first_twice(value)} twice; once is enough")
        return self


def _first_twice(values: tuple[object, ...]) -> object:
    return next(value for index, value in enumerate(values) if value in values[:index])
