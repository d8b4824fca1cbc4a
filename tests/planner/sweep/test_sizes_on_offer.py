"""Which offers can have a size? Only those with as many nodes; a size that none can have is refused before anything runs."""

from __future__ import annotations

import pytest

from planner.sweep.grid import Sweep, run_sweep
from planner.sweep.table import sweep_rows
from simulator.errors import InputError

H100: dict[str, object] = {"accelerator": "h100-sxm5-80gb", "num_gpus": 8, "rent_usd_per_gpu_hour": 2.0}
A100: dict[str, object] = {"accelerator": "a100-sxm4-80gb", "num_gpus": 8, "rent_usd_per_gpu_hour": 1.0}


def sweep_of(*offers: dict[str, object], sizes: tuple[int, ...]) -> Sweep:
    job = {
        "workload": {
            "model": "llama-3.1-8b",
            "tokens": 2e12,
            "sequence_length": 8192,
            "global_batch_size": 256,
        },
        "offers": offers,
        "site": "us-iowa",
        "reliability": "harsh",
        "search": {"micro_batch_sizes": [1], "tensor_parallel": [1, 2], "pipeline_parallel": [1]},
    }
    return Sweep.model_validate(
        {"name": "test", "job": job, "num_gpus": sizes, "checkpoint_schemes": ["sync", "replica_ft"]}
    )


def test_an_offer_without_as_many_nodes_is_not_tried_at_a_size() -> None:
    sweep = sweep_of(H100 | {"max_nodes": 3}, A100, sizes=(16, 32))
    rows = sweep_rows(sweep, run_sweep(sweep))
    told = [(row["num_gpus"], row["accelerator"]) for row in rows if row["checkpoint_scheme"] == "sync"]
    assert told == [(16, "h100-sxm5-80gb"), (32, "a100-sxm4-80gb")]
    # Of the three nodes of the offer two train, so one is left, though failures would need more.
    assert rows[0]["num_spare_nodes"] == 1


def test_a_size_beyond_the_nodes_of_every_offer_is_refused() -> None:
    rule = r"num_gpus\[1\] = 32: must not exceed the accelerators that there are in the max_nodes of an offer: 24"
    sweep = sweep_of(H100 | {"max_nodes": 3}, A100 | {"max_nodes": 2}, sizes=(16, 32))
    with pytest.raises(InputError, match=rule):
        next(run_sweep(sweep))
