"""Are the fields of money, energy and carbon reported as unused exactly those that have no effect?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from constraints.evaluation import Evaluation, evaluate
from objectives.break_even import rent_or_own
from objectives.drawn_runs import UnsureDesigns
from objectives.input_uncertainty import draw_objectives
from objectives.usage import Usage
from planner.job.unused_fields import unused_fields, unused_notes
from planner.notes.cautions import cautions_on_plan
from simulator.catalog import node
from simulator.domain.job import Job
from simulator.domain.options import Factors, InputFactors
from simulator.domain.plan import PlanTable
from simulator.table import Floats
from tests.support import H100_BOUGHT, H100_RENTED, job_with, plans_with

EVERYTHING: Mapping[str, dict[str, object]] = {
    "storage": {"capacity_bytes": 1e15},
    "carbon_scope": {"network": True, "storage": True, "building": True},
    "ownership": {"residual_fraction": 0.1},
    "search": {"power_caps": [0.7, 1.0]},
    "site": {"region": "us-iowa", "water_onsite_l_per_kwh": 1.0},
}
NOTHING_MADE = dict.fromkeys(("accelerators", "hosts", "replacements"), False)
NO_PRICE = {**node("hgx-h100-server").model_dump(mode="json"), "purchase_usd": None}
UNPRICED = {**H100_RENTED, "node": NO_PRICE}
JOBS: Mapping[str, Job] = {
    "rented": job_with(H100_RENTED),
    "bought": job_with(H100_BOUGHT),
    "bought, everything counted": job_with(H100_BOUGHT, **EVERYTHING),
    "bought, economic": job_with(H100_BOUGHT, ownership={"depreciation": "economic"}),
    "rented, with storage": job_with(H100_RENTED, storage={"capacity_bytes": 1e15}),
    "rented, no price to own, with storage": job_with(UNPRICED, storage={"capacity_bytes": 1e15}),
    "rented, with storage of a known power": job_with(
        H100_RENTED, storage={"capacity_bytes": 1e15, "capacity_power_w": 4e3}
    ),
    "rented, nothing made": job_with(H100_RENTED, carbon_scope=NOTHING_MADE),
    "rented, no price to own": job_with(UNPRICED),
    "rented, no price to own, nothing made": job_with(UNPRICED, carbon_scope=NOTHING_MADE),
    "rented, taken back": job_with({**H100_RENTED, "interruptions_per_1000_node_days": 20}),
}
CHANGES: Mapping[str, float] = {
    "storage.capacity_bytes": 2e15,
    "storage.usd_per_byte": 2e-10,
    "storage.embodied_kgco2e_per_byte": 3e-10,
    "storage.capacity_power_w": 5e3,
    "storage.power_w_per_byte": 2e-12,
    "ownership.lifetime_years": 4.0,
    "ownership.network_lifetime_years": 7.0,
    "ownership.storage_lifetime_years": 7.0,
    "ownership.installation_fraction": 0.1,
    "ownership.utilization_fraction": 0.6,
    "ownership.capital_cost_fraction_per_year": 0.12,
    "ownership.maintenance_fraction_per_year": 0.08,
    "ownership.staff_usd_per_year": 1e5,
    "ownership.replaced_gpus_per_node_failure": 0.9,
    "ownership.building_kgco2e_per_gpu": 200.0,
    "ownership.facility_usd_per_w": 10.0,
    "ownership.facility_lifetime_years": 20.0,
}
"""Other values of every figure of storage and ownership that has no rule of its own about depreciation."""


def plans_of(job: Job) -> PlanTable:
    """Two designs, one of them with the lowest power cap that is searched."""
    capped = {"num_gpus": 32, "power_cap_fraction": min(job.power_caps)}
    return plans_with(capped, {"num_gpus": 16})


def changed(job: Job, path: str, value: object) -> Job:
    part, field = path.split(".")
    return job.model_copy(update={part: getattr(job, part).model_copy(update={field: value})})


def told(job: Job) -> Floats:
    """Every figure of the scores, and of the comparison of rent with purchase."""
    part = evaluate(job, plans_of(job))
    own = rent_or_own(job, part.plans, Usage.of(part.outcomes))
    columns = [getattr(part.scores, name) for name in part.scores.names()]
    return np.column_stack([*columns, own.rent_usd, own.own_usd, own.break_even_months])


def drawn(job: Job, part: Evaluation) -> Floats:
    """Figures of designs under draws; how sure an input is changes nothing about their middle."""
    designs = UnsureDesigns.of(job, part.plans, part.outcomes, part.scores)
    return np.stack(list(draw_objectives(designs, seed=1, num_draws=20).figures.values()))


def wide_factors(job: Job, fields: Iterable[str]) -> Job:
    wide = dict.fromkeys(fields, Factors(low=0.31, high=1.91))
    return job.model_copy(update={"input_factors": job.input_factors.model_copy(update=wide)})


@pytest.mark.short(3)
@pytest.mark.parametrize("name", JOBS)
def test_a_figure_is_told_as_unused_where_changing_it_changes_nothing(name: str) -> None:
    job, before = JOBS[name], told(JOBS[name])
    for path, value in CHANGES.items():
        other = changed(job, path, value)
        is_same = np.array_equal(before, told(other), equal_nan=True)
        assert (path in unused_fields(other)) == is_same, (path, unused_fields(other))


@pytest.mark.short(3)
@pytest.mark.parametrize("name", JOBS)
def test_factors_that_are_told_as_unused_change_nothing_all_together(name: str) -> None:
    wide = wide_factors(JOBS[name], InputFactors.model_fields)
    unused = [path.removeprefix("input_factors.") for path in unused_fields(wide)]
    part = evaluate(JOBS[name], plans_of(JOBS[name]))
    assert np.array_equal(drawn(JOBS[name], part), drawn(wide_factors(JOBS[name], unused), part))


@pytest.mark.long
@pytest.mark.parametrize("name", ["rented", "bought, everything counted"])
def test_each_factor_that_is_not_told_as_unused_changes_something(name: str) -> None:
    job, part = JOBS[name], evaluate(JOBS[name], plans_of(JOBS[name]))
    before = drawn(job, part)
    for field in InputFactors.model_fields:
        other = wide_factors(job, [field])
        if not unused_fields(other):
            assert not np.array_equal(before, drawn(other, part)), field


def test_every_figure_of_storage_and_ownership_is_tried() -> None:
    job = JOBS["rented"]
    fields = {f"ownership.{name}" for name in type(job.ownership).model_fields}
    rates = {f"storage.{name}" for name in type(job.storage).model_fields if "bytes_per_s" in name}
    fields |= {f"storage.{name}" for name in type(job.storage).model_fields} - rates
    # These exclude each other, which a job file must not do (`planner.job.contradictions`).
    by_depreciation = {"depreciation", "economic_loss_per_year", "age_years", "residual_fraction"}
    assert fields - set(CHANGES) == {f"ownership.{name}" for name in by_depreciation}


def test_a_job_of_defaults_has_no_remark() -> None:
    assert list(unused_notes(job_with(H100_RENTED))) == []
    assert list(unused_notes(JOBS["bought, everything counted"])) == []


def test_the_remark_names_every_field_once_with_its_reason() -> None:
    job = job_with(
        H100_RENTED,
        storage={"usd_per_byte": 2e-10},
        input_factors={"embodied_building": {"low": 0.4, "high": 2}, "cap_slowdown": {"low": 0.5, "high": 2}},
        carbon_scope=NOTHING_MADE,
    )
    assert list(unused_notes(job)) == [
        (
            "These fields change nothing here: storage.usd_per_byte (storage.capacity_bytes is 0); "
            "input_factors.embodied_building (carbon_scope.building is false); "
            "input_factors.cap_slowdown (no power cap below 1 is searched)."
        ),
        "carbon_scope counts nothing of the making: carbon is that of operation alone.",
    ]
    assert set(unused_notes(job)) <= set(cautions_on_plan(job))


def test_a_site_where_no_offer_stands_is_told_as_unused() -> None:
    offers = ({**H100_RENTED, "site": region} for region in ("norway", "poland"))
    nowhere = job_with(*offers)
    assert unused_fields(nowhere) == {"site": "every offer has a site of its own"}
    moved = nowhere.model_copy(update={"site": job_with(site="france").site})
    assert np.array_equal(told(nowhere), told(moved), equal_nan=True)
    assert unused_fields(nowhere.model_copy(update={"site": nowhere.offers[0].site})) == {}
    assert unused_fields(job_with({**H100_RENTED, "site": "norway"}, H100_RENTED)) == {}


def test_a_factor_on_grids_is_used_where_any_offer_stands_on_a_grid_with_carbon() -> None:
    def job(**other: object) -> Job:
        green = {**H100_RENTED, "site": {"region": "norway", "grid_kgco2e_per_kwh": 0.0}}
        return job_with(green, {**green, **other}, input_factors={"grid": {"low": 0.5, "high": 2.0}})

    assert unused_fields(job(site="poland")).keys() == {"site"}
    assert unused_fields(job())["input_factors.grid"] == "the grid is free of carbon everywhere"


def test_what_owners_pay_for_electricity_is_unused_where_nothing_can_be_owned() -> None:
    site = {
        "region": "us-iowa",
        "demand_usd_per_w_month": 0.01,
        "electricity_profile": {"mean": 0.1, "daily_amplitude": 0.05},
    }
    assert unused_fields(job_with(H100_RENTED, site=site)) == {}
    found = unused_fields(job_with({**UNPRICED, "site": site}, H100_BOUGHT))
    assert list(found) == ["offers[0].site.demand_usd_per_w_month", "offers[0].site.electricity_profile"]
    fabric = {"kind": "infiniband-ndr", "embodied_switch_kgco2e": 500}
    assert list(unused_fields(job_with({**H100_RENTED, "fabric": fabric}))) == [
        "offers[0].fabric.embodied_switch_kgco2e"
    ]
