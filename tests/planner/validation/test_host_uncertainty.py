"""Is a step whose accelerators wait for their host less sure, and only such a step?"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from planner.calibration.steps import batches_of
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import Row, compare
from planner.validation.comparison import Modelled, entries_of
from planner.validation.host_uncertainty import host_log_ratios
from simulator.accuracy.step_error import UNSEEN_RATIOS
from simulator.domain.calibration import CalibratedConstant, Calibration, ConstantName
from simulator.table import Floats
from tests.planner.calibrations import calibration_with
from tests.planner.measured_rows import KORTHIKANTI_22B, shipped, written

# vTrain (arXiv 2312.12391), published measurements of one node: 0.466 s.
SMALL_MODEL = {
    "id": "small",
    "source": "vTrain",
    "framework": "vTrain (Megatron)",
    "gpu": "A100-80GB",
    "n_gpus": 4,
    "gpus_per_node": 8,
    "interconnect": "NVLink3 node + 4x200G HDR InfiniBand",
    "precision": "fp16",
    "layers": 16,
    "hidden": 1024,
    "heads": 16,
    "vocab": 50257,
    "mlp_matrices": 2,
    "seq_len": 1024,
    "global_batch": 8,
    "micro_batch": 1,
    "tp": 4,
    "sp": "no",
    "pp": 1,
    "dp": 1,
    "recompute": "full",
    "step_time_s": 0.466121,
}
FARTHEST = 1.2816 * 0.5
"""Four in five of normal deviates of 0.5: how far launches of 2021-22 may be off."""


def row_of(folder: Path) -> Row:
    (row,) = read_measured(written(folder, SMALL_MODEL))
    assert not isinstance(row, Unmodelled), row
    return row


def ratios_of(row: Row, calibration: Calibration | None = None) -> Floats:
    (comparison,) = compare([row], calibration)
    known_s = np.array([comparison.simulated_s])
    return np.asarray(host_log_ratios(batches_of([row]), known_s, calibration=calibration)[0])


def test_a_step_that_waits_for_its_host_follows_its_launches(tmp_path: Path) -> None:
    slow, fast = ratios_of(row_of(tmp_path))
    assert 0.9 * FARTHEST < slow < FARTHEST
    assert -FARTHEST < fast < -0.1  # until the accelerator is the slower one


@pytest.mark.parametrize("name", ["kort-0001", "llama3-0001"])
def test_large_models_wait_for_no_host(name: str) -> None:
    assert ratios_of(shipped(name)).tolist() == [0.0, 0.0]


def test_kernels_that_are_replayed_from_a_graph_need_no_host(tmp_path: Path) -> None:
    assert ratios_of({**row_of(tmp_path), "kernel_launch": "graph"}).tolist() == [0.0, 0.0]


def test_a_host_that_waits_for_every_kernel_adds_to_every_step() -> None:
    bloom = shipped("bloom-0052")
    assert bloom["kernel_launch"] == "blocking-2022"
    slow, fast = ratios_of(bloom)
    assert fast < 0.0 < slow
    # What the host adds is the same number of launches either way: 1.9 times as long, or as much shorter.
    longer, shorter = math.expm1(slow), -math.expm1(fast)
    assert longer / shorter == pytest.approx(
        (math.exp(FARTHEST) - 1.0) / (1.0 - math.exp(-FARTHEST)), rel=0.05
    )


def test_launches_that_a_calibration_has_are_known(tmp_path: Path) -> None:
    row = row_of(tmp_path)
    slow = CalibratedConstant(
        name=ConstantName.EARLY_HOST_LAUNCH_S, value=3e-5, published=4e-5, log_deviation=0.1
    )
    links = CalibratedConstant(
        name=ConstantName.INTER_LINK_RATIO,
        accelerator=row["accelerator"],
        value=1.0,
        published=1.0,
        log_deviation=0.1,
    )
    assert ratios_of(row, calibration_with([slow, links])).tolist() == [0.0, 0.0]
    of_others = links.model_copy(update={"accelerator": "mi300x"})
    assert ratios_of(row, calibration_with([slow, of_others])).tolist() == ratios_of(row).tolist()


def test_the_interval_of_such_a_step_is_wider_than_that_of_a_large_model(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL_MODEL, {**KORTHIKANTI_22B, "source": "vTrain"})
    small, large = [entry for entry in entries_of(read_measured(path)) if isinstance(entry, Modelled)]

    def widths(entry: Modelled) -> tuple[float, float]:
        interval, expected_s = entry.interval, entry.comparison.expected_s
        return math.log(expected_s / interval.low_s), math.log(interval.high_s / expected_s)

    assert widths(large)[1] / widths(large)[0] == pytest.approx(UNSEEN_RATIOS.above / UNSEEN_RATIOS.below)
    assert widths(small)[1] == pytest.approx(
        math.hypot(widths(large)[1], ratios_of(row_of(tmp_path))[0]), rel=0.1
    )
    assert widths(small)[0] > widths(large)[0]
