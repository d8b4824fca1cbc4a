"""Is every pair of mutually exclusive options refused, with both options in the message?"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from planner.job.file import parse_job
from simulator import catalog
from simulator.domain.hardware import Site
from simulator.domain.hourly import HourlyProfile
from simulator.errors import InputError
from tests.support import A100_RENTED, H100_BOUGHT, H100_RENTED, job_with

HOURLY = {"region": "us-iowa", "grid_profile": {"mean": 0.4, "daily_amplitude": 0.3}}
TARIFF = {"region": "us-iowa", "electricity_profile": {"mean": 0.1, "daily_amplitude": 0.05}}
H100 = "h100-sxm5-80gb"


def refused(message: str, *offers: Mapping[str, object], **fields: object) -> None:
    with pytest.raises(InputError, match=message):
        job_with(*offers, **fields)


def refused_at(place: str, message: str, site: object) -> None:
    """Checks that a site is refused where it stands: `job`, `offer` or `what_if`."""
    if place == "job":
        refused(rf"site\.{message}", site=site)
    if place == "offer":
        refused(rf"offers\[0\]\.site\.{message}", {**H100_RENTED, "site": site})
    if place == "what_if":
        refused(rf"what_if\.sites\[0\]\.{message}", what_if={"sites": [site]})


@pytest.mark.parametrize(
    ("offer", "message"),
    [
        (
            {**H100_BOUGHT, "commitment_days": 30},
            r"offers\[0\]\.commitment_days = 30: is a term of rents; leave it out where nodes are bought",
        ),
        (
            {**H100_BOUGHT, "interruptions_per_1000_node_days": 5},
            r"interruptions_per_1000_node_days = 5: are those of a landlord",
        ),
        (
            {**H100_BOUGHT, "other_purchase_usd_per_node": 1e5},
            r"other_purchase_usd_per_node = 100000: .*has purchase_usd_per_node itself",
        ),
        (
            {**H100_RENTED, "other_rent_usd_per_gpu_hour": 3.0},
            r"other_rent_usd_per_gpu_hour = 3: .*has rent_usd_per_gpu_hour itself",
        ),
        (
            {**H100_RENTED, "rent_usd_per_gpu_hour": "on_demand", "commitment_days": 30},
            r"commitment_days = 30: must be left out under rent_usd_per_gpu_hour: on_demand",
        ),
        (
            {**A100_RENTED, "rent_usd_per_gpu_hour": "reserved_1y", "commitment_days": 30},
            r"commitment_days = 30: must be 365 or more under rent_usd_per_gpu_hour: reserved_1y",
        ),
    ],
)
def test_terms_of_one_way_to_pay_are_refused_under_the_other(offer: dict[str, object], message: str) -> None:
    refused(message, offer)


class TestWhatWouldDoNothing:
    def test_the_making_of_storage_needs_a_capacity(self) -> None:
        refused(
            r"carbon_scope\.storage = true: counts the making of storage\.capacity_bytes, which are 0",
            carbon_scope={"storage": True},
        )

    @pytest.mark.parametrize("place", ["job", "offer", "what_if"])
    def test_cooling_without_overhead_has_no_fixed_part(self, place: str) -> None:
        site = {"region": "us-iowa", "power_usage_effectiveness": 1.0, "cooling_fixed_fraction": 0.3}
        message = r"cooling_fixed_fraction = 0\.3: is a share of the overhead of cooling, and .*: 1 has none"
        refused_at(place, message, site)

    def test_cooling_of_warm_hours_alone_has_a_fixed_part(self) -> None:
        climate = {"mean_celsius": 20, "free_cooling_below_celsius": 18, "overhead_per_celsius": 0.01}
        site = {"region": "us-iowa", "power_usage_effectiveness": 1.0, "climate": climate}
        assert job_with(H100_RENTED, site={**site, "cooling_fixed_fraction": 0.3}).site.climate

    @pytest.mark.parametrize(
        ("profile", "flat"),
        [
            ("grid_profile", "grid_kgco2e_per_kwh"),
            ("electricity_profile", "electricity_usd_per_kwh"),
        ],
    )
    def test_a_flat_figure_beside_a_profile_must_be_its_mean(self, profile: str, flat: str) -> None:
        site = {"region": "us-iowa", profile: [0.1, 0.3] * 12}
        refused(
            rf"site\.{flat} = 0\.5: is replaced by {profile}, whose mean is 0\.2", site={**site, flat: 0.5}
        )
        refused(rf"site\.{flat} = 0\.205: is replaced by {profile}", site={**site, flat: 0.205})
        for fields in (site, {**site, flat: 0.2}, {**site, flat: 0.201}):  # a mean may be rounded
            assert getattr(job_with(H100_RENTED, site=fields).site, flat) == pytest.approx(0.2, rel=0.01)

    @pytest.mark.parametrize(
        ("part", "field", "value"),
        [
            ("ownership", "facility_usd_per_w", 12_000),
            ("ownership", "lifetime_years", 1e-300),
            ("ownership", "network_lifetime_years", 1e-300),
            ("ownership", "facility_lifetime_years", 1e9),
            ("ownership", "building_kgco2e_per_gpu", 1e12),
            ("storage", "usd_per_byte", 400),
            ("storage", "embodied_kgco2e_per_byte", 0.16),
        ],
    )
    def test_figures_of_another_unit_are_refused(self, part: str, field: str, value: float) -> None:
        refused(rf"{part}\.{field} = .*: must be at (least|most)", **{part: {field: value}})


def test_a_footprint_and_the_silicon_that_it_is_counted_from_must_agree() -> None:
    chip = {
        **catalog.accelerator(H100).model_dump(mode="json"),
        "dies": {"logic_m2": 814e-6, "process": "5nm", "memory_bytes": 80e9},
    }
    refused(
        r"embodied_kgco2e = 164: is 1\d\d\.\d+ by dies; give either", {**H100_RENTED, "accelerator": chip}
    )
    counted = {name: value for name, value in chip.items() if name != "embodied_kgco2e"}
    job = job_with({**H100_RENTED, "accelerator": counted})
    # What was counted once may be read again with its silicon.
    assert parse_job(job.model_dump(mode="python")).offers[0].accelerator == job.offers[0].accelerator


@pytest.mark.parametrize(
    ("ownership", "message"),
    [
        ({"age_years": 1.0}, r"ownership\.age_years = 1: needs depreciation: economic; under straight_line"),
        ({"economic_loss_per_year": 0.5}, r"economic_loss_per_year = 0\.5: needs depreciation: economic"),
        (
            {"depreciation": "economic", "residual_fraction": 0.2},
            r"residual_fraction = 0\.2: needs depreciation: straight_line; under economic it does nothing",
        ),
    ],
)
def test_each_way_to_lose_value_has_its_own_terms(ownership: dict[str, object], message: str) -> None:
    refused(message, ownership=ownership)


@pytest.mark.parametrize(
    "fields", [{"search": {"power_caps": [1.0, 0.6]}}, {"what_if": {"power_caps": [0.6]}}]
)
def test_filler_work_cannot_hold_more_power_than_a_cap_allows(fields: dict[str, object]) -> None:
    refused(
        r"power_caps = 0\.6: must not fall below operation\.power_floor_fraction \(0\.7\)",
        operation={"power_floor_fraction": 0.7},
        **fields,
    )
    held = {"power_floor_fraction": 0.6}  # exactly at the lowest cap
    assert job_with(H100_RENTED, operation=held, **fields).operation.power_floor_fraction == 0.6


@pytest.mark.parametrize(
    ("by", "offer", "site", "needed"),
    [
        ("carbon", H100_RENTED, "us-iowa", "grid_profile"),
        ("carbon", H100_BOUGHT, TARIFF, "grid_profile"),
        ("price", H100_BOUGHT, HOURLY, "electricity_profile"),
        ("price", H100_RENTED, TARIFF, "electricity_profile of a site where nodes are bought"),
    ],
)
def test_pauses_need_hours_that_differ(by: str, offer: dict[str, object], site: object, needed: str) -> None:
    asked = {"pauses": [{"by": by, "hours_fraction": 0.25}]}
    refused(rf"what_if\.pauses\[0\]\.by = {by}: needs the {needed}", offer, site=site, what_if=asked)


def test_a_pause_may_be_a_single_hour_of_the_profile() -> None:
    day = {"region": "us-iowa", "grid_profile": [0.1, 0.3] * 12}
    asked = {"pauses": [{"by": "carbon", "hours_fraction": 1 / 24}]}
    assert job_with(H100_RENTED, site=day, what_if=asked).what_if.pauses
    asked = {"pauses": [{"by": "carbon", "hours_fraction": 0.04}]}
    refused("hours_fraction = 0.04: is less than one of the 24 hours", H100_RENTED, site=day, what_if=asked)


def test_an_hour_of_any_profile_on_offer_is_enough_to_pause() -> None:
    sites = ({"region": "us-iowa", "grid_profile": [0.1, 0.3] * num_pairs} for num_pairs in (12, 24))
    offers = [{**H100_RENTED, "site": site} for site in sites]
    asked = {"pauses": [{"by": "carbon", "hours_fraction": 1 / 48}]}
    assert job_with(*offers, what_if=asked).what_if.pauses


def test_hours_of_a_tariff_count_only_where_nodes_are_bought() -> None:
    day, two_days = ({"region": "us-iowa", "electricity_profile": [0.1, 0.3] * pairs} for pairs in (12, 24))
    offers = {**H100_BOUGHT, "site": day}, {**H100_RENTED, "site": two_days}
    asked = {"pauses": [{"by": "price", "hours_fraction": 1 / 48}]}
    refused(r"hours_fraction = 0\.0208333: is less than one of the 24 hours", *offers, what_if=asked)


def test_a_later_start_needs_hours_that_differ() -> None:
    asked = {"start_within_hours": 24}
    for offer, site in ((H100_RENTED, "us-iowa"), (H100_RENTED, TARIFF)):
        refused(r"what_if\.start_within_hours = 24: needs the grid_profile", offer, site=site, what_if=asked)
    for offer, site in ((H100_RENTED, HOURLY), (H100_BOUGHT, TARIFF)):
        assert job_with(offer, site=site, what_if=asked).what_if.start_within_hours == 24


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h1000", f"refresh_from = h1000: is not in the catalogue, and must be one of .*{H100}"),
        (
            "v100-sxm2-32gb",
            f"refresh_from = v100-sxm2-32gb: must be one of the offered accelerators \\({H100}\\)",
        ),
        (H100, f"refresh_from = {H100}: is the only accelerator on offer"),
    ],
)
def test_a_refresh_needs_the_old_accelerators_and_new_ones_on_offer(name: str, message: str) -> None:
    refused(message, what_if={"refresh_from": name})


def test_all_contradictions_are_reported_at_once() -> None:
    with pytest.raises(InputError, match="2 problems") as caught:
        job_with({**H100_BOUGHT, "commitment_days": 30}, ownership={"age_years": 1.0})
    assert [problem.path for problem in caught.value.problems] == [
        "offers[0].commitment_days",
        "ownership.age_years",
    ]


class TestWhatIsAskedInVain:
    def test_the_same_place_with_another_figure_is_another_case(self) -> None:
        dearer = {"region": "norway", "electricity_usd_per_kwh": 0.2}
        assert len(job_with(H100_RENTED, what_if={"sites": ["norway", dearer]}).what_if.sites) == 2

    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            ({"power_caps": [0.6, 0.8, 0.6]}, r"power_caps\[2\] = 0\.6: is what_if\.power_caps\[0\] again"),
            ({"rents_usd_per_gpu_hour": [2, 2.0]}, r"rents_usd_per_gpu_hour\[1\] = 2: is .*\[0\] again"),
            (
                {"purchases_usd_per_node": [3e5, 3e5]},
                r"purchases_usd_per_node\[1\] = 300000: is .*\[0\] again",
            ),
            ({"sites": ["norway", "norway"]}, r"sites\[1\] = norway: is what_if\.sites\[0\] again"),
            (
                {"pauses": [{"by": "carbon", "hours_fraction": 0.5}] * 2},
                r"pauses\[1\] = carbon: is what_if\.pauses\[0\] again; leave one of them out",
            ),
            (
                {"pauses": [{"by": "carbon", "hours_fraction": 1e-6}]},
                r"hours_fraction = 1e-06: is less than one of the 8760 hours of the profile.*take 0\.0002 or more",
            ),
        ],
    )
    def test_a_case_that_is_there_already_is_refused(self, asked: dict[str, object], message: str) -> None:
        refused(message, site=HOURLY, what_if=asked)


class TestImplausibleFigures:
    @pytest.mark.parametrize(
        ("offer", "message"),
        [
            (
                {**H100_RENTED, "rent_usd_per_gpu_hour": 250_000},
                r"rent_usd_per_gpu_hour \(250000\) must be at most 1,000: .* one accelerator and one hour",
            ),
            (
                {**H100_RENTED, "rent_usd_per_gpu_hour": {"low": 2, "mid": 3, "high": 4000}},
                r"rent_usd_per_gpu_hour \(4000\) must be at most 1,000",
            ),
            (
                {**H100_BOUGHT, "purchase_usd_per_node": 3e11},
                r"purchase_usd_per_node \(3e\+11\) must be at most 100,000,000: it is in USD for one node",
            ),
            ({**H100_BOUGHT, "other_rent_usd_per_gpu_hour": 1e6}, r"other_rent_usd_per_gpu_hour \(1e\+06\)"),
            ({**H100_RENTED, "other_purchase_usd_per_node": 1e9}, r"other_purchase_usd_per_node \(1e\+09\)"),
            (
                {**H100_RENTED, "interruptions_per_1000_node_days": 1e6},
                r"per_1000_node_days = .*at most 10000",
            ),
            ({**H100_RENTED, "commitment_days": 1e6}, r"commitment_days = .*at most 3660"),
        ],
    )
    def test_offers_have_prices_that_somebody_might_pay(self, offer: dict[str, object], message: str) -> None:
        refused(message, offer)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"ownership": {"staff_usd_per_year": 1e12}}, r"staff_usd_per_year = .*at most 1000000000"),
            (
                {"what_if": {"rents_usd_per_gpu_hour": [2, 5000]}},
                r"rents_usd_per_gpu_hour\[1\].*at most 1000",
            ),
            (
                {"what_if": {"purchases_usd_per_node": [1e9]}},
                r"purchases_usd_per_node\[0\].*at most 100000000",
            ),
        ],
    )
    def test_owners_and_cases_have_prices_that_somebody_might_pay(
        self, fields: dict[str, object], message: str
    ) -> None:
        refused(message, **fields)


OWN_REGION = {"region": "my hall", "electricity_usd_per_kwh": 0.1, "power_usage_effectiveness": 1.2}


class TestFlatFiguresBesideProfiles:
    @pytest.mark.parametrize(
        ("profile", "message"),
        [
            ("missing.csv", "site.grid_profile = 'missing.csv': cannot be read: No such file or directory"),
            ([0.1] * 23 + [-1.0], "site.grid_profile.per_hour[23] = -1: must be at least 0"),
            (
                HourlyProfile(per_hour=(30.0,) * 24),
                "site: grid_profile.per_hour[0] = 30 must be at most 2 kg/kWh; is it in another unit?",
            ),
        ],
    )
    def test_a_broken_profile_is_told_alone_and_not_that_a_flat_figure_is_missing(
        self, profile: object, message: str
    ) -> None:
        with pytest.raises(InputError) as raised:
            job_with(site={**OWN_REGION, "grid_profile": profile})
        assert [str(problem) for problem in raised.value.problems] == [message]

    def test_a_profile_that_is_null_replaces_no_flat_figure(self) -> None:
        with pytest.raises(InputError, match="a region of your own needs grid_kgco2e_per_kwh, too"):
            job_with(site={**OWN_REGION, "grid_profile": None})

    @pytest.mark.parametrize("place", ["job", "offer", "what_if"])
    def test_a_site_built_in_python_keeps_the_rule_of_files(self, place: str) -> None:
        profile = HourlyProfile(per_hour=(0.1,) * 24)
        site = Site.model_validate({**OWN_REGION, "grid_kgco2e_per_kwh": 0.3, "grid_profile": profile})
        message = r"grid_kgco2e_per_kwh = 0\.3: is replaced by grid_profile, whose mean is 0\.1; leave one of the two out$"
        refused_at(place, message, site)
        same = site.model_copy(update={"grid_kgco2e_per_kwh": 0.1})
        assert job_with(site=same).site == same


class TestDocuments:
    """Documents of 4,096 tokens in sequences of 8,192: a token sees 2,048 on average, of one document 4,096."""

    DOCUMENTS: Mapping[str, object] = {"lengths_tokens": [4096]}

    def test_no_replica_has_more_work_than_with_one_document_in_every_sequence(self) -> None:
        documents = {**self.DOCUMENTS, "imbalance": 2.5}
        refused(
            r"workload\.documents\.imbalance = 2\.5: must not exceed 2, ",
            workload={"sequence_length": 8192, "documents": documents},
        )

    def test_all_that_can_be_measured_is_accepted(self) -> None:
        documents = {**self.DOCUMENTS, "imbalance": 2.0}
        job = job_with(workload={"sequence_length": 8192, "documents": documents})
        assert job.workload.documents
        assert job.workload.documents.imbalance == 2.0
