"""Which operators did PyTorch's profiler see, when, and how long were their kernels? A profile in Kineto's JSON.

Only outermost operators count, one thread after another. A kernel belongs to the operator during which it was launched
(`correlation` of the launch and of the kernel). A profile may cover several steps (`ProfilerStep#`).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simulator.deep.traces.trace import Phase
from simulator.deep.traces.trace_text import MOST_PROBLEMS, broken, problems_of, read_json
from simulator.errors import InputError, Problem
from simulator.units import MICROSECOND

_BACKWARD = "autograd::engine::evaluate_function"
_OPTIMIZER = "Optimizer.step"
_STEP = "ProfilerStep#"
_TRAFFIC = "nccl"
_OPERATOR, _ANNOTATION = "cpu_op", "user_annotation"
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
_WANTED = frozenset({_OPERATOR, _ANNOTATION, *_LAUNCHES, *_KERNELS})


_FORM = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class _Arguments(BaseModel):
    model_config = _FORM

    correlation: int | None = None
    """Number that a kernel and its launch share."""
    record_id: int | None = Field(default=None, validation_alias="Record function id")


class _Event(BaseModel):
    """One complete event; its other fields are not read."""

    model_config = _FORM

    cat: str
    name: str = Field(max_length=10_000)
    ts: float = Field(ge=0.0)
    """Begin, in microseconds."""
    dur: float = Field(default=0.0, ge=0.0, le=1e12)
    pid: int | str = 0
    tid: int | str = 0
    args: _Arguments = _Arguments()

    @property
    def end(self) -> float:
        """Microseconds."""
        return self.ts + self.dur


@dataclass(frozen=True, kw_only=True)
class ProfiledOperator:
    """One outermost operator."""

    name: str
    duration_s: float
    """Total duration of its kernels; that of the operator itself in a profile without kernels."""
    phase: Phase
    record_id: int | None
    """`Record function id`, by which an execution trace of the same step knows it; newer profiles have it."""


def read_profile(path: Path) -> list[ProfiledOperator]:
    """Returns the operators of the last step of a profile, as `read_steps` does."""
    return read_steps(path)[-1]


def read_steps(path: Path) -> list[list[ProfiledOperator]]:
    """Returns the operators of each step of a profile in the order in which they began, including those without kernels.

    Raises:
        InputError: the file is no profile, or an event is malformed; names event, field and rule.
    """
    events = _events(path)
    outermost = sorted(_outermost(events), key=lambda event: event.ts)
    steps = [found for found in _by_step(events, outermost) if found]
    if not steps:
        raise broken(
            path, "traceEvents", "", f"has no operators (cat {_OPERATOR}): profile ProfilerActivity.CPU, too"
        )
    return [_profiled(events, operators) for operators in steps]


def _profiled(events: Sequence[_Event], operators: Sequence[_Event]) -> list[ProfiledOperator]:
    took = _kernel_us(events, operators)
    first = min((event.ts for event in operators if event.name.startswith(_BACKWARD)), default=float("inf"))
    steps = [event for event in events if event.cat == _ANNOTATION and event.name.startswith(_OPTIMIZER)]
    return [
        ProfiledOperator(
            name=event.name,
            duration_s=(event.dur if took is None else took[number]) * MICROSECOND,
            phase=_phase(event, first, steps),
            record_id=event.args.record_id or None,
        )
        for number, event in enumerate(operators)
    ]


def _events(path: Path) -> list[_Event]:
    document = read_json(path)
    listed = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise broken(path, "traceEvents", "", "must be a list of events: is this a profile of PyTorch?")
    events = []
    problems: list[Problem] = []
    for number, event in enumerate(listed):
        if not _is_wanted(event):
            continue
        try:
            events.append(_Event.model_validate(event))
        except ValidationError as error:
            problems += problems_of(error, f"traceEvents.{number}")
        if len(problems) >= MOST_PROBLEMS:
            break
    if problems:
        raise InputError(problems[:MOST_PROBLEMS], str(path))
    return events


def _is_wanted(event: object) -> bool:
    """Whether an event is complete and of a kind that counts; one whose kind is no text is kept, to be refused later."""
    if not isinstance(event, dict) or event.get("ph") != "X":
        return False
    kind = event.get("cat", "")
    return not isinstance(kind, str) or kind in _WANTED


def _by_step(events: Sequence[_Event], operators: Sequence[_Event]) -> Iterator[list[_Event]]:
    """The operators that began in each step; all of them if a profile marks no steps."""
    steps = [event for event in events if event.cat == _ANNOTATION and event.name.startswith(_STEP)]
    if not steps:
        yield list(operators)
    for step in sorted(steps, key=lambda event: event.ts):
        yield [event for event in operators if step.ts <= event.ts < step.end]


def _outermost(events: Sequence[_Event]) -> Iterator[_Event]:
    """Operators that are not inside another one of their thread."""
    until: dict[tuple[int | str, int | str], float] = {}
    operators = [event for event in events if event.cat == _OPERATOR]
    for event in sorted(operators, key=lambda event: (event.ts, -event.dur)):
        thread = event.pid, event.tid
        if event.ts >= until.get(thread, -1.0):
            until[thread] = event.end
            yield event


def _kernel_us(events: Sequence[_Event], operators: Sequence[_Event]) -> list[float] | None:
    """Microseconds of each operator's kernels, without traffic; `None` in a profile without kernels."""
    launches = {
        event.args.correlation: event
        for event in events
        if event.cat in _LAUNCHES and event.args.correlation is not None
    }
    kernels = [event for event in events if event.cat in _KERNELS]
    if not kernels:
        return None
    rows: dict[tuple[int | str, int | str], list[int]] = {}
    for number, event in enumerate(operators):
        rows.setdefault((event.pid, event.tid), []).append(number)
    begins = {thread: [operators[number].ts for number in numbers] for thread, numbers in rows.items()}
    took = [0.0] * len(operators)
    for kernel in kernels:
        link = kernel.args.correlation
        launch = launches.get(link) if link is not None else None
        thread = (launch.pid, launch.tid) if launch else None
        if launch is None or thread not in rows or kernel.name.lower().startswith(_TRAFFIC):
            continue
        place = bisect.bisect_right(begins[thread], launch.ts) - 1
        number = rows[thread][place]
        if place >= 0 and launch.ts <= operators[number].end:
            took[number] += kernel.dur
    return took


def _phase(event: _Event, first_backward: float, steps: Sequence[_Event]) -> Phase:
    if any(step.ts <= event.ts < step.end for step in steps):
        return Phase.OPTIMIZER
    return Phase.BACKWARD if event.ts >= first_backward else Phase.FORWARD
