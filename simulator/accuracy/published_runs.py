"""How far are simulated step times from measured ones? The error on published runs, by architecture and number format.

`benchmarks/validate_steps.py` writes the figures to `data/accuracy.csv`. The constants of `simulator.machine.training` are
fitted to the same rows; docs/validation.md shows how much larger errors are for sources left out of the fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from simulator.shipped import shipped_rows

FILE = "data/accuracy.csv"
PUBLISHED_RUNS = "published runs"
LEAST_ROWS = 10
"""With fewer configurations than this, a mean error is reported, but not used to correct or compare anything."""
EXPERTS_ERROR_FRACTION = 0.3
"""Error that users should expect for steps of mixtures of experts, in either direction (docs/validation.md): five
configurations of two models were compared, 16 % too fast at most, and one whole run (docs/whole-runs.md); estimate."""


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """The error of simulated step times on measured configurations; errors are simulated over measured, minus one."""

    num_rows: int
    """Compared configurations."""
    bias_fraction: float
    """Mean error; negative: the simulator is too fast."""
    mean_absolute_error_fraction: float
    """Mean absolute error."""
    is_measured: bool
    """Whether this exact architecture and format were compared; otherwise the figures are borrowed."""
    compared_with: str = PUBLISHED_RUNS
    """Description of what was measured."""

    @property
    def is_known(self) -> bool:
        """Whether enough steps of this kind were compared for their mean error to predict others."""
        return self.is_measured and self.num_rows >= LEAST_ROWS


def step_time_error(
    family: str, precision: str, *, has_experts: bool = False, is_like_measured: bool = True
) -> Accuracy:
    """Returns the error of step times on an architecture in a number format.

    Combinations that were never compared are assumed to be no better than compared ones: they take the format with the largest
    mean absolute error of the same architecture or, for an architecture without rows, of all. Mixtures of experts borrow only
    from mixtures of experts.

    Args:
        family: Architecture of the accelerator (`Accelerator.family`).
        precision: Number format (`Precision.value`).
        has_experts: Whether the model is a mixture of experts.
        is_like_measured: Whether steps were compared on this accelerator, and the step has no unmeasured feature.
    """
    network = "experts" if has_experts else "dense"
    table = {
        (known, number_format): accuracy
        for (known, number_format, kind), accuracy in _measured().items()
        if kind == network
    }
    if not is_like_measured:
        return _worst(list(table.values()))
    if (family, precision) in table:
        return table[family, precision]
    relatives = [accuracy for (known, _), accuracy in table.items() if known == family]
    return _worst(relatives or list(table.values()))


def network_error(*, has_experts: bool) -> Accuracy:
    """Returns the error of step times of all compared dense models, or of all mixtures of experts."""
    network = "experts" if has_experts else "dense"
    found = [accuracy for (_, _, kind), accuracy in _measured().items() if kind == network]
    num_rows = sum(accuracy.num_rows for accuracy in found)

    def mean(name: str) -> float:
        return sum(accuracy.num_rows * float(getattr(accuracy, name)) for accuracy in found) / num_rows

    return Accuracy(
        num_rows=num_rows,
        bias_fraction=mean("bias_fraction"),
        mean_absolute_error_fraction=mean("mean_absolute_error_fraction"),
        is_measured=True,
    )


def _worst(candidates: Sequence[Accuracy]) -> Accuracy:
    worst = max(candidates, key=lambda accuracy: accuracy.mean_absolute_error_fraction)
    return replace(worst, is_measured=False)


@cache
def _measured() -> Mapping[tuple[str, str, str], Accuracy]:
    """Returns the shipped figures by architecture, format and kind of network; the file is read once."""
    return {
        (row["family"], row["precision"], row["network"]): Accuracy(
            num_rows=int(row["num_rows"]),
            bias_fraction=float(row["bias_fraction"]),
            mean_absolute_error_fraction=float(row["mean_absolute_error_fraction"]),
            is_measured=True,
        )
        for row in shipped_rows(FILE)
    }
