"""Do lines of operators find what made the samples, and what accelerators that they have not seen take?"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.deep.traced_steps.division import kept_in_proportion, moved, with_batch
from simulator.deep.traced_steps.operator_model import (
    Driver,
    OperatorModel,
    OperatorSamples,
    Rates,
    fit_operators,
    on_accelerator,
    ratios,
    samples_of,
    seconds,
)
from simulator.deep.traces.trace import Category, OperatorTrace, Phase
from simulator.deep.traces.trace_build import OperatorRecord, TensorRecord, build_trace
from simulator.errors import InputError
from tests.simulator.deep.traces import measured

KERNELS = Path(__file__).parents[2] / "data" / "measured_kernels.csv"
SYSTEMS = ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm")


def made_of(driver: Driver, slope: float, intercept: float) -> OperatorSamples:
    """Samples on a line of one driver; the other sizes are noise."""
    draw = np.random.default_rng(1)
    sizes = draw.uniform(1e6, 1e9, (20, 3))
    return OperatorSamples(names=("op",) * 20, sizes=sizes, seconds=slope * sizes[:, driver.code] + intercept)


def products(system: str) -> tuple[Rates, OperatorSamples]:
    """Matrix products in bf16 that were measured on one system."""
    with KERNELS.open(encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["kind"], row["dtype"], row["system"]) == ("gemm", "bf16", system)
        ]
    m, n, k = (np.array([float(row[column]) for row in rows]) for column in "mnk")
    sizes = np.stack([2 * m * n * k, 2 * (m * k + k * n), 2 * m * n], axis=1)
    took_s = np.array([float(row["seconds"]) for row in rows])
    rates = Rates(
        flop_per_s=float(rows[0]["peak_flop_per_s"]), memory_bytes_per_s=float(rows[0]["memory_bytes_per_s"])
    )
    return rates, OperatorSamples(names=("gemm",) * len(rows), sizes=sizes, seconds=took_s)


def identical_layers() -> OperatorTrace:
    """Two layers of one size, whose weight is larger than what they read and make; a batch of 32."""
    activations = [TensorRecord(id=f"activation {number}", num_bytes=64e6) for number in range(3)]
    weights = [
        TensorRecord(id=f"weight {number}", num_bytes=128e6, category=Category.PARAMETER)
        for number in range(2)
    ]
    operators = [
        OperatorRecord(
            name="linear",
            phase=Phase.FORWARD,
            duration_s=4e-3,
            inputs=(f"activation {number}", f"weight {number}"),
            outputs=(f"activation {number + 1}",),
        )
        for number in range(2)
    ]
    return build_trace("alike", batch_size=32, tensors=activations + weights, operators=operators)


def mean_error(model: OperatorModel, samples: OperatorSamples) -> float:
    predicted = seconds(model, samples.names, samples.sizes)
    return float(np.mean(np.abs(predicted / samples.seconds - 1.0)))


class TestFit:
    @pytest.mark.parametrize("driver", Driver)
    @pytest.mark.parametrize(("slope", "intercept"), [(1e-12, 5e-6), (3e-15, 0.0), (0.0, 2e-5)])
    def test_the_line_that_made_the_samples_is_found(
        self, driver: Driver, slope: float, intercept: float
    ) -> None:
        line = fit_operators([made_of(driver, slope, intercept)])["op"]
        assert line.slope_s == pytest.approx(slope, abs=1e-20)
        assert line.intercept_s == pytest.approx(intercept, abs=1e-12)
        assert line.error_fraction == pytest.approx(0.0, abs=1e-9)
        if slope:
            assert line.driver is driver

    def test_one_size_says_nothing_about_an_intercept(self) -> None:
        samples = OperatorSamples(
            names=("op", "op"), sizes=np.array([[0.0, 4.0, 2.0]] * 2), seconds=np.array([1.0, 1.0])
        )
        line = fit_operators([samples])["op"]
        assert (line.driver, line.intercept_s) == (Driver.INPUT, 0.0)
        assert line.seconds(np.array([[0.0, 8.0, 4.0]])).tolist() == pytest.approx([2.0])

    @pytest.mark.parametrize("num_samples", [16, 64])
    def test_identical_layers_take_time_in_proportion_and_are_named(self, num_samples: int) -> None:
        trace = identical_layers()
        model = fit_operators([samples_of(trace)])
        fitted = with_batch(trace, num_samples, model)
        assert fitted.duration_s == pytest.approx(trace.duration_s * num_samples / 32)
        assert kept_in_proportion(trace, num_samples, model) == ("linear",)

    def test_what_a_line_predicts_is_not_kept_in_proportion(self) -> None:
        trace = identical_layers()
        samples = samples_of(trace)
        longer = replace(samples, sizes=2.0 * samples.sizes, seconds=1.5 * samples.seconds)
        model = fit_operators([samples, longer])
        assert kept_in_proportion(trace, 64, model) == ()

    def test_of_drivers_that_fit_as_well_the_one_that_the_batch_changes_counts(self) -> None:
        sizes = np.array([[0.0, 4.0, 4.0], [0.0, 8.0, 8.0]])
        model = fit_operators([OperatorSamples(names=("op",) * 2, sizes=sizes, seconds=np.array([1.0, 2.0]))])
        larger = np.array([[0.0, 4.0, 8.0], [0.0, 8.0, 16.0]])
        assert ratios(model, ["op"] * 2, sizes, larger) == pytest.approx([2.0, 2.0])

    def test_an_operator_of_no_size_takes_its_mean(self) -> None:
        samples = OperatorSamples(names=("op",), sizes=np.zeros((1, 3)), seconds=np.array([3.0]))
        assert fit_operators([samples])["op"].seconds(np.zeros((1, 3))).tolist() == pytest.approx([3.0])

    def test_classes_are_fitted_apart_and_those_without_time_left_out(self) -> None:
        samples = OperatorSamples(
            names=("a", "b", "c"), sizes=np.full((3, 3), 2.0), seconds=np.array([1.0, 2.0, 0.0])
        )
        model = fit_operators([samples])
        assert sorted(model) == ["a", "b"]
        assert np.isnan(seconds(model, ["c"], np.ones((1, 3)))).all()

    def test_no_samples_make_no_model(self) -> None:
        assert fit_operators([]) == {}


class TestLargerBatch:
    def test_the_same_model_was_read_from_a_profile_and_from_triosims_tracer(self) -> None:
        # Written down by `read_profiled` from a profile with a batch of 512, and from TrioSim's trace with one of 128.
        profiled, traced = measured("vgg13-batch512"), measured("vgg13")
        assert Counter(profiled.names) == Counter(traced.names)
        assert profiled.num_flop.sum() == pytest.approx(4 * traced.num_flop.sum())
        ready = [trace.gradient_ready[trace.parameters].tolist() for trace in (profiled, traced)]
        assert ready[0] == ready[1]

    def test_another_batch_is_predicted(self) -> None:
        # Measured: +5.5 and -4.1 % in proportion, +4.5 and +1.1 % by lines; TrioSim's rule has +8.6 and -7.9 %.
        both = measured("vgg13"), measured("vgg13-batch512")
        for known, other in (both, both[::-1]):
            model = fit_operators([samples_of(known)])
            proportional = with_batch(known, other.batch_size).single_device_s / other.single_device_s
            fitted = with_batch(known, other.batch_size, model).single_device_s / other.single_device_s
            assert abs(proportional - 1) < 0.06
            assert abs(fitted - 1) < 0.05


class TestOtherNetwork:
    def test_element_wise_operators_of_one_network_predict_another(self) -> None:
        # From VGG-13 to ResNet-50 on the same H100; convolutions of other shapes run other kernels and are not so good.
        model, samples = fit_operators([samples_of(measured("vgg13"))]), samples_of(measured("resnet50"))
        predicted = seconds(model, samples.names, samples.sizes)
        for name in ("aten::relu_", "autograd::engine::evaluate_function: ReluBackward0"):
            rows = [row for row, other in enumerate(samples.names) if other == name]
            assert predicted[rows].sum() == pytest.approx(samples.seconds[rows].sum(), rel=0.05)


class TestOtherAccelerator:
    def test_slopes_follow_the_rate_and_intercepts_stay(self) -> None:
        known = [
            (
                Rates(flop_per_s=1e12 * speed, memory_bytes_per_s=1e12),
                fit_operators([made_of(Driver.OPERATIONS, 1e-12 / speed, 5e-6)]),
            )
            for speed in (1.0, 2.0, 5.0)
        ]
        line = on_accelerator(known, Rates(flop_per_s=8e12, memory_bytes_per_s=9e12))["op"]
        assert line.slope_s == pytest.approx(1e-12 / 8)
        assert line.intercept_s == pytest.approx(5e-6)

    @pytest.mark.parametrize(
        ("driver", "factor"), [(Driver.OPERATIONS, 2.0), (Driver.INPUT, 3.0), (Driver.OUTPUT, 3.0)]
    )
    def test_one_known_accelerator_is_scaled_by_the_rate_of_its_driver(
        self, driver: Driver, factor: float
    ) -> None:
        known = [
            (Rates(flop_per_s=1.0, memory_bytes_per_s=1.0), fit_operators([made_of(driver, 1e-12, 0.0)]))
        ]
        line = on_accelerator(known, Rates(flop_per_s=2.0, memory_bytes_per_s=3.0))["op"]
        assert line.slope_s == pytest.approx(1e-12 / factor)

    @pytest.mark.parametrize("left_out", SYSTEMS)
    def test_matrix_products_on_an_accelerator_that_was_left_out(self, left_out: str) -> None:
        # Measured: 19.5, 21.6, 14.7 and 27.3 % on average; a line fitted to the accelerator itself has 10 to 20 %.
        parts = {system: products(system) for system in SYSTEMS}
        known = [
            (rates, fit_operators([samples]))
            for system, (rates, samples) in parts.items()
            if system != left_out
        ]
        rates, samples = parts[left_out]
        assert mean_error(on_accelerator(known, rates), samples) < 0.30

    def test_a_rate_must_be_above_zero(self) -> None:
        known = [(Rates(flop_per_s=1.0, memory_bytes_per_s=0.0), fit_operators([]))]
        with pytest.raises(InputError, match="needs at least one known accelerator, and rates above 0"):
            on_accelerator(known, Rates(flop_per_s=1.0, memory_bytes_per_s=1.0))
        with pytest.raises(InputError, match="needs at least one known accelerator"):
            on_accelerator([], Rates(flop_per_s=1.0, memory_bytes_per_s=1.0))


class TestTraces:
    def test_operations_are_counted_from_shapes(self, small: OperatorTrace) -> None:
        # Weights of 8 x 16 and 16 x 16: each of 128 and 256 outputs is made of 16 inputs. Backward is twice that.
        assert small.num_flop[[0, 2]].tolist() == [2 * 128 * 16, 2 * 256 * 16]
        assert small.num_flop[[7, 5]].tolist() == [4 * 128 * 16, 4 * 256 * 16]
        assert small.num_flop[[1, 3, 8]].tolist() == [0.0, 0.0, 0.0]

    def test_operations_of_the_measured_traces(self) -> None:
        # Multiply-adds of torchvision's models at 224 x 224: 11.308 and 4.089 billion an image, here 128 images,
        # forward, and twice that backward.
        for name, multiply_adds in (("vgg13", 11.308e9), ("resnet50", 4.089e9)):
            trace = measured(name)
            assert trace.num_flop.sum() == pytest.approx(3 * 2 * multiply_adds * 128, rel=2e-3)

    def test_intercepts_do_not_grow_with_the_batch(self, small: OperatorTrace) -> None:
        model = fit_operators([samples_of(small)])
        larger = with_batch(small, 32, model)
        proportional = with_batch(small, 32)
        assert (larger.duration_s <= proportional.duration_s * (1 + 1e-12)).all()
        assert larger.duration_s[-1] == small.duration_s[-1]  # the optimizer
        same = with_batch(small, 16, model)
        assert same.duration_s == pytest.approx(small.duration_s)

    def test_another_accelerator_changes_times_by_what_drives_them(self, small: OperatorTrace) -> None:
        twice = moved(
            small,
            Rates(flop_per_s=1.0, memory_bytes_per_s=1.0),
            Rates(flop_per_s=2.0, memory_bytes_per_s=2.0),
        )
        model = fit_operators([samples_of(small)])
        intercepts = np.array([model[name].intercept_s for name in small.names])
        expected = seconds(model, small.names, samples_of(small).sizes)
        ratio = ((expected - intercepts) / 2 + intercepts) / expected
        assert twice.duration_s == pytest.approx(small.duration_s * ratio)
