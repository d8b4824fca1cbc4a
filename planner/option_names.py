"""What does somebody at a terminal call the fields that a refusal names? Fields of the simulator, as options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from simulator.errors import InputError

OPTIONS: Mapping[str, str] = {
    "num_gpus": "--gpus",
    "data_parallel": "--parallel ddp",
    "tensor_parallel": "--parallel tp",
    "pipeline_parallel": "--parallel pp",
    "sync": "--parallel",
    "batch_size": "--batch-size",
    "num_microbatches": "--microbatches",
    "num_chunks": "--interleaved",
    "speed": "--speed",
    "ranks": "--collectives",
    "slow_links": "--slow-link",
    "num_ports": "--ports",
    "set_up_s": "--set-up",
    "capacity_bytes": "--offload memory",
    "tiers": "--offload",
    "graph": "--hop graph",
    "max_gap": "--hop gap",
    "num_backups": "--hop backups",
    "staleness": "--hop staleness",
    "skip_behind": "--hop skip",
}
"""Options of the commands on operator traces, by field."""


@contextmanager
def options_named() -> Iterator[None]:
    """Lets refusals of what is asked of a trace name options instead of fields."""
    try:
        yield
    except InputError as error:
        if not any(each.path in OPTIONS for each in error.problems):
            raise
        named = [replace(each, path=OPTIONS.get(each.path, each.path)) for each in error.problems]
        raise InputError(named, error.source) from error
