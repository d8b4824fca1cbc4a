"""Is a run on several nodes that does not say its layout given the fastest one that fits?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest

from planner.cli.commands import main
from planner.cli.terminal.exit_codes import OK
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import Row, compare
from planner.measured.untold_layouts import LAYOUT, with_fastest_layouts
from planner.validation.comparison import Modelled, choices, entries_of, memory_verdicts, timed
from tests.planner.measured_rows import LLAMA_8B, QWEN3_30B, written

# Narayanan et al., SC'21, Table 1: 7.5 billion weights on 128 A100, 512 sequences; its layout was TP 4 and DP 32.
OPEN: Mapping[str, object] = {
    "id": "open",
    "model": "GPT-7.5B",
    "layers": 36,
    "hidden": 4096,
    "heads": 32,
    "ffn_hidden": 16384,
    "vocab": 51200,
    "mlp_matrices": 2,
    "seq_len": 2048,
    "gpu": "A100-80GB",
    "n_gpus": 128,
    "global_batch": 512,
    "micro_batch": 4,
    "recompute": "full",
    "precision": "fp16",
    "zero_stage_or_fsdp": "none",
    "framework": "Megatron-LM",
    "step_time_s": 9.0,
}


def chosen(folder: Path, **changes: object) -> Row | Unmodelled:
    (row,) = with_fastest_layouts(read_measured(written(folder, {**OPEN, **changes})))
    return row


def test_it_is_the_fastest_of_all_that_fit(tmp_path: Path) -> None:
    row = chosen(tmp_path)
    assert not isinstance(row, Unmodelled), row
    told = [
        {**OPEN, "id": f"{t} {p}", "tp": t, "pp": p}
        for t, p in product((1, 2, 4, 8), (1, 2, 4))
        if (512 * t * p) % (128 * 4) == 0
    ]
    rows = [each for each in read_measured(written(tmp_path, *told)) if not isinstance(each, Unmodelled)]
    fitting = [each for each in compare(rows) if not each.is_too_large]
    assert len(fitting) > 1
    assert compare([row])[0].simulated_s == min(each.simulated_s for each in fitting)


@pytest.mark.parametrize(
    ("told", "tensor", "pipeline"), [({"tp": 8, "dp": 4}, "8", "4"), ({"pp": 4, "dp": 32}, "1", "4")]
)
def test_what_the_other_degrees_leave_is_no_choice(
    tmp_path: Path, told: Mapping[str, object], tensor: str, pipeline: str
) -> None:
    row = chosen(tmp_path, **told)
    assert not isinstance(row, Unmodelled), row
    assert (row["tensor_parallel"], row["pipeline_parallel"]) == (tensor, pipeline)
    assert LAYOUT not in row["assumed"].split()


@pytest.mark.parametrize(
    ("told", "tensor", "pipeline"),
    [({"tp": 8, "cp": 16}, "8", "1"), ({"pp": 32, "cp": 4, "ep": 2}, "1", "32"), ({"tp": 128}, "128", "1")],
)
def test_ranks_of_one_sequence_that_make_up_the_run_leave_one(
    tmp_path: Path, told: Mapping[str, object], tensor: str, pipeline: str
) -> None:
    # 131,072 tokens without recomputation: most of these have no room, and are modelled nevertheless.
    row = chosen(tmp_path, heads=128, hidden=8192, seq_len=131072, global_batch=4, recompute="none", **told)
    assert not isinstance(row, Unmodelled), row
    assert (row["tensor_parallel"], row["pipeline_parallel"]) == (tensor, pipeline)
    assert LAYOUT not in row["assumed"].split()


def test_degrees_that_leave_no_layout_are_the_reason(tmp_path: Path) -> None:
    row = chosen(tmp_path, pp=10)
    assert isinstance(row, Unmodelled)
    assert row.reason == "tp is not given, and with pp 10 no layout makes up 128 GPUs and splits 36 layers"


def test_a_told_layout_that_has_no_room_is_modelled(tmp_path: Path) -> None:
    # 7.5 billion weights on pairs of V100 of 32 GB: 60 GB of states in 16 bytes a weight, and more.
    changes = {"gpu": "V100", "tp": 2, "dp": 8, "n_gpus": 16, "global_batch": 64}
    row = chosen(tmp_path, **changes)
    assert not isinstance(row, Unmodelled), row
    assert compare([row])[0].is_too_large


def test_what_is_told_stays(tmp_path: Path) -> None:
    for told in ({"tp": 8}, {"pp": 4}, {"dp": 16}):
        row = chosen(tmp_path, **told)
        assert not isinstance(row, Unmodelled), row
        names = {"tp": "tensor_parallel", "pp": "pipeline_parallel", "dp": "data_parallel"}
        assert {names[column]: str(value) for column, value in told.items()}.items() <= row.items()
        assert row["micro_batch_size"] == "4"
        assert row["recompute"] == "full"


def test_a_run_that_had_no_room_is_given_none(tmp_path: Path) -> None:
    assert isinstance(chosen(tmp_path, metric_kind="out of memory", step_time_s=""), Unmodelled)


def test_experts_are_spread_as_fits_best(tmp_path: Path) -> None:
    # Megatron-Bridge runs Qwen3 30B-A3B on 16 H100 with EP 8 or 16 and nothing else; 4 has room, too.
    cells = {**QWEN3_30B, "tp": "", "pp": "", "ep": ""}
    (row,) = with_fastest_layouts(read_measured(written(tmp_path, cells)))
    assert not isinstance(row, Unmodelled), row
    assert int(row["expert_parallel"]) in (4, 8, 16)
    assert f"EP {row['expert_parallel']}" in row["remarks"]


@pytest.mark.parametrize(("num_gpus", "spread"), [(16, ("4", "8", "16")), (8, ("4", "8")), (2, ("2",))])
def test_a_run_that_tells_all_but_its_experts_spreads_them(
    tmp_path: Path, num_gpus: int, spread: tuple[str, ...]
) -> None:
    # On two accelerators nothing has room: what needs the least memory stands in.
    cells = {**QWEN3_30B, "ep": "", "n_gpus": num_gpus, "step_time_s": 200}
    (row,) = with_fastest_layouts(read_measured(written(tmp_path, cells)))
    assert not isinstance(row, Unmodelled), row
    assert row["expert_parallel"] in spread
    assert (row["tensor_parallel"], row["pipeline_parallel"]) == ("1", "1")
    assert LAYOUT in row["assumed"].split()
    assert ("least memory, as none fits" in row["remarks"]) is (num_gpus == 2)


def test_experts_of_a_run_that_shards_everything_stay_where_they_are(tmp_path: Path) -> None:
    cells = {**QWEN3_30B, "ep": "", "framework": "torchtitan", "zero_stage_or_fsdp": "FSDP2"}
    (row,) = read_measured(written(tmp_path, cells))
    assert not isinstance(row, Unmodelled), row
    assert row["expert_parallel"] == "1"


def test_micro_batch_and_recomputation_are_chosen_where_they_are_missing(tmp_path: Path) -> None:
    row = chosen(tmp_path, micro_batch="", recompute="", n_gpus=16, step_time_s=90)
    assert not isinstance(row, Unmodelled), row
    assert {"micro_batch", "recompute", LAYOUT} <= set(row["assumed"].split())
    (known,) = compare([row])
    assert not known.is_too_large


def test_the_row_says_so_and_is_less_sure(tmp_path: Path) -> None:
    row = chosen(tmp_path)
    assert not isinstance(row, Unmodelled), row
    tensor, pipeline = int(row["tensor_parallel"]), int(row["pipeline_parallel"])
    assert f"taken as TP {tensor} x PP {pipeline} x DP" in row["remarks"]
    told = {**OPEN, "id": "told", "tp": tensor, "pp": pipeline, "vpp": 1}
    known, unknown = entries_of(read_measured(written(tmp_path, told, OPEN)))
    assert isinstance(known, Modelled)
    assert isinstance(unknown, Modelled)
    assert unknown.comparison.simulated_s == known.comparison.simulated_s
    assert unknown.interval.low_s <= known.interval.low_s
    assert unknown.interval.high_s > known.interval.high_s


def test_where_nothing_is_judged_the_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "--measured", str(written(tmp_path, OPEN)), "--quiet"]) == OK
    said = capsys.readouterr().out
    assert "No run has the data needed to check" in said
    assert "the layout is not given: taken as TP" in said


def test_it_is_no_design_of_its_job_and_its_memory_is_not_judged(tmp_path: Path) -> None:
    told = {**OPEN, "id": "told", "tp": 8, "pp": 2}
    entries = entries_of(read_measured(written(tmp_path, told, OPEN)))
    assert len(timed(entries)) == 2
    assert choices(timed(entries)) == []
    assert memory_verdicts(entries).num_ran_and_fit == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"layers": 100, "hidden": 20480, "n_gpus": 16, "step_time_s": 9e3},
            r"tp and pp are not given, .*; of \d+ layouts .* none fits",
        ),
        (
            {"tp": 8, "layers": 100, "hidden": 20480, "n_gpus": 16},
            "^pp is not given, of a run on more than one node",
        ),
        (
            {"step_time_s": 0.1},
            "tp and pp are not given, .*; step_time_s = 0.1: 128 a100-sxm4-80gb at their peak need",
        ),
        ({"global_batch": "", "micro_batch": ""}, "neither global_batch nor micro_batch"),
        # one replica for each of 128 accelerators, which is tried first, does not divide 64 sequences
        ({"global_batch": 64, "micro_batch": 1, "step_time_s": 0.01}, "at their peak need 0.15"),
        (
            {"global_batch": 64, "micro_batch": 1, "layers": 7, "heads": 3},
            "one node; tensor_parallel must divide num_heads",
        ),
    ],
)
def test_what_fits_no_way_keeps_its_reason(
    tmp_path: Path, changes: Mapping[str, object], reason: str
) -> None:
    row = chosen(tmp_path, **changes)
    assert isinstance(row, Unmodelled)
    assert re.search(reason, row.reason), row.reason


def test_runs_that_shard_everything_split_nothing_else(tmp_path: Path) -> None:
    row = chosen(tmp_path, zero_stage_or_fsdp="FSDP", model=LLAMA_8B["model"], layers="", hidden="", heads="")
    assert not isinstance(row, Unmodelled), row
    assert LAYOUT not in row["assumed"].split()
    assert row["tensor_parallel"] == row["pipeline_parallel"] == "1"


def test_a_run_with_zero_2_has_no_pipeline(tmp_path: Path) -> None:
    # DeepSpeed's PipelineEngine asserts a stage below that of gradients
    cells = {
        **OPEN,
        "model": "gpt2-xl",
        "layers": "",
        "hidden": "",
        "heads": "",
        "ffn_hidden": "",
        "vocab": "",
    }
    row = chosen(tmp_path, **{**cells, "framework": "DeepSpeed 0.9", "zero_stage_or_fsdp": "ZeRO-2"})
    assert not isinstance(row, Unmodelled), row
    assert LAYOUT not in row["assumed"].split()
    assert (row["tensor_parallel"], row["pipeline_parallel"], row["data_parallel"]) == ("1", "1", "128")
