"""Are degrees and batches read from notes, where no column says them?"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.measured.cells.file import Cells
from planner.measured.layout.noted_degrees import with_noted_degrees
from tests.planner.measured_rows import LLAMA_8B, simulated_row

LENGTH = 4096


def found(notes: str, **numbers: float) -> dict[str, float]:
    """What notes add to a row of 512 accelerators."""
    given = {"n_gpus": 512.0, "seq_len": float(LENGTH), **numbers}
    cells = with_noted_degrees(Cells(line=2, text={"notes": notes}, numbers=given))
    return {name: value for name, value in cells.numbers.items() if name not in given}


@pytest.mark.parametrize(
    ("notes", "degrees"),
    [
        ("TP=8, PP=4, DP=16", {"tp": 8, "pp": 4, "dp": 16}),
        ("TP8PP4VPP5CP2", {"tp": 8, "pp": 4, "cp": 2}),
        ("layout tp2xcp2xdp4", {"tp": 2, "cp": 2, "dp": 4}),
        ("TP/PP/EP = 1/8/64", {"tp": 1, "pp": 8, "ep": 64}),
        ("(TP, PP) = (8, 4)", {"tp": 8, "pp": 4}),
        ("8-way tensor parallel, 4 pipeline stages", {"tp": 8, "pp": 4}),
        ("tensor-parallel size 4; pipeline_parallel_size=2", {"tp": 4, "pp": 2}),
        ("GBS 1,024, MBS 2", {"global_batch": 1024, "micro_batch": 2}),
        ("global batch of 4M tokens", {"global_batch": 4 * 2**20 / LENGTH}),
        ("Ulysses 8", {"cp": 8}),
        ("ring attention, CP=4", {"cp": 4}),
        ("8-way Ulysses SP, ZeRO-3", {"cp": 8}),
        ("Ulysses 8 x ring 4", {"cp": 32}),
        ("local batch size 4; per-GPU batch 4", {"micro_batch": 4}),
        ("per_device_train_batch_size=2", {"micro_batch": 2}),
        ("batch size 1024 per GPU", {"micro_batch": 1024}),
        ("batch per device: 2", {"micro_batch": 2}),
        ("t=8, p=4, d=16, b=1; interleaved", {"tp": 8, "pp": 4, "dp": 16}),
        ("t8/p64, m=3", {"tp": 8, "pp": 64}),
        ("(t, p, d) = (8, 64, 1)", {"tp": 8, "pp": 64, "dp": 1}),
        ("8-way tensor slicing, 16-way pipeline, 4-way data parallel", {"tp": 8, "pp": 16, "dp": 4}),
        ("tensor 8, pipeline 16", {"tp": 8, "pp": 16}),
        ("8-way Megatron TP", {"tp": 8}),
        ("ici_tensor_parallelism=8, dcn_data_parallelism=2", {"tp": 8}),
        ("MP=16", {"tp": 16}),
        ("4 GPUs per node, 1600 Gb/s per node", {"gpus_per_node": 4}),
        ("4 per node; 2 NICs per node", {"gpus_per_node": 4}),
        ("gpus_per_node=4, 16 nodes", {"gpus_per_node": 4}),
        ("16-way model parallelism", {"tp": 16}),
        ("MP=64 (TP 8 x PP 8)", {"tp": 8, "pp": 8}),
        ("global batch of 2^22 tokens", {"global_batch": 1024}),
        ("batch 1536", {"global_batch": 1536}),
        ("16M tokens per batch", {"global_batch": 4096}),
        ("DP 64, batch 128", {"dp": 64, "global_batch": 128}),
    ],
)
def test_notes_say_degrees_and_batches(notes: str, degrees: dict[str, int]) -> None:
    assert found(notes) == degrees


@pytest.mark.parametrize(
    "notes",
    [
        "PP 1F1B, micro-batch 1F1B",
        "vpp=4, ETP 2, DeepEP 1.2, HSDP 8, FSDP 16",
        "no TP; TP8 was 5% slower",
        "TP overlap 50%, async-TP, 8 GPUs",
        "context 8192, tensor cores, expert tensor parallel size 2",
        "batch 8",
        "per-tensor 8-bit scaling, tensor 8-bit",
        "TP/PP not printed (model-parallel size 144)",
    ],
)
def test_other_numbers_are_not(notes: str) -> None:
    assert found(notes) == {}


@pytest.mark.parametrize(
    ("scheme", "ranks"),
    [
        ("Ulysses 8", 8),
        ("ulysses-4", 4),
        ("ulysses_sequence_parallel_size=4", 4),
        ("ring, CP 16", 16),
        ("Ulysses", None),
        ("8", None),
    ],
)
def test_ranks_of_a_sequence_may_stand_beside_their_scheme(scheme: str, ranks: int | None) -> None:
    cells = with_noted_degrees(Cells(line=2, text={"sp": scheme}, numbers={"n_gpus": 64.0}))
    assert cells.numbers.get("cp") == ranks


def test_columns_take_precedence() -> None:
    assert found("TP 4, PP 2", tp=8.0) == {"pp": 2}


@pytest.mark.parametrize("notes", ["TP4 or TP8", "TP 3"])
def test_what_is_not_clear_is_remarked(notes: str) -> None:
    cells = with_noted_degrees(Cells(line=2, text={"notes": notes}, numbers={"n_gpus": 512.0}))
    assert "tp" not in cells.numbers
    ((column, meaning),) = cells.remarks
    assert (column, meaning.endswith("not read")) == ("tp", True)


def test_a_row_with_its_layout_in_notes_is_simulated_with_it(tmp_path: Path) -> None:
    cells = {name: value for name, value in LLAMA_8B.items() if name not in ("tp", "pp")}
    row = simulated_row(tmp_path, {**cells, "n_gpus": 16, "notes": "TP4, CP2, PP1"})
    degrees = (
        row["tensor_parallel"],
        row["pipeline_parallel"],
        row["context_parallel"],
        row["data_parallel"],
    )
    assert degrees == ("4", "1", "2", "2")
    assert "tp = '': 4, as the notes say" in row["remarks"].splitlines()
