"""What does somebody at a terminal call the fields that a refusal names? Fields of the simulator, as options.

Commands differ in what is typed: the accelerators of a plan are the product of its degrees, those of played traces the files.
What a file says keeps the name that it has there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from simulator.errors import InputError

TRACE_OPTIONS: Mapping[str, str] = {
    "num_gpus": "--gpus",
    "data_parallel": "--parallel ddp",
    "tensor_parallel": "--parallel tp",
    "pipeline_parallel": "--parallel pp",
    "sync": "--parallel",
    "batch_size": "--batch-size",
    "num_microbatches": "--microbatches",
    "num_chunks": "--interleaved",
    "speed": "--speed",
    "collectives": "--collectives",
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
"""Options of the commands that divide an operator trace, by field."""
PLAYED_TRACES: Mapping[str, str] = {
    name: TRACE_OPTIONS[name] for name in ("collectives", "slow_links", "num_ports", "set_up_s")
} | {"num_gpus": "accelerators"}
"""Options of the command that plays Chakra traces, whose files say how many accelerators there are."""
PLAN_OPTIONS: Mapping[str, str] = {
    name: TRACE_OPTIONS[name] for name in ("collectives", "slow_links", "speed")
} | {kind: f"--slow-link {kind}" for kind in ("scale-up", "card", "leaf")}
"""Options of a plan at the deep depth."""

WORDS: Mapping[tuple[str, str], str] = {("sync", "sharded"): "fsdp"}
"""What is typed for a value of a field, where that is another word."""


@contextmanager
def options_named(options: Mapping[str, str]) -> Iterator[None]:
    """Lets refusals of what a command was asked name its options instead of fields."""
    try:
        yield
    except InputError as error:
        if not any(each.path in options for each in error.problems):
            raise
        if error.source and Path(error.source).exists():
            raise
        named = [
            replace(
                each,
                path=options.get(each.path, each.path),
                value=WORDS.get((each.path, each.value), each.value),
            )
            for each in error.problems
        ]
        raise InputError(named, error.source) from error
