"""Where is a job searched, and for how long? The lists of decisions, the algorithm, and its limits."""

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
    """Designs drawn at random without repetition: the baseline for every search."""


LOWEST_POWER_CAP = 0.6
"""Lowest power cap if the job names none; below about half the energy rises again (Zeus, NSDI 2023)."""


class Search(Record):
    """Where and how long to search; a list that is left out allows everything possible."""

    algorithm: Algorithm = Algorithm.AUTO
    """Search algorithm."""
    exhaustive_up_to: PositiveInt = 400_000
    """Largest number of designs that `auto` searches exhaustively."""
    max_evaluations: PositiveInt = Field(default=20_000, le=100_000_000)
    """Designs that a search may evaluate, over all restarts, unless it is exhaustive; refinements are additional."""
    max_seconds: PositiveFloat | None = None
    """Seconds after which a non-exhaustive search ends, and the refinement after any search, over all starts of the study; left
    out: no limit."""
    stagnation_evaluations: PositiveInt | None = None
    """Evaluations without a better front after which a restart ends; left out: 25 generations."""
    least_gain_fraction: float = Field(default=1e-4, ge=0, le=1)
    """Relative growth of the volume dominated by the front, within `stagnation_evaluations`, that counts as an improvement."""
    population_size: int | None = Field(default=None, ge=8, le=100_000)
    """Designs per generation; left out: a hundredth of `max_evaluations`, from 8 to 1000."""
    num_restarts: PositiveInt = Field(default=2, le=100)
    """Independent runs, from different corners of the space, whose fronts are merged."""
    num_refinements: int = Field(default=20, ge=0, le=1000)
    """Optuna trials per front design, for at most 40 designs, of its checkpoint scheme and interval, unless the job sets one,
    its spare nodes and its power cap; 0: none. They are additional to `max_evaluations` and end with `max_seconds`."""
    memory_headroom_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of every accelerator's memory that a design must leave free, such as 0.1, as a margin for errors of the memory
    model."""
    tensor_parallel: tuple[PositiveInt, ...] | None = None
    """Allowed TP degrees."""
    pipeline_parallel: tuple[PositiveInt, ...] | None = None
    """Allowed PP degrees."""
    virtual_pipeline: tuple[PositiveInt, ...] | None = None
    """Allowed VPP degrees."""
    pipeline_schedules: tuple[Schedule, ...] = (Schedule.ONE_F_ONE_B,)
    """Allowed pipeline schedules; others are excluded by default, since few frameworks have them. DualPipe on p stages is
    `dual_pipe_v` on p/2."""
    interleaved_group_sizes: tuple[PositiveInt, ...] | None = None
    """Allowed numbers of micro-batches that an interleaved stage runs through one chunk before the next; left out: the number
    of stages."""
    context_parallel: tuple[PositiveInt, ...] | None = None
    """Allowed CP degrees."""
    expert_parallel: tuple[PositiveInt, ...] | None = None
    """Allowed EP degrees."""
    micro_batch_sizes: tuple[PositiveInt, ...] = (1, 2, 4, 8)
    """Allowed sequences per micro-batch."""
    recompute: tuple[Recompute, ...] = tuple(Recompute)
    """Allowed activation recomputation."""
    recompute_num_layers: tuple[PositiveInt, ...] | None = None
    """Numbers of layers of a chunk, or of a group, that full recomputation is tried with, in addition to all of them; left out:
    none."""
    zero_stages: tuple[Annotated[int, Field(ge=0, le=3)], ...] | None = None
    """Allowed ZeRO stages; left out: 1 to 3, and in pipelines 1 alone, since few frameworks shard more there (`[1, 2, 3]` tries
    all of them in pipelines, too)."""
    hybrid_sharding: tuple[bool, ...] = (False,)
    """Whether ZeRO shards only among the ranks of a node, so that each node has a copy (HSDP), or among all replicas; `[false,
    true]` tries both."""
    checkpoint_schemes: tuple[CheckpointScheme, ...] = (
        CheckpointScheme.SYNC_SHARDED,
        CheckpointScheme.ASYNC,
        CheckpointScheme.IN_MEMORY_PEER,
    )
    """Allowed checkpoint schemes; others are excluded by default, since few frameworks have them. Names of systems, such as
    `gockpt` or `gemini`, are aliases."""
    with_spares: tuple[bool, ...] = (True, False)
    """Whether designs have spare nodes (enough to cover the failed ones in 99 of 100 cases), none, or both are tried; runs that
    are likely to end before a node fails need none."""
    power_caps: tuple[PowerCap, ...] | None = None
    """Power limits of the accelerators to search over, as shares of their TDP; refinement works between them. Left out: 1, and
    under a limit on power or carbon also 0.8 and 0.6; refinement then works from 0.6 to 1. None of these is below
    `operation.power_floor_fraction`."""

    @property
    def searched_zero_stages(self) -> tuple[int, ...]:
        """ZeRO stages of any searched layout, ascending."""
        return (1, 2, 3) if self.zero_stages is None else tuple(sorted(self.zero_stages))

    @property
    def shards_more_in_pipelines(self) -> bool:
        """Whether ZeRO stages 2 and 3 are searched in pipelines, too: where the stages are listed."""
        return self.zero_stages is not None

    @property
    def generation_size(self) -> int:
        """Designs per generation: as given, or few enough for many generations to learn from each other."""
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
