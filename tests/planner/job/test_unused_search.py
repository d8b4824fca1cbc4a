"""Are the search settings reported as unused exactly those that affect no evaluated design?"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from constraints.space import pruned_space
from planner.job.unused_search import search_notes
from simulator.domain.job import Job
from simulator.domain.search_options import Algorithm
from studies.designs.plan_keys import plan_keys
from studies.study import chosen_algorithm
from tests.studies.study_jobs import small_job, study

FEW: Mapping[str, object] = {
    "tensor_parallel": [1, 2],
    "pipeline_parallel": [1],
    "context_parallel": [1],
    "micro_batch_sizes": [1],
    "recompute": ["none", "full"],
    "with_spares": [True],
}
SETTINGS: Mapping[str, object] = {
    "max_evaluations": 110,
    "population_size": 8,
    "stagnation_evaluations": 8,
    "num_restarts": 1,
}
"""Of a search whose populations stagnate before their evaluations are spent."""
CHANGES: Mapping[str, object] = {
    "max_evaluations": 100,
    "max_seconds": 1e-9,
    "stagnation_evaluations": 1_000,
    "least_gain_fraction": 0.0,
    "population_size": 9,
    "num_restarts": 3,
}
"""Another value of every setting of how long to search."""


def job_of(algorithm: str, **search: object) -> Job:
    return small_job(**{**FEW, **SETTINGS, "algorithm": algorithm, **search})


def tried(job: Job) -> list[list[int]]:
    """The designs of every batch, in the order in which they were tried."""
    _, batches = study(job)
    return [plan_keys(batch.plans).tolist() for batch in batches]


def notes_of(job: Job) -> list[str]:
    space = pruned_space(job)
    return list(search_notes(job, chosen_algorithm(job, space), space.num_designs))


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["auto", "exhaustive", "random", "nsga2"])
def test_a_setting_is_told_as_unused_where_changing_it_changes_no_design_that_is_tried(
    algorithm: str,
) -> None:
    before = tried(job_of(algorithm))
    for field, value in CHANGES.items():
        other = job_of(algorithm, **{field: value})
        told = " ".join(notes_of(other))
        assert (f"search.{field}" in told) == (tried(other) == before), (field, told)


def test_seconds_are_read_by_the_refinement_behind_an_exhaustive_search() -> None:
    assert "max_seconds" in " ".join(notes_of(job_of("exhaustive", max_seconds=60.0)))
    assert "max_seconds" not in " ".join(notes_of(job_of("exhaustive", max_seconds=60.0, num_refinements=1)))


def test_the_remark_names_the_settings_the_number_of_designs_and_a_way_out_that_works() -> None:
    few = {**FEW, "max_evaluations": 50, "population_size": 8}
    num_designs = sum(map(len, tried(small_job(**few))))
    (note,) = notes_of(small_job(**few))
    assert note == (
        "search.max_evaluations, search.population_size change nothing here: the search is exhaustive and tries all "
        f"{num_designs:,} designs; search.algorithm=nsga2, or search.exhaustive_up_to below that, makes it one that may "
        "try fewer."
    )
    for way_out in ({"algorithm": "nsga2"}, {"exhaustive_up_to": num_designs - 1}):
        other = small_job(**{**few, **way_out})
        assert sum(map(len, tried(other))) <= 50 < num_designs
        assert notes_of(other) == []


def test_how_small_a_space_auto_exhausts_is_nothing_to_another_algorithm() -> None:
    assert notes_of(job_of("nsga2", exhaustive_up_to=10)) == [
        "search.exhaustive_up_to changes nothing here: search.algorithm is nsga2; search.algorithm=auto reads it."
    ]


def test_a_search_of_defaults_and_one_without_anything_to_search_have_no_remark() -> None:
    assert notes_of(small_job(**FEW)) == []
    assert list(search_notes(job_of("auto"), Algorithm.EXHAUSTIVE, 0)) == []
