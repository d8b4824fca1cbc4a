"""How does TrioSim pipeline a step? Stages of equally many operators, tensors fetched from a remote memory.

Forward operators are cut into n runs of equal count, backward and optimizer operators into n others, which need not
belong to the same layers. A stage that reads a tensor it does not have fetches it at `REMOTE_BYTES_PER_S`, one operator's
tensors at a time. Fetches run ahead of the operators, which begin when their fetch begins, not when it ends. Micro-batches go
forward one by one: the first stage begins the next one when the last one has arrived at the second stage. All go back when
the last one is through.

TrioSim also lets the next micro-batch do its first operator on a stage while the previous one is still there; this module
does not. It is within 0.3 % of TrioSim where micro-batches are few (VGG-13 in 4 parts on 4 stages).
"""

from __future__ import annotations

import numpy as np

from simulator.deep.collectives.schedules import Collectives
from simulator.deep.playing.tasks import NONE
from simulator.deep.traces.trace import OperatorTrace, Phase
from simulator.errors import InputError, Problem
from simulator.table import Floats, Integers
from simulator.units import GIGA

REMOTE_BYTES_PER_S = 696 * GIGA
"""Bandwidth from the remote memory to each accelerator, TrioSim's default."""


def add_pipeline(
    trace: OperatorTrace, collectives: Collectives, num_stages: int, num_microbatches: int
) -> None:
    """Adds a pipelined step to the graph of `collectives`.

    Raises:
        InputError: there are fewer operators than stages.
    """
    is_forward = trace.is_in(Phase.FORWARD)
    forward = _runs(trace, np.flatnonzero(is_forward), num_stages)
    backward = _runs(trace, np.flatnonzero(~is_forward), num_stages)[::-1]
    first_s, other_s = _stage_seconds(trace, forward, backward, num_microbatches)
    made = trace.outputs.sums(np.floor(trace.tensors.num_bytes / num_microbatches))
    pipeline = _Pipeline(collectives, num_stages)
    for microbatch in range(num_microbatches):
        seconds = first_s if microbatch == 0 else other_s
        pipeline.forward(seconds[0], made[[run[-1] for run in forward]])
    pipeline.turn()
    for microbatch in range(num_microbatches):
        seconds = first_s if microbatch == 0 else other_s
        pipeline.backward(seconds[1], made[[run[-1] for run in backward]])


def _runs(trace: OperatorTrace, operators: Integers, num_stages: int) -> list[Integers]:
    """Cuts operators into runs of equal count."""
    if len(operators) < num_stages:
        rule = f"must be at most {len(operators)}, the operators of a pass of {trace.name!r}"
        raise InputError([Problem(path="num_gpus", value=str(num_stages), rule=rule)])
    ends = np.arange(1, num_stages) * len(operators) // num_stages
    return [np.asarray(run) for run in np.split(operators, ends)]


def _stage_seconds(
    trace: OperatorTrace, forward: list[Integers], backward: list[Integers], num_microbatches: int
) -> tuple[Floats, Floats]:
    """Seconds `(2, stages)` forward and backward, for the first micro-batch, which fetches, and for the others."""
    held: list[set[int]] = [set() for _ in forward]
    seconds = []
    num_stages = len(forward)
    for runs, order in ((forward, range(num_stages)), (backward, range(num_stages - 1, -1, -1))):
        row = np.zeros(num_stages)
        for stage, before in zip(order, (None, *order), strict=False):
            if before is not None:
                held[stage].update(trace.outputs.of(int(runs[before][-1])).tolist())
            row[stage] = _visit_s(trace, runs[stage].tolist(), held[stage])
        seconds.append(row)
    plain = [[trace.duration_s[run].sum() for run in runs] for runs in (forward, backward)]
    return np.array(seconds) / num_microbatches, np.array(plain) / num_microbatches


def _visit_s(trace: OperatorTrace, operators: list[int], held: set[int]) -> float:
    """Seconds that a stage takes for its operators, including waits for fetches; records what it then holds."""
    now_s, fetched_s, computed_s = 0.0, np.inf, np.inf
    fetch, compute = 0, 0
    inputs = [trace.inputs.of(operator).tolist() for operator in operators]
    while True:
        while np.isinf(fetched_s) and fetch < len(operators):
            missing = [tensor for tensor in inputs[fetch] if tensor not in held]
            if fetch < compute or not missing:
                fetch += 1
                continue
            # Room is made at once, and a tensor that has room counts as present.
            held.update(missing, trace.outputs.of(operators[fetch]).tolist())
            fetched_s = now_s + float(trace.tensors.num_bytes[missing].sum()) / REMOTE_BYTES_PER_S
        if np.isinf(computed_s):
            if compute == len(operators):
                return now_s
            if held.issuperset(inputs[compute]):
                computed_s = now_s + float(trace.duration_s[operators[compute]])
                compute += 1
        now_s = min(fetched_s, computed_s)
        if fetched_s == now_s:
            fetched_s = np.inf
        if computed_s == now_s:
            held.update(trace.outputs.of(operators[compute - 1]).tolist())
            computed_s = np.inf


class _Pipeline:
    """Adds the passes of micro-batches."""

    def __init__(self, collectives: Collectives, num_stages: int) -> None:
        self._collectives = collectives
        self._graph = collectives.graph
        self._num_stages = num_stages
        self._begin = NONE
        """The task after which the first stage may begin the next micro-batch."""
        self._last = np.full(num_stages, NONE)
        """The last task of each stage."""

    def forward(self, seconds: Floats, num_bytes: Floats) -> None:
        """Adds a micro-batch that goes from the first stage to the last."""
        arrived = self._begin
        for stage in range(self._num_stages):
            arrived = self._pass("forward", stage, stage + 1, seconds[stage], num_bytes[stage], arrived)
            if stage == 0:
                self._begin = arrived

    def turn(self) -> None:
        """Lets the backward passes begin when all forward passes are done."""
        self._begin = int(self._last[-1])

    def backward(self, seconds: Floats, num_bytes: Floats) -> None:
        """Adds a micro-batch that goes from the last stage to the first."""
        arrived = self._begin
        for stage in range(self._num_stages - 1, -1, -1):
            arrived = self._pass("backward", stage, stage - 1, seconds[stage], num_bytes[stage], arrived)

    def _pass(self, label: str, stage: int, target: int, seconds: float, num_bytes: float, after: int) -> int:
        """Adds the work of a stage and its message to the next one; returns the task at which that has arrived."""
        task = self._graph.add(
            label, duration_s=seconds, resource=stage, after=[[after], [self._last[stage]]]
        )
        self._last[stage] = task[0]
        if not 0 <= target < self._num_stages:
            return int(task[0])
        ends = np.array([stage]), np.array([target])
        return int(self._collectives.send(*ends, num_bytes, task, "send")[0])
