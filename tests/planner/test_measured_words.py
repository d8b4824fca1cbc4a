"""Do the words that people write into a measured run mean what they mean to its framework, or are they refused?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.hardware_names import accelerator_id
from planner.measured_recompute import Recomputed, recomputed
from planner.measured_rows import Unmodelled
from planner.measured_runs import Row
from planner.measured_sharding import zero_stage
from simulator.errors import InputError
from tests.planner.measured import the_row

RUN: Mapping[str, object] = {
    "id": "r",
    "model": "llama-3.1-8b",
    "gpu": "H100-80GB",
    "n_gpus": 8,
    "seq_len": 4096,
    "global_batch": 64,
    "step_time_s": 10,
}


def read(folder: Path, **changes: object) -> Row | Unmodelled:
    return the_row(folder, {**RUN, **changes})


def row_of(folder: Path, **changes: object) -> Row:
    row = read(folder, **changes)
    assert not isinstance(row, Unmodelled), row
    return row


def reason_of(folder: Path, **changes: object) -> str:
    row = read(folder, **changes)
    assert isinstance(row, Unmodelled), row
    return row.reason


class TestRecomputation:
    @pytest.mark.parametrize("written", ["none", "no", "off", "False", "0", "disabled"])
    def test_words_for_none(self, written: str) -> None:
        assert recomputed(written, "") == Recomputed(kind="none")

    @pytest.mark.parametrize(
        "written",
        [
            "full",
            "Full",
            "full (uniform)",
            "full_block",
            "yes",
            "true",
            "on",
            "1",
            "activation checkpointing",
            "gradient checkpointing",
        ],
    )
    def test_words_for_all_layers(self, written: str) -> None:
        assert recomputed(written, "") == Recomputed(kind="full")

    @pytest.mark.parametrize(
        ("written", "num_layers", "method"),
        [
            ("5 layers", 5, "block"),
            ("block 4 layers", 4, "block"),
            ("full/block recompute of 5 layers", 5, "block"),
            ("partial, 3 layers", 3, "block"),
            ("full, 1 layer", 1, "uniform"),
            ("full (uniform), 2 layers", 2, "uniform"),
        ],
    )
    def test_layers_are_those_of_a_chunk_or_of_a_group(
        self, written: str, num_layers: int, method: str
    ) -> None:
        found = recomputed(written, "")
        assert found is not None
        assert (found.kind, found.num_layers, found.method) == ("full", num_layers, method)

    @pytest.mark.parametrize("written", ["selective", "selective (core_attn)", "core-attention"])
    def test_words_for_the_core_of_attention(self, written: str) -> None:
        assert recomputed(written, "") == Recomputed(kind="selective")

    @pytest.mark.parametrize("written", ["mlp", "selective/moe_act", "modules: moe_act, layernorm"])
    def test_other_modules_are_told_to_be_assumed(self, tmp_path: Path, written: str) -> None:
        row = row_of(tmp_path, recompute=written)
        assert row["recompute"] == "selective"
        assert "recompute" in row["assumed"].split()

    def test_other_words_leave_out_the_row_with_the_reason(self, tmp_path: Path) -> None:
        assert reason_of(tmp_path, recompute="sometimes").startswith("recompute = 'sometimes'")

    def test_an_empty_cell_is_an_assumption(self, tmp_path: Path) -> None:
        assert "recompute" in row_of(tmp_path, recompute="")["assumed"].split()


class TestSharding:
    @pytest.mark.parametrize(
        ("written", "stage"),
        [
            ("FULL_SHARD", 3),
            ("FSDP2", 3),
            ("HSDP", 3),
            ("ZeRO-3 offload", 3),
            ("stage 3", 3),
            ("ZeRO-Infinity", 3),
            ("ZeRO++", 3),
            ("os+g+p", 3),
            ("SHARD_GRAD_OP", 2),
            ("fsdp (SHARD_GRAD_OP)", 2),
            ("ZeRO-2", 2),
            ("os+g", 2),
            ("zero_1", 1),
            ("distributed optimizer", 1),
            ("NO_SHARD", 0),
            ("DDP", 0),
            ("dp", 0),
            ("0", 0),
        ],
    )
    def test_words_of_pytorch_and_deepspeed_are_stages(self, written: str, stage: int) -> None:
        # ZeRO-Infinity and ZeRO++ build on stage 3 (arXiv 2104.07857, 2306.10209); SHARD_GRAD_OP shards gradients and
        # optimizer states during computation (torch.distributed.fsdp.ShardingStrategy).
        assert zero_stage(written) == stage

    def test_nothing_said_is_no_stage(self) -> None:
        assert zero_stage("") is zero_stage("unknown") is None

    @pytest.mark.parametrize("written", ["zero7", "deepspeed", "some"])
    def test_other_words_are_refused(self, written: str) -> None:
        with pytest.raises(InputError, match=f"zero_stage_or_fsdp = '{written}'"):
            zero_stage(written)


class TestYesAndNo:
    @pytest.mark.parametrize("written", ["yes", "True", "ON", "y", "1"])
    def test_words_for_yes(self, tmp_path: Path, written: str) -> None:
        assert row_of(tmp_path, tp=2, pp=1, sp=written)["has_sequence_parallel"] == "true"

    @pytest.mark.parametrize("written", ["no", "False", "OFF", "n", "0"])
    def test_words_for_no(self, tmp_path: Path, written: str) -> None:
        row = row_of(tmp_path, tp=2, pp=1, sp=written, framework="NeMo 25.02")  # whose habit it is
        assert row["has_sequence_parallel"] == "false"

    def test_an_empty_cell_is_the_habit_of_the_framework_and_told(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, tp=2, pp=1, sp="", framework="NeMo 25.02")
        assert row["has_sequence_parallel"] == "true"
        assert "sp" in row["assumed"].split()
        assert "sp" not in row_of(tmp_path, tp=1, pp=1, sp="")["assumed"].split()

    @pytest.mark.parametrize(
        ("column", "written", "way_out"),
        [
            ("sp", "ulysses", "write yes, true, on, y, 1 or no, false, off, n, 0"),
            ("sp", "oui", "write yes, true, on, y, 1 or no, false, off, n, 0"),
            ("usable", "maybe", "write yes, true, on, y, 1, caution or no, false, off, n, 0, unusable"),
            ("metric_kind", "banana", "name what was measured, such as iteration time, throughput"),
            ("cp_comm_type", "pigeon", "write p2p, all_gather, a2a or a2a[+]p2p"),
        ],
    )
    def test_other_words_leave_out_the_row_with_column_value_and_known_words(
        self, tmp_path: Path, column: str, written: str, way_out: str
    ) -> None:
        reason = reason_of(tmp_path, cp=2, tp=1, pp=1, **{column: written})
        assert reason.startswith(f"{column} = '{written}': ")
        assert re.search(way_out, reason)

    @pytest.mark.parametrize("written", ["off", "0", "N", "unusable"])
    def test_every_word_for_no_marks_a_row_as_unusable(self, tmp_path: Path, written: str) -> None:
        assert reason_of(tmp_path, usable=written) == "usable: the row is marked as unusable"


class TestAccelerators:
    @pytest.mark.parametrize(
        ("written", "known"),
        [
            ("HGX B200", "b200-sxm-180gb"),
            ("DGX H100", "h100-sxm5-80gb"),
            ("H100-SXM5-HBM3", "h100-sxm5-80gb"),
            ("H100-80GB-HBM2e", "h100-pcie-80gb"),
            ("H100 (96GB HBM2e, 500W)", "h100-sxm5-96gb"),
            ("MI300X OAM", "mi300x"),
            ("Tesla V100", "v100-sxm2-32gb"),
            ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
            ("NVIDIA B300 SXM6", "b300"),
            ("B200-192GB", "b200-sxm-180gb"),
        ],
    )
    def test_forms_and_machines_are_no_part_of_the_name(self, written: str, known: str) -> None:
        assert accelerator_id(written) == known

    @pytest.mark.parametrize(
        ("written", "known"),
        [
            ("V100-16GB", "v100-sxm2-32gb (32 GiB)"),
            ("A100-64GB", "a100-sxm4-80gb (80 GiB)"),
            ("A100 PCIe 40GB", "a100-pcie-80gb (80 GiB)"),
            ("H20-141GB", "h20-sxm-96gb (96 GiB)"),
        ],
    )
    def test_another_memory_is_another_accelerator(self, tmp_path: Path, written: str, known: str) -> None:
        reason = reason_of(tmp_path, gpu=written)
        assert reason.startswith(f"gpu = '{written}': has another memory than {known}")


class TestWhatIsLeftOut:
    def test_an_empty_cell_does_not_make_a_mixture_of_experts_dense(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, model="qwen3-30b-a3b", experts="", ep=8)
        assert row["num_experts"] == "128"
        assert "experts" in row["assumed"].split()
        assert row_of(tmp_path, model="qwen3-30b-a3b", experts=0)["num_experts"] == ""

    @pytest.mark.parametrize("cells", [{}, {"tp": "", "pp": ""}])
    def test_a_layout_of_many_nodes_is_not_guessed_whether_cell_or_column_is_missing(
        self, tmp_path: Path, cells: dict[str, object]
    ) -> None:
        reason = reason_of(tmp_path, n_gpus=64, **cells)
        assert reason == "tp is not given, and a layout on more than one node cannot be guessed"
