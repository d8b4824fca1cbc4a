"""Is the attention kernel of a measured run the one that its row tells, and otherwise that of the release?"""

from __future__ import annotations

from typing import get_args

import pytest

from planner.measured.cells.file import Cells
from planner.measured.cells.told import Told
from planner.measured.software.attention import told_kernel
from planner.measured.software.framework_habits import habits_of
from planner.measured.software.told_habits import told_habits
from simulator.domain.choices import AttentionKernel


def told(**text: str) -> Told:
    return Told(Cells(line=2, text=text, numbers={}))


class TestReleases:
    @pytest.mark.parametrize(
        ("framework", "family", "precision", "kernel"),
        [
            # megatron/arguments.py: `--use-flash-attn` is store_true, `--transformer-impl` local until core_v0.5.0.
            ("Megatron-LM (2023)", "ampere", "bf16", "unfused"),
            ("Megatron-LM core_r0.5.0", "hopper", "bf16", "unfused"),
            ("Megatron-LM core_r0.6.0", "hopper", "bf16", "flash"),
            ("Megatron-DeepSpeed 2023", "ampere", "bf16", "unfused"),
            # Transformer Engine 0.10, 1.1 and 1.2: FlashAttention-1, -2 and cuDNN on Hopper.
            ("Megatron-LM (2023)", "hopper", "fp8", "flash-2"),
            ("Megatron-LM (2023, Transformer Engine)", "hopper", "bf16", "flash-2"),
            ("Megatron-Core (2023)", "hopper", "bf16", "flash-2"),
            ("Megatron-Core (2024)", "hopper", "bf16", "flash"),
            ("NVIDIA NeMo Megatron Release 23.04", "hopper", "fp8", "flash-1"),
            ("PyTorch NVIDIA Release 23.09", "hopper", "fp8", "flash-2"),
            ("NVIDIA NeMo Framework Release 24.04", "hopper", "fp8", "flash"),
            # NeMo-Framework-Launcher, config.yaml: NVTE_FUSED_ATTN: 0 in 24.01 to 24.07, not in 24.09.
            ("NeMo 24.01", "hopper", "bf16", "flash-2"),
            ("NeMo 24.07", "hopper", "fp8", "flash-2"),
            ("NeMo 24.09", "hopper", "fp8", "flash"),
            ("NeMo 24.01", "blackwell", "bf16", "flash"),
            ("NeMo 23.08", "ampere", "bf16", "unfused"),
            # Tags of NVIDIA/NeMo: 1.19 June 2023, 1.21 October 2023, 1.22 January 2024.
            ("NeMo 1.19", "hopper", "bf16", "flash-1"),
            ("NeMo 1.21", "hopper", "bf16", "flash-2"),
            ("NeMo 1.22", "ampere", "bf16", "flash"),
            # Scripts of Megatron-DeepSpeed, examples_deepspeed/sequence_parallel: --use-flash-attn-triton, flash-attn 1.0.4.
            ("DeepSpeed-Ulysses 2023", "ampere", "bf16", "flash-1"),
            ("FSDP with DeepSpeed-Ulysses 2023", "ampere", "bf16", "flash-2"),
            # Submodule flash-attention: 1.0.5 until January 2024, 2.2.1 since.
            ("InternLM", "ampere", "bf16", "flash-1"),
            ("InternLM (2024)", "ampere", "bf16", "flash-2"),
            ("InternLM 0.2.0", "hopper", "bf16", "flash-1"),
            ("InternEvo", "ampere", "bf16", "flash-2"),  # a name of January 2024
            ("Colossal-AI 2023", "ampere", "bf16", "flash-2"),
            # torchtitan asks for cuDNN's kernels since October 2025; on AMD there are none, but Primus has AITER's.
            ("torchtitan 2026", "hopper", "bf16", "flash"),
            ("torchtitan 2026", "cdna3", "bf16", "flash-2"),
            ("Primus torchtitan 2025", "cdna4", "bf16", "flash"),
            ("Primus (Megatron-LM) 2025", "cdna3", "bf16", "flash"),
        ],
    )
    def test_a_release_has_the_kernel_of_its_sources(
        self, framework: str, family: str, precision: str, kernel: str
    ) -> None:
        assert habits_of(framework, family, precision).attention == kernel

    def test_flash_on_request_changes_the_kernel_alone_and_is_told(self) -> None:
        row = told(framework="Megatron-LM (2023)")
        found = told_habits(row, "ampere", "bf16")
        assert (found.attention, found.kernel_launch, found.has_sequence_parallel) == (
            "unfused",
            "eager",
            True,
        )
        assert row.assumed == ["attention"]

    @pytest.mark.parametrize(
        ("framework", "sequence_length", "kernel"),
        [
            # megatron/model/fused_softmax.py: none until September 2020, then `sk <= 2048`, since January 2022 4096, apex since
            # July 2023: 16384.
            ("Megatron-LM 2019", 1024, "eager"),
            ("Megatron-LM 2021", 2048, "unfused"),
            ("Megatron-LM 2021", 4096, "eager"),
            ("Megatron-LM (May 2022)", 4096, "unfused"),
            ("Megatron-LM (2023)", 8192, "eager"),
            ("Megatron-LM core_r0.5.0", 4096, "unfused"),
            ("Megatron-LM (2024)", 8192, "unfused"),
        ],
    )
    def test_scale_mask_and_softmax_are_one_kernel_up_to_the_sequences_of_the_release(
        self, framework: str, sequence_length: int, kernel: str
    ) -> None:
        cells = Cells(
            line=2, text={"framework": framework, "notes": "no flash"}, numbers={"seq_len": sequence_length}
        )
        assert told_kernel(Told(cells), "unfused", "ampere", "fp16") == kernel

    @pytest.mark.parametrize(
        ("framework", "family", "sequence_length", "kernel"),
        [
            ("Megatron-LM", "ampere", 4096, "unfused"),
            ("Megatron-LM", "ampere", 8192, "flash-2"),
            ("Megatron-DeepSpeed", "ampere", 131072, "flash-2"),
            ("Megatron-LM (2022)", "ampere", 8192, "eager"),
            ("Megatron-LM", "volta", 8192, "eager"),
        ],
    )
    def test_no_guessed_release_has_sequences_beyond_its_kernels(
        self, framework: str, family: str, sequence_length: int, kernel: str
    ) -> None:
        row = Told(Cells(line=2, text={"framework": framework}, numbers={"seq_len": sequence_length}))
        assert told_kernel(row, "unfused", family, "bf16") == kernel


class TestWords:
    @pytest.mark.parametrize(
        ("notes", "kernel"),
        [
            ("without FlashAttention", "unfused"),
            ("no flash", "unfused"),
            ("flash attention: off", "unfused"),
            ("unfused, bf16", "unfused"),
            ("eager attention", "eager"),
            ("FlashAttention v1", "flash-1"),
            ("flash-attn 1.0.5", "flash-1"),
            ("--use-flash-attn-triton", "flash-1"),
            ("FlashAttention-2", "flash-2"),
            ("flash_attn==2.0.8", "flash-2"),
            ("SDPA Flash v2 implementation", "flash-2"),
            ("FA2, not FA3", "flash-2"),
            ("FA3", "flash"),
            ("cuDNN flash attention", "flash"),
            ("TE + FlexAttn", "flash-2"),
            ("flex attention", "flash-2"),
        ],
    )
    @pytest.mark.parametrize("column", ["notes", "framework", "attention"])
    def test_a_plain_word_beats_the_habit(self, notes: str, kernel: str, column: str) -> None:
        for habit in get_args(AttentionKernel):
            row = told(**{column: notes})
            assert (told_kernel(row, habit, "hopper", "bf16"), row.assumed) == (kernel, [])

    @pytest.mark.parametrize("kernel", ["flash", "flash-2", "flash-1", "unfused", "eager"])
    def test_the_column_has_the_names_of_job_files_and_beats_the_notes(self, kernel: str) -> None:
        row = told(attention=kernel, notes="FlashAttention-2", framework="Megatron-LM (2023)")
        assert (told_kernel(row, "unfused", "hopper", "bf16"), row.assumed) == (kernel, [])

    @pytest.mark.parametrize(
        "notes",
        [
            "all-flash Lustre",
            "flash checkpoint",
            "NVTE_FLASH_ATTN=0",
            "unfused optimizer",
            "fused attention of 8 heads",
            "sliding-window attention",
        ],
    )
    def test_other_words_leave_the_habit(self, notes: str) -> None:
        row = told(notes=notes, framework="NeMo 25.02")
        assert (told_kernel(row, "flash", "hopper", "bf16"), row.assumed) == ("flash", [])

    @pytest.mark.parametrize(
        ("framework", "habit", "kernel", "is_open"),
        [
            # FlashAttention-2 is of July 2023.
            ("Megatron-LM (May 2022)", "unfused", "flash-1", False),
            ("Megatron-LM (2023)", "unfused", "flash-2", True),
            ("NeMo 25.02", "flash", "flash", False),
            ("home-made", "flash", "flash-2", True),
        ],
    )
    def test_a_kernel_without_a_version_is_open_where_the_release_does_not_tell_it(
        self, framework: str, habit: AttentionKernel, kernel: str, *, is_open: bool
    ) -> None:
        row = told(framework=framework, notes="with --use-flash-attn")
        assert told_kernel(row, habit, "ampere", "bf16") == kernel
        assert row.assumed == (["attention"] if is_open else [])

    @pytest.mark.parametrize(
        ("framework", "family", "kernel", "is_open"),
        [
            # xFormers 0.0.21, August 2023: "Updated flash-attention to v2".
            ("Meta (2022)", "ampere", "flash-1", False),
            ("Meta (2024)", "ampere", "flash-2", False),
            ("Meta", "ampere", "flash-1", True),
            ("Meta", "hopper", "flash-2", True),
        ],
    )
    def test_xformers_changed_its_kernel_in_2023(
        self, framework: str, family: str, kernel: str, *, is_open: bool
    ) -> None:
        row = told(framework=framework, notes="xformers")
        assert told_kernel(row, "flash", family, "bf16") == kernel
        assert row.assumed == (["attention"] if is_open else [])

    def test_contradictions_and_unknown_names_are_remarked(self) -> None:
        both, unknown = told(notes="FA2 and FA3 alike"), told(attention="ring of fire")
        assert told_kernel(both, "unfused", "hopper", "bf16") == "flash"
        assert both.remarks[0].endswith("name the attention kernels flash, flash-2; taken as flash")
        assert told_kernel(unknown, "flash-2", "hopper", "bf16") == "flash-2"
        assert unknown.remarks == ["attention = 'ring of fire': is not understood; taken as flash-2"]


class TestOperators:
    @pytest.mark.parametrize(
        ("text", "is_fused"),
        [
            ({"framework": "Lit-GPT FSDP (2023), fused kernels"}, True),
            ({"notes": "fused layernorm, swiglu, cross entropy"}, True),
            ({"notes": "fused RMSNorm"}, True),
            ({"notes": "fused cross entropy"}, False),
            ({"notes": "torch.compile, DDP"}, True),
            ({"notes": "no torch.compile", "framework": "nanoGPT"}, False),
            ({"framework": "torchtitan, compile=False"}, False),
            ({"notes": "no fused kernels", "framework": "NeMo 25.02"}, False),
            ({"framework": "NeMo 25.02"}, True),
            ({"framework": "Megatron-LM 2019"}, False),
            ({"framework": "Megatron-LM 2021"}, True),
        ],
    )
    def test_fused_operators_are_read(self, text: dict[str, str], *, is_fused: bool) -> None:
        row = told(**{"framework": "FSDP", **text})
        assert told_habits(row, "ampere", "bf16").has_fused_operators is is_fused

    @pytest.mark.parametrize(
        ("framework", "recompute", "is_open"),
        [
            # fms-fsdp, apply_fsdp_checkpointing: "apply ac on p of the total blocks".
            ("FSDP", "selective", True),
            ("FSDP", "selective 1/2", False),
            ("FSDP", "selective (core_attn)", False),
            ("torchtitan", "selective", False),
            ("NeMo 25.02", "selective", False),
        ],
    )
    def test_selective_of_fsdp_is_open(self, framework: str, recompute: str, *, is_open: bool) -> None:
        row = told(framework=framework, recompute=recompute)
        told_habits(row, "hopper", "bf16")
        assert ("recompute" in row.assumed, bool(row.remarks)) == (is_open, is_open)
