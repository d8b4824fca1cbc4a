"""What does somebody at a terminal call the fields that a refusal names? Fields of the simulator, as options.

Commands differ in what is typed: the accelerators of a plan are the product of its degrees, those of played traces the files.
What a file says keeps the name that it has there.
"""

from __future__ import annotations

import re
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
    "parallel": "--parallel",
    "order": "--order",
    "trace_batch_size": "--trace-batch-size",
    "speeds": "--speed",
    "network": "--network",
    "times": "--times",
    "rules": "--rules",
    "on": "--on",
    "hop": "--hop",
    "offload": "--offload",
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

ARGUMENTS: Mapping[str, str] = {
    name: f"--{name.replace('_', '-')}"
    for name in ("tracking_uri", "output", "plan", "html", "timeline", "start")
}
"""Options of all commands, by the argument of the function that refuses what they say."""
_OVERRIDE = re.compile(r"overrides\[\d+\]")
_IN_MESSAGES: Mapping[str, str] = {
    "(tracking_uri)": "(--tracking-uri)",
    "tracking=False": "--no-tracking",
    "period_s=3600": "--every 3600",
    "accelerator=NAME": "--accelerator NAME",
}
"""How messages name arguments in their words, and what is typed."""
_IN_RULES: Mapping[str, str] = {
    "num_gpus is": "--gpus is",
    "give num_microbatches": "give --microbatches",
    "needs traced_on": "needs --traced-on",
    "with on=": "with --on",
    "parallel=hop": "--parallel hop",
    "rules=triosim": "--rules triosim",
}
"""The same in rules of the commands that divide an operator trace."""

WORDS: Mapping[tuple[str, str], str] = {("sync", "sharded"): "fsdp"}
"""What is typed for a value of a field, where that is another word."""


@contextmanager
def options_named(options: Mapping[str, str]) -> Iterator[None]:
    """Lets refusals of what a command was asked name its options instead of fields."""
    try:
        yield
    except InputError as error:
        if all(each.path == _typed(each.path, options) for each in error.problems):
            raise
        if error.source and Path(error.source).exists():
            raise
        named = [
            replace(
                each,
                path=_typed(each.path, options),
                value=WORDS.get((each.path, each.value), each.value),
                rule=_replaced(each.rule, _IN_RULES),
            )
            for each in error.problems
        ]
        raise InputError(named, error.source) from error


def message_of(error: BaseException) -> str:
    """Returns the message of an error with options instead of arguments; problems of a file keep the names that it has."""
    if not isinstance(error, InputError):
        return in_options(str(error))
    options = {} if error.source else ARGUMENTS
    named = [
        replace(each, path=_OVERRIDE.sub("--set", _typed(each.path, options)), rule=in_options(each.rule))
        for each in error.problems
    ]
    return str(InputError(named, ARGUMENTS.get(error.source, error.source)))


def in_options(message: str) -> str:
    """Returns a message with options instead of the arguments in its words."""
    return _replaced(message, _IN_MESSAGES)


def _typed(path: str, options: Mapping[str, str]) -> str:
    """The option of a field, or of one of the keys that it has: `hop gap`."""
    name, blank, key = path.partition(" ")
    return options.get(path) or options.get(name, name) + blank + key


def _replaced(text: str, words: Mapping[str, str]) -> str:
    for argument, option in words.items():
        text = text.replace(argument, option)
    return text
