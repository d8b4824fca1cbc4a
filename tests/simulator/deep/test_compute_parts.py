"""Do the operators of the fast depth add up to what it computes, and does the deep depth play the same ones?"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from simulator.deep.plans.compute_parts import LOSS, OperatorTime, compute_parts
from simulator.deep.plans.operator_names import CORE, FEED_FORWARD, HOST, INDEXER, SCAN
from simulator.deep.plans.plan_ends import OUTPUT
from simulator.deep.plans.plan_graph import DIRECTIONS
from simulator.deep.plans.plan_items import LENT, works_of
from simulator.deep.plans.plan_parts import PlanParts
from simulator.deep.plans.plan_step import PlanStep, plan_step
from simulator.deep.playing.tasks import NONE
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable, Recompute, Schedule
from simulator.layout.chunks import split_layers
from simulator.machine.rank import Rank
from simulator.step.step import simulate_step
from tests.simulator.builders import changed, job_of, plan_of, training
from tests.simulator.deep import plan_cases
from tests.simulator.deep.plan_cases import Case
from tests.simulator.hybrids import KIMI_LINEAR, NEMOTRON_H

CASES: dict[str, Case] = {
    name: case
    for cases in vars(plan_cases).values()
    if isinstance(cases, dict)
    for name, case in cases.items()
    if isinstance(case, Case)
}


def case(model: object, plan: Plan, **choices: object) -> Case:
    workload = training(model, sequence_length=4096, global_batch_size=32)  # type: ignore[arg-type]
    return Case(job=job_of(changed(workload, **choices)), plan=plan)


PLAYED = {
    "dense": case("llama-3.1-8b", plan_of(tensor=2, pipeline=2, data=4)),
    "dense, recomputed": case("llama-3.1-8b", plan_of(pipeline=4, data=4, recompute=Recompute.FULL)),
    "dense, partly recomputed": case(
        "llama-3.1-8b",
        plan_of(pipeline=2, data=4, recompute=Recompute.FULL, recompute_num_layers=3),
    ),
    "dense, core recomputed": case(
        "llama-3.1-8b", plan_of(tensor=2, context=2, data=4, recompute=Recompute.SELECTIVE)
    ),
    "experts": case("qwen3-30b-a3b", plan_of(pipeline=2, expert=8, data=8)),
    "experts in 8 bits": case("qwen3-30b-a3b", plan_of(expert=8, data=16, precision=Precision.FP8)),
    "hybrid": case(NEMOTRON_H, plan_of(tensor=2, data=8)),
    "hybrid with experts": case(KIMI_LINEAR, plan_of(expert=8, data=8)),
    "chosen tokens": case(
        "deepseek-v3.2", plan_of(pipeline=8, expert=8, data=8, recompute=Recompute.FULL), precisions=["bf16"]
    ),
}

WAITING = training("qwen3-30b-a3b", sequence_length=512, global_batch_size=64)
PLAYED["waits, recomputed"] = Case(
    job=job_of(WAITING), plan=plan_of(pipeline=2, expert=8, data=8, recompute=Recompute.FULL)
)
CASES["waits in pairs"] = Case(
    job=job_of(changed(WAITING, overlaps_expert_exchange=True)),
    plan=plan_of(pipeline=2, virtual=2, schedule=Schedule.DUAL_PIPE_V, expert=8, data=8),
)


def computed_s(job: Job, plan: Plan) -> float:
    plans, workload = PlanTable.from_plans([plan]), job.workload
    chunks = split_layers(workload.model, plans, workload.stage_layers)
    return float(simulate_step(Rank.of(job, plans), chunks).compute_s[0])


def whole_s(part: OperatorTime) -> float:
    return part.forward_s + part.backward_s + part.recomputed_s


def by_name(parts: tuple[OperatorTime, ...]) -> dict[str, float]:
    return {part.name: whole_s(part) for part in parts}


@pytest.mark.parametrize("name", [*CASES, *PLAYED])
def test_operators_add_up_to_what_a_step_computes(name: str) -> None:
    known = {**CASES, **PLAYED}[name]
    parts = compute_parts(known.job, known.plan)
    # Both sum the same numbers in different orders.
    assert sum(map(whole_s, parts)) == pytest.approx(computed_s(known.job, known.plan), rel=1e-9)
    assert all(min(part.forward_s, part.backward_s, part.recomputed_s) >= 0.0 for part in parts)
    assert len({part.name for part in parts}) == len(parts)


def played_s(step: PlanStep) -> dict[str, float]:
    """Seconds of every operator on the average accelerator, as they were played."""
    graph, found = step.graph, defaultdict[str, float](float)
    took_s = step.played.end_s - step.played.start_s
    stands_for = np.tile(step.roles.counts, step.cluster.num_stages)
    for task in np.flatnonzero(graph.resource != NONE):
        way, _, rest = graph.labels[graph.label[task]].partition(": ")
        name = rest.rpartition(" #")[0] or rest
        if way in DIRECTIONS and name and not name.startswith(LENT):
            found[name] += float(took_s[task] * stands_for[graph.resource[task]])
    return {name: seconds / step.cluster.num_gpus for name, seconds in found.items()}


@pytest.mark.parametrize("name", PLAYED)
def test_the_deep_depth_plays_the_same_operators(name: str) -> None:
    known = PLAYED[name]
    fast = by_name(compute_parts(known.job, known.plan))
    fast[OUTPUT] += fast.pop(LOSS)  # played as one operator
    deep = played_s(plan_step(known.job, known.plan))
    assert deep.keys() == fast.keys()
    assert deep == pytest.approx(fast, rel=1e-6, abs=1e-9)


def test_full_recomputation_repeats_what_a_layer_does_forward() -> None:
    known = PLAYED["dense, recomputed"]
    parts = {part.name: part for part in compute_parts(known.job, known.plan)}
    assert parts[CORE].recomputed_s == pytest.approx(parts[CORE].forward_s, rel=1e-9)
    assert parts[FEED_FORWARD].recomputed_s == pytest.approx(parts[FEED_FORWARD].forward_s, rel=1e-9)
    assert parts["embedding"].recomputed_s == parts[LOSS].recomputed_s == parts[OUTPUT].recomputed_s == 0.0


def test_full_recomputation_repeats_the_waits_for_the_host() -> None:
    recomputed = PLAYED["waits, recomputed"]
    again, once = (
        {part.name: part for part in compute_parts(recomputed.job, plan)}[HOST]
        for plan in (recomputed.plan, recomputed.plan.model_copy(update={"recompute": Recompute.NONE}))
    )
    assert 0.0 < once.forward_s == again.forward_s
    assert once.backward_s == pytest.approx(again.backward_s, rel=1e-9)
    assert again.recomputed_s == pytest.approx(once.forward_s, rel=0.01)
    assert once.recomputed_s == 0.0


def test_one_of_the_cases_waits_where_passes_are_paired() -> None:
    known = CASES["waits in pairs"]
    plans = PlanTable.from_plans([known.plan])
    chunks = split_layers(known.job.workload.model, plans, known.job.workload.stage_layers)
    passes = PlanParts(rank=Rank.of(known.job, plans), chunks=chunks).passes.values()
    works = [work for each in passes for items in (each.forward, each.backward) for work in works_of(items)]
    assert any(work.in_pairs and work.duration_s > 0.0 for work in works)


def test_without_recomputation_nothing_is_repeated() -> None:
    known = PLAYED["dense"]
    assert all(part.recomputed_s == 0.0 for part in compute_parts(known.job, known.plan))


def test_special_blocks_have_operators_of_their_own() -> None:
    names = {name: set(by_name(compute_parts(known.job, known.plan))) for name, known in PLAYED.items()}
    assert [name for name, found in names.items() if INDEXER in found] == ["chosen tokens"]
    assert [name for name, found in names.items() if SCAN in found] == ["hybrid", "hybrid with experts"]
    assert all(HOST not in found for found in (names["dense"],))
