"""How are traces reported? Replayed ones as text or JSON, with an event file for viewers; written ones by their size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from planner.deep.played_step import StepRun
    from simulator.deep.traces.trace import OperatorTrace
    from simulator.record import Record


def tell_played(
    run: StepRun,
    answer: Record,
    show: Callable[[Console], None],
    *,
    about: Mapping[str, str],
    file: Path | None,
    as_json: bool,
) -> None:
    """Prints an answer, and writes the events behind it if a file is named.

    Args:
        run: the replayed step.
        answer: the answer about it.
        show: prints the answer on a console.
        about: what the head of the file says about it.
        file: file for the events; none by default.
        as_json: whether the answer is printed as JSON.

    Raises:
        InputError: the file cannot be written.
    """
    from planner.cli.terminal.output import tell, tell_timeline
    from planner.deep.events import trace_entries
    from planner.timeline.file import write_entries

    tell(answer, show, as_json=as_json)
    if file is not None:
        write_entries(file, about, trace_entries(run), option="--output")
        tell_timeline(file)


def tell_chakra(first: Path, num_gpus: int, num_nodes: int) -> None:
    """Reports on stderr where Chakra traces are, named by the first of them, and how large they are."""
    from planner.text import human

    traces, nodes = human.counted(num_gpus, "trace"), human.counted(num_nodes, "node")
    click.echo(f"{traces} with {nodes}: {first}{' and beside it' if num_gpus > 1 else ''}", err=True)


def size_words(trace: OperatorTrace) -> str:
    """Returns the size of an operator trace: `57 operators in 16 layers, 0.112 s a step`."""
    from planner.text import human

    operators, layers = human.counted(len(trace), "operator"), human.counted(trace.num_layers, "layer")
    return f"{operators} in {layers}, {trace.single_device_s:.6g} s a step"
