"""What did the owner of a cluster measure on it? Constants that replace published ones, and the errors of steps with them.

`planner.calibrate` fits them; a job carries them (`Job.calibration`), so that they are part of its identity and
every command uses the same ones. `simulator.machine.calibrated` says what each of them replaces.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from simulator.accuracy.step_error import ALIKE, Sides
from simulator.domain.hardware import CAST_FORMATS, Precision
from simulator.record import Choice, Record


class ConstantName(Choice):
    """A constant that measurements on a cluster can replace."""

    SUSTAINED_FRACTION = "sustained_fraction"
    """Speed of matrix products in a step relative to products measured alone, with clocks under load."""
    GEMM_PEAK_FRACTION = "gemm_peak_fraction"
    """Share of the peak that a huge matrix product reaches."""
    GEMM_FILL_ELEMENTS = "gemm_fill_elements"
    """Output elements whose work is lost to the last wave of tiles."""
    GEMM_RAMP_DEPTH = "gemm_ramp_depth"
    """Inner length whose work is lost in each tile."""
    OVERLAP_EXPONENT = "overlap_exponent"
    """Exponent p of (compute^p + memory^p)^(1/p)."""
    WEIGHT_GRADIENT_FRACTION = "weight_gradient_fraction"
    """Speed of a weight-gradient product relative to a forward one."""
    MEMORY_FRACTION = "memory_fraction"
    """Share of the memory bandwidth that a kernel reaches."""
    KERNEL_LAUNCH_S = "kernel_launch_s"
    """Duration of a kernel that does nothing."""
    ATTENTION_PEAK_FRACTION = "attention_peak_fraction"
    """Share of the 16-bit peak that fused attention reaches for endless sequences and wide heads."""
    ATTENTION_RAMP_TOKENS = "attention_ramp_tokens"
    """Sequence length at which it reaches half of its final speed."""
    ATTENTION_RAMP_HEAD_DIM = "attention_ramp_head_dim"
    """Head dimension at which it reaches half of its final speed."""
    ATTENTION_FILL_ROWS = "attention_fill_rows"
    """Query rows at which half of the accelerator is busy."""
    ATTENTION_BACKWARD_FRACTION = "attention_backward_fraction"
    """Speed of its backward pass relative to forward."""
    ATTENTION_BACKWARD_RAMP_TOKENS = "attention_backward_ramp_tokens"
    """How much longer the sequence of half the final speed is in the backward pass."""
    INTRA_LINK_RATIO = "intra_link_ratio"
    """Bandwidth inside a link domain relative to that with the published efficiencies."""
    INTER_LINK_RATIO = "inter_link_ratio"
    """Bandwidth between link domains relative to that with the published efficiencies."""
    HOST_LAUNCH_S = "host_launch_s"
    """Host time of one kernel that is launched from Python."""
    EARLY_HOST_LAUNCH_S = "early_host_launch_s"
    """Host time of one kernel with software of 2021-22."""
    BLOCKING_HOST_LAUNCH_S = "blocking_host_launch_s"
    """Host time of one kernel where the host waits for every kernel."""
    HIDDEN_TENSOR_FRACTION = "hidden_tensor_fraction"
    """Share of tensor-parallel traffic that overlaps with products in software that supports it."""


SOFTWARE = (
    ConstantName.HOST_LAUNCH_S,
    ConstantName.EARLY_HOST_LAUNCH_S,
    ConstantName.BLOCKING_HOST_LAUNCH_S,
    ConstantName.HIDDEN_TENSOR_FRACTION,
)
"""Constants of the framework and its host: they hold for all accelerators of a job."""
WITHOUT_FORMAT = (*SOFTWARE, ConstantName.INTRA_LINK_RATIO, ConstantName.INTER_LINK_RATIO)
"""Constants of which there is one for all number formats."""
RULES = (
    ("_fraction", 1e-3, 1.0, "nothing is faster than its peak, or a thousand times slower"),
    ("_s", 1e-9, 1.0, "a launch takes microseconds"),
    ("_ratio", 1e-3, 10.0, "it is relative to the published bandwidth"),
    ("_exponent", 1.0, 100.0, "work that overlaps takes no longer than its sum"),
    ("", 0.0, 1e12, "it is a number of elements, tokens or rows"),
)
"""Smallest and largest value of a constant by the ending of its name, and why; the first match counts."""

_MOST_ROWS = 10**9
_Number = Annotated[int, Field(gt=0, le=_MOST_ROWS)]
_LogDeviation = Annotated[float, Field(ge=0, le=50)]
"""Deviation of a ratio of times: the ratio of any two times ever measured is below e^50."""
_Bias = Annotated[float, Field(ge=-1, le=5e21)]
"""Ratio of two times, minus one, within the same range: e^50 is 5e21."""
_Error = Annotated[float, Field(ge=0, le=5e21)]
"""Size of such an error."""


class CalibratedConstant(Record):
    """One constant with its fitted value."""

    name: ConstantName
    """Which constant."""
    accelerator: str | None = None
    """Catalogue name of the accelerator that it applies to; left out: all, as for software constants."""
    precision: Precision | None = None
    """Number format of the products that it applies to, where bf16 also stands for fp16; left out: all."""
    value: PositiveFloat
    """The constant: a fraction, a ratio, seconds, or elements, as its name says."""
    published: PositiveFloat
    """Its value without the calibration."""
    log_deviation: _LogDeviation
    """Uncertainty of the value: standard deviation of its logarithm."""

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if (self.name in SOFTWARE) != (self.accelerator is None):
            has = (
                "holds for all accelerators: leave accelerator out"
                if self.name in SOFTWARE
                else "needs accelerator"
            )
            raise ValueError(f"{self.name.value} {has}")
        if self.precision and self.name in WITHOUT_FORMAT:
            raise ValueError(f"{self.name.value} is the same in all number formats: leave precision out")
        if self.precision is Precision.FP16:
            raise ValueError("precision fp16 runs at the rate of bf16: write bf16")
        low, high, why = next(rule[1:] for rule in RULES if self.name.value.endswith(rule[0]))
        if not low <= self.value <= high:
            raise ValueError(f"{self.name.value} ({self.value:g}) must be from {low:g} to {high:g}: {why}")
        return self

    def holds_for(self, accelerator: str, precision: Precision | None) -> bool:
        """Returns whether this is a constant of an accelerator and, unless it is `None`, of a number format."""
        is_format = precision is None or self.precision in (None, rate_format(precision))
        return self.accelerator == accelerator and is_format


class StepResiduals(Record):
    """Errors of simulated steps whose constants were fitted without them."""

    accelerator: str
    """Catalogue name of the accelerator."""
    precision: Precision
    """Number format of the runs."""
    has_experts: bool
    """Whether the models were mixtures of experts."""
    num_configurations: _Number
    """Measured configurations."""
    mean_absolute_error_fraction: _Error
    """Mean absolute error, simulated over measured, minus one."""
    bias_fraction: _Bias
    """Mean error with its sign."""
    shared_log_deviation: _LogDeviation
    """Standard deviation of ln(true / simulated) that all designs on this accelerator share."""
    own_log_deviation: _LogDeviation
    """Standard deviation of ln(true / simulated) that each layout has of its own."""
    interval_log_half_width: _LogDeviation
    """Half the width of the interval that holds four of five measurements, as a logarithm of time."""

    @property
    def ratios(self) -> Sides:
        """Stretch of both parts below and above: none, since these errors are on held-out steps."""
        return ALIKE

    @property
    def interval_log_half_widths(self) -> Sides:
        """How far below and above that interval reaches, as `simulator.accuracy.step_error.StepError` has it."""
        return ALIKE.times(self.interval_log_half_width)


class Calibration(Record):
    """The measurements of a cluster and the constants fitted to them."""

    schema_version: Literal[1] = 1
    """Version of this format."""
    source: str = Field(min_length=1, max_length=200)
    """File or device that was measured."""
    source_sha256: str = Field(min_length=64, max_length=64)
    """Hash of the measured rows."""
    date: str = Field(min_length=1, max_length=40)
    """When it was measured."""
    num_rows: _Number
    """Measured rows that were fitted."""
    num_configurations: _Number
    """Distinct configurations among them."""
    num_left_out: int = Field(default=0, ge=0, le=_MOST_ROWS)
    """Rows that could not be used."""
    error_before_fraction: _Error
    """Mean absolute error with published constants."""
    error_after_fraction: _Error
    """Mean absolute error with these constants."""
    error_left_out_fraction: _Error
    """Mean absolute error with constants fitted without the configuration."""
    constants: tuple[CalibratedConstant, ...] = Field(max_length=1000)
    """The fitted constants; all others keep their published values."""
    residuals: tuple[StepResiduals, ...] = Field(default=(), max_length=1000)
    """Errors of whole steps; empty if single kernels were measured."""
    idle_power_w: PositiveFloat | None = None
    """Power of the measured device when nothing ran; for information only."""
    loaded_power_w: PositiveFloat | None = None
    """Power of the measured device under large matrix products."""

    @model_validator(mode="after")
    def _names_nothing_twice(self) -> Self:
        places = [(one.name, one.accelerator, one.precision) for one in self.constants]
        for place in places:
            if places.count(place) > 1:
                words = " ".join(str(part) for part in place if part)
                raise ValueError(f"constants name {words} twice; keep one")
        kinds = [(one.accelerator, one.precision, one.has_experts) for one in self.residuals]
        for kind in kinds:
            if kinds.count(kind) > 1:
                words = f"{kind[0]} {kind[1].value}{' experts' if kind[2] else ''}"
                raise ValueError(f"residuals name {words} twice; keep one")
        return self

    def __repr_args__(self) -> list[tuple[str | None, object]]:
        """Shows a calibration in a few lines; `model_dump()` has every field."""
        return [
            ("source", self.source),
            ("date", self.date),
            ("num_configurations", self.num_configurations),
            ("error_before_fraction", self.error_before_fraction),
            ("error_after_fraction", self.error_after_fraction),
            ("error_left_out_fraction", self.error_left_out_fraction),
            ("num_constants", len(self.constants)),
        ]

    @property
    def accelerators(self) -> tuple[str, ...]:
        """Accelerators that were measured, sorted."""
        named = {one.accelerator for one in self.constants} | {one.accelerator for one in self.residuals}
        return tuple(sorted(name for name in named if name))

    def residuals_of(
        self, accelerator: str, precision: Precision, *, has_experts: bool
    ) -> StepResiduals | None:
        """Returns the errors of this kind of steps; `None` if none were measured."""
        asked = (accelerator, precision, has_experts)
        return next(
            (one for one in self.residuals if (one.accelerator, one.precision, one.has_experts) == asked),
            None,
        )


def rate_format(precision: Precision) -> Precision:
    """Returns the number format under which a format's constants are stored: all 16-bit formats run at the same rate."""
    return precision if precision in CAST_FORMATS else Precision.BF16
