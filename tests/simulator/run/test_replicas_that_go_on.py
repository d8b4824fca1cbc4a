"""Does a job whose other replicas go on wait for nodes only where no replica is left?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.run_reference import TIMES, columns
from planner.job.file import parse_job
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, Plan, PlanTable
from simulator.run.events import expected_ledger, simulate_runs
from simulator.run.spread import wall_time_quantile_s
from simulator.simulate import Outcomes, replicate, simulate
from simulator.units import DAY, HOUR

NUM_REPLICAS = (2, 3, 4, 6, 8, 16, 32)
QUORUM_S = 10.0


def job_with(num_replicas: int) -> tuple[Job, PlanTable]:
    """A job of three weeks on a node for each replica, which fails every twelve days; no spares."""
    num_gpus = 8 * num_replicas
    job = parse_job(
        {
            "workload": {
                "model": "llama-3.1-8b",
                "tokens": 1e11 * num_replicas,
                "sequence_length": 8192,
                "global_batch_size": 1024,
            },
            "offers": [{"accelerator": "h100-sxm5-80gb", "num_gpus": num_gpus, "rent_usd_per_gpu_hour": 2.6}],
            "site": {"region": "us-iowa"},
            "checkpointing": {"quorum_stall_s": QUORUM_S},
            "reliability": {
                "failures_per_1000_node_days": 80.0,
                "process_fault_fraction": 0.3,
                "straggler_log_mean": None,
            },
        }
    )
    plan = Plan(
        offer=0,
        num_gpus=num_gpus,
        tensor_parallel=8,
        data_parallel=num_replicas,
        zero_stage=0,
        checkpoint_scheme=CheckpointScheme.REPLICA_FT,
    )
    return job, PlanTable.from_plans([plan])


def lost_share(found: Outcomes) -> float:
    """What is not productive, by interruption and over the up-time between them."""
    run = found.run
    lost_s = run.wall_time_s - run.initialization_s - run.productive_s
    saves_s = run.checkpoint_stall_s + run.checkpoint_tax_s
    return float(((lost_s - saves_s) / run.productive_s)[0])


@pytest.mark.parametrize("num_replicas", NUM_REPLICAS)
def test_runs_are_those_of_replays_with_any_number_of_replicas(num_replicas: int) -> None:
    job, plans = job_with(num_replicas)
    found = simulate(job, plans)
    replays = replicate(job, plans, found, num_replications=1000, seed=1)
    wall_s = replays.wall_s[0] + found.run.initialization_s[0]
    assert found.run.wall_time_s[0] == pytest.approx(wall_s.mean(), rel=0.002)
    late_s = wall_time_quantile_s(job, plans, found.steps, found.run, 0.95)[0]
    assert late_s == pytest.approx(np.quantile(wall_s, 0.95), rel=0.005)


def test_a_failure_costs_a_quorum_and_the_share_of_a_replica() -> None:
    # Per up-time: t_q + R/D. With two replicas one in eighty failures meets no other one, and goes back to a save.
    for num_replicas in NUM_REPLICAS:
        job, plans = job_with(num_replicas)
        found = simulate(job, plans)
        missing_s = found.checkpoints.missing_capacity_s[0]
        cost = (QUORUM_S + missing_s) / found.run.mtbf_s[0]
        assert lost_share(found) == pytest.approx(cost, rel=0.4 if num_replicas == 2 else 0.05)


def random_runs(seed: int) -> dict[str, Any]:
    """A run with two levels of saves and a live replica that outlasts interruptions with some probability."""
    rng = np.random.default_rng(seed)
    mtbf_s = float(np.exp(rng.uniform(np.log(HOUR), np.log(2 * DAY))))
    domain, node = float(rng.choice([0.0, 0.2])), float(rng.choice([0.2, 0.5]))
    return dict(
        columns(
            work_s=60.0 * mtbf_s,
            mtbf_s=mtbf_s,
            interval_s=mtbf_s * float(np.exp(rng.uniform(np.log(0.01), np.log(0.2)))),
            stall_s=1.0,
            commit_s=0.0,
            restart_s=float(rng.choice([60.0, 1800.0])),
            kind_share=(1.0 - node - domain, node, domain, 0.0),
            kind_nodes=(0, 1, 4, 0),
            kind_fast_survival=(1.0, rng.choice([0.0, 0.5, 0.9, 0.99]), rng.choice([0.0, 0.9]), 1.0),
            live_lag_s=5.0,
            reduced_capacity_s=float(rng.choice([30.0, 600.0])),
            fails_during_restart=bool(rng.random() < 0.3),
            num_spares=int(rng.choice([0, 1, 4, 12])),
            repair_s=float(rng.choice([0.25, 1.0, 3.0])) * DAY,
            spare_wait_s=60.0,
            queue_wait_s=float(rng.choice([0.5, 2.0, 24.0])) * HOUR,
        )
    )


@pytest.mark.parametrize("seed", range(12))
def test_random_runs_take_as_long_as_in_the_event_loop(seed: int) -> None:
    row = random_runs(seed)
    runs, ledger = simulate_runs(num_replications=300, seed=5, **row), expected_ledger(**row)
    expected_s = sum(getattr(ledger, name) for name in TIMES)
    error = 4.0 * runs.wall_s.std() / np.sqrt(300)
    assert expected_s[0] == pytest.approx(runs.wall_s.mean(), rel=0.02, abs=error)


def test_without_missing_capacity_every_lost_node_is_waited_for() -> None:
    row = random_runs(0) | {
        "kind_share": [0.0, 1.0, 0.0, 0.0],
        "kind_fast_survival": [1.0] * 4,
        "num_spares": 0,
    }
    row |= {"repair_s": 1e9, "queue_wait_s": HOUR, "fails_during_restart": False}
    goes_on, waits = (
        simulate_runs(num_replications=20, seed=5, **row | {"reduced_capacity_s": missing_s})
        for missing_s in (30.0, 0.0)
    )
    assert (goes_on.replacement_wait_s == 0.0).all()
    assert waits.replacement_wait_s == pytest.approx(HOUR * waits.num_failures)
