"""What would simpler tools predict? Nameplate arithmetic, MLCO2 and LLMCarbon, for comparison with our figures.

    nameplate    energy = GPU-hours x rated power x PUE             most published energies: circular, not measured
    MLCO2        energy = GPU-hours x TDP, without PUE              (Lacoste et al., arXiv 1910.09700)
    LLMCarbon    time = 6 P D / (n peak efficiency), energy = W n time PUE    (Faiz et al., arXiv 2309.14393)

A run whose reported energy is nameplate arithmetic cannot validate a model of energy.
"""

from __future__ import annotations

from simulator.errors import InputError, Problem
from simulator.units import HOUR, JOULES_PER_KWH, TERA

A100_BF16_FLOP_PER_S = 312.0 * TERA
_PIPELINE_POLYNOMIAL = (1.34546129e02, 8.45435587e-11, -5.60233749e-23)
_TENSOR_POLYNOMIAL = (1.33954735e02, 1.68591116e-09, -8.82079068e-20)
"""TFLOP/s of an A100 as a polynomial in the number of parameters, lowest power first: LLMCarbon's regression over
Megatron-LM's published runs."""
_PIPELINE_LARGEST, _TENSOR_LARGEST = 1008.0e9, 18.4e9
"""Parameters of the largest of those runs (arXiv 2104.04473, Table 1). Not far beyond it the polynomials turn negative."""
_V100_LOSS = 7.76 / 33.46
"""Share of the efficiency that LLMCarbon deducts for accelerators other than those with 80 GB."""


def nameplate_energy_j(gpu_hours: float, rated_w: float, pue: float = 1.0) -> float:
    """Returns GPU-hours x rated power x PUE."""
    return gpu_hours * HOUR * rated_w * pue


def mlco2_kgco2e(gpu_hours: float, thermal_design_power_w: float, kgco2e_per_kwh: float) -> float:
    """Returns the emissions that the MLCO2 calculator gives for a run."""
    return nameplate_energy_j(gpu_hours, thermal_design_power_w) / JOULES_PER_KWH * kgco2e_per_kwh


def llmcarbon_gpu_hours(
    num_active_parameters: float, tokens: float, peak_flop_per_s: float, efficiency_fraction: float
) -> float:
    """Returns the device-hours that LLMCarbon predicts: 6 P D over the rate of one device.

    Args:
        num_active_parameters: parameters that each token uses (P); those of the base model for mixtures of experts.
        tokens: tokens of the run (D).
        peak_flop_per_s: peak of one device.
        efficiency_fraction: share of the peak, measured on the run itself or predicted (`llmcarbon_cold_efficiency`).
    """
    return 6.0 * num_active_parameters * tokens / (peak_flop_per_s * efficiency_fraction) / HOUR


def llmcarbon_largest_run(*, spans_nodes: bool) -> float:
    """Returns the parameters of the largest run in LLMCarbon's regression."""
    return _PIPELINE_LARGEST if spans_nodes else _TENSOR_LARGEST


def llmcarbon_cold_efficiency(
    num_parameters: float, peak_flop_per_s: float, *, spans_nodes: bool = True
) -> float:
    """Returns the efficiency that LLMCarbon predicts from the size of the model alone, without a measured run.

    Its regression is over runs on A100. Other accelerators get the same share of the peak, less its deduction for V100.

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
