"""When does every operation of a pipelined step run, computed slowly and without the kernel's shortcuts?

Orders of operations are written out as lists, overlapped transfers are moved piece by piece, and an operation is played as soon
as everything that it waits for has a time. `simulator.pipeline.schedule` is checked and timed against it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

Operation = tuple[str, int, int]
"""F or B, chunk, micro-batch."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One design; lists hold one number per chunk, in model order."""

    num_stages: int
    num_chunks_per_stage: int = 1
    num_micro_batches: int
    forward_s: list[float]
    backward_s: list[float]
    sync_s: list[float]
    gather_s: list[float]
    send_s: float = 0.0
    send_blocks_sender: bool = False
    num_overlap_buckets: int = 0
    num_gather_buckets: int = 0
    group_size: int = 0
    """Micro-batches of a chunk in turn where a stage has several; 0: as many as stages."""

    @property
    def last_chunk(self) -> int:
        """Number of the chunk with the loss."""
        return self.num_stages * self.num_chunks_per_stage - 1


@dataclass(kw_only=True)
class Stage:
    """One stage while it is played."""

    orders: list[Operation]
    free_s: float = 0.0
    backward_end_s: float = 0.0
    gathered_s: float = 0.0
    synced_s: float = 0.0
    send_busy_s: float = 0.0
    held: set[tuple[int, int]] = field(default_factory=set)
    peak_in_flight: int = 0


@dataclass(frozen=True, kw_only=True)
class Played:
    """What one step took."""

    step_s: float
    stage_end_s: list[float]
    send_busy_s: list[float]
    peak_in_flight: list[int]
    ends_s: dict[Operation, float]


def orders_of(step: Step, stage: int) -> list[Operation]:
    """Returns the operations of a stage in the order of 1F1B or interleaved 1F1B."""
    p, v, m = step.num_stages, step.num_chunks_per_stage, step.num_micro_batches
    if v == 1:
        turns = [(0, j) for j in range(m)]
        num_warm_up = p - stage - 1
    else:
        n = step.group_size or p
        groups = [range(first, min(first + n, m)) for first in range(0, m, n)]
        turns = [(w, j) for group in groups for w in range(v) for j in group]
        num_warm_up = 2 * (p - stage - 1) + (v - 1) * n
    forwards = [("F", stage + p * w, j) for w, j in turns]
    backwards = [("B", stage + p * (v - 1 - w), j) for w, j in turns]
    num_warm_up = min(num_warm_up, len(forwards))
    pairs = zip(forwards[num_warm_up:], backwards, strict=False)
    num_paired = len(forwards) - num_warm_up
    return forwards[:num_warm_up] + [one for pair in pairs for one in pair] + backwards[num_paired:]


def play(step: Step) -> Played:
    """Plays one step."""
    stages = [Stage(orders=orders_of(step, number)) for number in range(step.num_stages)]
    if step.num_gather_buckets == 0:
        for number, stage in enumerate(stages):
            stage.free_s = sum(step.gather_s[number :: step.num_stages][: step.num_chunks_per_stage])
    ends_s: dict[Operation, float] = {}
    while any(stage.orders for stage in stages):
        num_before = len(ends_s)
        for stage in stages:
            if stage.orders and all(needed in ends_s for needed in inputs_of(step, stage.orders[0])):
                play_one(step, stage, ends_s)
        if len(ends_s) == num_before:
            raise RuntimeError("the orders of the stages wait for each other")
    stage_end_s = [end_s(step, number, stage) for number, stage in enumerate(stages)]
    return Played(
        step_s=max(stage_end_s),
        stage_end_s=stage_end_s,
        send_busy_s=[stage.send_busy_s for stage in stages],
        peak_in_flight=[stage.peak_in_flight for stage in stages],
        ends_s=ends_s,
    )


def play_without_network(step: Step) -> Played:
    """Plays one step whose parameters and gradients move in no time."""
    nothing = [0.0] * len(step.sync_s)
    return play(replace(step, sync_s=nothing, gather_s=nothing))


def inputs_of(step: Step, operation: Operation) -> list[Operation]:
    """Returns the operations on other chunks, or before the turn, that an operation waits for."""
    kind, chunk, micro_batch = operation
    if kind == "F":
        return [("F", chunk - 1, micro_batch)] if chunk > 0 else []
    return [("B", chunk + 1, micro_batch) if chunk < step.last_chunk else ("F", chunk, micro_batch)]


def play_one(step: Step, stage: Stage, ends_s: dict[Operation, float]) -> None:
    """Plays the next operation of a stage."""
    operation = stage.orders.pop(0)
    kind, chunk, micro_batch = operation
    send_s = step.send_s if step.num_stages > 1 else 0.0
    arrivals_s = [
        ends_s[needed] + (send_s if needed[1] != chunk else 0.0) for needed in inputs_of(step, operation)
    ]
    start_s = max([stage.free_s, *arrivals_s])
    run = forward if kind == "F" else backward
    stage.free_s = run(step, stage, chunk, micro_batch, start_s)
    ends_s[operation] = stage.free_s
    has_receiver = chunk < step.last_chunk if kind == "F" else chunk > 0
    if step.send_blocks_sender and has_receiver:
        stage.free_s += send_s
        stage.send_busy_s += send_s


def forward(step: Step, stage: Stage, chunk: int, micro_batch: int, start_s: float) -> float:
    """Returns the end of a forward; the first one on a chunk takes each piece of parameters as it arrives."""
    stage.held.add((chunk, micro_batch))
    stage.peak_in_flight = max(stage.peak_in_flight, len(stage.held))
    num_pieces = step.num_gather_buckets if micro_batch == 0 else 0
    if num_pieces == 0:
        return start_s + step.forward_s[chunk]
    for _ in range(num_pieces):
        stage.gathered_s += step.gather_s[chunk] / num_pieces
        start_s = max(start_s, stage.gathered_s) + step.forward_s[chunk] / num_pieces
    return start_s


def backward(step: Step, stage: Stage, chunk: int, micro_batch: int, start_s: float) -> float:
    """Returns the end of a backward; the last one on a chunk hands each piece of gradients to the network."""
    stage.held.remove((chunk, micro_batch))
    num_pieces = step.num_overlap_buckets if micro_batch + 1 == step.num_micro_batches else 0
    for piece in range(num_pieces):
        ready_s = start_s + (piece + 1) * step.backward_s[chunk] / num_pieces
        stage.synced_s = max(stage.synced_s, ready_s) + step.sync_s[chunk] / num_pieces
    stage.backward_end_s = start_s + step.backward_s[chunk]
    return stage.backward_end_s


def end_s(step: Step, number: int, stage: Stage) -> float:
    """Returns when a stage has its last backward and all its gradients reduced."""
    if step.num_overlap_buckets > 0:
        return max(stage.backward_end_s, stage.synced_s)
    return stage.backward_end_s + sum(step.sync_s[number :: step.num_stages][: step.num_chunks_per_stage])
