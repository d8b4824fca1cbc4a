"""On which jobs is the search measured? Two sets: one to look at while developing it, one to judge it afterwards.

`HELD_OUT` has other models, offers, limits and objectives than `SEEN`. Two of its jobs, BLOOM and 405B under tight carbon, were
looked at when the distances of `studies.searchers.ratio_model` were chosen. Nothing was chosen by the results on the other six.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from planner import Job, load_job
from planner.job.file import parse_job

EXAMPLES = Path(__file__).parents[1] / "examples"
FREE = ("limits.deadline_days=null", "limits.budget_usd=null")
STAGES = [1, 2, 3]
SCHEMES = ["sync_sharded", "async", "in_memory_peer", "gradient_assisted"]
"""More than a job tries that lists none: ZeRO stages, also in pipelines, and checkpoint schemes."""
WIDE = (
    f"search.zero_stages={STAGES}",
    f"search.checkpoint_schemes=[{', '.join(SCHEMES)}]",
    "search.memory_headroom_fraction=0",
)
"""Changes of a shipped job that make its space larger."""
H100, H200, A100, B200 = "h100-sxm5-80gb", "h200-sxm-141gb", "a100-sxm4-80gb", "b200-sxm-180gb"


def shipped(name: str, *changes: str) -> Job:
    """Returns a shipped job with a wider space, changed; its front is not refined."""
    return load_job(EXAMPLES / f"{name}.yaml", (*WIDE, *changes, "search.num_refinements=0"))


def written(
    model: str,
    tokens: float,
    batch: int,
    offers: dict[str, tuple[int, int, float]],
    objectives: list[str],
    *,
    sequence_length: int = 4096,
    site: str = "us-iowa",
    limits: dict[str, float] | None = None,
    **search: object,
) -> Job:
    """Returns a job of its own.

    Args:
        model: of the catalogue.
        tokens: to train on.
        batch: sequences of a step.
        offers: fewest and most accelerators, and rent in USD per hour, by name of the accelerator.
        objectives: what is to be small.
        sequence_length: tokens of a sequence.
        site: where all offers are.
        limits: by their names.
        search: fields of the search.
    """
    return parse_job(
        {
            "workload": {
                "model": model,
                "tokens": tokens,
                "sequence_length": sequence_length,
                "global_batch_size": batch,
            },
            "offers": [
                {
                    "accelerator": name,
                    "num_gpus": {"min": fewest, "max": most},
                    "rent_usd_per_gpu_hour": rent,
                }
                for name, (fewest, most, rent) in offers.items()
            ],
            "site": site,
            "objectives": objectives,
            "limits": limits or {},
            "search": {"num_refinements": 0, "zero_stages": STAGES, "checkpoint_schemes": SCHEMES, **search},
        }
    )


SEEN: dict[str, Callable[[], Job]] = {
    "70B, 3 objectives, its own limits": lambda: shipped("llama-3.1-70b"),
    "70B, 3 objectives, tight": lambda: shipped(
        "llama-3.1-70b",
        "limits.deadline_days=30",
        "limits.budget_usd=1.9e6",
        "limits.carbon_kgco2e=400e3",
    ),
    "70B, 2 objectives, no limits": lambda: shipped(
        "llama-3.1-70b", *FREE, "objectives=[time_to_train, cost]", "search.micro_batch_sizes=[1, 2]"
    ),
    "405B, 4 objectives, no deadline": lambda: shipped(
        "llama-3.1-405b", "limits.deadline_days=null", "objectives=[time_to_train, cost, energy, carbon]"
    ),
    "405B, 2 objectives, tight power": lambda: shipped(
        "llama-3.1-405b",
        "limits.power_w=11e6",
        "limits.deadline_days=null",
        "objectives=[time_to_train, energy]",
    ),
    "70B, 4 objectives, loose": lambda: shipped(
        "llama-3.1-70b",
        "limits.deadline_days=120",
        "limits.budget_usd=4e6",
        "search.micro_batch_sizes=[1, 2]",
        "objectives=[time_to_train, cost, energy, carbon]",
    ),
}
"""Jobs that the search was developed with."""

HELD_OUT: dict[str, Callable[[], Job]] = {
    "8B, 2 objectives, tight": lambda: written(
        "llama-3.1-8b",
        1e12,
        512,
        {H100: (32, 256, 2.6), A100: (32, 256, 1.2)},
        ["time_to_train", "cost"],
        sequence_length=8192,
        limits={"budget_usd": 170_000.0, "deadline_days": 45.0},
    ),
    "8B, 3 objectives, three offers": lambda: written(
        "llama-3.1-8b",
        2e12,
        1024,
        {H100: (64, 512, 2.6), H200: (64, 512, 3.2), A100: (64, 512, 1.2)},
        ["time_to_train", "cost", "energy"],
        site="france",
    ),
    "Mixtral, 3 objectives, experts": lambda: written(
        "mixtral-8x7b",
        1e12,
        1024,
        {H100: (64, 512, 2.6)},
        ["time_to_train", "cost", "carbon"],
        limits={"deadline_days": 40.0},
    ),
    "GPT-3, 2 objectives, power": lambda: written(
        "gpt3-175b",
        3e11,
        1536,
        {A100: (256, 1536, 1.3)},
        ["time_to_train", "energy"],
        sequence_length=2048,
        limits={"power_w": 600e3},
        micro_batch_sizes=[1, 2, 4],
    ),
    "70B on B200, late runs, chance": lambda: written(
        "llama-3.1-70b",
        3e12,
        1024,
        {B200: (64, 512, 5.0), H200: (128, 1024, 3.2)},
        ["time_to_train_p95", "cost_p95"],
        sequence_length=8192,
        site="norway",
        limits={"deadline_days": 60.0, "deadline_probability": 0.9, "budget_usd": 2.6e6},
    ),
    "BLOOM, 4 objectives, free layout": lambda: shipped(
        "bloom-176b",
        "limits.deadline_days=160",
        "search.virtual_pipeline=null",
        "search.recompute=[none, full]",
        "search.checkpoint_schemes=[sync_sharded, async]",
    ),
    "70B, risk of missing the deadline": lambda: written(
        "llama-2-70b",
        2e12,
        1024,
        {H100: (256, 1024, 2.6), A100: (256, 2048, 1.2)},
        ["cost", "deadline_risk"],
        limits={"deadline_days": 50.0},
    ),
    "405B, 3 objectives, tight carbon": lambda: shipped(
        "llama-3.1-405b",
        "limits.carbon_kgco2e=12e6",
        "limits.deadline_days=100",
        "search.checkpoint_schemes=[async, in_memory_peer, local_nvme, tiered]",
    ),
}
"""Jobs on which it is judged."""
