"""What do you type to trace a training step of your own? `capplan trace capture` with the training script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.terminal.help import examples
from planner.cli.trace.answer import size_words
from planner.cli.trace.options import trace_file_option

if TYPE_CHECKING:
    from planner.trace.capture import Captured

COMPILED = "Torch-Compiled Region"
"""How PyTorch's profiler names what torch.compile has made of some layers (`torch._dynamo.convert_frame`)."""


@click.command(
    short_help="Run a PyTorch training script, and trace one step of it.",
    epilog=examples(
        "capplan trace capture train.py --batch-size 32 --output step-trace.json",
        "capplan trace capture --batch-size 32 -o step-trace.json train.py -- --model small --epochs 1",
    ),
)
@click.argument("script", type=click.Path(path_type=Path), metavar="SCRIPT.py")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENT...]")
@click.option(
    "--batch-size",
    type=click.IntRange(1, 10**9),
    required=True,
    metavar="N",
    help="Samples per iteration of the script.",
)
@click.option(
    "--skip",
    type=click.IntRange(2, 10**6),
    default=5,
    show_default=True,
    metavar="N",
    help="Warm-up iterations.",
)
@click.option(
    "--iterations",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    metavar="N",
    help="Iterations to time; the median one is kept.",
)
@trace_file_option("-o", "--output")
def capture(
    *, script: Path, arguments: tuple[str, ...], batch_size: int, skip: int, iterations: int, file: Path
) -> None:
    """Run SCRIPT as `python SCRIPT ARGUMENT...` would, on one device, and trace a few of its iterations.

    An iteration ends with a step of a torch.optim optimizer. After --skip and --iterations, one more iteration is run to
    record the tensors; then the script is stopped as by Ctrl-C. Needs PyTorch (capplan[torch]). The output of the script is
    not changed; if it fails, its traceback is shown above the message.

    Exit codes: 0 the trace is written; 1 the script failed, or there is no PyTorch; 2 broken input, such as no script, one
    that takes no step of an optimizer, or too few.
    """
    from planner.cli.terminal.output import quiet_libraries
    from planner.trace.capture import CaptureRequest
    from planner.trace.capture import capture as captured_of

    request = CaptureRequest(
        script=script,
        arguments=arguments,
        batch_size=batch_size,
        num_skipped=skip,
        num_profiled=iterations,
    )
    with quiet_libraries():
        found = captured_of(request, file)
    for line in _told(found, file):
        click.echo(line, err=True)


def _told(found: Captured, file: Path) -> list[str]:
    """What was captured, in words."""
    trace, each_s = found.trace, found.operators_s
    spread = f"median of {len(each_s)}: {each_s.min():.6g} to {each_s.max():.6g}"
    lines = [f"{file}: {size_words(trace)} ({spread})"]
    if found.clock_s is not None:
        lines.append(f"On the clock an iteration took {found.clock_s:.6g} s before it was profiled.")
    if found.num_backward_a_step > 1:
        note = (
            f"One iteration has {found.num_backward_a_step} backward passes, and all that comes after the first of them "
            "counts as backward: trace one without accumulating gradients before you spread it as a pipeline."
        )
        lines.append(note)
    if any(name.startswith(COMPILED) for name in trace.names):
        note = (
            "torch.compile joins the layers that it compiles into one operator, which no pipeline can divide: with "
            "TORCH_COMPILE_DISABLE=1 in the environment they are captured one by one, as they run without it."
        )
        lines.append(note)
    return lines
