"""What would simpler tools say? Nameplate arithmetic, MLCO2 and LLMCarbon, to be shown beside our figures.

    nameplate    energy = GPU-hours x rated power x PUE             most published energies: circular, not measured
    MLCO2        energy = GPU-hours x TDP, without PUE              (Lacoste et al., arXiv 1910.09700)
    LLMCarbon    time = 6 P D / (n peak efficiency), energy = W n time PUE    (Faiz et al., arXiv 2309.14393)

A run that reports its energy as nameplate arithmetic confirms no model of energy: it is reproduced here as what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.errors import InputError, Problem
from simulator.units import DAY, HOUR, JOULES_PER_KWH, TERA

A100_BF16_FLOP_PER_S = 312.0 * TERA
_PIPELINE_POLYNOMIAL = (1.34546129e02, 8.45435587e-11, -5.60233749e-23)
_TENSOR_POLYNOMIAL = (1.33954735e02, 1.68591116e-09, -8.82079068e-20)
"""TFLOP/s of an A100 by parameters, lowest power first: LLMCarbon's regression over Megatron-LM's published runs."""
_PIPELINE_LARGEST, _TENSOR_LARGEST = 1008.0e9, 18.4e9
"""Parameters of the largest of those runs (arXiv 2104.04473, Table 1); not far beyond, the polynomials fall below 0."""
_V100_LOSS = 7.76 / 33.46
"""Share of the efficiency that LLMCarbon takes off for other accelerators than those with 80 GB."""


def nameplate_energy_j(gpu_hours: float, rated_w: float, pue: float = 1.0) -> float:
    """Returns GPU-hours x rated power x PUE."""
    return gpu_hours * HOUR * rated_w * pue


def mlco2_kgco2e(gpu_hours: float, thermal_design_power_w: float, kgco2e_per_kwh: float) -> float:
    """Returns what the MLCO2 calculator says of a run."""
    return nameplate_energy_j(gpu_hours, thermal_design_power_w) / JOULES_PER_KWH * kgco2e_per_kwh


@dataclass(frozen=True, kw_only=True)
class LlmCarbonRun:
    """A run as LLMCarbon asks for it; average power and efficiency are inputs, measured on the run itself or guessed."""

    num_active_parameters: float
    """Parameters that every token meets; of the base model for mixtures of experts."""
    tokens: float
    num_devices: float
    peak_flop_per_s: float
    efficiency_fraction: float
    system_power_w: float
    """Average power of one device with its share of the system."""
    pue: float
    kgco2e_per_kwh: float

    @property
    def time_s(self) -> float:
        """Training time: 6 P D over the rate of all devices."""
        rate = self.num_devices * self.peak_flop_per_s * self.efficiency_fraction
        return 6.0 * self.num_active_parameters * self.tokens / rate

    @property
    def gpu_hours(self) -> float:
        """Hours of all devices."""
        return self.num_devices * self.time_s / HOUR

    @property
    def energy_j(self) -> float:
        """Energy of the facility."""
        return self.system_power_w * self.num_devices * self.time_s * self.pue

    @property
    def operational_kgco2e(self) -> float:
        """Energy at the grid's intensity."""
        return self.energy_j / JOULES_PER_KWH * self.kgco2e_per_kwh


@dataclass(frozen=True, kw_only=True)
class LlmCarbonPart:
    """One kind of hardware in LLMCarbon's embodied sum."""

    amount: float
    """Square centimetres of silicon, or gigabytes, of one piece."""
    kgco2e_per_amount: float
    num_pieces: float


def llmcarbon_embodied_kgco2e(
    parts: Sequence[LlmCarbonPart], time_s: float, lifetime_days: float = 5 * 365.0
) -> float:
    """Returns LLMCarbon's embodied share of a run: area x carbon per area x time over lifetime."""
    made = sum(part.amount * part.kgco2e_per_amount * part.num_pieces for part in parts)
    return made * time_s / (lifetime_days * DAY)


def llmcarbon_largest_run(*, spans_nodes: bool) -> float:
    """Returns the parameters of the largest run that LLMCarbon's regression is over."""
    return _PIPELINE_LARGEST if spans_nodes else _TENSOR_LARGEST


def llmcarbon_cold_efficiency(
    num_parameters: float, peak_flop_per_s: float, *, spans_nodes: bool = True
) -> float:
    """Returns the efficiency that LLMCarbon predicts for a run nobody has made yet, from its size alone.

    Its regression is over A100; the same share of the peak is taken for others, less what it takes off for V100.

    Args:
        num_parameters: parameters of the model.
        peak_flop_per_s: dense 16-bit peak of the accelerator.
        spans_nodes: whether the model needs a pipeline over several nodes.

    Raises:
        InputError: the model is larger than `llmcarbon_largest_run`.
    """
    largest = llmcarbon_largest_run(spans_nodes=spans_nodes)
    if num_parameters > largest:
        rule = f"must be at most {largest:g}, the largest run that LLMCarbon's regression is over"
        raise InputError([Problem(path="num_parameters", value=f"{num_parameters:g}", rule=rule)])
    powers = _PIPELINE_POLYNOMIAL if spans_nodes else _TENSOR_POLYNOMIAL
    rate = sum(factor * num_parameters**power for power, factor in enumerate(powers)) * TERA
    share = rate / A100_BF16_FLOP_PER_S
    return share * (1.0 - _V100_LOSS) if peak_flop_per_s < A100_BF16_FLOP_PER_S else share


def act_device_kgco2e(
    operational_kgco2e: float, embodied_kgco2e: float, used_s: float, life_s: float
) -> float:
    """Returns ACT's footprint of a use: operation, and the share of the making by time over lifetime."""
    return operational_kgco2e + used_s / life_s * embodied_kgco2e
