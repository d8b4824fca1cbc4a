"""How long does one operator take on one accelerator?

Matrix products, attention and memory-bound operators, over a batch of designs at once. Every argument is a
number or an array that broadcasts to `(n,)`, one row per design; every result is in seconds. The few
constants behind them (`KernelConstants`) were fitted to measured kernels by `benchmarks/fit_kernels.py`;
`simulator/data/kernel_efficiency.csv` says on what, how well, and where the rest comes from.

Efficiencies are shares of the dense peak of the number format in use. All of them are at most 1, so no
time is ever below the roofline. Sizes must be positive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from simulator.domain.choices import AttentionKernel
from simulator.domain.hardware import Accelerator
from simulator.shipped import shipped_rows
from simulator.table import Booleans, Floats, Table

Numbers = float | Floats
Flags = bool | Booleans

DEFAULT_FAMILY = "default"
"""Fallback for accelerators without public measurements: Hopper's constants, scaled by `ceiling_fractions`."""
PEAK_RATIO_OF_FP4 = 2.0
"""Peak over the 8-bit peak where 4-bit products were not measured: filling tiles takes as long, and so counts as more work."""
BASE_FORMAT = "bf16"
"""Number format whose rows are used where a format has none of its own; fp16 runs at the same rate."""

OUTPUT_BYTES = 2.0
"""Products of 8-bit and 16-bit matrices are written in 16 bits."""
ACCUMULATE_BYTES = 8.0
"""A weight gradient is added to its 32-bit buffer: one read, one write (Megatron-LM, fused accumulation)."""
NARROW_ACCUMULATE_BYTES = 4.0
"""A weight gradient is added to its 16-bit buffer: one read, one write (the same)."""
ALIGNED_ELEMENTS = 8
"""16-bit elements of 16 bytes, the alignment that matrix units ask for (NVIDIA, matrix multiplication guide)."""
PLAIN_CORE_FRACTION = 1.0 / 16.0
"""Rate of plain cores relative to that of matrix units: 19.5 of 312 TFLOP/s on A100, 67 of 989 on H100 (data sheets)."""

FLASH_BACKWARD_FLOP_RATIO = 2.5
"""Five products against two, because the scores are computed again (FlashAttention-2, arXiv 2307.08691)."""


@dataclass(frozen=True, kw_only=True)
class SeparateKernels:
    """Cost of attention whose kernels exchange the scores through memory."""

    passes_forward: float
    """Number of times the score matrix is read or written in 16 bits; a pass in 32 bits counts twice."""
    passes_backward: float
    num_forward: float
    """Kernels; twice as many backward."""


SEPARATE_KERNELS: Mapping[AttentionKernel, SeparateKernels] = {
    "unfused": SeparateKernels(passes_forward=5.5, passes_backward=8.0, num_forward=4.0),
    "eager": SeparateKernels(passes_forward=12.0, passes_backward=13.5, num_forward=7.0),
}
"""`unfused`: 5 to 6 passes forward (write the scores, softmax in and out, dropout in and out, read for the second product),
about 8 backward; two batched products, scale-mask-softmax, dropout (Megatron-DeepSpeed, 2021-22). `eager`: scale, mask, softmax
and what casts or drops are kernels of their own: 24 bytes a score forward and 28 backward in Hugging Face
(`eager_attention_forward`, softmax in 32 bits), 25 and 26 in Megatron-LM of 2019 (`GPT2ParallelSelfAttention`)."""


@dataclass(frozen=True, kw_only=True)
class KernelConstants(Table):
    """How close accelerators come to their peaks; each column is `(n,)`."""

    gemm_peak_fraction: Floats
    """Share of the peak that a huge matrix product reaches."""
    gemm_fill_elements: Floats
    """Output elements whose work is lost because the last wave of tiles leaves cores idle."""
    gemm_ramp_depth: Floats
    """Inner length whose work is lost to filling and draining the pipeline of each tile."""
    overlap_exponent: Floats
    """Exponent p of (compute^p + memory^p)^(1/p): 1 adds the two, a large one takes the longer."""
    memory_fraction: Floats
    """Share of the memory bandwidth that a kernel reaches."""
    launch_s: Floats
    """Duration of a kernel that does nothing."""
    cast_bytes_per_element: Floats
    """Bytes moved to bring one input element into the number format; 0 for 16 bits. Not part of
    `gemm_time_s`: whoever casts pays through `memory_bound_time_s`."""
    weight_gradient_fraction: Floats
    """Speed of a weight-gradient product relative to a forward one of the same shape."""
    attention_peak_fraction: Floats
    """Share of the bf16 peak that flash attention reaches for endless sequences and wide heads."""
    attention_ramp_tokens: Floats
    """Sequence length at which flash attention reaches half of its final speed."""
    attention_ramp_head_dim: Floats
    """Head dimension at which it reaches half of its final speed."""
    attention_fill_rows: Floats
    """Query rows (tokens times heads) at which half of the accelerator is busy."""
    attention_backward_fraction: Floats
    """Speed of its backward pass relative to forward, each in its own operations per second."""
    attention_backward_ramp_tokens: Floats
    """Additional tokens of a sequence that the backward pass needs beyond the forward pass's."""
    attention_backward_fill_ratio: Floats
    """Query rows that the backward pass needs to fill the accelerator, over those of the forward pass: it splits along keys,
    too."""
    matmul_ceiling_fraction: Floats
    """Best share of the peak found by a search over shapes on the accelerator that the row was fitted on."""


def kernels_of(accelerator: Accelerator) -> str:
    """Returns the name under which an accelerator's kernels are listed: its own if measured, else its architecture's."""
    return accelerator.id if _is_listed(accelerator.id) else accelerator.kernel_family


def has_measured_kernels(accelerator: Accelerator) -> bool:
    """Returns whether kernels of an accelerator or of its architecture were measured; those of others are scaled."""
    return _is_listed(accelerator.id) or _is_listed(accelerator.family)


def kernel_constants(
    families: Sequence[str], formats: Sequence[str], *, ceiling_fractions: Numbers = np.nan
) -> KernelConstants:
    """Returns the constants of `(n,)` accelerators, one row per pair of family and number format.

    Args:
        families: Architectures or accelerators (`kernels_of`), such as `hopper`; one that was not measured gets the row
            `default`.
        formats: Number formats of the matrix products, such as `bf16` or `fp8`.
        ceiling_fractions: Best measured share of the peak for each accelerator, NaN where unknown. The
            peak fractions are scaled by its ratio to the ceiling of the accelerator they were fitted on:
            a power-limited card of the same family, or another vendor's chip, is slower by that ratio.
    """
    records = [
        _constants(family, number_format) for family, number_format in zip(families, formats, strict=True)
    ]
    columns = {name: np.array([record[name] for record in records]) for name in KernelConstants.names()}
    scale = np.asarray(ceiling_fractions) / columns["matmul_ceiling_fraction"]
    scale = np.where(np.isnan(scale), 1.0, scale)
    for name in ("gemm_peak_fraction", "attention_peak_fraction"):
        columns[name] = np.minimum(columns[name] * scale, 1.0)
    return KernelConstants(**columns)


def gemm_time_s(
    *,
    m: Numbers,
    n: Numbers,
    k: Numbers,
    bytes_per_element: Numbers,
    peak_flop_per_s: Numbers,
    memory_bytes_per_s: Numbers,
    constants: KernelConstants,
    num_gemms: Numbers = 1.0,
    num_kernels: Numbers = 1.0,
    output_bytes: Numbers = OUTPUT_BYTES,
    weight_gradient: Flags = False,
) -> Floats:
    """Returns seconds `(n,)` of `num_gemms` equal products (m, k) x (k, n) that share waves of tiles.

    compute = 2 (g m n + fill) (k + ramp) / (peak * fraction), memory = bytes / (bandwidth * fraction),
    time = (compute^p + memory^p)^(1/p) + launches. Fitted for m >= 512 and at least 1 GFLOP.

    Args:
        m: Rows of the output.
        n: Columns of the output.
        k: Inner length.
        bytes_per_element: Size of an input element.
        peak_flop_per_s: Dense peak of the number format.
        memory_bytes_per_s: Memory bandwidth.
        constants: Constants of the family and number format.
        num_gemms: Products of a grouped or batched kernel, such as one per expert or head, or of kernels side by side.
        num_kernels: Kernels that they are.
        output_bytes: What is read and written of an element of the output, unless it is added to a 32-bit buffer.
        weight_gradient: Whether the product is a weight gradient, added to a 32-bit buffer.
    """
    fraction: Numbers = constants.gemm_peak_fraction
    if weight_gradient is not False:
        fraction = fraction * np.where(weight_gradient, constants.weight_gradient_fraction, 1.0)
        output_bytes = np.where(weight_gradient, ACCUMULATE_BYTES, output_bytes)
    padded_flop = 2.0 * (num_gemms * m * n + constants.gemm_fill_elements) * (k + constants.gemm_ramp_depth)
    moved_bytes = num_gemms * (bytes_per_element * k * (m + n) + output_bytes * m * n)
    compute_s = padded_flop / (peak_flop_per_s * fraction)
    memory_s = moved_bytes / (memory_bytes_per_s * constants.memory_fraction)
    launches_s = num_kernels * constants.launch_s
    return np.asarray(_overlapped_s(compute_s, memory_s, constants.overlap_exponent) + launches_s)


def attention_time_s(
    *,
    tokens: Numbers,
    sequence_length: Numbers,
    num_heads: Numbers,
    head_dim: Numbers,
    bf16_flop_per_s: Numbers,
    constants: KernelConstants,
    backward: Flags = False,
    num_ramps: Numbers = 1.0,
    num_kernels: Numbers = 1.0,
) -> Floats:
    """Returns seconds `(n,)` of one flash-attention pass, in bf16 whatever the products around it use.

    flop = 2 tokens s a d, as a token sees half a sequence on average, 2.5 times as much backward; the speed saturates in the
    sequence length (later backward), in the head dimension and in the number of query rows (earlier backward). Fitted on causal
    prefill of 1,024 to 16,384 tokens; sliding windows are not covered.

    Args:
        tokens: Query tokens on this accelerator, over all sequences.
        sequence_length: Tokens that a query can look at (the whole sequence under context parallelism).
        num_heads: Query heads on this accelerator.
        head_dim: Width of one head.
        bf16_flop_per_s: Dense bf16 peak.
        constants: Constants of the family; their attention columns are the same for every number format.
        backward: Whether to price the backward pass instead of the forward one.
        num_ramps: Times that kernels begin with each query.
        num_kernels: Kernels that share out the work, as the steps of a ring do.
    """
    flop = 4.0 * tokens * sequence_length * num_heads * head_dim / 2.0
    flop = flop * np.where(backward, FLASH_BACKWARD_FLOP_RATIO, 1.0)
    more_tokens = np.where(backward, constants.attention_backward_ramp_tokens, 0.0)
    ramp_tokens = constants.attention_ramp_tokens + more_tokens
    fill_rows = constants.attention_fill_rows * np.where(
        backward, constants.attention_backward_fill_ratio, 1.0
    )
    speed_fraction = (
        constants.attention_peak_fraction
        * np.where(backward, constants.attention_backward_fraction, 1.0)
        / (1.0 + ramp_tokens * num_ramps / sequence_length)
        / (1.0 + constants.attention_ramp_head_dim / head_dim)
        / (1.0 + fill_rows / (tokens * num_heads))
    )
    return np.asarray(flop / (bf16_flop_per_s * speed_fraction) + num_kernels * constants.launch_s)


def unfused_attention_time_s(
    *,
    tokens: Numbers,
    sequence_length: Numbers,
    num_heads: Numbers,
    head_dim: Numbers,
    bytes_per_element: Numbers,
    bf16_flop_per_s: Numbers,
    memory_bytes_per_s: Numbers,
    kernels: SeparateKernels,
    constants: KernelConstants,
    backward: Flags = False,
) -> Floats:
    """Returns seconds `(n,)` of attention that writes its scores to memory.

    Passes over the tokens x s x a score matrix plus the arithmetic of its two batched products, of which the
    first has the short inner length d; masking saves nothing. Arguments as for `attention_time_s` and
    `gemm_time_s`.
    """
    passes = np.where(backward, kernels.passes_backward, kernels.passes_forward)
    repeats = np.where(backward, 2.0, 1.0)
    scores = tokens * sequence_length * num_heads
    padded_flop = 2.0 * scores * (2.0 * head_dim + constants.gemm_ramp_depth)
    is_aligned = np.floor(head_dim) % ALIGNED_ELEMENTS == 0
    peak_flop_per_s = bf16_flop_per_s * np.where(is_aligned, 1.0, PLAIN_CORE_FRACTION)
    products_s = padded_flop / (peak_flop_per_s * constants.gemm_peak_fraction)
    return np.asarray(
        repeats * products_s
        + memory_bound_time_s(
            num_bytes=passes * bytes_per_element * scores,
            memory_bytes_per_s=memory_bytes_per_s,
            constants=constants,
            num_kernels=repeats * kernels.num_forward,
        )
    )


def memory_bound_time_s(
    *,
    num_bytes: Numbers,
    memory_bytes_per_s: Numbers,
    constants: KernelConstants,
    num_kernels: Numbers = 1.0,
) -> Floats:
    """Returns seconds `(n,)` of kernels that only move data: bytes / (bandwidth * fraction) + launches.

    Args:
        num_bytes: Bytes read and written, all kernels together.
        memory_bytes_per_s: Memory bandwidth.
        constants: Constants of the family.
        num_kernels: Kernels that the work is split into.
    """
    streaming_s = num_bytes / (memory_bytes_per_s * constants.memory_fraction)
    return np.asarray(streaming_s + num_kernels * constants.launch_s)


def _overlapped_s(first_s: Floats, second_s: Floats, exponent: Floats) -> Floats:
    """Returns the p-norm of two durations, scaled by the longer one so that nothing overflows."""
    longer_s, shorter_s = np.maximum(first_s, second_s), np.minimum(first_s, second_s)
    return np.asarray(longer_s * (1.0 + (shorter_s / longer_s) ** exponent) ** (1.0 / exponent))


def _is_listed(name: str) -> bool:
    return (name, BASE_FORMAT) in _fitted_constants()


def _constants(family: str, number_format: str) -> Mapping[str, float]:
    """Returns one row by constant: the family's rows for the format over its bf16 rows; of 4 bits over those of 8."""
    table = _fitted_constants()
    if number_format == "fp4":
        of_fp8 = _constants(family, "fp8")
        lost = {name: of_fp8[name] * PEAK_RATIO_OF_FP4 for name in ("gemm_fill_elements", "gemm_ramp_depth")}
        return {**of_fp8, **table.get((family, number_format), lost)}
    known = family if _is_listed(family) else DEFAULT_FAMILY
    return {**table[known, BASE_FORMAT], **table.get((known, number_format), {})}


@cache
def _fitted_constants() -> Mapping[tuple[str, str], Mapping[str, float]]:
    """Returns the shipped constants by family and number format; the file is read once."""
    table: dict[tuple[str, str], dict[str, float]] = {}
    for row in shipped_rows("data/kernel_efficiency.csv"):
        table.setdefault((row["family"], row["dtype"]), {})[row["constant"]] = float(row["value"])
    return table
