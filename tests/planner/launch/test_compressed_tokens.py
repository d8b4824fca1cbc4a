"""Does Megatron-LM run DeepSeek-V4? Its main branch of August 2026 does not, and the answer says what is missing."""

from __future__ import annotations

import pytest

from planner.launch.answer import launch_plan
from simulator.errors import InputError
from tests.support import job_with

OFFER = {"accelerator": "b200-sxm-180gb", "num_gpus": 256, "rent_usd_per_gpu_hour": 2}
PLAN = {"pp": 8, "ep": 32, "dp": 32, "checkpoint_scheme": "async"}


def test_what_is_missing_is_named_all_at_once() -> None:
    job = job_with(OFFER, workload={"model": "deepseek-v4-flash", "global_batch_size": 512})
    with pytest.raises(InputError) as caught:
        launch_plan(job, PLAN)
    assert "compressed_attention.query_rank = 1024: Megatron-LM of August 2026 has no attention to" in str(
        caught.value
    )
    assert "hyper_connections.num_streams = 4: Megatron-LM's pretrain_gpt.py builds no layers" in str(
        caught.value
    )


@pytest.mark.parametrize("degree", ["tp", "cp"])
def test_ranks_that_share_heads_or_sequences_break_a_rule_of_layouts(degree: str) -> None:
    job = job_with(OFFER, workload={"model": "deepseek-v4-flash", "global_batch_size": 512})
    with pytest.raises(InputError, match="must be 1 beside compressed_attention"):
        launch_plan(job, {**PLAN, degree: 2, "dp": 16, "ep": 32})
