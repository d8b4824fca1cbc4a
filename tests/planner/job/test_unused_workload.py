"""Are the workload fields reported as unused exactly those that affect neither step time nor memory?"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest
from pydantic import ValidationError

from constraints.evaluation import evaluate
from planner.job.unused_fields import unused_fields
from planner.job.unused_workload import WORKLOAD_RULES, narrowed_to
from simulator import catalog
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable, Recompute
from simulator.domain.workload import Workload
from simulator.table import Floats
from tests.simulator.sparse import with_indexer
from tests.support import H100_RENTED, job_with, plans_with

ONE = {"tensor_parallel": [1], "pipeline_parallel": [1], "context_parallel": [1]}
JOBS: Mapping[str, Job] = {
    "dense": job_with(H100_RENTED),
    "dense, fp8": job_with(H100_RENTED, workload={"precisions": ["bf16", "fp8"]}),
    "dense, data parallel": job_with(H100_RENTED, search=ONE),
    "dense, ZeRO 1": job_with(
        H100_RENTED, search={"zero_stages": [1], "recompute": ["full"], "recompute_num_layers": [2]}
    ),
    "dense, ZeRO 2, optimizer offload": job_with(
        H100_RENTED, workload={"optimizer_offload_fraction": 0.005}, search={"zero_stages": [2]}
    ),
    "dense, ZeRO 3, fp8": job_with(
        H100_RENTED, workload={"precisions": ["fp8"]}, search={"zero_stages": [3]}
    ),
    "dense, fp16": job_with(H100_RENTED, workload={"precisions": ["fp16"]}),
    "dense, given step": job_with(H100_RENTED, workload={"step_bytes": 82.0}, search={"zero_stages": [0, 1]}),
    "dense, Muon": job_with(H100_RENTED, workload={"muon": {}}, search={"zero_stages": [0, 1]}),
    "no sequence parallelism": job_with(H100_RENTED, workload={"has_sequence_parallel": False}),
    "experts": job_with(H100_RENTED, workload={"model": "mixtral-8x7b"}),
    "experts out of balance, fp8": job_with(
        H100_RENTED,
        workload={
            "model": "mixtral-8x7b",
            "expert_imbalance": 1.5,
            "precisions": ["fp8"],
            "expert_products": "separate",
        },
    ),
    "shared experts": job_with(H100_RENTED, workload={"model": "deepseek-v2-lite"}),
    "chosen tokens": job_with(
        H100_RENTED,
        workload={"model": with_indexer(catalog.model("deepseek-v2-lite")).model_dump(mode="json")},
    ),
}
CHANGES: Mapping[str, object] = {
    "expert_dispatch": "deduplicated",
    "overlaps_expert_exchange": True,
    "expert_products": "separate",
    "overlaps_shared_experts": True,
    "dispatches_in_8_bits": True,
    "fills_expert_rows": True,
    "gathers_routing_maps": True,
    "expert_tensor_parallel": 2,
    "expert_imbalance": 1.75,
    "expert_capacity_factor": 1.25,
    "fp8_recipe": "blockwise",
    "gathers_cast_inputs": False,
    "copies_shared_heads": True,
    "overlaps_parameter_gather": False,
    "checks_gradients": False,
    "divides_gradients": False,
    "fuses_update": True,
    "scatters_gradients_from": 3,
    "bucket_weights": 2e9,
    "bucket_copy_bytes": 8.0,
    "added_gradient_bytes": 6.0,
    "checkpoints_norms": True,
    "offloads_gradients": True,
    "keeps_cast_weights": True,
    "gathers_cast_weights": True,
    "weight_prefetch": "backward",
    "regathers_weights": True,
    "most_gathered_weights": 1e6,
    "sharded_copies": "fsdp-2",
    "selective_recompute": "every_other_product",
    "recompute_modules": ("mlp", "moe"),
    "recompute_method": "uniform",
    "mhc_recompute_layers": 2,
    "context_exchange": "all_gather",
    "trains_indexer": False,
    "keeps_stage_outputs": True,
    "joins_logits": True,
    "frees_stage_inputs": True,
    "overlaps_tensor_comm": True,
    "overlaps_input_gradients": False,
    "separate_first_products": "all",
    "has_sequence_parallel": False,
}
"""Another value of every field that a rule is about."""


PARTS: Mapping[str, Mapping[str, object]] = {
    "lora": {"exchanges_by_all_to_all": True},
    "documents": {"is_split_each": True},
    "muon": {"tensor_mode": "blockwise", "reduction": "all_reduce"},
    "images": {"encoder_recompute": Recompute.FULL, "trains_encoder": False},
    "model.vision": {"counts_as_layers": 4},
}
"""The same of parts of a workload."""
FEW = {"tokens_per_image": 256, "per_sequence": 1}
IMAGES = {"model": "qwen3-vl-8b", "images": FEW}
WITH_PARTS: Mapping[str, Job] = {
    "adapters": job_with(H100_RENTED, workload={"lora": {"rank": 16}}),
    "adapters, data parallel": job_with(H100_RENTED, workload={"lora": {"rank": 16}}, search=ONE),
    "adapters that sum": job_with(
        H100_RENTED, workload={"lora": {"rank": 16}, "has_sequence_parallel": False}
    ),
    "adapters that enter blocks": job_with(
        H100_RENTED, workload={"lora": {"rank": 16, "targets": ["linear_qkv", "linear_fc1"]}}
    ),
    "images": job_with(H100_RENTED, workload=IMAGES),
    "images, frozen": job_with(H100_RENTED, workload={**IMAGES, "images": {**FEW, "trains_encoder": False}}),
    "images, balanced": job_with(H100_RENTED, workload={**IMAGES, "stage_layers": "balanced"}),
    "images, adapters": job_with(H100_RENTED, workload={**IMAGES, "lora": {"rank": 16}}),
    "Muon": job_with(H100_RENTED, workload={"muon": {}}, search={"zero_stages": [0, 1]}),
    "Muon without ZeRO": job_with(H100_RENTED, workload={"muon": {}}, search={"zero_stages": [0]}),
    "Muon on whole layers": job_with(H100_RENTED, workload={"muon": {}}, search={**ONE, "zero_stages": [1]}),
    "documents round a ring": job_with(H100_RENTED, workload={"documents": {"mean_tokens": 1000}}),
    "documents whose keys are gathered": job_with(
        H100_RENTED, workload={"documents": {"mean_tokens": 1000}, "context_exchange": "all_gather"}
    ),
    "documents on one rank": job_with(
        H100_RENTED,
        workload={"documents": {"mean_tokens": 1000}, "context_exchange": "all_gather"},
        search=ONE,
    ),
}


def plans_of(job: Job) -> PlanTable:
    """Designs with every decision on which a field of the workload depends."""
    search, lists = job.search, {}
    for degree in ("tensor_parallel", "pipeline_parallel", "context_parallel"):
        lists[degree] = getattr(search, degree) or (1, 2)
    lists["expert_parallel"] = (1, 2) if job.workload.model.experts else (1,)
    lists["zero_stage"] = search.searched_zero_stages
    lists["recompute"] = search.recompute
    lists["precision"] = job.workload.precisions
    lists["recompute_num_layers"] = (None, *(search.recompute_num_layers or ()))
    rows = [dict(zip(lists, values, strict=True)) for values in product(*lists.values())]
    return plans_with(
        *(row for row in rows if row["recompute_num_layers"] is None or row["recompute"] == "full")
    )


def told(job: Job, plans: PlanTable) -> Floats:
    """Step times and peaks of memory."""
    outcomes = evaluate(job, plans).outcomes
    return np.column_stack([outcomes.steps.step_time_s, outcomes.summary.peak_memory_bytes])


def changed(job: Job, **fields: object) -> Job:
    return job.model_copy(update={"workload": job.workload.model_copy(update=fields)})


def test_every_field_of_a_rule_is_tried() -> None:
    tried = {*CHANGES, *(f"{part}.{field}" for part, fields in PARTS.items() for field in fields)}
    assert {path for rule in WORKLOAD_RULES for path in rule.paths} == {f"workload.{name}" for name in tried}


@pytest.mark.short(2)
@pytest.mark.parametrize("name", JOBS)
def test_a_field_is_told_as_unused_where_changing_it_changes_nothing(name: str) -> None:
    job, plans = JOBS[name], plans_of(JOBS[name])
    before = told(job, plans)
    for field, value in CHANGES.items():
        if getattr(job.workload, field) == value:
            continue
        other = changed(job, **{field: value})
        is_same = np.array_equal(before, told(other, plans), equal_nan=True)
        assert (f"workload.{field}" in unused_fields(other)) == is_same, (field, unused_fields(other))


@pytest.mark.parametrize("name", WITH_PARTS)
def test_a_field_of_a_part_is_told_as_unused_where_changing_it_changes_nothing(name: str) -> None:
    job, plans = WITH_PARTS[name], plans_of(WITH_PARTS[name])
    before = told(job, plans)
    for part, fields in PARTS.items():
        place, _, inner = part.partition(".")
        outer = getattr(job.workload, place)
        if (record := getattr(outer, inner) if inner else outer) is None:
            continue
        for field, value in fields.items():
            if getattr(record, field) == value:
                continue
            copy = record.model_copy(update={field: value})
            other = changed(job, **{place: outer.model_copy(update={inner: copy}) if inner else copy})
            is_same = np.array_equal(before, told(other, plans), equal_nan=True)
            assert (f"workload.{part}.{field}" in unused_fields(other)) == is_same


def test_one_plan_alone_is_told_what_it_does_not_use() -> None:
    job = changed(JOBS["dense, fp8"], context_exchange="all_to_all", keeps_cast_weights=True)
    plan = Plan.model_validate(
        {"offer": 0, "num_gpus": 8, "data_parallel": 8, "zero_stage": 3, "precision": "fp8"}
    )
    assert unused_fields(job) == {}
    assert unused_fields(narrowed_to(job, plan)) == {
        "workload.context_exchange": "context_parallel is 1",
        "workload.keeps_cast_weights": "under ZeRO stage 3 weights are cast when they are gathered",
    }


def test_a_capacity_that_the_most_loaded_expert_just_keeps_changes_nothing() -> None:
    found = unused_fields(changed(JOBS["experts"], expert_imbalance=1.25, expert_capacity_factor=1.25))
    assert found == {"workload.expert_capacity_factor": "expert_imbalance does not exceed it"}


@pytest.mark.parametrize(("recompute", "is_unused"), [("none", False), ("selective", False), ("full", True)])
def test_inputs_of_stages_can_be_freed_where_no_layer_is_computed_again_from_them(
    recompute: str, is_unused: bool
) -> None:
    job = job_with(H100_RENTED, search={"recompute": [recompute]})
    told = "workload.frees_stage_inputs" in unused_fields(changed(job, frees_stage_inputs=True))
    assert told == is_unused


def test_the_search_of_one_plan_has_its_choices_alone() -> None:
    plan = Plan.model_validate(
        {
            "offer": 0,
            "num_gpus": 64,
            "pipeline_parallel": 2,
            "virtual_pipeline": 2,
            "data_parallel": 32,
            "interleaved_group_size": 3,
            "recompute": "full",
            "recompute_num_layers": 1,
        }
    )
    found = narrowed_to(JOBS["dense"], plan).search
    assert (found.pipeline_parallel, found.virtual_pipeline) == ((2,), (2,))
    assert (found.interleaved_group_sizes, found.recompute_num_layers) == ((3,), (1,))
    bare = narrowed_to(JOBS["dense"], plan.model_copy(update={"interleaved_group_size": None})).search
    assert bare.interleaved_group_sizes is None


@pytest.mark.parametrize("written", [6, "6"])
def test_16_bit_gradients_with_a_32_bit_copy_are_6_bytes_also_in_a_cell_of_a_table(written: object) -> None:
    workload = JOBS["dense, fp8"].workload
    read = Workload.model_validate({**workload.model_dump(), "gradient_bytes": written, "sync_bytes": "2"})
    assert (read.gradient_bytes, read.sync_bytes) == (6, 2)


@pytest.mark.parametrize("written", [0, 3, 5, 100, "3", "2.5"])
def test_gradients_of_sizes_that_do_not_exist_are_refused(written: object) -> None:
    workload = JOBS["dense, fp8"].workload
    with pytest.raises(ValidationError, match="gradient_bytes"):
        Workload.model_validate({**workload.model_dump(), "gradient_bytes": written})
