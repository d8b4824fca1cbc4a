"""Is a value of an axis that gives no job told at its axis, with all others, and before anything is simulated?"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from planner.sweep.grid import Sweep, run_sweep
from simulator.errors import InputError
from tests.planner.sweep.test_sweep import JOB


def sweep_with(**fields: object) -> Sweep:
    sizes = {"num_gpus": [16, 64], "checkpoint_schemes": ["async"]}
    return Sweep.model_validate({"name": "test", "job": JOB, **sizes, **fields})


REFUSED_VALUES = [
    ({"workload.tokens": [1e11, "many"]}, r"axes\.workload\.tokens\[1\] = 'many': must be a number"),
    (
        {"workload.model": ["llama-3.1-8b", {"name": "llama-3.1-8b", "num_layers": -1}]},
        r"axes\.workload\.model\[1\]\.num_layers = -1: must be greater than 0",
    ),
    (
        {"search.num_refinements": [1], "offers[3].num_gpus": [8]},
        r"axes = search\.num_refinements = 1, offers\[3\]\.num_gpus = 8: offers\[3\]: cannot be replaced",
    ),
    ({"site": [""]}, r"axes\.site\[0\]: needs a value after =; null takes a value out"),
    (
        {"workload.sequence_length": [8192], "workload.global_batch_size": [256, 10**9]},
        r"axes\.workload\.global_batch_size\[1\] = 1000000000: ",
    ),
]
"""Values of axes of which some do not give a job, and how the first wrong one is told."""


@pytest.mark.parametrize(("axes", "told"), REFUSED_VALUES)
def test_a_value_that_gives_no_job_is_told_at_its_axis_before_anything_is_simulated(
    axes: dict[str, list[object]], told: str
) -> None:
    with pytest.raises(InputError, match=rf"test: 1 problem\n  {told}"):
        next(run_sweep(sweep_with(axes=axes)))


def test_values_of_all_axes_are_refused_at_once() -> None:
    axes = {"workload.tokens": [1e11, "many", 2e11, -1], "site": ["us-iowa", "nowhere"]}
    with pytest.raises(InputError, match="3 problems") as raised:
        next(run_sweep(sweep_with(axes=axes)))
    paths = [problem.path for problem in raised.value.problems]
    assert paths == ["axes.workload.tokens[1]", "axes.workload.tokens[3]", "axes.site[1]"]


def test_values_that_only_together_give_no_job_are_told_together() -> None:
    axes = {"workload.sequence_length": [4096, 8192], "workload.global_batch_size": [1, 16]}
    job = {**JOB, "workload": {"model": "llama-3.1-8b", "tokens": 2.0**16}}
    told = r"axes = workload\.sequence_length = 8192, workload\.global_batch_size = 16: workload: tokens \(65536\)"
    with pytest.raises(InputError, match=told):
        [*run_sweep(sweep_with(job=job, axes=axes, num_gpus=[8]))]


def test_what_is_wrong_without_the_axes_is_told_of_the_job(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps({**JOB, "site": "nowhere"}))
    with pytest.raises(InputError, match=r"job\.json: 1 problem\n  site = 'nowhere'"):
        next(run_sweep(sweep_with(job=str(file), axes={"workload.tokens": [1e11]})))
    both = r"test: 2 problems\n  job: site = 'nowhere': .*\n  axes\.workload\.tokens\[0\] = 'x': "
    with pytest.raises(InputError, match=both):
        next(run_sweep(sweep_with(job=str(file), axes={"workload.tokens": ["x"]})))


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        ("limits.budget_usd", [1e3, 1e9]),
        ("offers[0].num_gpus", [16, {"min": 8, "max": 64}]),
        ("checkpointing.interval_s", [60, None]),
        ("search.with_spares", [[False], [True, False]]),
        ("search.checkpoint_schemes", [["sync"], ["async"]]),
        ("objectives", [["cost"], ["carbon"]]),
        ("workload.sequence_length", [8192, 8192.0]),
    ],
)
def test_a_value_that_changes_nothing_is_refused(axis: str, values: list[object]) -> None:
    told = rf"test: 1 problem\n  axes\.{re.escape(axis)}\[1\] = .*: gives the same designs as value 0 of this axis;"
    with pytest.raises(InputError, match=told):
        next(run_sweep(sweep_with(axes={axis: values})))


@pytest.mark.parametrize(
    ("field", "values", "told"),
    [
        ("num_gpus", [16, 64, 16], "num_gpus names 16 twice"),
        ("checkpoint_schemes", ["sync", "sync"], "checkpoint_schemes names sync twice"),
        ("checkpoint_intervals_s", [600, "auto", 600.0], "checkpoint_intervals_s names 600.0 twice"),
    ],
)
def test_a_size_scheme_or_interval_is_named_once(field: str, values: list[object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        sweep_with(**{field: values})


def test_an_axis_whose_section_a_later_one_replaces_is_refused_and_the_other_order_is_not() -> None:
    sites, overheads = {"site": ["us-iowa", "sweden"]}, {"site.power_usage_effectiveness": [1.1, 1.3]}
    told = r"test: 1 problem\n  axes\.site\.power_usage_effectiveness: is replaced by axes\.site; write that one first"
    with pytest.raises(InputError, match=told):
        next(run_sweep(sweep_with(axes={**overheads, **sites})))
    found = [point.job.site for point in run_sweep(sweep_with(axes={**sites, **overheads}))]
    assert len({(site.grid_kgco2e_per_kwh, site.power_usage_effectiveness) for site in found}) == 4
