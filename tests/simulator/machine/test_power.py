"""Does the cluster draw what power meters showed?"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simulator.domain.climate import Climate
from simulator.domain.hardware import Fabric, Site
from simulator.domain.job import Job
from simulator.domain.options import Operation
from simulator.domain.plan import Plan
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import (
    PhasePower,
    fabric_power_per_gpu,
    fabric_tiers,
    phase_power,
    power_levels,
    slowdown_under_cap,
)
from tests.simulator.builders import A100, job_of, plan_of, rented, table_of, training
from tests.support import job_with, plans_with


def power_of(job: Job, plan: Plan) -> PhasePower:
    table = table_of(plan)
    return phase_power(job, table, OfferTable.from_job(job).take(table.offer))


def without_cooling(job: Job, **fabric: float) -> Job:
    """The same job with PUE 1 and, if said, another fabric: what a meter at the nodes sees."""
    offers = tuple(
        offer.model_copy(update={"fabric": offer.fabric.model_copy(update=fabric)}) for offer in job.offers
    )
    site = job.site.model_copy(update={"power_usage_effectiveness": 1.0, "climate": None})
    return job.model_copy(update={"site": site, "offers": offers})


def with_site(**fields: object) -> Job:
    """A job at a site of its own."""
    return job_of().model_copy(update={"site": job_of().site.model_copy(update=fields)})


NODES_ONLY = {"switch_power_w": 0.0, "optic_power_w": 0.0}


class TestMeteredPower:
    def test_one_node_that_computes_draws_what_its_meter_showed(self) -> None:
        # MLPerf Training v4.0, the LoRA run on one immersed node: 7,157 W AC, mean of ten runs.
        job = without_cooling(job_of(training(), rented(node="hgx-h100-immersion")), **NODES_ONLY)
        assert power_of(job, plan_of(data=8)).compute_w == pytest.approx(7157, rel=0.01)

    def test_eight_b200_that_compute_draw_what_their_meter_showed(self) -> None:
        # MLPerf Training v5.0, water-cooled: 9.58, 9.76 and 10.05 kW AC in three workloads.
        offer = rented("b200-sxm-180gb", node="hgx-b200-liquid")
        power = power_of(without_cooling(job_of(training(), offer), **NODES_ONLY), plan_of(data=8))
        assert power.compute_w == pytest.approx(10_050, rel=0.03)
        busy_j = np.sum(power.busy_energy_j(np.array([0.8]), np.array([0.15]))) + 0.05 * power.waiting_w
        assert busy_j == pytest.approx(9580, rel=0.04)

    @pytest.mark.parametrize(("node", "floor_w"), [("hgx-h100-immersion", 2100), ("dgx-h100", 2700)])
    def test_a_job_that_starts_draws_what_the_meters_showed(self, node: str, floor_w: float) -> None:
        # The lowest readings of MLPerf's 8-GPU nodes, while jobs start: 2.1 kW immersed, 2.7 kW in air.
        job = without_cooling(job_of(training(), rented(node=node)), **NODES_ONLY)
        assert power_of(job, plan_of(data=8)).stalled_w == pytest.approx(floor_w, rel=0.06)

    def test_evaluation_blocks_draw_what_the_meters_showed(self) -> None:
        # The same GPT-3 run: 6.31 kW a node in evaluation blocks.
        job = without_cooling(job_of(training(), rented(node="hgx-h100-immersion")), **NODES_ONLY)
        assert power_of(job, plan_of(data=512)).evaluation_w / 64 == pytest.approx(6310, rel=0.01)

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
        # DGX H100: (8 x 700 W + 1,200 W)/0.95 + 1,100 W of fans; a spare idles at 70 W each, 78 % of the host, half the fans.
        computing_w, idle_w = (8 * 700 + 1200) / 0.95 + 1100, (8 * 70 + 0.78 * 1200) / 0.95 + 550
        assert power_levels(job, table, offers).peak_power_w == pytest.approx(
            2 * computing_w + idle_w, rel=0.002
        )

    def test_an_idle_node_draws_what_a_spare_draws_in_every_hour_with_the_mean_overhead(self) -> None:
        idle, spare = (
            power_of(without_cooling(job_of(), **NODES_ONLY), plan_of(data=8, spares=spares))
            for spares in (0, 1)
        )
        assert idle.idle_w == pytest.approx(spare.spares_w)
        assert idle.idle_w == pytest.approx((8 * 70 + 0.78 * 1200) / 0.95 + 550, rel=0.002)
        assert idle.idle_w < 0.95 * idle.stalled_w

    @pytest.mark.parametrize(
        ("phase", "fraction"),
        [
            ("communication", 0.52),
            ("optimizer", 0.75),
            ("evaluation", 0.86),
            ("waiting", 0.5),
            ("stalled", 0.2),
        ],
    )
    def test_a_phase_draws_its_share_of_the_tdp_and_hosts_and_fans_by_the_load(
        self, phase: str, fraction: float
    ) -> None:
        power = power_of(without_cooling(job_of(), **NODES_ONLY), plan_of(data=8))
        # DGX H100: accelerators of 700 W that idle at 70 W; hosts and fans idle at 78 % and at half of 1,200 and 1,100 W.
        load = (700 * fraction - 70) / (700 - 70)
        host_w, fan_w = 1200 * (0.78 + 0.22 * load), 1100 * (0.5 + 0.5 * load)
        drawn_w = (8 * 700 * fraction + host_w) / 0.95 + fan_w
        assert getattr(power, f"{phase}_w") == pytest.approx(drawn_w, rel=0.002)
        assert power.least_w <= getattr(power, f"{phase}_w")


class TestPowerCap:
    def test_no_cap_costs_no_time(self) -> None:
        offers = OfferTable.from_job(job_of())
        assert slowdown_under_cap(offers, np.array([1.0])) == 1
        older = OfferTable.from_job(job_of(training(), rented("v100-sxm2-32gb")))
        assert slowdown_under_cap(older, np.array([1.0])) == 1

    def test_600_w_cost_an_h100_about_a_tenth(self) -> None:
        slowdown = slowdown_under_cap(OfferTable.from_job(job_of()), np.array([600 / 700]))
        assert 1.05 < slowdown[0] < 1.15  # 10-15 % of step time are reported, of which products are a part

    def test_a_cap_bounds_all_phases(self) -> None:
        free, capped = (power_of(job_of(), plan_of(data=8, cap=cap)) for cap in (1.0, 0.5))
        assert capped.compute_w < free.compute_w
        assert capped.optimizer_w == capped.compute_w == capped.communication_w == capped.waiting_w
        assert capped.stalled_w == free.stalled_w

    @given(first=st.floats(0.3, 1.0), second=st.floats(0.3, 1.0))
    def test_a_tighter_cap_is_slower_and_draws_less(self, first: float, second: float) -> None:
        tight, loose = sorted((first, second))
        offers = OfferTable.from_job(job_of())
        assert slowdown_under_cap(offers, np.array([tight])) >= slowdown_under_cap(offers, np.array([loose]))
        tight_w, loose_w = (power_of(job_of(), plan_of(data=8, cap=cap)).compute_w for cap in (tight, loose))
        assert tight_w <= loose_w

    def test_a_cap_below_idle_is_slow_and_not_infinite(self) -> None:
        assert 10 < slowdown_under_cap(OfferTable.from_job(job_of()), np.array([0.05]))[0] < 100

    @given(
        cap=st.floats(0.3, 1.0),
        compute_s=st.floats(0.01, 10.0),
        share=st.floats(0.0, 3.0),
        more=st.floats(0.0, 10.0),
    )
    def test_computation_and_collectives_share_one_limit(
        self, cap: float, compute_s: float, share: float, more: float
    ) -> None:
        power = power_of(job_of(), plan_of(data=8, cap=cap))
        first, second = np.array([compute_s]), np.array([compute_s * share])
        energy_j = np.sum(power.busy_energy_j(first, second))
        demand_j = first * power.unlimited_compute_w + second * power.communication_w
        assert energy_j == pytest.approx(np.minimum(demand_j, (first + second) * power.compute_w))
        # More time never draws less than the least power of any phase, on which the bounds of the search rest.
        longer_j = np.sum(power.busy_energy_j(first, second + more))
        assert longer_j >= (energy_j + more * power.least_w) * (1 - 1e-12)

    @pytest.mark.parametrize("accelerator", [A100, "h100-sxm5-80gb", "mi300x", "tpu-v5p"])
    def test_a_cap_that_slows_computation_saves_energy(self, accelerator: str) -> None:
        # Jobs at a cap of 0.9 took 0.6 % longer and 3.9 % less energy (Zeus, NSDI 2023); below half of the TDP energy rises.
        job = job_of(training(), rented(accelerator))
        energies = []
        for cap in (1.0, 0.9, 0.8, 0.7, 0.6):
            longer = slowdown_under_cap(OfferTable.from_job(job), np.array([cap]))
            power = power_of(job, plan_of(data=64, cap=cap))
            energies.append(np.sum(power.busy_energy_j(0.7 * longer, np.array([0.3]))))
        assert energies == sorted(energies, reverse=True)

    def test_no_phase_draws_less_than_idle_accelerators(self) -> None:
        offer = rented()
        chip = offer.accelerator.model_copy(update={"idle_power_w": 0.4 * 700})
        power = power_of(
            job_of(training(), offer.model_copy(update={"accelerator": chip})), plan_of(data=8, cap=0.3)
        )
        assert power.compute_w == power.waiting_w == power.stalled_w == power.idle_w == power.least_w

    @pytest.mark.parametrize("share", [0.3, 0.6, 0.8])
    def test_no_phase_draws_more_than_computation(self, share: float) -> None:
        offer = rented()
        chip = offer.accelerator.model_copy(update={"compute_power_fraction": share})
        job, plan = job_of(training(), offer.model_copy(update={"accelerator": chip})), plan_of(data=8)
        power, table = power_of(job, plan), table_of(plan)
        alike = job_of(training(), rented()), plan_of(data=8, cap=share)
        # Its computation draws what that of another one draws under a cap of the same share, with and without a limit.
        assert power.compute_w == pytest.approx(power_of(*alike).compute_w)
        assert power.unlimited_compute_w == pytest.approx(power.compute_w)
        assert power.evaluation_w <= power.compute_w
        assert power.optimizer_w <= power.compute_w
        assert power.communication_w <= power.compute_w
        levels = power_levels(job, table, OfferTable.from_job(job).take(table.offer))
        assert levels.peak_power_w == pytest.approx(power.compute_w)


class TestLevels:
    def test_a_hall_holds_everything_but_the_cooling_and_a_rack_its_link_domain(self) -> None:
        rack = rented("gb200", node="gb200-nvl72")
        table = table_of(plan_of(data=144, spares=1))
        job = job_of(training(), rack)
        offers = OfferTable.from_job(job).take(table.offer)
        levels = power_levels(job, table, offers)
        assert levels.peak_power_w == pytest.approx(levels.hall_power_w * job.site.power_usage_effectiveness)
        assert levels.peak_power_w == pytest.approx(levels.hall_power_w + levels.cooling_power_w)
        nodes = power_of(without_cooling(job, **NODES_ONLY), plan_of(data=144))
        assert levels.rack_power_w == pytest.approx(nodes.compute_w / 2)  # 144 of them fill two racks
        # Servers for saves stand in the hall, but not in racks of nodes, and never idle.
        served = power_levels(job, table, offers, servers_w=5e3)
        assert served.hall_power_w - levels.hall_power_w == pytest.approx(5e3)
        assert (served.rack_power_w, served.power_swing_w) == (levels.rack_power_w, levels.power_swing_w)

    @pytest.mark.parametrize(
        ("accelerator", "chosen", "num_gpus", "num_nodes"),
        [
            ("h100-sxm5-80gb", None, 64, 4),
            ("h100-sxm5-80gb", 2, 64, 2),
            ("h100-sxm5-80gb", None, 16, 2),  # two nodes do not fill a rack of four
            ("h100-sxm5-80gb", None, 4, 1),  # of a node that is not whole, the rack feeds all
            ("b300", None, 64, 4),
            ("tpu-v4", None, 4096, 16),  # a rack holds 64 chips, not the pod of 4,096 that they are linked in
        ],
    )
    def test_a_rack_holds_as_many_nodes_as_usual_or_as_the_offer_says(
        self, accelerator: str, chosen: int | None, num_gpus: int, num_nodes: int
    ) -> None:
        offer = rented(accelerator).model_copy(update={"nodes_per_rack": chosen})
        job, table = job_of(training(), offer), table_of(plan_of(data=num_gpus))
        offers = OfferTable.from_job(job).take(table.offer)
        alone = power_of(without_cooling(job, **NODES_ONLY), plan_of(data=offer.node.num_accelerators))
        rack_w = power_levels(job, table, offers).rack_power_w
        assert rack_w == pytest.approx(num_nodes * alone.compute_w)

    def test_four_dgx_h100_draw_about_what_a_rack_of_the_reference_design_is_built_for(self) -> None:
        # Four of at most 10.2 kW; computation alone draws a fifth less.
        table = table_of(plan_of(data=64))
        offers = OfferTable.from_job(job_of()).take(table.offer)
        assert 0.75 * 40.8e3 < power_levels(job_of(), table, offers).rack_power_w[0] < 40.8e3

    def test_the_ramp_is_the_swing_over_the_time_that_it_takes(self) -> None:
        table = table_of(plan_of(data=16))
        offers = OfferTable.from_job(job_of()).take(table.offer)
        smooth = job_of().model_copy(update={"operation": Operation(power_ramp_s=20.0)})
        bare, smoothed = (power_levels(job, table, offers) for job in (job_of(), smooth))
        assert bare.power_ramp_w_per_s == bare.power_swing_w
        assert smoothed.power_ramp_w_per_s == pytest.approx(bare.power_swing_w / 20)
        assert smoothed.power_swing_w == bare.power_swing_w

    @pytest.mark.parametrize("spares", [0, 2])  # which draw the same all the time
    def test_the_swing_is_the_fall_from_computing_to_standing_still(self, spares: int) -> None:
        table = table_of(plan_of(data=16, spares=spares))
        offers = OfferTable.from_job(job_of()).take(table.offer)
        levels, power = power_levels(job_of(), table, offers), phase_power(job_of(), table, offers)
        # Without a climate the warmest hour is as any other.
        assert levels.power_swing_w == pytest.approx(power.compute_w - power.stalled_w)
        assert levels.power_range_fraction == pytest.approx(levels.power_swing_w / power.compute_w)

    def test_filler_work_halves_the_swing_and_leaves_the_peak(self) -> None:
        filled = job_of().model_copy(update={"operation": Operation(power_floor_fraction=0.6)})
        table = table_of(plan_of(data=16))
        offers = OfferTable.from_job(filled).take(table.offer)
        bare, calm = power_levels(job_of(), table, offers), power_levels(filled, table, offers)
        # From 0.2 to 1 of the TDP without it, from 0.6 to 1 with it; hosts and fans follow the accelerators.
        assert calm.power_swing_w == pytest.approx(bare.power_swing_w / 2)
        assert calm.peak_power_w == bare.peak_power_w
        # Nor does it draw more than a cap allows.
        capped = plan_of(data=16, cap=0.5)
        assert power_of(filled, capped).stalled_w == power_of(job_of(), capped).compute_w


class TestCooling:
    def test_a_fixed_overhead_weighs_more_on_little_load(self) -> None:
        job = with_site(power_usage_effectiveness=1.5, cooling_fixed_fraction=1.0)
        power, it = power_of(job, plan_of(data=8)), power_of(without_cooling(job), plan_of(data=8))
        assert power.compute_w == pytest.approx(1.5 * it.compute_w)
        assert power.idle_w - it.idle_w == pytest.approx(0.5 * it.compute_w)  # the same watts at every load
        # Warm days add to them what they add on average: a sine of 24 hours is above its middle by cot(pi/24)/24 of its swing.
        climate = Climate(
            mean_celsius=20,
            daily_amplitude_celsius=10,
            free_cooling_below_celsius=20,
            overhead_per_celsius=0.01,
        )
        warm = with_site(power_usage_effectiveness=1.5, cooling_fixed_fraction=1.0, climate=climate)
        more_w = power_of(warm, plan_of(data=8)).idle_w - power.idle_w
        assert more_w == pytest.approx(0.1 / np.tan(np.pi / 24) / 24 * it.compute_w, rel=1e-3)

    def test_warm_hours_raise_the_mean_and_more_so_the_peak(self) -> None:
        # Above 20 degrees each costs 0.01: a day that swings by 10 about 20 is above by 10/pi on average, and by 10 at noon.
        climate = Climate(
            mean_celsius=20,
            daily_amplitude_celsius=10,
            free_cooling_below_celsius=20,
            overhead_per_celsius=0.01,
        )
        job, plan = with_site(power_usage_effectiveness=1.2, climate=climate), plan_of(data=8)
        it = power_of(without_cooling(job_of()), plan)
        assert power_of(job, plan).compute_w == pytest.approx((1.2 + 0.1 / np.pi) * it.compute_w, rel=1e-3)
        table = table_of(plan)
        peak_w = power_levels(job, table, OfferTable.from_job(job).take(table.offer)).peak_power_w
        assert peak_w == pytest.approx((1.2 + 0.1) * it.compute_w, rel=1e-3)

    @pytest.mark.parametrize(("fixed", "swing_pue"), [(0.0, 1.5), (0.4, 1.3), (1.0, 1.0)])
    def test_peak_hall_cooling_and_swing_agree_in_the_warmest_hour(
        self, fixed: float, swing_pue: float
    ) -> None:
        # A PUE of 1.2, and 0.3 more ten degrees above the threshold: what falls with the load falls by that PUE.
        climate = Climate(
            mean_celsius=20,
            yearly_amplitude_celsius=10,
            free_cooling_below_celsius=20,
            overhead_per_celsius=0.03,
        )
        job = with_site(power_usage_effectiveness=1.2, cooling_fixed_fraction=fixed, climate=climate)
        table = table_of(plan_of(data=16, spares=1))
        levels = power_levels(job, table, OfferTable.from_job(job).take(table.offer))
        bare = without_cooling(job)
        it = power_levels(bare, table, OfferTable.from_job(bare).take(table.offer))
        assert levels.hall_power_w == pytest.approx(it.peak_power_w)
        assert levels.peak_power_w == pytest.approx(1.5 * it.peak_power_w, rel=1e-4)
        assert levels.cooling_power_w == pytest.approx(0.5 * it.peak_power_w, rel=1e-4)
        assert levels.power_swing_w == pytest.approx(swing_pue * it.power_swing_w, rel=1e-4)
        assert levels.power_range_fraction == it.power_range_fraction

    def test_a_site_below_the_threshold_pays_for_no_weather(self) -> None:
        cold = Climate(mean_celsius=5, free_cooling_below_celsius=18, overhead_per_celsius=0.01)
        assert (cold.mean_overhead, cold.peak_overhead) == (0.0, 0.0)


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

    @pytest.mark.parametrize(
        ("num_cards", "tiers", "ports"), [(None, 2, 1), (8, 2, 1), (4, 1, 0.5), (1, 1, 0.125), (24, 2, 3)]
    )
    def test_every_network_card_takes_one_port(self, num_cards: int | None, tiers: int, ports: float) -> None:
        # 128 GPUs with half as many cards take 64 ports, a single switch; with three cards each, three trees of 128 ports.
        node = rented().node.model_copy(update={"num_network_cards": num_cards})
        offers = OfferTable.from_job(job_of(training(), rented().model_copy(update={"node": node})))
        table = table_of(plan_of(data=128))
        of_port_w = (2 * tiers - 1) * 747 / 64 + 2 * tiers * 8
        assert fabric_power_per_gpu(table, offers.take(table.offer))[0] == pytest.approx(ports * of_port_w)

    def test_512_gpus_draw_67_w_each_where_116_w_were_estimated(self) -> None:
        # Two tiers: 3 ports of 747 W / 64 and 4 transceivers of 8 W; the submitter of MLPerf Training v4.0 estimates 59.57 kW
        # for 512, which the most that their switches draw, 1,720 W, explains.
        table = table_of(plan_of(data=512))
        drawn_w = fabric_power_per_gpu(table, OfferTable.from_job(job_of()).take(table.offer))[0]
        assert drawn_w == pytest.approx(3 * 747 / 64 + 4 * 8)
        most_w = 3 * 1720 / 64 + 4 * 9
        assert most_w == pytest.approx(59_570 / 512, rel=0.02)

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


def test_weather_that_no_facility_could_cool_is_refused() -> None:
    hot = Climate(mean_celsius=50, free_cooling_below_celsius=0, overhead_per_celsius=1)
    site = partial(
        Site,
        region="here",
        grid_kgco2e_per_kwh=0.4,
        electricity_usd_per_kwh=0.1,
        power_usage_effectiveness=1.2,
    )
    with pytest.raises(
        ValidationError, match=r"climate raises the PUE of the warmest hour to 51\.2; .* at most 5"
    ):
        site(climate=hot)
    mild = Climate(mean_celsius=20, free_cooling_below_celsius=10, overhead_per_celsius=0.05)
    assert site(climate=mild).climate == mild


def test_storage_draws_what_its_capacity_says_unless_its_power_is_given() -> None:
    plans = plans_with({"num_gpus": 16})
    peaks = []
    for storage in ({}, {"capacity_bytes": 2e15}, {"capacity_bytes": 2e15, "capacity_power_w": 1e4}):
        job = job_with(storage=storage)
        peaks.append(power_levels(job, plans, OfferTable.from_job(job).take(plans.offer)).hall_power_w[0])
    assert peaks[1] - peaks[0] == pytest.approx(2000 * 3.5)  # two thousand terabytes at 3.5 W
    assert peaks[2] - peaks[0] == pytest.approx(1e4)
