"""Which constants does a calibration replace, and which may it have?"""

from __future__ import annotations

import pytest

from benchmarks.calibration_example import (
    ACCELERATOR,
    true_calibration,
)
from simulator.catalog import accelerator
from simulator.domain.calibration import CalibratedConstant, Calibration, ConstantName, StepResiduals
from simulator.domain.hardware import Precision
from simulator.domain.links import link_constants
from simulator.machine.calibrated import calibrated_kernels, calibrated_links, calibrated_training
from simulator.machine.compute import kernel_constants
from simulator.machine.training import training_constants


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"name": "memory_fraction", "value": 1.01}, "nothing is faster than its peak"),
        ({"name": "overlap_exponent", "value": 0.5}, "takes no longer than its sum"),
        ({"name": "host_launch_s", "accelerator": ACCELERATOR}, "leave accelerator out"),
        ({"name": "memory_fraction", "accelerator": None}, "needs accelerator"),
        ({"name": "sustained_fraction", "precision": "fp16"}, "write bf16"),
        ({"name": "inter_link_ratio", "precision": "fp8"}, "leave precision out"),
        ({"name": "hidden_tensor_fraction", "precision": "bf16", "accelerator": None}, "leave precision out"),
        ({"name": "kernel_launch_s", "value": 2.0}, "microseconds"),
    ],
)
def test_impossible_constants_are_refused(fields: dict[str, object], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        CalibratedConstant.model_validate(
            {"accelerator": ACCELERATOR, "value": 0.5, "published": 0.5, "log_deviation": 0.1} | fields
        )


def test_what_stands_twice_is_refused() -> None:
    calibration = true_calibration()
    constants = calibration.model_dump() | {"constants": (calibration.constants[0], calibration.constants[0])}
    with pytest.raises(ValueError, match=f"constants name sustained_fraction {ACCELERATOR} bf16 twice"):
        Calibration.model_validate(constants)
    errors = StepResiduals(
        accelerator=ACCELERATOR,
        precision=Precision.BF16,
        has_experts=True,
        num_configurations=8,
        mean_absolute_error_fraction=0.03,
        bias_fraction=0.0,
        shared_log_deviation=0.02,
        own_log_deviation=0.02,
        interval_log_half_width=0.05,
    )
    others = errors.model_copy(update={"has_experts": False})
    Calibration.model_validate(calibration.model_dump() | {"residuals": (errors, others)})
    residuals = calibration.model_dump() | {"residuals": (errors, others, errors)}
    with pytest.raises(ValueError, match=f"residuals name {ACCELERATOR} bf16 experts twice"):
        Calibration.model_validate(residuals)


def test_nothing_is_touched_without_a_calibration() -> None:
    chip = accelerator(ACCELERATOR)
    kernels = kernel_constants([chip.family], ["bf16"])
    assert calibrated_kernels(kernels, None, [chip], [Precision.BF16]) is kernels
    assert calibrated_training(training_constants(), None) is training_constants()


def test_only_the_calibrated_accelerator_changes_and_no_link_gets_faster_than_its_nominal_rate() -> None:
    faster = CalibratedConstant(
        name=ConstantName.INTRA_LINK_RATIO,
        accelerator=ACCELERATOR,
        value=5.0,
        published=1.0,
        log_deviation=0.1,
    )
    calibration = true_calibration().model_copy(update={"constants": (faster,)})
    chips = [accelerator(ACCELERATOR), accelerator("a100-sxm4-80gb")]
    links = link_constants(
        [chip.family for chip in chips],
        ["infiniband-ndr"] * 2,
        intra_bytes_per_s=1.0,
        inter_bytes_per_s_per_gpu=1.0,
        gpus_per_domain=8.0,
    )
    found = calibrated_links(links, calibration, chips)
    assert found.gather_fraction.tolist() == [1.0, links.gather_fraction[1]]
