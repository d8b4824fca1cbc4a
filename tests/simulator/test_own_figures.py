"""Does a user's own price list or region file replace what it names, and nothing else?"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.job_file import parse_job
from simulator import catalog
from simulator.catalog import Kind, overlaid, read_own_figures
from simulator.errors import CatalogError, InputError
from tests.support import H100_RENTED

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


def test_a_price_list_stands_alone(tmp_path: Path) -> None:
    path = written(tmp_path, f"rents,{H100},on_demand,1.50,USD/GPU-hour,our contract,2026-11,verified")
    with overlaid(read_own_figures([path])):
        rent, source = catalog.rent(H100)
    assert rent.mid == rent.high == 1.5
    assert "1 price" in source
    assert catalog.rent(H100)[0].mid != 1.5


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
    with (
        overlaid(read_own_figures([written(tmp_path, *rows[:2])])),
        pytest.raises(CatalogError, match="make no site: power_usage_effectiveness: Field required"),
    ):
        catalog.site("our-hall")


def test_a_job_brings_its_own_files_and_later_ones_win(tmp_path: Path) -> None:
    for name, usd in (("first.csv", 0.11), ("second.csv", 0.12)):
        written(tmp_path, f"sites,us-iowa,electricity_price,{usd},USD/kWh,us,2026,verified", name=name)
    job = parse_job(
        {
            "workload": {
                "model": "llama-3.1-8b",
                "tokens": 1e10,
                "sequence_length": 8192,
                "global_batch_size": 64,
            },
            "offers": [dict(H100_RENTED)],
            "site": "us-iowa",
            "catalog": ["first.csv", "second.csv"],
        },
        folder=tmp_path,
    )
    assert job.site.electricity_usd_per_kwh == 0.12


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("grids,us-iowa,grid_carbon,0.1,kgCO2e/kWh,us,2026,verified", "kind must be one of accelerators"),
        ("sites,,grid_carbon,0.1,kgCO2e/kWh,us,2026,verified", "id must not be empty"),
        ("sites,us-iowa,grid_carbon,-1,kgCO2e/kWh,us,2026,verified", "finite number that is not negative"),
        ("sites,us-iowa,grid_carbon,nan,kgCO2e/kWh,us,2026,verified", "finite number"),
        ("sites,us-iowa,grid_carbon,0.1,g/kWh,us,2026,verified", "unit must be one of"),
        ("sites,us-iowa,grid_carbon,0.1,kgCO2e/kWh,,2026,verified", "source must say where"),
        ("sites,us-iowa,grid_carbon,0.1,kgCO2e/kWh,us,now,verified", "date must be a year"),
        ("sites,us-iowa,grid_carbon,0.1,kgCO2e/kWh,us,2026,sure", "confidence must be one of verified"),
        ("sites,us-iowa,grid_carbon", "must have 8 columns"),
    ],
)
def test_a_broken_row_says_what_is_wrong(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(InputError, match=f"row 2.*{message}"):
        read_own_figures([written(tmp_path, row)])


def test_a_file_without_the_heading_says_which_one_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("region,price\n", encoding="utf-8")
    with pytest.raises(InputError, match="must begin with the line kind,id,quantity"):
        read_own_figures([path])


def test_a_missing_file_is_a_problem_of_the_job(tmp_path: Path) -> None:
    document = {"workload": {}, "offers": [], "site": "us-iowa", "catalog": "none.csv"}
    with pytest.raises(InputError, match=r"catalog = .*none\.csv.*cannot be read: FileNotFoundError"):
        parse_job(document, folder=tmp_path)
