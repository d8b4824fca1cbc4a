"""Where does a job have what a person wrote in another place, or under the name that other software gives it?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from planner.input.schema import known_fields, record_in
from simulator.domain.job import Job

OTHER_NAMES: Final[Mapping[str, str]] = {
    "carbon_intensity": "site.grid_kgco2e_per_kwh",
    "checkpoint_interval": "checkpointing.interval_s or checkpointing.interval_steps",
    "checkpoint_scheme": "search.checkpoint_schemes",
    "clocks": "search.power_caps",
    "context_parallel_size": "search.context_parallel",
    "country": "site.region",
    "cp": "search.context_parallel",
    "depreciation_years": "ownership.lifetime_years",
    "discount_rate": "ownership.capital_cost_fraction_per_year",
    "dtype": "workload.precisions",
    "electricity_price": "site.electricity_usd_per_kwh",
    "ep": "search.expert_parallel",
    "expert_model_parallel_size": "search.expert_parallel",
    "expert_tensor_parallel_size": "workload.expert_tensor_parallel",
    "failure_rate": "reliability.failures_per_1000_node_days or reliability.gpu_hours_per_failure",
    "grid_intensity": "site.grid_kgco2e_per_kwh",
    "interest_rate": "ownership.capital_cost_fraction_per_year",
    "lifetime": "ownership.lifetime_years",
    "market_based": "site.market_kgco2e_per_kwh",
    "memory_gb": "search.memory_headroom_fraction",
    "memory_gib": "search.memory_headroom_fraction",
    "memory_headroom": "search.memory_headroom_fraction",
    "micro_batch_size": "search.micro_batch_sizes",
    "mtbf": "reliability.gpu_hours_per_failure",
    "mtbf_h": "reliability.gpu_hours_per_failure",
    "mtbf_hours": "reliability.gpu_hours_per_failure",
    "mtbf_s": "reliability.gpu_hours_per_failure",
    "num_spare_nodes": "search.with_spares",
    "pipeline_model_parallel_size": "search.pipeline_parallel",
    "power_cap": "search.power_caps",
    "power_limit_w": "limits.power_w",
    "pp": "search.pipeline_parallel",
    "precision": "workload.precisions",
    "price": "offers[0].rent_usd_per_gpu_hour or offers[0].purchase_usd_per_node",
    "pue": "site.power_usage_effectiveness",
    "region": "site.region or offers[0].site",
    "scheme": "search.checkpoint_schemes",
    "schemes": "search.checkpoint_schemes",
    "spare_nodes": "search.with_spares",
    "spares": "search.with_spares",
    "tensor_model_parallel_size": "search.tensor_parallel",
    "tp": "search.tensor_parallel",
    "useful_life": "ownership.lifetime_years",
    "virtual_pipeline_model_parallel_size": "search.virtual_pipeline",
    "vpp": "search.virtual_pipeline",
    "wacc": "ownership.capital_cost_fraction_per_year",
    "water_usage_effectiveness": "site.water_onsite_l_per_kwh",
    "wue": "site.water_onsite_l_per_kwh",
    "zero_stage": "search.zero_stages",
}
"""Fields of a job by what Megatron-LM, plans and other people call them."""

FLEET_NAMES: Final[Mapping[str, str]] = {
    "capital_usd": "limits.capital_usd of a fleet file (capplan purchase)"
}
"""What only a fleet has."""

PAGES: Final[Mapping[str, str]] = dict.fromkeys(
    ("carbon_price", "carbon_tax", "co2_price"), "docs/how-to/carbon-report.md (a price of carbon)"
)
"""What no file has, and a page answers."""

OTHER_VALUES: Final[Mapping[str, str]] = {"in_memory": "in_memory_peer"}
"""Choices by what other people call them."""

PARTS: Final[Mapping[str, str]] = {
    "down_proj": "linear_fc2",
    "gate_proj": "linear_fc1",
    "gate_up_proj": "linear_fc1",
    "k_proj": "linear_qkv",
    "o_proj": "linear_proj",
    "q_proj": "linear_qkv",
    "qkv_proj": "linear_qkv",
    "up_proj": "linear_fc1",
    "v_proj": "linear_qkv",
}
"""Choices by what PEFT calls their parts."""


def other_place(name: str) -> str:
    """Returns the field of a job that a name means where there is none; empty if none is known.

    Example:
        >>> other_place("tokens"), other_place("tensor-model-parallel-size"), other_place("wings")
        ('workload.tokens', 'search.tensor_parallel', '')
    """
    key = _key(name)
    named = OTHER_NAMES.get(key) or FLEET_NAMES.get(key) or PAGES.get(key)
    return named or " or ".join(_places().get(name, ()))


def other_value(value: object, choices: str) -> str:
    """Returns, to append to a rule, which of the choices in it a value means under another name; empty if none is known.

    Example:
        >>> other_value("q_proj", "'linear_qkv' or 'linear_proj'"), other_value("q_proj", "'bf16' or 'fp8'")
        ('; q_proj is part of linear_qkv here', '')
    """
    key = _key(value) if isinstance(value, str) else ""
    whole, meant = PARTS.get(key), OTHER_VALUES.get(key)
    if whole and f"'{whole}'" in choices:
        return f"; {value} is part of {whole} here"
    return f"; see {meant}" if meant and f"'{meant}'" in choices else ""


def _key(name: str) -> str:
    return name.lower().replace("-", "_")


@cache
def _places() -> Mapping[str, tuple[str, ...]]:
    """The fields of each section of a job, by their names; not the uncertainties, which are named after what they change."""
    places: dict[str, tuple[str, ...]] = {}
    for section, field in Job.model_fields.items():
        if section != "input_factors" and (record := record_in(field.annotation)):
            place = f"{section}[0]" if section == "offers" else section
            for name in known_fields(record):
                places[name] = (*places.get(name, ()), f"{place}.{name}")
    return places
