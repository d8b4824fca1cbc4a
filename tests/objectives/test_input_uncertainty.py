"""Do draws have the percentiles that were asked for, and do shared inputs leave orderings alone?"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.step_error import log_ratios_by_job, variance_parts
from constraints.evaluation import Evaluation, evaluate, judge
from objectives.drawn_runs import WAITING_PARTS, DrawnRuns, UnsureDesigns
from objectives.drawn_scores import drawn_figures, drawn_objectives
from objectives.input_uncertainty import DrawnObjectives, draw_objectives, objectives_at_ends
from objectives.metrics import metrics
from objectives.run_response import CHANGES, slow_down_steps
from objectives.unsure_inputs import Z_95, UnsureInput, estimate_factors
from planner.measured_runs import compare, read_rows
from simulator.energy import EnergyTable
from simulator.job import Estimate, Job
from simulator.options import Factors, InputFactors
from simulator.simulate import outcomes_of
from simulator.step_error import StepError, step_error
from simulator.table import Floats
from tests.support import A100_RENTED, H100_BOUGHT, H100_RENTED, job_with, plans_with

PLANS = plans_with({"num_gpus": 16}, {"num_gpus": 32}, {"num_gpus": 32, "offer": 1})
CERTAIN = {"low": 1.0, "high": 1.0}
SURE = dict.fromkeys(InputFactors.model_fields, CERTAIN)
"""Nothing but the hardware's price is drawn."""
FIXED = {**H100_BOUGHT, "purchase_usd_per_node": 3e5}


def drawn(job: Job, seed: int = 1, num_draws: int = 1000) -> DrawnObjectives:
    result = evaluate(job, PLANS)
    return draw_objectives(
        UnsureDesigns.of(job, PLANS, result.outcomes, result.scores), seed=seed, num_draws=num_draws
    )


def two_offers(**fields: object) -> Job:
    wide = {**A100_RENTED, "rent_usd_per_gpu_hour": {"low": 0.5, "mid": 1.3, "high": 4.0}}
    return job_with(H100_RENTED, wide, **fields)


def only(name: str, low: float, high: float) -> dict[str, object]:
    """Input factors of which one is unsure."""
    return {**SURE, name: {"low": low, "high": high}}


def unsure(factors: Factors) -> UnsureInput:
    return UnsureInput(
        name="rent", draws=("rent",), log_low=np.log([factors.low]), log_high=np.log([factors.high])
    )


def test_one_draw_in_twenty_lies_below_low_and_one_above_high() -> None:
    normal = np.random.default_rng(7).standard_normal(200_000)
    factors = unsure(Factors(low=0.5, high=3.0)).factors(lambda _name: normal)
    np.testing.assert_allclose(np.quantile(factors, (0.05, 0.5, 0.95)), [0.5, 1.0, 3.0], rtol=0.02)
    prices = unsure(estimate_factors(Estimate(low=2.0, mid=2.5, high=4.0))).factors(lambda _name: normal)
    np.testing.assert_allclose(np.quantile(prices, (0.05, 0.95)), [0.8, 1.6], rtol=0.02)


def test_the_spread_of_rent_is_that_of_its_price() -> None:
    job = two_offers(objectives=["cost"], input_factors=SURE)
    low, high = drawn(job).quantiles((0.05, 0.95))[:, 0, 0]
    middle = evaluate(job, PLANS).scores.cost_usd[0]
    assert (low / middle, high / middle) == (
        pytest.approx(2.0 / 2.5, rel=0.05),
        pytest.approx(4.0 / 2.5, rel=0.1),
    )


def test_a_shared_price_changes_no_order_and_different_ones_do() -> None:
    job = two_offers(objectives=["cost", "time_to_train"], input_factors=SURE)
    result = drawn(job)
    costs = evaluate(job, PLANS).scores.cost_usd
    cheaper = float(costs[0] < costs[1])
    assert result.better_fraction(0, 1)[0] == cheaper  # the same accelerators
    assert 0.02 < result.better_fraction(1, 2)[0] < 0.98  # others
    assert result.better_fraction(1, 0)[1] == 1.0  # nobody draws the time


def test_certain_inputs_draw_what_was_computed() -> None:
    objectives = ["time_to_train", "cost", "energy", "carbon", "cost_p95", "time_to_train_p95"]
    job = job_with(FIXED, {**FIXED}, input_factors=SURE, objectives=objectives)
    values = evaluate(job, PLANS).objectives(job)
    for draw in drawn(job).values[:3]:
        np.testing.assert_allclose(draw, values, rtol=1e-9)


def test_every_field_of_the_input_factors_moves_something_when_everything_is_at_stake() -> None:
    # All that can be priced or counted is: bought nodes, own storage, demand charge, a sale in the end, all of the making.
    everything = {
        "ownership": {"residual_fraction": 0.2, "staff_usd_per_year": 1e5},
        "storage": {"capacity_bytes": 1e15},
        "carbon_scope": dict.fromkeys(("network", "storage", "building"), True),
    }
    objectives = ["time_to_train", "cost", "energy", "carbon"]
    straight = job_with(H100_BOUGHT, input_factors={}, objectives=objectives, **everything)
    economic = job_with(
        H100_BOUGHT, objectives=objectives, **{**everything, "ownership": {"depreciation": "economic"}}
    )
    spot = job_with({**H100_RENTED, "interruptions_per_1000_node_days": 100}, objectives=objectives)
    plans = plans_with({"num_gpus": 16, "power_cap_fraction": 0.8})
    moved: set[str] = set()
    for job in (straight, economic, spot):
        result = evaluate(job, plans)
        ends = objectives_at_ends(UnsureDesigns.of(job, plans, result.outcomes, result.scores))
        does_move = (ends.low != ends.middle).any(axis=(1, 2))
        moved |= {
            name.partition(" of ")[0] for name, moves in zip(ends.names, does_move, strict=True) if moves
        }
    assert moved == {"hardware_price", *InputFactors.model_fields}


def test_the_lifetime_of_nodes_means_nothing_to_what_loses_its_value_on_the_market() -> None:
    unsure = {"input_factors": only("lifetime", 0.5, 2.0), "objectives": ["cost"]}
    free = {**FIXED, "fabric": {"kind": "infiniband-ndr", "port_usd": 0}}
    economic = job_with(free, {**free}, ownership={"depreciation": "economic"}, **unsure)
    straight = job_with(free, {**free}, **unsure)
    assert np.ptp(drawn(economic).values[:, 0]) <= 1e-9 * drawn(economic).values[0, 0]
    assert drawn(straight).values[:, 0].max() > 1.2 * drawn(straight).values[:, 0].min()


def test_cost_of_capital_acts_through_the_annuity() -> None:
    bare = {"facility_usd_per_w": 0, "maintenance_fraction_per_year": 0, "lifetime_years": 5}
    free = {**FIXED, "fabric": {"kind": "infiniband-ndr", "port_usd": 0}}
    job = job_with(
        free,
        ownership={**bare, "capital_cost_fraction_per_year": 0.08},
        site={"region": "us-iowa", "electricity_usd_per_kwh": 0.0},
        objectives=["cost"],
        input_factors=only("capital_cost", 0.5, 1.5),
    )
    plans = plans_with({"num_gpus": 16})
    result = evaluate(job, plans)
    ends = objectives_at_ends(UnsureDesigns.of(job, plans, result.outcomes, result.scores))
    place = ends.names.index("capital_cost")

    def annuity(rate: float) -> float:
        return rate / (1.0 - (1.0 + rate) ** -5.0)

    assert ends.low[place, 0, 0] / ends.middle[0, 0] == pytest.approx(annuity(0.04) / annuity(0.08))
    assert ends.high[place, 0, 0] / ends.middle[0, 0] == pytest.approx(annuity(0.12) / annuity(0.08))


def test_the_price_of_storage_is_unsure_for_those_who_rent_the_nodes_too() -> None:
    factors = only("storage_price", 0.5, 2.0)
    job = job_with(H100_RENTED, objectives=["cost"], storage={"capacity_bytes": 1e15}, input_factors=factors)
    plans = plans_with({"num_gpus": 16})
    result = evaluate(job, plans)
    ends = objectives_at_ends(UnsureDesigns.of(job, plans, result.outcomes, result.scores))
    place = [name.startswith("storage_price") for name in ends.names].index(True)
    storage = result.scores.storage_usd[0]
    assert ends.middle[0, 0] == pytest.approx(result.scores.cost_usd[0], rel=1e-12)
    assert ends.high[place, 0, 0] - ends.middle[0, 0] == pytest.approx(storage, rel=1e-9)


def test_the_power_of_storage_is_unsure_unless_it_is_given() -> None:
    site = {**PLACE, "power_usage_effectiveness": 1.25}
    plans = plans_with({"num_gpus": 16, "num_spare_nodes": 1})
    for power, grown_w in ({}, 0.4 * 3500.0), ({"capacity_power_w": 3500.0}, 0.0):  # 3.5 W/TB on 1 PB
        fields = {"site": site, "objectives": ["energy"], "input_factors": only("storage_power", 0.6, 1.4)}
        job = job_with(storage={"capacity_bytes": 1e15, **power}, **fields)
        result = evaluate(job, plans)
        ends = objectives_at_ends(UnsureDesigns.of(job, plans, result.outcomes, result.scores))
        place = [name.startswith("storage_power") for name in ends.names].index(True)
        grown_j = 1.25 * grown_w * result.scores.time_to_train_s[0]
        assert ends.high[place, 0, 0] - ends.middle[0, 0] == pytest.approx(grown_j, rel=1e-9, abs=1.0)


def test_a_draw_scores_as_a_job_with_the_drawn_figures() -> None:
    amounts = {
        "hardware_price": 1.15,
        "cooling_overhead": 1.2,
        "grid": 1.1,
        "electricity_price": 1.25,
        "embodied_accelerator": 1.3,
        "embodied_host": 0.9,
        "embodied_network": 1.2,
        "embodied_storage": 1.4,
        "replaced_accelerators": 0.7,
        "lifetime": 0.8,
        "facility_lifetime": 0.9,
        "utilization": 1.05,
        "residual_value": 1.2,
        "capital_cost": 1.2,
        "maintenance": 1.3,
        "facility_price": 1.1,
        "network_price": 1.2,
        "storage_price": 0.7,
    }
    document = {
        "ownership": {"residual_fraction": 0.2},
        "storage": {"capacity_bytes": 1e15},
        "carbon_scope": {"network": True, "storage": True},
        "reliability": "harsh",
        "objectives": ["cost", "energy", "carbon"],
    }
    job = job_with(H100_BOUGHT, **document)
    plans = plans_with({"num_gpus": 64, "num_spare_nodes": 1}, {"num_gpus": 16})
    truth = evaluate(_changed(job, amounts), plans).objectives(job)
    runs = _runs_at(job, evaluate(job, plans), amounts)
    np.testing.assert_allclose(drawn_objectives(runs, drawn_figures(runs))[0], truth, rtol=1e-9)


def _changed(job: Job, by: dict[str, float]) -> Job:
    """The job with figures that are so many times as large, field by field."""
    (offer,), own, site = job.offers, job.ownership, job.site
    price = offer.purchase_usd_per_node
    assert price is not None
    terms = {
        "lifetime_years": own.lifetime_years * by["lifetime"],
        "facility_lifetime_years": own.facility_lifetime_years * by["facility_lifetime"],
        "utilization_fraction": own.utilization_fraction * by["utilization"],
        "residual_fraction": own.residual_fraction * by["residual_value"],
        "capital_cost_fraction_per_year": own.capital_cost_fraction_per_year * by["capital_cost"],
        "maintenance_fraction_per_year": own.maintenance_fraction_per_year * by["maintenance"],
        "facility_usd_per_w": own.facility_usd_per_w * by["facility_price"],
        "replaced_gpus_per_node_failure": own.replaced_gpus_per_node_failure * by["replaced_accelerators"],
    }
    made = offer.accelerator.embodied_kgco2e * by["embodied_accelerator"]
    fabric = {
        "port_usd": offer.fabric.port_usd * by["network_price"],
        "embodied_switch_kgco2e": offer.fabric.embodied_switch_kgco2e * by["embodied_network"],
    }
    host = offer.node.embodied_host_kgco2e * by["embodied_host"]
    hardware = {
        "accelerator": offer.accelerator.model_copy(update={"embodied_kgco2e": made}),
        "node": offer.node.model_copy(update={"embodied_host_kgco2e": host}),
        "fabric": offer.fabric.model_copy(update=fabric),
        "purchase_usd_per_node": price.model_copy(update={"mid": price.mid * by["hardware_price"]}),
    }
    place = {
        "power_usage_effectiveness": 1.0 + (site.power_usage_effectiveness - 1.0) * by["cooling_overhead"],
        "grid_kgco2e_per_kwh": site.grid_kgco2e_per_kwh * by["grid"],
        "electricity_usd_per_kwh": site.electricity_usd_per_kwh * by["electricity_price"],
    }
    stored = {
        "usd_per_byte": job.storage.usd_per_byte * by["storage_price"],
        "embodied_kgco2e_per_byte": job.storage.embodied_kgco2e_per_byte * by["embodied_storage"],
    }
    return job.model_copy(
        update={
            "ownership": own.model_copy(update=terms),
            "offers": (offer.model_copy(update=hardware),),
            "site": site.model_copy(update=place),
            "storage": job.storage.model_copy(update=stored),
        }
    )


PLACE = {"region": "here", "grid_kgco2e_per_kwh": 0.4, "electricity_usd_per_kwh": 0.1}
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
        assert logs[:, 0].std() == pytest.approx(math.hypot(shared, own), rel=0.03)
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
            changed = CHANGES[name](changed, amount)
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
    runs = _runs_at(job, result, amounts)
    return np.column_stack(
        [runs.wall_s[0] / result.scores.time_to_train_s, runs.energy_j[0] / result.scores.energy_j]
    )


def _runs_at(job: Job, result: Evaluation, amounts: dict[str, float]) -> DrawnRuns:
    """One draw, in which some inputs have given factors and the others are at the middle."""
    designs = UnsureDesigns.of(job, result.plans, result.outcomes, result.scores)
    inputs = designs.inputs

    def normal(name: str) -> Floats:
        amount = amounts.get(name.partition(" of ")[0], 1.0)
        if amount == 1.0:
            return np.zeros(1)
        unsure = next(one for one in inputs.values() if name in one.draws)
        row = unsure.draws.index(name)
        side = unsure.log_high[row] if amount > 1.0 else -unsure.log_low[row]
        return np.array([Z_95 * math.log(amount) / side])

    return DrawnRuns.of(designs, normal)


class TestStepError:
    def test_the_parts_of_a_variance_are_found_again(self) -> None:
        generator = np.random.default_rng(5)
        sizes = generator.integers(2, 12, size=3000)
        groups = [0.3 * generator.standard_normal() + 0.1 * generator.standard_normal(n) for n in sizes]
        between, within = variance_parts(groups)
        assert (math.sqrt(between), math.sqrt(within)) == pytest.approx((0.3, 0.1), rel=0.05)

    def test_the_shipped_split_is_that_of_the_shipped_steps(self) -> None:
        rows = [row for row in read_rows() if not row["left_out_because"]]
        shared, own = variance_parts(log_ratios_by_job(compare(rows)))
        shipped = step_error("hopper", "bf16")
        fraction = shipped.shared_log_deviation**2 / (
            shipped.shared_log_deviation**2 + shipped.own_log_deviation**2
        )
        # The simulator may have become better since the file was written, but not so much that the split is another one.
        assert fraction == pytest.approx(shared / (shared + own), abs=0.1)

    def test_what_was_never_compared_is_less_sure_than_what_is_known_best(self) -> None:
        unknown, known = step_error("cdna", "bf16"), step_error("hopper", "bf16")
        assert unknown.shared_log_deviation > known.shared_log_deviation
        assert step_error("hopper", "bf16", has_experts=True).own_log_deviation > known.own_log_deviation

    def test_a_format_without_measurements_is_twice_as_unsure_as_8_bits(self) -> None:
        wide, known = (
            step_error("blackwell", precision, accelerator="gb200") for precision in ("fp4", "fp8")
        )
        assert wide.interval_log_half_width == pytest.approx(2.0 * known.interval_log_half_width)

    @pytest.mark.parametrize("family", ["cdna3", "tpu", "gaudi"])
    @pytest.mark.parametrize("precision", ["bf16", "fp8"])
    @pytest.mark.parametrize("has_experts", [False, True])
    def test_an_unmeasured_architecture_is_never_surer_than_a_measured_one(
        self, family: str, precision: str, has_experts: bool
    ) -> None:
        unknown = step_error(family, precision, has_experts=has_experts)
        for measured in ("ampere", "hopper", "blackwell"):
            known = step_error(measured, precision, has_experts=has_experts)
            assert unknown.interval_log_half_width >= known.interval_log_half_width

    @pytest.mark.parametrize(
        "relative", ["h20-sxm-96gb", "h200-sxm-141gb", "h800-sxm5-80gb", "h100-pcie-80gb"]
    )
    def test_an_unmeasured_accelerator_does_not_borrow_the_certainty_of_its_relative(
        self, relative: str
    ) -> None:
        known = step_error("hopper", "bf16", accelerator="h100-sxm5-80gb")
        unknown = step_error("hopper", "bf16", accelerator=relative)
        assert unknown.interval_log_half_width > known.interval_log_half_width
        assert unknown.interval_log_half_width >= step_error("ampere", "bf16").interval_log_half_width

    def test_the_interval_of_a_step_holds_four_of_five_normal_errors(self) -> None:
        error = StepError(shared_log_deviation=0.03, own_log_deviation=0.04)
        drawn = np.random.default_rng(1).normal(scale=0.05, size=100_000)  # 0.05 is the hypotenuse
        assert np.mean(np.abs(drawn) <= error.interval_log_half_width) == pytest.approx(0.8, abs=0.005)


def test_another_offer_leaves_the_draws_of_the_others_as_they_are() -> None:
    alone, beside = job_with(H100_RENTED), two_offers()
    plans = plans_with({"num_gpus": 16})
    values = []
    for job in (alone, beside):
        result = evaluate(job, plans)
        values.append(
            draw_objectives(UnsureDesigns.of(job, plans, result.outcomes, result.scores), seed=1).values
        )
    np.testing.assert_array_equal(*values)


def test_a_seed_gives_the_same_draws() -> None:
    job = two_offers()
    np.testing.assert_array_equal(drawn(job, 3).values, drawn(job, 3).values)
    assert (drawn(job, 3).values != drawn(job, 4).values).any()


def test_a_design_that_is_beaten_in_every_draw_is_never_on_the_front() -> None:
    values = np.array([[[1.0, 1.0], [2.0, 2.0], [3.0, 0.5]], [[1.0, 1.0], [2.0, 2.0], [3.0, 1.5]]])
    np.testing.assert_array_equal(
        DrawnObjectives(values=values, figures={}).on_front_fraction, [1.0, 0.0, 0.5]
    )


def test_shares_of_the_draws_in_which_a_design_is_least_or_chosen_add_up_to_all() -> None:
    values = np.array([[[1.0, 4.0], [2.0, 1.0]], [[1.0, 1.0], [2.0, 2.0]], [[3.0, 1.0], [2.0, 4.0]]])
    result = DrawnObjectives(values=values, figures={})
    np.testing.assert_allclose(result.least_fraction(), [[2 / 3, 2 / 3], [1 / 3, 1 / 3]])
    # Products 4 and 2, 1 and 4, 3 and 8: the second design wins once.
    np.testing.assert_allclose(result.chosen_fraction(np.array([1.0, 1.0])), [2 / 3, 1 / 3])


def test_designs_that_come_to_the_same_share_a_draw_whichever_stands_first() -> None:
    values = np.array([[[1.0, 3.0], [1.0, 3.0], [2.0, 2.0]], [[5.0, 1.0], [4.0, 2.0], [4.0, 9.0]]])
    result = DrawnObjectives(values=values, figures={})
    np.testing.assert_allclose(result.least_fraction(), [[1 / 4, 1 / 2], [1 / 2, 0.0], [1 / 4, 1 / 2]])
    # Products 3, 3 and 4, then 5, 8 and 36.
    np.testing.assert_allclose(result.chosen_fraction(np.ones(2)), [3 / 4, 1 / 4, 0.0])
    backwards = DrawnObjectives(values=values[:, ::-1], figures={})
    np.testing.assert_array_equal(backwards.least_fraction(), result.least_fraction()[::-1])
    np.testing.assert_array_equal(
        backwards.chosen_fraction(np.ones(2)), result.chosen_fraction(np.ones(2))[::-1]
    )


@given(arrays(np.float64, (6, 4, 2), elements=st.floats(0.5, 2.0)), st.floats(0.1, 10.0))
def test_a_design_that_is_better_in_every_draw_is_never_ranked_worse(values: Floats, weight: float) -> None:
    worse = values[:, :1] * 1.01  # than the first design, in every draw and objective
    result = DrawnObjectives(values=np.concatenate([worse, values], axis=1), figures={})
    probabilities = (0.05, 0.5, 0.95)
    assert (result.quantiles(probabilities)[:, 1] < result.quantiles(probabilities)[:, 0]).all()
    assert (result.values.mean(axis=0)[1] < result.values.mean(axis=0)[0]).all()
    assert result.better_fraction(1, 0).tolist() == [1.0, 1.0]
    assert result.on_front_fraction[0] == 0.0
    assert (result.least_fraction()[0] == 0.0).all()
    assert result.chosen_fraction(np.array([1.0, weight]))[0] == 0.0


@pytest.mark.parametrize("rows", [[2], [2, 0], [1, 1, 0]])
def test_a_design_meets_the_same_draws_alone_and_among_any_others(rows: list[int]) -> None:
    job = two_offers(
        objectives=["time_to_train_p95", "cost_p95", "carbon", "deadline_risk"],
        limits={"deadline_days": 30.0},
    )
    result, some = evaluate(job, PLANS), np.array(rows)
    designs = UnsureDesigns.of(job, PLANS.take(some), result.outcomes.take(some), result.scores.take(some))
    np.testing.assert_allclose(
        draw_objectives(designs, seed=1).values, drawn(job).values[:, rows], rtol=1e-12, atol=1e-300
    )


def test_metrics_are_the_scores_per_unit_of_work() -> None:
    job = job_with(H100_RENTED)
    plans = plans_with({"num_gpus": 16})
    result = evaluate(job, plans)
    found = metrics(job, plans, result.outcomes, result.scores)
    tokens, scores = job.workload.tokens, result.scores
    assert found.usd_per_million_tokens * tokens / 1e6 == pytest.approx(scores.cost_usd)
    assert found.kwh_per_million_tokens * tokens / 1e6 == pytest.approx(scores.energy_j / 3.6e6)
    # A PFLOP/s of model arithmetic for an hour costs what the GPUs that achieve it together cost in an hour.
    rate = result.outcomes.summary.model_flop_per_s_per_gpu * result.outcomes.run.goodput_fraction
    assert found.usd_per_effective_pflop_hour == pytest.approx(2.5 * 1e15 / rate, rel=1e-9)
    exaflop = tokens * job.workload.model.model_flop_per_token(8192) / 1e18
    assert found.gco2e_per_exaflop * exaflop == pytest.approx(1000 * scores.carbon_kgco2e)
    assert found.carbon_delay_kgco2e_s == scores.carbon_kgco2e * scores.time_to_train_s
    assert found.rent_usd == pytest.approx(scores.cost_usd)


def test_how_often_nodes_are_taken_back_is_drawn_where_a_landlord_does() -> None:
    spot = {**H100_RENTED, "interruptions_per_1000_node_days": 200.0}
    asked = only("interruption_rate", 0.5, 2.0)
    plans = plans_with({"num_gpus": 32}, {"num_gpus": 32, "offer": 1})
    job = job_with(spot, A100_RENTED, objectives=["time_to_train"], input_factors=asked)
    result = evaluate(job, plans)
    unsure = UnsureDesigns.of(job, plans, result.outcomes, result.scores)
    ends = objectives_at_ends(unsure)
    place = ends.names.index("interruption_rate of h100-sxm5-80gb")
    for factor, found in ((0.5, ends.low), (2.0, ends.high)):
        often = {**spot, "interruptions_per_1000_node_days": 200.0 * factor}
        again = evaluate(job_with(often, A100_RENTED, objectives=["time_to_train"]), plans)
        assert found[place, 0, 0] == pytest.approx(float(again.scores.time_to_train_s[0]), rel=1e-6)
        # The second design is not on such terms.
        assert found[place, 1, 0] == pytest.approx(float(result.scores.time_to_train_s[1]))
