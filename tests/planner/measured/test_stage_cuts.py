"""Are layers cut as the notes of a measured run say, or is it told that they cannot be?"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.measured.runs import job_of, plan_of
from tests.planner.measured_rows import RUN, simulated_row

LAYERS_405B = {
    **RUN,
    "model": "llama-3.1-405b",
    "n_gpus": 1024,
    "tp": 8,
    "pp": 16,
    "dp": 8,
    "global_batch": 256,
}
LAST_LIGHT = (8,) * 15 + (6,)
BOTH_LIGHT = (7, *(8,) * 14, 7)


@pytest.mark.parametrize(
    ("vpp", "notes", "cut"),
    [
        (1, "decoder_first_pipeline_num_layers=7, decoder_last_pipeline_num_layers=7", BOTH_LIGHT),
        (1, "num_layers_in_last_pipeline_stage: 6", LAST_LIGHT),
        (1, "--decoder-last-pipeline-num-layers 6", LAST_LIGHT),
        (1, "last stage holds 6 layers", LAST_LIGHT),
        (1, "first stage 7 layers, last stage 7 layers", BOTH_LIGHT),
        (1, "7 layers on the first and last stages", BOTH_LIGHT),
        (1, "account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split", BOTH_LIGHT),
        (1, 'pipeline_model_parallel_layout="Et*7|(t*8|)*14t*7L"', BOTH_LIGHT),
        (1, """--pipeline-model-parallel-layout "'Et*7|(t*8|)*14t*7L'" """, BOTH_LIGHT),
        (1, "PP layout: Et*7|(t*8|)*14t*7L", BOTH_LIGHT),
        (1, "pipeline layout=E(t*8|)*15t*6L", LAST_LIGHT),
        (2, "decoder_first_pipeline_num_layers=6", (3, *(4,) * 15) * 2),
        (2, "num_layers_in_first_pipeline_stage=6, num_layers_in_last_pipeline_stage=8", (3, *(4,) * 15) * 2),
        (2, "decoder_first_pipeline_num_layers=7", None),
        (1, "first stage 9 layers", None),
        (1, "account_for_embedding_in_pipeline_split", None),
        (1, "pipeline_model_parallel_layout=Et*7|t*119L", None),
    ],
)
def test_notes_tell_the_layers_of_stages(
    tmp_path: Path, vpp: int, notes: str, cut: tuple[int, ...] | None
) -> None:
    # `get_num_layers_to_build`: the other stages share the rest evenly, and the chunks of a stage its layers. 15 stages cannot
    # share 126 less 9, nor two chunks 7, nor 16 stages 127.
    row = simulated_row(tmp_path, {**LAYERS_405B, "vpp": vpp, "notes": notes})
    assert job_of(row).workload.stage_layers == cut
    assert row["num_layers"] == "126"
    assert ("left out" in row["remarks"]) == (cut is None)
    if cut:
        assert plan_of(row).pipeline_parallel * plan_of(row).virtual_pipeline == len(cut)


@pytest.mark.parametrize(
    "notes",
    ["account_for_embedding_in_pipeline_split=False", "loss on the last stage, 5 layers recomputed", ""],
)
def test_other_words_cut_nothing(tmp_path: Path, notes: str) -> None:
    row = simulated_row(tmp_path, {**LAYERS_405B, "notes": notes})
    assert (job_of(row).workload.stage_layers, row["remarks"]) == (None, "")


def test_chunks_of_a_list_are_those_of_all_stages(tmp_path: Path) -> None:
    # `Et*3|(tt|)*29m|L` of Megatron-Bridge for DeepSeek-V3 on 32 chunks: its last two hold the module, and the loss alone.
    model = {"model": "deepseek-v3", "ep": 32, "pp": 16, "vpp": 2, "n_gpus": 1024, "tp": 1, "dp": 64}
    notes = 'pipeline_model_parallel_layout="Et*3|(tt|)*29m|L", MTP 1'
    row = simulated_row(tmp_path, {**RUN, **model, "global_batch": 1024, "notes": notes})
    assert job_of(row).workload.stage_layers == (3, *(2,) * 29, 0, 0)


def test_a_list_of_chunks_tells_how_many_each_stage_has(tmp_path: Path) -> None:
    model = {"model": "kimi-k2", "ep": 64, "pp": 2, "vpp": "", "n_gpus": 128, "tp": 1, "dp": 64}
    notes = "--pipeline-model-parallel-layout Et|t|(tt|)*29tL"
    row = simulated_row(tmp_path, {**RUN, **model, "global_batch": 1024, "notes": notes})
    assert job_of(row).workload.stage_layers == (1, 1, *(2,) * 29, 1)
    assert row["virtual_pipeline"] == "16"
    assert "16, as the notes say" in row["remarks"]
    # 32 chunks are not those of three stages.
    assert (
        simulated_row(tmp_path, {**RUN, **model, "pp": 3, "n_gpus": 192, "notes": notes})["virtual_pipeline"]
        == "1"
    )


def test_stages_that_are_first_and_last_at_once_are_not_cut(tmp_path: Path) -> None:
    notes = "zb-v schedule, first stage 7 layers, last stage 7 layers"
    row = simulated_row(tmp_path, {**LAYERS_405B, "recompute": "none", "notes": notes, "sp": "yes"})
    assert job_of(row).workload.stage_layers is None
    assert "the first stage of this schedule is also the last" in row["remarks"]
