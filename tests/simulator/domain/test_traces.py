"""Does a file of hourly values become its profile, and does a broken one name the row and the rule?"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from simulator.domain.traces import GRID_TRACE, PRICE_TRACE, TraceUnit, read_trace
from simulator.errors import InputError
from tests.support import H100_RENTED, job_with


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def day(value: Callable[[int], object] = lambda hour: 100 + hour, first: str = "2022-01-01") -> list[str]:
    return [f"{first}T{hour:02d}:00,{value(hour)}" for hour in range(24)]


def text_of(rows: list[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


def test_hours_are_read_in_grams_with_or_without_a_heading(tmp_path: Path) -> None:
    expected = tuple((100 + hour) / 1000 for hour in range(24))
    for heading in ([], ["timestamp,carbon_intensity"]):
        assert read_trace(written(tmp_path, text_of(heading + day()))).per_hour == pytest.approx(expected)


def test_time_zones_and_leap_years_are_read(tmp_path: Path) -> None:
    rows = [f"{row.replace(',', 'Z,')}" for row in day(first="2024-02-28") + day(first="2024-02-29")]
    assert len(read_trace(written(tmp_path, text_of(rows))).per_hour) == 48


def test_quarters_of_an_hour_are_averaged_and_days_repeated(tmp_path: Path) -> None:
    quarters = [f"2022-01-01 {q // 4:02d}:{15 * (q % 4):02d},{q % 4}" for q in range(96)]
    assert read_trace(written(tmp_path, text_of(quarters)), PRICE_TRACE).per_hour == (1.5,) * 24
    days = ["2022-01-01,1", "2022-01-02,3"]
    assert read_trace(written(tmp_path, text_of(days)), PRICE_TRACE).per_hour == (1.0,) * 24 + (3.0,) * 24


def changed(row: int, text: str) -> list[str]:
    rows = day()
    rows[row - 1] = text
    return rows


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "at least two rows"),
        (day()[:1], "at least two rows"),
        (
            changed(5, "2022-01-01T04:00,-3"),
            "row 5 = 2022-01-01T04:00, -3: must not be negative: 0 is the least g/kWh that counts",
        ),
        (
            changed(5, "2022-01-01T04:00,2400"),
            "row 5 .*must lie between 0 and 2000 g/kWh; is it in another unit",
        ),
        (changed(5, "2022-01-01T04:00,nan"), "row 5 .*must have a finite number of g/kWh"),
        (changed(5, "2022-01-01T04:00,inf"), "row 5 .*must have a finite number"),
        (
            changed(5, "2022-01-01T04:00,many"),
            "row 5 .*must have a finite number of g/kWh in its second column$",
        ),
        (
            changed(5, '2022-01-01T04:00,"1,5"'),
            "row 5 .*second column; decimals must be separated by a point, and thousands by nothing$",
        ),
        (changed(5, "yesterday,1"), "row 5 = yesterday, 1: must begin with a timestamp in ISO 8601"),
        (changed(5, "2022-01-01T04:00,1,1"), "row 5 .*must have two columns, timestamp and value, not 3"),
        (changed(1, "2022-01-01T00:00,abc"), "row 1 .*must have a finite number"),
        (changed(5, "2022-01-01T04:00Z,1"), "row 5 .*must have a time zone as all other rows, or none"),
        (
            day()[:4] + day()[5:],
            "row 5 = 2022-01-01T05:00: must follow the row before by 3600 s.*not by 7200 s; does summer time begin",
        ),
        (
            day()[:4] + day()[3:],
            "row 5 = 2022-01-01T03:00: must follow the row before by 3600 s.*not by 0 s; does summer time",
        ),
        (day()[:4] + day()[6:], "row 5 = 2022-01-01T06:00: must follow .* by 3600 s.*not by 10800 s$"),
        (day()[::-1], "row 2 = 2022-01-01T22:00: must be later than the row before"),
        (
            [f"2022-01-01T00:{7 * row:02d},9" for row in range(8)],
            "timestamp = 420 s: must be spaced by a whole",
        ),
        (day()[:23], "number of rows = 23: must cover whole days, since it repeats.*not 23 hours"),
        (
            day(lambda hour: 0.1 + hour / 100),
            "highest value = 0.33: is less than the highest value of any trace in g/kWh",
        ),
    ],
)
def test_broken_traces_say_which_row_breaks_which_rule(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_trace(written(tmp_path, text_of(rows)), GRID_TRACE)


def test_a_tariff_per_megawatt_hour_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"row 1 .*between 0 and 10 USD/kWh; is it in another unit"):
        read_trace(written(tmp_path, text_of(day(lambda hour: 40 + hour))), PRICE_TRACE)


@pytest.mark.parametrize("unit", [GRID_TRACE, PRICE_TRACE], ids=lambda unit: unit.name)
@pytest.mark.parametrize(
    "heading", ["EUR/MWh", "lbs_co2_per_mwh", "Intensity (kgCO2/kWh)", "t CO2 / MWh", "Price [EUR/kWh]"]
)
def test_a_heading_in_another_unit_is_refused(tmp_path: Path, unit: TraceUnit, heading: str) -> None:
    rows = [f"timestamp,{heading}", *day(lambda _: 5)]
    rule = f"heading = {re.escape(heading)}: names another unit than {unit.name}: convert the values"
    with pytest.raises(InputError, match=rule):
        read_trace(written(tmp_path, text_of(rows)), unit)


@pytest.mark.parametrize(
    ("unit", "heading"),
    [
        (GRID_TRACE, "Carbon intensity gCO₂eq/kWh (direct)"),
        (GRID_TRACE, "g/kWh"),
        (GRID_TRACE, "kg CO2 / MWh"),
        (GRID_TRACE, "kg_per_mwh"),
        (GRID_TRACE, "value"),
        (PRICE_TRACE, "$/kWh"),
        (PRICE_TRACE, "price_usd_per_kwh"),
        (PRICE_TRACE, "price"),
    ],
)
def test_other_headings_are_passed_over(tmp_path: Path, unit: TraceUnit, heading: str) -> None:
    rows = [f"timestamp,{heading}", *day(lambda _: 5)]
    assert read_trace(written(tmp_path, text_of(rows)), unit).per_hour == pytest.approx(
        [5 * unit.per_unit] * 24
    )


def test_a_grid_without_any_emissions_is_possible(tmp_path: Path) -> None:
    assert set(read_trace(written(tmp_path, text_of(day(lambda _: 0)))).per_hour) == {0.0}


def test_a_trace_of_more_than_eleven_years_is_refused(tmp_path: Path) -> None:
    unit = TraceUnit(name="x", per_unit=1.0, most=9.0)
    years = [
        f"{year}-01-01,1" for year in (2000, 2012)
    ]  # two rows, twelve years apart: each stands for as long
    with pytest.raises(InputError, match="at most 100,000 hours"):
        read_trace(written(tmp_path, text_of(years)), unit)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe\x00\x81", "is not UTF-8 text: it looks like UTF-16; save it as UTF-8"),
        (b"PAR1\x15\x04\x15\x80", r"is a file of Parquet, whose name must end in \.parquet"),
        (b"t\0i\0", "is not UTF-8 text: it looks like UTF-16; save it as UTF-8"),
        (b"time,g/kWh\nd\xe9but,1", "is not UTF-8 text: byte 0xe9 at position 12; save it as UTF-8"),
        (b"time;g/kWh\n2026-01-01;1,5", "row 1 = time;g/kWh: .* separated by commas, not by semicolons"),
        (b"2026-01-01;1,5\n2026-01-02;2,5", "row 1 .* ISO 8601.* separated by commas, not by semicolons"),
        (b"time\tg/kWh\n2026-01-01\t1.5", "row 1 .* separated by commas, not by tabs"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "trace.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=reason):
        read_trace(path)


@pytest.mark.parametrize(
    ("field", "profile", "message"),
    [
        ("grid_profile", [0.3] * 23, "grid_profile has 23 hours; it must last whole days"),
        ("grid_profile", [412.0] * 24, r"grid_profile.per_hour\[0\] = 412 must be at most 2 kg/kWh"),
        (
            "grid_profile",
            {"mean": 400, "daily_amplitude": 10},
            "must be at most 2 kg/kWh; is it in another unit",
        ),
        ("electricity_profile", [0.1] * 23 + [40.0], r"per_hour\[23\] = 40 must be at most 10 USD/kWh"),
        ("electricity_profile", [0.1] * 23 + [-0.1], r"per_hour\[23\] = -0.1: must be at least 0"),
        ("electricity_profile", [0.1] * 23 + [float("nan")], "finite number"),
    ],
)
def test_profiles_of_a_site_keep_the_same_rules(field: str, profile: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        job_with(H100_RENTED, site={"region": "us-iowa", field: profile})
