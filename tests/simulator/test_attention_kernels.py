"""How fast is fused attention backward, by its kernel and a calibration?"""

from __future__ import annotations

import pytest

from benchmarks.calibration_example import true_calibration
from simulator.attention_costs import attention_core_s
from simulator.calibration import CalibratedConstant, ConstantName
from simulator.model import AttentionKernel, ModelShape
from simulator.rank import Rank
from tests.simulator.builders import H100, changed, gpt, job_of, plan_of, rented, table_of, training


def rank_of(
    attention: AttentionKernel = "flash",
    model: ModelShape | None = None,
    *,
    chip: str = H100,
    calibrated: float | None = None,
) -> Rank:
    """A rank of a long sequence, with the speed backward over forward of a calibration where one is given."""
    shape = model or gpt(hidden_size=2048, num_heads=16)
    job = job_of(changed(training(shape, sequence_length=32_768), attention=attention), rented(chip))
    if calibrated is not None:
        constant = CalibratedConstant(
            name=ConstantName.ATTENTION_BACKWARD_FRACTION,
            accelerator=chip,
            value=calibrated,
            published=0.86,
            log_deviation=0.1,
        )
        calibration = true_calibration().model_copy(update={"constants": (constant,)})
        job = job.model_copy(update={"calibration": calibration})
    return Rank.of(job, table_of(plan_of()))


def of_width(head_dim: int) -> ModelShape:
    return gpt(hidden_size=2048, num_heads=2048 // head_dim)


def backward_s(rank: Rank) -> float:
    return float(attention_core_s(rank)[1][0])


@pytest.mark.parametrize("attention", ["flash", "flash-2", "flash-1"])
@pytest.mark.parametrize("head_dim", [64, 256])
def test_a_calibration_scales_the_backward_pass_of_every_fused_kernel(
    attention: AttentionKernel, head_dim: int
) -> None:
    half, quarter = (
        backward_s(rank_of(attention, of_width(head_dim), calibrated=value)) for value in (0.5, 0.25)
    )
    assert quarter / half == pytest.approx(2.0, rel=1e-3)  # launches are no longer


def test_the_first_flash_attention_of_a_calibrated_cluster_is_behind_today_as_published() -> None:
    calibrated, published = (rank_of("flash-1", calibrated=value) for value in (0.43, None))
    assert backward_s(calibrated) / backward_s(published) == pytest.approx(2.0, rel=1e-3)
