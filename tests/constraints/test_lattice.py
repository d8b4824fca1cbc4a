from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np
import pytest

from constraints.divisors import divisors
from constraints.lattice import (
    cross_run_knobs,
    enumerate_layouts,
    filled_cuts,
    no_layouts,
    num_run_knobs,
    pipelines,
)
from constraints.layout import is_valid_layout
from constraints.step_bound import bound_step
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, PlanTable, Recompute, Schedule
from simulator.domain.token_indexer import TokenIndexer
from tests.simulator.sparse import DEEPSEEK_V3, INDEXER, with_indexer
from tests.support import A100_RENTED, H100_RENTED, job_with

TINY = {
    "name": "tiny",
    "num_layers": 6,
    "hidden_size": 64,
    "num_heads": 8,
    "num_kv_heads": 2,
    "head_dim": 8,
    "ffn_hidden_size": 48,
    "is_gated": True,
    "vocabulary_size": 128,
}
MIXTURE = {
    **TINY,
    "experts": {"num_experts": 6, "experts_per_token": 2, "expert_ffn_hidden_size": 32},
}
LONG = {"tokens": 1e12}
"""A run in which some node fails."""
SEQUENCE, BATCH, LAYERS, HEADS, KV_HEADS, FFN = 48, 24, 6, 8, 2, 48
DEGREES = {
    "tensor_parallel": [1, 2, 3, 4, 8],
    "pipeline_parallel": [1, 2, 3, 4, 5, 8],
    "virtual_pipeline": [1, 2, 3, 4],
    "context_parallel": [1, 2, 3, 4],
    "expert_parallel": [1, 2, 3, 4, 6],
    "micro_batch_sizes": [1, 2, 3, 5],
}


def tiny_job(model: Mapping[str, object] = TINY, /, **search: object) -> Job:
    workload = {"model": model, "sequence_length": SEQUENCE, "global_batch_size": BATCH, "tokens": 1e6}
    return job_with({**H100_RENTED, "num_gpus": {"min": 12, "max": 48}}, workload=workload, search=search)


def has_schedule(schedule: str, p: int, v: int, m: int) -> bool:
    match schedule:
        case "gpipe" | "zb_h1":
            return p > 1 and v == 1
        case "zb_v":
            return p > 1 and v == 2
        case "dual_pipe_v":
            return p > 1 and v == 2 and m >= 2 * p
    return v == 1 or (p > 1 and m % p == 0)


def layouts_by_hand(num_experts: int, schedule: str = "1f1b") -> Iterator[tuple[int, ...]]:
    """The rules once more, one layout at a time: 16 to 48 accelerators in nodes of eight."""
    experts = DEGREES["expert_parallel"] if num_experts else [1]
    degrees = [DEGREES[f"{name}_parallel"] for name in ("tensor", "pipeline", "context")]
    for t, p, c in product(*degrees):
        for v, e, b, d in product(
            DEGREES["virtual_pipeline"], experts, DEGREES["micro_batch_sizes"], range(1, 49)
        ):
            num_gpus = t * p * c * d
            keeps_all = (
                16 <= num_gpus <= 48
                and num_gpus % 8 == 0
                and HEADS % t == 0
                and (KV_HEADS % t == 0 or t % KV_HEADS == 0)
                and FFN % t == 0
                and (LAYERS % (p * v) == 0 or (LAYERS + 2) % (p * v) == 0 or (v == 1 and p <= LAYERS))
                and BATCH % (d * b) == 0
                and has_schedule(schedule, p, v, BATCH // (d * b))
                and SEQUENCE % (t * (2 * c if c > 1 else 1)) == 0
                and (num_experts == 0 or num_experts % e == 0)
                and (t * c * d) % e == 0
            )
            if keeps_all:
                yield t, p, v, c, e, d, b


def rows_of(plans: PlanTable) -> list[tuple[int, ...]]:
    """The layouts in the order in which `layouts_by_hand` names their degrees."""
    names = (
        "tensor_parallel",
        "pipeline_parallel",
        "virtual_pipeline",
        "context_parallel",
        "expert_parallel",
        "data_parallel",
        "micro_batch_size",
    )
    return list(zip(*(getattr(plans, name).tolist() for name in names), strict=True))


@pytest.mark.parametrize("schedule", list(Schedule))
def test_every_schedule_has_the_layouts_that_brute_force_finds(schedule: Schedule) -> None:
    schedules = ["zb_v", "1f1b", "dual_pipe_v", "gpipe", "zb_h1"]
    job = tiny_job(recompute=["none"], zero_stages=[1], pipeline_schedules=schedules, **DEGREES)
    plans = enumerate_layouts(job)
    found = rows_of(plans.take(plans.pipeline_schedule == schedule.code))
    assert len(found) == len(set(found))
    assert set(found) == set(layouts_by_hand(0, schedule.value))


def test_listed_stages_are_the_only_ones_that_are_tried() -> None:
    listed = job_with(
        {**H100_RENTED, "num_gpus": {"min": 8, "max": 64}}, workload={"stage_layers": [7, 8, 8, 9]}
    )
    layouts = enumerate_layouts(listed)
    assert set((layouts.pipeline_parallel * layouts.virtual_pipeline).tolist()) == {4}


@pytest.mark.parametrize(("model", "num_experts"), [(TINY, 0), (MIXTURE, 6)], ids=["dense", "mixture"])
def test_the_lattice_is_what_brute_force_finds(model: Mapping[str, object], num_experts: int) -> None:
    job = tiny_job(model, recompute=["none"], zero_stages=[1], **DEGREES)
    plans = enumerate_layouts(job)
    names = ("tensor", "pipeline", "virtual", "context", "expert", "data")
    found = rows_of(plans)
    expected = set(layouts_by_hand(num_experts))
    assert len(found) == len(set(found))
    assert set(found) == expected
    for index, name in enumerate(names):  # every kind of splitting takes part in the comparison
        assert {row[index] for row in expected} - {1} or (name == "expert" and num_experts == 0)


@pytest.mark.parametrize("model", [TINY, MIXTURE], ids=["dense", "mixture"])
def test_by_default_the_lattice_holds_every_degree_that_the_rules_allow(model: Mapping[str, object]) -> None:
    # Sequences of 48 tokens are too short to be split by default, and nothing else is left out.
    everything = tiny_job(
        model,
        tensor_parallel=list(range(1, 9)),
        pipeline_parallel=[
            p for p in range(1, 10) if p != 5
        ],  # a cut of six layers that is uneven, and not 2^k
        virtual_pipeline=list(range(1, 10)),
        context_parallel=[1],
        expert_parallel=list(range(1, 7)),
    )
    assert len(enumerate_layouts(tiny_job(model))) == len(enumerate_layouts(everything))


def test_61_layers_are_cut_evenly_or_over_powers_of_two_unless_other_stages_are_asked_for() -> None:
    def pipelines(**search: object) -> set[tuple[int, int]]:
        workload = {"model": "deepseek-v3", "global_batch_size": 2520 * 16}
        search = {"micro_batch_sizes": [1], "tensor_parallel": [1], "expert_parallel": [1], **search}
        layouts = enumerate_layouts(
            job_with({**H100_RENTED, "num_gpus": {"min": 8, "max": 8 * 63}}, workload=workload, search=search)
        )
        return set(zip(layouts.pipeline_parallel.tolist(), layouts.virtual_pipeline.tolist(), strict=True))

    found = pipelines()
    # Divisors of 61 and of 63, and 2^k up to 61.
    assert {p for p, v in found if v == 1} == {1, 3, 7, 9, 21, 61, 63} | {2, 4, 8, 16, 32}
    # Two chunks and more on each stage come to 9, 21 or 63, but for 2^k stages, which cannot have them even.
    interleaved = {(p, v) for p, v in found if v > 1}
    powers = {(2, 2), (2, 4), (2, 8), (2, 16), (4, 2), (4, 4), (4, 8), (8, 2), (8, 4), (16, 2)}
    assert {(p, v) for p, v in interleaved if p & (p - 1) == 0} == powers
    assert {p * v for p, v in interleaved - powers} == {9, 21, 63}
    assert pipelines(pipeline_parallel=[14, 15, 62]) == {(p, v) for p in (14, 15) for v in (1, 2, 4)}
    assert pipelines(pipeline_parallel=[3, 15], virtual_pipeline=[3]) == {(3, 3), (15, 3)}


def test_pipelines_that_can_have_even_chunks_try_no_others_except_the_two_of_a_v() -> None:
    def chunks(**search: object) -> list[int]:
        workload = {"model": "llama-2-13b"}
        job = job_with(H100_RENTED, workload=workload, search={"pipeline_parallel": [8], **search})
        return [v for _, v in pipelines(job)]

    # Of 40 layers on eight stages.
    assert chunks() == [1, 5]
    assert chunks(virtual_pipeline=[3, 5]) == [5]
    assert chunks(virtual_pipeline=[3, 4]) == [3, 4]
    assert chunks(pipeline_schedules=["1f1b", "zb_v"]) == [1, 2, 5]


def test_on_v100_only_fp16_is_chosen() -> None:
    offer = {
        "accelerator": "v100-sxm2-32gb",
        "num_gpus": {"min": 16, "max": 64},
        "rent_usd_per_gpu_hour": 0.8,
    }
    job = job_with(H100_RENTED, offer, workload={"precisions": ["fp16", "bf16"]})
    layouts = enumerate_layouts(job)
    on_v100 = layouts.take(layouts.offer == 1)
    assert set(on_v100.precision.tolist()) == {Precision.FP16.code}
    assert set(layouts.precision.tolist()) == {Precision.FP16.code, Precision.BF16.code}


def test_every_degree_is_crossed_with_every_choice() -> None:
    one = enumerate_layouts(tiny_job(recompute=["none"], zero_stages=[1], power_caps=[1.0]))
    many = enumerate_layouts(
        tiny_job(recompute=["none", "full"], zero_stages=[1, 2, 3], power_caps=[1.0, 0.8])
    )
    is_sharded = one.data_parallel * one.context_parallel > 1
    assert len(many) == 2 * 2 * (3 * int(is_sharded.sum()) + 2 * int((~is_sharded).sum()))
    assert set(many.power_cap_fraction.tolist()) == {1.0, 0.8}
    single = many.take(many.data_parallel * many.context_parallel == 1)
    assert set(single.zero_stage.tolist()) == {
        1,
        3,
    }  # with one replica there is nothing to shard, but masters are weights


def test_selective_recomputation_is_for_kernels_that_store_the_scores() -> None:
    flash = enumerate_layouts(tiny_job())
    unfused = enumerate_layouts(
        job_with(workload={"attention": "unfused"}, search={"recompute": ["none", "selective", "full"]})
    )
    modules = enumerate_layouts(job_with(workload={"recompute_modules": ["core_attn", "mlp"]}))
    assert set(flash.recompute.tolist()) == {Recompute.NONE.code, Recompute.FULL.code}
    assert set(modules.recompute.tolist()) == {choice.code for choice in Recompute}
    assert set(unfused.recompute.tolist()) == {choice.code for choice in Recompute}


def test_selective_recomputation_that_keeps_nothing_less_is_tried_where_none_is_not_allowed() -> None:
    only = enumerate_layouts(job_with(search={"recompute": ["selective", "full"]}))
    assert set(only.recompute.tolist()) == {Recompute.SELECTIVE.code, Recompute.FULL.code}


@pytest.mark.parametrize("model", ["llama-3.1-70b", "mixtral-8x7b", "deepseek-v3"])
def test_every_row_keeps_the_rules_and_is_a_plan(model: str) -> None:
    job = job_with(
        {**H100_RENTED, "num_gpus": {"min": 100, "max": 256}},
        {**A100_RENTED, "num_gpus": {"min": 64, "max": 128}},
        workload={"model": model, "global_batch_size": 256},
        search={"micro_batch_sizes": [1]},
    )
    layouts = enumerate_layouts(job)
    assert is_valid_layout(job, layouts).all()
    assert set(layouts.offer.tolist()) == {0, 1}
    for row in np.linspace(0, len(layouts) - 1, 50).astype(int).tolist():
        assert layouts.plan(row).num_spare_nodes == 0


def test_long_sequences_are_split_into_pieces_of_at_least_2048_tokens() -> None:
    layouts = enumerate_layouts(job_with(workload={"sequence_length": 32_768}))
    assert set(layouts.context_parallel.tolist()) == {1, 2, 4, 8, 16}


def test_tensor_parallelism_stays_inside_the_link_domain_unless_asked_for() -> None:
    wide = enumerate_layouts(job_with(search={"tensor_parallel": [16]}))
    assert enumerate_layouts(job_with()).tensor_parallel.max() == 8
    assert set(wide.tensor_parallel.tolist()) == {16}


def test_a_job_without_layouts_has_an_empty_lattice() -> None:
    one_stage = {"tensor_parallel": [1], "pipeline_parallel": [1]}
    job = job_with(
        workload={"global_batch_size": 7}, search=one_stage
    )  # 7 sequences for at least 16 replicas
    assert len(enumerate_layouts(job)) == 0


def test_designs_cross_layouts_with_schemes_and_spares() -> None:
    schemes = [CheckpointScheme.ASYNC, CheckpointScheme.NONE, CheckpointScheme.IN_MEMORY_PEER]
    job = job_with(workload=LONG, search={"checkpoint_schemes": schemes, "with_spares": [False, True]})
    layouts = enumerate_layouts(job).take(slice(5))
    designs = cross_run_knobs(job, layouts)
    assert num_run_knobs(job, layouts).tolist() == [3 * 2] * 5
    assert len(designs) == 5 * 3 * 2
    knobs = list(zip(designs.checkpoint_scheme.tolist(), (designs.num_spare_nodes > 0).tolist(), strict=True))
    assert knobs[:6] == knobs[6:12] == list(product([scheme.code for scheme in schemes], [False, True]))
    np.testing.assert_array_equal(designs.num_gpus, np.repeat(layouts.num_gpus, 6))


@pytest.mark.parametrize(("with_spares", "num_policies"), [([True, False], 1), ([False], 1), ([True], 1)])
def test_where_no_spares_suffice_there_is_no_twin_with_spares(
    with_spares: list[bool], num_policies: int
) -> None:
    # 1e8 tokens of an 8B model are over in minutes: 16 nodes fail once in ten days.
    job = job_with(
        workload={"tokens": 1e8},
        search={"checkpoint_schemes": ["async", "none"], "with_spares": with_spares},
    )
    layouts = enumerate_layouts(job)
    designs = cross_run_knobs(job, layouts)
    assert num_run_knobs(job, layouts).tolist() == [2 * num_policies] * len(layouts)
    assert len(designs) == num_run_knobs(job, layouts).sum()
    assert not designs.num_spare_nodes.any()
    assert len(set(zip(*(column.tolist() for column in designs.columns().values()), strict=True))) == len(
        designs
    )


def test_one_node_has_no_peer_to_copy_to() -> None:
    schemes = [CheckpointScheme.IN_MEMORY_PEER, CheckpointScheme.ASYNC]
    offer = {**H100_RENTED, "num_gpus": {"min": 8, "max": 16}}
    job = job_with(offer, workload=LONG, search={"checkpoint_schemes": schemes, "with_spares": [True]})
    layouts = enumerate_layouts(job)
    is_one_node = layouts.num_gpus == 8
    assert 0 < is_one_node.sum() < len(layouts)
    designs = cross_run_knobs(job, layouts)
    assert is_valid_layout(job, designs).all()
    np.testing.assert_array_equal(num_run_knobs(job, layouts), np.where(is_one_node, 1, 2))
    assert len(designs) == num_run_knobs(job, layouts).sum()
    assert set(designs.take(designs.num_gpus == 8).checkpoint_scheme.tolist()) == {
        CheckpointScheme.ASYNC.code
    }
    only_peers = job_with(offer, workload=LONG, search={"checkpoint_schemes": schemes[:1]})
    assert set(enumerate_layouts(only_peers).num_gpus.tolist()) == {16}


@pytest.mark.parametrize(
    ("number", "expected"), [(1, [1]), (12, [1, 2, 3, 4, 6, 12]), (49, [1, 7, 49]), (97, [1, 97])]
)
def test_divisors_come_in_rising_order(number: int, expected: list[int]) -> None:
    assert divisors(number) == expected


def test_groups_of_a_node_are_tried_where_they_are_asked_for_and_are_not_the_whole() -> None:
    search = {"recompute": ["none"], "zero_stages": [0, 1], **DEGREES}
    plain, both = (
        enumerate_layouts(tiny_job(**search, hybrid_sharding=tried)) for tried in ([False], [False, True])
    )
    hybrid = both.take(both.shard_ranks > 0)
    assert len(both) - len(hybrid) == len(plain)
    # Eight accelerators a node: 8 / t neighbours, which must hold whole replicas and leave others beside them.
    for t, c, d, z, stage in zip(
        hybrid.tensor_parallel,
        hybrid.context_parallel,
        hybrid.data_parallel,
        hybrid.shard_ranks,
        hybrid.zero_stage,
        strict=True,
    ):
        assert (z, stage) == (8 // t, 1)
        assert (z % c, d * c % z) == (0, 0)
        assert z < d * c
    keys = {(8 // t, c, d) for t, _, _, c, _, d, _ in rows_of(plain.take(plain.zero_stage == 1))}
    wanted = {(z, c, d) for z, c, d in keys if z % c == 0 and d * c % z == 0 and z < d * c}
    assert {
        (z, c, d)
        for z, c, d in zip(hybrid.shard_ranks, hybrid.context_parallel, hybrid.data_parallel, strict=True)
    } == wanted


def test_groups_that_hold_all_are_tried_where_no_others_are_listed() -> None:
    search = {"recompute": ["none"], "zero_stages": [1], **DEGREES}
    groups, both = (
        enumerate_layouts(tiny_job(**search, hybrid_sharding=tried)) for tried in ([True], [False, True])
    )
    replicas = groups.data_parallel * groups.context_parallel
    proper = groups.take(groups.shard_ranks < replicas)
    assert groups.shard_ranks.all()
    assert (groups.shard_ranks <= replicas).all()
    assert len(proper) < len(groups)
    assert rows_of(proper) == rows_of(both.take(both.shard_ranks > 0))


def test_some_layers_are_computed_again_where_that_is_asked_for() -> None:
    search = {"recompute": ["none", "full"], "zero_stages": [1], **DEGREES}
    plain, more = (
        enumerate_layouts(tiny_job(**search, **tried)) for tried in ({}, {"recompute_num_layers": [2]})
    )
    some = more.take(more.recompute_num_layers > 0)
    full = plain.take(plain.recompute == Recompute.FULL.code)
    # Six layers: two of a chunk need chunks of two.
    chunks = full.pipeline_parallel * full.virtual_pipeline
    assert sorted(rows_of(some)) == sorted(rows_of(full.take(-(-6 // chunks) >= 2)))
    assert set(some.recompute.tolist()) == {Recompute.FULL.code}


def test_interleaved_groups_are_those_that_are_listed() -> None:
    search = {"recompute": ["none"], "zero_stages": [1], **DEGREES}
    sizes = [2, 3, 4, 7]
    plain, grouped = (
        enumerate_layouts(tiny_job(**search, **tried)) for tried in ({}, {"interleaved_group_sizes": sizes})
    )
    assert not plain.interleaved_group_size.any()
    is_plain, is_whole = plain.virtual_pipeline == 1, grouped.virtual_pipeline == 1
    assert rows_of(grouped.take(is_whole)) == rows_of(plain.take(is_plain))
    interleaved = grouped.take(~is_whole)
    found = list(zip(rows_of(interleaved), interleaved.interleaved_group_size.tolist(), strict=True))
    assert len(found) == len(set(found))
    # Groups of as many as stages are what a plan without any has.
    anywhere = set(_interleaved_by_hand())
    expected = {
        (row, 0 if size == row[1] else size)
        for row in anywhere
        for size in sizes
        if row[1] <= size <= (m := BATCH // (row[5] * row[6])) and (m % size == 0 or m % size >= row[1])
    }
    assert set(found) == expected
    assert {size for _, size in found} == {0, 3, 4, 7}


def _interleaved_by_hand() -> Iterator[tuple[int, ...]]:
    """Layouts of several chunks on a stage that keep all other rules than those of groups."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys.modules[__name__], "has_schedule", lambda _, p, v, __: p > 1 and v > 1)
        yield from list(layouts_by_hand(0))


class TestChosenTokens:
    """What does a search try where an indexer chooses the tokens that attention sees?"""

    def job(self, indexer: TokenIndexer = INDEXER) -> Job:
        model = with_indexer(DEEPSEEK_V3, indexer).model_dump(mode="json", exclude_none=True)
        return job_with({**H100_RENTED, "num_gpus": 64}, workload={"model": model, "global_batch_size": 64})

    def test_computing_the_core_again_is_tried(self) -> None:
        tried = {int(code) for code in np.unique(enumerate_layouts(self.job()).recompute)}
        assert Recompute.SELECTIVE.code in tried

    def test_chunks_are_no_more_than_layers_with_an_indexer_where_others_share_it(self) -> None:
        shared = INDEXER.model_copy(update={"layer_step": 4, "num_leading_layers": 1})
        most = [max(p * v for p, v in filled_cuts(self.job(indexer))) for indexer in (INDEXER, shared)]
        assert most == [61 + 2, 1 + 60 // 4]


class TestCompressedTokens:
    """What does a search try for DeepSeek-V4?"""

    def tried(self, **search: object) -> PlanTable:
        workload = {"model": "deepseek-v4-flash", "global_batch_size": 512, **search}
        return enumerate_layouts(job_with({**H100_RENTED, "num_gpus": 512}, workload=workload))

    def test_ranks_share_neither_heads_nor_sequences(self) -> None:
        tried = self.tried()
        assert len(tried) > 0
        assert set(tried.tensor_parallel.tolist()) == set(tried.context_parallel.tolist()) == {1}

    @pytest.mark.parametrize(
        ("modules", "is_tried"), [(["core_attn"], False), (["mla_up_proj", "mhc"], True)]
    )
    def test_only_what_can_be_computed_again_is_tried(self, modules: list[str], is_tried: bool) -> None:
        tried = self.tried(recompute_modules=modules)
        assert (Recompute.SELECTIVE.code in tried.recompute) == is_tried


def test_nothing_fits_a_tiny_budget_for_models_whose_keys_are_gathered() -> None:
    """Windows and indexers: bounds of no layouts at all."""
    for model in ("gpt-oss-20b", "glm-5", "deepseek-v4-pro"):
        job = job_with({**H100_RENTED, "num_gpus": 8}, workload={"model": model})
        assert len(bound_step(job, no_layouts(job))) == 0
