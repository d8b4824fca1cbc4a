"""When does every operation of a pipelined step run, worked out slowly and without the kernel's shortcuts?

Orders of operations are written out as lists, overlapped transfers are moved piece by piece, and an operation is
played when everything it waits for has a time. Used to check and to time `simulator.pipeline`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, kw_only=True)
class Step:
    """One design; chunk times are lists in model order, all in seconds."""

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

    @property
    def num_chunks(self) -> int:
        return self.num_stages * self.num_chunks_per_stage


@dataclass(kw_only=True)
class Stage:
    """One stage while it is played."""

    orders: list[tuple[str, int, int]]
    free_s: float = 0.0
    gathered_s: float = 0.0
    network_free_s: float = 0.0
    num_played: int = 0
    busy_s: float = 0.0
    held: int = 0
    peak: int = 0
    left: int = field(default=0)


def orders_of(step: Step, stage: int) -> list[tuple[str, int, int]]:
    """Returns ("F" or "B", chunk, micro-batch) of a stage in the order of 1F1B or interleaved 1F1B."""
    p, v, m = step.num_stages, step.num_chunks_per_stage, step.num_micro_batches
    if v == 1:
        turns = [(0, j) for j in range(m)]
        warm_up = p - stage - 1
    else:
        turns = [(w, g * p + i) for g in range(m // p) for w in range(v) for i in range(p)]
        warm_up = 2 * (p - stage - 1) + (v - 1) * p
    forwards = [("F", stage + p * w, j) for w, j in turns]
    backwards = [("B", stage + p * (v - 1 - w), j) for w, j in turns]
    warm_up = min(warm_up, len(forwards))
    paired = [op for pair in zip(forwards[warm_up:], backwards, strict=False) for op in pair]
    return forwards[:warm_up] + paired + backwards[len(forwards) - warm_up :]


def play(step: Step) -> tuple[float, list[Stage]]:
    """Returns the time of the step and its stages after it."""
    ends: dict[tuple[str, int, int], float] = {}
    stages = [Stage(orders=orders_of(step, r)) for r in range(step.num_stages)]
    if step.num_overlap_buckets == 0:
        for chunk in range(step.num_chunks):
            stages[chunk % step.num_stages].free_s += step.gather_s[chunk]
    while any(stage.num_played < len(stage.orders) for stage in stages):
        before = len(ends)
        for stage in stages:
            if stage.num_played < len(stage.orders):
                play_next(step, stage, ends)
        assert len(ends) > before
    return max(end_of(step, r, stage) for r, stage in enumerate(stages)), stages


def end_of(step: Step, number: int, stage: Stage) -> float:
    """Returns when a stage has all its gradients reduced."""
    last = stage.left_s if hasattr(stage, "left_s") else 0.0
    del last
    chunks = range(number, step.num_chunks, step.num_stages)
    if step.num_overlap_buckets == 0:
        return stage.last_backward_s + sum(step.sync_s[chunk] for chunk in chunks)
    return max(stage.last_backward_s, stage.network_free_s)
