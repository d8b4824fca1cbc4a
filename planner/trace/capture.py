"""What does a user's training script do on this machine? The script is run and profiled, and one step becomes a trace.

The script runs in a process of its own (`planner.trace.capture_script`): nothing of capplan is loaded there, and a crash of
the script affects only that process. Of the profiled iterations the one of median length is kept. Intermediate files are in a
temporary folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from planner import __version__
from planner.trace import capture_script as trace_capture_script
from planner.trace.capture_script import GRAPH, OUTCOME, PROFILE
from planner.trace.export import check_trace_target
from simulator.argument_names import Argument
from simulator.deep.traces.kineto import read_steps
from simulator.deep.traces.profiled_trace import joined
from simulator.deep.traces.trace import OperatorTrace
from simulator.deep.traces.trace_file import write_trace_file
from simulator.errors import CapplanError, InputError, Problem
from simulator.record import Record
from simulator.table import Floats

_QUIET = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Keeps the messages of PyTorch's own observers out of the script's output."""


@dataclass(frozen=True, kw_only=True)
class CaptureRequest:
    """A request to capture one step of a script."""

    script: Path
    arguments: tuple[str, ...] = ()
    """Arguments of the script."""
    batch_size: int
    """Number of samples in an iteration."""
    num_skipped: int = 5
    """Number of iterations before anything is observed; at least two."""
    num_profiled: int = 5
    """Number of iterations whose operators are timed."""

    @property
    def num_needed(self) -> int:
        """Number of iterations that the script must run; one is for the tensors."""
        return self.num_skipped + 1 + self.num_profiled


class Outcome(Record):
    """How a script ended, as `planner.trace.capture_script` writes it."""

    failure: str
    """How it failed; empty if it did not."""
    has_all: bool
    """Whether everything was observed, however the script ended afterwards."""
    num_steps: int
    """Number of steps of all optimizers."""
    num_iterations: int
    num_backward_a_step: int
    """Number of backward passes in the iteration whose tensors were recorded."""
    clock_s: tuple[float, ...]
    """Wall-clock time of each skipped iteration."""
    torch_version: str
    """Version of PyTorch; empty if the script did not import it."""
    device: str


@dataclass(frozen=True, kw_only=True)
class Captured:
    """A step of a script."""

    trace: OperatorTrace
    operators_s: Floats
    """`(num_profiled,)` total time of each iteration's operators, one after another."""
    clock_s: float | None
    """Median wall-clock time of the skipped iterations, before the profiler slowed them; None: too few were skipped."""
    num_backward_a_step: int
    """Backward passes of one iteration; above 1 the script accumulates gradients, or has several losses."""


def capture(request: CaptureRequest, file: Path) -> Captured:
    """Runs a script, and writes one of its iterations as a trace.

    Args:
        request: the script, and which of its iterations to observe.
        file: the trace; an older trace is replaced.

    Raises:
        InputError: there is no such script, it runs too few iterations, or `file` is something else than a trace.
        CapplanError: PyTorch is not installed, the script failed, or no trace can be made of what was observed.
    """
    check_trace_target(file)
    if not request.script.is_file():
        raise _broken(request, "is no file: give the Python script that trains")
    if find_spec("torch") is None:
        raise CapplanError(
            "capturing a step needs PyTorch beside capplan: install capplan[torch] into the environment of the script"
        )
    with tempfile.TemporaryDirectory(prefix="capplan-") as scratch:
        folder = Path(scratch)
        outcome = _run(request, folder)
        _check(request, outcome)
        try:
            captured = _captured(request, outcome, folder, name=file.name.partition(".")[0])
        except InputError as error:  # about temporary files, which are gone by then
            problems = "; ".join(str(problem) for problem in error.problems)
            told = f"what PyTorch {outcome.torch_version} told of {request.script.name} makes no trace"
            raise CapplanError(f"{told}: {problems}") from error
    write_trace_file(captured.trace, file)
    return captured


def _run(request: CaptureRequest, folder: Path) -> Outcome:
    """Runs the script until enough has been observed."""
    numbers = [str(request.num_skipped), str(request.num_profiled)]
    command = [sys.executable, trace_capture_script.__file__, str(folder), *numbers, str(request.script)]
    ended = subprocess.run(  # noqa: S603 # the user's own script
        [*command, *request.arguments], env={**_QUIET, **os.environ}, check=False
    )
    try:
        return Outcome.model_validate_json((folder / OUTCOME).read_bytes())
    except FileNotFoundError:
        death = _death(ended.returncode)
        raise CapplanError(f"{request.script.name} died: {death}; nothing is written") from None


def _check(request: CaptureRequest, outcome: Outcome) -> None:
    """Raises if a script failed before enough was observed, or if there was too little to observe."""
    name = request.script.name
    if outcome.has_all:
        return
    after = (
        f"after {outcome.num_iterations} iterations"
        if outcome.num_iterations
        else "before the second iteration"
    )
    if outcome.failure:
        raise CapplanError(f"{name} failed {after}: {outcome.failure}; nothing is written")
    if not outcome.torch_version:
        raise _broken(request, "ended without importing torch: give a script that trains")
    if not outcome.num_steps:
        rule = (
            "ended without a step of an optimizer of torch.optim: give a script that trains in its own process "
            "(one process, where it would start several)"
        )
        raise _broken(request, rule)
    rule = (
        f"ended {after}, and {request.num_needed} are needed ({request.num_skipped} to skip, 1 for the tensors, "
        f"{request.num_profiled} to time): let it run longer, or leave out or time fewer"
    )
    raise _broken(request, rule)


def _death(code: int) -> str:
    if code >= 0:
        return f"its process ended with code {code}"
    try:
        return f"its process was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"its process was ended by signal {-code}"


def _captured(request: CaptureRequest, outcome: Outcome, folder: Path, *, name: str) -> Captured:
    """The iteration of median length as a trace; of two in the middle, the shorter one."""
    steps = read_steps(folder / PROFILE)
    operators_s = np.array([sum(operator.duration_s for operator in step) for step in steps])
    chosen = steps[int(np.argsort(operators_s, kind="stable")[(len(steps) - 1) // 2])]
    trace = joined(chosen, folder / GRAPH, batch_size=request.batch_size, name=name)
    source = f"{request.script.name}, PyTorch {outcome.torch_version} on {outcome.device}, captured by capplan {__version__}"
    return Captured(
        trace=replace(trace, source=source),
        operators_s=operators_s,
        clock_s=float(np.median(outcome.clock_s)) if outcome.clock_s else None,
        num_backward_a_step=outcome.num_backward_a_step,
    )


def _broken(request: CaptureRequest, rule: str) -> InputError:
    return InputError([Problem(path=Argument("script"), value=str(request.script), rule=rule)])
