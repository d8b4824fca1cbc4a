"""What happens in a step, and when? Events of every stage, each in one bucket of the breakdown, and their sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from simulator.record import Choice
from simulator.table import Booleans, Floats, Integers, Table, total

ALL = -1
"""Chunk or micro-batch of events that concern all of them."""
SHORTEST_S = 1e-11
"""Anything shorter is rounding: times of a step are sums of durations, and a trace shows nanoseconds."""


class EventKind(Choice):
    """What happens."""

    FORWARD = "forward"
    BACKWARD = "backward"
    SEND = "send"
    """An activation or a gradient travels to a neighbouring stage."""
    PARAMETER_GATHER = "parameter_gather"
    """Weights are gathered from the replicas; on a stage, the part of the wait for it that nothing makes up for."""
    GRADIENT_SYNC = "gradient_sync"
    """Gradients are reduced over the replicas, and those of a tied embedding between first and last stage; on a stage, the wait
    for the last reduction."""
    OPTIMIZER = "optimizer"
    WEIGHT_GRADIENT = "weight_gradient"
    """The part of a backward that ZB-H1, ZB-V and DualPipeV do later, or behind the rest of it."""
    BUBBLE = "bubble"
    """Waiting for other stages."""


PASSES = (EventKind.FORWARD, EventKind.BACKWARD, EventKind.WEIGHT_GRADIENT)
"""Kinds of computation, by the directions of `simulator.pipeline.turns`."""
EXPOSED_NAMES = ("tensor_comm_s", "expert_comm_s", "shard_comm_s", "host_copy_s")
"""What traffic within the passes belongs to, by the columns of `simulator.step.step.StepTable`."""


@dataclass(frozen=True, kw_only=True)
class StepEvents(Table):
    """Events of one step, `(k,)`; those of one stage follow each other without a gap, except background events."""

    kind: Integers
    """Codes of `EventKind`."""
    stage: Integers
    chunk: Integers
    """Position of the chunk in the model, or `ALL`."""
    micro_batch: Integers
    """Number of the micro-batch, or `ALL`."""
    start_s: Floats
    end_s: Floats
    tensor_comm_s: Floats
    """How much of a forward or backward is exposed collectives of tensor and context parallelism; here and below 0 for all
    other events."""
    expert_comm_s: Floats
    """How much of a forward or backward is exposed collectives of expert parallelism."""
    shard_comm_s: Floats
    """How much of a forward or backward is exposed collectives of ZeRO-2 and ZeRO-3."""
    host_copy_s: Floats
    """How much of a forward or backward is exposed copying of activations and gradients to main memory and back."""
    is_background: Booleans
    """Whether the stage works on during the event."""


@dataclass(frozen=True, kw_only=True)
class StageSeconds(Table):
    """One step by what each stage spends it on, `(p,)`; the columns sum to the step time.

    Their means over the stages are the columns of `simulator.step.step.StepTable`, which have the same names.
    """

    compute_s: Floats
    tensor_comm_s: Floats
    expert_comm_s: Floats
    shard_comm_s: Floats
    host_copy_s: Floats
    pipeline_send_s: Floats
    gradient_sync_s: Floats
    pipeline_bubble_s: Floats
    optimizer_s: Floats


def events_of(
    kind: npt.ArrayLike,
    stage: Integers,
    start_s: npt.ArrayLike,
    end_s: npt.ArrayLike,
    *,
    chunk: npt.ArrayLike = ALL,
    micro_batch: npt.ArrayLike = ALL,
    exposed_s: Mapping[str, Floats] = MappingProxyType({}),
    is_background: bool = False,
) -> StepEvents:
    """Returns the events that take any time; each argument has `(k,)` numbers, like the stages, or one number for all of them.

    Args:
        kind: codes of `EventKind`.
        stage: the stages, `(k,)`.
        start_s: when they begin.
        end_s: when they end.
        chunk: position of the chunk in the model.
        micro_batch: number of the micro-batch.
        exposed_s: those of the columns `EXPOSED_NAMES` that are not 0.
        is_background: whether the stage works on meanwhile.
    """

    def integers(values: npt.ArrayLike) -> Integers:
        return np.broadcast_to(np.asarray(values, dtype=np.int64), len(stage))

    def seconds(values: npt.ArrayLike) -> Floats:
        return np.broadcast_to(np.asarray(values, dtype=np.float64), len(stage))

    events = StepEvents(
        kind=integers(kind),
        stage=stage,
        chunk=integers(chunk),
        micro_batch=integers(micro_batch),
        start_s=seconds(start_s),
        end_s=seconds(end_s),
        **{name: seconds(exposed_s.get(name, 0.0)) for name in EXPOSED_NAMES},
        is_background=np.full(len(stage), is_background),
    )
    return events.take(events.end_s - events.start_s > SHORTEST_S)


def stage_seconds(events: StepEvents, num_stages: int) -> StageSeconds:
    """Returns what each stage spends the step on, from its events."""
    own = events.take(~events.is_background)
    whole_s = own.end_s - own.start_s
    exposed_s = {name: getattr(own, name) for name in EXPOSED_NAMES}

    def per_stage(seconds: Floats, *kinds: EventKind) -> Floats:
        chosen_s = np.where(np.isin(own.kind, [kind.code for kind in kinds]), seconds, 0.0)
        return np.asarray(np.bincount(own.stage, chosen_s, num_stages), dtype=np.float64)

    return StageSeconds(
        compute_s=per_stage(whole_s - total(exposed_s.values()), *PASSES),
        **{name: per_stage(column_s, *PASSES) for name, column_s in exposed_s.items()},
        pipeline_send_s=per_stage(whole_s, EventKind.SEND),
        gradient_sync_s=per_stage(whole_s, EventKind.PARAMETER_GATHER, EventKind.GRADIENT_SYNC),
        pipeline_bubble_s=per_stage(whole_s, EventKind.BUBBLE),
        optimizer_s=per_stage(whole_s, EventKind.OPTIMIZER),
    )
