"""What is told of plans of DeepSeek-V4?"""

from __future__ import annotations

import pytest

from planner.notes.compressed_note import compressed_notes
from simulator.domain.plan import Plan, Recompute
from tests.simulator.builders import changed, gpt, job_of, plan_of, training
from tests.simulator.compressed import DENSE


def told(plan: Plan | None = None, *, length: int = 8192, **choices: object) -> str:
    workload = changed(training(DENSE, sequence_length=length), **choices)
    return "\n".join(compressed_notes(job_of(workload), plan or plan_of()))


def test_other_attention_has_no_such_notes() -> None:
    assert compressed_notes(job_of(training(gpt())), plan_of()) == []


def test_what_no_released_software_runs_is_told() -> None:
    assert told().startswith("Megatron-LM's main branch of August 2026 has no attention to compressed tokens")


@pytest.mark.parametrize(("length", "is_told"), [(1024, True), (1025, False)])
def test_an_indexer_that_chooses_nothing_is_told(length: int, is_told: bool) -> None:
    """256 compressed tokens of 4 each."""
    assert ("The indexer chooses nothing: 256 compressed tokens are all" in told(length=length)) == is_told


def test_recomputation_of_nothing_is_told() -> None:
    plan = plan_of(recompute=Recompute.SELECTIVE)
    assert "Selective recomputation computes nothing again" in told(plan)
    assert "computes nothing again" not in told(plan, recompute_modules=("mla_up_proj",))
    assert "computes nothing again" not in told()
