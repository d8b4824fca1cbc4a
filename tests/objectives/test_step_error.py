"""How unsure is a step, by what was compared with measurements and what was not?"""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.step_error import log_ratios_by_job, variance_parts
from objectives.input_table import LAYOUT_TIME, STEP_TIME
from objectives.unsure_inputs import step_error_of, unsure_inputs
from planner.measured.runs import compare, read_rows
from simulator.accuracy.step_error import StepError, step_error
from tests.support import H100_RENTED, job_with, plans_with


class TestStepError:
    def test_the_parts_of_a_variance_are_found_again(self) -> None:
        generator = np.random.default_rng(5)
        sizes = generator.integers(2, 12, size=3000)
        groups = [0.3 * generator.standard_normal() + 0.1 * generator.standard_normal(n) for n in sizes]
        between, within = variance_parts(groups)
        assert (math.sqrt(between), math.sqrt(within)) == pytest.approx((0.3, 0.1), rel=0.05)

    @pytest.mark.long
    def test_the_shipped_split_is_that_of_the_shipped_steps(self) -> None:
        rows = [row for row in read_rows() if not row["left_out_because"]]
        shared, own = variance_parts(log_ratios_by_job(compare(rows)))
        shipped = step_error("hopper", "bf16")
        fraction = shipped.shared_log_deviation**2 / (
            shipped.shared_log_deviation**2 + shipped.own_log_deviation**2
        )
        # The simulator may have become better since the file was written, but not so much that the split is another one.
        assert fraction == pytest.approx(shared / (shared + own), abs=0.1)

    def test_what_was_never_compared_is_less_sure_than_what_is_known_best(self) -> None:
        unknown, known = step_error("cdna", "bf16"), step_error("hopper", "bf16")
        assert unknown.ratios.below == unknown.ratios.above
        assert known.ratios.below < known.ratios.above
        assert unknown.shared_log_deviation > known.shared_log_deviation
        assert step_error("hopper", "bf16", has_experts=True).own_log_deviation > known.own_log_deviation

    def test_a_format_without_measurements_is_twice_as_unsure_as_8_bits(self) -> None:
        wide, known = (
            step_error("blackwell", precision, accelerator="gb200", is_beyond_measured=precision == "fp4")
            for precision in ("fp4", "fp8")
        )
        assert wide.interval_log_half_widths == pytest.approx(known.interval_log_half_widths.times(2.0))

    @pytest.mark.parametrize("family", ["cdna3", "tpu", "gaudi"])
    @pytest.mark.parametrize("precision", ["bf16", "fp8"])
    @pytest.mark.parametrize("has_experts", [False, True])
    def test_an_unmeasured_architecture_is_never_surer_than_a_measured_one(
        self, family: str, precision: str, has_experts: bool
    ) -> None:
        unknown = step_error(family, precision, has_experts=has_experts)
        for measured in ("ampere", "hopper", "blackwell"):
            known = step_error(measured, precision, has_experts=has_experts)
            assert unknown.interval_log_half_widths.above >= known.interval_log_half_widths.above

    @pytest.mark.parametrize(
        "relative", ["h20-sxm-96gb", "h200-sxm-141gb", "h800-sxm5-80gb", "h100-pcie-80gb"]
    )
    def test_an_unmeasured_accelerator_does_not_borrow_the_certainty_of_its_relative(
        self, relative: str
    ) -> None:
        known = step_error("hopper", "bf16", accelerator="h100-sxm5-80gb")
        unknown = step_error("hopper", "bf16", accelerator=relative)
        assert unknown.interval_log_half_widths.above > known.interval_log_half_widths.above
        assert (
            unknown.interval_log_half_widths.above
            >= step_error("ampere", "bf16").interval_log_half_widths.above
        )

    def test_one_of_ten_drawn_steps_lies_on_either_side_of_its_interval(self) -> None:
        job = job_with({**H100_RENTED, "num_gpus": 16})
        plans = plans_with({"tensor_parallel": 2, "num_gpus": 16})
        inputs, generator = unsure_inputs(job, plans), np.random.default_rng(1)
        shared, own = (
            inputs[name].factors(lambda _: generator.standard_normal(100_000))[:, 0]
            for name in (STEP_TIME, LAYOUT_TIME)
        )
        ratios = shared * own
        below, above = step_error_of(job, plans, 0).interval_log_half_widths
        assert above > 1.5 * below
        assert np.mean(ratios < math.exp(-below)) == pytest.approx(0.1, abs=0.01)
        assert np.mean(ratios > math.exp(above)) == pytest.approx(0.1, abs=0.01)

    def test_either_side_reaches_as_far_as_asked(self) -> None:
        error = StepError(shared_log_deviation=0.03, own_log_deviation=0.04)
        below, above = error.at_least(1.2 * error.interval_log_half_widths.below).interval_log_half_widths
        assert below == pytest.approx(1.2 * error.interval_log_half_widths.below)
        assert above == error.interval_log_half_widths.above
