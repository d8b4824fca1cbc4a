"""Is there a better cut of a plan's layers? Found cuts against all cuts there are, and against published pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np
import pytest

from constraints.best_cut import best_cut, cuts_beside_encoder, own_cuts, present_cut
from constraints.cut_bounds import fast_cuts
from constraints.plan_costs import plan_costs
from constraints.stage_balance import balance_of, balanced_stages
from simulator.cuts import micro_batches_of, simulate_cuts, stage_figures
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable, Schedule
from simulator.errors import InputError
from simulator.memory.activations import in_flight_chunks
from simulator.simulate import simulate
from tests.simulator.vision import TOWER
from tests.support import H100_RENTED, job_with

ROUNDING = 1e-9
"""Steps in sums of another order."""
MANY_H100 = {**H100_RENTED, "num_gpus": {"min": 8, "max": 20_000}}
SMALL = {
    "name": "ten layers",
    "num_layers": 10,
    "hidden_size": 2048,
    "num_heads": 16,
    "num_kv_heads": 8,
    "head_dim": 128,
    "ffn_hidden_size": 8192,
    "is_gated": True,
    "vocabulary_size": 128_000,
}
MANY_ROWS = {**SMALL, "name": "a million rows", "vocabulary_size": 1_000_000}
"""The gradient of the embedding is then the largest tensor of the first stage, and less so the more layers stand there."""
GEMMA_2_9B = {
    "name": "Gemma 2 9B",
    "num_layers": 42,
    "hidden_size": 3584,
    "num_heads": 16,
    "num_kv_heads": 8,
    "head_dim": 256,
    "is_gated": True,
    "ffn_hidden_size": 14_336,
    "vocabulary_size": 256_128,
    "has_tied_embeddings": True,
}
"""arXiv 2408.00118, table 1; the width of one of its two equal input matrices."""


def job_of(model: object, **workload: object) -> Job:
    return job_with(MANY_H100, workload={"model": model, **workload})


def plan_of(**fields: object) -> Plan:
    """A plan of the first offer whose `num_gpus` follow from its degrees."""
    degrees = {f"{name}_parallel": int(str(fields.pop(name, 1))) for name in ("tensor", "pipeline", "data")}
    return Plan.model_validate(
        {"offer": 0, "num_gpus": int(np.prod(list(degrees.values()))), **degrees, **fields}
    )


def every_cut(num_layers: int, num_chunks: int) -> Iterator[tuple[int, ...]]:
    """All cuts whose inner chunks have a layer; the two ends count as a part each, so that every chunk has one."""
    for inner in combinations(range(1, num_layers + 2), num_chunks - 1):
        parts = np.diff([0, *inner, num_layers + 2])
        parts[[0, -1]] -= 1
        yield tuple(parts.tolist())


PLANS: list[Mapping[str, object]] = [
    {"pipeline": 4, "data": 8},
    {"pipeline": 4, "data": 32},
    {"pipeline": 3, "data": 2, "zero_stage": 3, "recompute": "full"},
    {"pipeline": 4, "data": 4, "pipeline_schedule": "gpipe"},
    {"pipeline": 4, "data": 4, "pipeline_schedule": "zb_h1"},
    {"pipeline": 2, "data": 4, "pipeline_schedule": "zb_v", "virtual_pipeline": 2},
    {"pipeline": 2, "data": 4, "pipeline_schedule": "dual_pipe_v", "virtual_pipeline": 2},
    {"pipeline": 2, "data": 4, "virtual_pipeline": 2},
]


@pytest.mark.short(5)
@pytest.mark.parametrize("fields", PLANS, ids=str)
@pytest.mark.parametrize("is_tight", [False, True])
def test_no_cut_that_fits_has_a_shorter_step(fields: Mapping[str, object], is_tight: bool) -> None:
    job, plan = job_of(SMALL), plan_of(**fields)
    cuts = np.array(list(every_cut(10, plan.pipeline_parallel * plan.virtual_pipeline)))
    tried = simulate_cuts(job, plan, cuts)
    if is_tight:  # the accelerator is made so small that the fastest cut does not fit
        fastest_bytes = float(tried.peak_memory_bytes[np.argmin(tried.step_time_s)])
        job = with_memory(job, max(fastest_bytes * (1.0 - ROUNDING), float(tried.peak_memory_bytes.min())))
    fits = tried.peak_memory_bytes <= job.offers[0].accelerator.memory_bytes
    found = best_cut(job, plan)
    assert found.layers is not None
    assert found.is_proven == (plan.virtual_pipeline == 1)
    (row,) = np.flatnonzero((cuts == found.layers).all(axis=1))
    assert fits[row]
    assert tried.step_time_s[row] == pytest.approx(tried.step_time_s[fits].min(), rel=ROUNDING)


def with_memory(job: Job, memory_bytes: float) -> Job:
    offer = job.offers[0]
    accelerator = offer.accelerator.model_copy(update={"memory_bytes": memory_bytes})
    return job.model_copy(update={"offers": (offer.model_copy(update={"accelerator": accelerator}),)})


def test_where_no_cut_fits_that_is_proven() -> None:
    found = best_cut(with_memory(job_of(SMALL), 6e9), plan_of(pipeline=4, data=8))
    assert (found.layers, found.is_proven) == (None, True)


def test_where_none_was_found_to_fit_slow_cuts_are_simulated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow cut may fit where the fastest one does not: no step rules a cut out as long as none is known to fit."""
    plan = plan_of(pipeline=4, data=4, pipeline_schedule="gpipe")
    least = simulate_cuts(job_of(SMALL), plan, np.array(list(every_cut(10, 4)))).peak_memory_bytes.min()
    job = with_memory(job_of(SMALL), 0.98 * float(least))
    costs = plan_costs(job, plan)
    may_fit = fast_cuts(costs, num_micro_batches=16, schedule=plan.pipeline_schedule, step_s=np.inf).count
    assert may_fit > 10
    found = best_cut(job, plan)
    monkeypatch.setattr("constraints.best_cut.MOST_CUTS", 0)
    assert found.num_simulated - best_cut(job, plan).num_simulated == may_fit


@pytest.mark.short(5)
@pytest.mark.parametrize("model", [SMALL, "deepseek-v2-lite", MANY_ROWS], ids=["dense", "experts", "rows"])
@pytest.mark.parametrize("fields", PLANS[:5], ids=str)
def test_no_cut_that_fits_is_left_out(fields: Mapping[str, object], model: object) -> None:
    job, plan = job_of(model), plan_of(**{**fields, "pipeline": 3})
    tried = simulate_cuts(job, plan, np.array(list(every_cut(job.workload.model.num_layers, 3))))
    for memory_bytes in np.quantile(tried.peak_memory_bytes, [0.0, 0.1, 0.5]).tolist():
        costs = plan_costs(with_memory(job, memory_bytes), plan)
        fast = fast_cuts(costs, num_micro_batches=8, schedule=plan.pipeline_schedule, step_s=np.inf)
        listed = set(map(tuple, fast.listed().tolist()))
        fits = tried.layers[tried.peak_memory_bytes <= memory_bytes]
        assert set(map(tuple, fits.tolist())) <= listed
        assert len(listed) < len(tried)


@pytest.mark.parametrize("fields", PLANS[:5], ids=str)
def test_no_simulated_step_is_below_its_bound(fields: Mapping[str, object]) -> None:
    job, plan = with_memory(job_of(SMALL), 1e15), plan_of(**fields)  # so that all cuts fit
    costs = plan_costs(job, plan)
    tried = simulate_cuts(job, plan, np.array(list(every_cut(10, plan.pipeline_parallel))))
    for layers, step_s in zip(tried.layers, tried.step_time_s.tolist(), strict=True):
        fast = fast_cuts(
            costs,
            num_micro_batches=micro_batches_of(job, plan),
            schedule=plan.pipeline_schedule,
            step_s=step_s,
        )
        ends = np.cumsum([0, *layers])
        assert all(fast.is_allowed[stage, ends[stage], ends[stage + 1]] for stage in range(len(layers)))


@pytest.mark.parametrize("limit", ["MOST_CUTS", "MOST_PASSES"])
def test_what_would_take_too_long_to_prove_is_not_called_proven(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"constraints.best_cut.{limit}", 0)
    assert not best_cut(job_of(SMALL), plan_of(**PLANS[0])).is_proven


def test_the_cuts_that_are_counted_are_those_that_are_listed() -> None:
    job, plan = job_of(SMALL), plan_of(pipeline=4, data=8)
    fast = fast_cuts(plan_costs(job, plan), num_micro_batches=8, schedule=Schedule.ONE_F_ONE_B, step_s=np.inf)
    assert fast.count == len(fast.listed()) == 165  # of 12 parts in 4 runs: 11 over 3
    assert set(map(tuple, fast.listed().tolist())) == set(every_cut(10, 4))


@pytest.mark.parametrize("fields", PLANS, ids=str)
def test_a_cut_comes_out_as_if_the_workload_listed_it(fields: Mapping[str, object]) -> None:
    plan = plan_of(**fields)
    cuts = list(every_cut(10, plan.pipeline_parallel * plan.virtual_pipeline))[::40]
    tried = simulate_cuts(job_of(SMALL), plan, np.array(cuts))
    for row, cut in enumerate(cuts):
        outcome = simulate(job_of(SMALL, stage_layers=list(cut)), PlanTable.from_plans([plan]))
        assert tried.step_time_s[row] == outcome.steps.step_time_s[0]
        assert tried.peak_memory_bytes[row] == outcome.memory.peak_bytes[0]


@pytest.mark.parametrize("fields", PLANS, ids=str)
@pytest.mark.parametrize("model", [SMALL, "deepseek-v2-lite"], ids=["dense", "experts"])
@pytest.mark.parametrize("frees_stage_inputs", [False, True])
def test_costs_of_layers_add_up_to_the_stages_of_the_simulator(
    model: object, fields: Mapping[str, object], frees_stage_inputs: bool
) -> None:
    job = job_of(model, frees_stage_inputs=frees_stage_inputs)
    plan = plan_of(**{**fields, "zero_stage": 1})
    costs = plan_costs(job, plan)
    num_chunks = plan.pipeline_parallel * plan.virtual_pipeline
    layers = [4] * (num_chunks - 1)
    cut = np.array([*layers, job.workload.model.num_layers - sum(layers)])
    if cut[-1] < 1:
        cut = np.array([3, 2, 2, 3])
    stages = stage_figures(job, plan, cut)
    linear = balance_of(
        costs.layers,
        cut.tolist(),
        plan.pipeline_parallel,
        costs.num_held.tolist(),
        turns_back=costs.turns_back,
    )
    assert linear.slowest_s == pytest.approx(stages.micro_batch_s.max(), rel=ROUNDING)
    held = in_flight_chunks(job.workload, PlanTable.from_plans([plan]), np.array([0]))[0]
    own = [0, num_chunks - 1] if costs.turns_back else slice(0, None, plan.pipeline_parallel)
    assert costs.num_held[:, own].sum(axis=1).max() == held
    besides = job.offers[0].accelerator.memory_bytes - costs.capacity_bytes
    bytes_ = np.array(linear.stage_bytes) + besides
    # Never less than simulated; above it by the difference between layers at work, where a stage has one kind alone.
    assert np.all(bytes_ >= stages.memory_bytes * (1.0 - ROUNDING))
    assert bytes_ == pytest.approx(stages.memory_bytes, rel=0.1)


def test_dense_layers_may_stand_between_those_with_experts() -> None:
    # Llama 4 Maverick: every other layer has experts, so that both kinds are on both stages.
    experts = {
        "num_experts": 8,
        "experts_per_token": 4,
        "expert_ffn_hidden_size": 8192,
        "layer_step": 2,
    }
    job, plan = job_of({**SMALL, "experts": experts}), plan_of(pipeline=2, data=8)
    costs = plan_costs(job, plan)
    for cut in ((5, 5), (7, 3)):
        stages = stage_figures(job, plan, np.array(cut))
        linear = balance_of(costs.layers, cut, 2, costs.num_held.tolist())
        assert linear.slowest_s == pytest.approx(stages.micro_batch_s.max(), rel=ROUNDING)


def test_llama_405b_is_balanced_with_one_layer_less_on_both_ends() -> None:
    # arXiv 2407.21783, section 3.3.2: 126 layers on 16 stages, one less at both ends.
    job = job_of("llama-3.1-405b", global_batch_size=2048)
    plan = plan_of(tensor=8, pipeline=16, data=64, recompute="full")
    published = (7, *[8] * 14, 7)
    assert present_cut(job, plan) == published
    costs = plan_costs(job, plan)
    balance = balanced_stages(
        costs.layers,
        num_stages=16,
        num_held=costs.num_held.tolist(),
        capacity_bytes=costs.capacity_bytes,
    )
    assert balance is not None
    assert balance.is_proven
    ours = balance_of(costs.layers, published, 16, costs.num_held.tolist())
    assert ours.slowest_s == pytest.approx(balance.slowest_s)
    found = best_cut(job, plan)
    assert found.is_proven
    assert found.layers is not None
    assert sum(found.layers) == 126
    steps_s = simulate_cuts(job, plan, np.array([found.layers, published])).step_time_s
    assert 0.99 < steps_s[0] / steps_s[1] <= 1.0  # what is published is as good as any, but for a fraction


def test_deepseek_v3_on_16_stages_puts_its_cheap_dense_layers_beside_more_others() -> None:
    # arXiv 2412.19437, section 4.2: three dense layers of 61. In ours a dense layer takes less than one with experts.
    job = job_of("deepseek-v3", global_batch_size=2048, sequence_length=4096)
    plan = plan_of(pipeline=16, data=64, expert_parallel=64, recompute="full")
    found = best_cut(job, plan)
    assert found.is_proven
    assert found.layers is not None
    assert sum(found.layers) == 61
    assert found.layers[0] > max(found.layers[1:])
    assert found.layers[-1] < max(found.layers[1:])
    steps_s = simulate_cuts(job, plan, np.array([found.layers, *own_cuts(job, plan)])).step_time_s
    assert steps_s[0] < min(steps_s[1:])


@pytest.mark.parametrize(
    "fields", [PLANS[0], PLANS[4], {"pipeline": 4, "data": 4, "zero_stage": 0}, PLANS[7]], ids=str
)
def test_a_vision_encoder_takes_layers_off_the_first_stage(fields: Mapping[str, object]) -> None:
    model = {**SMALL, "vision": TOWER.model_dump(mode="json")}
    images = {"tokens_per_image": 144, "per_sequence": 30}
    job, plan = job_of(model, images=images), plan_of(**fields)
    cuts = np.array(list(every_cut(10, plan.pipeline_parallel * plan.virtual_pipeline)))
    tried, found = simulate_cuts(job, plan, cuts), best_cut(job, plan)
    assert found.layers is not None
    assert found.layers[0] < min(found.layers[1:-1])
    fits = tried.peak_memory_bytes <= job.offers[0].accelerator.memory_bytes
    (row,) = np.flatnonzero((cuts == found.layers).all(axis=1))
    assert tried.step_time_s[row] == pytest.approx(tried.step_time_s[fits].min(), rel=ROUNDING)


def test_no_balanced_cut_beside_an_encoder_is_faster() -> None:
    images = {"tokens_per_image": 256, "per_sequence": 16}
    job, plan = job_of("qwen3-vl-8b", images=images), plan_of(tensor=4, pipeline=8, data=4)
    cuts = cuts_beside_encoder(job, plan)
    assert [cut[0] for cut in cuts] == [0, 1, 2, 3]
    assert all(sum(cut) == 36 for cut in cuts)
    assert list(cuts.values()) == sorted(cuts.values(), reverse=True)
    assert list(cuts)[-1] == own_cuts(job, plan)[-1]
    found = best_cut(job, plan)
    steps_s = simulate_cuts(job, plan, np.array([found.layers, *cuts])).step_time_s
    assert steps_s[0] <= min(steps_s[1:])


def test_without_an_encoder_there_is_no_such_cut() -> None:
    assert not cuts_beside_encoder(job_of("qwen3-8b"), plan_of(pipeline=4, data=4))


def test_a_huge_vocabulary_takes_layers_off_the_last_stage() -> None:
    job = job_of(GEMMA_2_9B, global_batch_size=512)
    plan = plan_of(tensor=2, pipeline=6, data=8, recompute="full")
    costs = plan_costs(job, plan)
    output_in_layers = costs.layers.output_s / costs.layers.layer_s[0]
    assert output_in_layers > 2.0
    found = best_cut(job, plan)
    assert found.layers is not None
    assert found.is_proven
    assert found.layers[-1] <= 7 - 2  # 42 layers on 6 stages, even: 7
    steps_s = simulate_cuts(job, plan, np.array([found.layers, (7,) * 6])).step_time_s
    assert steps_s[0] < 0.9 * steps_s[1]


@pytest.mark.parametrize(("listed", "virtual_pipeline"), [((5, 5), 4), ((3, 3, 4), 1)])
def test_a_cut_is_found_where_the_workload_lists_one_of_other_pipelines(
    listed: tuple[int, ...], virtual_pipeline: int
) -> None:
    job = job_of(SMALL, stage_layers=listed)
    plan = plan_of(pipeline=2, data=4, virtual_pipeline=virtual_pipeline)
    assert present_cut(job, plan) is None
    found = best_cut(job, plan)
    assert found.layers is not None
    assert sum(found.layers) == 10


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data": 8}, "pipeline_parallel = 1: must be at least 2"),
        (
            {"pipeline": 16},
            r"= 16: must be at most the layers \(10\) and the two ends of the model; take fewer",
        ),
    ],
)
def test_a_pipeline_that_cannot_be_cut_is_refused(fields: Mapping[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        best_cut(job_of(SMALL), plan_of(**fields))


def test_too_many_layers_and_stages_are_refused() -> None:
    with pytest.raises(InputError, match=r"10000 on 64: are too many stages and layers"):
        best_cut(job_of({**SMALL, "num_layers": 10_000}), plan_of(pipeline=64))
