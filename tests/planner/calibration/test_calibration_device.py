"""Does calibration recover a device's constants from its kernels? Everything but the timing itself is tested without a GPU."""

from __future__ import annotations

import csv
import inspect
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from planner.calibration import device as calibration_device
from planner.calibration import torch as calibration_torch
from planner.calibration.answer import CalibrationAnswer, KindFit, LayerFit, PassFit
from planner.calibration.calibrate import calibrate
from planner.calibration.device import (
    LAYER_SIZES,
    LAYERS_IN_8_BITS,
    NUM_REPETITIONS,
    PRODUCTS,
    LayerTimes,
    Runs,
    grid,
    layers_of,
    measure,
    note_of_skipped,
    time_s,
)
from planner.calibration.file import load_calibration
from planner.calibration.kernel_models import Values, published_values, simulated_s
from planner.calibration.kernels import calibrate_kernels
from planner.calibration.layers import fit_layers, simulated_kept_bytes, simulated_layers_s
from planner.calibration.table import (
    COLUMNS,
    Kernel,
    KernelKind,
    KernelTable,
    Software,
    can_time,
    kernel_text,
    read_kernels,
    write_kernels,
)
from planner.calibration.torch import TorchDevice, torch_device
from planner.calibration.torch_layer import float8_linear
from planner.calibration.view import show_calibration
from planner.cli.commands import main
from planner.cli.terminal.exit_codes import BROKEN_INPUT, FAILED, OK
from simulator.catalog import accelerator
from simulator.domain.calibration import SOFTWARE, CalibratedConstant, Calibration, ConstantName
from simulator.domain.hardware import Precision
from simulator.errors import CapplanError, InputError
from simulator.machine.training import training_constants
from simulator.units import GIB
from tests.planner.calibrations import calibration_with

H100 = accelerator("h100-sxm5-80gb")
NOISE = 0.02
OF_LAYERS = (ConstantName.SUSTAINED_FRACTION, ConstantName.HOST_LAUNCH_S)
"""Constants that no single kernel shows."""


class FakeDevice:
    """A device whose kernels take as long as known constants say, with noise, on a clock of its own."""

    lacking: frozenset[tuple[KernelKind, Precision]] = frozenset()

    def __init__(self, truth: Values, *, num_devices: int = 1, memory_bytes: float = 80.0 * GIB) -> None:
        self.truth, self.random = truth, np.random.default_rng(3)
        self.name, self.memory_bytes, self.num_devices = "NVIDIA H100 80GB HBM3", memory_bytes, num_devices
        self.powers_w: Iterator[float | None] = iter([85.0, 640.0])
        self.rested_s = 0.0

    def can_run(self, kind: KernelKind, precision: Precision) -> bool:
        return (kind, precision) not in self.lacking

    def prepare(self, kernel: Kernel) -> Runs | None:
        seconds = self._noise() * self._seconds(kernel)
        return lambda num_runs: num_runs * seconds

    def layer_times(self, layer: Kernel, num_layers: int) -> LayerTimes | None:
        assert num_layers > 0
        ways = [layer, replace(layer, kind=KernelKind.LAYER_BACKWARD)]
        forward_s, backward_s = simulated_layers_s(H100, ways, calibration_of(self.truth))
        kept_bytes = simulated_kept_bytes(layer)
        return LayerTimes(self._noise() * forward_s, self._noise() * backward_s, kept_bytes)

    def rest(self, seconds: float) -> None:
        self.rested_s += seconds

    def power_w(self) -> float | None:
        return next(self.powers_w)

    def _noise(self) -> float:
        return float(np.exp(self.random.normal(0.0, NOISE)))

    def _seconds(self, kernel: Kernel) -> float:
        if (
            kernel.kind is KernelKind.ALL_REDUCE
        ):  # a ring moves 2 (n - 1) / n of the buffer, at half of 450 GB/s
            return 2.0 * (kernel.group_size - 1) / kernel.group_size * kernel.num_bytes / 225e9
        alone = KernelTable(device="", date="", kernels=(kernel,), seconds=np.ones(1))
        return float(simulated_s(alone, H100, published_values(H100, kernel.precision) | self.truth)[0])


def calibration_of(truth: Values) -> Calibration:
    """Constants that all kernels and layers of a made-up device have."""
    published = {**published_values(H100), **dict.fromkeys(OF_LAYERS, 1.0)}
    return calibration_with(
        CalibratedConstant(
            name=name,
            accelerator=None if name in SOFTWARE else H100.id,
            value=value,
            published=published[name],
            log_deviation=0.0,
        )
        for name, value in truth.items()
    )


@pytest.fixture(scope="module")
def table() -> KernelTable:
    return measure(FakeDevice({}), date="2026-05-01")


@pytest.mark.long
@settings(max_examples=5)
@given(
    peak=st.floats(0.5, 0.95),
    memory=st.floats(0.5, 0.95),
    attention=st.floats(0.5, 0.9),
    backward=st.floats(0.5, 0.95),
    clock=st.floats(0.7, 0.95),
    launch_s=st.floats(2e-6, 8e-6),
)
def test_the_constants_of_a_device_are_found_again(
    peak: float, memory: float, attention: float, backward: float, clock: float, launch_s: float
) -> None:
    truth = {
        ConstantName.GEMM_PEAK_FRACTION: peak,
        ConstantName.MEMORY_FRACTION: memory,
        ConstantName.ATTENTION_PEAK_FRACTION: attention,
        ConstantName.ATTENTION_BACKWARD_FRACTION: backward,
        ConstantName.WEIGHT_GRADIENT_FRACTION: 0.9,
        ConstantName.KERNEL_LAUNCH_S: launch_s,
        ConstantName.SUSTAINED_FRACTION: clock,
        ConstantName.HOST_LAUNCH_S: 10.0 * launch_s,
    }
    answer = calibrate_kernels(measure(FakeDevice(truth)))
    for one in answer.calibration.constants:
        if one.name in truth:
            # The scatter of kernels is judged by their own errors, which are few here, so that 4 % are allowed in any case.
            reach = 4.0 * max(0.01, one.log_deviation)
            assert math.log(one.value / truth[one.name]) == pytest.approx(0.0, abs=reach), one.name
    assert {one.name for one in answer.calibration.constants} >= truth.keys()
    assert answer.calibration.error_left_out_fraction < 3.0 * NOISE
    assert answer.held == ()


def test_a_device_as_published_is_left_where_it_is(table: KernelTable) -> None:
    answer = calibrate_kernels(table)
    noise_only = NOISE * math.sqrt(2.0 / math.pi)
    for kind in answer.kinds:
        assert kind.error_before_fraction < 2.0 * noise_only, kind.name
    assert answer.calibration.error_before_fraction == pytest.approx(noise_only, rel=0.4)
    assert (answer.calibration.idle_power_w, answer.calibration.loaded_power_w) == (85.0, 640.0)
    assert answer.calibration.accelerators == (H100.id,)


def test_every_layer_is_told_with_its_errors_and_what_it_keeps(table: KernelTable) -> None:
    layers = calibrate_kernels(table).layers
    assert len(layers) == 2 * len(LAYER_SIZES) + len(LAYERS_IN_8_BITS)
    waiting = {(one.model, one.sequence_length) for one in layers if one.forward.waits_for_host}
    assert waiting == {(model, length) for model, _, length in LAYER_SIZES if length < 1024}
    for layer in layers:
        for one in (layer.forward, layer.backward):
            assert abs(one.error_before_fraction) < 4.0 * NOISE
    kept = [layer.kept_error_fraction for layer in layers if layer.kept_error_fraction is not None]
    assert len(kept) == 2 * len(LAYER_SIZES)
    assert kept == pytest.approx(np.zeros(len(kept)), abs=1e-6)


@pytest.mark.long
def test_layers_in_8_bits_of_an_accelerator_without_are_not_asked_for(table: KernelTable) -> None:
    slow = replace(table, seconds=3.0 * table.seconds)
    answer = calibrate_kernels(slow, accelerator="a100-sxm4-80gb")
    assert {layer.precision for layer in answer.layers} == {Precision.BF16}


def test_layers_that_do_not_fit_or_run_are_left_out() -> None:
    answer = calibrate_kernels(measure(Limited({}, memory_bytes=16.0 * GIB)))
    assert {layer.software for layer in answer.layers} == {"eager"}
    assert "llama-3.1-405b" not in {layer.model for layer in answer.layers}
    assert ConstantName.SUSTAINED_FRACTION in {one.name for one in answer.calibration.constants}


@pytest.mark.long
def test_sums_over_the_devices_of_a_node_give_its_links() -> None:
    answer = calibrate_kernels(measure(FakeDevice({}, num_devices=8)))
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
    held = {one.name.rpartition(" ")[2]: one.why for one in answer.held}
    assert held["memory_fraction"] == "its kernels were not measured"
    assert held["host_launch_s"] == held["sustained_fraction"] == "its layers were not measured"
    constants = training_constants()
    values = {one.name: one.value for one in answer.held}
    assert values["host_launch_s"] == constants.launch_s
    assert values[f"{H100.id} sustained_fraction"] == constants.sustained([H100], [Precision.BF16])[0]


@pytest.mark.long
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
        (("bf16,,,512,", "bf16,,,-5,"), "column m = '-5': must be a positive whole number"),
        (("gemm,bf16", "gemm,fp4"), "column precision = 'fp4': must be one of bf16, fp8"),
        (
            ("layer,bf16,gpt2-xl", "layer,bf16,mixtral-8x7b"),
            "column model = 'mixtral-8x7b': must be a dense model",
        ),
        (("gpt2-xl,eager", "gpt2-xl,lazy"), "column software = 'lazy': must be one of eager, compiled"),
        (("2026-05-01", "2026-05-01,more"), r"cells, not"),
        (
            (",2026-05-01,", ",2026-05-01T" + 40 * "0" + ","),
            "column date = .*: must have at most 40 characters",
        ),
        (("seconds", "time"), "is not a table of kernels"),
        (("gemm", "g\0mm"), "is no text: it holds a NUL character"),
        (
            ("layer_backward,bf16,gpt2-xl", "layer_backward,bf16,llama-2-7b"),
            "be followed by the backward pass of the same layer",
        ),
        (("layer,bf16,gpt2-xl,eager", "layer_backward,bf16,gpt2-xl,eager"), "must follow the forward pass"),
    ],
)
def test_a_broken_table_is_refused_with_row_and_column(
    tmp_path: Path, table: KernelTable, change: tuple[str, str], rule: str
) -> None:
    file = tmp_path / "kernels.csv"
    file.write_text(kernel_text(table).replace(*change, 1))
    with pytest.raises(InputError, match=rule):
        read_kernels(file)


def test_a_table_that_a_spreadsheet_saved_with_semicolons_says_so(tmp_path: Path, table: KernelTable) -> None:
    file = tmp_path / "kernels.csv"
    file.write_text(kernel_text(table).replace(",", ";"))
    with pytest.raises(InputError, match="separated by commas, not by semicolons"):
        read_kernels(file)


@pytest.mark.parametrize(
    ("column", "value", "rule"),
    [
        ("seconds", "1e-300", "must be from 1e-09 to 1000"),
        ("seconds", "1e308", "must be from 1e-09 to 1000"),
        ("num_bytes", "1e19", r"must be a positive whole number up to 1e\+15"),
        ("num_bytes", "0", "must be a positive whole number"),
        ("num_bytes", "6.5", "must be a positive whole number"),
        ("idle_power_w", "0", "must be above 0 W and at most 100000 W, or empty"),
        ("idle_power_w", "-5", "must be above 0 W and at most 100000 W, or empty"),
        ("loaded_power_w", "nan", "must be above 0 W and at most 100000 W, or empty"),
        ("loaded_power_w", "640000", "must be above 0 W and at most 100000 W, or empty"),
    ],
)
def test_a_figure_that_no_kernel_or_device_has_is_refused(
    tmp_path: Path, table: KernelTable, column: str, value: str, rule: str
) -> None:
    head, *rows = list(csv.reader(io.StringIO(kernel_text(table))))
    row = next(row for row in rows if row[0] == "copy")
    row[head.index(column)] = value
    file = tmp_path / "kernels.csv"
    file.write_text("\n".join(",".join(cells) for cells in (head, *rows)))
    with pytest.raises(InputError, match=f"column {column} = '{value}': {rule}"):
        read_kernels(file)


COPIES = KernelTable(
    device="NVIDIA H100 80GB HBM3",
    date="2026-05-01",
    kernels=(Kernel(kind=KernelKind.COPY, num_bytes=6_000),) * 12,
    seconds=np.full(12, 1e-5),
)


def test_the_first_ten_problems_of_a_table_are_told(tmp_path: Path) -> None:
    file = tmp_path / "kernels.csv"
    file.write_text(kernel_text(COPIES).replace(",1e-05,", ",0,"))
    with pytest.raises(InputError) as refused:
        read_kernels(file)
    assert [problem.path for problem in refused.value.problems] == [
        f"row {line}, column seconds" for line in range(2, 12)
    ]


def test_a_table_is_of_one_device(tmp_path: Path) -> None:
    file = tmp_path / "kernels.csv"
    file.write_text(kernel_text(COPIES).replace(COPIES.device, "NVIDIA H200", 1))
    rule = (
        "column device = 'NVIDIA H100 80GB HBM3, NVIDIA H200': names several devices; use one file for each"
    )
    with pytest.raises(InputError, match=rule):
        read_kernels(file)


def test_a_table_without_kernels_or_of_megabytes_is_no_table(tmp_path: Path) -> None:
    file = tmp_path / "kernels.csv"
    head = ",".join(COLUMNS) + "\n"
    for text, rule in (
        (head, "is not a table of kernels as"),
        (head + 10_000_000 * "x", "is larger than 10,000,000 bytes"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=rule):
            read_kernels(file)


def test_a_given_date_comes_before_that_of_the_table_which_may_have_none(tmp_path: Path) -> None:
    file = tmp_path / "kernels.csv"
    write_kernels(COPIES, file)
    longest = "on " + 37 * "x"
    assert read_kernels(file).date == "2026-05-01"
    assert read_kernels(file, date=longest).date == longest
    file.write_text(kernel_text(replace(COPIES, date="")))
    assert read_kernels(file).date == "not given"


def test_a_kernel_whose_number_format_is_not_said_is_in_16_bits(tmp_path: Path) -> None:
    file = tmp_path / "kernels.csv"
    file.write_text(kernel_text(COPIES).replace("copy,bf16,", "copy,,"))
    assert read_kernels(file).kernels == COPIES.kernels


@pytest.mark.parametrize(
    ("model", "is_timed"),
    [
        ("llama-3.1-8b", True),  # gated
        ("gpt2-xl", True),  # not gated, with learned positions
        ("bloom-7b1", False),  # neither
        ("pythia-1.4b", False),  # attention beside the feed-forward network
        ("palm-540b", False),  # likewise, gated
        ("mistral-7b", False),  # sliding windows
        ("qwen3-8b", False),  # norms of queries and keys
        ("mixtral-8x7b", False),  # experts
        ("bamba-9b", False),  # blocks with a state
        ("no-such-model", False),
    ],
)
def test_layers_are_timed_of_blocks_that_are_built_like_those_of_llama_or_gpt(
    model: str, is_timed: bool
) -> None:
    assert can_time(model) is is_timed


def test_a_date_that_no_calibration_takes_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    absent, long = tmp_path / "absent.csv", "yesterday, " + 40 * "x"
    for read in (read_kernels, calibrate):
        with pytest.raises(InputError, match=r"date = .*: must have at most 40 characters"):
            read(absent, date=long)


@pytest.mark.long
def test_times_of_nothing_and_unknown_devices_are_refused(tmp_path: Path, table: KernelTable) -> None:
    file = tmp_path / "kernels.csv"
    file.write_text(kernel_text(table).replace(table.device, "ACME 9000"))
    with pytest.raises(
        InputError, match=r"ACME 9000: is not known by this name; say what it is with accelerator=NAME"
    ):
        calibrate_kernels(read_kernels(file))
    named = calibrate_kernels(read_kernels(file), accelerator="h100-sxm5-80gb")
    assert named.calibration.accelerators == (H100.id,)
    file.write_text(",".join(COLUMNS) + "\n")
    with pytest.raises(InputError, match="not a table of kernels"):
        read_kernels(file)


@pytest.mark.parametrize(("factor", "way"), [(1e-3, "shorter"), (1e3, "longer")])
def test_kernels_in_another_unit_are_refused(table: KernelTable, factor: float, way: str) -> None:
    with pytest.raises(
        InputError, match=f"times {way} than any constants explain; check that times are seconds"
    ):
        calibrate_kernels(replace(table, seconds=factor * table.seconds))


@pytest.mark.parametrize("batch", [1, 4])
def test_long_attention_reaches_most_of_the_peak_for_half_of_the_square(batch: int) -> None:
    kernel = Kernel(kind=KernelKind.ATTENTION, batch=batch, sequence_length=16384, num_heads=16, head_dim=128)
    table = KernelTable(device="", date="", kernels=(kernel,), seconds=np.ones(1))
    (seconds,) = simulated_s(table, H100, published_values(H100))
    # Two products of 2 s^2 d operations for each head, of which a causal mask leaves half.
    least_s = batch * 2.0 * 16384**2 * 16 * 128 / H100.bf16_flop_per_s
    assert least_s < seconds < 2.0 * least_s


def seconds_of(values: Values, *kernels: Kernel) -> list[float]:
    """Seconds of kernels on an H100 with constants that differ from the published ones."""
    tables = [KernelTable(device="", date="", kernels=(kernel,), seconds=np.ones(1)) for kernel in kernels]
    return [
        float(simulated_s(table, H100, published_values(H100, table.kernels[0].precision) | values)[0])
        for table in tables
    ]


def test_narrow_heads_are_slowed_less_by_the_backward_pass() -> None:
    # docs/model/kernels.md: backward over forward speed is 0.92 with heads of 64 and 0.86 with heads of 128.
    values = {ConstantName.ATTENTION_BACKWARD_FRACTION: 0.8, ConstantName.ATTENTION_FILL_ROWS: 0.0}
    ratios = []
    for heads, width in ((32, 64), (16, 128)):
        forward = Kernel(
            kind=KernelKind.ATTENTION, batch=1, sequence_length=16384, num_heads=heads, head_dim=width
        )
        backward = replace(forward, kind=KernelKind.ATTENTION_BACKWARD)
        forward_s, backward_s = seconds_of(values, forward, backward)
        ratios.append(backward_s / forward_s)
    narrow, wide = ratios
    assert wide / narrow == pytest.approx(0.92 / 0.86, rel=1e-3)


def test_a_product_in_8_bits_that_waits_for_memory_takes_half_of_the_time() -> None:
    # Of two long matrices with a small product, all that counts is to read them.
    values = {ConstantName.OVERLAP_EXPONENT: 8.0, ConstantName.GEMM_FILL_ELEMENTS: 0.0}
    kernels = [
        Kernel(kind=KernelKind.GEMM, precision=precision, m=64, n=64, k=2**24)
        for precision in (Precision.BF16, Precision.FP8)
    ]
    in_16_bits, in_8_bits = seconds_of(values, *kernels)
    assert in_16_bits / in_8_bits == pytest.approx(2.0, rel=0.02)


COPIES_OF_SIZES = tuple(
    Kernel(kind=KernelKind.COPY, num_bytes=size * 10**6) for size in (1, 4, 20, 100, 400, 800)
)
PRODUCTS_OF_SIZES = tuple(
    Kernel(kind=KernelKind.GEMM, m=m, n=n, k=k)
    for m, n, k in (
        (512, 1024, 1024),
        (8192, 4096, 4096),
        (2048, 12288, 1024),
        (8192, 12288, 12288),
        (2048, 1024, 12288),
        (512, 4096, 4096),
        (8192, 1024, 8192),
    )
)

ATTENTION_OF_LENGTHS = tuple(
    Kernel(kind=KernelKind.ATTENTION, batch=batch, sequence_length=length, num_heads=16, head_dim=128)
    for batch, length in ((16, 1024), (8, 2048), (4, 4096), (2, 8192))
)


def table_of(
    kernels: Sequence[Kernel], values: Values, *, times: Sequence[float] = (), device: str = "H100 SXM"
) -> KernelTable:
    """Kernels that take as long as constants say, times a factor for each."""
    seconds = np.array(seconds_of(values, *kernels))
    factors = np.array(times) if times else np.ones(len(kernels))
    return KernelTable(device=device, date="2026-05-01", kernels=tuple(kernels), seconds=seconds * factors)


def found_in(answer: CalibrationAnswer) -> dict[tuple[ConstantName, Precision | None], CalibratedConstant]:
    return {(one.name, one.precision): one for one in answer.calibration.constants}


def test_four_kernels_of_a_kind_are_needed() -> None:
    four = table_of(COPIES_OF_SIZES[:4], {})
    assert calibrate_kernels(four).kinds[0].num_kernels == 4
    rule = "kernels = 3: needs 4 kernels or more of a kind, such as gemm; measure the whole grid"
    with pytest.raises(InputError, match=rule):
        calibrate_kernels(table_of(COPIES_OF_SIZES[:3], {}))


def test_every_kind_of_kernel_counts_in_its_group() -> None:
    copies, products = COPIES_OF_SIZES[:4], PRODUCTS_OF_SIZES[:4]
    kinds = {
        "copies and sums": (copies, (KernelKind.COPY, KernelKind.ADD)),
        "products, bf16": (
            products,
            (KernelKind.GEMM, KernelKind.INPUT_GRADIENT, KernelKind.WEIGHT_GRADIENT),
        ),
        "products added in 32 bits, bf16": (products, (KernelKind.ADDED_GRADIENT,)),
        "attention": (ATTENTION_OF_LENGTHS, (KernelKind.ATTENTION,)),
        "attention backward": (ATTENTION_OF_LENGTHS, (KernelKind.ATTENTION_BACKWARD,)),
    }
    kernels = [replace(one, kind=kind) for four, of in kinds.values() for kind in of for one in four]
    answer = calibrate_kernels(table_of(kernels, {}))
    assert {kind.name: kind.num_kernels for kind in answer.kinds} == {
        name: 4 * len(of) for name, (_, of) in kinds.items()
    }
    # Each number format has products of its own; attention and memory are those of all.
    assert {one.precision for one in answer.calibration.constants if "gemm" in one.name} == {Precision.BF16}
    assert {one.precision for one in answer.calibration.constants if "attention" in one.name} == {None}
    assert len(answer.calibration.constants) == 13
    assert (answer.calibration.num_rows, answer.calibration.num_configurations) == (32, 32)
    assert answer.calibration.source_sha256 == table_of(kernels, {}).sha256


def test_products_in_8_bits_of_an_accelerator_without_are_not_fitted() -> None:
    in_8_bits = [replace(kernel, precision=Precision.FP8) for kernel in PRODUCTS_OF_SIZES]
    table = table_of([*COPIES_OF_SIZES, *in_8_bits], {})
    assert [kind.name for kind in calibrate_kernels(table).kinds] == ["copies and sums", "products, fp8"]
    # An A100 has 0.6 of the bandwidth of an H100.
    slower = replace(table, seconds=table.seconds / 0.6)
    on_a100 = calibrate_kernels(slower, accelerator="a100-sxm4-80gb")
    assert [kind.name for kind in on_a100.kinds] == ["copies and sums"]


def test_later_groups_take_the_constants_of_earlier_ones() -> None:
    # Products that wait for memory are slower because memory is, in either format, and added gradients because products are.
    truth = {ConstantName.MEMORY_FRACTION: 0.55, ConstantName.GEMM_PEAK_FRACTION: 0.6}
    waiting = [replace(kernel, m=32, n=32, k=2**20 * at) for at, kernel in enumerate(PRODUCTS_OF_SIZES, 1)]
    in_8_bits = [replace(kernel, precision=Precision.FP8) for kernel in (*waiting, *PRODUCTS_OF_SIZES)]
    added = [replace(kernel, kind=KernelKind.ADDED_GRADIENT) for kernel in PRODUCTS_OF_SIZES]
    table = table_of([*COPIES_OF_SIZES, *waiting, *PRODUCTS_OF_SIZES, *in_8_bits, *added], truth)
    answer = calibrate_kernels(table)
    found = found_in(answer)
    for precision in (Precision.BF16, Precision.FP8):
        assert found[ConstantName.GEMM_PEAK_FRACTION, precision].value == pytest.approx(0.6, rel=0.01)
    gradient = found[ConstantName.WEIGHT_GRADIENT_FRACTION, Precision.BF16]
    assert gradient.value == pytest.approx(gradient.published, rel=0.01)
    for kind in answer.kinds:
        assert kind.error_after_fraction < 0.01 < kind.error_before_fraction, kind.name


def test_a_device_may_reach_nearly_all_that_it_promises_with_a_slow_host() -> None:
    truth = {
        ConstantName.MEMORY_FRACTION: 0.97,
        ConstantName.KERNEL_LAUNCH_S: 2e-5,
        ConstantName.GEMM_PEAK_FRACTION: 0.97,
        ConstantName.WEIGHT_GRADIENT_FRACTION: 0.97,
        ConstantName.ATTENTION_PEAK_FRACTION: 0.97,
        ConstantName.ATTENTION_BACKWARD_FRACTION: 0.97,
    }
    longer = [replace(one, batch=16 * one.batch) for one in ATTENTION_OF_LENGTHS]
    attention = [*ATTENTION_OF_LENGTHS, *longer]
    kernels = [
        *COPIES_OF_SIZES,
        *PRODUCTS_OF_SIZES,
        *(replace(one, kind=KernelKind.ADDED_GRADIENT) for one in PRODUCTS_OF_SIZES),
        *attention,
        *(replace(one, kind=KernelKind.ATTENTION_BACKWARD) for one in attention),
    ]
    found = {one.name: one.value for one in calibrate_kernels(table_of(kernels, truth)).calibration.constants}
    for name, value in truth.items():
        assert found[name] == pytest.approx(value, rel=0.02), name


def test_a_copy_takes_its_bytes_over_what_memory_reaches() -> None:
    values = {ConstantName.MEMORY_FRACTION: 0.8, ConstantName.KERNEL_LAUNCH_S: 1e-5}
    (seconds,) = seconds_of(values, Kernel(kind=KernelKind.COPY, num_bytes=10**9))
    assert seconds == pytest.approx(1e9 / (0.8 * 3.35e12) + 1e-5)  # an H100 SXM has 3.35 TB/s


def test_a_device_that_the_catalogue_does_not_know_is_told_with_both_ways_out() -> None:
    with pytest.raises(InputError, match="say what it is with accelerator=NAME") as refused:
        calibrate_kernels(table_of(COPIES_OF_SIZES, {}, device="ACME 9000"))
    assert [(problem.path, problem.value) for problem in refused.value.problems] == [
        ("device", "ACME 9000"),
        ("device", "ACME 9000"),
    ]
    assert "`capplan catalog accelerators` lists all" in str(refused.value)


def test_every_fifth_kernel_is_held_out_and_gives_the_error() -> None:
    # The first and the sixth are half as fast again as the others say, which no constant hears of.
    answer = calibrate_kernels(table_of(COPIES_OF_SIZES, {}, times=(1.5, 1, 1, 1, 1, 1.5)))
    (kind,) = answer.kinds
    assert kind.error_left_out_fraction == pytest.approx(1.0 - 1.0 / 1.5, rel=1e-3)
    assert kind.error_after_fraction == pytest.approx(kind.error_left_out_fraction / 3.0, rel=1e-3)
    for one in answer.calibration.constants:
        assert one.value == pytest.approx(one.published, rel=1e-3)
    assert any(note.startswith("The mean error on what was left out is 33.3 %") for note in answer.warnings)


def test_constants_are_as_unsure_as_kernels_scatter_and_at_most_as_before() -> None:
    large = [replace(kernel, num_bytes=10**12 + kernel.num_bytes) for kernel in COPIES_OF_SIZES]
    scattered = [1.3, 1 / 1.3] * 3
    sure, unsure = (
        {one.name: one.log_deviation for one in calibrate_kernels(table).calibration.constants}
        for table in (table_of(large, {}), table_of(large, {}, times=scattered))
    )
    # Four of six are fitted, and two constants leave four of six degrees of freedom, with a median error of ln(1.3).
    assert sure[ConstantName.MEMORY_FRACTION] == pytest.approx(0.05 / math.sqrt(4.0), rel=0.01)
    noise = 1.4826 * math.log(1.3) * math.sqrt(6.0 / 4.0) / 0.05
    assert unsure[ConstantName.MEMORY_FRACTION] == pytest.approx(
        noise * sure[ConstantName.MEMORY_FRACTION], rel=0.1
    )
    # Copies of terabytes tell nothing of launches: a factor of two is one standard deviation.
    for deviations in (sure, unsure):
        assert math.exp(deviations[ConstantName.KERNEL_LAUNCH_S]) == pytest.approx(2.0, rel=0.01)


def test_the_largest_sum_over_a_node_gives_its_links() -> None:
    sums = [
        Kernel(kind=KernelKind.ALL_REDUCE, num_bytes=size, group_size=8) for size in (2**20, 2**28, 2**24)
    ]
    # A ring moves 2 (n - 1) / n of the buffer, at half of 450 GB/s; small sums wait for their start.
    seconds = [1e-3, 2.0 * 7.0 / 8.0 * 2**28 / 225e9, 1e-3]
    copies = table_of(COPIES_OF_SIZES, {})
    table = replace(
        copies, kernels=(*copies.kernels, *sums), seconds=np.concatenate([copies.seconds, seconds])
    )
    ratio = found_in(calibrate_kernels(table))[ConstantName.INTRA_LINK_RATIO, None]
    assert ratio.value == pytest.approx(0.5 / 0.9703, rel=0.12)  # the published share of the nominal rate
    assert (ratio.published, ratio.log_deviation) == (1.0, 0.05)


def test_kinds_that_are_as_published_are_not_improved_and_if_all_are_nothing_is() -> None:
    kernels = [*COPIES_OF_SIZES, *PRODUCTS_OF_SIZES]
    same = calibrate_kernels(table_of(kernels, {})).warnings
    assert [note.partition(":")[0] for note in same[1:]] == [
        "It does not improve copies and sums",
        "It does not improve products, bf16",
        "Plan with published constants.",
    ]
    # Slower memory explains slower copies, and products, which are as published, the worse.
    factors = [1.2] * len(COPIES_OF_SIZES) + [1.0] * len(PRODUCTS_OF_SIZES)
    partly = calibrate_kernels(table_of(kernels, {}, times=factors)).warnings
    assert [note.partition(":")[0] for note in partly[1:]] == ["It does not improve products, bf16"]


def test_errors_of_a_calibration_are_means_over_its_kernels() -> None:
    factors = [1.1] * len(COPIES_OF_SIZES) + [1.0] * len(PRODUCTS_OF_SIZES)
    answer = calibrate_kernels(table_of([*COPIES_OF_SIZES, *PRODUCTS_OF_SIZES], {}, times=factors))
    before = answer.calibration.error_before_fraction
    assert before == pytest.approx((1.0 - 1.0 / 1.1) * 6.0 / 13.0, rel=1e-3)


def test_a_device_is_known_by_what_it_is_called_however_long_its_name_is() -> None:
    table = table_of(COPIES_OF_SIZES, {}, device="x" * 300)
    calibration = calibrate_kernels(table, accelerator=H100.id).calibration
    assert calibration.source == f"kernels of {'x' * 189}"


def test_a_device_may_be_as_slow_as_constants_explain() -> None:
    # As published, most take more than half as long again, which would be refused if no constant explained it.
    slow = calibrate_kernels(table_of(COPIES_OF_SIZES, {ConstantName.MEMORY_FRACTION: 0.4}))
    assert found_in(slow)[ConstantName.MEMORY_FRACTION, None].value == pytest.approx(0.4, rel=0.01)
    assert slow.calibration.error_before_fraction > 1.0 - 1.0 / 1.5


def test_a_product_in_8_bits_that_fills_the_device_takes_half_of_the_time() -> None:
    values = {ConstantName.GEMM_PEAK_FRACTION: 0.7, ConstantName.GEMM_RAMP_DEPTH: 1.0}
    kernels = [
        Kernel(kind=KernelKind.GEMM, precision=precision, m=2**15, n=2**15, k=2**15)
        for precision in (Precision.BF16, Precision.FP8)
    ]
    in_16_bits, in_8_bits = seconds_of(values, *kernels)
    assert in_16_bits == pytest.approx(2.0 * 2.0**45 / (0.7 * 989e12), rel=0.01)
    assert in_16_bits / in_8_bits == pytest.approx(2.0, rel=0.01)


MIDDLE = Kernel(
    kind=KernelKind.LAYER,
    model="llama-3.1-8b",
    software=Software.COMPILED,
    batch=1,
    sequence_length=4096,
)
LARGE = replace(MIDDLE, model="llama-3.1-70b")


def passes_of(*layers: Kernel, times: Sequence[float] = ()) -> KernelTable:
    """Both passes of layers that take as long as published constants say, times a factor for each layer."""
    ways = [
        way
        for layer in layers
        for way in (layer, replace(layer, kind=KernelKind.LAYER_BACKWARD, num_bytes=0))
    ]
    seconds = simulated_layers_s(H100, ways, None)
    factors = np.repeat(np.array(times), 2) if times else 1.0
    return KernelTable(device="H100 SXM", date="2026-05-01", kernels=tuple(ways), seconds=seconds * factors)


def test_a_pass_waits_for_the_host_if_that_takes_a_tenth_more() -> None:
    # 512 tokens of compiled kernels: launches are 1.14 times the forward pass, and 1.07 times the backward pass.
    short = replace(MIDDLE, sequence_length=512)
    fitted = fit_layers(passes_of(short, MIDDLE), H100, calibration_of({}))
    assert fitted is not None
    assert [(one.forward.waits_for_host, one.backward.waits_for_host) for one in fitted.fits] == [
        (True, False),
        (False, False),
    ]
    assert {name: len(errors.after) for name, errors in fitted.errors.items()} == {
        "layers, bf16": 3,
        "layers that wait for the host": 1,
    }


def test_layers_of_a_model_are_left_out_together() -> None:
    fitted = fit_layers(passes_of(MIDDLE, LARGE, times=(1.0, 1.05)), H100, calibration_of({}))
    assert fitted is not None
    middle, large = fitted.fits
    for one in (large.forward, large.backward):  # the others are as published
        assert one.error_left_out_fraction == pytest.approx(1.0 / 1.05 - 1.0, abs=2e-3)
    for one in (middle.forward, middle.backward):  # the others are slower
        assert one.error_before_fraction == pytest.approx(0.0, abs=1e-9)
        assert one.error_left_out_fraction == pytest.approx(0.05, abs=0.01)


def test_layers_travel_with_what_they_keep_known_or_not(tmp_path: Path) -> None:
    file = tmp_path / "kernels.csv"
    table = passes_of(MIDDLE, replace(LARGE, num_bytes=10**9))
    write_kernels(table, file)
    assert read_kernels(file).kernels == table.kernels
    lonely = replace(table, kernels=table.kernels[:3], seconds=table.seconds[:3])
    file.write_text(kernel_text(lonely))
    rule = r"row 4, column kind = 'layer': must be followed by the backward pass of the same layer"
    with pytest.raises(InputError, match=rule):
        read_kernels(file)


def test_what_a_layer_keeps_is_compared_with_what_it_kept() -> None:
    layer = replace(MIDDLE, num_bytes=round(2.0 * simulated_kept_bytes(MIDDLE)))
    in_8_bits = replace(layer, precision=Precision.FP8)
    fitted = fit_layers(passes_of(layer, LARGE, in_8_bits), H100, calibration_of({}))
    assert fitted is not None
    half, unknown, of_frameworks = fitted.fits
    assert [one.precision for one in fitted.constants] == [Precision.BF16, Precision.FP8, None]
    assert half.kept_bytes == layer.num_bytes
    assert half.kept_error_fraction == pytest.approx(-0.5)
    assert unknown.kept_bytes is unknown.kept_error_fraction is None
    assert of_frameworks.kept_bytes is of_frameworks.kept_error_fraction is None


def test_layers_in_8_bits_alone_tell_nothing_of_an_accelerator_without() -> None:
    table = passes_of(replace(MIDDLE, precision=Precision.FP8))
    assert fit_layers(table, accelerator("a100-sxm4-80gb"), calibration_of({})) is None


def test_the_clock_is_as_unsure_as_layers_scatter() -> None:
    layers = [replace(layer, sequence_length=length) for layer in (MIDDLE, LARGE) for length in (4096, 8192)]
    sure, unsure = (
        fit_layers(passes_of(*layers, times=times), H100, calibration_of({}))
        for times in ((1, 1, 1, 1), (1.3, 1 / 1.3, 1 / 1.3, 1.3))
    )
    assert sure is not None
    assert unsure is not None
    assert unsure.constants[0].name is ConstantName.SUSTAINED_FRACTION
    assert unsure.constants[0].log_deviation > 3.0 * sure.constants[0].log_deviation


def test_layers_alone_judge_a_calibration_that_has_some() -> None:
    copies, layers = table_of(COPIES_OF_SIZES, {}), passes_of(MIDDLE, LARGE, times=(1.1, 1.1))
    table = replace(
        copies,
        kernels=(*copies.kernels, *layers.kernels),
        seconds=np.concatenate([copies.seconds, layers.seconds]),
    )
    answer = calibrate_kernels(table)
    assert [(kind.name, kind.num_kernels) for kind in answer.kinds] == [
        ("copies and sums", 6),
        ("layers, bf16", 4),
    ]
    assert answer.calibration.error_before_fraction == pytest.approx(1.0 - 1.0 / 1.1, rel=1e-3)
    found = found_in(answer)
    clock = found[ConstantName.SUSTAINED_FRACTION, Precision.BF16]
    assert clock.value == pytest.approx(clock.published / 1.1, rel=0.02)
    assert len(answer.warnings) == 1  # none on copies, which are as published
    held = {one.name for one in answer.held}
    assert f"{H100.id} gemm_peak_fraction" in held
    assert not {name for name in held if name.endswith(("host_launch_s", "sustained_fraction"))}


def shown(answer: CalibrationAnswer) -> list[str]:
    """The lines of an answer, with one space between words."""
    text = io.StringIO()
    show_calibration(answer, Console(file=text, width=160))
    return [" ".join(line.split()) for line in text.getvalue().splitlines()]


def test_a_constant_is_shown_with_its_change_and_a_range_for_nine_of_ten_cases() -> None:
    # Nine of ten normal deviates are within 1.645 deviations; a share is at most all.
    values = {ConstantName.MEMORY_FRACTION: 0.9, ConstantName.HOST_LAUNCH_S: 4e-5}
    constants = [
        one.model_copy(update={"published": 0.8 * one.value, "log_deviation": 0.1})
        for one in calibration_of(values).constants
    ]
    lines = shown(CalibrationAnswer(calibration=calibration_with(constants)))
    low, high = math.exp(-0.16449), math.exp(0.16449)
    assert f"{H100.id} memory_fraction 0.72 0.9 +25.0 % {0.9 * low:.3g} to 1" in lines
    assert f"host_launch_s 3.2e-05 4e-05 +25.0 % {4e-5 * low:.3g} to {4e-5 * high:.3g}" in lines


@pytest.mark.parametrize(("left_out", "colour"), [(0.09, 32), (0.11, 31)])
def test_the_first_line_is_green_if_a_calibration_helps(left_out: float, colour: int) -> None:
    errors = {"error_before_fraction": 0.1, "error_left_out_fraction": left_out}
    text = io.StringIO()
    show_calibration(
        CalibrationAnswer(calibration=calibration_of({}).model_copy(update=errors)),
        Console(file=text, width=160, force_terminal=True, color_system="standard"),
    )
    assert text.getvalue().startswith(f"\x1b[1;{colour}mCalibrated")


def test_a_layer_is_shown_with_its_software_or_format_and_both_passes() -> None:
    passes = [
        PassFit(
            measured_s=seconds,
            error_before_fraction=before,
            error_left_out_fraction=left_out,
            waits_for_host=False,
        )
        for seconds, before, left_out in ((1e-3, 0.1, 0.01), (2e-3, 0.2, -0.02))
    ]
    layers = [
        LayerFit(
            model="gpt2-xl",
            precision=precision,
            software="compiled",
            batch=2,
            sequence_length=1024,
            forward=passes[0],
            backward=passes[1],
            kept_error_fraction=error,
        )
        for precision, error in ((Precision.BF16, 0.03), (Precision.BF16, -0.01), (Precision.FP8, None))
    ]
    lines = shown(CalibrationAnswer(calibration=calibration_of({}), layers=tuple(layers)))
    cells = "1 ms +10.0 % +1.0 % 2 ms +20.0 % -2.0 %"
    assert lines.count(f"gpt2-xl 2 x 1024 compiled {cells}") == 2
    assert lines.count(f"gpt2-xl 2 x 1024 fp8 {cells}") == 1
    told = "simulated with errors of -1.0 % to +3.0 % for 2 of them."
    assert any(line.endswith(told) for line in lines)


def test_kinds_of_kernels_are_shown_as_published_as_calibrated_and_left_out() -> None:
    kind = KindFit(
        name="copies and sums",
        num_kernels=6,
        error_before_fraction=0.1,
        error_after_fraction=0.01,
        error_left_out_fraction=0.02,
    )
    lines = shown(CalibrationAnswer(calibration=calibration_of({}), kinds=(kind,)))
    assert "kernels number published calibrated left out" in lines
    assert "copies and sums 6 10.0 % 1.0 % 2.0 %" in lines


@pytest.mark.parametrize(
    ("idle_w", "loaded_w", "is_shown"), [(85.0, 640.0, True), (None, 640.0, False), (85.0, None, False)]
)
def test_power_is_shown_if_both_were_read(
    idle_w: float | None, loaded_w: float | None, is_shown: bool
) -> None:
    powers = {"idle_power_w": idle_w, "loaded_power_w": loaded_w}
    answer = CalibrationAnswer(calibration=calibration_of({}).model_copy(update=powers))
    assert ("85 W idle, 640 W during matrix products." in shown(answer)) is is_shown


def test_a_kernel_is_warmed_up_and_then_timed_long_enough() -> None:
    asked: list[int] = []

    def runs(num_runs: int) -> float:
        asked.append(num_runs)
        # One repetition is interrupted, and during one the clock is set back.
        return num_runs * 1e-3 * {4: 2.0, 5: 0.5}.get(len(asked), 1.0)

    assert time_s(runs) == pytest.approx(1e-3)
    assert asked == [1, 3, *[5] * NUM_REPETITIONS]


def test_the_shortest_kernels_run_ten_thousand_times() -> None:
    asked: list[int] = []

    def runs(num_runs: int) -> float:
        asked.append(num_runs)
        return num_runs * 1e-8

    assert time_s(runs) == pytest.approx(1e-8)
    assert max(asked) == 10_000


def test_bursts_are_a_tenth_of_the_time() -> None:
    rests: list[float] = []
    time_s(lambda num_runs: num_runs * 1e-3, rests.append)
    assert rests == pytest.approx([10.0 * 5e-3] * NUM_REPETITIONS)


def test_every_kind_of_kernel_is_in_the_grid_of_several_devices() -> None:
    single = {KernelKind.LAYER, KernelKind.LAYER_BACKWARD}
    assert {kernel.kind for kernel in grid(FakeDevice({}, num_devices=8))} == set(KernelKind) - single
    assert KernelKind.ALL_REDUCE not in {kernel.kind for kernel in grid(FakeDevice({}))}
    for number in (2, 8):
        kernels = list(grid(FakeDevice({}, num_devices=number)))
        assert {kernel.group_size for kernel in kernels} == {0, number}
        assert {kernel.batch * kernel.sequence_length for kernel in kernels} == {0, 16384}


def test_copies_and_sums_are_of_whole_16_bit_values_in_each_of_their_matrices() -> None:
    for kernel in grid(FakeDevice({})):
        matrices = {KernelKind.COPY: 2, KernelKind.ADD: 3}.get(kernel.kind, 1)
        assert kernel.num_bytes % (2 * matrices) == 0, kernel


def test_a_measured_table_reads_back_the_same(tmp_path: Path, table: KernelTable) -> None:
    file = tmp_path / "kernels.csv"
    write_kernels(table, file)
    read = read_kernels(file)
    assert read.seconds.tolist() == table.seconds.tolist()
    assert (read.kernels, read.device, read.date) == (table.kernels, table.device, table.date)
    assert (read.idle_power_w, read.loaded_power_w) == (85.0, 640.0)


def test_the_first_five_kinds_that_could_not_run_are_named() -> None:
    skipped = [
        *(Kernel(kind=kind) for kind in (KernelKind.COPY, KernelKind.COPY, KernelKind.ADD)),
        *(Kernel(kind=KernelKind.GEMM, precision=precision) for precision in (Precision.BF16, Precision.FP8)),
        *(
            Kernel(kind=KernelKind.LAYER, model=model, software=Software.EAGER)
            for model in ("gpt2-xl", "llama-3.1-8b", "llama-3.1-70b")
        ),
    ]
    (note,) = note_of_skipped(skipped)
    named = "copy bf16, add bf16, gemm bf16, gemm fp8, gpt2-xl bf16 eager and 2 more"
    assert note == f"Left out because it could not run here: {named}."
    (note,) = note_of_skipped(skipped[:6])
    assert note.endswith(", gpt2-xl bf16 eager.")
    assert list(note_of_skipped([])) == []


def test_at_most_four_layers_run_in_a_row() -> None:
    large = FakeDevice({}, memory_bytes=1e15)
    assert {number for _, number in layers_of(large)} == {4}


def test_a_device_that_does_not_tell_its_power_is_not_loaded_for_it() -> None:
    device = FakeDevice({})
    device.powers_w = iter([None])  # asked once
    table = measure(device)
    assert table.idle_power_w is table.loaded_power_w is None


def test_power_under_load_is_read_after_seconds_of_work_and_progress_counts_all_kernels_and_layers() -> None:
    class Busy(FakeDevice):
        last_s = 0.0
        last: Kernel | None = None

        def prepare(self, kernel: Kernel) -> Runs:
            seconds = self._seconds(kernel)

            def runs(num_runs: int) -> float:
                self.last, self.last_s = kernel, num_runs * seconds
                return self.last_s

            return runs

        def power_w(self) -> float | None:
            read_after_s.append(self.last_s)
            read_after.append(self.last)
            return super().power_w()

    read_after_s: list[float] = []
    read_after: list[Kernel | None] = []
    told: list[tuple[int, int]] = []
    table = measure(Busy({}), tell=lambda done, total: told.append((done, total)))
    # Two seconds, in whole products of some milliseconds: the largest.
    assert read_after == [None, Kernel(kind=KernelKind.GEMM, m=8192, n=12288, k=12288)]
    assert read_after_s == [0.0, pytest.approx(2.0, abs=0.01)]
    # A layer has two rows, forward and backward.
    num_all = sum(kernel.kind is not KernelKind.LAYER_BACKWARD for kernel in table.kernels)
    assert told == [(done, num_all) for done in range(num_all)]


class Limited(FakeDevice):
    """No forward products, and no compiler."""

    def prepare(self, kernel: Kernel) -> Runs | None:
        return None if kernel.kind is KernelKind.GEMM else super().prepare(kernel)

    def layer_times(self, layer: Kernel, num_layers: int) -> LayerTimes | None:
        is_compiled = layer.software is Software.COMPILED
        return None if is_compiled else super().layer_times(layer, num_layers)


def test_kernels_that_cannot_run_are_left_out() -> None:
    table = measure(Limited({}))
    assert KernelKind.GEMM not in {kernel.kind for kernel in table.kernels}
    assert (table.idle_power_w, table.loaded_power_w) == (85.0, None)


def test_what_could_not_run_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibration_torch, "torch_device", lambda: Limited({}))
    assert main(["calibrate", "--device", "--quiet"]) == OK
    told = " ".join(capsys.readouterr().out.split())
    assert "Left out because it could not run here: gemm bf16, gemm fp8, llama-3.2-1b bf16 compiled, " in told


def test_a_device_without_8_bits_is_measured_in_16() -> None:
    class Older(FakeDevice):
        lacking = frozenset(
            (kind, precision)
            for precision, kind in PRODUCTS
            if precision is Precision.FP8 or kind is KernelKind.ADDED_GRADIENT
        )

    answer = calibrate_kernels(measure(Older({})))
    assert {one.precision for one in answer.calibration.constants} == {None, Precision.BF16}
    assert [one.name for one in answer.held] == [f"{H100.id} weight_gradient_fraction"]


def test_too_little_memory_is_said() -> None:
    with pytest.raises(CapplanError, match=r"has 2.0 GiB of free memory, and the measurement needs 4 GiB"):
        measure(FakeDevice({}, memory_bytes=2.0 * GIB))


@pytest.mark.long
def test_a_device_is_measured_kept_and_fitted_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibration_torch, "torch_device", lambda: FakeDevice({}))
    table, out = tmp_path / "kernels.csv", tmp_path / "calibration.yaml"
    asked = ["calibrate", "--device", "--date", "2026-05-01", "--output", str(table), "--output", str(out)]
    assert main(asked) == OK
    told = capsys.readouterr()
    assert "85 W idle, 640 W during matrix products" in told.out
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
    with pytest.raises(CapplanError, match="PyTorch finds no GPU here"):
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
TINY = Kernel(
    kind=KernelKind.LAYER,
    model="gpt2-xl",
    software=Software.EAGER,
    batch=1,
    sequence_length=16,
)


def test_a_cpu_is_measured_where_pytorch_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    monkeypatch.setattr(calibration_device, "grid", lambda _device: SMALL)
    monkeypatch.setattr(calibration_device, "layers_of", lambda _device: ((TINY, 2),))
    monkeypatch.setattr(calibration_device, "TIMED_S", 1e-4)
    table = measure(TorchDevice(torch, "cpu"), date="2026-05-01")
    ways = (TINY, replace(TINY, kind=KernelKind.LAYER_BACKWARD))
    assert (table.device, table.kernels, table.idle_power_w) == ("cpu", (*SMALL, *ways), None)
    assert (table.seconds > 0.0).all()
    write_kernels(table, tmp_path / "kernels.csv")
    assert read_kernels(tmp_path / "kernels.csv").kernels == table.kernels


@pytest.mark.filterwarnings("ignore")  # PyTorch's compiler warns of PyTorch
@pytest.mark.parametrize("software", Software)
@pytest.mark.parametrize("model", ["llama-3.2-1b", "gpt2-xl"])
def test_layers_run_forward_and_backward_where_pytorch_is(
    monkeypatch: pytest.MonkeyPatch, model: str, software: Software
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    monkeypatch.setattr(calibration_torch, "WARM_S", 0.0)
    monkeypatch.setattr(calibration_torch, "LOADED_S", 0.0)
    times = TorchDevice(torch, "cpu").layer_times(replace(TINY, model=model, software=software), 1)
    assert times is not None
    assert min(times.forward_s, times.backward_s) > 0.0


def test_products_in_8_bits_are_those_in_16_but_for_rounding() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    inputs = torch.randn((2, 16, 64), dtype=torch.bfloat16).requires_grad_()
    weight = torch.randn((32, 64), dtype=torch.bfloat16).requires_grad_()
    product, exact = float8_linear(torch)(inputs, weight), torch.nn.functional.linear(inputs, weight)
    gradient = torch.randn_like(exact)
    ways = [(product, exact)]
    ways += zip(
        *(torch.autograd.grad(one, (inputs, weight), gradient) for one in (product, exact)), strict=True
    )
    for one, other in ways:
        assert 0.0 < (one - other).norm() / other.norm() < 0.1  # two of three mantissa bits


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
    inspect.signature(cuda.graph.__init__).bind("self", "graph", stream="stream")
    for named in (cuda.get_device_name, cuda.mem_get_info, cuda.power_draw):
        inspect.signature(named).bind(0)
    assert {
        "device_count",
        "empty_cache",
        "is_available",
        "memory_allocated",
        "stream",
        "synchronize",
    } <= set(dir(cuda))
