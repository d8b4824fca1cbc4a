"""Which cut of the layers makes a plan's step shortest, and is that proven?

1. `constraints.stage_balance` finds the cut whose slowest stage is fastest, from the costs of the plan's layers.
2. From that cut and the workload's own cuts, layers move one by one between stages as long as the simulated step gets
   shorter, or, while nothing fits yet, as long as the fullest stage gets emptier.
3. With one chunk on a stage, all cuts whose bound is not above the step that was found (`constraints.cut_bounds`) are
   simulated, if they are few enough. This proves that no cut that fits the memory has a shorter simulated step.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np

from constraints.cut_bounds import fast_cuts
from constraints.limits import usable_memory_bytes
from constraints.plan_costs import PlanCosts, plan_costs
from constraints.stage_balance import balanced_stages
from simulator.argument_names import Argument
from simulator.cuts import CutTable, micro_batches_of, simulate_cuts
from simulator.domain.choices import StageLayers
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.errors import InputError, Problem
from simulator.layout.chunks import can_cut, split_layers
from simulator.table import Integers

MOST_CUTS = 100_000
"""Most cuts that the proof may simulate,"""
MOST_PASSES = 2e8
"""and most passes of micro-batches through their stages: a few seconds of work."""
FEW_CHUNKS = 16
"""With up to this many chunks, a layer may move from any chunk to any other; with more, only to a neighbour."""
MOST_ROUNDS = 100
"""Most moves of one layer; each shortens the simulated step."""
SAME_DIGITS = 9
"""Two steps count as equal if their ratio is 1 to this many places: summation order changes less than that."""
MOST_PLACES = 100_000_000
"""Largest stages x layers^2 that is tried; 64 stages of 1,000 layers stay below it."""


@dataclass(frozen=True, kw_only=True)
class BestCut:
    """The fastest cut that was found."""

    layers: tuple[int, ...] | None
    """Layers of every chunk, `(C,)`; `None` where no cut that fits the memory was found."""
    is_proven: bool
    """Whether it is proven that no cut that fits the memory and leaves no inner chunk empty has a shorter simulated step."""
    is_balance_proven: bool
    """Whether the cut that the search started from is proven to have the fastest slowest stage."""
    num_simulated: int
    """Cuts that were simulated, some of them more than once."""


def best_cut(job: Job, plan: Plan) -> BestCut:
    """Returns the fastest cut of a plan's layers that fits the memory.

    Args:
        job: the question; cuts that its workload asks for are not binding.
        plan: a plan that keeps the rules of layouts, except perhaps the one on how layers are cut.

    Raises:
        InputError: the plan recomputes only some layers of a chunk, has a single stage, has more chunks than layers and
            ends, or has too many of both to compare.
    """
    _check(job, plan)
    costs = plan_costs(job, plan)
    balance = balanced_stages(
        costs.layers,
        num_stages=plan.pipeline_parallel,
        num_held=costs.num_held.tolist(),
        capacity_bytes=costs.capacity_bytes,
        virtual_chunks=plan.virtual_pipeline,
        turns_back=costs.turns_back,
    )
    starts = [*own_cuts(job, plan), *cuts_beside_encoder(job, plan), *([balance.layers] if balance else [])]
    search = _Search(job, plan)
    search.try_all(np.array(starts or [_spread(job, plan)], dtype=np.int64))
    search.descend()
    is_proven = plan.virtual_pipeline == 1 and search.prove(costs)
    return BestCut(
        layers=tuple(search.layers.tolist()) if search.fits else None,
        is_proven=is_proven,
        is_balance_proven=balance is not None and balance.is_proven,
        num_simulated=search.num_simulated,
    )


def own_cuts(job: Job, plan: Plan) -> list[tuple[int, ...]]:
    """Returns the cut that the job's workload gives a plan, then others that it could request with a keyword."""
    plans = PlanTable.from_plans([plan])
    num_chunks = plans.pipeline_parallel * plans.virtual_pipeline
    wishes: list[StageLayers] = [job.workload.stage_layers, None, "balanced"]
    cuts = [
        split_layers(job.workload.model, plans, wish).num_layers[0]
        for wish in wishes
        if can_cut(job.workload.model, wish, num_chunks)[0]
    ]
    return [tuple(int(count) for count in cut) for cut in cuts]


def cuts_beside_encoder(job: Job, plan: Plan) -> dict[tuple[int, ...], int]:
    """Returns the balanced cuts of a plan beside a vision encoder, each with the layers that the encoder counts as in it."""
    model, plans = job.workload.model, PlanTable.from_plans([plan])
    if (
        model.vision is None
        or not can_cut(model, "balanced", plans.pipeline_parallel * plans.virtual_pipeline)[0]
    ):
        return {}
    cuts = {}
    for counts in range(model.num_layers, -1, -1):
        vision = model.vision.model_copy(update={"counts_as_layers": counts})
        shape = model.model_copy(update={"vision": vision})
        layers = split_layers(shape, plans, "balanced").num_layers[0]
        cuts[tuple(int(count) for count in layers)] = counts
    return cuts


def present_cut(job: Job, plan: Plan) -> tuple[int, ...] | None:
    """Returns the cut that the job's workload gives a plan; `None` where that cut is impossible."""
    num_chunks = np.array([plan.pipeline_parallel * plan.virtual_pipeline])
    if not can_cut(job.workload.model, job.workload.stage_layers, num_chunks)[0]:
        return None
    return own_cuts(job, plan)[0]


def _spread(job: Job, plan: Plan) -> tuple[int, ...]:
    """Layers dealt out one by one, for when there is no other cut to start from."""
    num_chunks = plan.pipeline_parallel * plan.virtual_pipeline
    least = _least_layers(num_chunks)
    more = job.workload.model.num_layers - int(least.sum())
    return tuple((least + more // num_chunks + (np.arange(num_chunks) < more % num_chunks)).tolist())


def _least_layers(num_chunks: int) -> Integers:
    """The fewest layers of each chunk, `(C,)`: only the first and the last one, which have other work, may be empty."""
    least = np.ones(num_chunks, dtype=np.int64)
    least[[0, -1]] = 0
    return least


def _check(job: Job, plan: Plan) -> None:
    num_chunks = plan.pipeline_parallel * plan.virtual_pipeline
    num_layers = job.workload.model.num_layers
    problems = []
    if plan.recompute_num_layers:
        rule = "must be left out: what a layer costs would depend on its place in its chunk"
        problems.append(Problem(path="recompute_num_layers", value=str(plan.recompute_num_layers), rule=rule))
    if plan.pipeline_parallel < 2:
        rule = "must be at least 2: one stage holds all layers, and there is nothing to cut"
        problems.append(Problem(path="pipeline_parallel", value=str(plan.pipeline_parallel), rule=rule))
    if num_chunks > num_layers + 2:
        rule = f"must be at most the layers ({num_layers}) and the two ends of the model; take fewer stages"
        path = "pipeline_parallel x virtual_pipeline"
        problems.append(Problem(path=path, value=str(num_chunks), rule=rule))
    elif num_chunks * (num_layers + 1) ** 2 > MOST_PLACES:
        rule = (
            f"are too many stages and layers to be weighed; chunks x layers^2 must be at most {MOST_PLACES:,}"
        )
        problems.append(Problem(path="num_layers", value=f"{num_layers} on {num_chunks}", rule=rule))
    if problems:
        raise InputError(problems, Argument("plan"))


class _Search:
    """The best simulated cut. Cuts that fit the memory come first, then those with a shorter step, then an emptier stage."""

    def __init__(self, job: Job, plan: Plan) -> None:
        self._job, self._plan = job, plan
        self._capacity_bytes = float(usable_memory_bytes(job)[plan.offer])
        self._best: CutTable | None = None
        self.num_simulated = 0

    @property
    def best(self) -> CutTable:
        assert self._best is not None, "a cut is tried first"
        return self._best

    @property
    def layers(self) -> Integers:
        """Of the best cut, `(C,)`."""
        return np.asarray(self.best.layers[0])

    @property
    def fits(self) -> bool:
        """Whether any cut fits the memory."""
        return bool(self.best.peak_memory_bytes[0] <= self._capacity_bytes)

    def try_all(self, layers: Integers) -> bool:
        """Simulates cuts, `(n, C)`, and returns whether one of them is better than the best so far."""
        tried = simulate_cuts(self._job, self._plan, layers)
        self.num_simulated += len(layers)
        together = tried if self._best is None else CutTable.concatenate([self._best, tried])
        excess = np.maximum(0.0, together.peak_memory_bytes - self._capacity_bytes)
        ratio = np.round(together.step_time_s / together.step_time_s.min(), SAME_DIGITS)
        # A stable sort keeps the first of equals.
        row = int(np.lexsort((together.peak_memory_bytes, ratio, excess))[0])
        is_better = self._best is not None and row > 0
        self._best = together.take(slice(row, row + 1))
        return is_better

    def descend(self) -> None:
        """Moves layers one by one as long as that makes the best cut better."""
        for _ in range(MOST_ROUNDS):
            moved = _moves(self.layers)
            if not len(moved) or not self.try_all(moved):
                return

    def prove(self, costs: PlanCosts) -> bool:
        """Simulates every cut that could be better, and returns whether there were few enough of them."""
        m = micro_batches_of(self._job, self._plan)
        fast = fast_cuts(
            costs,
            num_micro_batches=m,
            schedule=self._plan.pipeline_schedule,
            step_s=float(self.best.step_time_s[0]) if self.fits else np.inf,
        )
        num_passes = fast.count * 2.0 * m * self._plan.pipeline_parallel
        if fast.count > MOST_CUTS or num_passes > MOST_PASSES:
            return False
        if fast.count:
            self.try_all(fast.listed())
        return True


def _moves(layers: Integers) -> Integers:
    """Cuts with one layer moved to another chunk, `(n, C)`; inner chunks keep at least one layer."""
    num_chunks = len(layers)
    pairs = np.array(list(permutations(range(num_chunks), 2)))
    if num_chunks > FEW_CHUNKS:
        pairs = pairs[np.abs(pairs[:, 0] - pairs[:, 1]) == 1]
    steps = np.eye(num_chunks, dtype=np.int64)
    moved = layers + steps[pairs[:, 1]] - steps[pairs[:, 0]]
    least = np.minimum(_least_layers(num_chunks), layers)
    return np.asarray(moved[(moved >= least).all(axis=1)])
