"""Is every second of the run charged once, at the power of its phase?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simulator.domain.climate import Climate
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.lora import Lora
from simulator.domain.plan import CheckpointScheme, Plan, PlanTable, Recompute
from simulator.layout.chunks import split_layers
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import phase_power, power_levels
from simulator.machine.rank import Rank
from simulator.run.energy import BUCKETS, EnergyTable, run_energy
from simulator.run.evaluation import evaluation_time_s
from simulator.run.wall_time import RunTable
from simulator.simulate import Outcomes, simulate
from simulator.step.step import step_parts
from tests.simulator.builders import job_of, plan_of, rented, table_of, training

PLANS = table_of(
    *[plan_of(tensor=2, pipeline=4, data=8, scheme=scheme, spares=1) for scheme in CheckpointScheme],
    plan_of(data=64, zero=3),
    plan_of(tensor=8, pipeline=2, virtual=4, data=16, cap=0.7),
)
JOB = job_of(training("llama-3.1-8b", num_steps=50_000))
OUTCOMES = simulate(JOB, PLANS)


def offers_of(job: Job, plans: PlanTable) -> OfferTable:
    return OfferTable.from_job(job).take(plans.offer)


def with_failures(rate: float) -> Job:
    return JOB.model_copy(
        update={
            "reliability": JOB.reliability.model_copy(
                update={"failures_per_1000_node_days": rate, "straggler_log_mean": None}
            )
        }
    )


def outcome_of(job: Job, plan: Plan) -> Outcomes:
    return simulate(job, table_of(plan))


def test_phases_sum_to_the_total_and_to_mean_power_times_wall_time() -> None:
    energy = OUTCOMES.energy
    total = np.sum([getattr(energy, name) for name in EnergyTable.names()], axis=0)
    assert energy.total_j == pytest.approx(total, rel=1e-12)
    assert energy.total_j == pytest.approx(
        OUTCOMES.summary.mean_power_w * OUTCOMES.run.wall_time_s, rel=1e-12
    )


def test_mean_power_lies_between_standing_still_and_computing() -> None:
    offers = offers_of(JOB, PLANS)
    power, servers_w = phase_power(JOB, PLANS, offers), OUTCOMES.checkpoints.extra_power_w
    assert (OUTCOMES.summary.mean_power_w > power.stalled_w + power.spares_w).all()
    levels = power_levels(JOB, PLANS, offers, servers_w)
    assert (OUTCOMES.summary.mean_power_w < levels.peak_power_w).all()
    assert OUTCOMES.power.peak_power_w == pytest.approx(levels.peak_power_w)


def test_a_run_that_only_computes_draws_the_power_of_computing() -> None:
    outcome = outcome_of(with_failures(1e-9), plan_of(scheme=CheckpointScheme.NONE))
    power = phase_power(JOB, table_of(plan_of()), offers_of(JOB, table_of(plan_of())))
    computing_s = outcome.steps.compute_s * JOB.workload.num_steps
    assert outcome.energy.compute_j == pytest.approx(computing_s * power.compute_w)
    # What remains is the optimizer and the first start of 180 s.
    rest_j = outcome.energy.optimizer_j + outcome.energy.restart_j
    assert outcome.energy.total_j == pytest.approx(outcome.energy.compute_j + rest_j, rel=1e-6)
    assert outcome.energy.restart_j == pytest.approx(180 * power.stalled_w, rel=1e-3)


def test_blocking_saves_draw_what_a_stalled_node_draws() -> None:
    row = list(CheckpointScheme).index(CheckpointScheme.SYNC_SHARDED)
    power = phase_power(JOB, PLANS, offers_of(JOB, PLANS))
    stalled_j = OUTCOMES.run.checkpoint_stall_s[row] * power.stalled_w[row]
    num_saves = OUTCOMES.run.checkpoint_stall_s[row] / OUTCOMES.checkpoints.stall_s[row]
    moved_j = num_saves * OUTCOMES.checkpoints.save_energy_j[row] * JOB.site.power_usage_effectiveness
    assert moved_j > 0
    assert OUTCOMES.energy.checkpoint_j[row] == pytest.approx(stalled_j + moved_j, rel=1e-4)


def test_lost_work_draws_what_work_draws() -> None:
    energy, run = OUTCOMES.energy, OUTCOMES.run
    worked_j = energy.compute_j + energy.communication_j + energy.pipeline_bubble_j + energy.optimizer_j
    assert energy.lost_work_j / worked_j == pytest.approx(run.lost_work_s / run.productive_s)


def test_spares_draw_idle_power_all_the_time() -> None:
    power = phase_power(JOB, PLANS, offers_of(JOB, PLANS))
    assert OUTCOMES.energy.spare_j == pytest.approx(OUTCOMES.run.wall_time_s * power.spares_w)
    assert OUTCOMES.energy.spare_j[-1] == 0
    assert OUTCOMES.energy.spare_j[0] > 0


def test_more_failures_cost_more_energy() -> None:
    few, many = (outcome_of(with_failures(rate), plan_of(data=64)).energy.total_j for rate in (1.0, 20.0))
    assert few < many


def test_a_run_that_never_ends_needs_infinite_energy_at_no_known_power() -> None:
    outcome = outcome_of(with_failures(10_000.0), plan_of(data=512, scheme=CheckpointScheme.NONE))
    assert not outcome.run.makes_progress[0]
    assert outcome.run.wall_time_s[0] == outcome.energy.total_j[0] == np.inf
    assert outcome.energy.spare_j[0] == 0
    assert np.isnan(outcome.summary.mean_power_w[0])


@pytest.mark.parametrize("fixed", [0.0, 0.6, 1.0])
def test_servers_of_saves_are_part_of_the_peak_and_their_cooling_never_rests(fixed: float) -> None:
    site = JOB.site.model_copy(update={"power_usage_effectiveness": 1.5, "cooling_fixed_fraction": fixed})
    job, plans = (
        JOB.model_copy(update={"site": site}),
        table_of(plan_of(data=8, scheme=CheckpointScheme.GRADIENT_REPLICA)),
    )
    outcome = simulate(job, plans)
    servers_w = 800.0 * outcome.checkpoints.num_servers
    assert servers_w > 0
    bare = power_levels(job, plans, offers_of(job, plans))
    assert outcome.power.hall_power_w == pytest.approx(bare.hall_power_w + servers_w)
    assert outcome.power.peak_power_w == pytest.approx(bare.peak_power_w + 1.5 * servers_w)
    assert outcome.power.power_swing_w == pytest.approx(bare.power_swing_w)
    without = outcome.checkpoints
    no_servers = replace(without, extra_power_w=np.zeros(1))
    energies = (
        run_energy(job, plans, offers_of(job, plans), outcome.steps, outcome.run, checkpoints).total_j
        for checkpoints in (without, no_servers)
    )
    assert np.subtract(*energies) == pytest.approx(1.5 * servers_w * outcome.run.wall_time_s)


def test_every_bucket_of_the_ledger_has_a_power() -> None:
    no_buckets = {
        "wall_time_s",
        "productive_s",
        "mtbf_s",
        "checkpoint_interval_s",
        "calm_s",
        "near_mean_s",
        "far_mean_s",
    }
    assert set(BUCKETS) == {name for name in RunTable.names() if name.endswith("_s")} - no_buckets


@pytest.mark.parametrize(
    ("phase", "buckets"),
    [
        ("waiting_w", ["straggler_s", "reduced_capacity_s"]),
        ("evaluation_w", ["evaluation_s"]),
        ("communication_w", ["checkpoint_tax_s"]),
        (
            "stalled_w",
            [
                *["checkpoint_stall_s", "backpressure_wait_s", "restart_s", "replacement_wait_s"],
                *["checkpoint_restore_s", "initialization_s"],
            ],
        ),
    ],
)
def test_an_hour_more_of_a_bucket_is_an_hour_at_the_power_of_its_phase(
    phase: str, buckets: list[str]
) -> None:
    # docs/model/power-cost-carbon.md, "Phases": while training waits for storage or nodes it stands still; a missing
    # replica and stragglers keep the others spinning; the tax of saves is that of communication.
    power = getattr(phase_power(JOB, PLANS, offers_of(JOB, PLANS)), phase)
    # The saves of the longer work move bytes, too, which is not a phase.
    checkpoints = replace(OUTCOMES.checkpoints, save_energy_j=np.zeros(len(PLANS)))
    totals = [
        run_energy(JOB, PLANS, offers_of(JOB, PLANS), OUTCOMES.steps, run, checkpoints).total_j
        for run in (
            OUTCOMES.run,
            *(replace(OUTCOMES.run, **{name: getattr(OUTCOMES.run, name) + 3600.0}) for name in buckets),
        )
    ]
    for name, total_j in zip(buckets, totals[1:], strict=True):
        np.testing.assert_allclose(total_j - totals[0], 3600.0 * power, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("phase", "parts"),
    [
        ("waiting_w", ["pipeline_bubble_s"]),
        ("optimizer_w", ["optimizer_s"]),
        ("communication_w", ["pipeline_send_s", "gradient_sync_s"]),
    ],
)
def test_a_second_more_of_a_step_is_a_second_at_its_power_in_every_step(phase: str, parts: list[str]) -> None:
    power = getattr(phase_power(JOB, PLANS, offers_of(JOB, PLANS)), phase)
    run = replace(OUTCOMES.run, lost_work_s=np.zeros(len(PLANS)))  # draws what longer steps draw
    for name in parts:
        longer = replace(OUTCOMES.steps, **{name: getattr(OUTCOMES.steps, name) + 1.0})
        before_j, after_j = (
            run_energy(JOB, PLANS, offers_of(JOB, PLANS), steps, run, OUTCOMES.checkpoints).total_j
            for steps in (OUTCOMES.steps, longer)
        )
        np.testing.assert_allclose(after_j - before_j, 50_000 * power, rtol=1e-6, err_msg=name)


def test_exposed_traffic_inside_layers_draws_the_same_whatever_it_carries() -> None:
    names = ("tensor_comm_s", "expert_comm_s", "shard_comm_s", "host_copy_s")
    none = dict.fromkeys(names, np.zeros(len(PLANS)))
    silent = replace(OUTCOMES.steps, **none)
    without_j, *each_j = (
        run_energy(JOB, PLANS, offers_of(JOB, PLANS), steps, OUTCOMES.run, OUTCOMES.checkpoints).total_j
        for steps in (silent, *(replace(silent, **{name: np.full(len(PLANS), 0.1)}) for name in names))
    )
    for name, energy_j in zip(names, each_j, strict=True):
        assert (energy_j > 1.001 * without_j).all(), name
        np.testing.assert_allclose(energy_j, each_j[0], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("bucket", ["productive_s", "straggler_s", "evaluation_s", "lost_work_s"])
def test_an_interval_more_of_work_is_a_save_more(bucket: str) -> None:
    checkpoints, run = OUTCOMES.checkpoints, OUTCOMES.run
    saves = np.isfinite(run.checkpoint_interval_s)
    interval_s = np.where(saves, run.checkpoint_interval_s, 0.0)
    longer = replace(run, **{bucket: getattr(run, bucket) + interval_s})
    # What a save of a gigajoule more adds to the run, and to the longer one.
    dearer = replace(checkpoints, save_energy_j=checkpoints.save_energy_j + 1e9)
    added_j = [
        np.subtract(
            *(
                run_energy(JOB, PLANS, offers_of(JOB, PLANS), OUTCOMES.steps, each, saved).checkpoint_j
                for saved in (dearer, checkpoints)
            )
        )
        for each in (run, longer)
    ]
    assert saves.any()
    pue = JOB.site.power_usage_effectiveness  # all of its overhead varies with the load
    np.testing.assert_allclose((added_j[1] - added_j[0])[saves], 1e9 * pue, rtol=1e-4)


def test_evaluations_take_a_third_of_a_step_for_each_batch_and_draw_their_own_power() -> None:
    evaluated = {
        "evaluation_every_steps": 100.0,
        "evaluation_sequences": 1024,
    }  # two batches every hundred steps
    plan = plan_of(scheme=CheckpointScheme.NONE)
    workload = JOB.workload.model_copy(update=evaluated)
    job = with_failures(1e-9).model_copy(update={"workload": workload})
    without, with_them = outcome_of(with_failures(1e-9), plan), outcome_of(job, plan)
    passes_s = without.steps.step_time_s - without.steps.optimizer_s
    assert with_them.run.evaluation_s == pytest.approx(50_000 / 100 * 2 * passes_s / 3)
    assert with_them.run.wall_time_s - without.run.wall_time_s == pytest.approx(
        with_them.run.evaluation_s, rel=1e-6
    )
    power = phase_power(job, table_of(plan), offers_of(job, table_of(plan)))
    assert with_them.energy.evaluation_j == pytest.approx(with_them.run.evaluation_s * power.evaluation_w)
    assert without.energy.evaluation_j == 0


def test_evaluations_take_a_forward_pass_whatever_the_backward_pass_computes() -> None:
    """Its shares are those of the chunks' own times, which traffic and the output layer move by a few points."""
    layouts: tuple[dict[str, Any], ...] = (
        {},
        {"recompute": Recompute.FULL},
        {"recompute": Recompute.FULL, "recompute_num_layers": 10},
    )
    plans = table_of(*(plan_of(tensor=8, pipeline=4, data=4, **layout) for layout in layouts))
    evaluated = {"evaluation_every_steps": 10.0, "evaluation_sequences": 512}  # a batch every ten steps
    full = training("llama-3.1-70b", num_steps=1000).model_copy(update=evaluated)
    for workload in (full, full.model_copy(update={"lora": Lora(rank=16)})):
        job = job_of(workload)
        pipeline = step_parts(Rank.of(job, plans), split_layers(workload.model, plans)).pipeline
        forward_s, backward_s = (
            np.sum(np.asarray(each), axis=1)
            for each in (pipeline["chunk_forward_s"], pipeline["chunk_backward_s"])
        )
        outcomes = simulate(job, plans)
        steps = outcomes.steps
        passes_s = steps.step_time_s - steps.optimizer_s - steps.gradient_sync_s
        shares = evaluation_time_s(job, plans, steps) / 100 / passes_s
        assert shares == pytest.approx(forward_s / (forward_s + backward_s), abs=0.05)
        assert outcomes.run.evaluation_s / outcomes.run.evaluation_s[0] == pytest.approx(1.0, abs=0.03)


class TestMeteredRun:
    """GPT-3 175B in FP8 on 512 H100, MLPerf Training v4.0: 10.6256 s a step, 6.85 kW a node, 415.2 kWh in 3,412 s."""

    METERED_STEPS = 3412 / 10.6256

    @pytest.fixture
    def outcome(self) -> Outcomes:
        offer = rented(node="hgx-h100-immersion")
        meters = {"switch_power_w": 0.0, "optic_power_w": 0.0}  # stand at the nodes
        offer = offer.model_copy(update={"fabric": offer.fabric.model_copy(update=meters)})
        work = training("gpt3-175b", sequence_length=2048, global_batch_size=2048, num_steps=1)
        # Tensor-parallel traffic behind products and 16-bit gradients, as NeMo trains; twelve chunks a stage, as the
        # submissions of the same size to v3.0 and v3.1 (mlcommons/training_results_v3.1).
        nemo = {"overlaps_tensor_comm": True, "gradient_bytes": 2, "precisions": (Precision.FP8,)}
        work = work.model_copy(update={"tokens": self.METERED_STEPS * work.tokens_per_step, **nemo})
        job = job_of(work, offer)
        timed = job.reliability.restart.model_copy(update={"initialize_s": 0.0, "warm_up_s": 0.0})
        calm = {"restart": timed, "failures_per_1000_node_days": 1e-9, "straggler_log_mean": None}
        job = job.model_copy(
            update={
                "reliability": job.reliability.model_copy(update=calm),
                "site": job.site.model_copy(update={"power_usage_effectiveness": 1.0}),
            }
        )
        layout = plan_of(tensor=4, pipeline=8, virtual=12, data=16, micro_batch=2, precision=Precision.FP8)
        return simulate(job, table_of(layout.model_copy(update={"checkpoint_scheme": CheckpointScheme.NONE})))

    def test_nodes_draw_what_the_meters_showed(self, outcome: Outcomes) -> None:
        assert outcome.summary.mean_power_w / 64 == pytest.approx(6850, rel=0.05)

    def test_energy_is_what_the_meters_showed_with_steps_of_our_own(self, outcome: Outcomes) -> None:
        assert outcome.energy.total_j / 3.6e6 == pytest.approx(415.2, rel=0.06)


def test_energy_can_be_told_apart_from_its_simulation() -> None:
    again = run_energy(JOB, PLANS, offers_of(JOB, PLANS), OUTCOMES.steps, OUTCOMES.run, OUTCOMES.checkpoints)
    assert (again.total_j == OUTCOMES.energy.total_j).all()


def test_saves_are_cooled_where_the_offer_stands() -> None:
    plan = plan_of(tensor=8, data=8, scheme=CheckpointScheme.GRADIENT_REPLICA)
    base = job_of()
    here = base.site
    job = base.model_copy(update={"offers": (base.offers[0].model_copy(update={"site": here}),)})
    elsewhere = job.model_copy(update={"site": here.model_copy(update={"power_usage_effectiveness": 5.0})})
    assert (outcome_of(job, plan).energy.total_j == outcome_of(elsewhere, plan).energy.total_j).all()


def test_cooling_that_is_fixed_is_drawn_once_for_every_second() -> None:
    # Whatever is saved or moved meanwhile: the same watts from the first start to the end, in mean weather.
    climate = Climate(
        mean_celsius=20,
        daily_amplitude_celsius=10,
        free_cooling_below_celsius=20,
        overhead_per_celsius=0.01,
    )
    fields = {"power_usage_effectiveness": 1.3, "cooling_fixed_fraction": 1.0, "climate": climate}
    bare, cooled = (
        JOB.model_copy(update={"site": JOB.site.model_copy(update=update)})
        for update in ({"power_usage_effectiveness": 1.0, "climate": None}, fields)
    )
    it, facility = (simulate(job, PLANS) for job in (bare, cooled))
    overhead_w = (0.3 + climate.mean_overhead) * it.power.hall_power_w
    np.testing.assert_allclose(
        facility.energy.total_j, it.energy.total_j + overhead_w * it.run.wall_time_s, rtol=1e-9
    )
