"""How far are simulated step times from measured ones? The error on published runs, by architecture and number format.

`benchmarks/validate_steps.py` writes the figures into `data/accuracy.csv`. The constants of `simulator.machine.training` are
fitted on the same rows; docs/validation.md says how much larger errors are on sources that were left out of the fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from simulator.shipped import shipped_rows

FILE = "data/accuracy.csv"
PUBLISHED_RUNS = "published runs"
LEAST_ROWS = 10
"""Configurations below which a mean error is told, but nothing is corrected or compared by it."""
EXPERTS_ERROR_FRACTION = 0.3
"""Error of steps of mixtures of experts that users should expect either way (docs/validation.md): five configurations of two
models were compared, 16 % too fast at most, and one whole run (docs/whole-runs.md); estimate."""


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """The error of simulated step times on measured configurations; errors are simulated over measured, less one."""

    num_rows: int
    """Configurations that were compared."""
    bias_fraction: float
    """Mean error; negative: the simulator is too fast."""
    mean_absolute_error_fraction: float
    """Mean size of the error."""
    is_measured: bool
    """Whether these very architecture and format were compared; otherwise the figures are borrowed."""
    compared_with: str = PUBLISHED_RUNS
    """What was measured, in words."""

    @property
    def is_known(self) -> bool:
        """Whether so many steps of the kind were compared that their mean error says something of others."""
        return self.is_measured and self.num_rows >= LEAST_ROWS


def step_time_error(
    family: str, precision: str, *, has_experts: bool = False, is_like_measured: bool = True
) -> Accuracy:
    """Returns the error of step times on an architecture in a number format.

    What was never compared is taken to be no better than what was: the format with the largest mean absolute error
    of the same architecture or, for an architecture without rows, of all. Mixtures of experts borrow from mixtures of
    experts only.

    Args:
        family: Architecture of the accelerator (`Accelerator.family`).
        precision: Number format (`Precision.value`).
        has_experts: Whether the model is a mixture of experts.
        is_like_measured: Whether steps were compared on this accelerator, and nothing of the step is beyond them.
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
