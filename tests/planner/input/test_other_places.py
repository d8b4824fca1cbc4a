"""Does an unknown field of a job lead to the field that is meant, in whatever place or under whatever name it was written?"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import InputError, load_fleet, load_job, parse_job
from planner.input.other_places import OTHER_NAMES, other_place
from planner.input.schema import known_fields, record_in
from simulator.domain.job import Job

EXAMPLES = Path(__file__).parents[3] / "examples"


def rule_of(override: str) -> str:
    with pytest.raises(InputError) as refused:
        load_job(EXAMPLES / "bloom-176b.yaml", [override])
    (problem,) = refused.value.problems
    return problem.rule


@pytest.mark.parametrize(
    ("override", "place"),
    [
        # In another section than its own, also where a similar name is near.
        ("workload.tensor_parallel=[4]", "search.tensor_parallel"),
        ("limits.power_caps=[0.8]", "what_if.power_caps or search.power_caps"),
        ("workload.num_gpus=512", "offers[0].num_gpus or limits.num_gpus"),
        ("tokens=2e12", "workload.tokens"),
        # As Megatron-LM, a plan or people call it.
        ("workload.tensor_model_parallel_size=4", "search.tensor_parallel"),
        ("search.tp=[4]", "search.tensor_parallel"),
        ("checkpointing.scheme=async", "search.checkpoint_schemes"),
        ("checkpointing.schemes=[async]", "search.checkpoint_schemes"),
        ("offers[0].spare_nodes=8", "search.with_spares"),
        ("site.pue=1.1", "site.power_usage_effectiveness"),
        ("limits.memory_gb=60", "search.memory_headroom_fraction"),
        ("search.precision=[fp8]", "workload.precisions"),
        ("limits.capital_usd=2e6", "limits.capital_usd of a fleet file (capplan purchase)"),
        ("site.wue=1.1", "site.water_onsite_l_per_kwh"),
        ("ownership.wacc=0.1", "ownership.capital_cost_fraction_per_year"),
        ("ownership.depreciation_years=4", "ownership.lifetime_years"),
        ("offers[0].price=2", "offers[0].rent_usd_per_gpu_hour or offers[0].purchase_usd_per_node"),
        ("offers[0].region=norway", "site.region or offers[0].site"),
        # What a page answers.
        ("site.carbon_price=100", "docs/how-to/carbon-report.md (a price of carbon)"),
        # Not the uncertainty of the same name under input_factors.
        ("site.electricity_price=0.1", "site.electricity_usd_per_kwh"),
        ("ownership.lifetime=4", "ownership.lifetime_years"),
    ],
)
def test_a_field_in_the_wrong_place_leads_to_the_right_one(override: str, place: str) -> None:
    assert rule_of(override) == f"unknown field here; see {place}"


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("limits.budgets_usd=1", "budget_usd"),
        ("offers[0].rent=2", "rent_usd_per_gpu_hour"),
        # Uncertainties have such names, too.
        ("site.grid=0.3", "grid_kgco2e_per_kwh, grid_profile"),
        ("ownership.maintenance=0.05", "maintenance_fraction_per_year"),
    ],
)
def test_a_name_that_means_nothing_has_the_nearest_fields_of_its_place(override: str, nearest: str) -> None:
    assert rule_of(override) == f"unknown field; nearest: {nearest}"


@pytest.mark.parametrize(
    ("override", "way"),
    [
        ("workload.lora={rank: 16, targets: [q_proj]}", "'linear_fc2'; q_proj is part of linear_qkv here"),
        ("workload.lora={rank: 16, targets: [wings]}", "'linear_fc2'"),
        ("search.checkpoint_schemes=[in_memory]", "'replica_ft'; see in_memory_peer"),
        ("search.checkpoint_schemes=[q_proj]", "'replica_ft'"),
    ],
)
def test_a_choice_under_another_name_leads_to_the_right_one(override: str, way: str) -> None:
    assert rule_of(override).endswith(f" or {way}")


@pytest.mark.parametrize("places", OTHER_NAMES.values())
def test_every_place_is_a_field_of_a_job(places: str) -> None:
    for place in places.split(" or "):
        section, _, name = place.partition(".")
        record = record_in(Job.model_fields[section.removesuffix("[0]")].annotation)
        assert record is not None
        assert name in known_fields(record)
        assert other_place(name).find(place) >= 0


def test_files_of_other_kinds_have_no_fields_of_a_job() -> None:
    with pytest.raises(InputError, match=r"limits\.deadline_days = 3: unknown field; known: "):
        load_fleet(EXAMPLES / "fleet.yaml", ["limits.deadline_days=3"])


def test_one_offer_without_its_dash_is_told_how_to_begin_it() -> None:
    offer = {"accelerator": "h100-sxm5-80gb", "num_gpus": 64}
    workload = {"model": "llama-3.1-8b", "tokens": 1e11, "sequence_length": 8192, "global_batch_size": 512}
    with pytest.raises(InputError) as refused:
        parse_job({"workload": workload, "offers": offer, "site": "us-iowa"})
    (problem,) = refused.value.problems
    assert problem.rule == "must be a list of such mappings; write '- ' before the first field of each"
