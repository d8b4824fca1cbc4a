"""Are sizes and settings of searches that docs/studies.md tells, and designs of docs/studies/, those of today?"""

from __future__ import annotations

import csv
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.search import SHARE_OF_EVALUATIONS
from benchmarks.search_jobs import SEEN
from constraints.evaluation import evaluate
from constraints.space import pruned_space
from docs.cluster_size import PAGE as STUDY_PAGE
from docs.cluster_size import all_rows
from objectives.pareto import front_rows
from studies.searchers.tuning import Tuning

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "studies.md"
TOLD = {
    "70B, 3 objectives, tight limits": "70B, 3 objectives, tight",
    "70B, 4 objectives, loose limits": "70B, 4 objectives, loose",
}
"""Names of jobs on the page that are longer than in the benchmark."""
SMALL = 20_000
"""Designs up to which the exhaustive front is counted, too."""


def told_sizes() -> dict[str, tuple[int, int, int]]:
    """Designs, designs on the exhaustive front, and evaluations of a search, by the name of the job."""
    rows = [line.strip("|").split("|") for line in PAGE.read_text(encoding="utf-8").splitlines()]
    found = {}
    for row in rows:
        name = TOLD.get(row[0].strip(), row[0].strip())
        if name in SEEN:
            designs, front, evaluations = (int(cell.strip().replace(",", "")) for cell in row[1:4])
            found[name] = (designs, front, evaluations)
    return found


def test_every_job_that_the_search_was_made_with_is_told() -> None:
    assert list(told_sizes()) == list(SEEN)


@pytest.mark.long
@pytest.mark.parametrize("name", SEEN)
def test_the_sizes_of_a_search_are_those_that_are_told(name: str) -> None:
    num_designs, num_front, num_evaluations = told_sizes()[name]
    job = SEEN[name]()
    space = pruned_space(job)
    assert space.num_designs == num_designs
    assert int(SHARE_OF_EVALUATIONS * num_designs) == num_evaluations
    if num_designs <= SMALL:
        result = evaluate(job, space.designs())
        values = result.objectives(job)[result.is_feasible]
        assert len(front_rows(values)) == num_front


def told_defaults() -> dict[str, float]:
    """The column `default` of the table of the searcher's own parameters, by their names."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition("| parameter | default |\n")
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", table.partition("\n\n")[0], re.MULTILINE)
    return {name: float(value) for name, value in rows}


def test_the_defaults_of_the_searcher_are_those_that_are_told() -> None:
    assert told_defaults() == asdict(Tuning())


def of_the_exhausted_space(path: Path) -> set[str]:
    """Designs, layouts and seconds that the paragraph or entry on `benchmarks.exhaust` tells."""
    text = path.read_text(encoding="utf-8")
    (told,) = re.findall(r"`python -m benchmarks\.exhaust` tries.*?(?=\n\n|\n- )", text, re.DOTALL)
    figures = r"[\d.]+ million (?:designs|layouts)|\d+ s(?= on)"
    return set(re.findall(figures, " ".join(told.split())))


def test_readme_and_the_page_of_studies_tell_the_same_of_the_exhausted_space() -> None:
    told = of_the_exhausted_space(PAGE)
    assert {figure.partition(" ")[2] for figure in told} == {"million designs", "million layouts", "s"}
    assert len(told) == 3
    assert of_the_exhausted_space(ROOT / "README.md") == told


@pytest.mark.long
def test_the_table_of_cluster_sizes_is_that_of_today() -> None:
    with STUDY_PAGE.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        told = list(csv.DictReader(file))
    rows = all_rows()
    assert len(told) == len(rows)
    for was, is_now in zip(told, rows, strict=True):
        assert list(was) == list(is_now)
        for name, value in is_now.items():
            same = pytest.approx(float(was[name] or 0), rel=1e-6) if isinstance(value, float) else was[name]
            assert (value if isinstance(value, float) else str(value)) == same, name
