"""Which ZeRO stages are layouts of their own? Those of another run: none is left out that differs from what is listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraints.evaluation import evaluate
from constraints.lattice import enumerate_layouts
from planner import Recommendation, recommend
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from tests.support import job_with

STAGES = [0, 1, 2, 3]
NODE: Mapping[str, object] = {
    "accelerator": "h200-sxm-141gb",
    "num_gpus": {"min": 8, "max": 8},
    "rent_usd_per_gpu_hour": 2.5,
}
ONE_COPY = {"tensor_parallel": [4, 8], "pipeline_parallel": [1, 2], "context_parallel": [1]}
"""On a node of eight: one replica, or two of four ranks."""
MIXTRAL = {"model": "mixtral-8x7b", "tokens": 1e10, "sequence_length": 4096, "global_batch_size": 32}
HABITS: Mapping[str, st.SearchStrategy[object]] = {
    "gradient_bytes": st.sampled_from([2, 4, 6]),
    "added_gradient_bytes": st.sampled_from([None, 6.0]),
    "bucket_copy_bytes": st.sampled_from([0.0, 12.0]),
    "regathers_weights": st.booleans(),
    "sharded_copies": st.sampled_from(["none", "fsdp-2"]),
    "most_gathered_weights": st.sampled_from([None, 1e9]),
    "offload": st.sampled_from(
        [{"optimizer_offload_fraction": 0.5}, {"optimizer_offload_fraction": 0.5, "offloads_gradients": True}]
    ),
    "gathers_cast_weights": st.booleans(),
    "precisions": st.sampled_from([["bf16"], ["fp8"], ["bf16", "fp8"]]),
    "overlaps_gradient_sync": st.booleans(),
    "scatters_gradients_from": st.sampled_from([1, 2, 3]),
    "lora": st.just({"rank": 16, "targets": ["linear_qkv", "linear_proj"]}),
}
"""What frameworks do with weights and gradients."""


def keys(layouts: PlanTable, *, without_stage: bool = False) -> list[tuple[float, ...]]:
    """The decisions of every layout, without `checkpoint_interval_s`, which is not set."""
    left_out = {"checkpoint_interval_s"} | ({"zero_stage"} if without_stage else set())
    names = [field.name for field in fields(layouts) if field.name not in left_out]
    return list(zip(*(getattr(layouts, name).tolist() for name in names), strict=True))


def figures(job: Job, layouts: PlanTable) -> list[tuple[float, ...]]:
    """What each layout comes to."""
    found = evaluate(job, layouts)
    columns = (
        found.outcomes.steps.step_time_s,
        found.outcomes.summary.peak_memory_bytes,
        found.scores.cost_usd,
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("workload", [MIXTRAL, {"model": "llama-3.1-8b"}])
def test_the_order_of_stages_changes_nothing(workload: Mapping[str, object]) -> None:
    search = {"micro_batch_sizes": [1], "recompute": ["none"], **ONE_COPY}
    up, down = (
        enumerate_layouts(job_with(NODE, workload=workload, search={**search, "zero_stages": stages}))
        for stages in (STAGES, STAGES[::-1])
    )
    assert keys(up) == keys(down)


@pytest.mark.long
@given(
    habits=st.fixed_dictionaries({}, optional=dict(HABITS)),
    model=st.sampled_from(["llama-3.1-8b", "mixtral-8x7b"]),
)
def test_stages_that_are_left_out_are_the_same_run_as_one_that_is_listed(
    habits: dict[str, object], model: str
) -> None:
    habits |= cast("dict[str, object]", habits.pop("offload", {}))
    search = {"micro_batch_sizes": [1], "recompute": ["none"], "expert_parallel": [1, 4, 8], **ONE_COPY}
    job = job_with(
        NODE, workload={**MIXTRAL, "model": model, **habits}, search={**search, "zero_stages": STAGES}
    )
    listed = enumerate_layouts(job)
    alone = listed.take(listed.data_parallel * listed.context_parallel == 1)
    others = [replace(alone, zero_stage=np.full(len(alone), stage)) for stage in STAGES]
    together = PlanTable.concatenate([listed, *others])
    runs = list(zip(keys(together, without_stage=True), figures(job, together), strict=True))
    of_same: dict[tuple[float, ...], set[tuple[float, ...]]] = {}
    for key, found in runs[: len(listed)]:
        of_same.setdefault(key, set()).add(found)
    for same, found in runs[len(listed) :]:
        assert found in of_same[same]


def test_experts_with_replicas_on_tensor_parallel_ranks_fit_where_zero_3_shares_them_out() -> None:
    """Peak of Mixtral 8x7B on 8 H200, TP 8, EP 2: 233 GB with stage 1, 120 GB with stage 3, of 141 GB."""
    search = {
        "tensor_parallel": [8],
        "pipeline_parallel": [1],
        "context_parallel": [1],
        "expert_parallel": [2],
    }
    answer = recommend(job_with(NODE, workload=MIXTRAL, search=search), tracking=False)
    assert isinstance(answer, Recommendation)
    assert answer.best is not None
    assert answer.best.plan.zero_stage == 3


def test_up_to_stage_2_all_are_one_where_nothing_has_a_replica() -> None:
    search = {
        "micro_batch_sizes": [1],
        "recompute": ["none"],
        "pipeline_parallel": [1],
        "context_parallel": [1],
    }
    job = job_with(NODE, search={**search, "tensor_parallel": [8], "zero_stages": [2, 0, 1, 3]})
    assert enumerate_layouts(job).zero_stage.tolist() == [0, 3]
    job = job_with(NODE, search={**search, "tensor_parallel": [4], "zero_stages": [2, 0, 1, 3]})
    assert enumerate_layouts(job).zero_stage.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("listed", "in_pipelines"),
    [({}, {1}), ({"zero_stages": [1, 2, 3]}, {1, 2, 3})],
    ids=["default", "listed"],
)
def test_more_than_stage_1_is_tried_in_pipelines_only_where_stages_are_listed(
    listed: dict[str, object], in_pipelines: set[int]
) -> None:
    search = {"micro_batch_sizes": [1], "recompute": ["none"], "tensor_parallel": [1], **listed}
    layouts = enumerate_layouts(job_with(NODE, search=search))
    is_pipeline = layouts.pipeline_parallel > 1
    assert set(layouts.zero_stage[~is_pipeline].tolist()) == {1, 2, 3}
    assert set(layouts.zero_stage[is_pipeline].tolist()) == in_pipelines
