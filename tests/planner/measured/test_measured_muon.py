"""Are measured rows that name Muon as their optimizer simulated with it, as Megatron Core runs it, and all others with Adam?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.measured.rows import read_measured
from planner.measured.runs import compare, job_of, remarks_of
from simulator.domain.muon import Muon
from tests.planner.measured_rows import RUN, simulated_row, written

MEGATRON: Mapping[str, object] = {**RUN, "framework": "Megatron-LM", "tp": 2}
BY_NAME = {"optimizer": "Muon"}


def muon_of(tmp_path: Path, **cells: object) -> Muon | None:
    return job_of(simulated_row(tmp_path, {**MEGATRON, **cells})).workload.muon


@pytest.mark.parametrize(
    "cells",
    [
        BY_NAME,
        {"optimizer": "dist_muon"},
        {"optimizer": "MuonClip"},
        {"notes": "optimizer=muon"},
        {"notes": "trained with Muon", "optimizer": "n/a"},
        {**BY_NAME, "framework": "Megatron-Bridge"},
        {**BY_NAME, "framework": "Primus"},
    ],
)
def test_muon_of_megatron_core_has_its_defaults(tmp_path: Path, cells: Mapping[str, object]) -> None:
    """`OptimizerConfig`: `muon_num_ns_steps` 5, `muon_tp_mode` duplicated."""
    assert muon_of(tmp_path, **cells) == Muon()
    row = simulated_row(tmp_path, {**MEGATRON, **cells})
    assert {"muon_num_steps", "muon_tensor_mode", "muon_reduction"} < {*row["assumed"].split()}
    assert not any("uon" in remark for remark in remarks_of(row))


@pytest.mark.parametrize(
    ("cells", "muon"),
    [
        (
            {"notes": "muon, --muon-tp-mode distributed, --muon-num-ns-steps 10"},
            Muon(tensor_mode="distributed", num_steps=10),
        ),
        (
            {**BY_NAME, "notes": "muon_tp_mode=blockwise; 7 Newton-Schulz steps"},
            Muon(tensor_mode="blockwise", num_steps=7),
        ),
        ({**BY_NAME, "notes": "--no-use-layer-wise-param-layout"}, Muon(reduction="all_reduce")),
        ({**BY_NAME, "framework": "Megatron-LM 0.15"}, Muon(reduction="all_reduce")),
        ({**BY_NAME, "framework": "Megatron-LM 0.16"}, Muon(reduction="reduce_scatter")),
        ({**BY_NAME, "framework": "Megatron-LM 2026", "zero_stage_or_fsdp": "none"}, Muon()),
        (
            {**BY_NAME, "framework": "Megatron-LM 2026", "model": "gpt-oss-20b", "ep": 8},
            Muon(reduction="all_reduce"),
        ),
        ({**BY_NAME, "optimizer_bytes": 6}, Muon(state_bytes=6)),
    ],
)
def test_its_settings_are_read_or_those_of_the_release(
    tmp_path: Path, cells: Mapping[str, object], muon: Muon
) -> None:
    assert muon_of(tmp_path, **cells) == muon


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"framework": "torchtitan"}, "simulated only as Megatron Core runs it"),
        ({"framework": ""}, "simulated only as Megatron Core runs it"),
        ({"framework": "Megatron-DeepSpeed"}, "simulated only as Megatron Core runs it"),
        ({"framework": "Megatron-LM 0.6"}, "Megatron Core of 2024 has no Muon"),
        ({"zero_stage_or_fsdp": "FSDP"}, "weights or states that are sharded otherwise than by ZeRO-1"),
        ({"precision": "fp16"}, "not simulated in fp16"),
        ({"metric_kind": "LoRA"}, "not simulated with adapters"),
        ({"notes": "CPU offload optimizer 50%"}, "not simulated with states in main memory"),
    ],
)
def test_what_is_not_simulated_with_muon_is_remarked(
    tmp_path: Path, cells: Mapping[str, object], why: str
) -> None:
    row = simulated_row(tmp_path, {**MEGATRON, **BY_NAME, **cells})
    assert job_of(row).workload.muon is None
    (remark,) = (remark for remark in remarks_of(row) if "Muon" in remark and "Adam" in remark)
    assert why in remark
    assert remark.endswith("the optimizer is simulated as Adam; give optimizer_bytes and update_bytes")


@pytest.mark.parametrize(
    "cells",
    [
        {"optimizer": "AdamW"},
        {"optimizer": "distributed optimizer"},
        {"optimizer": "Adam", "notes": "Muon is 3 % faster"},
        {"notes": "Adam, not Muon"},
        {"notes": "AdaMuon"},
    ],
)
def test_other_rows_are_read_as_without_these_words(tmp_path: Path, cells: Mapping[str, object]) -> None:
    plain, worded = (simulated_row(tmp_path, {**MEGATRON, **more}) for more in ({}, cells))
    assert {**worded, "notes": ""} == {**plain, "notes": ""}


@pytest.mark.parametrize(
    ("optimizer", "told"),
    [
        ("SGD", "SGD: the optimizer is simulated as Adam"),
        ("AdamW 8-bit", "the optimizer is simulated as Adam"),
        ("bf16 Adam moments", "the optimizer keeps what is usual for the framework"),
        ("mine", "is not understood: the optimizer is simulated as Adam"),
    ],
)
def test_other_optimizers_are_remarked(tmp_path: Path, optimizer: str, told: str) -> None:
    (remark,) = remarks_of(simulated_row(tmp_path, {**MEGATRON, "optimizer": optimizer}))
    assert remark.startswith(f"optimizer = '{optimizer}': ")
    assert told in remark


def test_muon_changes_the_step_and_the_memory_of_its_row_alone(tmp_path: Path) -> None:
    rows = (
        {**MEGATRON, "recompute": "full", "id": name, "optimizer": name} for name in ("Adam", "Muon", "AdamW")
    )
    adam, muon, other = compare(
        [row for row in read_measured(written(tmp_path, *rows)) if isinstance(row, Mapping)]
    )
    assert (adam.simulated_s, adam.planned_memory_bytes) == (other.simulated_s, other.planned_memory_bytes)
    workload = job_of(adam.row).workload
    assert job_of(muon.row).workload == workload.model_copy(update={"muon": Muon()})
    assert muon.simulated_s > adam.simulated_s  # five products of every matrix more
    assert muon.planned_memory_bytes < adam.planned_memory_bytes  # 8 bytes of states a weight instead of 12
