"""How long does a model take that is trained in stages, each with a layout of its own? `python examples/training_stages.py`.

The stages are those of Llama 3 405B (arXiv 2407.21783, sections 3.4.1 and 3.4.2): the batch doubles after 2.87e12 tokens, and
at last sequences become long. Each stage is a job of its own on the same cluster, and begins with the checkpoint of the one
before, which another layout can read if it is saved as a distributed one.
"""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from planner import Design, Job, load_job, recommend

JOB = Path(__file__).parent / "llama-3.1-405b.yaml"
SIZES = (8192, 16384)
STAGES = {
    "batch of 8M tokens": {"tokens": 2.87e12, "sequence_length": 8192, "global_batch_tokens": 8e6},
    "batch of 16M tokens": {"tokens": 12.73e12, "sequence_length": 8192, "global_batch_tokens": 16e6},
    "sequences of 131,072": {"tokens": 0.8e12, "sequence_length": 131_072, "global_batch_tokens": 16e6},
}
"""The workload of each stage. The first 252 million tokens, of half the sequence and half the batch, take less than an hour.
Long sequences were reached in six steps, whose tokens are not published: here all have the last length, which takes longest."""
QUICK = (
    "limits=null",
    "objectives=[time_to_train]",
    "workload.global_batch_size=null",
    "search.num_refinements=0",
    "search.context_parallel=[1, 2, 4, 8, 16]",
    "search.checkpoint_schemes=[async]",
)
"""Asks for the fastest design of each stage; budget and deadline are for all stages together."""


def main() -> None:
    """Prints the layout of each stage on clusters of two sizes, and what all stages take together."""
    for size in SIZES:
        table = Table("stage", "layout", "days", "cost", "MFU", title=f"{size:,} GPUs")
        designs = [fastest(job_of(size, workload)) for workload in STAGES.values()]
        for name, design in zip(STAGES, designs, strict=True):
            figures = figures_of(design.time_to_train_days, design.cost_usd)
            table.add_row(name, layout_of(design), *figures, f"{design.mfu_fraction:.0%}")
        days, usd = sum(each.time_to_train_days for each in designs), sum(each.cost_usd for each in designs)
        table.add_row("all", "", *figures_of(days, usd), "", style="bold")
        Console().print(table)


def job_of(size: int, workload: dict[str, float]) -> Job:
    """Returns the job of a stage."""
    own = [f"workload.{field}={value}" for field, value in workload.items()]
    return load_job(JOB, [*QUICK, f"offers[0].num_gpus={size}", *own])


def fastest(job: Job) -> Design:
    """Returns the fastest design of a stage."""
    best = recommend(job, seed=1, tracking=False).best
    assert best  # some layout fits in every stage
    return best


def layout_of(design: Design) -> str:
    """Returns the degrees of a design, as `--plan` of other commands takes them."""
    plan = design.plan
    degrees = {"tp": plan.tensor_parallel, "pp": plan.pipeline_parallel, "cp": plan.context_parallel}
    return ",".join(f"{name}={degree}" for name, degree in {**degrees, "dp": plan.data_parallel}.items())


def figures_of(days: float, usd: float) -> tuple[str, str]:
    """Returns days and cost as text."""
    return f"{days:.1f}", f"${usd / 1e6:.1f} M"


if __name__ == "__main__":
    main()
