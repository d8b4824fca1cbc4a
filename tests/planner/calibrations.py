"""Which calibrations do tests use? Given constants, with arbitrary values for all other fields."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.domain.calibration import CalibratedConstant, Calibration, StepResiduals
from simulator.domain.hardware import Precision
from simulator.domain.job import Job


def calibration_with(constants: Iterable[CalibratedConstant]) -> Calibration:
    """Returns a calibration with these constants."""
    return Calibration(
        source="made up",
        source_sha256="0" * 64,
        date="2026-05-01",
        num_rows=1,
        num_configurations=1,
        error_before_fraction=0.0,
        error_after_fraction=0.0,
        error_left_out_fraction=0.0,
        constants=tuple(constants),
    )


def with_measured_steps(job: Job) -> Job:
    """Returns a job with steps that its owner measured on its first accelerator in bf16."""
    measured = StepResiduals(
        accelerator=job.offers[0].accelerator.id,
        precision=Precision.BF16,
        has_experts=job.workload.model.experts is not None,
        num_configurations=8,
        mean_absolute_error_fraction=0.03,
        bias_fraction=0.0,
        shared_log_deviation=0.02,
        own_log_deviation=0.02,
        interval_log_half_width=0.05,
    )
    calibration = calibration_with(()).model_copy(update={"residuals": (measured,)})
    return job.model_copy(update={"calibration": calibration})
