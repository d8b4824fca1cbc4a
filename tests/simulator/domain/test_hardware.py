"""Does a chip compute what its vendor says that it computes?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator import catalog
from simulator.catalog import Kind
from simulator.domain.hardware import Accelerator, Precision
from simulator.simulate import simulate
from tests.simulator.builders import job_of, plan_of, rented, table_of, training

V100 = "v100-sxm2-32gb"


class TestNumberFormats:
    def test_v100_has_tensor_cores_for_fp16_only(self) -> None:
        # NVIDIA's V100 white paper (WP-08608-001): 125 TFLOP/s of mixed precision in fp16; bf16, fp8 and fp4 came later.
        chip = catalog.accelerator(V100)
        peaks = {precision: chip.peak_flop_per_s(precision) for precision in Precision}
        assert peaks == {
            Precision.FP16: 125e12,
            Precision.BF16: None,
            Precision.FP8: None,
            Precision.FP4: None,
        }

    @pytest.mark.parametrize(
        "name", [name for name in catalog.names(Kind.ACCELERATORS) if not name.startswith("v100")]
    )
    def test_every_other_chip_computes_both_formats_of_16_bits_at_one_rate(self, name: str) -> None:
        chip = catalog.accelerator(name)
        assert chip.peak_flop_per_s(Precision.BF16) == chip.peak_flop_per_s(Precision.FP16) is not None

    def test_a_step_on_v100_has_a_length_in_fp16_and_none_in_bf16(self) -> None:
        job = job_of(training("gpt-neox-20b", global_batch_size=64), rented(V100))
        steps = {
            precision: simulate(job, table_of(plan_of(tensor=8, pipeline=4, precision=precision))).steps
            for precision in (Precision.FP16, Precision.BF16)
        }
        assert np.isnan(steps[Precision.BF16].step_time_s).all()
        model_flop = job.workload.model.model_flop_per_token(4096) * job.workload.tokens_per_step
        mfu = model_flop / (steps[Precision.FP16].step_time_s[0] * 32 * 125e12)
        assert 0.2 < mfu < 0.6  # Megatron-LM on V100: 30 % of 125 TFLOP/s for 8.3 billion (arXiv 1909.08053)


def test_architectures_are_known_in_capital_letters_too() -> None:
    chip = catalog.accelerator("h100-sxm5-80gb")
    assert Accelerator.model_validate(chip.model_dump() | {"family": "Hopper"}) == chip
