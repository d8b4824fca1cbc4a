"""Are a device's constants found from its kernels, and is everything but the timing itself right without a GPU?"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.calibration import device as calibration_device
from planner.calibration import torch as calibration_torch
from planner.calibration.device import NUM_REPETITIONS, Runs, grid, measure, time_s
from planner.calibration.file import load_calibration
from planner.calibration.kernel_models import Values, published_values, simulated_s
from planner.calibration.kernels import calibrate_kernels
from planner.calibration.table import (
    COLUMNS,
    Kernel,
    KernelKind,
    KernelTable,
    kernel_text,
    read_kernels,
    write_kernels,
)
from planner.calibration.torch import TorchDevice, torch_device
from planner.cli.commands import BROKEN_INPUT, FAILED, OK, main
from simulator.calibration import ConstantName
from simulator.catalog import accelerator
from simulator.errors import CapplanError, InputError
from simulator.units import GIB

H100 = accelerator("h100-sxm5-80gb")
NOISE = 0.02


class FakeDevice:
    """A device whose kernels take as long as known constants say, with noise, on a clock of its own."""

    def __init__(self, values: Values, *, num_devices: int = 1, memory_bytes: float = 80.0 * GIB) -> None:
        self.values, self.random = values, np.random.default_rng(3)
        self.name, self.memory_bytes, self.num_devices = "NVIDIA H100 80GB HBM3", memory_bytes, num_devices
        self.powers_w = iter([85.0, 640.0])

    def prepare(self, kernel: Kernel) -> Runs:
        factor = float(np.exp(self.random.normal(0.0, NOISE)))
        seconds = factor * self._seconds(kernel)
        return lambda num_runs: num_runs * seconds

    def power_w(self) -> float | None:
        return next(self.powers_w)

    def _seconds(self, kernel: Kernel) -> float:
        if kernel.kind is KernelKind.HOST_LAUNCH:
            return self.values[ConstantName.HOST_LAUNCH_S]
        if (
            kernel.kind is KernelKind.ALL_REDUCE
        ):  # a ring moves 2 (n - 1) / n of the buffer, at half of 450 GB/s
            return 2.0 * (kernel.group_size - 1) / kernel.group_size * kernel.num_bytes / 225e9
        alone = KernelTable(device="", date="", kernels=(kernel,), seconds=np.ones(1))
        return float(simulated_s(alone, H100, self.values)[0])


@pytest.fixture(scope="module")
def table() -> KernelTable:
    return measure(FakeDevice(published_values(H100)), date="2026-05-01")


@settings(max_examples=5, deadline=None)
@given(
    peak=st.floats(0.5, 0.95),
    memory=st.floats(0.5, 0.95),
    attention=st.floats(0.5, 0.9),
    backward=st.floats(0.5, 0.95),
    launch_s=st.floats(2e-6, 8e-6),
)
def test_the_constants_of_a_device_are_found_again(
    peak: float, memory: float, attention: float, backward: float, launch_s: float
) -> None:
    truth = {
        ConstantName.GEMM_PEAK_FRACTION: peak,
        ConstantName.MEMORY_FRACTION: memory,
        ConstantName.ATTENTION_PEAK_FRACTION: attention,
        ConstantName.ATTENTION_BACKWARD_FRACTION: backward,
        ConstantName.WEIGHT_GRADIENT_FRACTION: 0.9,
        ConstantName.KERNEL_LAUNCH_S: launch_s,
        ConstantName.HOST_LAUNCH_S: 2.0 * launch_s,
    }
    answer = calibrate_kernels(measure(FakeDevice({**published_values(H100), **truth})))
    found = {one.name: one.value for one in answer.calibration.constants}
    for name, value in truth.items():
        # Tens of kernels with 2 % of noise, and constants that act alike, such as peak and ramps of attention.
        assert found[name] == pytest.approx(value, rel=0.06), name
    assert answer.calibration.error_left_out_fraction < 3.0 * NOISE
    assert answer.held == ()


def test_a_device_as_published_is_left_where_it_is(table: KernelTable) -> None:
    found = calibrate_kernels(table).calibration
    noise_only = NOISE * math.sqrt(2.0 / math.pi)
    assert found.error_before_fraction == pytest.approx(noise_only, rel=0.4)
    assert (found.idle_power_w, found.loaded_power_w) == (85.0, 640.0)
    assert found.accelerators == (H100.id,)


def test_sums_over_the_devices_of_a_node_give_its_links() -> None:
    answer = calibrate_kernels(measure(FakeDevice(published_values(H100), num_devices=8)))
    (ratio,) = [c.value for c in answer.calibration.constants if c.name is ConstantName.INTRA_LINK_RATIO]
    # Half of the nominal rate against a published share of 0.9703; the published form has start-up and a pipeline's loss
    # as well, a tenth of the time, which this clock lacks.
    assert ratio == pytest.approx(0.5 / 0.9703, rel=0.12)


def test_what_was_not_measured_stays_as_published(table: KernelTable) -> None:
    chosen = np.array([kernel.kind is KernelKind.GEMM for kernel in table.kernels])
    part = KernelTable(
        device=table.device,
        date=table.date,
        kernels=tuple(k for k, is_chosen in zip(table.kernels, chosen, strict=True) if is_chosen),
        seconds=table.seconds[chosen],
    )
    answer = calibrate_kernels(part)
    assert {one.name.value.partition("_")[0] for one in answer.calibration.constants} == {"gemm", "overlap"}
    assert any("memory_fraction" in one.name for one in answer.held)


def test_the_table_travels_and_gives_the_same_constants(tmp_path: Path, table: KernelTable) -> None:
    file, out = tmp_path / "kernels.csv", tmp_path / "calibration.yaml"
    write_kernels(table, file)
    read = read_kernels(file)
    assert (read.kernels, read.date, read.sha256) == (table.kernels, table.date, table.sha256)
    assert main(["calibrate", "--kernels", str(file), "--output", str(out), "--quiet"]) == OK
    assert load_calibration(out) == calibrate_kernels(read).calibration


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (("gemm", "warp"), "column kind = 'warp': must be one of gemm"),
        (("bf16,512,", "bf16,-5,"), "column m = '-5': must be a positive whole number"),
        (("2026-05-01", "2026-05-01,more"), r"cells, not"),
        (("seconds", "time"), "is no table of kernels"),
    ],
)
def test_a_broken_table_is_refused_with_row_and_column(
    tmp_path: Path, table: KernelTable, change: tuple[str, str], rule: str
) -> None:
    file = tmp_path / "kernels.csv"
    file.write_text(kernel_text(table).replace(*change, 1))
    with pytest.raises(InputError, match=rule):
        read_kernels(file)


def test_times_of_nothing_and_unknown_devices_are_refused(tmp_path: Path, table: KernelTable) -> None:
    file = tmp_path / "kernels.csv"
    file.write_text(kernel_text(table).replace(table.device, "ACME 9000"))
    with pytest.raises(
        InputError, match=r"ACME 9000: is not known by this name; say what it is with --accelerator"
    ):
        calibrate_kernels(read_kernels(file))
    named = calibrate_kernels(read_kernels(file), accelerator="h100-sxm5-80gb")
    assert named.calibration.accelerators == (H100.id,)
    file.write_text(",".join(COLUMNS) + "\n")
    with pytest.raises(InputError, match="no table of kernels"):
        read_kernels(file)


@pytest.mark.parametrize(("factor", "way"), [(1e-3, "shorter"), (1e3, "longer")])
def test_kernels_in_another_unit_are_refused(table: KernelTable, factor: float, way: str) -> None:
    with pytest.raises(
        InputError, match=f"times {way} than any constants explain; check that times are seconds"
    ):
        calibrate_kernels(replace(table, seconds=factor * table.seconds))


def test_a_kernel_is_warmed_up_and_then_timed_long_enough() -> None:
    asked: list[int] = []

    def runs(num_runs: int) -> float:
        asked.append(num_runs)
        return num_runs * 1e-3 * (2.0 if len(asked) == 4 else 1.0)  # one repetition is interrupted

    assert time_s(runs) == pytest.approx(1e-3)
    assert asked == [1, 3, *[20] * NUM_REPETITIONS]


def test_every_kind_of_kernel_is_in_the_grid_of_several_devices() -> None:
    assert {kernel.kind for kernel in grid(8)} == set(KernelKind)
    assert KernelKind.ALL_REDUCE not in {kernel.kind for kernel in grid(1)}


def test_too_little_memory_is_said() -> None:
    with pytest.raises(CapplanError, match=r"has 2.0 GiB of free memory, and the measurement needs 4 GiB"):
        measure(FakeDevice(published_values(H100), memory_bytes=2.0 * GIB))


def test_a_device_is_measured_kept_and_fitted_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibration_torch, "torch_device", lambda: FakeDevice(published_values(H100)))
    table, out = tmp_path / "kernels.csv", tmp_path / "calibration.yaml"
    asked = ["calibrate", "--device", "--date", "2026-05-01", "--output", str(table), "--output", str(out)]
    assert main(asked) == OK
    told = capsys.readouterr()
    assert "85 W idle, 640 W under products" in told.out
    assert load_calibration(out) == calibrate_kernels(read_kernels(table)).calibration
    assert main([*asked, "--quiet"]) == BROKEN_INPUT
    assert "never overwritten" in capsys.readouterr().err


def test_without_pytorch_or_without_a_gpu_the_way_out_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibration_torch, "find_spec", lambda _: None)
    assert main(["calibrate", "--device"]) == FAILED
    assert "install capplan[torch]" in capsys.readouterr().err
    blind = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setattr(calibration_torch, "find_spec", lambda _: object())
    monkeypatch.setattr(calibration_torch, "import_module", lambda _: blind)
    with pytest.raises(CapplanError, match="PyTorch sees no GPU on this machine"):
        torch_device()


class NVMLError(Exception):
    """What the bindings of NVML raise; no `RuntimeError`."""


def test_a_board_that_does_not_tell_its_power_is_measured_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def power_draw(_device: int) -> float:
        raise NVMLError("Not Supported")

    monkeypatch.setattr(calibration_torch, "find_spec", lambda _: object())
    monkeypatch.setattr(calibration_torch, "import_module", lambda _: SimpleNamespace(NVMLError=NVMLError))
    torch = ModuleType("torch")
    torch.cuda = SimpleNamespace(power_draw=power_draw)  # type: ignore[attr-defined]
    assert TorchDevice(torch, "cuda").power_w() is None
    torch.cuda = SimpleNamespace(power_draw=lambda _device: 123_000)  # type: ignore[attr-defined] # milliwatts
    assert TorchDevice(torch, "cuda").power_w() == 123.0


SMALL = (
    Kernel(kind=KernelKind.EMPTY),
    Kernel(kind=KernelKind.HOST_LAUNCH),
    *(Kernel(kind=kind, num_bytes=6_000) for kind in (KernelKind.COPY, KernelKind.ADD)),
    *(
        Kernel(kind=kind, m=64, n=32, k=16)
        for kind in (KernelKind.GEMM, KernelKind.INPUT_GRADIENT, KernelKind.WEIGHT_GRADIENT)
    ),
    *(
        Kernel(kind=kind, batch=1, sequence_length=64, num_heads=2, head_dim=16)
        for kind in (KernelKind.ATTENTION, KernelKind.ATTENTION_BACKWARD)
    ),
)
"""One of each kind that needs no second device."""


def test_a_cpu_is_measured_where_pytorch_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    monkeypatch.setattr(calibration_device, "grid", lambda _num_devices: SMALL)
    monkeypatch.setattr(calibration_device, "TIMED_S", 1e-4)
    table = measure(TorchDevice(torch, "cpu"), date="2026-05-01")
    assert (table.device, table.kernels, table.idle_power_w) == ("cpu", SMALL, None)
    assert (table.seconds > 0.0).all()
    write_kernels(table, tmp_path / "kernels.csv")
    assert read_kernels(tmp_path / "kernels.csv").kernels == SMALL


def test_products_are_of_the_layouts_of_a_step_where_pytorch_is() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    device = TorchDevice(torch, "cpu")
    for kind in (KernelKind.GEMM, KernelKind.INPUT_GRADIENT, KernelKind.WEIGHT_GRADIENT):
        product: Any = device.operator(Kernel(kind=kind, m=64, n=32, k=16))()
        assert tuple(product.shape) == (64, 32)
        assert product.dtype == torch.bfloat16
    backward: Callable[[], Any] = device.operator(
        Kernel(kind=KernelKind.ATTENTION_BACKWARD, batch=3, sequence_length=64, num_heads=2, head_dim=16)
    )
    assert [tuple(gradient.shape) for gradient in backward()] == 3 * [(3, 2, 64, 16)]
    assert [tuple(gradient.shape) for gradient in backward()] == 3 * [
        (3, 2, 64, 16)
    ]  # again from the same graph


def test_what_only_a_gpu_can_run_is_there_in_the_installed_pytorch() -> None:
    cuda = pytest.importorskip("torch", reason="PyTorch is an extra").cuda
    inspect.signature(cuda.Event.__new__).bind(cuda.Event, enable_timing=True)
    inspect.signature(cuda.Event.elapsed_time).bind("start", "end")
    inspect.signature(cuda.graph.__init__).bind("self", "graph")
    inspect.signature(cuda.CUDAGraph.replay).bind("graph")
    inspect.signature(cuda.nccl.all_reduce).bind([])
    for named in (cuda.get_device_name, cuda.mem_get_info, cuda.power_draw):
        inspect.signature(named).bind(0)
    assert {"device_count", "is_available", "synchronize"} <= set(dir(cuda))
