"""What do tests of several packages share? Small jobs and plans from the catalogue, which each test may change, and cases."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

import pytest

from planner.job.file import parse_job
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable

H100_RENTED: Mapping[str, object] = {
    "accelerator": "h100-sxm5-80gb",
    "num_gpus": {"min": 16, "max": 64},
    "rent_usd_per_gpu_hour": {"low": 2.0, "mid": 2.5, "high": 4.0},
}
H100_BOUGHT: Mapping[str, object] = {
    "accelerator": "h100-sxm5-80gb",
    "num_gpus": {"min": 16, "max": 64},
    "purchase_usd_per_node": {"low": 250e3, "mid": 300e3, "high": 400e3},
}
A100_RENTED: Mapping[str, object] = {
    "accelerator": "a100-sxm4-80gb",
    "num_gpus": {"min": 16, "max": 64},
    "rent_usd_per_gpu_hour": 1.3,
}


SECTIONS: Mapping[str, Mapping[str, object]] = {
    "workload": {
        "model": "llama-3.1-8b",
        "tokens": 5e10,
        "sequence_length": 8192,
        "global_batch_size": 64,
    },
    "search": {"micro_batch_sizes": [1, 2], "num_refinements": 0},
}


def job_with(*offers: Mapping[str, object], **sections: object) -> Job:
    """Returns the job of `document_with`."""
    return parse_job(document_with(*offers, **sections))


def document_with(*offers: Mapping[str, object], **sections: object) -> dict[str, object]:
    """Returns a job on a few H100 that trains Llama 3.1 8B, with some of its sections replaced, as in a job file.

    Args:
        *offers: offers as in a job file; by default H100 for rent.
        **sections: sections of a job file, such as `limits`; for `workload` and `search`, only the fields that differ.
    """
    document: dict[str, object] = {
        "offers": [dict(offer) for offer in offers or (H100_RENTED,)],
        "site": "us-iowa",
        **SECTIONS,
        **sections,
    }
    for name, usual in SECTIONS.items():
        differs = document[name]
        assert isinstance(differs, Mapping)
        document[name] = {**usual, **differs}
    return document


def plans_with(*rows: Mapping[str, object]) -> PlanTable:
    """Returns plans for the first offer, on one node of eight unless a row differs; data parallelism follows."""
    from simulator.domain.plan import Plan

    plans = []
    for row in rows:
        degrees = [int(str(row.get(f"{name}_parallel", 1))) for name in ("tensor", "pipeline", "context")]
        split = degrees[0] * degrees[1] * degrees[2]
        num_gpus = int(str(row.get("num_gpus", 8)))
        columns = {"offer": 0, "num_gpus": num_gpus, "data_parallel": max(1, num_gpus // split), **row}
        plans.append(Plan.model_validate(columns))
    return PlanTable.from_plans(plans)


def cases_of(cases: Iterable[object], *, long: Collection[object]) -> list[object]:
    """Returns the cases of a test, of which those in `long` are left out without `-m long`."""
    cases = list(cases)
    assert all(case in cases for case in long), f"{long} are not among {cases}"
    return [pytest.param(case, marks=pytest.mark.long if case in long else ()) for case in cases]


def without_numbers(text: str) -> str:
    """Returns a text with a sign in place of every number, to compare words whose figures may move."""
    return re.sub(r"[+-]?\d+(\.\d+)?", "#", text)
