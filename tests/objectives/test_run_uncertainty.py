"""Are time and energy of a run as unsure as its steps, its goodput, its power and its cooling?"""

from __future__ import annotations

import math

import numpy as np
import pytest

from constraints.evaluation import Evaluation, evaluate, judge
from objectives.drawn_runs import UnsureDesigns
from objectives.input_table import INPUTS
from objectives.input_uncertainty import draw_objectives, objectives_at_ends
from objectives.moved_designs import WAITING_PARTS, slow_down_steps
from simulator.accuracy.step_error import step_error
from simulator.domain.job import Job
from simulator.run.energy import EnergyTable
from simulator.simulate import outcomes_of
from simulator.table import Floats
from tests.objectives.unsure_jobs import FIXED, PLACE, SURE, only, runs_at, two_offers
from tests.support import job_with, plans_with

WARM = {
    **PLACE,
    "power_usage_effectiveness": 1.1,
    "climate": {"mean_celsius": 20, "free_cooling_below_celsius": 10, "overhead_per_celsius": 0.05},
}
"""Weather adds 0.5 in every hour."""


def _ends_of_cooling(site: dict[str, object]) -> Floats:
    """Energy and cost of owners at half and at one and a half times the overhead of cooling, `(2, 2)`."""
    fields = {"objectives": ["energy", "cost"], "input_factors": only("cooling_overhead", 0.5, 1.5)}
    job, plans = job_with(FIXED, site=site, **fields), plans_with({"num_gpus": 16, "num_spare_nodes": 1})
    result = evaluate(job, plans)
    ends = objectives_at_ends(UnsureDesigns.of(job, plans, result.outcomes, result.scores))
    place = [name.startswith("cooling_overhead") for name in ends.names].index(True)
    return np.array([ends.low[place, 0], ends.high[place, 0]])


class TestRuns:
    """Step time and goodput are unsure, too."""

    def test_designs_on_the_same_accelerators_err_together_as_far_as_residuals_say(self) -> None:
        sure = {name: value for name, value in SURE.items() if name != "step_time"}
        plans = plans_with({"num_gpus": 16}, {"num_gpus": 32}, {"num_gpus": 32, "offer": 1})
        job = two_offers(objectives=["time_to_train"], input_factors=sure, reliability=_steady())
        result = evaluate(job, plans)
        values = draw_objectives(
            UnsureDesigns.of(job, plans, result.outcomes, result.scores), seed=3, num_draws=20_000
        ).values
        logs = np.log(values[:, :, 0])
        hopper = step_error("hopper", "bf16")
        shared, own = hopper.shared_log_deviation, hopper.own_log_deviation
        below, above = hopper.ratios  # a normal value stretched by either, as its sign is
        stretched = math.sqrt((below**2 + above**2) / 2.0 - (above - below) ** 2 / (2.0 * math.pi))
        assert logs[:, 0].std() == pytest.approx(stretched * math.hypot(shared, own), rel=0.03)
        together = np.corrcoef(logs.T)
        assert together[0, 1] == pytest.approx(shared**2 / (shared**2 + own**2), abs=0.02)
        assert together[0, 2] == pytest.approx(0.0, abs=0.03)  # other accelerators

    def test_designs_that_save_otherwise_share_the_error_of_their_layout(self) -> None:
        plans = plans_with({"num_gpus": 16}, {"num_gpus": 16, "checkpoint_interval_s": 9000.0})
        sure = {name: value for name, value in SURE.items() if name != "step_time"}
        job = job_with(objectives=["time_to_train"], input_factors=sure)
        result = evaluate(job, plans)
        values = draw_objectives(UnsureDesigns.of(job, plans, result.outcomes, result.scores), seed=3).values[
            :, :, 0
        ]
        ratio = values / result.scores.time_to_train_s
        np.testing.assert_allclose(ratio[:, 0], ratio[:, 1], rtol=1e-3)

    def test_all_inputs_at_once_come_near_to_a_simulation_with_all_of_them(self) -> None:
        # The responses are taken one by one at the ends; here all inputs move together, by other amounts.
        amounts = {
            "failure_rate": 1.6,
            "restart_time": 1.4,
            "straggler_excess": 1.5,
            "storage_bandwidth": 0.7,
        }
        job = job_with(reliability="harsh", objectives=["time_to_train", "energy"])
        plans = plans_with({"num_gpus": 64}, {"num_gpus": 64, "num_spare_nodes": 1})
        result = evaluate(job, plans)
        changed = job
        for name, amount in amounts.items():
            changed = INPUTS[name].change(changed, amount)
        steps = slow_down_steps(result.outcomes.steps, 1.05)
        truth = judge(changed, plans, outcomes_of(changed, plans, steps, result.outcomes.memory)).scores
        ratios = _at(job, result, {**amounts, "step_time": 1.05})
        expected = np.column_stack(
            [
                truth.time_to_train_s / result.scores.time_to_train_s,
                truth.energy_j / result.scores.energy_j,
            ]
        )
        assert expected.min() > 1.05
        np.testing.assert_allclose(ratios, expected, rtol=0.01)

    def test_a_cap_costs_more_time_with_a_smaller_exponent_and_none_without_a_cap(self) -> None:
        job = job_with(
            objectives=["time_to_train"], input_factors=only("cap_slowdown", 0.5, 2.0), reliability=_steady()
        )
        plans = plans_with({"num_gpus": 16}, {"num_gpus": 16, "power_cap_fraction": 0.7})
        result = evaluate(job, plans)
        ends = objectives_at_ends(UnsureDesigns.of(job, plans, result.outcomes, result.scores))
        place = ends.names.index("cap_slowdown")
        # ((1 - idle) / (0.7 - idle))^(1/2) with 70 W of 700 W idle; the power of 2 gives the exponent of 1.
        slowdown = math.sqrt((1.0 - 0.1) / (0.7 - 0.1))
        computing = result.outcomes.steps.compute_s[1] / result.outcomes.steps.step_time_s[1]
        assert ends.high[place, 0, 0] == pytest.approx(ends.middle[0, 0], rel=1e-12)
        expected = 1.0 + computing * (slowdown - 1.0)
        assert ends.high[place, 1, 0] / ends.middle[1, 0] == pytest.approx(expected, rel=2e-3)
        assert ends.low[place, 1, 0] < ends.middle[1, 0]

    def test_power_and_cooling_share_out_the_energy(self) -> None:
        objectives = ["energy"]
        job = job_with(objectives=objectives, input_factors=only("waiting_power", 0.5, 2.0))
        plans = plans_with({"num_gpus": 16})
        result = evaluate(job, plans)
        ends = objectives_at_ends(UnsureDesigns.of(job, plans, result.outcomes, result.scores))
        energy = result.outcomes.energy
        waiting = sum(getattr(energy, part)[0] for part in WAITING_PARTS)
        place = [name.startswith("waiting_power") for name in ends.names].index(True)
        assert ends.high[place, 0, 0] == pytest.approx(energy.total_j[0] + waiting)
        assert set(WAITING_PARTS) < set(EnergyTable.names())

    def test_the_weather_s_part_of_the_cooling_is_as_unsure_as_the_rest(self) -> None:
        steady, warm = (
            _ends_of_cooling(site) for site in ({**PLACE, "power_usage_effectiveness": 1.6}, WARM)
        )
        np.testing.assert_allclose(warm, steady, rtol=1e-9)
        assert warm[1, 0] > 1.05 * warm[0, 0]

    def test_cooling_that_does_not_fall_with_the_load_is_as_unsure_as_a_simulation_with_more_of_it(
        self,
    ) -> None:
        fixed = {**PLACE, "power_usage_effectiveness": 1.6, "cooling_fixed_fraction": 0.8}
        plans = plans_with({"num_gpus": 16, "num_spare_nodes": 1})
        more = evaluate(job_with(site={**fixed, "power_usage_effectiveness": 1.9}), plans)
        np.testing.assert_allclose(_ends_of_cooling(fixed)[1, 0], more.scores.energy_j[0], rtol=1e-9)

    def test_a_risk_follows_the_time_that_is_drawn(self) -> None:
        plans = plans_with({"num_gpus": 16})
        days = evaluate(job_with(), plans).scores.time_to_train_s[0] / 86_400
        job = job_with(
            limits={"deadline_days": days * 1.02},
            objectives=["deadline_risk"],
            input_factors=only("step_time", 0.9, 1.1),
        )
        result = evaluate(job, plans)
        ends = objectives_at_ends(UnsureDesigns.of(job, plans, result.outcomes, result.scores))
        place = ends.names.index("step_time of h100-sxm5-80gb")
        assert ends.middle[0, 0] == pytest.approx(result.scores.deadline_risk[0], abs=0.02)
        assert ends.low[place, 0, 0] < ends.middle[0, 0] < ends.high[place, 0, 0]


def _steady() -> dict[str, object]:
    """Nothing fails or straggles, so that the run is its steps."""
    return {"preset": "mature", "failures_per_1000_node_days": 1e-6, "straggler_log_mean": None}


def _at(job: Job, result: Evaluation, amounts: dict[str, float]) -> Floats:
    """Time and energy over their middle at factors of some inputs, `(n, 2)`: the ends of the ranges are other ones."""
    runs = runs_at(job, result, amounts)
    return np.column_stack(
        [runs.wall_s[0] / result.scores.time_to_train_s, runs.energy_j[0] / result.scores.energy_j]
    )
