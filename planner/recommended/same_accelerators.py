"""What would other choices cost? The best designs on the accelerators of a plan: one for each value of each choice.

Every layout on these accelerators that may keep the limits is simulated, and of the others those with a value that no such
layout has: the nearest to the limits tells which of them rule the value out. Blocks of layouts keep their leaders alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from constraints.evaluation import Evaluation, evaluate
from constraints.lattice import enumerate_layouts, no_layouts
from constraints.layout import is_valid_layout
from constraints.scheme_rules import can_save_by
from constraints.space import pruned_space
from objectives.pareto import compromise_losses
from planner.job.unused_workload import narrowed_to
from planner.recommended.choice_words import CHOICE_WORDS
from planner.recommended.comparisons import OtherChoice
from simulator.domain.job import Job
from simulator.domain.offer import GpuRange
from simulator.domain.plan import Plan, PlanTable, Recompute, is_interleaved
from simulator.record import finite_or_none
from simulator.table import Booleans, Integers
from simulator.units import DAY

CHOICES = tuple(CHOICE_WORDS)
"""Fields of a plan whose other values are tried. Data parallelism follows from them; spares and power caps trade one objective
for another, which the front shows."""
SEARCHED = {
    "pipeline_schedule": "pipeline_schedules",
    "interleaved_group_size": "interleaved_group_sizes",
    "micro_batch_size": "micro_batch_sizes",
    "zero_stage": "zero_stages",
    "shard_ranks": "hybrid_sharding",
    "checkpoint_scheme": "checkpoint_schemes",
}
"""Lists of a search with the values of choices, where they have other names than these."""
NOT_CHOSEN = -1
"""Value of a choice that another one leaves no room for: a group without interleaving, layers without full recomputation."""
ROOMY_FRACTION = 0.95
"""Share of the memory up to which a design surely fits (docs/validation.md)."""
MOST_LAYOUTS = 100_000
MOST_CHANGES = 4
"""Beyond so many layouts, only those are compared that differ from the plan in no more than so many choices."""


@dataclass(frozen=True, kw_only=True)
class SameAccelerators:
    """The best designs on the accelerators of a plan."""

    job: Job
    plan: Plan
    """The plan."""
    leaders: Evaluation
    """The best design with each value of each choice, or the one nearest to the limits; and the best roomy one."""

    def choices(self) -> tuple[OtherChoice, ...]:
        """Returns the best design with each other value of each choice, the best first."""
        return tuple(
            other_choice(self.job, name, self.leaders, row) for name in CHOICES for row in self._others(name)
        )

    def best_roomy(self) -> Evaluation | None:
        """Returns the best design that fills no more than `ROOMY_FRACTION` of the memory; `None` if there is none."""
        rows = np.flatnonzero(_is_roomy(self.leaders))
        return self.leaders.take(rows[:1]) if len(rows) else None

    def _others(self, name: str) -> list[int]:
        """Rows of the leaders with other values of a choice than the plan's, the best first.

        What another choice tells by itself is left out: that there is nothing to choose, and the default where there is more.
        """
        values, first = np.unique(_values(self.leaders.plans, name), return_index=True)
        plan = PlanTable.from_plans([self.plan])
        own = _values(plan, name)[0]
        if own == NOT_CHOSEN and not np.any(values > 0):
            return []
        is_told = (values == NOT_CHOSEN) & _is_chosen(plan, name)
        return sorted(first[(values != own) & ~is_told].tolist())


def other_choice(job: Job, name: str, designs: Evaluation, row: int) -> OtherChoice:
    """Returns one of some designs as another value of a choice, which is a field of a plan."""
    plan, excess, scores = designs.plans.plan(row), designs.excess, designs.scores
    return OtherChoice(
        name=name,
        value=plan.model_dump(mode="json")[name],
        plan=plan,
        violated=tuple(limit for limit, shares in excess.columns().items() if shares[row]),
        time_to_train_days=finite_or_none(float(scores.time_to_train_s[row]) / DAY),
        objective_values={
            objective.value: finite_or_none(float(scores.objective(objective)[row]))
            for objective in job.objectives
        },
    )


def same_accelerators(job: Job, plan: Plan) -> SameAccelerators:
    """Returns the best designs on the accelerators of a plan, with its power cap and spares.

    They are saved as the plan is, or by the first scheme that they can have. The plan itself is tried with every scheme.
    """
    space = pruned_space(_narrowed(job, plan))
    most_changes = MOST_CHANGES if space.num_kept > MOST_LAYOUTS else len(CHOICES)
    alike = (_run_like(job, plan, layouts) for layouts in space.kept_blocks())
    near = (designs.take(_num_changes(plan, designs) <= most_changes) for designs in alike)
    kept = _with_better(job, _leaders(job, evaluate(job, _saved_otherwise(job, plan))), near)
    new = (block.layouts.take(_has_new_value(block.layouts, kept)) for block in space.blocks())
    ruled_out = (_run_like(job, plan, layouts) for layouts in new)
    return SameAccelerators(job=job, plan=plan, leaders=_with_better(job, kept, ruled_out))


def one_change(job: Job, plan: Plan, *, can_run: bool = True) -> SameAccelerators:
    """Returns the designs that differ from a plan in one choice alone; data parallelism follows, and what it ends.

    Args:
        job: the job.
        plan: the plan.
        can_run: whether it breaks no rule of layouts; only then it is simulated itself, with every checkpoint scheme.
    """
    own = _saved_otherwise(job, plan) if can_run else no_layouts(job)
    leaders = _leaders(job, evaluate(job, own))
    near = PlanTable.concatenate(list(_near(job, plan)))
    return SameAccelerators(job=job, plan=plan, leaders=_with_better(job, leaders, [near]))


def _near(job: Job, plan: Plan) -> Iterator[PlanTable]:
    """Yields the layouts that differ from a plan in one choice, whether or not a search tries the values of the others."""
    narrow = _narrowed(job, plan)
    shards_more = job.search.shards_more_in_pipelines or _shards_more(PlanTable.from_plans([plan]))[0]
    for name, one_open in _each_open(narrow, plan):
        layouts = enumerate_layouts(one_open)
        if plan.shard_ranks and name != "shard_ranks":  # a search tries the ranks of a node alone
            layouts = replace(layouts, shard_ranks=np.full(len(layouts), plan.shard_ranks))
            layouts = layouts.take(is_valid_layout(one_open, layouts))
        designs = _run_like(job, plan, layouts)
        yield designs.take((_num_changes(plan, designs) == 1) & (shards_more | ~_shards_more(designs)))


def _each_open(job: Job, plan: Plan) -> Iterator[tuple[str, Job]]:
    """Yields, for each choice, a narrowed job that searches it as before, and no value but the plan's own of the others."""
    own = narrowed_to(job, plan.model_copy(update={"offer": 0}))
    lists: dict[str, object] = {
        "micro_batch_sizes": (plan.micro_batch_size,),
        "pipeline_schedules": (plan.pipeline_schedule,),
        "hybrid_sharding": (False,),
    }
    if not _is_chosen(PlanTable.from_plans([plan]), "interleaved_group_size")[0]:
        lists["interleaved_group_sizes"] = job.search.interleaved_group_sizes
    closed = own.search.model_copy(update=lists)
    for name in CHOICES:
        if name == "precision":
            yield name, own.model_copy(update={"search": closed, "workload": job.workload})
        elif name != "checkpoint_scheme":  # the plan has been tried with all of them
            field = SEARCHED.get(name, name)
            opened = closed.model_copy(update={field: getattr(job.search, field)})
            yield name, own.model_copy(update={"search": opened})


def _shards_more(plans: PlanTable) -> Booleans:
    """Whether plans share more than the states of the optimizer in a pipeline, which few frameworks do, `(n,)`."""
    return np.asarray((plans.zero_stage >= 2) & (plans.pipeline_parallel > 1))


def _num_changes(plan: Plan, designs: PlanTable) -> Integers:
    """In how many choices designs differ from a plan, `(n,)`; what another choice leaves no room for follows from that one."""
    own = PlanTable.from_plans([plan])
    differs = [
        (getattr(designs, name) != getattr(own, name)) & (_is_chosen(designs, name) | ~_is_chosen(own, name))
        for name in CHOICES
    ]
    return np.asarray(np.sum(differs, axis=0))


def _is_chosen(plans: PlanTable, name: str) -> Booleans:
    """Whether the other choices of plans leave anything to choose, `(n,)`."""
    match name:
        case "interleaved_group_size":
            return is_interleaved(plans)
        case "recompute_num_layers":
            return np.asarray(plans.recompute == Recompute.FULL.code)
        case _:
            return np.ones(len(plans), dtype=np.bool_)


def _values(plans: PlanTable, name: str) -> Integers:
    """Values of a choice, `(n,)`: 0 if left out, `NOT_CHOSEN` if there is nothing to choose."""
    column = getattr(plans, name)
    return np.asarray(np.where(_is_chosen(plans, name) | (column > 0), column, NOT_CHOSEN))


def _with_better(job: Job, leaders: Evaluation, blocks: Iterable[PlanTable]) -> Evaluation:
    """The leaders among these and blocks of designs."""
    for designs in blocks:
        if len(designs):
            found = _leaders(job, evaluate(job, designs))
            leaders = _leaders(job, Evaluation.concatenate([leaders, found]))
    return leaders


def _has_new_value(layouts: PlanTable, leaders: Evaluation) -> Booleans:
    """Which layouts have a value of a choice that none of the leaders has, `(n,)`."""
    is_known = [np.isin(_values(layouts, name), _values(leaders.plans, name)) for name in CHOICES]
    return np.asarray(~np.all(is_known, axis=0))


def _leaders(job: Job, found: Evaluation) -> Evaluation:
    """The rows that are the best with some value of some choice, or the best roomy one; the best first."""
    losses = compromise_losses(found.objectives(job), np.array(job.objective_weights))
    order = np.lexsort((losses, found.excess.total))
    places = [np.unique(_values(found.plans, name)[order], return_index=True)[1] for name in CHOICES]
    places.append(np.flatnonzero(_is_roomy(found)[order])[:1])
    return found.take(order[np.unique(np.concatenate(places))])


def _is_roomy(found: Evaluation) -> Booleans:
    summary = found.outcomes.summary
    is_roomy = summary.peak_memory_bytes <= ROOMY_FRACTION * summary.memory_capacity_bytes
    return np.asarray(found.is_feasible & is_roomy)


def _narrowed(job: Job, plan: Plan) -> Job:
    """The job with the accelerators and the power cap of a plan alone."""
    offer = job.offers[plan.offer]
    exactly = GpuRange(min=plan.num_gpus, max=plan.num_gpus)
    narrow = offer.model_copy(update={"num_gpus": exactly})
    # Bounds without spares hold with those of the plan, however many these are.
    search = job.search.model_copy(update={"power_caps": (plan.power_cap_fraction,), "with_spares": (False,)})
    return job.model_copy(update={"offers": (narrow,), "search": search})


def _saved_otherwise(job: Job, plan: Plan) -> PlanTable:
    """The plan, and the plan with each other checkpoint scheme that it can have, at the interval that this loses least with."""
    schemes = [scheme for scheme in job.search.checkpoint_schemes if scheme is not plan.checkpoint_scheme]
    can_save = can_save_by(job, PlanTable.from_plans([plan]), schemes)[0] if schemes else ()
    others = [
        plan.model_copy(update={"checkpoint_scheme": scheme, "checkpoint_interval_s": None})
        for scheme, is_possible in zip(schemes, can_save, strict=True)
        if is_possible
    ]
    return PlanTable.from_plans([plan, *others])


def _run_like(job: Job, plan: Plan, layouts: PlanTable) -> PlanTable:
    """The layouts of a narrowed job, in the job itself, with the spares of a plan and saved as it is where they can be."""
    like = PlanTable.from_plans([plan]).take(np.zeros(len(layouts), dtype=np.intp))
    layouts = replace(layouts, offer=like.offer, num_spare_nodes=like.num_spare_nodes)
    can_save = can_save_by(job, layouts, (plan.checkpoint_scheme,))[:, 0]
    scheme = np.where(can_save, like.checkpoint_scheme, layouts.checkpoint_scheme)
    interval_s = np.where(can_save, like.checkpoint_interval_s, layouts.checkpoint_interval_s)
    return replace(layouts, checkpoint_scheme=scheme, checkpoint_interval_s=interval_s)
