"""Is it told where whole blocks of a hybrid are not spread as evenly as they are simulated?"""

from __future__ import annotations

import re

import pytest

from planner import simulate_plan
from planner.notes.hybrid_note import hybrid_notes
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from tests.simulator.builders import job_of, plan_of, training


def of(model: str, *, tokens: int = 131_072) -> Job:
    return job_of(training(model, sequence_length=tokens, global_batch_size=32))


def told_percent(job: Job, plan: Plan) -> float:
    (note,) = hybrid_notes(job, plan)
    found = re.search(r"about ([\d.]+) % longer", note)
    assert found is not None
    return float(found[1])


def test_stages_with_more_attention_are_told_with_what_they_take() -> None:
    (note,) = hybrid_notes(of("qwen3-next-80b-a3b"), plan_of(pipeline=8, context=4, expert=8, data=8))
    assert note.startswith(
        "The 12 blocks that attend are simulated as spread evenly, 1.5 on each of 8 stages. With whole blocks, 1 or 2, the "
    )
    assert "about 13." in note  # as docs/model/hybrids.md says
    assert note.endswith("longer for a micro-batch (docs/model/hybrids.md).")


def test_long_sequences_make_the_difference() -> None:
    plan = plan_of(pipeline=8, context=4, expert=8, data=8)
    long, longer = (of("qwen3-next-80b-a3b", tokens=tokens) for tokens in (65_536, 262_144))
    assert told_percent(long, plan) < told_percent(longer, plan) < 100.0 / 3.0 + 0.1


def test_a_stage_can_be_slower_by_no_more_than_the_blocks_that_it_has_more() -> None:
    """Nemotron-H 8B: four blocks on eight stages, one or none, are at most twice the half block that is simulated."""
    assert 10.0 < told_percent(of("nemotron-h-8b"), plan_of(pipeline=8, tensor=2, data=2)) < 100.0


@pytest.mark.parametrize(
    ("model", "tokens", "plan"),
    [
        ("qwen3-next-80b-a3b", 131_072, plan_of(pipeline=4, context=4, expert=8, data=8)),  # three on each
        ("qwen3-next-80b-a3b", 131_072, plan_of(context=4, expert=8, data=8)),  # one stage
        ("llama-3.1-8b", 131_072, plan_of(pipeline=3)),  # no hybrid
    ],
)
def test_evenly_spread_blocks_are_not_told(model: str, tokens: int, plan: Plan) -> None:
    assert hybrid_notes(of(model, tokens=tokens), plan) == []


def test_an_answer_on_one_plan_has_the_note() -> None:
    job = of("nemotron-h-8b", tokens=32_768)
    answer = simulate_plan(job, plan_of(pipeline=8, tensor=2, data=4))
    assert any(warning.startswith("The 4 blocks that attend") for warning in answer.warnings)
