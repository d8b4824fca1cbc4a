"""Are the formats of gradients read from notes, where a framework has a choice?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.measured.software.framework_habits import habits_of
from planner.measured.software.gradient_formats import gradient_cells
from tests.planner.measured_rows import LLAMA_8B, simulated_row

IN_16_BITS = {"gradient_bytes": 2, "sync_bytes": 2}
IN_32_BITS = {"gradient_bytes": 4, "sync_bytes": 4}


@pytest.mark.parametrize(
    ("notes", "framework", "cells"),
    [
        # Megatron reduces the buffer in which it sums (`grad_reduce_in_fp32`)
        ("BF16 gradients", "Megatron-LM", IN_16_BITS),
        ("gradients kept in bf16", "Megatron-LM", IN_16_BITS),
        ("grad_reduce_in_bf16=True", "NeMo 24.05", IN_16_BITS),
        ("grad_reduce_in_fp32=False", "Megatron-Core", IN_16_BITS),
        ("no fp32 gradients", "Megatron-LM", IN_16_BITS),
        ("grad_reduce_in_fp32=True", "Megatron-Bridge", IN_32_BITS),
        ("--accumulate-allreduce-grads-in-fp32", "Megatron-LM", IN_32_BITS),
        ("fp32 grad accumulation", "NeMo 25.02", IN_32_BITS),
        # PyTorch's FSDP keeps gradients in the format of its weights (`reduce_dtype` is that of the collective)
        ("bf16 gradients", "FSDP2", {"sync_bytes": 2}),
        ("fp32 gradients", "FSDP2", IN_32_BITS),
        ("reduce_dtype=float32", "PyTorch FSDP", {"sync_bytes": 4}),
        ("mixed_precision_reduce=float32", "torchtitan", {"sync_bytes": 4}),
        ("fp32 gradient reduce", "OLMo-core", {"sync_bytes": 4}),
        # DeepSpeed has `grad_accum_dtype` and `communication_data_type`; its bf16 optimizer keeps 16 bits beside 32
        ("fp32 gradient all-reduce", "Megatron-DeepSpeed", {"sync_bytes": 4}),
        ("gradient accumulation fp32", "DeepSpeed", {"gradient_bytes": 6}),
        ("bf16 grads, fp32 grad reduce", "DeepSpeed", {"gradient_bytes": 2, "sync_bytes": 4}),
    ],
)
def test_notes_say_the_formats_of_gradients(notes: str, framework: str, cells: Mapping[str, int]) -> None:
    assert gradient_cells(notes, habits_of(framework, "hopper", "bf16")) == cells


@pytest.mark.parametrize(
    "notes",
    [
        "gradient accumulation 8; bf16",
        "bf16 gradient checkpointing",
        "fp8 gradients",
        "gradient clipping; fp32",
    ],
)
def test_other_words_say_nothing_of_them(notes: str) -> None:
    assert gradient_cells(notes, habits_of("Megatron-LM", "hopper", "bf16")) == {}


def test_a_row_is_simulated_with_them(tmp_path: Path) -> None:
    usual = simulated_row(tmp_path, LLAMA_8B)
    told = simulated_row(tmp_path, {**LLAMA_8B, "notes": "fp32 gradient reduce"})
    assert (usual["gradient_bytes"], usual["sync_bytes"]) == ("2", "2")  # NeMo's recipes
    assert (told["gradient_bytes"], told["sync_bytes"]) == ("4", "4")
