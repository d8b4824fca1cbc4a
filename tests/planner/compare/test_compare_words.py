"""Are the names and values of a comparison words with units?"""

from __future__ import annotations

import pytest

from planner.compare.words import name_words, value_words, values_words
from planner.job.in_short import in_short
from simulator.domain.job import Job
from simulator.domain.offer import Estimate


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mfu_fraction", "MFU"),
        ("zero_stage", "ZeRO stage"),
        ("offers[h100-sxm5-80gb].price", "price of h100-sxm5-80gb"),
        ("offers[h100-sxm5-80gb]", "offer of h100-sxm5-80gb"),
        ("storage.write_bytes_per_s", "storage: write"),
        ("limits.deadline_days", "limits: deadline"),
        ("limits.power_ramp_w_per_s", "limits: power ramp"),
        ("site.water_onsite_l_per_kwh", "site: water onsite"),
        ("goodput_fraction", "goodput"),
        ("another design", "another design"),
        ("metrics.usd_per_million_tokens", "metrics: cost per million tokens"),
        ("metrics.carbon_delay_kgco2e_s", "metrics: carbon x time to train"),
    ],
)
def test_names_are_words(name: str, words: str) -> None:
    assert name_words(name) == words


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("checkpoint_interval_s", "123.5362", "2.06 min"),
        ("limits.budget_usd", "2100000", "$2.10 M"),
        ("limits.budget_usd", "not set", "not set"),
        ("storage.write_bytes_per_s", "5.7e10", "5.7e10 bytes/s"),
        ("reliability.failures_per_1000_node_days", "6.5", "6.5 per 1,000 node-days"),
        ("storage.write_bytes_per_s_per_node", "2e9", "2e9 bytes/s per node"),
        ("limits.power_ramp_w_per_s", "1e5", "1e5 W/s"),
        ("site.water_onsite_l_per_kwh", "1.8", "1.8 l/kWh"),
        ("site.electricity_usd_per_kwh", "0.058", "0.058 USD/kWh"),
        ("site.grid_kgco2e_per_kwh", "0.4", "0.4 kg CO2e/kWh"),
        ("ownership.facility_usd_per_w", "12", "12 USD/W"),
        ("reliability.domain_failures_per_1000_domain_days", "3", "3 per 1,000 domain-days"),
        ("workload.sync_bytes", "2", "2 bytes"),
        ("storage.capacity_bytes", "2147483648", "2.0 GiB"),
        ("ownership.staff_usd_per_year", "3e5", "3e5 USD per year"),
        ("ownership.capital_cost_fraction_per_year", "0.08", "0.08 share per year"),
        (
            "offers[a].other_rent_usd_per_gpu_hour",
            "2.08 (1.63 to 3.73)",
            "$2.08 ($1.63 to $3.73) per GPU-hour",
        ),
        ("offers[a].other_purchase_usd_per_node", "280000", "$280 k per node"),
        ("offers[a].price", "rent 2.6 (2 to 4) USD/GPU-hour", "rent $2.60 ($2.00 to $4.00) per GPU-hour"),
        ("offers[a].price", "purchase 280000 USD/node", "purchase $280 k per node"),
        ("offers[a].price", "purchase 3.4e6 USD/node", "purchase $3.40 M per node"),
        ("offer", "gb200 #2, rent 1.5 USD/GPU-hour", "gb200 #2, rent $1.50 per GPU-hour"),
        ("tensor_parallel", "8", "8"),
        ("num_gpus", "16384", "16,384"),
        ("workload.sequence_length", "131072", "131,072"),
        ("region", None, "-"),
    ],
)
def test_values_have_their_units(name: str, value: str | None, words: str) -> None:
    assert value_words(name, value) == words


def test_no_rate_of_a_job_is_told_as_a_quantity() -> None:
    records = Job.model_json_schema()["$defs"].values()
    rates = {name for record in records for name in record.get("properties", ()) if "_per_" in name}
    assert len(rates) > 40
    for name in rates:
        _, _, unit = value_words(name, "4").partition(" ")
        assert not unit or "/" in unit or "per " in unit, name


def test_prices_of_other_sizes_are_written_in_the_form_of_job_files() -> None:
    assert in_short(Estimate(low=3.2e6, mid=3.4e6, high=3.45e6)) == "3.4e6 (3.2e6 to 3.45e6)"
    assert in_short(Estimate(low=290000.5, mid=290000.5, high=290000.5)) == "290000.5"


def test_values_that_differ_never_look_alike() -> None:
    assert values_words("limits.budget_usd", ["2.104e6", "2.096e6"]) == ["2.104e6", "2.096e6"]
    assert values_words("limits.budget_usd", ["2.11e6", "2.09e6", "2.11e6"]) == [
        "$2.11 M",
        "$2.09 M",
        "$2.11 M",
    ]
    assert values_words("offers[a].price", ["purchase 280000 USD/node", "purchase 280100 USD/node"]) == [
        "purchase 280000 USD/node",
        "purchase 280100 USD/node",
    ]
    assert values_words("checkpoint_interval_s", ["93.07503", "93.07512", None]) == [
        "93.07503 s",
        "93.07512 s",
        "-",
    ]
    assert values_words("region", [None, "norway"]) == ["-", "norway"]
