"""Which option stands for an argument or field that a message names? Messages at a terminal name options instead.

The options depend on the command: the number of accelerators is the product of a plan's degrees, or the number of traces that
are replayed. Fields that come from a file keep the names that they have there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from planner.cli.options.given import option
from simulator.argument_names import Argument, told
from simulator.errors import CapplanError, InputError, Problem

OTHERWISE_TYPED: Mapping[str, str] = {
    "constraint": "CONSTRAINT",
    "file": "FILE",
    "folder": "FOLDER",
    "max_gap": "--hop gap",
    "name": "NAME",
    "num_gpus": "--gpus",
    "num_chunks": "--interleaved",
    "num_microbatches": "--microbatches",
    "overrides": "--set",
    "paths": "NAME",
    "period_s": "--every",
    "script": "SCRIPT",
    "slow_links": "--slow-link",
    "speeds": "--speed",
}
"""The option for each argument whose option has another name."""

TRACE_FIELDS: Mapping[str, str] = {
    "num_gpus": "--gpus",
    "data_parallel": "--parallel ddp",
    "tensor_parallel": "--parallel tp",
    "pipeline_parallel": "--parallel pp",
    "sync": "--parallel",
    "network": "--network",
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
"""Options of the commands that divide an operator trace, by the simulator's field."""
PLAYED_TRACES: Mapping[str, str] = {
    name: TRACE_FIELDS[name] for name in ("collectives", "slow_links", "num_ports", "set_up_s")
} | {"num_gpus": "accelerators"}
"""Options of the command that replays Chakra traces, whose number of files is the number of accelerators."""
PLAN_FIELDS: Mapping[str, str] = {
    name: TRACE_FIELDS[name] for name in ("collectives", "slow_links", "speed")
} | {kind: f"--slow-link {kind}" for kind in ("scale-up", "card", "leaf")}
"""Options of a plan at the deep depth."""

VALUES: Mapping[tuple[str, str], str] = {("sync", "sharded"): "fsdp"}
"""The word to type for a value of a field, if it differs."""


def as_typed(argument: Argument) -> str:
    """Returns the option for an argument, with the value that it should have.

    Example:
        >>> as_typed(Argument("rules", "triosim")), as_typed(Argument("tracking", "False"))
        ('--rules triosim', '--no-tracking')
    """
    if argument.value == "False":
        return option(f"no_{argument.name}")
    named = OTHERWISE_TYPED.get(argument.name) or option(argument.name)
    return f"{named} {argument.value}" if argument.value else named


def message_of(error: BaseException) -> str:
    """Returns the message of an error, with options in the place of arguments."""
    return error.told(as_typed) if isinstance(error, CapplanError) else str(error)


def in_options(text: str) -> str:
    """Returns a text with options in the place of arguments."""
    return told(text, as_typed)


@contextmanager
def options_named(fields: Mapping[str, str]) -> Iterator[None]:
    """Makes errors about a command's input name its options instead of the simulator's fields."""
    try:
        yield
    except InputError as error:
        named = [_of_option(problem, fields) for problem in error.problems]
        if named == list(error.problems) or (error.source and Path(error.source).exists()):
            raise
        raise type(error)(named, error.source) from error


def _of_option(problem: Problem, fields: Mapping[str, str]) -> Problem:
    name, bracket, entry = problem.path.partition("[")
    if name not in fields:
        return problem
    value = VALUES.get((name, problem.value), problem.value)
    return replace(problem, path=f"{fields[name]}{bracket}{entry}", value=value)
