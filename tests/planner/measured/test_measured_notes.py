"""Notes of measured runs say what their own run does, and compare it with others."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.measured.cells.notes import hides_expert_exchange, hides_gradient_traffic
from planner.measured.cells.words import of_this_run
from tests.planner.measured_rows import RUN, simulated_row

PIPELINED: Mapping[str, object] = {"n_gpus": 32, "tp": 2, "pp": 4, "global_batch": 256, "micro_batch": 1}
GPT_3: Mapping[str, object] = {"seq_len": 2048, "n_gpus": 64, "tp": 8, "pp": 8, "step_time_s": 100}


class TestOtherRuns:
    @pytest.mark.parametrize(
        ("notes", "left"),
        [
            ("PTD-P; ZeRO-3 rows run DeepSpeed without TP", "PTD-P"),
            ("1F1B schedule (Interleaved 1F1B gives 130)", "1F1B schedule"),
            ("vanilla TP; Async TP row is 13% faster", "vanilla TP"),
            ("full recompute; same model with selective: 42.1%", "full recompute"),
            ("baseline. ZeRO-Offload reaches 10B", "baseline"),
            ("mock data vs. real data; MTP 1", "MTP 1"),
            ("this row without overlap, row-wise scales", "this row without overlap, row-wise scales"),
            ("EP overlap on, 13% faster than off", "EP overlap on"),
            ("1F1B; compared with FSDP, ZeRO-3 and LoRA", "1F1B"),
            ("torch.compile; bf16 1.5x HBM", "torch.compile; bf16 1.5x HBM"),
        ],
    )
    def test_parts_that_speak_of_them_are_not_read(self, notes: str, left: str) -> None:
        assert "; ".join(part.strip() for part in of_this_run(notes).split(";") if part.strip()) == left

    @pytest.mark.parametrize(
        ("cells", "field", "value"),
        [
            ({"notes": "optimizer offload in the OOM row only"}, "optimizer_offload_fraction", ""),
            (
                {"notes": "ZeRO-Offload has more room", "zero_stage_or_fsdp": "none"},
                "optimizer_offload_fraction",
                "",
            ),
            (
                {"notes": "ZeRO-Offload", "zero_stage_or_fsdp": "zero2"},
                "optimizer_offload_fraction",
                "1.0",
            ),
            ({"notes": "full SFT; the LoRA row of this table is faster"}, "lora_rank", None),
            ({"notes": "full fine-tuning, LoRA elsewhere"}, "lora_rank", None),
            ({"notes": "LoRA r=16"}, "lora_rank", "16"),
            ({"notes": "LoRA, lora_r 8"}, "lora_rank", "8"),
            ({"metric_kind": "LoRA step", "notes": "lora_dim=16, lora_alpha=64"}, "lora_rank", "16"),
            (
                {"metric_kind": "LoRA step", "framework": "NeMo Automodel"},
                "lora_rank",
                "16",
            ),  # its recipes for dense networks
            ({"notes": "LoRA, target_modules=[q_proj, v_proj]"}, "lora_targets", "linear_qkv"),
            ({"notes": "LoRA on linear_qkv, linear_proj"}, "lora_targets", "linear_qkv linear_proj"),
            ({"notes": "LoRA targets attention only"}, "lora_targets", "linear_qkv linear_proj"),
            (
                {"notes": "LoRA rank 8; recompute mla_up_proj"},
                "lora_targets",
                "linear_qkv linear_proj linear_fc1 linear_fc2",
            ),
            ({"notes": "overlap_param_gather=False"}, "overlaps_parameter_gather", "false"),
            ({"notes": "overlap_param_gather=True"}, "overlaps_parameter_gather", ""),
            ({"notes": "QLoRA, nf4"}, "has_memory_verdict", "false"),
            ({"notes": "LoRA"}, "has_memory_verdict", "true"),
            ({"framework": "Unsloth (QLoRA)"}, "lora_rank", "32"),
            (
                {"notes": "LoRA, lora_attn_modules=q_proj v_proj output_proj, apply_lora_to_mlp=True"},
                "lora_targets",
                "linear_qkv linear_proj linear_fc1 linear_fc2",
            ),
            (
                {"notes": "LoRA, lora_attn_modules=q_proj v_proj, apply_lora_to_mlp=False"},
                "lora_targets",
                "linear_qkv",
            ),
            ({"model": "llama2_70b_lora", "tp": 4, "pp": 1}, "lora_rank", "16"),  # as in MLPerf's rules
            ({"model": "Llama-2-70B LoRA", "tp": 4, "pp": 1}, "lora_rank", "32"),  # not said to be of MLPerf
            (
                {"source": "MLPerf Training v4.1 llama2_70b_lora (NVIDIA)", "model": "Llama2-70B"},
                "lora_targets",
                "linear_qkv linear_proj",
            ),
            ({"source": "MLPerf v5.0 gpt3, llama2_70b_lora", "model": "llama-3.1-8b"}, "lora_rank", None),
            (
                {"source": "LoRA and full training", "model": "Llama2-70B", "step_time_s": 100},
                "lora_rank",
                None,
            ),
            ({"metric_kind": "PEFT step", "notes": "tokens/s of rank 0 only"}, "lora_rank", "32"),
            (
                {**PIPELINED, "notes": "1F1B baseline of the paper (ZB-2p is 20% faster)"},
                "pipeline_schedule",
                None,
            ),
            ({**PIPELINED, "notes": "1F1B, which ZB-H1 is named after"}, "pipeline_schedule", None),
            ({**PIPELINED, "notes": "zero-bubble, no plain 1F1B"}, "pipeline_schedule", "zb_v"),
            (
                {"framework": "torchtitan", "notes": "torch.compile +13% in the next row"},
                "has_fused_operators",
                "false",
            ),
            (
                {"framework": "torchtitan", "notes": "torch.compile turned off"},
                "has_fused_operators",
                "false",
            ),
            ({"framework": "torchtitan (compile off)"}, "has_fused_operators", "false"),
            ({"framework": "torchtitan", "notes": "compile + float8"}, "has_fused_operators", "true"),
            ({"notes": "sliding-window attention on 12288 GPUs"}, "window_tokens", None),
            ({"notes": "sliding-window attention (MFU 55.2%)"}, "window_tokens", None),
            ({"notes": "no sliding window 128"}, "window_tokens", None),
            ({"notes": "sliding-window attention of 4096 tokens"}, "window_tokens", "4096"),
            (
                {"notes": "baseline without PTB; MegaScale adds parallel transformer blocks"},
                "parallel_block",
                "",
            ),
            (
                {"model": "GPT-3 175B", **GPT_3, "framework": "Megatron-LM (MegaScale baseline)", "tp": 8},
                "parallel_block",
                "",
            ),
            ({"model": "GPT-3 175B", **GPT_3, "framework": "MegaScale"}, "parallel_block", "one_norm"),
        ],
    )
    def test_only_what_a_run_says_of_itself_counts(
        self, tmp_path: Path, cells: Mapping[str, object], field: str, value: str | None
    ) -> None:
        assert simulated_row(tmp_path, {**RUN, **cells}).get(field) == value

    @pytest.mark.parametrize(
        ("notes", "is_hidden"),
        [("EP overlap on", True), ("EP overlap off", False), ("EP overlap not stated", None)],
    )
    def test_what_is_not_stated_is_neither_on_nor_off(self, notes: str, is_hidden: bool | None) -> None:
        assert hides_expert_exchange(notes) is is_hidden

    def test_notes_are_shown_whole(self, tmp_path: Path) -> None:
        notes = "baseline; the next row is faster"
        assert simulated_row(tmp_path, {**RUN, "notes": notes})["notes"] == notes

    @pytest.mark.parametrize(
        ("notes", "gpu", "is_told"),
        [
            ("500 W power cap", "H100-80GB", True),
            ("500 W power cap", "H100-96GB", False),
            ("power limit not stated; MTP layer excluded; Liger kernels off", "H100-80GB", False),
        ],
    )
    def test_what_is_not_simulated_is_told_where_the_run_has_it(
        self, tmp_path: Path, notes: str, gpu: str, is_told: bool
    ) -> None:
        assert bool(simulated_row(tmp_path, {**RUN, "gpu": gpu, "notes": notes})["remarks"]) is is_told


@pytest.mark.parametrize("cell", ["", "partial", "selective"])
def test_notes_name_the_modules_that_a_cell_leaves_open(tmp_path: Path, cell: str) -> None:
    for notes in ("recompute modules mlp", "selective recompute of mlp"):
        row = simulated_row(tmp_path, {**RUN, "recompute": cell, "notes": notes})
        assert (row["recompute"], row["recompute_modules"]) == ("selective", "mlp")
    for notes, is_sure in (("recompute modules core_attn", True), ("recompute modules of our own", False)):
        row = simulated_row(tmp_path, {**RUN, "recompute": cell, "notes": notes})
        assert row["recompute"] == "selective"
        assert ("recompute" not in row["assumed"].split()) is is_sure
    row = simulated_row(tmp_path, {**RUN, "recompute": "full", "notes": "recompute modules mlp"})
    assert row["recompute"] == "full"


@pytest.mark.parametrize("notes", ["recompute of 3 layers", "3 layers recomputed", "layers recomputed: 3"])
def test_notes_count_the_layers_that_a_cell_leaves_open(tmp_path: Path, notes: str) -> None:
    row = simulated_row(tmp_path, {**RUN, "recompute": "", "notes": notes})
    assert (row["recompute"], row["recompute_num_layers"]) == ("full", "3")


@pytest.mark.parametrize(
    ("notes", "kind", "num_layers"),
    [
        ("recompute_granularity=full, recompute_method=block, recompute_num_layers=3", "full", "3"),
        ("--recompute-method uniform --recompute-num-layers 3", "full", "3"),
        ("recompute_method=uniform, recompute_num_layers=1", "full", ""),
        ("recompute_granularity=selective, recompute_num_layers=1", "selective", ""),
        ("recompute 1 layer per chunk", "full", "1"),
        ("recompute 1 layer in every 4", "none", ""),
    ],
)
def test_options_of_megatron_count_layers_in_notes(
    tmp_path: Path, notes: str, kind: str, num_layers: str
) -> None:
    # `arguments.py`: block and uniform count layers of a chunk; groups of one layer are all of them.
    row = simulated_row(tmp_path, {**RUN, "recompute": "", "notes": notes})
    assert (row["recompute"], row["recompute_num_layers"]) == (kind, num_layers)


@pytest.mark.parametrize(
    ("cell", "notes", "num_layers"),
    [
        ("", "AC every 2nd layer", "16"),
        ("", "activation checkpointing of every 4th layer", "8"),
        ("", "checkpoint every other layer", "16"),
        ("", "activation_checkpoint.selective_ac_option='2'", "16"),
        ("selective", "selective_ac_option=4", "8"),
        ("selective", "selective AC 2", "16"),
        ("", "activation checkpointing of 20 of 32 layers", "20"),
        ("", "checkpointing of 32 of 32 layers", ""),
    ],
)
def test_notes_tell_the_share_of_layers(tmp_path: Path, cell: str, notes: str, num_layers: str) -> None:
    # torchtitan's `apply_ac`: one of so many layers is checkpointed, whole; of the 32 of Llama 3 8B.
    row = simulated_row(tmp_path, {**RUN, "recompute": cell, "notes": notes})
    assert (row["num_layers"], row["recompute"], row["recompute_num_layers"]) == ("32", "full", num_layers)


@pytest.mark.parametrize(
    "notes", ["MoE every 2nd layer", "selective AC 40 GiB", "full attention every 4th layer"]
)
def test_shares_of_other_things_recompute_no_layers(tmp_path: Path, notes: str) -> None:
    row = simulated_row(tmp_path, {**RUN, "recompute": "", "notes": notes})
    assert row["recompute"] in ("none", "selective")


class TestLongNotes:
    def test_denials_are_looked_for_near_a_name(self) -> None:
        before = time.process_time()
        assert hides_gradient_traffic("overlap grad " * 20_000) is True
        assert time.process_time() - before < 30, "linear: 0.6 s; all that stands before each name: 300 s"

    @pytest.mark.parametrize("num_spaces", [1, 2, 3, 4])
    def test_a_denial_is_a_whole_word(self, num_spaces: int) -> None:
        """Wherever the characters begin that are searched for one."""
        between = " " * num_spaces
        assert hides_gradient_traffic(f"no{between}{'the ' * 20}overlap grad") is False
        assert hides_gradient_traffic(f"piano{between}{'the ' * 24}overlap grad") is True

    def test_lists_of_modules_are_short(self, tmp_path: Path) -> None:
        before = time.process_time()
        row = simulated_row(tmp_path, {**RUN, "recompute": "", "notes": "recompute " * 490})
        assert row["recompute"] == "none"
        assert time.process_time() - before < 30

    def test_what_stands_behind_5000_characters_is_told_not_to_be_read(self, tmp_path: Path) -> None:
        notes = "x" * 5_000 + "; no overlap of DP"
        row = simulated_row(tmp_path, {**RUN, "notes": notes})
        assert row["overlaps_gradient_sync"] == simulated_row(tmp_path, RUN)["overlaps_gradient_sync"]
        assert "the first 5,000 of 5,018 characters are read" in row["remarks"]
