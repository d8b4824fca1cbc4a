"""What does a user learn about the cut of a plan's layers? Tests of `capplan explain --balance` and of its answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.cli import commands as cli
from planner.job.file import load_job
from planner.layer_cut import LayerCut, cut_layers
from planner.one_design.simulated_design import simulate_plan
from simulator.errors import InputError
from simulator.memory.peak import memory_by_stage
from tests.support import job_with

BLOOM = str(Path(__file__).parents[2] / "examples" / "bloom-176b.yaml")
BLOOM_PLAN = "tp=4,pp=12,dp=8,mbs=2,recompute=full"
PLAN_OF_BLOOM = {"tp": 4, "pp": 12, "dp": 8, "mbs": 2, "recompute": "full"}
JOB = job_with(search={"micro_batch_sizes": [1]})
PLAN = {"tp": 1, "pp": 4, "dp": 8, "recompute": "full"}


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["explain", BLOOM, "--plan", BLOOM_PLAN, "--balance", *arguments]) == 0
    return capsys.readouterr().out


def test_both_cuts_come_to_what_their_simulation_says() -> None:
    found = cut_layers(JOB, PLAN)
    assert found.present
    assert found.best
    assert found.setting
    assert found.present.layers == (8, 8, 8, 8)  # Llama 3.1 8B has 32 layers
    listed = JOB.model_copy(
        update={"workload": JOB.workload.model_copy(update={"stage_layers": found.best.layers})}
    )
    for job, cut in ((JOB, found.present), (listed, found.best)):
        design = simulate_plan(job, PLAN, with_sensitivities=False).design
        assert design
        assert cut.step_time_s == design.step_time_s
        assert cut.fullest_stage_bytes == design.peak_memory_bytes
        peaks = memory_by_stage(job.workload, design.plan).peak_bytes
        assert peaks[cut.fullest_stage] == peaks.max() == design.peak_memory_bytes
    assert found.gain_fraction == 1.0 - found.best.step_time_s / found.present.step_time_s
    assert found.gain_fraction > 0.0


def test_the_setting_makes_the_best_cut_the_present_one() -> None:
    unset = cut_layers(
        load_job(BLOOM, ["workload.stage_layers=[4, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6]"]), PLAN_OF_BLOOM
    )
    assert unset.best
    assert unset.setting
    again = cut_layers(load_job(BLOOM, [unset.setting]), PLAN_OF_BLOOM)
    assert again.present == again.best == unset.best
    assert again.gain_fraction == 0.0


def test_blooms_published_cut_is_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    # arXiv 2211.05100, section 3.1: 70 layers on 12 stages, where embeddings count as a layer each.
    text = printed(capsys)
    assert "the present cut of the layers is the best that fits the memory" in text
    assert "5, 10 x 6, 5" in text
    assert "Proven: every cut that could be better was simulated" in text
    assert "--set" not in text


def test_a_worse_cut_is_told_by_how_much_and_what_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--set", "workload.stage_layers=[4, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6]")
    assert "shorter" in text
    assert "workload: {stage_layers: [5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5]}" in text


def test_the_answer_as_json_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(printed(capsys, "--json"))
    assert answer["best"]["layers"] == [5, *[6] * 10, 5]
    assert LayerCut.model_validate(answer).model_dump(mode="json") == answer


def test_where_nothing_fits_the_memory_there_is_no_cut() -> None:
    plan = {"tp": 1, "pp": 2, "dp": 8, "zero_stage": 0}
    job = job_with(workload={"model": "llama-3.1-70b"})
    found = cut_layers(job, plan)
    assert found.present
    assert not found.present.fits_memory
    assert (found.best, found.gain_fraction, found.setting, found.is_proven) == (None, None, None, True)


def test_what_a_job_leaves_free_is_told_where_no_cut_fits(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(printed(capsys, "--set", "search.memory_headroom_fraction=0.75").split())
    assert "fits 25.0 % (search.memory_headroom_fraction) of the memory (80.0 GiB)" in text


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"tp": 1, "pp": 1, "dp": 16}, "pipeline_parallel = 1: must be at least 2"),
        ({"tp": 3, "pp": 2, "dp": 8}, "attention_heads: tensor_parallel must divide num_heads"),
        ({"tp": 1, "pp": 4, "dp": 4, "num_gpus": 24}, "degrees: .* must equal num_gpus"),
        ({"tpp": 1}, "tpp"),
    ],
)
def test_a_plan_that_cannot_run_is_refused(plan: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cut_layers(JOB, plan)


def test_the_option_needs_a_plan_and_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", BLOOM, "--balance"]) == 2
    assert "give --plan, too" in capsys.readouterr().err
    assert cli.main(["explain", "memory", "--balance"]) == 2
    assert "need JOB.yaml" in capsys.readouterr().err


def test_a_cut_is_given_as_megatron_core_reads_it_unless_chunks_are_in_a_v(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = cut_layers(load_job(BLOOM), PLAN_OF_BLOOM)
    assert found.present
    assert found.present.megatron_layout == "Et*5|(t*6|)*10t*5L"
    assert "in Megatron Core" in printed(capsys)
    in_v = cut_layers(JOB, {**PLAN, "vpp": 2, "recompute": "none", "pipeline_schedule": "zb_v"})
    assert in_v.present
    assert in_v.present.megatron_layout is None
