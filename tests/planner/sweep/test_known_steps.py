"""Do rows of a sweep say how well their steps are known, and why not better, as the simulation of one plan does?"""

from __future__ import annotations

import pytest

from planner import simulate_plan
from planner.notes.step_note import texts
from planner.sweep.grid import Sweep, run_sweep
from planner.sweep.table import step_notes_of, sweep_rows
from planner.sweep.view import number

DENSE, HYBRID, EXPERTS = "llama-3.1-8b", "nemotron-h-8b", "qwen3-30b-a3b"
H100, H200, MI300X, TPU = "h100-sxm5-80gb", "h200-sxm-141gb", "mi300x", "tpu-v6e"
REASONS = (
    "No published step with linear attention",
    "Published steps of hybrids",
    "No published step on",
    "Step times of mixtures of experts are barely validated",
    "No kernel measurements are known for",
    "published steps on TPU v6e",
)
"""How the reasons begin, or what they have, in the order of a row."""
SWEEP = Sweep.model_validate(
    {
        "job": {
            "workload": {"model": DENSE, "tokens": 2e11, "sequence_length": 8192, "global_batch_size": 256},
            "offers": [{"accelerator": H100, "num_gpus": 8, "rent_usd_per_gpu_hour": 2.0}],
            "site": "us-iowa",
            "search": {"micro_batch_sizes": [1], "tensor_parallel": [2], "pipeline_parallel": [1]},
        },
        "num_gpus": [64],
        "checkpoint_schemes": ["async"],
    }
)


@pytest.mark.parametrize(
    ("model", "accelerator", "reasons"),
    [
        (DENSE, H100, ()),
        (DENSE, H200, REASONS[2:3]),
        (DENSE, MI300X, REASONS[4:5]),
        (HYBRID, H100, REASONS[:2]),
        (EXPERTS, TPU, REASONS[3:]),
    ],
)
def test_a_row_has_the_interval_of_its_step_and_the_reasons_that_simulate_tells(
    model: str, accelerator: str, reasons: tuple[str, ...]
) -> None:
    axes = {"workload.model": (model,), "offers[0].accelerator": (accelerator,)}
    sweep = SWEEP.model_copy(update={"axes": axes})
    (point,) = run_sweep(sweep)
    (row,) = sweep_rows(sweep, [point])
    assert point.result is not None
    plan = point.result.plans.plan(0).model_dump(exclude_unset=True)
    simulated = simulate_plan(point.job, plan, with_sensitivities=False)
    assert simulated.spread is not None
    for end in ("step_time_low_s", "step_time_high_s"):
        assert number(row, end) == pytest.approx(getattr(simulated.spread, end), rel=1e-12)
    told = [note for note in simulated.warnings if any(reason in note for reason in REASONS)]
    notes = texts(step_notes_of(row))
    assert sorted(notes) == sorted(told)
    assert row["step_time_notes"] == " | ".join(notes)
    assert len(told) == len(reasons)
    assert all(reason in note for reason, note in zip(reasons, notes, strict=True))
