"""How many layers should each pipeline stage hold? The cut whose slowest stage is fastest, if every stage must fit memory.

The model is cut in layer order into C = PP x VPP chunks, chunk c on stage c mod PP, with the embedding on the first chunk
and logits and loss on the last. A chunk's time and bytes are differences of prefix sums over the layers. With VPP = 1,
dynamic programming finds the cut. With more, the chunks of a stage are not adjacent, and CP-SAT finds it.

    minimise  max over stages r of  sum over chunks c of r of (time of its layers)
    such that held bytes of each stage <= capacity, with layer bytes for every layer of it and activation bytes for every
              micro-batch that a chunk of it holds at once, at each of some moments

Among the cuts with the fastest slowest stage, the one whose fullest stage needs least memory is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from constraints.feasibility import exact_solver
from simulator.errors import InputError, Problem
from simulator.table import Booleans, Floats, Integers

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

STEPS = 10**8
"""Integer units into which CP-SAT divides the sum of all times, and of all bytes; smaller differences are ignored."""
SAME = 1e-9
"""Relative difference up to which layers count as equal and form one run."""
EFFORT = 2.0
"""Deterministic seconds of CP-SAT for a cut; without a proof in that time, the best cut found is used."""


Held = Sequence[float] | Sequence[Sequence[float]] | Floats
"""Micro-batches that each chunk holds, `(C,)`, or at each of some moments, `(K, C)`."""


@dataclass(frozen=True, kw_only=True)
class LayerCosts:
    """Time and memory of each layer, and of the ends of the model, on one rank for one micro-batch."""

    layer_s: Floats
    """Forward and backward of each layer in model order, `(L,)`."""
    embedding_s: float = 0.0
    """Input embedding, on the first chunk."""
    output_s: float = 0.0
    """Output layer and loss, on the last chunk."""
    layer_bytes: Floats
    """Weights, gradients and optimizer states of each layer, `(L,)`."""
    activation_bytes: Floats
    """What each layer keeps of one micro-batch for its backward pass, `(L,)`."""
    embedding_bytes: float = 0.0
    """Weights and states of the embedding."""
    output_bytes: float = 0.0
    """Weights and states of the output layer, and its logits."""


@dataclass(frozen=True, kw_only=True)
class StageBalance:
    """The layers of every chunk, and the resulting time and memory."""

    layers: tuple[int, ...]
    """Layers of each chunk in model order, `(C,)`."""
    slowest_s: float
    """Time of the slowest stage for one micro-batch."""
    stage_bytes: tuple[float, ...]
    """Memory of each stage, `(P,)`."""
    is_proven: bool = False
    """Whether it is proven that no cut that fits has a faster slowest stage."""


def balanced_stages(
    costs: LayerCosts,
    *,
    num_stages: int,
    num_held: Held,
    capacity_bytes: float,
    virtual_chunks: int = 1,
    turns_back: bool = False,
) -> StageBalance | None:
    """Returns the cut whose slowest stage is fastest; `None` where no cut fits the memory.

    The first and the last chunk may be empty, since they have other work; every other chunk holds at least one layer. With
    virtual chunks, sums are counted in units of 1e-8 of the total: a stage may be slower or fuller by one unit per layer.

    Args:
        costs: times and bytes by layer.
        num_stages: PP, the stages of the pipeline.
        num_held: `(C,)` micro-batches that each chunk holds at once; 1F1B: PP - stage. Or `(K, C)`, at K moments.
        capacity_bytes: memory of each stage for what `costs` counts.
        virtual_chunks: VPP, chunks of each stage.
        turns_back: whether, of two chunks on each stage, the second ones go back from the last stage to the first (ZB-V,
            DualPipeV).

    Raises:
        InputError: counts do not fit each other, or a cost is negative or not finite.

    Example:
        >>> even = np.ones(8)
        >>> costs = LayerCosts(layer_s=even, output_s=2.0, layer_bytes=even, activation_bytes=0.0 * even)
        >>> balanced_stages(costs, num_stages=2, num_held=(2, 1), capacity_bytes=6.0).layers
        (5, 3)
    """
    _check(costs, num_stages, virtual_chunks, num_held)
    held = _moments(num_held)
    num_chunks, ends_bytes = held.shape[1], (costs.embedding_bytes, costs.output_bytes)
    chunk_s = _of_chunks(costs.layer_s, num_chunks, (costs.embedding_s, costs.output_s))
    chunk_bytes = [
        _of_chunks(costs.layer_bytes + now[:, None] * costs.activation_bytes, num_chunks, ends_bytes)
        for now in held
    ]
    if virtual_chunks == 1 and len(held) == 1:
        layers, is_proven = _by_programme(chunk_s, chunk_bytes[0], num_stages, capacity_bytes), True
    else:
        stages = _stages(num_chunks, num_stages, turns_back=turns_back)
        layers, is_proven = _by_solver(chunk_s, chunk_bytes, stages, capacity_bytes)
    if layers is None:
        return None
    return replace(
        balance_of(costs, layers, num_stages, num_held, turns_back=turns_back), is_proven=is_proven
    )


def balance_of(
    costs: LayerCosts,
    layers: Sequence[int],
    num_stages: int,
    num_held: Held,
    *,
    turns_back: bool = False,
) -> StageBalance:
    """Returns the time and memory of a given cut into `(C,)` layers, without any proof of optimality."""
    ends = np.cumsum([0, *layers])
    chunk_s = np.diff(sums_before(costs.layer_s)[ends])
    kept_bytes = _moments(num_held) * np.diff(sums_before(costs.activation_bytes)[ends])
    chunk_bytes = np.diff(sums_before(costs.layer_bytes)[ends]) + kept_bytes
    for ends_of, first, last in (
        (chunk_s, costs.embedding_s, costs.output_s),
        (chunk_bytes, costs.embedding_bytes, costs.output_bytes),
    ):
        ends_of[..., 0] += first
        ends_of[..., -1] += last
    stages = _stages(len(layers), num_stages, turns_back=turns_back)
    return StageBalance(
        layers=tuple(int(count) for count in layers),
        slowest_s=float(np.bincount(stages, weights=chunk_s).max()),
        stage_bytes=tuple(np.max([np.bincount(stages, weights=now) for now in chunk_bytes], axis=0).tolist()),
    )


def _moments(num_held: Held) -> Floats:
    """Micro-batches that each chunk holds at every moment, `(K, C)`; K is 1 if only one moment is given."""
    return np.atleast_2d(np.asarray(num_held, dtype=np.float64))


def _stages(num_chunks: int, num_stages: int, *, turns_back: bool) -> Integers:
    """The stage of every chunk, `(C,)`."""
    chunk = np.arange(num_chunks)
    return np.where(turns_back & (chunk >= num_stages), num_chunks - 1 - chunk, chunk % num_stages)


def sums_before(values: Floats) -> Floats:
    """Returns the prefix sums of values, from 0 to the sum of all, `(L + 1,)`."""
    return np.concatenate([[0.0], np.cumsum(values)])


def _check(costs: LayerCosts, num_stages: int, virtual_chunks: int, num_held: Held) -> None:
    """Raises with every inconsistency that it finds."""
    problems = []
    num_layers, num_chunks = len(costs.layer_s), num_stages * virtual_chunks
    if num_stages < 1 or virtual_chunks < 1:
        rule = f"must be at least 1, as virtual_chunks ({virtual_chunks})"
        problems.append(Problem(path="num_stages", value=str(num_stages), rule=rule))
    elif num_chunks > max(1, num_layers + 2):
        rule = f"must be at most the layers ({num_layers}) and the two ends of the model"
        problems.append(Problem(path="num_stages x virtual_chunks", value=str(num_chunks), rule=rule))
    lengths = {
        "layer_bytes": (len(costs.layer_bytes), num_layers),
        "activation_bytes": (len(costs.activation_bytes), num_layers),
        "num_held": (_moments(num_held).shape[1], num_chunks),
    }
    for name, (length, wanted) in lengths.items():
        if length != wanted:
            problems.append(Problem(path=name, value=f"{length} values", rule=f"must have {wanted}"))
    for name, values in {**vars(costs), "num_held": num_held}.items():
        numbers = np.ravel(np.asarray(values, dtype=np.float64))
        if len(wrong := numbers[~(np.isfinite(numbers) & (numbers >= 0.0))]):
            problems.append(Problem(path=name, value=f"{wrong[0]:g}", rule="must be finite and not negative"))
    if problems:
        raise InputError(problems, "balanced_stages")


@dataclass(frozen=True, kw_only=True)
class _Chunks:
    """A quantity of chunks that is the sum over their layers."""

    before: Floats
    """What the layers before each place would add to each chunk, `(C, L + 1)`."""
    extra: Floats
    """What each chunk has in addition, `(C,)`."""

    def between(self, chunk: int) -> Floats:
        """The chunk's sum from any first layer to any end, `(L + 1, L + 1)`; infinite where that is not allowed."""
        before = self.before[chunk]
        num_layers = np.arange(len(before)) - np.arange(len(before))[:, None]
        may_be_empty = chunk in (0, len(self.extra) - 1)
        sums = before - before[:, None] + self.extra[chunk]
        return np.where(num_layers >= (0 if may_be_empty else 1), sums, np.inf)


def _of_chunks(of_layers: Floats, num_chunks: int, of_ends: tuple[float, float]) -> _Chunks:
    """A quantity of chunks, from its values for layers, `(L,)` or `(C, L)` by chunk, and for the model's two ends."""
    extra = np.zeros(num_chunks)
    extra[0] += of_ends[0]
    extra[-1] += of_ends[1]
    wide = np.broadcast_to(of_layers, (num_chunks, np.shape(of_layers)[-1]))
    before = np.concatenate([np.zeros((num_chunks, 1)), np.cumsum(wide, axis=1)], axis=1)
    return _Chunks(before=before, extra=extra)


def _by_programme(times: _Chunks, held: _Chunks, num_stages: int, capacity_bytes: float) -> list[int] | None:
    """The exact best cut into plain stages, by dynamic programming: the best end of each stage given those before it."""
    stage_s = [times.between(stage) for stage in range(num_stages)]
    stage_bytes = [held.between(stage) for stage in range(num_stages)]
    fits = [sums <= capacity_bytes for sums in stage_bytes]
    found = _least_largest(stage_s, fits)
    if found is None:
        return None
    slowest_s, _ = found
    is_fast = [sums <= slowest_s for sums in stage_s]
    best = _least_largest(stage_bytes, [np.logical_and(*both) for both in zip(fits, is_fast, strict=True)])
    assert best is not None, "a cut that was found is still there"
    return best[1]


def _least_largest(sums: list[Floats], is_allowed: list[Booleans]) -> tuple[float, list[int]] | None:
    """The minimum of the largest sum of any stage, and the layers of each stage; `None` where nothing is allowed.

    Args:
        sums: for each stage its sum from any first layer to any end, `(L + 1, L + 1)`.
        is_allowed: of the same shape.
    """
    num_places = len(sums[0])
    largest = np.where(np.arange(num_places) == 0, 0.0, np.inf)
    starts = []
    for stage, allowed in zip(sums, is_allowed, strict=True):
        after = np.maximum(largest[:, None], np.where(allowed, stage, np.inf))
        starts.append(np.argmin(after, axis=0))
        largest = after.min(axis=0)
    if not np.isfinite(largest[-1]):
        return None
    layers, end = [], num_places - 1
    for start in reversed(starts):
        layers.append(end - int(start[end]))
        end = int(start[end])
    return float(largest[-1]), layers[::-1]


def _by_solver(
    times: _Chunks, held: list[_Chunks], stages: Integers, capacity_bytes: float
) -> tuple[list[int] | None, bool]:
    """The best cut for several chunks per stage, by CP-SAT in units of `STEPS`, and whether it is proven.

    Args:
        times: times of chunks.
        held: memory of chunks at each moment.
        stages: the stage of every chunk, `(C,)`.
        capacity_bytes: memory of each stage.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    num_chunks, num_layers = len(times.extra), times.before.shape[1] - 1
    ends = [model.new_int_var(0, num_layers, f"end {chunk}") for chunk in range(num_chunks + 1)]
    model.add(ends[0] == 0)
    model.add(ends[-1] == num_layers)
    for chunk, (first, last) in enumerate(pairwise(ends)):
        model.add(last - first >= (0 if chunk in (0, num_chunks - 1) else 1))
    runs = _runs(times, *held)
    parts = [_parts_of_runs(model, end, runs) for end in ends]
    slowest = _largest_sum(model, parts, runs, [times], stages, np.inf)
    fullest = _largest_sum(model, parts, runs, held, stages, capacity_bytes)
    solver = exact_solver()
    solver.parameters.max_deterministic_time = EFFORT
    model.minimize(slowest)
    if (status := solver.solve(model)) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, status == cp_model.INFEASIBLE
    layers = [solver.value(last) - solver.value(first) for first, last in pairwise(ends)]
    if status == cp_model.FEASIBLE:  # not proven, so that there is nothing to hold on to
        return layers, False
    model.add(slowest <= solver.value(slowest))
    model.minimize(fullest)
    if solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        layers = [solver.value(last) - solver.value(first) for first, last in pairwise(ends)]
    return layers, True


def _runs(*quantities: _Chunks) -> list[int]:
    """The first layers of runs of equal layers, and the number of all layers; a model has one run, or two with experts."""
    of_layers = np.concatenate([np.diff(quantity.before, axis=1) for quantity in quantities])
    is_new = np.any(~np.isclose(of_layers[:, 1:], of_layers[:, :-1], rtol=SAME, atol=0.0), axis=0)
    return [0, *(np.flatnonzero(is_new) + 1).tolist(), of_layers.shape[1]]


def _parts_of_runs(
    model: cp_model.CpModel, end: cp_model.IntVar, runs: list[int]
) -> list[cp_model.LinearExpr]:
    """How many layers of each run come before an end: `min(end, last) - min(end, first)`."""
    reached = [model.new_constant(0)]
    for last in runs[1:-1]:
        here = model.new_int_var(0, last, f"{end.name} up to {last}")
        model.add_min_equality(here, [end, last])
        reached.append(here)
    return [last - first for first, last in pairwise([*reached, end])]


def _largest_sum(
    model: cp_model.CpModel,
    parts: list[list[cp_model.LinearExpr]],
    runs: list[int],
    quantities: list[_Chunks],
    stages: Integers,
    at_most: float,
) -> cp_model.IntVar:
    """The largest sum of any stage at any moment, in units of all that chunks could add up.

    Args:
        model: receives the variable.
        parts: layers of each run before each end, `(C + 1)` lists.
        runs: first layers of the runs.
        quantities: what chunks add up at each moment.
        stages: the stage of every chunk, `(C,)`.
        at_most: upper limit of every sum.
    """
    most = max(float(quantity.before[:, -1].max() + quantity.extra.sum()) for quantity in quantities)
    step = most / STEPS or 1.0
    largest = model.new_int_var(0, 2 * STEPS, "largest sum")
    for quantity in quantities:
        chunks: list[cp_model.LinearExpr] = []
        for chunk, (before, after) in enumerate(pairwise(parts)):
            weights = np.rint(np.diff(quantity.before[chunk])[runs[:-1]] / step).astype(np.int64).tolist()
            layers = sum(w * (b - a) for w, a, b in zip(weights, before, after, strict=True))
            chunks.append(layers + round(quantity.extra[chunk] / step))
        for stage in np.unique(stages):
            model.add(largest >= sum(chunks[chunk] for chunk in np.flatnonzero(stages == stage)))
    if at_most < most:
        model.add(largest <= round(at_most / step) + runs[-1] + len(stages))  # what rounding adds up to
    return largest
