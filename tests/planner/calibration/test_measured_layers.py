"""Are layers on an H100 and an H200, which no fit has used, still simulated as accurately as when they were recorded?"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from planner.calibration.answer import CalibrationAnswer
from planner.calibration.file import write_calibration
from planner.calibration.kernels import calibrate_kernels
from planner.calibration.table import read_kernels
from planner.cli.commands import main
from planner.cli.terminal.exit_codes import OK
from planner.measured import runs
from planner.validation import comparison
from simulator.domain.calibration import ConstantName

FOLDER = Path(__file__).parents[3] / "examples" / "calibration"
RECORDED = {
    "h100": {"layers, bf16": 0.023, "layers, fp8": 0.044},
    "h200": {"layers, bf16": 0.019, "layers, fp8": 0.045},
}
"""Mean errors of published constants, as docs/calibrate.md tells them."""
HALF_A_POINT = 0.005


@cache
def calibrated(name: str) -> CalibrationAnswer:
    """Constants from the shipped table of a GPU."""
    return calibrate_kernels(read_kernels(FOLDER / f"{name}-kernels.csv"))


@pytest.fixture(scope="module", params=RECORDED)
def measured(request: pytest.FixtureRequest) -> tuple[str, CalibrationAnswer]:
    return request.param, calibrated(request.param)


@pytest.mark.short(1)
def test_published_constants_simulate_layers_no_worse_than_recorded(
    measured: tuple[str, CalibrationAnswer],
) -> None:
    name, answer = measured
    found = {kind.name: kind for kind in answer.kinds}
    for kind, recorded in RECORDED[name].items():
        assert found[kind].error_before_fraction < recorded + HALF_A_POINT, kind


def test_a_calibration_does_well_on_layers_of_models_that_it_has_not_seen(
    measured: tuple[str, CalibrationAnswer],
) -> None:
    _, answer = measured
    found = {kind.name: kind for kind in answer.kinds}
    assert found["layers, bf16"].error_left_out_fraction < 0.021 + HALF_A_POINT
    assert found["layers that wait for the host"].error_left_out_fraction < 0.2
    for kind in answer.kinds:
        is_worse = kind.error_left_out_fraction >= kind.error_before_fraction
        says_so = any(f"It does not improve {kind.name}:" in warning for warning in answer.warnings)
        assert says_so == (is_worse and kind.name.startswith("layers")), kind.name
    assert "Plan with published constants." not in answer.warnings


def test_the_shipped_time_of_a_launch_is_that_of_these_layers(
    measured: tuple[str, CalibrationAnswer],
) -> None:
    _, answer = measured
    (launch,) = (one for one in answer.calibration.constants if one.name is ConstantName.HOST_LAUNCH_S)
    assert launch.value == pytest.approx(launch.published, rel=0.07)


def test_single_kernels_come_out_better_than_published(measured: tuple[str, CalibrationAnswer]) -> None:
    _, answer = measured
    kernels = [kind for kind in answer.kinds if not kind.name.startswith("layers")]
    assert len(kernels) == 6
    for kind in kernels:
        assert kind.error_after_fraction < kind.error_before_fraction, kind.name


def test_a_cool_clock_is_not_counted_twice(measured: tuple[str, CalibrationAnswer]) -> None:
    # Products alone reach more than published ones, a layer's fewer of them: the product of both is what a step sees.
    _, answer = measured
    peak, sustained = (
        next(one for one in answer.calibration.constants if one.name is name)
        for name in (ConstantName.GEMM_PEAK_FRACTION, ConstantName.SUSTAINED_FRACTION)
    )
    assert peak.value > peak.published
    assert sustained.value < sustained.published
    assert peak.value * sustained.value == pytest.approx(peak.published * sustained.published, rel=0.03)


def test_layers_keep_what_pytorch_allocates_for_them(measured: tuple[str, CalibrationAnswer]) -> None:
    name, answer = measured
    kept = [layer for layer in answer.layers if layer.kept_error_fraction is not None]
    assert len(kept) == (18 if name == "h100" else 0)  # the H200's table was measured without
    for layer in kept:
        # The output of the last of three or four layers is counted, too, and means of norms, a value for each token; of 25
        # heads of 64, sums of exponentials that cuDNN keeps.
        assert layer.kept_error_fraction == pytest.approx(0.0, abs=0.04), layer.model
        if layer.software == "compiled" and layer.model != "gpt2-xl":
            assert layer.kept_error_fraction == pytest.approx(0.0, abs=0.003), layer.model


@pytest.mark.long
def test_the_shipped_tables_are_answered_as_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--kernels", str(FOLDER / "h100-kernels.csv")]) == OK
    told = capsys.readouterr().out
    page = (FOLDER.parents[1] / "docs" / "calibrate.md").read_text(encoding="utf-8")
    for kind, recorded in RECORDED["h100"].items():
        (line,) = (line for line in told.splitlines() if line.strip().startswith(kind))
        assert f"{100.0 * recorded:.1f} %" in line
        assert f"| {kind} |" in page
    words = " ".join(told.split())
    assert "Activations kept for the backward pass: simulated with errors of" in words
    assert "for 18 of them." in words


@pytest.mark.long
def test_constants_of_one_gpu_simulate_steps_of_clusters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_h100 = [row for row in runs.read_rows() if row["accelerator"] == "h100-sxm5-80gb"]
    monkeypatch.setattr(runs, "read_rows", lambda: on_h100)  # the command simulates no others
    # Other choices and hosts, a simulation of each row for each of them, only widen intervals.
    monkeypatch.setattr(comparison, "unsure_log_ratios", lambda compared, _: [np.zeros(0) for _ in compared])

    def mean_error(*options: str) -> tuple[int, float]:
        capsys.readouterr()
        assert main(["validate", "--json", "--quiet", *options]) == OK
        errors = [
            abs(row["predicted_step_time_s"] / row["measured_step_time_s"] - 1.0)
            for row in json.loads(capsys.readouterr().out)["rows"]
            if row["predicted_step_time_s"]
        ]
        return len(errors), sum(errors) / len(errors)

    file = tmp_path / "calibration.yaml"
    write_calibration(calibrated("h100").calibration, file)
    (number, published), (_, of_one_gpu) = mean_error(), mean_error("--calibration", str(file))
    page = (FOLDER.parents[1] / "docs" / "calibrate.md").read_text(encoding="utf-8")
    told = (
        f"the {number} published configurations on H100 SXM with a mean error of {100.0 * of_one_gpu:.1f} %"
    )
    assert told in " ".join(page.split())
    assert f"which have seen them, with {100.0 * published:.1f} %" in " ".join(page.split())
