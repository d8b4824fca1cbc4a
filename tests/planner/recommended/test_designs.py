"""Do a design's figures sum up, in the units that their names say?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from constraints.evaluation import evaluate
from objectives.metrics import metrics
from planner.recommended.designs import design_at
from planner.recommended.limit_uses import LimitUse, uses_in_words
from planner.water_scopes import water_scope
from simulator import catalog
from simulator.domain.plan import CheckpointScheme
from tests.support import H100_BOUGHT, job_with, plans_with


def test_parts_sum_to_the_whole_in_units_for_people() -> None:
    job = job_with(H100_BOUGHT)
    found = evaluate(job, plans_with({"num_gpus": 16, "num_spare_nodes": 1}))
    design = design_at(job, found, 0, 7)
    seconds = design.time_to_train_days * 24 * 3600
    assert seconds == pytest.approx(found.scores.time_to_train_s[0])
    assert sum(design.run_seconds.values()) == pytest.approx(seconds)
    assert sum(design.step_seconds.values()) == pytest.approx(design.step_time_s)
    assert sum(design.cost_parts_usd.values()) == pytest.approx(design.cost_usd)
    assert sum(design.carbon_parts_kgco2e.values()) == pytest.approx(design.carbon_kgco2e)
    assert design.energy_kwh * 3.6e6 == pytest.approx(found.scores.energy_j[0])
    assert sum(design.energy_parts_kwh.values()) == pytest.approx(found.outcomes.energy.total_j[0] / 3.6e6)


def test_lost_time_is_summed_by_its_names_in_accounts_of_goodput() -> None:
    job = job_with(H100_BOUGHT)
    design = design_at(job, evaluate(job, plans_with({"num_gpus": 64})), 0, 7)
    badput, run = design.badput_seconds, design.run_seconds
    waits = run["restart_s"] + run["replacement_wait_s"]
    assert waits > run["restart_s"] > 0.0
    assert badput["infrastructure_recovery_from_disruption"] == pytest.approx(waits)
    assert badput["wasted_progress_from_disruption"] == run["lost_work_s"]
    assert sum(badput.values()) == pytest.approx(sum(run.values()) - run["productive_s"])


@pytest.mark.parametrize(
    ("months", "pays"), [(21.5, True), (np.inf, False), (np.nan, None)], ids=["pays", "never", "not known"]
)
def test_a_purchase_pays_if_it_ever_does(months: float, pays: bool | None) -> None:
    job = job_with(H100_BOUGHT)
    found = evaluate(job, plans_with({"num_gpus": 16}))
    known = metrics(job, found.plans, found.outcomes, found.scores)
    merits = replace(known, break_even_months=np.array([months]))
    assert design_at(job, found, 0, 7, merits).buying_pays is pays


@pytest.mark.parametrize(
    ("onsite", "offsite", "scope"),
    [
        (0.3, 2.0, "on site and at power stations"),
        (0.3, None, "on site only; power stations unknown"),
        (None, 2.0, "power stations only; on-site use unknown"),
        (None, None, ""),
    ],
)
def test_what_is_not_known_of_water_is_told(onsite: float | None, offsite: float | None, scope: str) -> None:
    figures = {"water_onsite_l_per_kwh": onsite, "water_offsite_l_per_kwh": offsite}
    assert water_scope(catalog.site("us-iowa").model_copy(update=figures)) == scope


def test_the_use_of_a_limit_is_told_with_its_share() -> None:
    use = LimitUse(limit="budget_usd", allowed=2e6, used=5e5, probability=0.9)
    assert list(uses_in_words((use,))) == [("budget", "$500 k", "25.0 % of $2.00 M in 90.0 % of all runs")]


@pytest.mark.parametrize(("num_gpus", "num_nodes"), [(4, 1), (8, 1), (16, 2)])
def test_training_takes_whole_nodes(num_gpus: int, num_nodes: int) -> None:
    job = job_with(H100_BOUGHT)
    assert design_at(job, evaluate(job, plans_with({"num_gpus": num_gpus})), 0, 7).num_nodes == num_nodes


def test_only_a_design_that_saves_has_an_interval() -> None:
    job = job_with(H100_BOUGHT)
    schemes = (CheckpointScheme.ASYNC, CheckpointScheme.NONE)
    found = evaluate(job, plans_with(*({"num_gpus": 16, "checkpoint_scheme": scheme} for scheme in schemes)))
    saving, other = (design_at(job, found, row, 7).checkpoint_interval_s for row in (0, 1))
    assert saving == found.outcomes.run.checkpoint_interval_s[0]
    assert other is None
