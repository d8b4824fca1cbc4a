"""Does a plan travel through its table unharmed?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simulator.domain.hardware import Precision
from simulator.domain.plan import (
    SCHEME_ALIASES,
    CheckpointScheme,
    Plan,
    PlanTable,
    Recompute,
    distinct_designs,
)
from tests.simulator.builders import plan_of, table_of
from tests.support import plans_with

degrees = st.sampled_from([1, 2, 3, 8, 70])


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    plan = plan_of(
        tensor=draw(degrees),
        pipeline=draw(degrees),
        context=draw(degrees),
        data=draw(degrees),
        virtual=draw(degrees),
        expert=draw(degrees),
        micro_batch=draw(degrees),
        recompute=draw(st.sampled_from(Recompute)),
        zero=draw(st.integers(0, 3)),
        shards=draw(st.none() | degrees),
        recompute_num_layers=draw(st.none() | degrees),
        precision=draw(st.sampled_from(Precision)),
        scheme=draw(st.sampled_from(CheckpointScheme)),
        spares=draw(st.integers(0, 99)),
        cap=draw(st.floats(0.3, 1.0)),
    )
    interval_s = draw(st.none() | st.floats(1e-3, 1e9))
    return plan.model_copy(update={"checkpoint_interval_s": interval_s, "offer": draw(st.integers(0, 9))})


@given(st.lists(plans(), min_size=1, max_size=5))
def test_plans_come_back_from_their_table_as_they_were(rows: list[Plan]) -> None:
    table = PlanTable.from_plans(rows)
    assert [table.plan(row) for row in range(len(table))] == rows


def test_counts_and_choices_are_whole_numbers_and_no_interval_is_nan() -> None:
    table = table_of(plan_of(recompute=Recompute.FULL, scheme=CheckpointScheme.ASYNC))
    floats = {name for name, column in table.columns().items() if column.dtype == np.float64}
    assert floats == {"checkpoint_interval_s", "power_cap_fraction"}
    assert np.isnan(table.checkpoint_interval_s)
    assert (table.recompute[0], table.checkpoint_scheme[0]) == (2, CheckpointScheme.ASYNC.code)


def test_designs_are_told_apart_by_every_decision_and_their_order_stays() -> None:
    rows: list[dict[str, object]] = [
        {"micro_batch_size": 2},
        {"checkpoint_interval_s": 60.0},
        {"micro_batch_size": 2},
        {},
        {"checkpoint_interval_s": 60.0},
        {"power_cap_fraction": 0.8},
    ]
    plans = plans_with(*rows)
    distinct = distinct_designs(plans)
    assert [distinct.plan(row) for row in range(len(distinct))] == [plans.plan(row) for row in (0, 1, 3, 5)]


def test_the_columns_are_the_fields_of_a_plan() -> None:
    assert PlanTable.names() == tuple(Plan.model_fields)


def test_degrees_that_do_not_multiply_to_the_accelerators_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"data_parallel \(16\) must equal num_gpus \(12\)"):
        Plan(offer=0, num_gpus=12, tensor_parallel=2, data_parallel=8)


@pytest.mark.parametrize("stage", [-1, 4])
def test_zero_has_stages_0_to_3(stage: int) -> None:
    with pytest.raises(ValidationError, match="zero_stage"):
        Plan(offer=0, num_gpus=1, zero_stage=stage)


def test_an_impossible_row_is_refused_when_it_becomes_a_plan() -> None:
    table = table_of(plan_of(data=8))
    broken = PlanTable.concatenate([table]).take(slice(0, 1))
    broken.num_gpus[0] = 7
    with pytest.raises(ValidationError, match="must equal num_gpus"):
        broken.plan(0)


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        # What the papers and documents of these systems describe.
        ("gockpt", CheckpointScheme.GRADIENT_ASSISTED),
        ("gemini", CheckpointScheme.IN_MEMORY_PEER),
        ("checkfreq", CheckpointScheme.ASYNC_LAZY),
        ("datastates", CheckpointScheme.ASYNC_LAZY),
        ("dcp_async", CheckpointScheme.ASYNC),
        ("flash_checkpoint", CheckpointScheme.ASYNC),
        ("flowcheck", CheckpointScheme.GRADIENT_REPLICA),
        ("checkmate", CheckpointScheme.GRADIENT_REPLICA),
        ("torchft", CheckpointScheme.REPLICA_FT),
        ("check_n_run", CheckpointScheme.DIFFERENTIAL),
        ("Check-N-Run", CheckpointScheme.DIFFERENTIAL),
        ("Sync-Sharded", CheckpointScheme.SYNC_SHARDED),
    ],
)
def test_systems_are_known_by_their_names_and_written_by_their_scheme(
    name: str, scheme: CheckpointScheme
) -> None:
    assert CheckpointScheme(name) is scheme
    plan = Plan.model_validate({"offer": 0, "num_gpus": 1, "checkpoint_scheme": name})
    assert plan.model_dump(mode="json")["checkpoint_scheme"] == scheme.value


def test_every_alias_stands_for_a_scheme_and_hides_none() -> None:
    schemes = {scheme.value for scheme in CheckpointScheme}
    assert set(SCHEME_ALIASES.values()) <= schemes
    assert not schemes & SCHEME_ALIASES.keys()


@pytest.mark.parametrize("name", ["gockpt2", "", 3, None, ["gemini"]])
def test_an_unknown_scheme_is_refused_with_the_names_of_all(name: object) -> None:
    with pytest.raises(ValidationError, match=r"'none', 'sync', .*'just_in_time' or 'replica_ft'"):
        Plan.model_validate({"offer": 0, "num_gpus": 1, "checkpoint_scheme": name})
