"""Do cold predictions of whole runs stay near what was published, and is arithmetic called arithmetic?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.whole_runs import END, page, placed, validation_section
from planner.whole_run_jobs import KNOWN_RUNS, KnownRun
from planner.whole_runs import (
    METERED,
    arithmetic_runs,
    predicted,
    predictions,
    published_runs,
    whole_runs_json,
)
from planner.whole_runs_page import metered_text

DOCS = Path(__file__).parents[2] / "docs"
# Hours and energies: arXiv 2211.02001, 2302.13971, 2205.01068, 2104.10350, the model cards of Llama 2, 3 and 3.1.
ARITHMETIC = {
    "LLaMA-65B": 1_022_362 * 0.4 * 1.1,
    "Llama2-7B": 184_320 * 0.4,
    "Llama2-13B": 368_640 * 0.4,
    "Llama2-34B": 1_038_336 * 0.4,
    "Llama2-70B": 1_720_320 * 0.4,
    "Llama3-8B": 1.3e6 * 0.7,
    "Llama3-70B": 6.4e6 * 0.7,
    "Llama3.1-8B": 1.46e6 * 0.7,
    "Llama3.1-70B": 7.0e6 * 0.7,
    "Llama3.1-405B": 30.84e6 * 0.7,
    "BLOOM-176B": 1_082_990 * 0.4,
    "OPT-175B": 992 * 34 * 24 * 0.4,
    "GPT-3 175B": 10_000 * 14.8 * 24 * 0.33 * 1.1,
}
"""kWh of runs whose energy is GPU-hours x kW (x PUE)."""


@pytest.mark.parametrize("run", KNOWN_RUNS, ids=lambda run: run.row)
def test_gpu_hours_are_within_15_per_cent_where_the_layout_is_known(run: KnownRun) -> None:
    found = predicted(run, published_runs()[run.row])
    assert abs(found.hours_error_fraction) < 0.15
    # LLMCarbon, as cold, misses all of them by at least twice as much.
    assert abs(found.llmcarbon_gpu_hours / found.published.gpu_hours - 1) > 0.3


def test_the_metered_energy_is_within_6_per_cent() -> None:
    errors = [run.energy_error_fraction for run in predictions() if run.energy_error_fraction is not None]
    assert errors == [pytest.approx(0.0, abs=0.06)]


def test_every_published_run_is_predicted_or_says_why_not() -> None:
    known = {run.row for run in KNOWN_RUNS}
    assert len(published_runs()) == 16
    for row_id, run in published_runs().items():
        assert (row_id in known) == (not run.not_compared), run.model


def test_only_arithmetic_is_called_arithmetic() -> None:
    found = {run.model: run for run in arithmetic_runs()}
    assert found.keys() == ARITHMETIC.keys()
    for model, kwh in ARITHMETIC.items():
        energy_mwh = found[model].energy_mwh
        assert energy_mwh is not None
        assert kwh / 1000 == pytest.approx(energy_mwh, rel=2.5e-3), model
        assert found[model].nameplate_mwh == pytest.approx(kwh / 1000, rel=1e-9)
    assert {run.model for run in published_runs().values() if run.energy_kind == METERED} == {
        "GPT-3 175B (MLPerf, 512 H100)",
        "Llama 2 70B LoRA (MLPerf, 8 H100)",
    }


def test_json_holds_both_predictions_of_every_run() -> None:
    found = {row["id"]: row for row in whole_runs_json()}
    assert found.keys() == {run.row for run in KNOWN_RUNS}
    # BLOOM's published hours, arXiv 2211.02001.
    assert found["run-021"]["published_gpu_hours"] == 1_082_990
    assert found["run-030"]["published_energy_mwh"] is None


class TestPages:
    def test_all_pages_tell_of_the_metered_run_in_the_same_words(self) -> None:
        told = metered_text()
        assert told in page()
        assert told in validation_section()
        # The figures on the page are those of the day on which it was written.
        written = (DOCS / "cost-energy-carbon.md").read_text(encoding="utf-8")
        block = written.partition("<!-- metered-run -->\n")[2].partition(f"\n{END}")[0]
        assert _without_numbers(block) == _without_numbers(told)

    def test_a_block_is_put_before_its_heading_once_and_renewed_afterwards(self) -> None:
        text = "# A\n\n## B\n\nend\n"
        first = placed(text, "x", "one", before="## B")
        assert first == f"# A\n\n<!-- x -->\none\n{END}\n\n## B\n\nend\n"
        assert placed(first, "x", "two", before="## B") == first.replace("one", "two")


def _without_numbers(text: str) -> str:
    return re.sub(r"[+-]?\d+(\.\d+)?", "#", text)
