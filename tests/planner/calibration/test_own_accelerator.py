"""Can steps of an accelerator that a file of the user's own describes be simulated, and constants be fitted to them?"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from benchmarks.calibration_example import made_up_rows
from planner import load_job, simulate_plan
from planner.calibration.file import load_calibration
from planner.cli.commands import main
from planner.cli.terminal.exit_codes import BROKEN_INPUT, OK
from planner.measured.hardware.accelerator_names import accelerator_id
from simulator.catalog import overlaid, read_own_figures
from simulator.domain.calibration import ConstantName
from simulator.errors import CatalogError
from tests.planner.own_hardware import OWN, own_catalog


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Steps of the made-up cluster, with links between nodes at half of their rate."""
    file = tmp_path / "steps.csv"
    rows = [{**row, "gpu": OWN} for row in made_up_rows()]
    with file.open("w", encoding="utf-8", newline="") as text:
        writer = csv.DictWriter(text, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return file


def test_constants_of_an_accelerator_of_ones_own_are_found_again(
    tmp_path: Path, steps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, chip = tmp_path / "calibration.yaml", str(own_catalog(tmp_path))
    asked = ["calibrate", "--quiet", "--measured", str(steps)]
    assert main([*asked, "--with", chip, "--output", str(found)]) == OK
    constants = {one.name: one for one in load_calibration(found).constants}
    links = constants[ConstantName.INTER_LINK_RATIO]
    assert links.accelerator == OWN
    assert links.value == pytest.approx(0.5, rel=2 * links.log_deviation)
    assert main(asked) == BROKEN_INPUT
    assert "16 x gpu = our-chip: is not among the catalogue's accelerators" in capsys.readouterr().err


def test_the_job_of_such_a_row_holds_all_figures(
    tmp_path: Path, steps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["validate", "--quiet", "--measured", str(steps), "--with", str(own_catalog(tmp_path))]
    job = tmp_path / "job.yaml"
    assert main([*asked, "--row", "run-05", "--write-job", str(job), "--json"]) == OK
    predicted_s = json.loads(capsys.readouterr().out)["row"]["predicted_step_time_s"]
    design = simulate_plan(load_job(job), {"data_parallel": 32, "recompute": "selective"}).design
    assert design is not None
    assert design.accelerator == OWN
    assert design.step_time_s == pytest.approx(predicted_s)


def test_names_of_ones_own_are_forgotten_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(CatalogError):
        accelerator_id("Our chip")
    with overlaid(read_own_figures([own_catalog(tmp_path)])):
        assert accelerator_id("Our chip") == OWN
    with pytest.raises(CatalogError):
        accelerator_id("Our chip")
