from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from constraints.answers import (
    INTERVAL_FACTOR,
    caps_of_answers,
    designs_of_answers,
    longest_tried_s,
    space_of_answers,
    stepped_caps,
    with_other_intervals,
    without_spares,
)
from constraints.evaluation import evaluate
from constraints.lattice import cross_run_knobs, enumerate_layouts
from constraints.space import pruned_space
from simulator.domain.plan import CheckpointScheme
from simulator.run.spare_nodes import sufficient_spare_nodes
from tests.support import H100_BOUGHT, H100_RENTED, job_with

BIG = {**H100_RENTED, "num_gpus": {"min": 512, "max": 1024}}
SMALL_SPACE = {"micro_batch_sizes": [1], "zero_stages": [1], "checkpoint_schemes": ["async"]}


def test_every_number_of_spares_up_to_enough_is_a_design_once() -> None:
    job = job_with(BIG, workload={"tokens": 1e12}, search={**SMALL_SPACE, "num_refinements": 1})
    layouts = enumerate_layouts(job).take(slice(0, 40))
    enough = sufficient_spare_nodes(job, layouts)
    assert enough.max() > 2
    designs = designs_of_answers(job, layouts)
    pairs = [
        (
            tuple(
                getattr(designs, name)[row] for name in ("tensor_parallel", "pipeline_parallel", "num_gpus")
            ),
            n,
        )
        for row, n in enumerate(designs.num_spare_nodes.tolist())
    ]
    assert len(designs) == int((enough + 1).sum())
    assert sorted(n for _, n in pairs) == sorted(n for most in enough.tolist() for n in range(most + 1))


def test_no_design_has_more_nodes_than_there_are_and_fewer_change_nothing_else() -> None:
    most = 66
    search = {**SMALL_SPACE, "num_refinements": 1}
    few = {**BIG, "num_gpus": {"min": 256, "max": 512}}
    free, held = (
        job_with(offer, workload={"tokens": 1e12}, search=search)
        for offer in (few, {**few, "max_nodes": most})
    )
    layouts = enumerate_layouts(free)
    rows = np.unique(layouts.num_gpus, return_index=True)[1]
    layouts = layouts.take(rows)
    nodes = layouts.num_gpus // 8
    enough = sufficient_spare_nodes(free, layouts)
    assert (nodes + enough).max() > most
    np.testing.assert_array_equal(sufficient_spare_nodes(held, layouts), np.minimum(enough, most - nodes))
    designs = designs_of_answers(held, layouts)
    assert len(designs) == int((np.minimum(enough, most - nodes) + 1).sum())
    assert (designs.num_gpus // 8 + designs.num_spare_nodes).max() == most


@pytest.mark.parametrize("with_spares", [[True, False], [False, True]])
def test_the_same_design_without_spares_is_found_in_either_order_of_the_list(with_spares: list[bool]) -> None:
    job = job_with(BIG, workload={"tokens": 1e12}, search={**SMALL_SPACE, "with_spares": with_spares})
    layouts = enumerate_layouts(job).take(slice(0, 40))
    listed = cross_run_knobs(job, layouts)
    enough = np.flatnonzero(listed.num_spare_nodes > 0)
    without = listed.take(without_spares(job, enough))
    none = replace(listed.take(enough), num_spare_nodes=np.zeros(len(enough), dtype=np.int64))
    assert len(enough)
    for name, column in none.columns().items():
        np.testing.assert_array_equal(getattr(without, name), column)


@pytest.mark.parametrize("search", [{"num_refinements": 0}, {"num_refinements": 3, "with_spares": [True]}])
def test_without_refinement_or_choice_only_the_listed_spares_are_tried(search: dict[str, object]) -> None:
    job = job_with(search={**SMALL_SPACE, **search})
    layouts = enumerate_layouts(job)
    listed = cross_run_knobs(job, layouts)
    np.testing.assert_array_equal(designs_of_answers(job, layouts).num_spare_nodes, listed.num_spare_nodes)


def test_caps_go_in_steps_of_a_twentieth_from_the_highest_to_the_lowest() -> None:
    job = job_with(search={"power_caps": [1.0, 0.83], "num_refinements": 1}, limits={"power_w": 1e6})
    assert stepped_caps(job).tolist() == [0.83, 0.8867, 0.9433, 1.0]
    assert caps_of_answers(job) == (1.0, 0.9433, 0.8867, 0.83)
    free = job_with(search={"num_refinements": 1}, limits={"carbon_kgco2e": 1e6})
    assert caps_of_answers(free) == (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6)


def test_caps_are_left_out_where_they_cannot_help() -> None:
    search = {"power_caps": [1.0, 0.6], "num_refinements": 1}
    assert caps_of_answers(job_with(search=search, limits={"deadline_days": 9, "budget_usd": 9e9})) == (
        1.0,
        0.6,
    )
    assert len(caps_of_answers(job_with(H100_BOUGHT, search=search, limits={"budget_usd": 9e9}))) == 9
    mixed = job_with(H100_RENTED, H100_BOUGHT, search=search, limits={"budget_usd": 9e9})
    assert len(caps_of_answers(mixed)) == 9
    plain = {**search, "num_refinements": 0}
    assert caps_of_answers(job_with(search=plain, limits={"power_w": 9e9})) == (1.0, 0.6)


@pytest.mark.parametrize(
    ("floor", "listed", "lowest"),
    [
        (0.0, (1.0, 0.8, 0.6), 0.6),
        (0.7, (1.0, 0.8, 0.7), 0.7),
        (0.8, (1.0, 0.8), 0.8),
        (0.9, (1.0, 0.9), 0.9),
        (1.0, (1.0,), 1.0),
    ],
)
def test_no_cap_is_below_the_floor_of_filler_work(
    floor: float, listed: tuple[float, ...], lowest: float
) -> None:
    operation = {"power_floor_fraction": floor}
    search = {"num_refinements": 1}
    free = job_with(search=search, operation=operation)
    assert free.power_caps == (1.0,)
    assert (stepped_caps(free).min(), stepped_caps(free).max()) == (lowest, 1.0)
    assert free.may_cap_power == (floor < 1.0)
    limited = job_with(search=search, operation=operation, limits={"power_w": 1e6})
    assert limited.power_caps == listed
    assert min(caps_of_answers(limited)) == lowest
    named = job_with(search={**search, "power_caps": list(listed)}, operation=operation)
    assert named.power_caps == listed


def test_caps_are_tried_for_what_they_make_smaller() -> None:
    job = job_with(search={"num_refinements": 1}, limits={"deadline_days": 9})
    for wanted in ((), ("deadline_days",), ("budget_usd",), ("num_gpus",)):
        assert caps_of_answers(job, wanted) == (1.0,)
    assert len(caps_of_answers(job, ("budget_usd", "carbon_kgco2e"))) == 9
    assert len(caps_of_answers(job_with(H100_BOUGHT, search={"num_refinements": 1}), ("budget_usd",))) == 9
    assert caps_of_answers(job_with(), ("carbon_kgco2e",)) == (1.0,)


def test_a_lower_cap_makes_no_run_shorter_and_no_rent_lower() -> None:
    job = job_with(search={"micro_batch_sizes": [1, 2]})
    designs = cross_run_knobs(job, enumerate_layouts(job))
    designs = designs.take(slice(0, None, 7))
    before = evaluate(job, replace(designs, power_cap_fraction=np.full(len(designs), 1.0)))
    for cap in (0.95, 0.8, 0.6, 0.3):
        after = evaluate(job, replace(designs, power_cap_fraction=np.full(len(designs), cap)))
        is_possible = np.isfinite(before.outcomes.run.wall_time_s)
        rounding = 1.0 + 1e-12
        times = [each.outcomes.run.wall_time_s[is_possible] for each in (before, after)]
        assert (times[1] * rounding >= times[0]).all()
        costs = [each.scores.cost_usd[is_possible] for each in (before, after)]
        assert (costs[1] * rounding >= costs[0]).all()
        before = after


def test_a_space_is_the_same_one_where_answers_have_no_other_caps() -> None:
    job = job_with(search={**SMALL_SPACE, "num_refinements": 1}, limits={"deadline_days": 100})
    space = pruned_space(job)
    assert space_of_answers(space) is space
    capped = job_with(search={**SMALL_SPACE, "num_refinements": 1}, limits={"power_w": 1e9})
    space = pruned_space(capped)  # the caps 1, 0.8 and 0.6
    assert 3 * space_of_answers(space).num_layouts == 9 * space.num_layouts


def test_intervals_lie_around_the_one_that_was_used_and_what_never_saves_has_none() -> None:
    job = job_with(search={**SMALL_SPACE, "checkpoint_schemes": ["async", "none"]})
    designs = cross_run_knobs(job, enumerate_layouts(job)).take(slice(0, 40))
    outcomes = evaluate(job, designs).outcomes
    used_s = outcomes.run.checkpoint_interval_s
    others = with_other_intervals(job, designs, used_s, outcomes.checkpoints.stall_s)
    saves = designs.checkpoint_scheme != CheckpointScheme.NONE.code
    assert 0 < saves.sum() < len(designs)
    assert len(others) % saves.sum() == 0
    assert (others.checkpoint_scheme != CheckpointScheme.NONE.code).all()
    of_first = others.checkpoint_interval_s[: len(others) // saves.sum()] / used_s[saves][0]
    assert of_first[[0, -1]].tolist() == pytest.approx([1.0 / INTERVAL_FACTOR, INTERVAL_FACTOR])
    assert np.isclose(of_first, 1.0).any()


def test_no_interval_is_longer_than_the_longest_of_the_job() -> None:
    job = job_with(
        search={**SMALL_SPACE, "checkpoint_schemes": ["async"]}, checkpointing={"longest_interval_s": 7200.0}
    )
    designs = cross_run_knobs(job, enumerate_layouts(job)).take(slice(0, 2))
    others = with_other_intervals(job, designs, np.array([3600.0, 9000.0]), np.array([0.0, 1e4]))
    first, second = np.split(others.checkpoint_interval_s, 2)
    assert (first.min(), first.max()) == (3600.0 / INTERVAL_FACTOR, 7200.0)
    assert (second.min(), second.max()) == (9000.0 / INTERVAL_FACTOR, 9000.0)


def test_where_saves_stop_the_run_for_long_intervals_beyond_a_day_are_tried() -> None:
    # Without a longest interval of the job: a day, or as long as saves stop it for 1 % of the time.
    job = job_with(search=SMALL_SPACE)
    best_s, stall_s = np.array([3600.0, 48_000.0, 48_000.0, 199_000.0]), np.array([3e3, 0.0, 3e3, 3e3])
    expected_s = [4 * 3600.0, 86_400.0, 4 * 48_000.0, 300_000.0]
    np.testing.assert_allclose(longest_tried_s(job, best_s, stall_s), expected_s)
