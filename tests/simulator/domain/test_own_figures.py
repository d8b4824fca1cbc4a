"""Does a user's own price list or region file replace what it names, and nothing else?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.job.file import parse_job
from planner.job.own_factors import FACTOR_FIELDS, PROCESS_FIELDS
from planner.views.catalog_view import as_json
from simulator import catalog
from simulator.catalog import Kind, overlaid, read_own_figures
from simulator.domain.job import Job
from simulator.errors import InputError
from tests.support import H100_RENTED, document_with

HEAD = "kind,id,quantity,value,unit,source,date,confidence\n"
H100 = "h100-sxm5-80gb"


def written(folder: Path, *rows: str, name: str = "own.csv") -> Path:
    path = folder / name
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def test_a_region_file_replaces_the_figures_that_it_names(tmp_path: Path) -> None:
    path = written(tmp_path, "sites,us-iowa,electricity_price,0.047,USD/kWh,our tariff,2026,verified")
    before = catalog.site("us-iowa")
    with overlaid(read_own_figures([path])):
        own = catalog.site("us-iowa")
        (figure,) = [f for f in catalog.figures(Kind.SITES, "us-iowa") if f.quantity == "electricity_price"]
    assert (own.electricity_usd_per_kwh, figure.source) == (0.047, "our tariff")
    assert own == before.model_copy(update={"electricity_usd_per_kwh": 0.047})
    assert catalog.site("us-iowa") == before


@pytest.mark.parametrize(("written_word", "is_card"), [("true", True), ("false", False)])
def test_a_card_of_ones_own_need_not_be_named_after_pcie(
    tmp_path: Path, written_word: str, *, is_card: bool
) -> None:
    row = f"accelerators,h20-sxm-96gb,pcie_card,{written_word},text,our board,2026,verified"
    with overlaid(read_own_figures([written(tmp_path, row)])):
        assert catalog.is_pcie_card("h20-sxm-96gb") is is_card


def test_a_price_list_stands_alone(tmp_path: Path) -> None:
    path = written(tmp_path, f"rents,{H100},on_demand,1.50,USD/GPU-hour,our contract,2026-11,verified")
    with overlaid(read_own_figures([path])):
        rent, source = catalog.rent(H100)
    assert rent.low == rent.mid == rent.high == 1.5
    assert "1 price" in source
    assert catalog.rent(H100)[0].mid != 1.5


def test_several_own_prices_are_a_range_without_discounts_that_nobody_gave(tmp_path: Path) -> None:
    row = f"rents,{H100},{{}},{{}},USD/GPU-hour,our contract,2026-11,verified"
    path = written(tmp_path, row.format("on_demand", 3.0), row.format("reserved_1y", 2.0))
    with overlaid(read_own_figures([path])):
        rent, _ = catalog.rent(H100)
    assert (rent.low, rent.mid, rent.high) == (2.0, 3.0, 3.0)


def test_a_new_region_needs_every_figure_that_a_site_requires(tmp_path: Path) -> None:
    row = "sites,our-hall,{},{},{},us,2026,verified"
    rows = [
        row.format("grid_carbon", 0.2, "kgCO2e/kWh"),
        row.format("electricity_price", 0.05, "USD/kWh"),
        row.format("power_usage_effectiveness", 1.1, "ratio"),
    ]
    with overlaid(read_own_figures([written(tmp_path, *rows)])):
        assert catalog.site("our-hall").grid_kgco2e_per_kwh == 0.2
        assert "our-hall" in catalog.names(Kind.SITES)
    incomplete = written(tmp_path, *rows[:2])
    with pytest.raises(
        InputError,
        match=r"own\.csv.*\n  row 2, id = our-hall: .*missing, with their units: power_usage_effectiveness \(ratio\)$",
    ):
        read_own_figures([incomplete])
    rest = written(tmp_path, rows[2], name="rest.csv")
    assert "our-hall" in read_own_figures([incomplete, rest])["sites.csv"]


def test_what_a_new_accelerator_lacks_is_told_as_it_must_be_written(tmp_path: Path) -> None:
    row = "accelerators,our-chip,{},{},{},us,2026,verified"
    rows = [
        row.format("name", "Our chip", "text"),
        row.format("memory", 0, "GiB"),
        row.format("default_node", "dgx-h100", "text"),
        row.format("default_fabric", "infiniband-ndr", "text"),
    ]
    with pytest.raises(InputError) as broken:
        read_own_figures([written(tmp_path, *rows)])
    (told,) = (problem.rule for problem in broken.value.problems)
    assert "missing, with their units: vendor (text), family (text), memory_bandwidth (GB/s), " in told
    assert "idle_power (W)" in told
    assert "; memory: Input should be greater than 0" in told
    assert "_bytes" not in told


def test_a_job_brings_its_own_files_and_later_ones_win(tmp_path: Path) -> None:
    for name, usd in (("first.csv", 0.11), ("second.csv", 0.12)):
        written(tmp_path, f"sites,us-iowa,electricity_price,{usd},USD/kWh,us,2026,verified", name=name)
    job = parse_job(document_with(catalog=["first.csv", "second.csv"]), folder=tmp_path)
    assert job.site.electricity_usd_per_kwh == 0.12


US_IOWA = "sites,us-iowa,"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "grids,us-iowa,grid_carbon,0.1,kgCO2e/kWh,us,2026,verified",
            "row 2, kind = grids: must be one of accelerators",
        ),
        ("site,us-iowa,grid_carbon,0.1,kgCO2e/kWh,us,2026,verified", "kind = site: .*nearest: sites"),
        ("sites,,grid_carbon,0.1,kgCO2e/kWh,us,2026,verified", "row 2, id: must not be empty"),
        (
            US_IOWA + "grid_carbon,-1,kgCO2e/kWh,us,2026,verified",
            "row 2, value = -1: must be a finite number",
        ),
        (
            US_IOWA + "grid_carbon,nan,kgCO2e/kWh,us,2026,verified",
            "row 2, value = nan: must be a finite number",
        ),
        (US_IOWA + "grid_carbon,much,kgCO2e/kWh,us,2026,verified", "row 2, value = much: must be a finite"),
        (
            US_IOWA + 'grid_carbon,"0,1",kgCO2e/kWh,us,2026,verified',
            "value = 0,1: must be a finite .*; decimals must be separated by a point, and thousands by nothing",
        ),
        (
            US_IOWA + "grid_carbon,100,g/kWh,us,2026,verified",
            "row 2, unit = g/kWh: must be kgCO2e/kWh for grid",
        ),
        (US_IOWA + "grid_carbon,0.1,USD/kWh,us,2026,verified", "row 2, unit = USD/kWh: must be kgCO2e/kWh"),
        (US_IOWA + "grid_carbon,low,text,us,2026,verified", "row 2, unit = text: must be kgCO2e/kWh"),
        (
            US_IOWA + "grid_carbn,0.1,kgCO2e/kWh,us,2026,verified",
            "quantity = grid_carbn: .*nearest: grid_carbon",
        ),
        (
            US_IOWA + "port_price,1,USD,us,2026,verified",
            "row 2, quantity = port_price: is no figure of sites",
        ),
        (US_IOWA + "grid_carbon,0.1,kgCO2e/kWh,,2026,verified", "row 2, source: must say where"),
        (US_IOWA + "grid_carbon,0.1,kgCO2e/kWh,us,now,verified", "row 2, date = now: must be a year"),
        (US_IOWA + "grid_carbon,0.1,kgCO2e/kWh,us,2026-13,verified", "row 2, date = 2026-13: must be a year"),
        (
            US_IOWA + "grid_carbon,0.1,kgCO2e/kWh,us,2026,sure",
            "row 2, confidence = sure: must be one of verified",
        ),
        (US_IOWA + "grid_carbon", "row 2 = sites,us-iowa,grid_carbon: must have 8 columns"),
        (US_IOWA + "grid_carbon,0.1,kgCO2e/kWh,us,2026,verified,x", "row 2 .*must have 8 columns"),
        (
            US_IOWA + "grid_carbon,400,kgCO2e/kWh,us,2026,verified",
            "row 2, id = us-iowa: .*less than or equal to 2",
        ),
        (US_IOWA + "power_usage_effectiveness,0.9,ratio,us,2026,verified", "id = us-iowa: .*or equal to 1"),
        (
            "rents,h100-sxm5-80,on_demand,2,USD/GPU-hour,us,2026,verified",
            "row 2, id = h100-sxm5-80: is not among the catalogue's accelerators; nearest: h100-sxm5-80gb",
        ),
        (
            f"rents,{H100},on-demand,2,USD/GPU-hour,us,2026,verified",
            "quantity = on-demand: .*nearest: on_demand",
        ),
        (
            "nodes,dgx-h100,accelerator,h100,text,us,2026,verified",
            "row 2, value = h100: is not among the cat",
        ),
        (
            f"accelerators,{H100},default_node,our-box,text,us,2026,verified",
            "value = our-box: is not among the",
        ),
        ("fabrics,our-net,switch_ports,2,count,us,2026,verified", "row 2, id = our-net: .*switch_ports"),
        ("factors,flush,price,250,USD/TB,us,2026,verified", "row 2, id = flush: .*factors; nearest: flash"),
        (
            "factors,flash,loss_of_value,0.1,1/year,us,2026,verified",
            "is no figure of flash; known: embodied_carbon",
        ),
        ("factors,flash,price,250,USD/W,us,2026,verified", "row 2, unit = USD/W: must be USD/TB for price"),
    ],
)
def test_a_broken_row_names_file_row_column_value_and_rule(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"own\.csv: 1 problem\n  .*{message}"):
        read_own_figures([written(tmp_path, row)])


def test_a_new_accelerator_must_say_which_node_and_network_it_comes_with(tmp_path: Path) -> None:
    row = "accelerators,our-chip,memory,80,GB,us,2026,verified"
    with pytest.raises(InputError, match="our-chip: must have default_node and default_fabric, too"):
        read_own_figures([written(tmp_path, row)])


def test_the_same_figure_twice_is_refused_and_prices_of_two_vendors_are_not(tmp_path: Path) -> None:
    tariff = "sites,us-iowa,electricity_price,{},USD/kWh,us,2026,verified"
    with pytest.raises(
        InputError, match="row 3, quantity = electricity_price: stands for us-iowa in row 2 already"
    ):
        read_own_figures([written(tmp_path, tariff.format(0.05), tariff.format(0.06))])
    price = "rents,h100-sxm5-80gb,on_demand,{},USD/GPU-hour,{},2026,verified"
    with pytest.raises(
        InputError, match="row 3, quantity = on_demand: stands for h100-sxm5-80gb in row 2 already"
    ):
        read_own_figures([written(tmp_path, price.format(2, "A"), price.format(3, "A"))])
    vendors = written(tmp_path, price.format(2, "vendor A"), price.format(3, "vendor B"))
    with overlaid(read_own_figures([vendors])):
        rent, source = catalog.rent(H100)
    assert (rent.mid, rent.high) == (2.5, 3.0)
    assert "vendor A, vendor B" in source


def test_all_problems_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    rows = ["grids,x,y,1,USD,us,2026,verified", "sites,us-iowa,grid_carbon,-1,kgCO2e/kWh,us,2026,verified"]
    with pytest.raises(InputError, match=r"2 problems\n  row 2, kind.*\n  row 3, value"):
        read_own_figures([written(tmp_path, *rows)])


class TestFactors:
    """What holds for all hardware is replaced as well, wherever a job takes it as a default."""

    def job_of(self, folder: Path, *rows: str, **fields: object) -> Job:
        written(folder, *rows)
        return parse_job(document_with(catalog="own.csv", **fields), folder=folder)

    def test_prices_and_footprints_enter_the_job_where_it_says_nothing(self, tmp_path: Path) -> None:
        rows = [
            "factors,flash,price,250,USD/TB,our quote,2026,verified",
            "factors,flash,embodied_carbon,0.1,kgCO2e/GB,our quote,2026,verified",
            "factors,facility,price,9,USD/W,our hall,2026,verified",
            "factors,building,embodied_carbon,50,kgCO2e,our hall,2026,verified",
            "factors,failure,replaced_accelerators,0.25,count,our log,2026,verified",
            "factors,nodes,loss_of_value,0.5,1/year,our sales,2026,verified",
        ]
        job = self.job_of(
            tmp_path, *rows, ownership={"depreciation": "economic", "building_kgco2e_per_gpu": 70}
        )
        assert job.storage.usd_per_byte == pytest.approx(250e-12)
        assert job.storage.embodied_kgco2e_per_byte == pytest.approx(0.1e-9)
        own = job.ownership
        assert (own.facility_usd_per_w, own.replaced_gpus_per_node_failure) == (9.0, 0.25)
        assert own.economic_loss_per_year == 0.5
        assert own.building_kgco2e_per_gpu == 70  # the job says so itself
        straight = self.job_of(tmp_path, *rows).ownership
        assert (straight.economic_loss_per_year, straight.building_kgco2e_per_gpu) == (0.32, 50.0)

    def test_a_switch_stands_in_every_fabric_that_has_no_own_figure(self, tmp_path: Path) -> None:
        rows = [
            "factors,switch,embodied_carbon,400,kgCO2e,our vendor,2026,verified",
            "fabrics,infiniband-hdr,embodied_switch_carbon,350,kgCO2e,our vendor,2026,verified",
        ]
        assert self.job_of(tmp_path, *rows).offers[0].fabric.embodied_switch_kgco2e == 400
        with overlaid(read_own_figures([tmp_path / "own.csv"])):
            assert catalog.fabric("infiniband-hdr").embodied_switch_kgco2e == 350
            assert catalog.fabric("infiniband-hdr").switch_power_w == 253  # as shipped
        written_out = self.job_of(tmp_path, *rows, fabric={"kind": "infiniband-ndr"})
        assert written_out.offers[0].fabric.embodied_switch_kgco2e == 400

    @pytest.mark.parametrize(("abated", "gases"), [(0.95, 0.9), (0.97, 0.6), (0.99, 0.3)])
    def test_silicon_is_counted_with_the_figures_of_the_own_fab(
        self, tmp_path: Path, abated: float, gases: float
    ) -> None:
        rows = [
            "factors,logic-5nm,fab_energy,2.0,kWh/cm2,our fab,2026,verified",
            "factors,logic-5nm,fab_gases_95,0.9,kgCO2e/cm2,our fab,2026,verified",
            "factors,logic-5nm,fab_gases_99,0.3,kgCO2e/cm2,our fab,2026,verified",
            "factors,fab,grid_carbon,0.1,kgCO2e/kWh,our fab,2026,verified",
            "factors,fab,yield,0.8,fraction,our fab,2026,verified",
            "factors,stacked-memory,embodied_carbon,0.5,kgCO2e/GB,our vendor,2026,verified",
            "factors,board,embodied_carbon,20,kgCO2e,our vendor,2026,verified",
        ]
        shipped = catalog.accelerator(H100).model_dump(mode="json")
        dies = {"logic_m2": 800e-6, "process": "5nm", "memory_bytes": 80e9, "abatement_fraction": abated}
        chip = {**shipped, "dies": dies}
        del chip["embodied_kgco2e"]
        job = self.job_of(tmp_path, *rows, offers=[{**H100_RENTED, "accelerator": chip}])
        # 8 cm2 of (0.1 x 2 kWh + gases + 0.5 materials) at a yield of 0.8, 80 GB at 0.5 and a board of 20 kg.
        expected = 8 * (0.2 + gases + 0.5) / 0.8 + 40 + 20
        assert job.offers[0].accelerator.embodied_kgco2e == pytest.approx(expected)

    def test_every_factor_of_the_catalogue_has_a_field_that_it_replaces(self) -> None:
        known = {
            (name, figure.quantity)
            for name in catalog.names(Kind.FACTORS)
            for figure in catalog.figures(Kind.FACTORS, name)
        }
        processes = {pair for pair in known if pair[0].startswith("logic-")}
        assert {quantity for _, quantity in processes} == set(PROCESS_FIELDS)
        assert known - processes == set(FACTOR_FIELDS)

    @pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.MODELS])
    def test_an_own_figure_shows_in_every_kind_that_the_catalogue_lists(
        self, tmp_path: Path, kind: Kind
    ) -> None:
        name = catalog.names(kind)[-1]
        figure = next(f for f in catalog.figures(kind, name) if f.unit != "text")
        row = (
            f"{kind.value},{name},{figure.quantity},{figure.value},{figure.unit},our source,2026-11,verified"
        )
        with overlaid(read_own_figures([written(tmp_path, row)])):
            shown = json.loads(as_json(kind, name))["entries"][name]
        assert "our source" in [f["source"] for f in shown if f["quantity"] == figure.quantity]


def test_a_file_without_figures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has a heading and no figures below it"):
        read_own_figures([written(tmp_path)])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("factors,switch,embodied_carbon,1e12,kgCO2e", r"row 2, value = 1e\+12: is more than 100 times"),
        ("factors,flash,price,400e3,USD/TB", r"row 2, value = 400000: is more than 100 times.*another unit"),
        ("fabrics,infiniband-ndr,port_price,1e9,USD", r"port_price: Input should be less than or equal to"),
    ],
)
def test_figures_of_another_unit_are_refused(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_own_figures([written(tmp_path, f"{row},us,2026,verified")])


def test_a_file_without_the_heading_says_which_one_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("region,price\n", encoding="utf-8")
    with pytest.raises(InputError, match="must begin with the line kind,id,quantity"):
        read_own_figures([path])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"kind;id;quantity;value;unit;source;date;confidence",
            "must begin with the line kind,id.*separated by commas, not by semicolons",
        ),
        ("kind,id".encode("utf-16-le"), "is not UTF-8 text: it looks like UTF-16; save it as UTF-8"),
        (b"kind,i\0d", r"is no text: it holds a NUL character \(position 6\)"),
        (b"kind,\xe9", "is not UTF-8 text: byte 0xe9 at position 5; save it as UTF-8"),
    ],
)
def test_a_file_of_another_form_says_what_to_change(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_own_figures([path])


def test_a_job_says_which_of_its_files_is_wrong_and_where(tmp_path: Path) -> None:
    good = written(tmp_path, "sites,us-iowa,grid_carbon,0.1,kgCO2e/kWh,us,2026,verified", name="good.csv")
    bad = written(tmp_path, "sites,us-iowa,grid_carbn,0.1,kgCO2e/kWh,us,2026,verified", name="bad.csv")
    document = {"workload": {}, "offers": [], "site": "us-iowa", "catalog": [good.name, bad.name]}
    message = (
        r"catalog = 'bad\.csv': row 2, quantity = grid_carbn: is no figure of sites; nearest: grid_carbon"
    )
    with pytest.raises(InputError, match=message):
        parse_job(document, folder=tmp_path)


@pytest.mark.parametrize("files", [7, ["prices.csv", 7], {"prices": "prices.csv"}])
def test_own_files_are_named_by_paths(files: object) -> None:
    document = {"workload": {}, "offers": [], "site": "us-iowa", "catalog": files}
    with pytest.raises(InputError, match=r"catalog = .*: must be a path, or a list of paths"):
        parse_job(document)


def test_a_missing_file_is_a_problem_of_the_job(tmp_path: Path) -> None:
    document = {"workload": {}, "offers": [], "site": "us-iowa", "catalog": "none.csv"}
    with pytest.raises(InputError, match=r"catalog = .*none\.csv.*cannot be read: No such file"):
        parse_job(document, folder=tmp_path)


def test_a_rule_between_figures_is_told_in_its_own_words(tmp_path: Path) -> None:
    path = written(tmp_path, "nodes,dgx-h100,link_domain_size,12,count,our node,2026,verified")
    rule = r"make no node: link_domain_size \(12\) must be a multiple or a divisor of num_accelerators \(8\)$"
    with pytest.raises(InputError, match=rule):
        read_own_figures([path])


@pytest.mark.parametrize("row", ["idle_power,700,W", "thermal_design_power,0.7,W"])
def test_an_accelerator_draws_less_when_idle(tmp_path: Path, row: str) -> None:
    path = written(tmp_path, f"accelerators,{H100},{row},our meter,2026,verified")
    with pytest.raises(InputError, match=r"idle_power_w \(\d+\) must be below thermal_design_power_w \(\d"):
        read_own_figures([path])
