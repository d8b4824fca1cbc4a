"""Do overrides on the command line replace, add and remove values of a job?"""

from __future__ import annotations

import pytest

from planner.job.file import parse_job
from simulator.domain.job import Objective
from simulator.domain.offer import GpuRange
from simulator.domain.reliability import RELIABILITY_PRESETS
from simulator.errors import InputError
from tests.planner.job_documents import DOCUMENT, changed, refusal

# Overrides


def test_overrides_replace_add_and_remove_values() -> None:
    job = parse_job(
        changed(limits={"budget_usd": 1e7, "num_gpus": 128}),
        overrides=[
            "limits.budget_usd=4e6",
            "limits.num_gpus=null",
            "offers[0].num_gpus.max=512",
            "objectives=[cost, energy]",
            "site.power_usage_effectiveness=1.05",
            "reliability=young",
            "workload.tokens = 2e12",
        ],
    )
    assert (job.limits.budget_usd, job.limits.num_gpus) == (4e6, None)
    assert job.offers[0].num_gpus == GpuRange(min=64, max=512)
    assert job.objectives == (Objective.COST, Objective.ENERGY)
    assert (job.site.region, job.site.power_usage_effectiveness) == ("us-iowa", 1.05)
    assert job.reliability == RELIABILITY_PRESETS["young"]
    assert job.workload.tokens == 2e12


def test_fields_of_a_reliability_that_is_left_out_stand_beside_the_preset_that_then_holds() -> None:
    assert "reliability" not in DOCUMENT
    job = parse_job(DOCUMENT, overrides=["reliability.straggler_log_mean=null", "reliability.repair_days=2"])
    changes = {"straggler_log_mean": None, "repair_days": 2.0}
    assert job.reliability == RELIABILITY_PRESETS["typical"].model_copy(update=changes)


def test_the_last_override_wins_and_the_document_stays_as_it_was() -> None:
    document = changed()
    job = parse_job(document, overrides=["limits.deadline_days=30", "limits.deadline_days=60"])
    assert job.limits.deadline_days == 60
    assert document == DOCUMENT


def test_one_text_in_the_place_of_a_list_is_one_problem() -> None:
    with pytest.raises(InputError) as caught:
        parse_job({}, overrides="limits.budget_usd=4e6")
    found = [problem for problem in caught.value.problems if problem.path == "overrides"]
    assert [problem.rule for problem in found] == ["must be a list of texts: ['limits.budget_usd=4e6']"]
    assert not any(problem.path.startswith("overrides[") for problem in caught.value.problems)


def test_an_override_replaces_a_broken_value() -> None:
    assert parse_job(changed(site=float("nan")), overrides=["site=us-iowa"]) == parse_job(DOCUMENT)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("limits.budget_usd", "overrides[0] = 'limits.budget_usd': must be a path, = and a value"),
        ("=4", "overrides[0] = '=4': must be a path"),
        ("limits.budgt_usd=4e6", "limits.budgt_usd = 4000000: unknown field; nearest: budget_usd"),
        ("offers[7].num_gpus=8", "offers[7]: cannot be replaced: the list has 1 entry, counted from 0"),
        ("offers[1].num_gpus=8", "offers[1]: cannot be replaced: the list has 1 entry, counted from 0"),
        ("catalog=.", "catalog = '.': cannot be read: Is a directory"),
        ("name=''", "name = '': must not be empty"),
        ("workload.model.num_layer=2", "workload.model.num_layer = 2: unknown field; nearest: num_layers"),
        ("workload.model.num_layers=1e30", "1e+30: must be a whole number greater than 0 and at most 10000"),
        (
            "workload.model.num_learned_positions=1e30",
            "1e+30: must be a whole number of at least 0 and at most 1000000000",
        ),
        (
            "workload.model.experts={num_experts: 1000001, experts_per_token: 2, expert_ffn_hidden_size: 64}",
            "workload.model.experts.num_experts = 1000001: must be at most 1000000",
        ),
        (
            "search.exhaustive_up_to=1e30",
            "1e+30: must be a whole number greater than 0 and less than 2**63",
        ),
        (
            "workload.sequence_length=1e30",
            "1 problem\n  workload.sequence_length = 1e+30: must be a whole number",
        ),
        ("site={", "site = '{': line 1, column 2"),
        ("site=!!python/name:os.system x", "tags (!) are not supported"),
        ("limits.budget_usd=cheap", "limits.budget_usd = 'cheap': must be a number"),
        ("limits.budget_usd=2.5M", "limits.budget_usd = '2.5M': must be a number; write 2.5e6"),
        ("workload.global_batch_tokens=4M", "global_batch_tokens = '4M': must be a number; write 4e6"),
        ("site.grid_kgco2e_per_kwh='0,4'", "site.grid_kgco2e_per_kwh = '0,4': must be a number; write 0.4"),
        (
            "offers[0].rent_usd_per_gpu_hour='2,6'",
            "rent_usd_per_gpu_hour = '2,6': must be a number; write 2.6",
        ),
        ("limits.budget_usd='$4,000,000'", "limits.budget_usd = '$4,000,000': must be a number; write 4e6"),
        ("limits.budget_usd='4,00,0'", "limits.budget_usd = '4,00,0': must be a number"),
        ("workload.tokens='1e308T'", "workload.tokens = '1e308T': must be a number"),
    ],
)
def test_an_override_that_cannot_be_used_is_named(override: str, expected: str) -> None:
    assert expected in refusal(DOCUMENT, override)
