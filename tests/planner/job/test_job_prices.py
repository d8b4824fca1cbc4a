"""Are hourly profiles and contract prices read from a job file as intended?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner import recommend
from planner.job.file import parse_job
from planner.notes.price_notes import price_notes
from simulator import catalog
from simulator.catalog import Kind, figures
from simulator.catalog import rent as rent_of
from simulator.domain.hourly import HourlyProfile
from simulator.errors import InputError
from tests.support import A100_RENTED, H100_BOUGHT, H100_RENTED, document_with, job_with


class TestJobFile:
    def test_profiles_come_from_files_lists_and_swings(self, tmp_path: Path) -> None:
        (tmp_path / "grid.csv").write_text(
            "t,g\n" + "".join(f"2022-01-01T{hour:02d}:00,{400 - 200 * (hour % 2)}\n" for hour in range(24)),
            encoding="utf-8",
        )
        site = {
            "region": "us-iowa",
            "grid_profile": "grid.csv",
            "electricity_profile": {"mean": 0.1, "daily_amplitude": 0.05},
        }
        offer = {**H100_BOUGHT, "site": {"region": "norway", "grid_profile": [0.1, 0.2] * 12}}
        job = parse_job(document_with(offer, site=site), folder=tmp_path)
        assert job.site.grid_profile is not None
        assert job.site.grid_profile.per_hour == pytest.approx((0.4, 0.2) * 12)
        assert job.site.electricity_profile is not None
        assert job.site.electricity_profile.mean == pytest.approx(0.1)
        own = job.site_of(job.offers[0])
        assert own.grid_profile is not None
        assert (own.region, own.grid_profile.per_hour) == ("norway", (0.1, 0.2) * 12)

    def test_a_file_of_a_tariff_is_in_dollars_and_one_of_a_grid_in_grams(self, tmp_path: Path) -> None:
        for name, values in (("grid.csv", (400, 200)), ("tariff.csv", (0.4, 0.2))):
            rows = [f"2022-01-01T{hour:02d}:00,{values[hour % 2]}" for hour in range(24)]
            (tmp_path / name).write_text("\n".join(rows), encoding="utf-8")
        site = {"region": "us-iowa", "grid_profile": str(tmp_path / "grid.csv")}
        tariff = {"electricity_profile": str(tmp_path / "tariff.csv")}
        read = job_with(H100_BOUGHT, site={**site, **tariff}).site
        assert read.grid_profile == read.electricity_profile == HourlyProfile(per_hour=(0.4, 0.2) * 12)

    @pytest.mark.parametrize(
        ("profile", "message"),
        [
            ("none.csv", r"site\.grid_profile = 'none\.csv': cannot be read"),
            ({"mean": 0.1, "daily_amplitude": 0.2}, r"site\.grid_profile.*together not exceed the mean"),
            ([0.1, -0.2], r"site\.grid_profile\.per_hour\[1\] = -0\.2: must be at least 0"),
            ([], r"site\.grid_profile\.per_hour = \[\]: needs 1 or more entries"),
            ({"per_hour": 5}, r"site\.grid_profile\.per_hour = 5: must be a list"),
            ([1e308] * 24, r"grid_profile\.per_hour\[0\] = 1e\+308 must be at most 2 kg/kWh"),
            ([-1e308] * 24, r"site\.grid_profile\.per_hour\[0\] = -1e\+308: must be at least 0"),
            ({"mean": 400}, r"grid_profile\.per_hour\[0\] = 400 must be at most 2 kg/kWh"),
            (
                {"mean": 1e308, "daily_amplitude": 1e308},
                r"site\.grid_profile\.mean = 1e\+308: must be at most 1e\+30",
            ),
            ("gr\0id.csv", r"site\.grid_profile = .*: must be a path, which has no null character"),
        ],
    )
    def test_broken_profiles_say_where(self, profile: object, message: str) -> None:
        with pytest.raises(InputError, match=message):
            job_with(H100_RENTED, site={"region": "us-iowa", "grid_profile": profile})

    @pytest.mark.parametrize("contract", ["on_demand", "reserved_1y", "reserved_3y"])
    def test_a_contract_takes_the_catalogues_prices_of_its_kind(self, contract: str) -> None:
        offer = {**A100_RENTED, "rent_usd_per_gpu_hour": contract}
        rent = job_with(offer).offers[0].rent_usd_per_gpu_hour
        quotes = [
            float(figure.value)
            for figure in figures(Kind.RENTS, "a100-sxm4-80gb")
            if figure.quantity == contract
        ]
        assert rent is not None
        assert min(quotes) <= rent.low <= rent.mid <= rent.high <= max(quotes)

    @pytest.mark.parametrize(
        ("contract", "days"),
        [("on_demand", 0), ("reserved_1y", 365), ("reserved_1y", 400), ("reserved_3y", 1095)],
    )
    def test_a_commitment_may_be_that_of_its_contract_or_longer(self, contract: str, days: float) -> None:
        terms = {"rent_usd_per_gpu_hour": contract, "commitment_days": days}
        assert job_with({**A100_RENTED, **terms}).offers[0].commitment_days == days

    def test_a_single_spot_price_has_the_spread_of_all_rents_of_its_accelerator(self) -> None:
        # The catalogue has one spot price of an H100 (Nebius, 1.25 USD), and eleven rents.
        spot = {**H100_RENTED, "rent_usd_per_gpu_hour": "spot", "interruptions_per_1000_node_days": 50}
        (offer,) = job_with(spot).offers
        rent = offer.rent_usd_per_gpu_hour
        usual, _ = rent_of("h100-sxm5-80gb")
        assert rent is not None
        assert rent.mid == 1.25
        assert (rent.low / 1.25, rent.high / 1.25) == pytest.approx(
            (usual.low / usual.mid, usual.high / usual.mid), abs=0.005
        )
        assert offer.price_source.endswith("one price, with the spread of all rents of this accelerator")

    def test_spot_prices_come_with_their_interruptions(self) -> None:
        spot = {**H100_RENTED, "rent_usd_per_gpu_hour": "spot"}
        with pytest.raises(InputError, match="needs interruptions_per_1000_node_days"):
            job_with(spot)
        often = job_with({**spot, "interruptions_per_1000_node_days": 50})
        rent, usual = often.offers[0].rent_usd_per_gpu_hour, job_with(H100_RENTED).offers[0]
        assert rent is not None
        assert usual.rent_usd_per_gpu_hour is not None
        assert rent.mid < usual.rent_usd_per_gpu_hour.mid

    def test_a_contract_without_prices_names_those_that_a_job_may_give(self) -> None:
        with pytest.raises(
            InputError,
            match=r"rent_usd_per_gpu_hour = 'spot': v100\S+ has no price of the kind spot in the catalogue; "
            r"give on_demand or a number",
        ):
            job_with(
                {
                    **H100_RENTED,
                    "accelerator": "v100-sxm2-16gb",
                    "rent_usd_per_gpu_hour": "spot",
                    "interruptions_per_1000_node_days": 9,
                }
            )

    def test_an_unknown_accelerator_under_a_contract_is_told_once(self) -> None:
        with pytest.raises(InputError) as refused:
            job_with({**H100_RENTED, "accelerator": "trn2", "rent_usd_per_gpu_hour": "reserved_1y"})
        assert [problem.path for problem in refused.value.problems] == ["offers[0].accelerator"]

    def test_an_accelerator_that_nobody_rents_out_needs_a_price(self) -> None:
        with pytest.raises(InputError) as refused:
            job_with({"accelerator": "l40s-pcie-48gb", "num_gpus": 64})
        (problem,) = refused.value.problems
        assert (problem.path, problem.value) == ("offers[0].rent_usd_per_gpu_hour", "")
        assert problem.rule == (
            "is missing, and the catalogue knows no rent of l40s-pcie-48gb: give it, or purchase_usd_per_node"
        )

    def test_a_bought_offer_is_compared_with_the_catalogues_rent(self) -> None:
        other = job_with(H100_BOUGHT).offers[0].other_rent_usd_per_gpu_hour
        assert other is not None
        assert other.low < other.mid < other.high
        rented = {"accelerator": "h100-sxm5-80gb", "num_gpus": 64}  # at the catalogue's price
        assert other == job_with(rented).offers[0].rent_usd_per_gpu_hour
        design = recommend(job_with(H100_BOUGHT), tracking=False).best
        assert design is not None
        rent, own = design.metrics["rent_usd"], design.metrics["own_usd"]
        assert rent is not None
        assert own == pytest.approx(design.cost_usd)
        assert np.isfinite(rent)


class TestWhatToMind:
    def test_rents_of_unlike_vendors_are_told_with_those_of_common_ones(self) -> None:
        def told(*names: str) -> str:
            priced = {"num_gpus": 64, "rent_usd_per_gpu_hour": None}
            (note,) = price_notes(job_with(*({**priced, "accelerator": name} for name in names)))
            return note

        note = told("h100-sxm5-80gb", "b200-sxm-180gb")
        # B200 at 4.3 times the H100 in the middle, at 1.4 times at Oracle, whose prices are in `rents.csv`.
        (h100, _), (b200, _) = rent_of("h100-sxm5-80gb"), rent_of("b200-sxm-180gb")
        assert f"{h100.mid:.3g}, {b200.mid:.3g} USD per GPU-hour at the middle" in note
        assert "10, 14 at Oracle" in note
        assert "no vendor has a price for all" in told("b200-sxm-180gb", "tpu-v5p")  # Google's alone

    @pytest.mark.parametrize(
        ("h100", "b200", "is_unlike"),
        [(1.0, 1.24, False), (1.26, 1.0, True), (0.5, 0.62, False), (0.5, 0.63, True)],
    )
    def test_vendors_are_unlike_from_a_quarter_on(
        self, monkeypatch: pytest.MonkeyPatch, h100: float, b200: float, is_unlike: bool
    ) -> None:
        quotes = {
            name: {"Acme": share * rent_of(name)[0].mid}
            for name, share in (("h100-sxm5-80gb", h100), ("b200-sxm-180gb", b200))
        }
        monkeypatch.setattr(catalog, "vendor_rents", quotes.__getitem__)
        priced = {"num_gpus": 64, "rent_usd_per_gpu_hour": None}
        notes = list(price_notes(job_with(*({**priced, "accelerator": name} for name in quotes))))
        assert ["at Acme" in note for note in notes] == [True] * is_unlike

    @pytest.mark.parametrize("others", [(), (A100_RENTED,)])
    def test_a_single_rent_of_the_catalogue_is_told_with_its_range(
        self, others: tuple[dict[str, object], ...]
    ) -> None:
        # Oracle's list price, and 0.44 of it, are all that is known: `rents.csv`.
        (note,) = price_notes(job_with({"accelerator": "gb200", "num_gpus": 64}, *others))
        assert note == (
            "The rent of gb200, 16 USD per GPU-hour (7.04 to 16), comes from the catalogue: set rent_usd_per_gpu_hour to "
            "your quote."
        )

    def test_prices_of_the_job_are_its_own(self) -> None:
        assert not list(price_notes(job_with(H100_RENTED, A100_RENTED)))

    @pytest.mark.parametrize(("rent", "is_far"), [(260.0, True), (0.0, True), (0.9, False), (23.0, False)])
    def test_a_rent_far_outside_the_catalogue_is_told(self, rent: float, is_far: bool) -> None:
        # Catalogue: 2.65 to 7.94; a third and three times are 0.88 and 23.8.
        notes = list(price_notes(job_with({**H100_RENTED, "rent_usd_per_gpu_hour": rent})))
        assert [note.startswith("The rent of h100-sxm5-80gb") for note in notes] == [True] * is_far

    @pytest.mark.parametrize(("usd", "is_far"), [(34e3, True), (91e3, False), (800e3, False), (3e6, True)])
    def test_a_price_of_a_node_far_from_that_of_the_catalogue_is_told(self, usd: float, is_far: bool) -> None:
        # Catalogue: 270,000 to 296,644 for eight H100, so 34,000 is the price of one.
        notes = list(price_notes(job_with({**H100_BOUGHT, "purchase_usd_per_node": usd})))
        assert [note.endswith("is it that of a whole node?") for note in notes] == [True] * is_far

    def test_what_several_offers_have_in_common_is_told_once(self) -> None:
        job = job_with({**H100_RENTED, "rent_usd_per_gpu_hour": 30.0})
        twice = job.model_copy(update={"offers": (*job.offers, *job.offers)})
        assert list(price_notes(twice)) == list(price_notes(job))
