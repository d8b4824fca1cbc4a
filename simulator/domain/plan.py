"""How is the run laid out on the cluster? One design as a `Plan`, many as a `PlanTable`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from simulator.domain.hardware import Precision
from simulator.domain.options import PowerCap
from simulator.record import Choice, Record
from simulator.table import Floats, Integers, Table, first_of_equals


class Recompute(Choice):
    """What the backward pass recomputes instead of keeping it in memory (Megatron-LM's names)."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Schedule(Choice):
    """Order in which pipeline stages work (`simulator.pipeline.turns` has the sources)."""

    ONE_F_ONE_B = "1f1b"
    """Alternating forwards and backwards; interleaved with `virtual_pipeline` above 1."""
    GPIPE = "gpipe"
    """All forwards, then all backwards: the same bubble, with every micro-batch in memory."""
    ZB_H1 = "zb_h1"
    """Zero bubble: weight gradients fill a part of the bubble, with the memory that the first stage of 1F1B needs."""
    ZB_V = "zb_v"
    """Zero bubble with two chunks per stage in a V: embedding and output layer are both on the first stage."""
    DUAL_PIPE_V = "dual_pipe_v"
    """Chunks as under `zb_v`; forwards run in pairs with backwards, hiding each other's expert exchange. DualPipe on p stages
    is this on p/2 with twice the replicas."""


TO_AND_FRO = (Schedule.ZB_V, Schedule.DUAL_PIPE_V)
"""Schedules with two chunks per stage, where the second ones run back from the last stage to the first."""
SPLIT_BACKWARD = (Schedule.ZB_H1, *TO_AND_FRO)
"""Schedules that compute weight gradients after what other stages wait for."""


class CheckpointScheme(Choice):
    """How the training state is saved; names of systems, such as `gockpt` or `gemini`, are aliases."""

    NONE = "none"
    """Never: every failure restarts the run from the beginning."""
    SYNC = "sync"
    """The ranks of one replica stop and write everything to the file system."""
    SYNC_SHARDED = "sync_sharded"
    """All ranks stop and write their shards to the file system."""
    ASYNC = "async"
    """Ranks stop for the copy to host memory; writing continues in the background."""
    ASYNC_LAZY = "async_lazy"
    """The copy also hides behind the next step (CheckFreq, DataStates-LLM)."""
    LOCAL_NVME = "local_nvme"
    """Shards are written to the drives of their own node, some saves to the file system."""
    IN_MEMORY_PEER = "in_memory_peer"
    """Shards are copied to the host memory of other nodes (Gemini), some saves to the file system."""
    TIERED = "tiered"
    """Own drives, drives of peers, file system (Orbax, HyperPod)."""
    GRADIENT_ASSISTED = "gradient_assisted"
    """The copy is spread over several steps and brought up to date with gradients (GoCkpt)."""
    GRADIENT_REPLICA = "gradient_replica"
    """Servers replay every step with mirrored gradients (FlowCheck, Checkmate)."""
    DIFFERENTIAL = "differential"
    """A full save at intervals, and only changes in between (Check-N-Run)."""
    JUST_IN_TIME = "just_in_time"
    """Healthy replicas save after a failure."""
    REPLICA_FT = "replica_ft"
    """Healthy replicas continue without the failed one (torchft, FT-HSDP)."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Returns the scheme for a system's name or another spelling."""
        if not isinstance(value, str):
            return None
        name = value.strip().lower().replace("-", "_").replace(" ", "_")
        name = SCHEME_ALIASES.get(name, name)
        return next((scheme for scheme in cls if scheme.value == name), None)


SCHEME_ALIASES = {
    "torch_save": "sync",
    "dcp": "sync_sharded",
    "dcp_async": "async",
    "async_save": "async",
    "flash_checkpoint": "async",
    "bytecheckpoint": "async",
    "megascale": "async",
    "pccheck": "async",
    "checkfreq": "async_lazy",
    "datastates": "async_lazy",
    "datastates_llm": "async_lazy",
    "gemini": "in_memory_peer",
    "reft": "in_memory_peer",
    "orbax_emergency": "tiered",
    "multi_tier": "tiered",
    "hyperpod": "tiered",
    "gockpt": "gradient_assisted",
    "gockpt_o": "gradient_assisted",
    "flowcheck": "gradient_replica",
    "checkmate": "gradient_replica",
    "check_n_run": "differential",
    "lowdiff": "differential",
    "jit": "just_in_time",
    "jit_checkpointing": "just_in_time",
    "torchft": "replica_ft",
    "ft_hsdp": "replica_ft",
    "oobleck": "replica_ft",
    "recycle": "replica_ft",
}
"""Schemes by the names of known systems, in lower case with underscores."""


class Plan(Record):
    """One design: which cluster, how many, and how to run the training on it."""

    offer: int = Field(ge=0)
    """Position of the chosen offer in the job's list."""
    num_gpus: PositiveInt
    """Accelerators that train."""
    num_spare_nodes: int = Field(default=0, ge=0)
    """Nodes on standby to replace failed ones."""
    tensor_parallel: PositiveInt = 1
    """Ranks that share every layer (TP)."""
    pipeline_parallel: PositiveInt = 1
    """Pipeline stages (PP)."""
    virtual_pipeline: PositiveInt = 1
    """Model chunks per stage (VPP); 1: plain 1F1B, more: interleaved 1F1B."""
    pipeline_schedule: Schedule = Schedule.ONE_F_ONE_B
    """Order of the pipeline."""
    interleaved_group_size: PositiveInt | None = None
    """Micro-batches that an interleaved stage runs through one chunk before the next (Megatron Core's
    `microbatch_group_size_per_vp_stage`, N of Llama 3); left out: PP, which keeps the fewest activations."""
    context_parallel: PositiveInt = 1
    """Ranks that share a sequence (CP)."""
    expert_parallel: PositiveInt = 1
    """Ranks that share the experts of a layer (EP)."""
    data_parallel: PositiveInt = 1
    """Model replicas (DP)."""
    micro_batch_size: PositiveInt = 1
    """Sequences in one micro-batch of one replica."""
    recompute: Recompute = Recompute.NONE
    """Activation recomputation."""
    recompute_num_layers: PositiveInt | None = None
    """Layers of every chunk that full recomputation covers, or, under `workload.recompute_method: uniform`, of a group; left
    out: all, each on its own."""
    zero_stage: int = Field(default=1, ge=0, le=3)
    """What the replicas shard: 0 nothing, 1 optimizer states (distributed optimizer), 2 gradients too, 3 weights too."""
    shard_ranks: PositiveInt | None = None
    """Ranks of DP x CP that share one copy of the sharded states (hybrid sharding, HSDP); left out: all of them."""
    precision: Precision = Precision.BF16
    """Number format of the matrix products."""
    checkpoint_scheme: CheckpointScheme = CheckpointScheme.ASYNC
    """How the training state is saved."""
    checkpoint_interval_s: PositiveFloat | None = None
    """Training time between two saves; left out: the optimal interval."""
    power_cap_fraction: PowerCap = 1.0
    """Power limit of the accelerators as a share of their TDP."""

    @model_validator(mode="after")
    def _degrees_multiply_to_the_gpus(self) -> Self:
        product = self.tensor_parallel * self.pipeline_parallel * self.context_parallel * self.data_parallel
        if product != self.num_gpus:
            raise ValueError(
                f"tensor_parallel x pipeline_parallel x context_parallel x data_parallel ({product}) "
                f"must equal num_gpus ({self.num_gpus})"
            )
        return self


LAYOUT_COLUMNS = (
    "offer",
    "num_gpus",
    "tensor_parallel",
    "pipeline_parallel",
    "virtual_pipeline",
    "pipeline_schedule",
    "context_parallel",
    "expert_parallel",
    "data_parallel",
    "micro_batch_size",
    "recompute",
    "zero_stage",
    "precision",
    "power_cap_fraction",
    "shard_ranks",
    "recompute_num_layers",
    "interleaved_group_size",
)
"""The columns of a plan that determine its step and its memory."""


@dataclass(frozen=True, kw_only=True)
class PlanTable(Table):
    """Many designs: the fields of `Plan` as columns `(n,)`; choices as codes, no interval as NaN, counts left out as 0."""

    offer: Integers
    num_gpus: Integers
    num_spare_nodes: Integers
    tensor_parallel: Integers
    pipeline_parallel: Integers
    virtual_pipeline: Integers
    pipeline_schedule: Integers
    interleaved_group_size: Integers
    context_parallel: Integers
    expert_parallel: Integers
    data_parallel: Integers
    micro_batch_size: Integers
    recompute: Integers
    recompute_num_layers: Integers
    zero_stage: Integers
    shard_ranks: Integers
    precision: Integers
    checkpoint_scheme: Integers
    checkpoint_interval_s: Floats
    power_cap_fraction: Floats

    @classmethod
    def from_plans(cls, plans: Sequence[Plan]) -> Self:
        """Returns the plans as a table, one row each."""
        return cls(**{name: _column([getattr(plan, name) for plan in plans], name) for name in cls.names()})

    def saving_by(self, scheme: CheckpointScheme) -> Self:
        """Returns the same designs with another checkpoint scheme."""
        return replace(self, checkpoint_scheme=np.full(len(self), scheme.code))

    def plan(self, row: int) -> Plan:
        """Returns one row as a `Plan`; raises `pydantic.ValidationError` when the layout is impossible."""
        values: dict[str, object] = {}
        for name in self.names():
            value = getattr(self, name)[row].item()
            values[name] = CHOICES[name].from_code(value) if name in CHOICES else value
        interval = self.checkpoint_interval_s[row].item()
        values["checkpoint_interval_s"] = None if np.isnan(interval) else interval
        values |= {name: values[name] or None for name in _COUNTS_OR_NONE}
        return Plan.model_validate(values)


def distinct_layouts(plans: PlanTable) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns the first row of every distinct layout, and for every row the number of its layout."""
    return first_of_equals([getattr(plans, name) for name in LAYOUT_COLUMNS])


def distinct_designs(plans: PlanTable) -> PlanTable:
    """Returns every distinct design once, in order of first occurrence."""
    columns = [np.nan_to_num(column) for column in plans.columns().values()]  # an interval is NaN or above 0
    first, _ = first_of_equals(columns)
    return plans.take(np.sort(first))


def shard_group(plans: PlanTable) -> Integers:
    """Returns the number of ranks that share one copy of what ZeRO shards, `(n,)`: `shard_ranks`, or all D c."""
    replicas = plans.data_parallel * plans.context_parallel
    return np.where(plans.shard_ranks > 0, plans.shard_ranks, replicas)


def is_interleaved(plans: PlanTable) -> NDArray[np.bool_]:
    """Returns whether stages run groups of micro-batches through several chunks in turn, as interleaved 1F1B does, `(n,)`."""
    return np.asarray(
        (plans.virtual_pipeline > 1) & is_among(plans.pipeline_schedule, (Schedule.ONE_F_ONE_B,))
    )


def interleaved_groups(plans: PlanTable) -> Integers:
    """Returns how many micro-batches interleaved stages run through one chunk before the next, `(n,)`: p, or as given."""
    return np.where(plans.interleaved_group_size > 0, plans.interleaved_group_size, plans.pipeline_parallel)


def has_split_ends(plans: PlanTable) -> NDArray[np.bool_]:
    """Returns whether input embedding and output layer are on different stages, `(n,)`."""
    return np.asarray((plans.pipeline_parallel > 1) & ~turns_back(plans))


def turns_back(plans: PlanTable) -> NDArray[np.bool_]:
    """Returns whether each stage has two chunks, the second ones in reverse from the last stage to the first, `(n,)`."""
    return is_among(plans.pipeline_schedule, TO_AND_FRO)


def splits_backward(plans: PlanTable) -> NDArray[np.bool_]:
    """Returns whether weight gradients are computed after what other stages wait for, `(n,)`."""
    return is_among(plans.pipeline_schedule, SPLIT_BACKWARD)


def keeps_restored_inputs(plans: PlanTable) -> NDArray[np.bool_]:
    """Returns whether a stage at its peak also holds recomputed inputs for late weight gradients, `(n,)`.

    Under `dual_pipe_v`, weight gradients are late only in the cool-down, when half of the activations are gone.
    """
    return splits_backward(plans) & ~runs_in_pairs(plans)


def runs_in_pairs(plans: PlanTable) -> NDArray[np.bool_]:
    """Returns whether most forwards are paired with a backward of another micro-batch, `(n,)`."""
    return is_among(plans.pipeline_schedule, (Schedule.DUAL_PIPE_V,))


def is_among(schedules: Integers, choices: Sequence[Schedule]) -> NDArray[np.bool_]:
    """Returns whether schedules, given by their codes, are among some choices, in the shape of the codes."""
    is_chosen = np.array([schedule in choices for schedule in Schedule])
    return np.asarray(is_chosen[schedules])  # `np.isin` takes far longer for few designs


CHOICES: dict[str, type[Choice]] = {
    "pipeline_schedule": Schedule,
    "recompute": Recompute,
    "precision": Precision,
    "checkpoint_scheme": CheckpointScheme,
}
"""The fields of a plan whose values are words."""
FLOAT_COLUMNS = ("checkpoint_interval_s", "power_cap_fraction")
_COUNTS_OR_NONE = ("recompute_num_layers", "shard_ranks", "interleaved_group_size")
"""Optional counts; their columns are 0 if left out."""


def _column(values: Sequence[object], name: str) -> NDArray[Any]:
    if name in _COUNTS_OR_NONE:
        values = [value or 0 for value in values]
    dtype = np.float64 if name in FLOAT_COLUMNS else np.int64
    return np.array([_to_number(value) for value in values], dtype=dtype)


def _to_number(value: object) -> float:
    match value:
        case Choice():
            return value.code
        case None:
            return float("nan")
        case int() | float():
            return value
        case _:
            raise TypeError(f"a plan holds numbers and choices, not {value!r}")
