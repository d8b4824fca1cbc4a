"""How large a fleet does a year of jobs need? Fleet sizes against jobs in sequence: `python examples/fleet_sizing.py`.

Each job runs alone on the whole fleet, with its fastest layout. A fleet suffices if the year's jobs fit into the year.
"""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from planner import Job, load_job, recommend

JOB = Path(__file__).parent / "llama-3.1-70b.yaml"
SIZES = (128, 256, 512, 1024)
YEAR_DAYS = 365.0
QUICK = (
    "search.num_refinements=0",
    "search.micro_batch_sizes=[1]",
    "search.zero_stages=[1]",
    "search.checkpoint_schemes=[async]",
    "search.with_spares=[true]",
)
"""Leaves out decisions that hardly affect the answer here, which shortens the search to seconds."""
JOBS = {
    "70B, twice": (2, ["workload.tokens=2e12"]),
    "8B, ten times": (10, ["workload.model=llama-3.1-8b", "workload.tokens=1e12"]),
    "70B at 32k, four times": (4, ["workload.tokens=2e11", "workload.sequence_length=32768"]),
}
"""The jobs of the year: how often each runs, and how it differs from the job of the example."""


def main() -> None:
    """Prints how many days of the year each size is busy, and what the year costs."""
    heads = [f"{name} (days)" for name in JOBS]
    table = Table("GPUs", *heads, "busy", "cost", "suffices")
    for size in SIZES:
        runs = {name: run_of(size, overrides) for name, (_, overrides) in JOBS.items()}
        days = {name: JOBS[name][0] * one_days for name, (one_days, _) in runs.items()}
        cost_usd = sum(JOBS[name][0] * one_usd for name, (_, one_usd) in runs.items())
        busy = sum(days.values())
        cells = [f"{days[name]:.0f}" for name in JOBS]
        suffices = "yes" if busy <= YEAR_DAYS else "no"
        table.add_row(f"{size:,}", *cells, f"{busy / YEAR_DAYS:.0%}", f"${cost_usd / 1e6:.1f} M", suffices)
    Console().print(table)


def run_of(size: int, overrides: list[str]) -> tuple[float, float]:
    """Returns days and cost of one job on the whole fleet; infinite if it cannot run."""
    best = recommend(job_on(size, overrides), seed=1, tracking=False).best
    return (best.time_to_train_days, best.cost_usd) if best else (float("inf"), float("inf"))


def job_on(size: int, overrides: list[str]) -> Job:
    """Returns a job of the year on an H100 fleet of one size."""
    fleet = ["limits=null", "objectives=[time_to_train]", f"offers[0].num_gpus={size}"]
    job = load_job(JOB, [*fleet, *QUICK, *overrides])
    return job.model_copy(update={"offers": job.offers[:1]})


if __name__ == "__main__":
    main()
