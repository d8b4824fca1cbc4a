"""Which plan do short forms, files and mappings mean, and which inputs are refused?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner import load_job, simulate_plan
from planner.cli import commands as cli
from planner.input import plan_input
from planner.input.plan_input import plan_of, plan_text, read_plan
from planner.input.yaml_text import MAX_FILE_BYTES
from simulator.domain.plan import Plan
from simulator.errors import InputError
from tests.planner.simulated import AS_IT_WAS_RUN, BLOOM, LLAMA, answer


@pytest.mark.short(2)
@pytest.mark.parametrize(
    "plan",
    [
        AS_IT_WAS_RUN.replace("dp=8", "num_gpus=384"),
        f"num_gpus=384,{AS_IT_WAS_RUN}",
        f"accelerator=a100-sxm4-80gb,{AS_IT_WAS_RUN}",
        f"offer=0, {AS_IT_WAS_RUN.replace(',', ' , ')}",
        f"{AS_IT_WAS_RUN},checkpoint_interval_s=null,zero_stage=1,precision=bf16,vpp=1,cp=1,ep=1",
        AS_IT_WAS_RUN.replace("tp", "tensor_parallel").replace("mbs", "micro_batch_size"),
    ],
)
def test_short_forms_and_what_follows_from_the_rest_make_the_same_plan(
    plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(capsys, plan) == answer(capsys, AS_IT_WAS_RUN)


def test_the_text_of_a_plan_is_read_as_that_plan() -> None:
    job = load_job(LLAMA)
    told = {
        "offer": 1,
        "num_gpus": 512,
        "num_spare_nodes": 3,
        "tensor_parallel": 2,
        "pipeline_parallel": 4,
        "virtual_pipeline": 10,
        "context_parallel": 2,
        "data_parallel": 32,
        "recompute": "full",
        "zero_stage": 2,
        "precision": "fp8",
        "checkpoint_scheme": "in_memory_peer",
        "checkpoint_interval_s": 48.1,
        "power_cap_fraction": 0.75,
    }
    plan = Plan.model_validate(told)
    assert plan_of(job, read_plan(plan_text(plan))) == (plan, 512)
    bare = Plan.model_validate({"offer": 0, "num_gpus": 8, "tensor_parallel": 8})
    assert plan_of(job, read_plan(plan_text(bare))) == (bare, 8)


def test_a_job_with_several_offers_wants_to_know_which_one(capsys: pytest.CaptureFixture[str]) -> None:
    plan = "accelerator=a100-sxm4-80gb,tp=8,pp=4,dp=16,recompute=full"
    found = answer(capsys, plan, job=LLAMA)
    assert found.design is not None
    assert found.design.accelerator == "a100-sxm4-80gb"
    assert cli.main(["simulate", LLAMA, "--plan", "tp=8,pp=4,dp=16"]) == 2
    assert "the job has 3 offers: offer=0 (h100-sxm5-80gb)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("tp=4,tensor_paralel=2", "tensor_paralel = 2: unknown key; nearest: tensor_parallel"),
        ("tq=4", "tq = 4: unknown key; nearest: tp"),
        ("tp=four", "tp = 'four': must be a whole number"),
        ("tp=4.5", "tp = 4.5: must be a whole number"),
        ("tp='4'", "tp = '4': must be a whole number"),
        ("tp=true", "tp = 'true': must be a whole number"),
        ("tp=0", "tp = 0: must be greater than 0"),
        ("tp=4,tp=8", "tp = '8': is given twice"),
        ("tp=4,dp=", "dp = '': needs a value after ="),
        (
            "tp=4,tensor_parallel=8",
            "tp = 8: is given twice: tensor_parallel has the value 4 already",
        ),
        ("tp=1e9", "tp = 1000000000: must be at most 10,000,000"),
        ("tp=10000,dp=10000", "num_gpus = 100000000: must be at most 10,000,000"),
        ("num_gpus=many", "num_gpus = 'many': must be a whole number"),
        ("tp=[1", "tp = '[1': "),
        ("tp", "must be a mapping of"),
        ("tp=4,pp", "must be key=value pairs with commas between them"),
        ("tp=4,=2", "plan = '=2': must be key=value pairs with commas between them"),
        ("", "must be key=value pairs with commas between them"),
        (
            "dp",
            "plan = 'dp': must be key=value pairs with commas between them, such as tp=8,pp=4,dp=16, or a file",
        ),
        ("recompute=some", "recompute = 'some': must be 'none', 'selective' or 'full'"),
        ("recompute=1", "recompute = 1: must be 'none', 'selective' or 'full'"),
        ("power_cap_fraction=2", "power_cap_fraction = 2: must be at most 1"),
        ("power_cap_fraction=0.08", "power_cap_fraction = 0.08: must be at least 0.3"),
        ("power_cap_fraction=half", "power_cap_fraction = 'half': must be a number"),
        ("checkpoint_interval_s=.nan", "checkpoint_interval_s = nan: must be a finite number"),
        ("zero_stage=4", "zero_stage = 4: must be at most 3"),
        ("offer=1", "offer = 1: must be at most 0: offers are counted from 0"),
        ("offer=-1", "offer = -1: must be at least 0"),
        ("accelerator=h100-sxm5-80gb", "is not on offer in the job; nearest: a100-sxm4-80gb"),
        ("accelerator=a100-sxm4-80gb,offer=0", "contradicts offer: give one of them"),
        ("missing.yaml", "cannot be read"),
    ],
)
def test_what_is_no_plan_ends_with_two_and_one_message(
    plan: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "tp").write_text("[4]", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["simulate", BLOOM, "--plan", plan]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_an_empty_plan_file_is_asked_for_a_decision(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text("# nothing yet\n", encoding="utf-8")
    assert cli.main(["simulate", BLOOM, "--plan", str(file)]) == 2
    assert "is empty: write at least one decision, such as tensor_parallel: 8" in capsys.readouterr().err


def test_the_plan_of_an_answer_is_that_of_its_design(tmp_path: Path) -> None:
    plan = {"tensor_parallel": 4, "pipeline_parallel": 12}
    file = tmp_path / "answer.json"
    for fields in ({"recommendation": {"plan": plan}, "warnings": []}, {"plan": plan, "is_feasible": True}):
        file.write_text(json.dumps({"capplan_version": "1", **fields}), encoding="utf-8")
        assert read_plan(str(file)) == plan
    file.write_text(json.dumps({"plan": plan, "time_to_train_days": 25.9}), encoding="utf-8")  # of a front
    assert read_plan(str(file)) == plan


def test_the_plan_of_an_answer_with_a_long_front_is_taken_and_larger_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = {"capplan_version": "1", "recommendation": {"plan": {"tp": 4}}, "front": "x" * MAX_FILE_BYTES}
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(answered), encoding="utf-8")
    assert read_plan(str(file)) == {"tp": 4}
    file.write_text("[1]\n" + "#" * MAX_FILE_BYTES, encoding="utf-8")  # YAML of this size takes long to read
    with pytest.raises(InputError, match="not valid JSON"):
        read_plan(str(file))
    monkeypatch.setattr(plan_input, "LARGEST_ANSWER_BYTES", MAX_FILE_BYTES)
    with pytest.raises(InputError, match="larger than 1,000,000 bytes, so it is not a plan or an answer"):
        read_plan(str(file))
    other = file.rename(tmp_path / "plan.yaml")
    with pytest.raises(InputError, match=r"larger than 1,000,000 bytes, so it is not a plan$"):
        read_plan(str(other))


@pytest.mark.parametrize("fields", [{"recommendation": None}, {"plan": None}, {"spaces": []}])
def test_an_answer_without_a_plan_is_told(fields: dict[str, object], tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    file.write_text(json.dumps({"capplan_version": "1", **fields}), encoding="utf-8")
    with pytest.raises(InputError, match="is an answer without a plan; give a plan, such as tp=8"):
        read_plan(str(file))


def test_several_problems_of_a_plan_are_reported_at_once() -> None:
    with pytest.raises(InputError, match="plan: 3 problems") as caught:
        simulate_plan(load_job(BLOOM), {"tp": "x", "colour": "red", "zero_stage": 9})
    assert [problem.path for problem in caught.value.problems] == ["tp", "colour", "zero_stage"]


@pytest.mark.parametrize("key", ["micro_batch", "micro-batch", "micro_batch_size"])
def test_the_micro_batch_has_more_than_one_name(key: str) -> None:
    plan, _ = plan_of(load_job(BLOOM), read_plan(f"tp=4,pp=12,dp=8,{key}=2"))
    assert plan.micro_batch_size == 2
