"""Which choices of a plan does the search not try, so that no answer to the job can have them?

A plan may meet every constraint and still be outside of the space that the job searches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from operator import attrgetter

import numpy as np

from constraints.answers import has_any_number_of_spares, is_refined, stepped_caps
from constraints.lattice import contexts, node_shard_ranks, pipelines, recomputations, tensor_degrees
from planner.explain.explanation import Untried
from planner.recommended.choice_words import written
from planner.recommended.same_accelerators import CHOICES, SEARCHED
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable, is_interleaved
from simulator.run.spare_nodes import sufficient_spare_nodes


def untried(job: Job, plan: Plan) -> tuple[Untried, ...]:
    """Returns the choices of a plan that no search of the job makes; empty if it may find the plan, or an equal one.

    Numbers of accelerators are left to the constraints, and checkpoint intervals follow from the other choices.
    """
    return (*_layout_choices(job, _plainly(plan)), *_run_choices(job, plan))


def _plainly(plan: Plan) -> Plan:
    """The plan with groups left out where they are as large as without."""
    replicas = plan.data_parallel * plan.context_parallel
    has_own_ranks = plan.zero_stage > 0 and (plan.shard_ranks or replicas) < replicas
    has_own_size = plan.interleaved_group_size != plan.pipeline_parallel
    changes = {
        "shard_ranks": plan.shard_ranks if has_own_ranks else None,
        "interleaved_group_size": plan.interleaved_group_size if has_own_size else None,
    }
    return plan.model_copy(update=changes)


def _layout_choices(job: Job, plan: Plan) -> Iterator[Untried]:
    for name in CHOICES:
        if name == "expert_parallel" and job.workload.model.experts is None:
            continue  # the list is not used
        values = _tried(job, plan, name)
        if values is not None and getattr(plan, name) not in values:
            tried = tuple(written(plan.model_copy(update={name: value}), name) for value in values)
            yield Untried(choice=name, value=written(plan, name), tried=tried, field=_field(name))


def _tried(job: Job, plan: Plan, name: str) -> Collection[object] | None:
    """Values of a choice that are tried beside the other choices of a plan; `None` if all that the constraints allow are."""
    search = job.search
    match name:
        case "tensor_parallel":
            return tensor_degrees(job, job.offers[plan.offer])
        case "pipeline_parallel":
            return dict.fromkeys(p for p, _ in pipelines(job))
        case "virtual_pipeline":  # where the stages are not tried, neither is their number of chunks
            return [v for p, v in pipelines(job) if p == plan.pipeline_parallel] or None
        case "interleaved_group_size":
            sizes = (
                search.interleaved_group_sizes if is_interleaved(PlanTable.from_plans([plan]))[0] else None
            )
            return [None if size == plan.pipeline_parallel else size for size in sizes or (None,)]
        case "context_parallel":
            return contexts(job)
        case "recompute":
            return recomputations(job)
        case "recompute_num_layers":
            return (None, *(search.recompute_num_layers or ()))
        case "zero_stage":
            is_any = plan.pipeline_parallel == 1 or search.shards_more_in_pipelines
            return [stage for stage in search.searched_zero_stages if stage < 2 or is_any]
        case "shard_ranks":
            return _tried_groups(job, plan)
        case _:
            listed: Collection[object] | None = attrgetter(_field(name))(job)
            return listed


def _tried_groups(job: Job, plan: Plan) -> list[int | None]:
    """Ranks of the shard groups that are tried; `None` where these are all."""
    of_node = int(node_shard_ranks(job, np.array(plan.offer), np.array(plan.tensor_parallel)))
    is_whole = of_node == plan.data_parallel * plan.context_parallel
    groups = [of_node if is_hybrid and not is_whole else None for is_hybrid in job.search.hybrid_sharding]
    return list(dict.fromkeys(groups))


def _field(choice: str) -> str:
    """The field of a job that lists the values of a choice."""
    return "workload.precisions" if choice == "precision" else f"search.{SEARCHED.get(choice, choice)}"


def _run_choices(job: Job, plan: Plan) -> Iterator[Untried]:
    enough = int(sufficient_spare_nodes(job, PlanTable.from_plans([plan]))[0])
    ends = sorted({enough if with_spares else 0 for with_spares in job.search.with_spares})
    spares = range(ends[0], ends[-1] + 1) if has_any_number_of_spares(job) else ends
    if plan.num_spare_nodes not in spares:
        value, tried = str(plan.num_spare_nodes), tuple(map(str, spares))
        yield Untried(choice="num_spare_nodes", value=value, tried=tried, field="search.with_spares")
    is_between = is_refined(job)
    caps = sorted({*job.power_caps, *(stepped_caps(job).tolist() if is_between else ())})
    cap = plan.power_cap_fraction
    if not (caps[0] <= cap <= caps[-1] if is_between else cap in caps):
        tried = tuple(map(human.figure, caps))
        value = human.figure(cap)
        yield Untried(choice="power_cap_fraction", value=value, tried=tried, field="search.power_caps")
