"""Which job file do the tests of job files start from, and how do they check refusals?"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.job.file import parse_job
from simulator.domain.job import Job
from simulator.errors import InputError

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    set((ROOT / "examples").glob("*.yaml")) - {ROOT / "examples" / "fleet.yaml"}
)  # jobs, not fleets

WORKLOAD: dict[str, object] = {
    "model": "llama-3.1-8b",
    "tokens": 1e12,
    "sequence_length": 8192,
    "global_batch_tokens": 4e6,
}
DOCUMENT: dict[str, object] = {
    "workload": WORKLOAD,
    "offers": [{"accelerator": "h100-sxm5-80gb", "num_gpus": {"min": 64, "max": 256}}],
    "site": "us-iowa",
}
CONFIG: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}


def changed(**sections: object) -> dict[str, object]:
    return {**copy.deepcopy(DOCUMENT), **sections}


def offered(**fields: object) -> dict[str, object]:
    return changed(offers=[{"accelerator": "h100-sxm5-80gb", "num_gpus": 64, **fields}])


def refusal(document: object, *overrides: str) -> str:
    with pytest.raises(InputError, match="problem") as caught:
        parse_job(document, overrides=overrides)  # type: ignore[arg-type] # some are not mappings on purpose
    return str(caught.value)


def job_or_error(make: Callable[[], Job]) -> Job | None:
    """Returns the job, or `None` after an `InputError` with a message; anything else fails the test."""
    try:
        return make()
    except InputError as error:
        message = str(error)
    assert message.splitlines()[0].endswith(("problem", "problems"))
    assert message.replace("\n", "").isprintable()
    return None
