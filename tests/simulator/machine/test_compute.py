"""Do operators take what was measured, and never less than the roofline allows?

`tests/data/measured_kernels.csv` holds shapes that no fit has seen: every fifth of each table was held out,
and an even sample of those is carried here.
"""

from __future__ import annotations

import csv
import re
from importlib import resources
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import catalog
from simulator.domain.choices import AttentionKernel
from simulator.machine.compute import (
    DEFAULT_FAMILY,
    SEPARATE_KERNELS,
    KernelConstants,
    attention_time_s,
    gemm_time_s,
    has_measured_kernels,
    kernel_constants,
    kernels_of,
    memory_bound_time_s,
    unfused_attention_time_s,
)
from simulator.table import Floats

MEASURED = Path(__file__).parents[2] / "data" / "measured_kernels.csv"
ELEMENT_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp4": 9.0 / 16.0}
SAMPLE_SCATTER = 1.3
"""The mean error of 25 to 30 shapes scatters by a quarter around that of all held-out shapes."""

H100_FLOP_PER_S, H100_BYTES_PER_S = 989.4e12, 3.35e12
A100_FLOP_PER_S = 312e12

FAMILIES = st.sampled_from(["ampere", "hopper", "blackwell", DEFAULT_FAMILY])
FORMATS = st.sampled_from(["fp16", "bf16", "fp8"])
SIZES = st.integers(16, 60_000).map(float)


def measured_rows(kind: str, family: str, dtype: str) -> list[dict[str, str]]:
    with MEASURED.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == kind]
    return [row for row in rows if (row["family"], row["dtype"]) == (family, dtype)]


def shipped_rows() -> list[dict[str, str]]:
    text = resources.files("simulator").joinpath("data/kernel_efficiency.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def held_out_mean(family: str, dtype: str, constant: str) -> float:
    """The mean held-out error that the shipped file states."""
    key = (family, dtype, constant)
    row = next(row for row in shipped_rows() if (row["family"], row["dtype"], row["constant"]) == key)
    stated = re.match(r"held out: mean ([\d.]+)%", row["error"])
    assert stated is not None, row
    return float(stated[1]) / 100.0


def table_casts_s(rows: list[dict[str, str]]) -> Floats:
    """What the cast of an input takes in the tables beside its bytes and a launch; nothing in 16 bits."""
    return of_tables(rows, "table_cast_s", np.zeros(len(rows)))


def of_tables(rows: list[dict[str, str]], constant: str, default: Floats) -> Floats:
    """A constant that holds for the tables alone."""
    shipped = [row for row in shipped_rows() if row["constant"] == constant]
    known = {(row["family"], row["dtype"]): float(row["value"]) for row in shipped}
    pairs = zip(rows, default, strict=True)
    return np.array([known.get((row["family"], row["dtype"]), value) for row, value in pairs])


def column(rows: list[dict[str, str]], name: str) -> Floats:
    return np.array([float(row[name]) for row in rows])


def gemm_s(rows: list[dict[str, str]]) -> Floats:
    """Seconds as the tables time them: 8-bit products include the cast of their left input."""
    constants = kernel_constants([row["family"] for row in rows], [row["dtype"] for row in rows])
    m, k, bandwidth = (column(rows, name) for name in ("m", "k", "memory_bytes_per_s"))
    product_s = gemm_time_s(
        m=m,
        n=column(rows, "n"),
        k=k,
        bytes_per_element=np.array([ELEMENT_BYTES[row["dtype"]] for row in rows]),
        peak_flop_per_s=column(rows, "peak_flop_per_s"),
        memory_bytes_per_s=bandwidth,
        constants=constants,
    )
    width = of_tables(rows, "table_cast_bytes_per_element", constants.cast_bytes_per_element)
    cast_bytes = width * m * k
    cast_s = memory_bound_time_s(num_bytes=cast_bytes, memory_bytes_per_s=bandwidth, constants=constants)
    return product_s + np.where(cast_bytes > 0, cast_s, 0.0) + table_casts_s(rows)


def h100_gemm_s(m: float, n: float, k: float, constants: KernelConstants) -> float:
    return float(
        gemm_time_s(
            m=m,
            n=n,
            k=k,
            bytes_per_element=2.0,
            peak_flop_per_s=H100_FLOP_PER_S,
            memory_bytes_per_s=H100_BYTES_PER_S,
            constants=constants,
        )[0]
    )


@pytest.mark.parametrize(
    ("family", "dtype"),
    [("ampere", "bf16"), *product(["hopper", "blackwell", "gb200", "b300", "gb300"], ["bf16", "fp8"])]
    + [(name, "fp4") for name in ("blackwell", "gb200", "b300", "gb300")],
)
def test_matrix_products_meet_held_out_measurements_as_well_as_the_shipped_file_says(
    family: str, dtype: str
) -> None:
    rows = measured_rows("gemm", family, dtype)
    errors = np.abs(gemm_s(rows) / column(rows, "seconds") - 1.0)
    assert errors.mean() < SAMPLE_SCATTER * held_out_mean(family, dtype, "gemm_peak_fraction")


@pytest.mark.parametrize("family", ["hopper", "ampere", "blackwell", "gb200", "b300", "gb300"])
def test_flash_attention_meets_held_out_measurements_as_well_as_the_shipped_file_says(family: str) -> None:
    rows = measured_rows("attention", family, "bf16")
    predicted_s = attention_time_s(
        tokens=column(rows, "tokens"),
        sequence_length=column(rows, "sequence_length"),
        num_heads=column(rows, "num_heads"),
        head_dim=column(rows, "head_dim"),
        bf16_flop_per_s=column(rows, "peak_flop_per_s"),
        constants=kernel_constants([family] * len(rows), ["bf16"] * len(rows)),
    )
    errors = np.abs(predicted_s / column(rows, "seconds") - 1.0)
    assert errors.mean() < SAMPLE_SCATTER * held_out_mean(family, "bf16", "attention_peak_fraction")


@pytest.mark.parametrize(
    ("num_heads", "published"), [(64.0, 0.85), (32.0, 0.86), (16.0, 0.89), (8.0, 0.97), (4.0, 1.31)]
)
def test_few_heads_slow_the_backward_of_flash_attention_down_less(num_heads: float, published: float) -> None:
    # SimuMax, operator table of an A100: speed backward over forward, one sequence of 4,096 tokens, heads of 128.
    forward_s, backward_s = (
        attention_time_s(
            tokens=4096.0,
            sequence_length=4096.0,
            num_heads=num_heads,
            head_dim=128.0,
            bf16_flop_per_s=A100_FLOP_PER_S,
            constants=kernel_constants(["ampere"], ["bf16"]),
            backward=is_backward,
        )[0]
        for is_backward in (False, True)
    )
    assert 2.5 * forward_s / backward_s == pytest.approx(published, rel=0.13)


def test_an_accelerator_has_its_own_kernels_where_they_were_measured_and_else_those_of_its_architecture() -> (
    None
):
    names = {"gb300": "gb300", "b200-sxm-180gb": "blackwell", "h200-sxm-141gb": "hopper"}
    assert {name: kernels_of(catalog.accelerator(name)) for name in names} == names


def test_a_successor_that_nobody_measured_has_the_kernels_of_its_predecessor_and_counts_as_unmeasured() -> (
    None
):
    successor, predecessor = (catalog.accelerator(name) for name in ("vr200", "b200-sxm-180gb"))
    assert kernels_of(successor) == kernels_of(predecessor) == "blackwell"
    assert has_measured_kernels(predecessor)
    assert not has_measured_kernels(successor)


@given(m=SIZES, n=SIZES, k=SIZES, family=FAMILIES, dtype=FORMATS, is_gradient=st.booleans())
def test_no_matrix_product_beats_the_roofline(
    m: float, n: float, k: float, family: str, dtype: str, is_gradient: bool
) -> None:
    time_s = gemm_time_s(
        m=m,
        n=n,
        k=k,
        bytes_per_element=1.0,
        peak_flop_per_s=H100_FLOP_PER_S,
        memory_bytes_per_s=H100_BYTES_PER_S,
        constants=kernel_constants([family], [dtype]),
        weight_gradient=is_gradient,
    )
    # The least traffic: both inputs in 8 bits are read, a 16-bit output is written.
    moved_bytes = m * k + k * n + 2.0 * m * n
    assert time_s[0] > max(2.0 * m * n * k / H100_FLOP_PER_S, moved_bytes / H100_BYTES_PER_S)


@given(
    sizes=st.tuples(SIZES, SIZES, SIZES),
    growth=st.floats(1.0, 10.0),
    family=FAMILIES,
    dtype=FORMATS,
    axis=st.integers(0, 2),
)
def test_a_larger_matrix_product_never_takes_less_time(
    sizes: tuple[float, float, float], growth: float, family: str, dtype: str, axis: int
) -> None:
    m, n, k = sizes
    constants = kernel_constants([family], [dtype])
    factors = [growth if at == axis else 1.0 for at in range(3)]
    larger_s = h100_gemm_s(m * factors[0], n * factors[1], k * factors[2], constants)
    # Growth by the last bit of a number may round either way.
    assert larger_s >= h100_gemm_s(m, n, k, constants) * (1.0 - 1e-12)


@given(
    sequence_length=st.integers(64, 131_072).map(float),
    num_heads=st.integers(1, 128).map(float),
    head_dim=st.sampled_from([64.0, 128.0, 192.0, 256.0]),
    family=FAMILIES,
    is_backward=st.booleans(),
    growth=st.floats(1.0, 8.0),
)
def test_flash_attention_never_beats_the_peak_and_grows_with_the_sequence(
    sequence_length: float, num_heads: float, head_dim: float, family: str, is_backward: bool, growth: float
) -> None:
    def time_s(length: float) -> float:
        return float(
            attention_time_s(
                tokens=length,
                sequence_length=length,
                num_heads=num_heads,
                head_dim=head_dim,
                bf16_flop_per_s=A100_FLOP_PER_S,
                constants=kernel_constants([family], ["bf16"]),
                backward=is_backward,
            )[0]
        )

    # FlashAttention-2: 4 s^2 d per head, half when causal, 2.5 times as much backward.
    flop = 2.0 * sequence_length**2 * num_heads * head_dim * (2.5 if is_backward else 1.0)
    assert time_s(sequence_length) > flop / A100_FLOP_PER_S
    # Growth by the last bit of a number may round either way.
    assert time_s(sequence_length * growth) >= time_s(sequence_length) * (1.0 - 1e-12)


def test_a_huge_matrix_product_reaches_the_published_ceiling_within_the_held_out_error() -> None:
    # Bekman, maximum achievable matmul FLOPS: 794.5 of 989.4 TFLOP/s on H100 SXM, the best of many shapes.
    # The fit goes through the middle of shapes, so it must stay below and within its mean error of 6.6 %.
    time_s = h100_gemm_s(16384.0, 16384.0, 16384.0, kernel_constants(["hopper"], ["bf16"]))
    reached = 2.0 * 16384.0**3 / time_s
    assert 0.93 * 794.5e12 < reached < 794.5e12


def test_gradients_of_weights_are_slower_than_forward_products_as_was_measured() -> None:
    # SimuMax on A100: 0.62-0.72 of the peak against 0.74-0.79 forward and by input.
    constants = kernel_constants(["ampere"], ["bf16"])
    forward_s, gradient_s = (
        gemm_time_s(
            m=16384.0,
            n=16384.0,
            k=16384.0,
            bytes_per_element=2.0,
            peak_flop_per_s=312e12,
            memory_bytes_per_s=2.039e12,
            constants=constants,
            weight_gradient=is_gradient,
        )
        for is_gradient in (False, True)
    )
    assert 0.62 / 0.74 < forward_s / gradient_s < 0.72 / 0.79


@pytest.mark.parametrize(
    ("name", "size", "flop_per_s"),
    [
        ("mi300x", 16384.0, 668.4e12),  # Bekman, maximum achievable matmul FLOPS
        ("tpu-v5e", 8192.0, 181.8e12),  # JAX documentation, Pallas for TPUs: XLA's products,
        ("tpu-v5e", 4096.0, 166.1e12),  # timed with the call from Python
    ],
)
def test_an_unmeasured_family_is_scaled_by_its_own_ceiling(name: str, size: float, flop_per_s: float) -> None:
    chip = catalog.accelerator(name)
    time_s = gemm_time_s(
        m=size,
        n=size,
        k=size,
        bytes_per_element=2.0,
        peak_flop_per_s=chip.bf16_flop_per_s,
        memory_bytes_per_s=chip.memory_bytes_per_s,
        constants=kernel_constants([chip.family], ["bf16"], ceiling_fractions=chip.matmul_ceiling_fraction),
    )
    assert 2.0 * size**3 / time_s[0] == pytest.approx(flop_per_s, rel=0.07)


def test_volta_without_rows_of_its_own_lands_on_what_cublas_reaches_there() -> None:
    # Measured on V100: 95 to 100 TFLOP/s in fp16 (lablup/mlxcel issue 1654, cuBLAS); data sheet 125.
    time_s = gemm_time_s(
        m=8192.0,
        n=8192.0,
        k=8192.0,
        bytes_per_element=2.0,
        peak_flop_per_s=125e12,
        memory_bytes_per_s=0.9e12,
        constants=kernel_constants(["volta"], ["fp16"]),
    )
    assert 95e12 * 0.95 < 2.0 * 8192.0**3 / time_s[0] < 100e12 * 1.05


def test_a_missing_ceiling_leaves_the_constants_alone_and_a_better_one_never_exceeds_the_peak() -> None:
    plain = kernel_constants(["hopper"] * 2, ["bf16"] * 2)
    scaled = kernel_constants(["hopper"] * 2, ["bf16"] * 2, ceiling_fractions=np.array([np.nan, 5.0]))
    assert scaled.gemm_peak_fraction[0] == plain.gemm_peak_fraction[0]
    assert scaled.gemm_peak_fraction[1] == 1.0
    assert scaled.attention_peak_fraction[1] == 1.0


def test_formats_without_rows_of_their_own_use_those_of_bf16() -> None:
    fp16, bf16, fp8 = (kernel_constants(["ampere"], [name]) for name in ("fp16", "bf16", "fp8"))
    assert fp16.gemm_peak_fraction == bf16.gemm_peak_fraction
    assert fp8.gemm_peak_fraction == bf16.gemm_peak_fraction


def test_memory_bound_kernels_take_bytes_over_bandwidth_and_one_launch_each() -> None:
    constants = kernel_constants(["hopper"], ["bf16"])
    one_s = memory_bound_time_s(num_bytes=3.35e12, memory_bytes_per_s=H100_BYTES_PER_S, constants=constants)
    five_s = memory_bound_time_s(
        num_bytes=3.35e12, memory_bytes_per_s=H100_BYTES_PER_S, constants=constants, num_kernels=5.0
    )
    assert one_s[0] - constants.launch_s[0] == pytest.approx(1.0 / constants.memory_fraction[0])
    assert five_s[0] - one_s[0] == pytest.approx(4.0 * constants.launch_s[0])


@pytest.mark.parametrize(
    ("kernel", "passes_forward", "passes_backward"), [("unfused", 5.5, 8.0), ("eager", 12.0, 13.5)]
)
def test_separate_kernels_are_bound_by_the_passes_over_their_scores(
    kernel: AttentionKernel, passes_forward: float, passes_backward: float
) -> None:
    # One A100, 16 heads of 128, 8,192 tokens in sequences of 2,048: passes over the scores (Megatron-DeepSpeed: 5 to 6
    # and about 8; eager: 24 to 28 bytes a score) are 60 to 100 % of the time.
    shape = {"tokens": 8192.0, "sequence_length": 2048.0, "num_heads": 16.0, "head_dim": 128.0}
    constants = kernel_constants(["ampere"], ["fp16"])
    for is_backward, passes in ((False, passes_forward), (True, passes_backward)):
        time_s = unfused_attention_time_s(
            **shape,
            bytes_per_element=2.0,
            bf16_flop_per_s=A100_FLOP_PER_S,
            memory_bytes_per_s=2.039e12,
            kernels=SEPARATE_KERNELS[kernel],
            constants=constants,
            backward=is_backward,
        )
        passes_s = passes * 2.0 * 8192 * 2048 * 16 / (2.039e12 * constants.memory_fraction[0])
        assert 0.6 < passes_s / time_s[0] < 1.0


def test_a_batch_is_its_rows_one_by_one() -> None:
    rows = measured_rows("gemm", "hopper", "bf16") + measured_rows("gemm", "blackwell", "fp8")
    # Powers of arrays and of single numbers may differ in the last bits.
    assert gemm_s(rows) == pytest.approx([gemm_s([row])[0] for row in rows], rel=1e-12)


def test_every_shipped_constant_says_where_it_comes_from() -> None:
    for row in shipped_rows():
        assert row["unit"], row
        assert row["fitted_on"], row
        assert row["source"], row
        if row["constant"].endswith("_fraction"):
            assert 0.0 < float(row["value"]) <= 1.0, row
