"""Is the log of a run what the replay of the same run sums up?"""

from __future__ import annotations

import numpy as np
import pytest

from planner.input.plan_input import plan_of, read_plan
from planner.job.file import load_job
from simulator import run_timeline as module
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.errors import InputError
from simulator.run.columns import Interruption
from simulator.run.timeline_kernel import (
    BACKPRESSURE,
    COMMIT,
    DURABLE_WRITE,
    REDUCED,
    REPLACEMENT,
    RESTART,
    RESTORE,
    SAVE_AHEAD,
    SAVE_STALL,
)
from simulator.run_timeline import NUM_INTERRUPTIONS, RunEventKind, RunTimeline, run_timeline
from simulator.simulate import replicate, simulate
from tests.support import job_with

ASYNC = "tp=4,pp=12,dp=8,mbs=2,recompute=full"
PLANS = {
    "blocking": ("bloom-176b", f"{ASYNC},checkpoint_scheme=sync_sharded"),
    "background": ("bloom-176b", ASYNC),
    "two levels": ("llama-3.1-70b", "offer=0,tp=2,pp=4,cp=2,dp=32,vpp=10,checkpoint_scheme=in_memory_peer"),
    "live replicas": ("llama-3.1-70b", "offer=0,tp=2,pp=4,cp=2,dp=32,vpp=10,checkpoint_scheme=replica_ft"),
    "no saves": ("bloom-176b", f"{ASYNC},checkpoint_scheme=none"),
}
LEDGER = {
    RunEventKind.SAVE: "checkpoint_stall_s",
    RunEventKind.BACKPRESSURE_WAIT: "backpressure_wait_s",
    RunEventKind.REDUCED_CAPACITY: "reduced_capacity_s",
    RunEventKind.RESTART: "restart_s",
    RunEventKind.REPLACEMENT_WAIT: "replacement_wait_s",
    RunEventKind.RESTORE: "checkpoint_restore_s",
}
"""Column of the ledger that the events of a kind sum up to."""


def asked(name: str, **reliability: object) -> tuple[Job, Plan]:
    file, plan = PLANS[name]
    overrides = [f"reliability.{field}={value}" for field, value in reliability.items()]
    job = load_job(f"examples/{file}.yaml", overrides)
    return job, plan_of(job, read_plan(plan))[0]


def lasting_s(run: RunTimeline, kind: RunEventKind) -> float:
    chosen = run.events.take(run.events.kind == kind.code)
    return float((chosen.end_s - chosen.start_s).sum())


@pytest.mark.parametrize("replication", [0, 3])
@pytest.mark.parametrize("name", ["blocking", "background", "two levels"])
def test_events_sum_up_to_the_ledger_of_the_same_replay(name: str, replication: int) -> None:
    job, plan = asked(name)
    run = run_timeline(job, plan, seed=5, replication=replication)
    plans = PlanTable.from_plans([plan])
    replays = replicate(job, plans, simulate(job, plans), num_replications=4, seed=5)
    assert run.has_saves
    # The replay adds up thousands of equal cycles at once, the log one by one: rounding only.
    for kind, column in LEDGER.items():
        assert lasting_s(run, kind) == pytest.approx(
            float(getattr(replays, column)[0, replication]), rel=1e-9, abs=1e-6
        )
    assert float(run.events.value_s[run.events.kind < NUM_INTERRUPTIONS].sum()) == pytest.approx(
        float(replays.lost_work_s[0, replication]), rel=1e-6
    )
    first_s = job.reliability.restart.initialize_s + job.reliability.restart.warm_up_s
    assert run.wall_time_s == pytest.approx(first_s + float(replays.wall_s[0, replication]), rel=1e-12)
    num_stops = float(replays.num_failures[0, replication] + replays.num_planned[0, replication])
    assert np.count_nonzero(run.events.kind < NUM_INTERRUPTIONS) == num_stops > 0


@pytest.mark.short(3)
@pytest.mark.parametrize("name", PLANS)
def test_the_foreground_is_one_chain_from_the_first_start_to_the_end(name: str) -> None:
    job, plan = asked(name, failures_per_1000_node_days=0.01) if name == "no saves" else asked(name)
    run = run_timeline(job, plan)
    own = run.events.take(~run.events.is_background & (run.events.kind >= NUM_INTERRUPTIONS))
    assert own.start_s[0] == 0.0
    assert own.end_s[-1] == pytest.approx(run.wall_time_s, rel=1e-12)
    assert own.start_s[1:] == pytest.approx(own.end_s[:-1], rel=1e-12)
    assert own.kind[0] == RunEventKind.INITIALIZATION.code


def test_training_holds_the_work_that_counts_the_work_that_is_lost_and_the_tax() -> None:
    job, plan = asked("background")
    run = run_timeline(job, plan)
    ledger = run.ledger
    parts_s = (ledger.productive_s + ledger.lost_work_s + ledger.checkpoint_tax_s)[0, 0]
    assert lasting_s(run, RunEventKind.TRAINING) == pytest.approx(parts_s, rel=1e-9)
    assert run.work_s == ledger.productive_s[0, 0]


def test_a_save_that_an_interruption_meets_on_its_way_is_lost_and_ends_there() -> None:
    job, plan = asked("background", failures_per_1000_node_days=50.0)
    run = run_timeline(job, plan)
    commits = run.events.take(run.events.kind == RunEventKind.COMMIT.code)
    stops_s = run.events.start_s[run.events.kind < NUM_INTERRUPTIONS]
    assert commits.is_lost.any()
    assert np.isin(commits.end_s[commits.is_lost], stops_s).all()
    whole_s = commits.end_s[~commits.is_lost] - commits.start_s[~commits.is_lost]
    assert whole_s[:-1] == pytest.approx(whole_s[0])  # all but one that the end of the run may meet
    for start_s, end_s in zip(
        commits.start_s[~commits.is_lost], commits.end_s[~commits.is_lost], strict=True
    ):
        assert not np.any((stops_s > start_s) & (stops_s < end_s))


def test_lost_work_reaches_back_to_the_newest_save_that_was_committed() -> None:
    job, plan = asked("blocking")
    run = run_timeline(job, plan)
    interval_s = run.events.value_s[run.events.kind == RunEventKind.SAVE.code][0]
    lost_s = run.events.value_s[run.events.kind < NUM_INTERRUPTIONS]
    assert (lost_s >= 0.0).all()
    # A blocking save is committed at once, so nothing older than one interval is lost.
    assert (lost_s <= interval_s * (1 + 1e-9)).all()


def test_saves_that_are_too_many_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    job, plan = asked("background")
    monkeypatch.setattr(module, "MOST_LOGGED", 200)
    run = run_timeline(job, plan)
    kinds = set(run.events.kind.tolist())
    assert not run.has_saves
    assert kinds & {RunEventKind.SAVE.code, RunEventKind.COMMIT.code} == set()
    assert RunEventKind.RESTART.code in kinds


def test_a_run_with_too_many_interruptions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    job, plan = asked("background")
    monkeypatch.setattr(module, "MOST_LOGGED", 5)
    with pytest.raises(InputError, match="more than 5 interruptions to write out"):
        run_timeline(job, plan)


def test_a_run_that_never_ends_is_refused() -> None:
    job = job_with(reliability={"failures_per_1000_node_days": 10_000, "preset": "typical"})
    plan = plan_of(job, {"tp": 2, "dp": 32, "checkpoint_scheme": "none"})[0]
    with pytest.raises(InputError, match="never ends"):
        run_timeline(job, plan)


def test_codes_of_the_kernel_are_those_of_the_kinds() -> None:
    stops = list(RunEventKind)[:NUM_INTERRUPTIONS]
    assert [kind.name for kind in stops[:3]] == [kind.name for kind in Interruption][:3]
    assert stops[Interruption.PLANNED] is RunEventKind.PLANNED_STOP
    codes = [
        SAVE_STALL,
        BACKPRESSURE,
        COMMIT,
        DURABLE_WRITE,
        REDUCED,
        SAVE_AHEAD,
        REPLACEMENT,
        RESTART,
        RESTORE,
    ]
    names = ["save", "backpressure_wait", "commit", "durable_write", "reduced_capacity", "save_ahead"]
    names += ["replacement_wait", "restart", "restore"]
    assert [RunEventKind.from_code(code).value for code in codes] == names
