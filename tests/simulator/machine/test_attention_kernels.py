"""How fast is fused attention backward, by its kernel, the width of its heads, and a calibration?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.calibration_example import true_calibration
from simulator import catalog
from simulator.domain.calibration import CalibratedConstant, ConstantName
from simulator.domain.choices import AttentionKernel
from simulator.domain.model import ModelShape
from simulator.layers.attention_costs import attention_core_s
from simulator.machine.attention_kernels import (
    backward_width_ratio,
    with_attention_kernel,
    with_backward_ratio,
    with_first_flash,
    with_head_width,
)
from simulator.machine.compute import attention_time_s, kernel_constants
from simulator.machine.rank import Rank
from tests.simulator.builders import A100, H100, changed, gpt, job_of, plan_of, rented, table_of, training

V100 = "v100-sxm2-32gb"


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


def fraction(rank: Rank) -> float:
    return float(rank.kernels.attention_backward_fraction[0])


def backward_s(rank: Rank) -> float:
    return float(attention_core_s(rank)[1][0])


@pytest.mark.parametrize(
    ("family", "widths", "num_heads", "sequence_length", "forward_ms", "backward_ms"),
    [
        # SimuMax (v1.2, system files): operator tables of A100 and B200, from their shares of the peak
        ("ampere", (192, 128), 64, 4096, 1 / 1.0544, 2.5 / 0.7943),
        ("blackwell", (192, 128), 128, 4096, 1 / 0.8306, 2.5 / 0.6426),
        # deepseek-ai/FlashMLA, pull request 193, B200
        ("blackwell", (192, 128), 256, 8192, 5.700, 22.357),
        # NVIDIA/cudnn-frontend, benchmark of training: cuDNN on H200 and GB200 (9.27, 9.22), FlashAttention-2 on A100
        ("hopper", (192, 128), 256, 8192, 8.588, 28.563),
        ("gb200", (192, 128), 256, 8192, 3.470, 11.984),
        ("ampere", (256, 256), 32, 8192, 5.692, 20.126),
        ("hopper", (256, 256), 32, 8192, 1.595, 6.998),
        ("gb200", (256, 256), 32, 8192, 0.630, 2.636),
        # Dao-AILab/flash-attention, pull request 2688: FlashAttention-2 on H100, heads of 64, 310.20 and 299.23 TFLOP/s
        ("hopper", (64, 64), 64, 8192, 1 / 310.20, 2.5 / 299.23),
    ],
)
def test_backward_over_forward_is_as_published_by_the_width_of_heads(
    family: str,
    widths: tuple[int, int],
    num_heads: int,
    sequence_length: int,
    forward_ms: float,
    backward_ms: float,
) -> None:
    constants = with_head_width(kernel_constants([family], ["bf16"]), "flash", [family], widths[0])
    forward_s, computed_s = (
        attention_time_s(
            tokens=float(sequence_length),
            sequence_length=float(sequence_length),
            num_heads=float(num_heads),  # of all sequences, which count as heads do
            head_dim=sum(widths) / 2.0,
            bf16_flop_per_s=1e15,
            constants=constants,
            backward=is_backward,
        )[0]
        for is_backward in (False, True)
    )
    # Kernels of one width are up to a quarter apart: heads of 256 have 0.71 on A100, 0.47 to 0.55 on H200.
    assert computed_s / forward_s == pytest.approx(backward_ms / forward_ms, rel=0.25)


@pytest.mark.parametrize(
    ("chip", "attention", "tokens", "forward", "backward"),
    [
        # HazyResearch/HipKittens, analysis/attn, TFLOP/s: AITER's and PyTorch's kernels, 16 sequences of 16 heads
        ("mi355x", "flash", 2048, 876.3, 673.1),
        ("mi355x", "flash", 4096, 1069.0, 876.8),
        ("mi355x", "flash", 8192, 1173.2, 1034.1),
        ("mi355x", "flash", 16384, 1247.4, 1108.7),
        ("mi355x", "flash-2", 8192, 630.4, 224.0),
        ("mi355x", "flash-2", 16384, 761.6, 259.1),
        # midiareshadi.github.io/blog/attn-dsl-bench (2026), forward only
        ("mi300x", "flash", 16384, 494.0, None),
        ("mi300x", "flash-2", 16384, 307.0, None),
    ],
)
def test_attention_on_amd_is_as_fast_as_published(
    chip: str, attention: AttentionKernel, tokens: int, forward: float, backward: float | None
) -> None:
    accelerator = catalog.accelerator(chip)
    constants = with_attention_kernel(
        kernel_constants(
            [accelerator.family], ["bf16"], ceiling_fractions=accelerator.matmul_ceiling_fraction
        ),
        attention,
        [accelerator.family],
        first_flash_fraction=0.5,
    )
    for measured, is_backward in ((forward, False), (backward, True)):
        if measured is None:
            continue
        computed_s = attention_time_s(
            tokens=16.0 * tokens,
            sequence_length=float(tokens),
            num_heads=16.0,
            head_dim=128.0,
            bf16_flop_per_s=accelerator.bf16_flop_per_s,
            constants=constants,
            backward=is_backward,
        )[0]
        flop = 2.0 * 16 * 16 * 128 * tokens**2 * (2.5 if is_backward else 1.0)
        # Hopper's constants, scaled by the products of the chip: attention on A100 and B200 is 10 % off with them.
        assert flop / computed_s / 1e12 == pytest.approx(measured, rel=0.15)


def test_wider_heads_are_slower_backward_and_the_ends_hold() -> None:
    ratios = backward_width_ratio(np.arange(16, 513).astype(float))
    assert np.all(np.diff(ratios) <= 0.0)
    assert backward_width_ratio(128.0) == 1.0
    assert backward_width_ratio(16.0) == backward_width_ratio(64.0)
    assert backward_width_ratio(512.0) == backward_width_ratio(256.0)
    assert backward_width_ratio(96.0) == pytest.approx((backward_width_ratio(64.0) + 1.0) / 2.0)


def test_latent_attention_counts_by_its_keys() -> None:
    # DeepSeek-V3: queries and keys of 192, values of 128
    latent = rank_of(model=catalog.model("deepseek-v3"))
    assert latent.workload.model.attention_dims == (192, 128)
    assert fraction(latent) == pytest.approx(0.73)


@pytest.mark.parametrize(("attention", "chip"), [("flash-1", H100), ("flash-1", A100), ("flash", V100)])
def test_the_first_flash_attention_is_as_fast_backward_with_any_width(
    attention: AttentionKernel, chip: str
) -> None:
    fractions = {fraction(rank_of(attention, of_width(head_dim), chip=chip)) for head_dim in (64, 256)}
    assert len(fractions) == 1


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


def test_backward_is_at_most_as_fast_as_forward() -> None:
    constants = replace(kernel_constants(["hopper"], ["bf16"]), attention_backward_fraction=np.array([0.98]))
    assert with_backward_ratio(constants, backward_width_ratio(64.0)).attention_backward_fraction == 1.0


def test_the_first_flash_attention_is_as_fast_as_today_with_narrow_heads_and_slower_with_wide_ones() -> None:
    # Today's peak P is reached as P / (1 + 38 / d) with heads of d; the first kernel has half of P at most.
    today = kernel_constants(["hopper"], ["bf16"])
    assert today.attention_ramp_head_dim == 38.0
    for head_dim, share in ((19.0, 1 / 3), (38.0, 1 / 2), (128.0, 1 / 2)):
        first = with_first_flash(today, 0.5, head_dim=head_dim)
        assert first.attention_peak_fraction == pytest.approx(share * today.attention_peak_fraction)
        assert first.attention_ramp_head_dim == 0.0
