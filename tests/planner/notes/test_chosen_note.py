"""Do answers say where kernels for chosen tokens are missing, run otherwise, or choose nothing?"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from planner.notes.chosen_note import chosen_notes
from simulator.domain.documents import Documents
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan
from tests.simulator.builders import changed, job_of, plan_of, rented, training
from tests.simulator.sparse import DENSE, INDEXER, LATENTS, SMALL, with_indexer

B200, H100 = "b200-sxm-180gb", "h100-sxm5-80gb"
NARROW = with_indexer(changed(DENSE, latent_attention=changed(LATENTS, key_value_rank=256)), INDEXER)
SHARED = with_indexer(SMALL, changed(INDEXER, layer_step=2))


def told(
    model: ModelShape = SMALL,
    plan: Plan | None = None,
    choices: Mapping[str, object] = MappingProxyType({}),
    accelerator: str = B200,
) -> list[str]:
    workload = changed(training(model, sequence_length=8192), **choices)
    return chosen_notes(job_of(workload, rented(accelerator)), plan or plan_of())


def test_usual_plans_and_other_models_have_no_note() -> None:
    assert told() == []
    assert told(DENSE, plan_of(context=8)) == []


@pytest.mark.parametrize(
    ("model", "plan", "choices", "why"),
    [
        (SMALL, plan_of(context=2), {}, "ranks share sequences"),
        (SHARED, plan_of(), {}, "layers share an indexer"),
        (SMALL, plan_of(), {"documents": Documents(mean_tokens=2048.0)}, "documents are packed"),
        (SMALL, plan_of(), {"sequence_length": 16_385}, "scores take more than 1 GiB"),
        (SMALL, plan_of(micro_batch=5), {}, "scores take more than 1 GiB"),
    ],
)
def test_scores_that_are_computed_head_by_head(
    model: ModelShape, plan: Plan, choices: dict[str, object], why: str
) -> None:
    (note,) = told(model, plan, choices)
    assert f"head by head in 32 bits where {why}" in note


def test_scores_of_one_gibibyte_are_computed_at_once() -> None:
    assert told(choices={"sequence_length": 16_384}) == []


@pytest.mark.parametrize(
    ("model", "accelerator", "rule"),
    [
        (SMALL, "a100-sxm4-80gb", "offers[0].accelerator = a100-sxm4-80gb Megatron-LM has fused attention"),
        (changed(SMALL, num_heads=48, num_kv_heads=48), H100, "leaves 48 heads to a rank"),
        (NARROW, B200, "key_value_rank = 256 must be 512"),
    ],
)
def test_kernels_that_are_missing(model: ModelShape, accelerator: str, rule: str) -> None:
    (note,) = told(model, plan_of(context=2), accelerator=accelerator)
    assert "has no kernels for this attention as simulated" in note
    assert rule in note


@pytest.mark.parametrize(("length", "is_told"), [(1023, True), (1024, True), (1025, False)])
def test_an_indexer_that_chooses_all_tokens(length: int, is_told: bool) -> None:
    notes = told(choices={"sequence_length": length})
    assert any("The indexer chooses nothing: 1,024 tokens" in note for note in notes) is is_told
