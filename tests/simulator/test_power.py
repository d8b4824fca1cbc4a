"""Does the cluster draw what power meters showed?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simulator.hardware import Fabric
from simulator.job import Job
from simulator.offer_table import OfferTable
from simulator.plan import Plan
from simulator.power import (
    PHASE_FRACTIONS,
    PhasePower,
    fabric_power_per_gpu,
    fabric_tiers,
    peak_power,
    phase_power,
    slowdown_under_cap,
)
from tests.simulator.builders import A100, job_of, plan_of, rented, table_of, training


def power_of(job: Job, plan: Plan) -> PhasePower:
    table = table_of(plan)
    return phase_power(job, table, OfferTable.from_job(job).take(table.offer))


def without_cooling(job: Job, **fabric: float) -> Job:
    """The same job with PUE 1 and, if said, another fabric: what a meter at the nodes sees."""
    offers = tuple(
        offer.model_copy(update={"fabric": offer.fabric.model_copy(update=fabric)}) for offer in job.offers
    )
    site = job.site.model_copy(update={"power_usage_effectiveness": 1.0})
    return job.model_copy(update={"site": site, "offers": offers})


NODES_ONLY = {"switch_power_w": 0.0, "optic_power_w": 0.0}


class TestMeteredPower:
    def test_512_h100_that_train_gpt_3_draw_what_the_meters_of_64_nodes_showed(self) -> None:
        # MLPerf Training v4.0: 6.91 kW AC a node in training blocks, 6.85 kW over the whole run.
        job = without_cooling(job_of(training(), rented(node="hgx-h100-immersion")), **NODES_ONLY)
        node_w = power_of(job, plan_of(tensor=4, pipeline=8, data=16)).compute_w / 64
        assert node_w == pytest.approx(6910, rel=0.01)

    def test_communication_bound_nodes_draw_less(self) -> None:
        # The LoRA run of the same round: median 5,086 W on eight nodes, part computing, part communicating.
        job = without_cooling(job_of(training(), rented(node="hgx-h100-immersion")), **NODES_ONLY)
        power = power_of(job, plan_of(data=64))
        assert power.communication_w / 8 < 5086 < power.compute_w / 8

    def test_phases_rank_from_computing_to_standing_still(self) -> None:
        power = power_of(job_of(), plan_of(data=8, spares=1))
        phases_w = [
            power.spares_w,
            power.stalled_w,
            power.waiting_w,
            power.communication_w,
            power.optimizer_w,
            power.compute_w,
        ]
        assert sorted(phases_w) == phases_w

    def test_cooling_is_on_top_of_everything(self) -> None:
        job, plan = job_of(), plan_of(data=8, spares=2)
        pue = job.site.power_usage_effectiveness
        facility, meter = power_of(job, plan), power_of(without_cooling(job), plan)
        assert facility.compute_w == pytest.approx(pue * meter.compute_w)
        assert facility.spares_w == pytest.approx(pue * meter.spares_w)

    def test_peak_is_computing_with_spares_idle(self) -> None:
        job, table = without_cooling(job_of(), **NODES_ONLY), table_of(plan_of(data=16, spares=1))
        offers = OfferTable.from_job(job).take(table.offer)
        # DGX H100: (8 x 700 W x 0.96 + 1,200 W)/0.95 + 1,100 W of fans; a spare idles at 70 W each.
        computing_w, idle_w = ((8 * gpu_w + 1200) / 0.95 + 1100 for gpu_w in (0.96 * 700, 70))
        assert peak_power(job, table, offers) == pytest.approx(2 * computing_w + idle_w, rel=0.002)


class TestPowerCap:
    def test_no_cap_costs_no_time(self) -> None:
        offers = OfferTable.from_job(job_of())
        assert slowdown_under_cap(offers, np.array([1.0])) == 1
        assert slowdown_under_cap(offers, np.array([PHASE_FRACTIONS.compute])) == 1

    def test_600_w_cost_an_h100_about_a_tenth(self) -> None:
        slowdown = slowdown_under_cap(OfferTable.from_job(job_of()), np.array([600 / 700]))
        assert 1.05 < slowdown[0] < 1.15  # 10-15 % of step time are reported, of which products are a part

    def test_a_cap_bounds_all_phases(self) -> None:
        free, capped = (power_of(job_of(), plan_of(data=8, cap=cap)) for cap in (1.0, 0.5))
        assert capped.compute_w < free.compute_w
        assert capped.optimizer_w == capped.compute_w == capped.communication_w
        assert capped.waiting_w == free.waiting_w

    @given(first=st.floats(0.15, 1.0), second=st.floats(0.15, 1.0))
    def test_a_tighter_cap_is_slower_and_draws_less(self, first: float, second: float) -> None:
        tight, loose = sorted((first, second))
        offers = OfferTable.from_job(job_of())
        assert slowdown_under_cap(offers, np.array([tight])) >= slowdown_under_cap(offers, np.array([loose]))
        tight_w, loose_w = (power_of(job_of(), plan_of(data=8, cap=cap)).compute_w for cap in (tight, loose))
        assert tight_w <= loose_w

    def test_a_cap_below_idle_is_slow_and_not_infinite(self) -> None:
        assert 10 < slowdown_under_cap(OfferTable.from_job(job_of()), np.array([0.05]))[0] < 100


class TestFabric:
    @pytest.mark.parametrize(
        ("num_gpus", "tiers"),
        [(8, 0), (64, 1), (65, 2), (512, 2), (2048, 2), (2049, 3), (65_536, 3), (65_537, 4)],
    )
    def test_a_fat_tree_of_64_ports_joins_64_2048_and_65536(self, num_gpus: int, tiers: int) -> None:
        table = table_of(plan_of(data=num_gpus))
        offers = OfferTable.from_job(job_of()).take(table.offer)
        assert fabric_tiers(table, offers)[0] == tiers  # 2 (k/2)^T ports

    @pytest.mark.parametrize("ports", [4, 6, 18, 36, 48, 64, 128])
    def test_full_trees_have_no_tier_too_many(self, ports: int) -> None:
        offer = rented()
        fabric = offer.fabric.model_copy(update={"switch_ports": ports})
        offers = OfferTable.from_job(job_of(training(), offer.model_copy(update={"fabric": fabric})))
        for tiers in (1, 2, 3):
            size = 2 * (ports // 2) ** tiers
            if size > 8:
                table = table_of(plan_of(data=size))
                assert fabric_tiers(table, offers.take(table.offer))[0] == tiers

    def test_512_gpus_draw_95_w_each_where_116_w_were_declared(self) -> None:
        # Two tiers: 3 ports of 747 W / 64 and 4 transceivers of 15 W; MLPerf Training v4.0 declares 59.57 kW for 512.
        table = table_of(plan_of(data=512))
        drawn_w = fabric_power_per_gpu(table, OfferTable.from_job(job_of()).take(table.offer))[0]
        assert drawn_w == pytest.approx(3 * 747 / 64 + 4 * 15)
        assert drawn_w == pytest.approx(59_570 / 512, rel=0.2)

    def test_one_link_domain_needs_no_fabric(self) -> None:
        table = table_of(plan_of(data=8))
        assert fabric_power_per_gpu(table, OfferTable.from_job(job_of()).take(table.offer)) == 0

    def test_a_switch_that_cannot_branch_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="greater than or equal to 4"):
            Fabric(switch_ports=2)


def test_older_nodes_draw_less() -> None:
    old, new = (
        power_of(job_of(training(), rented(name)), plan_of(data=8)) for name in (A100, "h100-sxm5-80gb")
    )
    assert old.compute_w < 0.8 * new.compute_w
