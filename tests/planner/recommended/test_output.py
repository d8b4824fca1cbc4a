"""Is every file of an answer either complete or absent?"""

from __future__ import annotations

import csv
import errno
import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from planner import load_job, recommend
from planner.recommended.output import output_folder, write_answer
from simulator.errors import InputError, NoSpaceError
from tests.planner.hand_made import infeasible, recommended

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(
    ("breaks_at", "left"), [("recommendation.json", []), ("front.csv", ["recommendation.json"])]
)
def test_a_full_disk_leaves_no_half_file_of_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks_at: str, left: list[str]
) -> None:
    replace = Path.replace

    def full(self: Path, target: Path) -> Path:
        if target.name == breaks_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(NoSpaceError, match=rf"output = .*/{breaks_at}: cannot be written: No space left"):
        write_answer(recommended(), tmp_path, "csv")
    assert [entry.name for entry in tmp_path.iterdir()] == left


def test_the_front_has_intervals_as_they_are_used_and_marks_the_recommended_design(tmp_path: Path) -> None:
    answer = recommended()
    assert {design.plan.checkpoint_interval_s for design in answer.front} == {None}
    write_answer(answer, tmp_path, "csv")
    with (tmp_path / "front.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    told = [(row["design_id"], row["is_recommended"], row["checkpoint_interval_s"]) for row in rows]
    assert told == [("7", "True", "1860.0"), ("8", "False", "1860.0"), ("9", "False", "1860.0")]


def test_a_front_of_no_designs_has_a_heading(tmp_path: Path) -> None:
    write_answer(infeasible(), tmp_path, "csv")
    (heading,) = (tmp_path / "front.csv").read_text(encoding="utf-8").splitlines()
    assert heading.startswith("design_id,accelerator,node,num_nodes,region,time_to_train_days,cost_usd,")
    write_answer(recommended(), tmp_path, "csv")
    assert (tmp_path / "front.csv").read_text(encoding="utf-8").splitlines()[0] == heading


def test_a_front_in_parquet_has_the_columns_of_the_csv_each_of_one_type(tmp_path: Path) -> None:
    write_answer(infeasible(), tmp_path, "parquet")
    of_none = pq.read_schema(tmp_path / "front.parquet")
    write_answer(recommended(), tmp_path, "parquet")
    of_some = pq.read_schema(tmp_path / "front.parquet")
    write_answer(recommended(), tmp_path, "csv")
    heading = (tmp_path / "front.csv").read_text(encoding="utf-8").splitlines()[0]
    assert of_some.names == heading.split(",")
    assert of_none == of_some
    types = {name: str(of_some.field(name).type) for name in ("shard_ranks", "market_kgco2e", "recompute")}
    assert types == {"shard_ranks": "int64", "market_kgco2e": "double", "recompute": "string"}


# docs/answer.md: `design_id` is the same number in both files.
def test_the_front_has_regions_and_parts_of_carbon_as_the_table_of_all_designs(tmp_path: Path) -> None:
    folder = tmp_path / "answer"
    job = load_job(EXAMPLES / "four-bests.yaml", ["search.num_refinements=0"])
    answer = recommend(job, tracking=False, with_report=False, output=folder)
    names = ["operational_kgco2e", "market_kgco2e", "embodied_kgco2e", "water_l"]
    table = pq.read_table(folder / "designs.parquet", columns=["design_id", *names])
    of_all = {row["design_id"]: row for row in table.to_pylist()}
    with (folder / "front.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["region"] for row in rows} == {"us-virginia", "norway"}
    for row, design in zip(rows, answer.front, strict=True):
        assert row["region"] == design.region
        known = of_all[int(row["design_id"])]
        for name in names:
            figure = float(row[name]) if row[name] else math.nan  # unknown where the table has no number
            assert figure == pytest.approx(known[name], rel=0, abs=0, nan_ok=True)
        parts = float(row["operational_kgco2e"]) + float(row["embodied_kgco2e"])
        assert parts == pytest.approx(design.carbon_kgco2e)


@pytest.mark.parametrize("below", ["", "answers/today"])
def test_a_link_to_nothing_in_the_place_of_the_folder_is_named(tmp_path: Path, below: str) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    rule = rf"output = .*: cannot be a folder, since {link} is a link to nothing: choose another name"
    with pytest.raises(InputError, match=rule), output_folder(link / below):
        pytest.fail("the folder was made")
    assert [entry.name for entry in tmp_path.iterdir()] == ["link"]


def test_the_front_has_every_objective_as_the_table_of_all_designs(tmp_path: Path) -> None:
    folder = tmp_path / "answer"
    late = ["objectives=[time_to_train_p95, budget_risk, cost_p95, energy]", "search.num_refinements=0"]
    recommend(
        load_job(EXAMPLES / "four-bests.yaml", [*late, "limits.budget_usd=1e9"]),
        tracking=False,
        with_report=False,
        output=folder,
    )
    with (folder / "front.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    designs = pq.read_table(folder / "designs.parquet").to_pylist()
    by_number = {design["design_id"]: design for design in designs}
    for name in ("time_to_train_p95_days", "budget_risk", "cost_p95_usd", "energy_kwh"):
        told = [float(row[name]) for row in rows]
        assert told == pytest.approx([by_number[int(row["design_id"])][name] for row in rows], rel=1e-12)
    assert "deadline_risk" not in rows[0]
