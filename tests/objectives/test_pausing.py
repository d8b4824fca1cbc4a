"""Do pauses take the time, the energy and the money that they must, and save what they promise?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pytest

from objectives.pausing import best_start, pause_overhead_s, paused_runs
from objectives.scores import score
from objectives.usage import Usage
from simulator.domain.hourly import HourlyProfile
from simulator.domain.job import Job
from simulator.domain.options import Pause
from simulator.domain.plan import CheckpointScheme
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import phase_power
from simulator.simulate import Outcomes, simulate
from tests.support import H100_BOUGHT, H100_RENTED, job_with, plans_with

HOUR = 3600.0
NIGHT_AND_DAY = HourlyProfile(per_hour=(0.1,) * 12 + (0.5,) * 12)
PLANS = plans_with({"num_gpus": 16, "checkpoint_scheme": CheckpointScheme.ASYNC})


SITE = {
    "region": "here",
    "grid_kgco2e_per_kwh": 0.3,
    "electricity_usd_per_kwh": 0.1,
    "power_usage_effectiveness": 1.2,
}


def job_at(offer: Mapping[str, object] = H100_RENTED, **site: object) -> Job:
    fields = {**SITE, "grid_profile": NIGHT_AND_DAY, **site}
    for profile, flat in (
        ("grid_profile", "grid_kgco2e_per_kwh"),
        ("electricity_profile", "electricity_usd_per_kwh"),
    ):
        if profile in site:
            del fields[flat]  # the profile replaces it
    return job_with(offer, site=fields)


def run_of(job: Job) -> Outcomes:
    return simulate(job, PLANS)


def test_half_the_hours_double_the_time_but_for_what_each_pause_takes() -> None:
    job = job_at()
    outcome = run_of(job)
    paused = paused_runs(job, PLANS, outcome, Pause(by="carbon", hours_fraction=0.5))
    overhead_s = pause_overhead_s(job, outcome)[0]
    days = (outcome.run.wall_time_s[0] - overhead_s) / (12 * HOUR - overhead_s)
    whole_days = np.ceil(days) - 1
    assert paused.num_pauses == whole_days
    assert paused.wall_s == pytest.approx(
        whole_days * 24 * HOUR + (days - whole_days) * (12 * HOUR - overhead_s) + overhead_s
    )


def test_pauses_trade_time_and_rent_for_carbon() -> None:
    job = job_at()
    outcome = run_of(job)
    free = score(job, PLANS, outcome)
    paused = paused_runs(job, PLANS, outcome, Pause(by="carbon", hours_fraction=0.5))
    assert paused.cost_usd / free.cost_usd == pytest.approx(paused.wall_s / free.time_to_train_s)
    # The run itself is at 0.1 kg/kWh now. What it draws besides, idling by day and for its restarts by night, is dirtier.
    worked_kg, more_kwh = 0.1 * free.energy_j / 3.6e6, (paused.energy_j - free.energy_j) / 3.6e6
    assert worked_kg + 0.4 * more_kwh < paused.operational_kgco2e < worked_kg + 0.5 * more_kwh
    assert paused.operational_kgco2e < free.operational_kgco2e


def test_spares_idle_during_a_pause_and_its_overhead() -> None:
    # Without failures spares change nothing but what they draw.
    calm = {"failures_per_1000_node_days": 1e-9, "domain_failures_per_1000_domain_days": 0}
    site = {**SITE, "grid_profile": NIGHT_AND_DAY}
    job = job_with(H100_RENTED, site=site, reliability=calm)
    bare, spared = (plans_with({"num_gpus": 16, "num_spare_nodes": count}) for count in (0, 2))
    pause = Pause(by="carbon", hours_fraction=0.5)
    paused = [paused_runs(job, plans, simulate(job, plans), pause) for plans in (bare, spared)]
    # The two runs differ in nothing but two nodes that idle from the first start to the end: 8 accelerators at 70 W,
    # 78 % of a 1,200 W host through supplies of 95 %, half of 1,100 W of fans, and a PUE of 1.2.
    spare_w = 1.2 * ((8 * 70 + 0.78 * 1200) / 0.95 + 550)
    assert paused[1].wall_s == pytest.approx(paused[0].wall_s)
    more_j = paused[1].energy_j - paused[0].energy_j
    assert more_j == pytest.approx(2 * spare_w * paused[0].wall_s, rel=0.02)
    exact_w = more_j / 2 / paused[0].wall_s
    running = [simulate(job, plans).energy.total_j for plans in (bare, spared)]
    assert exact_w == pytest.approx(
        (running[1] - running[0]) / 2 / simulate(job, bare).run.wall_time_s, rel=1e-9
    )


@pytest.mark.parametrize("scheme", [CheckpointScheme.ASYNC, CheckpointScheme.GRADIENT_REPLICA])
def test_pauses_add_the_energy_of_idle_hours_and_of_every_way_into_and_out_of_them(
    scheme: CheckpointScheme,
) -> None:
    job, plans = job_at(), plans_with({"num_gpus": 16, "checkpoint_scheme": scheme})
    outcome = simulate(job, plans)
    paused = paused_runs(job, plans, outcome, Pause(by="carbon", hours_fraction=0.5))
    overhead_s = paused.num_pauses * pause_overhead_s(job, outcome)
    idle_s = paused.wall_s - outcome.run.wall_time_s - overhead_s

    def facility_w(share: float) -> float:
        # Two DGX H100 whose accelerators draw a share of 700 W; from 70 W to there, hosts come from 78 % of 1,200 W nearer to
        # all of it and fans from half of 1,100 W. One tier: a port of 64 on a 747 W switch and two ends of optics each.
        load = (share - 0.1) / 0.9
        node_w = (8 * 700 * share + 1200 * (0.78 + 0.22 * load)) / 0.95 + 1100 * (0.5 + 0.5 * load)
        return 1.2 * (2 * node_w + 16 * (747 / 64 + 2 * 8))

    servers_w = 1.2 * outcome.checkpoints.extra_power_w
    assert (servers_w > 0.0) == (scheme is CheckpointScheme.GRADIENT_REPLICA)
    # Stalls, loads and starts draw 20 % of the rated power.
    added_j = idle_s * (facility_w(0.1) + servers_w) + overhead_s * (facility_w(0.2) + servers_w)
    assert paused.energy_j - outcome.energy.total_j == pytest.approx(added_j, rel=1e-9)


def test_a_pause_wears_nothing_out() -> None:
    carbon = []
    for replacements in (False, True):
        job = job_with(
            H100_RENTED,
            site={**SITE, "grid_profile": NIGHT_AND_DAY},
            carbon_scope={"replacements": replacements},
        )
        outcome = run_of(job)
        paused = paused_runs(job, PLANS, outcome, Pause(by="carbon", hours_fraction=0.5))
        carbon.append((paused.carbon_kgco2e[0], score(job, PLANS, outcome).carbon_kgco2e[0]))
    bare, replaced = carbon
    assert replaced[0] - bare[0] == pytest.approx(replaced[1] - bare[1], rel=1e-6)
    assert replaced[1] > bare[1]


def test_a_flat_grid_gains_nothing() -> None:
    job = job_at(grid_profile=HourlyProfile(per_hour=(0.3,) * 24))
    outcome = run_of(job)
    paused = paused_runs(job, PLANS, outcome, Pause(by="carbon", hours_fraction=0.25))
    assert paused.operational_kgco2e > score(job, PLANS, outcome).operational_kgco2e


def test_owners_work_at_the_prices_of_the_hours_they_choose() -> None:
    # Half of the hours cost 1 USD and the others nothing, or all of them nothing: only the idling makes a difference, and
    # it is nearly all of the energy that pauses add.
    half = HourlyProfile(per_hour=(0.0,) * 12 + (1.0,) * 12)
    never = HourlyProfile(per_hour=(0.0,) * 12 + (1e-9,) * 12)  # in whose dear hours it stands still, too
    costs, more_kwh = [], 0.0
    for profile in (half, never):
        job = job_at(H100_BOUGHT, electricity_profile=profile)
        outcome = run_of(job)
        paused = paused_runs(job, PLANS, outcome, Pause(by="price", hours_fraction=0.5))
        more_kwh = float(paused.energy_j[0] - outcome.energy.total_j[0]) / 3.6e6
        costs.append(float(paused.cost_usd[0]))
    assert 0.9 * more_kwh < costs[0] - costs[1] < more_kwh


def test_a_run_that_waits_for_clean_hours_pays_their_price_where_the_first_hours_are_free() -> None:
    costs = []
    for early in (0.0, 1.0):
        job = job_at(
            H100_BOUGHT,
            grid_profile=HourlyProfile(per_hour=(0.5,) * 12 + (0.1,) * 12),
            electricity_profile=HourlyProfile(per_hour=(early,) * 12 + (1.0,) * 12),
        )
        outcome = run_of(job)
        usage = Usage.of(outcome).lasting(np.array([6 * HOUR]))
        paused = paused_runs(job, PLANS, outcome, Pause(by="carbon", hours_fraction=0.5), usage)
        assert paused.waited_s == 12 * HOUR
        costs.append(float(paused.cost_usd[0]))
    assert costs[0] == pytest.approx(costs[1], rel=1e-12)


def test_what_a_run_loads_after_a_pause_is_on_the_file_system_before_it() -> None:
    plans = plans_with({"num_gpus": 16, "checkpoint_scheme": CheckpointScheme.IN_MEMORY_PEER})
    job = job_at()
    outcome = simulate(job, plans)
    saves, restart = outcome.checkpoints, job.reliability.restart
    assert saves.durable_commit_s > saves.commit_s
    written_s = saves.stall_s + saves.durable_commit_s + saves.durable_load_s
    started_s = restart.initialize_s + restart.warm_up_s
    assert pause_overhead_s(job, outcome) == pytest.approx(written_s + started_s)


def played_hour_by_hour(work_s: float, still: set[int], period: int, overhead_s: float) -> tuple[float, int]:
    """When a run ends that stands still in some hours of a period, and how often it has paused."""
    done_s = owed_s = 0.0
    num_pauses, has_begun, stood = 0, False, True
    for hour in range(100_000):
        if hour % period in still:
            if has_begun and not stood:
                num_pauses, owed_s = num_pauses + 1, overhead_s
            stood = True
            continue
        has_begun, stood = True, False
        paid_s = min(HOUR, owed_s)
        owed_s -= paid_s
        if done_s + HOUR - paid_s >= work_s:
            return hour * HOUR + paid_s + work_s - done_s, num_pauses
        done_s += HOUR - paid_s
    raise AssertionError("never ends")


@pytest.mark.parametrize("initialize_s", [30.0, 3000.0, 6500.0, 10_000.0])
@pytest.mark.parametrize("still", [{0, 1, 8, 9, 10}, {2, 10, 11, 23}, {1, 12, 13, 22}, {3, 4, 20, 21, 22}])
def test_pauses_take_what_the_same_run_takes_when_it_is_played_hour_by_hour(
    initialize_s: float, still: set[int]
) -> None:
    # Restarts longer than the hour before a pause, and such that go on into the next day.
    dear = tuple(1.0 if hour in still else 0.1 for hour in range(24))
    job = job_at(grid_profile=HourlyProfile(per_hour=dear))
    restart = job.reliability.restart.model_copy(update={"initialize_s": initialize_s})
    job = job.model_copy(update={"reliability": job.reliability.model_copy(update={"restart": restart})})
    outcome = run_of(job)
    overhead_s = float(pause_overhead_s(job, outcome)[0])
    for work_s in (600.0, 2 * HOUR, 30 * HOUR, 500 * HOUR):
        usage = Usage.of(outcome).lasting(np.array([work_s]))
        paused = paused_runs(job, PLANS, outcome, Pause(by="carbon", hours_fraction=len(still) / 24), usage)
        wall_s, num_pauses = played_hour_by_hour(work_s, still, 24, overhead_s)
        assert paused.wall_s == pytest.approx(wall_s)
        assert paused.num_pauses == num_pauses


def test_a_run_that_is_done_when_a_pause_begins_does_not_start_again() -> None:
    job = job_at()
    restart = job.reliability.restart.model_copy(update={"initialize_s": 0.0, "warm_up_s": 0.0})
    job = job.model_copy(update={"reliability": job.reliability.model_copy(update={"restart": restart})})
    # A start takes what is left of an hour, so that the second half of a day has eleven hours for work, as has the third.
    restart = restart.model_copy(update={"initialize_s": HOUR - float(pause_overhead_s(job, run_of(job))[0])})
    job = job.model_copy(update={"reliability": job.reliability.model_copy(update={"restart": restart})})
    outcome = run_of(job)
    assert pause_overhead_s(job, outcome) == HOUR
    usage = Usage.of(outcome).lasting(np.array([(12 + 11 + 11) * HOUR]))
    paused = paused_runs(job, PLANS, outcome, Pause(by="carbon", hours_fraction=0.5), usage)
    assert paused.wall_s == (2 * 24 + 12) * HOUR
    assert paused.num_pauses == 2


def test_a_run_sees_every_meeting_of_its_pauses_with_a_tariff_of_another_length() -> None:
    # Every other day is worked in; within six days these meet each of the three days of a tariff once, as do the others.
    costs, electricity_usd = [], 0.0
    for tariff in ((0.3, 0.9, 0.3), (0.5,) * 3):
        job = job_at(
            H100_BOUGHT,
            grid_profile=HourlyProfile(per_hour=(0.1,) * 24 + (0.5,) * 24),
            electricity_profile=HourlyProfile(per_hour=tuple(np.repeat(tariff, 24).tolist())),
        )
        outcome = run_of(job)
        usage = Usage.of(outcome).lasting(np.array([300 * 24 * HOUR]))
        paused = paused_runs(job, PLANS, outcome, Pause(by="carbon", hours_fraction=0.5), usage)
        costs.append(float(paused.cost_usd[0]))
        electricity_usd = 0.5 * float(paused.energy_j[0]) / 3.6e6
    # The last of a hundred such times is not whole.
    assert abs(costs[0] - costs[1]) < 0.01 * electricity_usd


def test_a_run_that_hardly_pauses_is_the_run_itself() -> None:
    job = job_at()
    outcome = run_of(job)
    same = paused_runs(job, PLANS, outcome, Pause(by="carbon", hours_fraction=1e-9))
    assert same.num_pauses == 0
    assert same.wall_s == outcome.run.wall_time_s
    assert same.energy_j == outcome.energy.total_j
    assert same.cost_usd == pytest.approx(score(job, PLANS, outcome).cost_usd)


@pytest.mark.parametrize(
    ("by", "dear", "emits"), [("carbon", "grid_profile", np.inf), ("price", "electricity_profile", 0.0)]
)
def test_a_stretch_shorter_than_its_overhead_never_ends_a_run(
    by: Literal["carbon", "price"], dear: str, emits: float
) -> None:
    # Every second hour, and a restart that takes more than one; the other grid emits nothing.
    clean = HourlyProfile(per_hour=(0.0,) * 24)
    job = job_at(H100_RENTED, **{"grid_profile": clean, dear: HourlyProfile(per_hour=(0.5, 0.1) * 12)})
    restart = job.reliability.restart.model_copy(update={"initialize_s": 4000.0})
    job = job.model_copy(update={"reliability": job.reliability.model_copy(update={"restart": restart})})
    paused = paused_runs(job, PLANS, run_of(job), Pause(by=by, hours_fraction=0.5))
    assert paused.wall_s == np.inf
    assert paused.operational_kgco2e == emits
    assert paused.cost_usd == np.inf


def test_a_run_that_never_ends_does_not_end_by_pausing() -> None:
    job = job_at()
    usage = Usage(wall_s=np.array([np.inf]), energy_j=np.array([np.inf]), peak_power_w=np.array([1e4]))
    paused = paused_runs(job, PLANS, run_of(job), Pause(by="carbon", hours_fraction=0.5), usage)
    assert paused.num_pauses == 0.0
    for endless in (paused.wall_s, paused.cost_usd, paused.operational_kgco2e):
        assert endless == np.inf


def test_cheap_checkpoints_make_pauses_cheap() -> None:
    job = job_at(grid_profile=HourlyProfile(per_hour=(0.1, 0.1, 0.5) * 8))
    slow = {"write_bytes_per_s": 1e9, "read_bytes_per_s": 1e9}
    poor = job.model_copy(update={"storage": job.storage.model_copy(update=slow)})
    longer = [
        paused_runs(case, PLANS, run_of(case), Pause(by="carbon", hours_fraction=1 / 3)).wall_s[0]
        / run_of(case).run.wall_time_s[0]
        for case in (job, poor)
    ]
    assert 1.5 < longer[0] < longer[1]


def test_a_run_starts_when_its_mean_is_least() -> None:
    hour, mean, now = best_start(HourlyProfile(per_hour=(0.5, 0.4, 0.1, 0.2)), 2 * HOUR, 3)
    assert hour == 2
    assert (mean, now) == pytest.approx((0.15, 0.45))
    assert best_start(HourlyProfile(per_hour=(0.5, 0.4, 0.1, 0.2)), 2 * HOUR, 1)[0] == 1


def test_of_starts_that_differ_by_rounding_the_earliest_is_taken() -> None:
    # Every day is alike: a run of whole days has the same mean from every hour, but for the last bits of its sums.
    day = tuple(0.4 + 0.2 * np.cos(2 * np.pi * hour / 24) for hour in range(24))
    profile = HourlyProfile(per_hour=day * 365)
    assert best_start(profile, 30 * 24 * HOUR, 167)[0] == 0
    # A run of half a day starts best at six in the morning, and on the first of the days that are alike.
    hour, mean, _ = best_start(profile, 12 * HOUR, 167)
    assert hour == 6
    assert mean == pytest.approx(np.mean(day[6:18]))


def test_the_best_start_is_the_least_of_all_starts_played_alone() -> None:
    values = np.random.default_rng(7).uniform(0.05, 0.9, 48)
    profile, wall_s = HourlyProfile(per_hour=tuple(values.tolist())), 31.7 * HOUR
    played = [float(profile.from_hour(hour).mean_over(np.array([wall_s]))[0]) for hour in range(40)]
    hour, mean, now = best_start(profile, wall_s, 39)
    assert hour == np.argmin(played)
    assert (mean, now) == pytest.approx((min(played), played[0]), rel=1e-12)


@pytest.mark.parametrize("num_waited", [0, 1])
def test_the_hour_in_which_a_run_ends_counts_for_the_part_that_it_lasts(num_waited: int) -> None:
    # Two hours of work, one of standing still, and a tenth of the fourth; an hour's wait before them counts nothing.
    wait = (0.95,) * num_waited
    job = job_at(grid_profile=HourlyProfile(per_hour=(*wait, *((0.1, 0.2, 0.9) * 8))[:24]))
    restart = job.reliability.restart.model_copy(update={"initialize_s": 0.0, "warm_up_s": 0.0})
    job = job.model_copy(update={"reliability": job.reliability.model_copy(update={"restart": restart})})
    outcome, pause = run_of(job), Pause(by="carbon", hours_fraction=1 / 3)
    overhead_s = float(pause_overhead_s(job, outcome)[0])
    usage = Usage.of(outcome).lasting(np.array([2.1 * HOUR - overhead_s]))
    paused = paused_runs(job, PLANS, outcome, pause, usage)
    held_s = paused.wall_s - num_waited * HOUR
    assert held_s == pytest.approx(3.1 * HOUR)
    power = phase_power(job, PLANS, OfferTable.from_job(job).take(PLANS.offer))
    still_j = (held_s - usage.wall_s - overhead_s) * (power.idle_w + power.spares_w)
    working_j = paused.energy_j - still_j
    mean = (0.1 + 0.2 + 0.1 * 0.1) / 2.1
    expected_kg = (mean * working_j + 0.9 * still_j) / 3.6e6
    assert paused.operational_kgco2e == pytest.approx(expected_kg, rel=1e-9)
