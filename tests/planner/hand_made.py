"""Which answers do the tests of the command line show? Hand-made ones, with round figures that are easy to recognize."""

from __future__ import annotations

from planner.recommended.recommendation import (
    Design,
    Infeasibility,
    MlflowRecord,
    Recommendation,
    Rejection,
    Relaxation,
    Spread,
    Uncertainty,
)
from simulator.domain.plan import CheckpointScheme, Plan, Recompute

GIB = 1024.0**3


def design(
    design_id: int = 7,
    *,
    days: float = 31.4,
    cost_usd: float = 1.85e6,
    power_cap: float = 1.0,
    break_even_months: float | None = 21.5,
) -> Design:
    """1,024 accelerators in 128 nodes: TP 8, PP 4, DP 32."""
    plan = Plan(
        offer=0,
        num_gpus=1024,
        num_spare_nodes=3,
        tensor_parallel=8,
        pipeline_parallel=4,
        virtual_pipeline=2,
        data_parallel=32,
        recompute=Recompute.SELECTIVE,
        checkpoint_scheme=CheckpointScheme.ASYNC,
        power_cap_fraction=power_cap,
    )
    return Design(
        design_id=design_id,
        accelerator="h100-sxm5-80gb",
        node="dgx-h100",
        num_nodes=128,
        global_batch_size=512,
        plan=plan,
        time_to_train_days=days,
        cost_usd=cost_usd,
        cost_low_usd=1.25e6,
        cost_high_usd=2.51e6,
        energy_kwh=850_000.0,
        carbon_kgco2e=412_000.0,
        peak_power_w=1.1e6,
        step_time_s=6.32,
        iteration_time_s=6.51,
        mfu_fraction=0.412,
        goodput_fraction=0.951,
        num_failures=12.3,
        memory_bytes={
            "weights_bytes": 17.5 * GIB,
            "activations_bytes": 42.5 * GIB,
            "overhead_bytes": 0.01 * GIB,
        },
        peak_memory_bytes=60.01 * GIB,
        memory_capacity_bytes=80.0 * GIB,
        checkpoint_interval_s=1860.0,
        step_seconds={"compute_s": 5.0, "tensor_comm_s": 1.32, "expert_comm_s": 0.0},
        run_seconds={"productive_s": 2.6e6, "lost_work_s": 1.1e5},
        badput_seconds={"wasted_progress_from_disruption": 1.1e5},
        cost_parts_usd={"rent_usd": cost_usd, "capital_usd": 0.0},
        energy_parts_kwh={"compute_kwh": 800_000.0, "idle_kwh": 50_000.0},
        carbon_parts_kgco2e={"operational_kgco2e": 309_000.0, "embodied_kgco2e": 103_000.0},
        metrics={
            "usd_per_million_tokens": 0.925,
            "kwh_per_million_tokens": 0.425,
            "usd_per_effective_pflop_hour": 120.0,
            "gco2e_per_exaflop": 250.0,
            "carbon_delay_kgco2e_s": 412_000.0 * days * 86_400,
            "rent_usd": cost_usd,
            "own_usd": 1.5e6,
            "break_even_months": break_even_months,
        },
        buying_pays=break_even_months is not None,
        power_w={
            "hall_power_w": 1.0e6,
            "cooling_power_w": 1.0e5,
            "rack_power_w": 4.0e4,
            "power_swing_w": 7.0e5,
        },
        power_range_fraction=0.63,
        power_ramp_w_per_s=3.5e5,
    )


def recommended(num_front: int = 3) -> Recommendation:
    """A feasible job; design 7 is recommended, design 8 tied with it."""
    front = tuple(
        design(7 + step, days=31.4 + step, cost_usd=1.85e6 - 1e4 * step) for step in range(num_front)
    )
    return Recommendation(
        capplan_version="0.1.0",
        catalog_hash="0123456789abcdef",
        job="llama",
        seed=3,
        created_at="2026-01-01T00:00:00+00:00",
        status="recommended",
        recommendation=front[0],
        why=("It is the fastest of the front.",),
        uncertainty=Uncertainty(
            num_replays=400,
            time_to_train_days=Spread(mean=31.6, p5=30.6, p50=31.4, p95=33.4),
            cost_usd=Spread(mean=1.86e6, p5=1.79e6, p50=1.85e6, p95=1.92e6),
            goodput_fraction=Spread(mean=0.9, p5=0.85, p50=0.9, p95=0.92),
            deadline_probability=0.97,
            step_time_error_fraction=0.08,
            step_time_low_s=9.0,
            step_time_high_s=11.0,
            step_time_bias_fraction=-0.02,
            is_step_time_measured=True,
            step_time_num_compared=46,
            tied_designs=(8,),
        ),
        objectives=("time_to_train", "cost"),
        front=front,
        rejected=(
            Rejection(
                constraint="budget_usd",
                rule="cost above budget_usd = 2e6",
                num_before_simulation=1234,
                num_after_simulation=56,
            ),
        ),
        num_evaluated=4321,
        num_feasible=210,
        algorithm="exhaustive search",
        infeasibility=None,
        mlflow=MlflowRecord(
            tracking_uri="sqlite:///capplan-studies/mlflow.db",
            experiment="capplan",
            run_name="llama",
            num_designs=4321,
            num_design_runs=210,
            open_with="capplan ui",
            run_id="feed",
        ),
        warnings=("No price of an optic is known.",),
    )


def interrupted() -> Recommendation:
    """The same answer of an interrupted search."""
    return recommended().model_copy(update={"status": "interrupted"})


def infeasible() -> Recommendation:
    """A job whose budget and deadline contradict each other."""
    relaxation = Relaxation(limits={"budget_usd": 1_849_001.0, "num_gpus": 1024.0}, example=design())
    return recommended().model_copy(
        update={
            "status": "infeasible",
            "recommendation": None,
            "why": (),
            "uncertainty": None,
            "front": (),
            "num_feasible": 0,
            "infeasibility": Infeasibility(
                conflict=("budget_usd", "deadline_days"),
                reasons=("The cheapest design in time costs more than the budget.",),
                proof="CP-SAT over 240 layouts",
                relaxations=(relaxation,),
            ),
        }
    )
