"""Do cold predictions of whole runs stay near what was published?"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.whole_runs import KNOWN_RUNS, circular, predicted, read_runs

HEADING = "id,model,params_b,gpu,gpu_hours,energy_mwh,pue,notes\n"
# BLOOM: arXiv 2211.02001; Llama 3.1 405B: its model card; MT-NLG 530B: Epoch AI; GPT-3: meters of MLPerf Training v4.0.
PUBLISHED = """\
run-021,BLOOM-176B,176.2,A100-80GB,1082990,433.2,1.2,arithmetic
run-013,Llama 3.1 405B,405.9,H100-80GB,30840000,21588,,arithmetic
run-030,MT-NLG-530B,530,A100-80GB,3449600,,,
run-093,GPT-3 175B,175,H100-80GB,485.26,0.415446,,MEASURED
"""


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, dict[str, str]]:
    path = tmp_path / "runs.csv"
    path.write_text(HEADING + PUBLISHED, encoding="utf-8")
    return read_runs(path)


@pytest.mark.parametrize("run", KNOWN_RUNS, ids=lambda run: run.row)
def test_gpu_hours_are_within_15_per_cent_where_the_layout_is_known(
    run: object, rows: dict[str, dict[str, str]]
) -> None:
    known = next(each for each in KNOWN_RUNS if each is run)
    found = predicted(known, rows[known.row])
    assert found.our_gpu_hours == pytest.approx(found.gpu_hours, rel=0.15)
    # LLMCarbon, as cold, misses all of them by at least twice as much.
    assert abs(found.llmcarbon_gpu_hours / found.gpu_hours - 1) > 0.3


def test_the_metered_energy_is_within_6_per_cent(rows: dict[str, dict[str, str]]) -> None:
    (run,) = [each for each in KNOWN_RUNS if each.row == "run-093"]
    found = predicted(run, rows["run-093"])
    assert found.energy_mwh is not None
    assert found.our_energy_mwh == pytest.approx(found.energy_mwh, rel=0.06)


def test_only_arithmetic_is_called_arithmetic(rows: dict[str, dict[str, str]]) -> None:
    assert [name for name, _, _ in circular(rows)] == ["BLOOM-176B", "Llama 3.1 405B"]
