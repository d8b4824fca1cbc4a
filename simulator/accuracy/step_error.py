"""How far may a simulated step be off, and how much of the error do all designs on the same accelerators share?

ln(true / simulated) of a design is the sum of two independent parts: one shared by every design of a job on the same kind of
accelerator (its kernels, software and fabric), and one specific to the layout. Each is normal on either side of zero and
extends further upwards, because effects that a simulator omits only lengthen a step. `python -m benchmarks.step_error`
estimates both from the published steps of docs/validation.md and writes `data/step_error.csv`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from simulator.shipped import shipped_rows

FILE = "data/step_error.csv"
UNMEASURED_RATIO = 2.0
"""Factor on the error of steps without any similar measurement (4 bits, low-rank adapters, longer sequences than any). With
thirteen kinds of steps left out in turn, errors on eleven of them are up to 1.9 times as large as with only their sources left
out, on pipelines and Megatron 2.5 and 2.7 times (`benchmarks.unseen_kinds`)."""
UNMEASURED_ARCHITECTURE_RATIO = 1.5
"""Factor on the error for an architecture that uses another one's constants, relative to that on all measured ones. With
Ampere, Hopper and Blackwell left out in turn, four of five errors in 16 bits are below 20.5, 9.8 and 28.1 %
(`benchmarks.unknown_accelerators`). Their means are +10.8, +3.9 and -8.3 % (simulated longer, longer and shorter than
measured), so both sides extend equally far."""
FAMILIES_OF_THE_VENDOR = ("volta", "ampere", "ada", "hopper", "blackwell", "rubin")
"""Architectures of the vendor whose accelerators the constants were fitted on. No other vendor was ever compared, so their
steps are as uncertain as kinds of steps that nobody measured."""
Z_80 = 1.2815515655446004
"""Standard normal quantile of 90 %: four of five values lie within plus or minus this."""
ANY = "any"
"""Architecture and number format of the row for combinations never compared."""


class Sides(NamedTuple):
    """A value for measurements shorter than simulated, and one for longer ones."""

    below: float
    above: float

    def times(self, ratio: float) -> Sides:
        """Returns both values multiplied by a ratio."""
        return Sides(below=ratio * self.below, above=ratio * self.above)


ALIKE = Sides(below=1.0, above=1.0)
"""Symmetric errors: no stretch on either side."""
UNSEEN_RATIOS = Sides(below=0.9, above=1.6)
"""Stretch of residuals, whose constants have seen the rows. With constants fitted without a source, 7 % of 333 steps of shipped
sources are then shorter than their intervals and 11 % longer (`python -m benchmarks.unseen_sources`)."""


@dataclass(frozen=True, kw_only=True)
class StepError:
    """Standard deviations of ln(true / simulated) step time, before the stretch of either side."""

    shared_log_deviation: float
    """Part shared by designs on the same accelerators."""
    own_log_deviation: float
    """Part specific to each layout."""
    ratios: Sides = UNSEEN_RATIOS
    """Stretch of both parts where the truth is shorter than simulated, and where it is longer."""

    @property
    def interval_log_half_widths(self) -> Sides:
        """Lower and upper extent of the interval that holds four of five measurements, in logarithms of time."""
        return self.ratios.times(self._log_half_width)

    @property
    def _log_half_width(self) -> float:
        return Z_80 * math.hypot(self.shared_log_deviation, self.own_log_deviation)

    def times(self, ratio: float) -> StepError:
        """Returns the error multiplied by a ratio."""
        return replace(
            self,
            shared_log_deviation=ratio * self.shared_log_deviation,
            own_log_deviation=ratio * self.own_log_deviation,
        )

    def at_least(self, log_half_width: float) -> StepError:
        """Returns the error with both sides of the interval extended to at least this half-width."""
        least = log_half_width / self._log_half_width
        return replace(self, ratios=Sides(*(max(ratio, least) for ratio in self.ratios)))


def step_error(
    family: str,
    precision: str,
    *,
    has_experts: bool = False,
    accelerator: str | None = None,
    is_beyond_measured: bool = False,
) -> StepError:
    """Returns the error of steps on an architecture in a number format; combinations never compared are less certain.

    Args:
        family: Architecture of the accelerator (`Accelerator.family`).
        precision: Number format (`Precision.value`).
        has_experts: Whether the model is a mixture of experts.
        accelerator: Its catalogue name. One without measured steps is no more certain than all measured ones together;
            left out: one with measured steps.
        is_beyond_measured: Whether some feature of the step was never measured (`simulator.step.step_reach`). Nothing was
            measured in 4 bits, so these count as 8.
    """
    network = "experts" if has_experts else "dense"
    lines = {kind: line for kind, line in _estimated().items() if kind[2] == network}
    together = lines[ANY, ANY, network].error
    if is_beyond_measured:
        known_precision = "fp8" if precision == "fp4" else precision
        similar = step_error(family, known_precision, has_experts=has_experts, accelerator=accelerator)
        return _widest([similar, together]).times(UNMEASURED_RATIO)
    if family not in {measured for measured, _, _ in lines}:
        unsure = _widest([_on_unmeasured(family, together), *(line.error for line in lines.values())])
        return replace(unsure, ratios=Sides(below=unsure.ratios.above, above=unsure.ratios.above))
    known_line = lines.get((family, precision, network))
    known = known_line.error if known_line else together
    is_known = accelerator is None or is_measured(accelerator, has_experts=has_experts)
    return known if known_line and is_known else _widest([known, together])


def _on_unmeasured(family: str, together: StepError) -> StepError:
    ratio, dense = architecture_ratio(family), _estimated()[ANY, ANY, "dense"].error
    return replace(
        together,
        shared_log_deviation=less_sure(together.shared_log_deviation, dense.shared_log_deviation, ratio),
        own_log_deviation=less_sure(together.own_log_deviation, dense.own_log_deviation, ratio),
    )


def less_sure(width: float, of_kernels: float, ratio: float) -> float:
    """Returns the width of an error when its kernel part is multiplied by a ratio.

    Args:
        width: of the whole error: kernels, and independent parts such as the load of experts.
        of_kernels: the kernel part alone, that of dense models.
        ratio: factor on this part, at least 1.
    """
    return math.hypot(width, math.sqrt(ratio**2 - 1.0) * of_kernels)


def architecture_ratio(family: str) -> float:
    """Returns the factor on the error for an architecture that uses another one's constants."""
    return UNMEASURED_ARCHITECTURE_RATIO if family in FAMILIES_OF_THE_VENDOR else UNMEASURED_RATIO


def is_measured(accelerator: str, *, has_experts: bool) -> bool:
    """Returns whether any step of such a network was compared on an accelerator; by its catalogue name."""
    network = "experts" if has_experts else "dense"
    return any(accelerator in line.accelerators for kind, line in _estimated().items() if kind[2] == network)


def _widest(errors: Iterable[StepError]) -> StepError:
    return max(errors, key=lambda error: error.interval_log_half_widths.above)


@dataclass(frozen=True, kw_only=True)
class _Line:
    """One row of the file."""

    error: StepError
    accelerators: tuple[str, ...]
    """Accelerators whose steps were measured."""


@cache
def _estimated() -> Mapping[tuple[str, str, str], _Line]:
    """Returns the shipped figures by architecture, format and kind of network; the file is read once."""
    return {
        (row["family"], row["precision"], row["network"]): _Line(
            error=StepError(
                shared_log_deviation=float(row["shared_log_deviation"]),
                own_log_deviation=float(row["own_log_deviation"]),
            ),
            accelerators=tuple(row["accelerators"].split()),
        )
        for row in shipped_rows(FILE)
    }
