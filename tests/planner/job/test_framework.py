"""Which fields does a job get from its framework, and what does it say of them itself?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from planner import simulate_plan
from planner.job.file import parse_job
from planner.job.framework import habitual_fields
from planner.job.row_job import row_document
from planner.job.unused_fields import unused_fields
from planner.measured.rows import Unmodelled, read_measured_row
from simulator.catalog import Kind, framework, names
from simulator.domain.plan import CheckpointScheme
from simulator.errors import InputError
from tests.planner.job_documents import WORKLOAD, changed

COLUMNS = "id,model,gpu,n_gpus,precision,global_batch,seq_len,framework,zero_stage_or_fsdp,tp,pp,cp,ep"
MODEL = "mixtral-8x7b"  # dense layers and experts: every habit may play a part
SHARDED_CELLS = "FSDP,1,1,8,1"
ROWS: Mapping[str, tuple[str, str]] = {
    "megatron-lm": ("Megatron-LM 2026", "zero1,4,2,1,1"),
    "nemo": ("NeMo 25.09", "zero1,4,2,1,1"),
    "megatron-bridge": ("Megatron-Bridge 26.06", "zero1,4,2,1,1"),
    "fsdp2": ("FSDP2 2026 with compile", SHARDED_CELLS),
    "fsdp2-eager": ("FSDP2 2026", SHARDED_CELLS),
    "torchtitan": ("torchtitan 2026 compile", SHARDED_CELLS),
    "deepspeed": ("DeepSpeed 2026", "zero3,1,1,8,1"),
    "megatron-deepspeed": ("Megatron-DeepSpeed 2026", "zero1,4,2,2,1"),
    "maxtext": ("MaxText 2026", "FSDP,1,1,1,1"),
}
"""How a table of measured steps names each framework, with a ZeRO stage and degrees that it has."""
OF_THE_RUN = {"model", "tokens", "sequence_length", "global_batch_size"}
NOT_COMPARED: Mapping[str, set[str]] = {
    # Off unless asked for, but on in its examples.
    "megatron-lm": {"overlaps_gradient_sync"},
    # Rows of 2026 may be older than its pull request 4218 of August; without tensor-parallel ranks they split no norms.
    "torchtitan": {"context_exchange", "has_sequence_parallel"},
    # Assumed of rows, where jobs keep the default.
    "fsdp2": {"context_exchange"},
    "fsdp2-eager": {"context_exchange"},
}
"""Fields of which rows of these names are read otherwise, with good reason."""


def job_of(workload: Mapping[str, object], search: Mapping[str, object] | None = None) -> dict[str, object]:
    job = changed(workload={**WORKLOAD, **workload})
    return job if search is None else {**job, "search": search}


def row_workload(folder: Path, cell: str, told: str) -> dict[str, object]:
    """The workload of a row without measurements."""
    file = folder / "row.csv"
    file.write_text(f"{COLUMNS}\nr,{MODEL},h100-sxm5-80gb,64,bf16,128,8192,{cell},{told}\n", encoding="utf-8")
    row = read_measured_row(file, "r")
    assert not isinstance(row, Unmodelled)
    workload = row_document(row)["workload"]
    assert isinstance(workload, dict)
    return {name: value for name, value in workload.items() if name not in OF_THE_RUN}


@pytest.mark.parametrize("name", names(Kind.FRAMEWORKS))
def test_the_habits_are_those_by_which_measured_rows_are_read(tmp_path: Path, name: str) -> None:
    left_out = {*NOT_COMPARED.get(name, ()), "framework"}
    read = row_workload(tmp_path, *ROWS[name])
    job = parse_job(job_of({"framework": name, "model": MODEL})).workload.model_dump(mode="json")
    usual = parse_job(job_of({"model": MODEL})).workload.model_dump(mode="json")
    habits = {field: value for field, value in job.items() if value != usual[field]}
    assert {field: value for field, value in habits.items() if field not in left_out} == {
        field: value for field, value in read.items() if field not in left_out and value != usual[field]
    }


def test_a_job_takes_what_it_leaves_out_from_its_framework_and_nothing_else() -> None:
    job = parse_job(job_of({"framework": "deepspeed", "logit_bytes": 2}, {"zero_stages": [3]}))
    assert (job.workload.gradient_bytes, job.workload.sync_bytes) == (2, 2)
    assert (job.workload.bucket_weights, job.workload.sync_buffer_bytes) == (5e8, 2e9)
    assert job.workload.logit_bytes == 2
    assert job.search.zero_stages == (3,)
    assert job.search.tensor_parallel == job.search.pipeline_parallel == (1,)
    assert job.search.checkpoint_schemes == (CheckpointScheme.SYNC_SHARDED, CheckpointScheme.ASYNC)


def test_an_override_counts_as_written_and_null_as_left_out() -> None:
    asked = job_of({"framework": "fsdp2", "logit_bytes": None, "has_fused_operators": False})
    job = parse_job(asked, overrides=["workload.framework=deepspeed", "search.zero_stages=[1]"])
    assert job.workload.bucket_copy_bytes == 12
    assert job.workload.logit_bytes == 6  # of any job: DeepSpeed has no loss of its own
    assert not job.workload.has_fused_operators
    assert job.search.zero_stages == (1,)


def test_a_simulated_design_names_the_framework_of_its_job() -> None:
    for told, name in (({"framework": "fsdp2"}, "fsdp2"), ({}, "")):
        design = simulate_plan(parse_job(job_of(told)), {"num_gpus": 64, "zero": 3}).design
        assert design is not None
        assert design.framework == name


def test_habits_of_megatron_are_the_defaults_but_for_its_experts() -> None:
    named, unnamed = (parse_job(job_of(told)) for told in ({"framework": "megatron-lm"}, {}))
    asked = {"framework": None, "sync_bytes": None, "expert_products": unnamed.workload.expert_products}
    assert named.workload.model_copy(update=asked) == unnamed.workload
    assert named.search == unnamed.search


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("fsdp", "workload.framework = 'fsdp': is not among the catalogue's frameworks; nearest: fsdp2"),
        (7, "workload.framework = 7: must be text"),
        (["nemo"], "workload.framework"),
    ],
)
def test_an_unknown_framework_is_one_error(name: object, told: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_job(job_of({"framework": name}))
    assert len(caught.value.problems) == 1
    assert told in str(caught.value.problems[0])


def test_a_search_that_is_no_mapping_is_told_as_without_a_framework() -> None:
    with pytest.raises(InputError) as caught:
        parse_job({**job_of({"framework": "fsdp2"}), "search": 3})
    assert [problem.path for problem in caught.value.problems] == ["search"]


def test_fields_that_the_framework_fills_are_known_until_the_job_changes_them() -> None:
    job = parse_job(job_of({"framework": "fsdp2", "logit_bytes": 2}))
    habits = habitual_fields(job)
    assert {"workload.sync_bytes", "search.tensor_parallel", "search.checkpoint_schemes"} <= habits
    assert "workload.logit_bytes" not in habits
    assert not habitual_fields(parse_job(job_of({})))


def test_habits_without_effect_are_no_request_but_written_fields_are() -> None:
    # Without experts nothing dispatches them; with one stage no outputs are kept.
    assert unused_fields(parse_job(job_of({"framework": "megatron-bridge"}))) == {}
    assert unused_fields(parse_job(job_of({"framework": "deepspeed"}))) == {}
    assert "workload.expert_imbalance" in unused_fields(
        parse_job(job_of({"framework": "megatron-bridge", "expert_imbalance": 1.2}))
    )


def own_file(folder: Path, *rows: str) -> str:
    file = folder / "ours.csv"
    lines = ["kind,id,quantity,value,unit,source,date,confidence", *rows]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


def test_a_team_can_name_a_framework_of_its_own(tmp_path: Path) -> None:
    ours = own_file(
        tmp_path,
        "frameworks,our-trainer,logit_bytes,2,B,our fused loss,2026-11,verified",
        "frameworks,our-trainer,zero_stages,3,count,our setting,2026-11,verified",
        "frameworks,fsdp2,sync_bytes,2,B,our patch,2026-11,verified",
    )
    own = parse_job({**job_of({"framework": "our-trainer"}), "catalog": ours})
    assert (own.workload.logit_bytes, own.search.zero_stages) == (2, (3,))
    assert not habitual_fields(own)  # the file is not at hand any more
    patched = parse_job({**job_of({"framework": "fsdp2"}), "catalog": ours})
    assert (patched.workload.sync_bytes, patched.workload.logit_bytes) == (2, 12)


def test_own_habits_that_no_job_may_have_are_told_with_their_row(tmp_path: Path) -> None:
    ours = own_file(tmp_path, "frameworks,our-trainer,gradient_bytes,3,B,ours,2026-11,verified")
    with pytest.raises(InputError) as caught:
        parse_job({**job_of({"framework": "our-trainer"}), "catalog": ours})
    assert "our-trainer" in str(caught.value)
    assert "gradient_bytes: Input should be 2, 4 or 6" in str(caught.value)


@pytest.mark.parametrize("name", names(Kind.FRAMEWORKS))
def test_every_framework_makes_a_job(name: str) -> None:
    job = parse_job(job_of({"framework": name}))
    assert job.workload.framework == name
    assert habitual_fields(job) == {
        *(f"workload.{field}" for field in framework(name).workload),
        *(f"search.{field}" for field in framework(name).search),
    }


@pytest.mark.parametrize(
    ("name", "written", "told"),
    [
        (
            "torchtitan",
            {"recompute_modules": ["core_attn", "mlp"]},
            "(with framework torchtitan, selective_recompute is every_other_product unless the job says otherwise)",
        ),
        (
            "nemo",
            {"keeps_cast_weights": True},
            "give one of them (with framework nemo, gathers_cast_weights is true unless the job says otherwise)",
        ),
        # Both fields are the job's own.
        ("nemo", {"keeps_cast_weights": True, "gathers_cast_weights": True}, "give one of them"),
        ("fsdp2", {"stage_layers": [1, 2]}, "must add up to num_layers (32)"),
    ],
)
def test_a_rule_that_a_habit_breaks_says_where_the_habit_comes_from(
    name: str, written: Mapping[str, object], told: str
) -> None:
    with pytest.raises(InputError) as caught:
        parse_job(job_of({"framework": name, **written}), source="ours.yaml")
    (problem,) = caught.value.problems
    assert problem.rule.endswith(told)
    assert caught.value.source == "ours.yaml"


def test_the_job_of_an_answer_needs_no_file_that_describes_its_framework(tmp_path: Path) -> None:
    rows = [
        "kind,id,quantity,value,unit,source,date,confidence",
        "frameworks,our-trainer,name,our trainer,text,ours,2026,verified",
        "frameworks,our-trainer,logit_bytes,2,B,ours,2026,verified",
        "frameworks,our-trainer,zero_stages,3,count,ours,2026,verified",
    ]
    (tmp_path / "ours.csv").write_text("\n".join(rows), encoding="utf-8")
    written = {**job_of({"framework": "our-trainer"}), "catalog": "ours.csv"}
    job = parse_job(written, folder=tmp_path)
    assert (job.workload.logit_bytes, job.search.zero_stages) == (2, (3,))
    assert parse_job(job.model_dump(mode="json")) == job
    with pytest.raises(InputError, match="'our-trainer': is not among the catalogue's frameworks"):
        parse_job(job_of({"framework": "our-trainer"}))
