"""How many designs are evaluated per second, and what does the time per design grow with?

    python -m benchmarks.throughput                       tables
    python -m benchmarks.throughput --json                one JSON object
    python -m benchmarks.throughput --calculon DIR        also Calculon on the same layouts, in the same run

An evaluation is everything that a search asks for: step, memory, saves, run with failures, energy, cost, carbon, limits. Rates
are per second of CPU time, so that other work on the machine has little effect. Where two threads or processes share the work,
and for the one-thread rate next to them, seconds are wall-clock time. Designs are drawn at random without repetition from those
that fit into memory.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import numpy as np
from numba import set_num_threads
from rich.console import Console
from rich.table import Table

from benchmarks import calculon
from benchmarks.rooms import module_shares, room_shares
from benchmarks.search_jobs import SCHEMES, STAGES
from constraints.evaluation import evaluate
from constraints.space import pruned_space
from planner.job.file import parse_job
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable, distinct_layouts
from simulator.work_parts import equal_parts

NUM_DESIGNS = 8_192
NUM_REPETITIONS = 3
NUM_TURNS = 5
NUM_GROWTH = 256
"""Designs per row of a growth table; they differ in their power cap, so that each is a layout of its own."""
SEED = 1
Figures = dict[str, float]


def job_on(model: str, tokens: float, sequences: tuple[int, int], offer: dict[str, object]) -> Job:
    """Returns a job with one offer; `sequences` gives their length and their number per batch."""
    return parse_job(
        {
            "workload": {
                "model": model,
                "tokens": tokens,
                "sequence_length": sequences[0],
                "global_batch_size": sequences[1],
            },
            "offers": [{"rent_usd_per_gpu_hour": 2.0, **offer}],
            "site": "us-iowa",
            "search": {"zero_stages": STAGES, "checkpoint_schemes": SCHEMES},
        }
    )


A100 = {"accelerator": "a100-sxm4-80gb"}
H100 = {"accelerator": "h100-sxm5-80gb"}


def jobs() -> dict[str, Job]:
    """Returns the two jobs whose designs are drawn: that of Calculon's paper, and that of Llama 3.1."""
    return {
        "gpt3-175b, 512 A100": job_on("gpt3-175b", 300e9, (2048, 1536), {**A100, "num_gpus": 512}),
        "llama-3.1-405b, up to 16,384 H100": job_on(
            "llama-3.1-405b", 15.6e12, (8192, 2048), {**H100, "num_gpus": {"min": 1024, "max": 16384}}
        ),
    }


def feasible_designs(job: Job, *, one_per_layout: bool) -> PlanTable:
    """Returns random feasible designs; with one per layout, none shares its step with another."""
    space = pruned_space(job)
    designs = space.layouts if one_per_layout else space.designs()
    feasible = designs.take(evaluate(job, designs).is_feasible)
    num = min(NUM_DESIGNS, len(feasible))
    return feasible.take(np.random.default_rng(SEED).choice(len(feasible), num, replace=False))


def cpu_seconds(call: Callable[[], object], num_repetitions: int = NUM_REPETITIONS) -> float:
    """Returns the shortest CPU time of some calls, after one that loads compiled code."""
    call()
    seconds = []
    for _ in range(num_repetitions):
        started_s = time.process_time()
        call()
        seconds.append(time.process_time() - started_s)
    return min(seconds)


def rates(job: Job) -> Figures:
    """Returns designs per second on one core and on two."""
    designs = feasible_designs(job, one_per_layout=False)
    layouts = feasible_designs(job, one_per_layout=True)
    num_distinct = len(distinct_layouts(designs)[0])
    designs_s = cpu_seconds(lambda: evaluate(job, designs))
    return {
        "num_designs": len(designs),
        "num_distinct_layouts_of_designs": num_distinct,
        "num_layouts": len(layouts),
        "designs_per_cpu_s": len(designs) / designs_s,
        "distinct_layouts_of_designs_per_cpu_s": num_distinct / designs_s,
        "layouts_per_cpu_s": len(layouts) / cpu_seconds(lambda: evaluate(job, layouts)),
        "designs_per_s_of_one_thread": rate_by_the_clock(job, designs, 1),
        "designs_per_s_of_two_threads": rate_by_the_clock(job, designs, 2),
        "designs_per_s_of_two_processes": rate_of_two_processes(job, designs),
        "latency_ms": latency_s(job, designs) * 1e3,
    }


def latency_s(job: Job, designs: PlanTable) -> float:
    """Returns the median CPU time of evaluating one design alone."""
    alone = [designs.take(slice(row, row + 1)) for row in range(min(100, len(designs)))]
    return median(cpu_seconds(partial(evaluate, job, design), 1) for design in alone)


def rate_by_the_clock(job: Job, designs: PlanTable, num_threads: int) -> float:
    """Returns designs per second of the given number of threads of this process, in wall-clock time."""
    set_num_threads(num_threads)
    seconds = []
    for _ in range(NUM_REPETITIONS + 1):
        started_s = time.perf_counter()
        evaluate(job, designs)
        seconds.append(time.perf_counter() - started_s)
    set_num_threads(1)
    return len(designs) / min(seconds[1:])


def rate_of_two_processes(job: Job, designs: PlanTable) -> float:
    """Returns designs per second of two processes, each with a part of the designs, in wall-clock time."""
    parts = [designs.take(rows) for rows in equal_parts(job, designs, 2)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        seconds = []
        for _ in range(NUM_REPETITIONS + 1):
            started_s = time.perf_counter()
            list(pool.map(_evaluated, [job] * len(parts), parts))
            seconds.append(time.perf_counter() - started_s)
    return len(designs) / min(seconds[1:])


def _evaluated(job: Job, designs: PlanTable) -> int:
    set_num_threads(1)
    return int(evaluate(job, designs).is_feasible.sum())


def growth_job(num_gpus: int, num_sequences: int) -> Job:
    """Returns GPT-3 on the given number of GPUs."""
    return job_on("gpt3-175b", 300e9, (2048, num_sequences), {**A100, "num_gpus": num_gpus})


def seconds_per_design(num_gpus: int, stages: int, micro_batches: int) -> float:
    """Returns the CPU time of a design with eight tensor ranks, as many replicas as fit, and one sequence at a time."""
    tensor = min(8, num_gpus // stages)
    replicas = num_gpus // (tensor * stages)
    plan = Plan(
        offer=0,
        num_gpus=num_gpus,
        tensor_parallel=tensor,
        pipeline_parallel=stages,
        data_parallel=replicas,
        checkpoint_interval_s=3600.0,
    )
    plans = PlanTable.from_plans([plan] * NUM_GROWTH)
    capped = PlanTable(**{**plans.columns(), "power_cap_fraction": np.linspace(0.6, 1.0, NUM_GROWTH)})  # type: ignore[arg-type]
    job = growth_job(num_gpus, replicas * micro_batches)
    return cpu_seconds(lambda: evaluate(job, capped)) / NUM_GROWTH


def growth() -> dict[str, dict[int, float]]:
    """Returns microseconds per design by the quantity that grows while the rest stays fixed."""
    gpus = [8, *(64 * 4**step for step in range(6)), 131_072]
    return {
        "num_gpus (8 stages, 16 micro-batches; 1 stage for 8)": {
            num: 1e6 * seconds_per_design(num, 8 if num >= 64 else 1, 16) for num in gpus
        },
        "stages (4,096 GPUs, 64 micro-batches)": {
            num: 1e6 * seconds_per_design(4096, num, 64) for num in (1, 2, 4, 8, 16, 32)
        },
        "micro-batches (4,096 GPUs, 8 stages)": {
            num: 1e6 * seconds_per_design(4096, 8, num) for num in (1, 4, 16, 64, 256, 1024)
        },
    }


def against_calculon(checkout: Path) -> Figures:
    """Returns both tools' rates on the layouts that both can express: medians over alternating runs."""
    job = next(iter(jobs().values()))
    layouts = feasible_designs(job, one_per_layout=True)
    plans, module = layouts.take(calculon.comparable_rows(layouts)), calculon.load(checkout)
    theirs, ours = [], []
    for _ in range(NUM_TURNS):
        rate, num_feasible = calculon.designs_per_s(module, checkout, job, plans)
        theirs.append(rate)
        ours.append(len(plans) / cpu_seconds(lambda: evaluate(job, plans)))
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    return {
        "num_layouts": len(plans),
        "calculon_feasible": num_feasible,
        "calculon_per_cpu_s": median(theirs),
        "capplan_per_cpu_s": median(ours),
        "ratio": median(ratios),
        "least_ratio": min(ratios),
        "largest_ratio": max(ratios),
    }


def measured(checkout: Path | None) -> dict[str, object]:
    """Returns everything that is measured, by title and name."""
    first = next(iter(jobs().values()))
    designs = feasible_designs(first, one_per_layout=False)
    modules = module_shares(lambda: evaluate(first, designs), NUM_REPETITIONS)
    figures: dict[str, object] = {
        "rates": {name: rates(job) for name, job in jobs().items()},
        "microseconds_per_design": growth(),
        "share_by_room": room_shares(modules),
        "share_by_module": {module: share for module, share in modules.items() if share >= 0.01},
    }
    return figures if checkout is None else {**figures, "calculon": against_calculon(checkout)}


def table_of(title: str, rows: dict[str, object]) -> Table:
    """Returns figures as a table."""
    table = Table("what", "figure", title=title)
    for name, value in rows.items():
        table.add_row(str(name), f"{value:,.4g}" if isinstance(value, float) else f"{value:,}")
    return table


def show(figures: dict[str, object], console: Console, title: str = "") -> None:
    """Writes nested figures as tables."""
    plain = {name: value for name, value in figures.items() if not isinstance(value, dict)}
    if plain:
        console.print(table_of(title, plain))
    for name, value in figures.items():
        if isinstance(value, dict):
            show(value, console, f"{title}: {name}" if title else str(name))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--calculon", type=Path, metavar="DIR", help="checkout of Calculon to compare with")
    arguments = parser.parse_args()
    set_num_threads(1)
    figures = measured(arguments.calculon)
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        show(figures, Console())


if __name__ == "__main__":
    main()
