"""Do wrong arguments from Python give an error that says what is expected? One of capplan's errors, never a built-in one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from planner import (
    calibrate,
    launch_plan,
    load_calibration,
    load_job,
    parse_job,
    play_job_goodput,
    recommend,
    simulate_plan,
)
from planner.deep.answer import DeepRequest, simulate_deep
from planner.deep.network_file import load_network
from planner.explain.answer import explain_plan, explain_space
from planner.input.given import valid_job
from planner.layer_cut import cut_layers
from planner.purchase.answer import plan_purchase
from planner.purchase.fleet import load_fleet
from planner.report.sources import report_of_study
from planner.study.durable import resume_study, run_study_of
from planner.study.machines import machines
from planner.sweep.grid import load_sweep, run_sweep
from planner.sweep.table import sweep_rows
from simulator.domain.job import Job
from simulator.errors import InputError
from studies.files.identity import job_hash

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
    with pytest.raises(InputError, match=r"job = '.*yaml': must be a Job, such as load_job returns"):
        asked(BLOOM)


@pytest.mark.parametrize("seed", [-1, 2**32, "x", 1.5, True])
def test_a_seed_of_replays_that_is_no_seed_is_refused(seed: object) -> None:
    with pytest.raises(InputError, match=r"seed = .*: must be a whole number from 0 to 4294967295"):
        simulate_plan(load_job(BLOOM), PLAN, seed=seed, with_sensitivities=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("document", ["workload: {}", [1], None])
def test_a_document_that_is_no_mapping_is_refused(document: object) -> None:
    with pytest.raises(InputError, match=r"job = .*: must be a mapping of the fields of a job file"):
        parse_job(document)  # type: ignore[arg-type]


FILES = (
    load_job,
    load_calibration,
    calibrate,
    load_network,
    load_fleet,
    load_sweep,
    resume_study,
    report_of_study,
)
"""What takes the path of a file."""


@pytest.mark.parametrize("asked", FILES)
@pytest.mark.parametrize("path", [None, 5, {"workload": {}}])
def test_what_is_no_path_is_refused(asked: Callable[..., object], path: object) -> None:
    with pytest.raises(InputError, match=r"path = .*: must be the path of a (file|study)"):
        asked(path)


@pytest.mark.parametrize("overrides", [None, 5, [5], {"limits.budget_usd": 4e6}, b"x"])
def test_overrides_that_are_no_texts_are_refused(overrides: object) -> None:
    with pytest.raises(InputError, match=r"overrides.*: must be a list of texts, such as \["):
        load_job(BLOOM, overrides)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("front_format", "xlsx", "must be 'csv' or 'parquet'"),
        ("front_format", None, "must be 'csv' or 'parquet'"),
        ("output", 5, "must be the path of a folder"),
        ("tracking_uri", 5, "must be text"),
        ("experiment", None, "must be text"),
        ("experiment", " ", "must not be empty"),
        ("progress", None, "must be a function"),
        ("should_stop", True, "must be a function"),
        ("clock", "now", "must be a function"),
        ("tracking", "no", "must be True or False"),
        ("tracking", 0, "must be True or False"),
        ("with_report", None, "must be True or False"),
    ],
)
def test_what_is_no_setting_of_an_answer_is_refused_before_anything_is_searched(
    name: str, value: object, rule: str
) -> None:
    with pytest.raises(InputError, match=f"{name}.*: {rule}"):
        recommend(load_job(BLOOM), **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            lambda job: job.model_copy(update={"tokens": 1e9}),
            r"job\.tokens = 1000000000: unknown field; known: name, workload",
        ),
        (
            lambda job: job.model_copy(
                update={"workload": job.workload.model_copy(update={"sequence_lenght": 4096})}
            ),
            r"job\.workload\.sequence_lenght = 4096: unknown field; nearest: sequence_length",
        ),
        (
            lambda job: job.model_copy(
                update={"offers": (job.offers[0].model_copy(update={"rent": 2.0}), *job.offers[1:])}
            ),
            r"job\.offers\[0\]\.rent = 2: unknown field; ",
        ),
        (  # What a job computes from its fields stays as it is, whatever is set in its place.
            lambda job: job.model_copy(update={"objective_weights": (1.0, 9.0)}),
            r"job\.objective_weights = .*: unknown field; nearest: objectives",
        ),
    ],
)
def test_a_copy_with_a_misspelt_field_is_no_job(changed: Callable[[Job], Job], message: str) -> None:
    job = changed(load_job(BLOOM))
    for asked in (
        lambda: recommend(job, tracking=False),
        lambda: simulate_plan(job, {"tp": 4, "pp": 12, "dp": 8}),
        lambda: explain_space(job),
    ):
        with pytest.raises(InputError, match=message):
            asked()


RENTED: dict[str, object] = {"tp": 4, "pp": 12, "dp": 8}
OF_A_PLAN: tuple[Callable[[Job], object], ...] = (
    lambda job: recommend(job, tracking=False),
    lambda job: simulate_plan(job, RENTED, with_sensitivities=False),
    lambda job: explain_plan(job, RENTED),
    explain_space,
    lambda job: launch_plan(job, RENTED),
    lambda job: play_job_goodput(job, RENTED, num_replications=2),
    lambda job: cut_layers(job, RENTED),
    lambda job: simulate_deep(job, DeepRequest(plan=RENTED)),
)


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        ("workload", {"sequence_length": 0}, "workload.sequence_length = 0: must be greater than 0"),
        ("workload", {"tokens": -1.0}, "workload.tokens = -1: must be greater than 0"),
        ("limits", {"budget_usd": math.nan}, "limits.budget_usd = nan: must be a finite number"),
        (
            "site",
            {"power_usage_effectiveness": 0.5},
            "site.power_usage_effectiveness = 0.5: must be at least",
        ),
        ("site", "france", "site = 'france': must be given as follows"),
        ("limits", None, "limits: must be a mapping of fields"),
    ],
)
@pytest.mark.parametrize("asked", OF_A_PLAN)
def test_a_copy_with_a_value_that_breaks_a_rule_is_refused_by_every_command(
    asked: Callable[[Job], object], part: str, values: object, message: str
) -> None:
    job = load_job(BLOOM)
    changed = getattr(job, part).model_copy(update=values) if isinstance(values, dict) else values
    with pytest.raises(InputError, match=re.escape(message)):
        asked(job.model_copy(update={part: changed}))


def test_values_of_a_copy_are_converted_as_those_of_a_file() -> None:
    job = load_job(BLOOM)
    copy = job.model_copy(update={"workload": job.workload.model_copy(update={"tokens": "2e11"})})
    asked = parse_job(
        {**job.model_dump(mode="json"), "workload": {**job.workload.model_dump(mode="json"), "tokens": 2e11}}
    )
    days = [simulate_plan(each, RENTED, with_sensitivities=False).design for each in (copy, asked)]
    assert days[0] == days[1]


def test_a_valid_job_stays_as_it_is() -> None:
    job = load_job(BLOOM)
    assert valid_job(job) == job


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("workload", "precisions", ("bf16",)),
        ("workload", "tokens", Decimal("366e9")),
        ("workload", "sequence_length", 2048.0),
        ("workload", "has_sequence_parallel", 0),
        ("search", "checkpoint_schemes", ("sync_sharded",)),
        (None, "objectives", ("time_to_train", "cost", "energy", "carbon")),
    ],
)
def test_equal_values_of_other_types_make_the_same_job(part: str | None, name: str, value: object) -> None:
    job = load_job(BLOOM)
    if part is None:
        copy = job.model_copy(update={name: value})
    else:
        section = getattr(job, part)
        assert getattr(section, name) == value
        copy = job.model_copy(update={part: section.model_copy(update={name: value})})
    assert job_hash(valid_job(copy)) == job_hash(job)
    assert explain_plan(copy, PLAN) == explain_plan(job, PLAN)


@pytest.mark.parametrize("asked", [simulate_plan, explain_plan, cut_layers, launch_plan, play_job_goodput])
def test_a_copy_of_a_plan_with_a_misspelt_field_is_refused(asked: Callable[..., object]) -> None:
    job = load_job(BLOOM)
    plan = simulate_plan(job, PLAN, with_sensitivities=False).plan
    assert plan is not None
    with pytest.raises(
        InputError, match=r"plan\.tensor_paralel = 8: unknown field; nearest: tensor_parallel"
    ):
        asked(job, plan.model_copy(update={"tensor_paralel": 8}))


@pytest.mark.filterwarnings("error")
def test_words_in_a_copy_of_a_plan_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    job = load_job(BLOOM)
    plan = simulate_plan(job, PLAN, with_sensitivities=False).plan
    assert plan is not None
    written = plan.model_copy(update={"precision": "bf16"})
    assert simulate_plan(job, written, with_sensitivities=False).plan == plan
    assert capfd.readouterr() == ("", "")


def test_a_seed_of_numpy_has_a_way_out() -> None:
    with pytest.raises(InputError, match=r"seed = .*3.*: must be a whole number .*; write int\(seed\)"):
        simulate_plan(load_job(BLOOM), PLAN, seed=np.int64(3))  # type: ignore[arg-type]


def test_decimals_are_numbers() -> None:
    job = load_job(BLOOM)
    document = job.model_dump(mode="json")
    exact = parse_job({**document, "limits": {"budget_usd": Decimal("1.5e6")}})
    assert exact.limits.budget_usd == 1.5e6
    for odd in ("NaN", "sNaN", "Infinity"):
        with pytest.raises(InputError, match=r"limits.budget_usd = .*: must be a finite number"):
            parse_job({**document, "limits": {"budget_usd": Decimal(odd)}})


def test_a_text_is_no_switch_of_a_plan_or_an_explanation() -> None:
    job = load_job(BLOOM)
    with pytest.raises(InputError, match=r"with_sensitivities = 'no': must be True or False"):
        simulate_plan(job, {"tp": 4, "pp": 12, "dp": 8}, with_sensitivities="no")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"with_fewest = 1: must be True or False"):
        explain_space(job, with_fewest=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("keep", "everything", "must be 'all' or 'front'"),
        ("store", "studies", "must be a StudyStore"),
        ("store", "", "must be a StudyStore"),
        ("target", "spring", "must be a Target"),
        ("engine_for", 2, "must be a function"),
        ("clock", None, "must be a function"),
        ("progress", None, "must be a function"),
    ],
)
def test_what_is_no_setting_of_a_study_is_refused_before_there_is_one(
    name: str, value: object, rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = load_job(BLOOM)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"{name} = .*: {rule}|{name}: {rule}"):
        run_study_of(job, **{name: value})  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "rule"), [("num_workers", "whole number, at least 1"), ("scheduler", "text")]
)
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_what_are_no_machines_is_refused(name: str, rule: str, value: object) -> None:
    with pytest.raises(InputError, match=f"{name} = .*: must be (a )?{rule}"), machines(**{name: value}):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        (plan_purchase, "fleet"),
        (lambda sweep: next(run_sweep(sweep)), "sweep"),
        (lambda sweep: sweep_rows(sweep, []), "sweep"),
    ],
)
@pytest.mark.parametrize("value", [None, "file.yaml", {}])
def test_what_was_not_read_from_its_file_is_refused(
    asked: Callable[[object], object], what: str, value: object
) -> None:
    with pytest.raises(InputError, match=rf"{what} = .*: must be a .*, such as load_{what} returns"):
        asked(value)


@pytest.mark.parametrize("value", [None, "tp=4", PLAN])
def test_a_plan_in_the_place_of_a_request_is_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"request = .*: must be a DeepRequest, such as DeepRequest\(plan"):
        simulate_deep(load_job(BLOOM), value)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["faults", "network", "slow_links", "algorithm"])
def test_what_is_no_setting_of_a_request_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} = 'ring': must be a"):
        DeepRequest(plan=PLAN, **{name: "ring"})  # type: ignore[arg-type]
