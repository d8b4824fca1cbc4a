"""Bytes of updates against counts by hand of the kernels of Megatron Core, PyTorch and apex."""

from __future__ import annotations

import pytest

from simulator.domain.hardware import Precision
from simulator.layout.update_bytes import update_bytes
from tests.simulator.builders import plan_of, table_of, training

WORKLOAD = training("llama-3.1-8b")


@pytest.mark.parametrize(
    ("changes", "zero", "moved"),
    [
        # Norm 4, clipping 4 + 4, Adam 4 + 12 + 12, copy of the master 4 + 2.
        ({}, 1, 4 + 8 + 28 + 6),
        # PyTorch's FSDP: 16 bits are written where weights are gathered.
        ({}, 3, 4 + 8 + 28),
        ({"regathers_weights": True}, 2, 4 + 8 + 28),
        ({}, 2, 4 + 8 + 28 + 6),
        # A copy of 16 bits in 32 is read by norm, clipping and Adam in place of the gradient.
        ({"gradient_bytes": 2}, 1, 6 + 4 + 8 + 28 + 6),
        ({"gradient_bytes": 2, "update_bytes": 0.0}, 1, 2 + 4 + 26 + 6),
        ({"gradient_bytes": 2}, 3, 6 + 4 + 8 + 28 + 6),
        # DeepSpeed keeps both; its 32 bits are read.
        ({"gradient_bytes": 6}, 1, 4 + 8 + 28 + 6),
        # apex: norm, then all in one kernel, of a master without the half that is in the weight.
        (
            {"gradient_bytes": 2, "update_bytes": 0.0, "fuses_update": True, "optimizer_bytes": 10.0},
            1,
            2 + 22 + 2,
        ),
        ({"fuses_update": True}, 1, 4 + 28 + 2),
        ({"step_bytes": 82.0}, 0, 82),
    ],
)
def test_kernels_are_counted(changes: dict[str, object], zero: int, moved: float) -> None:
    workload = WORKLOAD.model_copy(update=changes)
    assert update_bytes(workload, table_of(plan_of(zero=zero)))[0] == moved


def test_loss_scaling_is_undone_in_a_kernel_of_its_own() -> None:
    plans = table_of(*(plan_of(precision=each) for each in (Precision.BF16, Precision.FP16)))
    wide, scaled = update_bytes(WORKLOAD, plans)
    assert scaled - wide == 4 + 4
    fused, also_fused = update_bytes(WORKLOAD.model_copy(update={"fuses_update": True}), plans)
    assert also_fused == fused
