"""Which fields of a job file need or exclude each other? Examples that break one rule each, with the program's message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from docs.markdown import row_of_text
from planner.job.file import parse_job
from simulator.errors import InputError

JOB: Mapping[str, object] = {
    "workload": {
        "model": "llama-3.1-8b",
        "tokens": 1e12,
        "sequence_length": 8192,
        "global_batch_tokens": 4e6,
    },
    "offers": [{"accelerator": "h100-sxm5-80gb", "num_gpus": {"min": 64, "max": 256}}],
    "site": "us-iowa",
}
"""The job that each example changes; it breaks no rule itself."""
_OWN_SITE = "{region: mars, grid_kgco2e_per_kwh: 0.1, electricity_usd_per_kwh: 0.1}"
_GRID_PROFILE = "{region: us-iowa, grid_kgco2e_per_kwh: 0.5, grid_profile: {mean: 0.3, daily_amplitude: 0.1}}"
_RENT, _NODE = "offers[0].rent_usd_per_gpu_hour", "offers[0].purchase_usd_per_node"
EXAMPLES: tuple[tuple[str, ...], ...] = (
    ("workload.global_batch_size=512",),
    ("workload.tokens=1e6",),
    ("workload.stage_layers=[16, 15]",),
    ("workload.documents={mean_tokens: 700, lengths_tokens: [512, 2048]}",),
    ("workload.documents={lengths_tokens: [512, 2048], frequencies: [1]}",),
    ("workload.documents={lengths_tokens: [512, 2048], imbalance: 50}",),
    ("workload.recompute_modules=[mla_up_proj]",),
    ("workload.selective_recompute=every_other_product", "workload.recompute_modules=[core_attn, mlp]"),
    ("workload.overlaps_gradient_sync=false", "workload.overlaps_parameter_gather=true"),
    ("workload.keeps_cast_weights=true", "workload.gathers_cast_weights=true"),
    ("workload.overlaps_shared_experts=true", "workload.overlaps_expert_exchange=true"),
    ("workload.model=nemotron-3-super-120b-a12b", "workload.overlaps_shared_experts=true"),
    ("workload.model=mixtral-8x7b", "workload.expert_imbalance=5"),
    ("workload.model.num_heads=60",),
    ("workload.model=deepseek-v3.2", "workload.model.experts.num_experts=60"),
    ("workload.precisions=[fp4]",),
    ("offers[0].num_gpus={min: 65, max: 70}",),
    (f"{_RENT}=2.5", f"{_NODE}=280000"),
    (f"{_RENT}={{low: 3, mid: 2, high: 4}}",),
    (f"{_RENT}=spot",),
    (f"{_RENT}=reserved_1y", "offers[0].commitment_days=100"),
    (f"{_NODE}=280000", "offers[0].commitment_days=30"),
    (f"{_NODE}=280000", "offers[0].other_purchase_usd_per_node=250000"),
    ("offers[0].node=dgx-a100-640",),
    (f"site={_OWN_SITE}",),
    (f"site={_GRID_PROFILE}",),
    ("site={region: us-iowa, grid_profile: [0.1, 0.2]}",),
    ("limits.num_gpus=32",),
    ("limits.deadline_probability=0.9",),
    ("objectives=[cost, budget_risk]",),
    ("preference={energy: 2}",),
    ("reliability={repair_days: 1}",),
    ("reliability={preset: typical, straggler_log_mean: -2, stragglers: shared}",),
    ("checkpointing={interval_s: 600, interval_steps: 10}",),
    ("ownership.age_years=2",),
    ("ownership={depreciation: economic, residual_fraction: 0.1}",),
    ("carbon_scope.storage=true",),
    ("search.power_caps=[0.8]", "operation.power_floor_fraction=0.9"),
    ("search.tensor_parallel=[]",),
    ("search.tensor_parallel=[8, 8]",),
    ("what_if.pauses=[{by: carbon, hours_fraction: 0.1}]",),
    ("what_if.start_within_hours=10",),
    ("what_if.refresh_from=a100-sxm4-80gb",),
    ("what_if.power_caps=[0.8, 0.8]",),
)
"""Overrides of the job, each breaking one rule between fields, in the order of the page."""


def rules_section() -> str:
    """Returns the section with every example and the message that refuses it."""
    rows = [row_of_text((_code(overrides), sentence)) for overrides, sentence in refusals()]
    return "\n".join([_HEAD, *rows, ""])


def refusals() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields every example with the program's message.

    Raises:
        ValueError: an example breaks no rule, or more than one.
    """
    for overrides in EXAMPLES:
        try:
            parse_job(JOB, overrides=overrides)
        except InputError as error:
            if len(error.problems) != 1:
                raise ValueError(f"{overrides} breaks more than one rule: {error}") from None
            yield overrides, str(error.problems[0])
        else:
            raise ValueError(f"{overrides} breaks no rule")


def _code(overrides: tuple[str, ...]) -> str:
    return " ".join(f"`{override}`" for override in overrides)


_HEAD = """\
## Fields that need or exclude each other

What capplan says of a job with 64 to 256 H100 (`h100-sxm5-80gb`) for `llama-3.1-8b` that is otherwise in order:

| in the job | answer |
|---|---|"""
