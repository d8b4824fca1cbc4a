"""Is a Python program told what to give where it gives something else? One error for each, never a fault of Python's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planner import calibrate, load_calibration, load_job, parse_job, recommend, simulate_plan
from planner.explain.answer import explain_plan, explain_space
from planner.layer_cut import cut_layers
from simulator.errors import InputError

BLOOM = "examples/bloom-176b.yaml"
PLAN = {"tp": 4, "pp": 12, "dp": 8, "mbs": 2, "recompute": "full"}


@pytest.mark.parametrize("asked", [simulate_plan, explain_plan, cut_layers])
@pytest.mark.parametrize("plan", ["tp=4", ["tp", 4], [("tp", 4)], None, 5])
def test_a_plan_that_is_no_mapping_is_refused(asked: Callable[..., object], plan: object) -> None:
    with pytest.raises(InputError, match=r'plan = .*: must be a Plan or a mapping, such as \{"tp": 8'):
        asked(load_job(BLOOM), plan)


@pytest.mark.parametrize("asked", [simulate_plan, explain_plan, cut_layers])
def test_a_path_in_the_place_of_a_job_is_refused_beside_a_plan(asked: Callable[..., object]) -> None:
    with pytest.raises(InputError, match=r"job = '.*yaml': must be a Job, such as load_job returns"):
        asked(BLOOM, PLAN)


@pytest.mark.parametrize("asked", [recommend, explain_space])
def test_a_path_in_the_place_of_a_job_is_refused(asked: Callable[..., object]) -> None:
    with pytest.raises(InputError, match="must be a Job, such as load_job returns"):
        asked(BLOOM)


@pytest.mark.parametrize("seed", [-1, 2**32, "x", 1.5, True])
def test_a_seed_of_replays_that_is_no_seed_is_refused(seed: object) -> None:
    with pytest.raises(InputError, match=r"seed = .*: must be a whole number from 0 to 4294967295"):
        simulate_plan(load_job(BLOOM), PLAN, seed=seed, with_sensitivities=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("document", ["workload: {}", [1], None])
def test_a_document_that_is_no_mapping_is_refused(document: object) -> None:
    with pytest.raises(InputError, match=r"job = .*: must be a mapping of the fields of a job file"):
        parse_job(document)  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [load_job, load_calibration, calibrate])
@pytest.mark.parametrize("path", [None, 5, {"workload": {}}])
def test_what_is_no_path_is_refused(asked: Callable[..., object], path: object) -> None:
    with pytest.raises(InputError, match=r"path = .*: must be the path of a file"):
        asked(path)
