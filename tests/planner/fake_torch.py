"""What replaces PyTorch where it is not installed? The part of it that a script needs to take steps and to be profiled.

Tests copy this file as `torch.py`, together with `profiles.py`, into the folder of a script. Every profile has the same step
once for each iteration, with kernel times multiplied by `LENGTHS`.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

from profiles import EVENTS, NODES, Entry, event  # type: ignore[import-not-found, unused-ignore] # copied beside it

LENGTHS = (3.0, 1.0, 2.0, 5.0, 4.0)
"""Factors of the kernel times, by iteration."""
__version__ = "0.0-fake"


class Optimizer:
    """Wraps `step` when the first instance of a class is created, as PyTorch does."""

    def __init__(self) -> None:
        if not hasattr(type(self).step, "hooked"):
            type(self).step = self.profile_hook_step(type(self).step)  # type: ignore[method-assign]
            type(self).step.hooked = True  # type: ignore[attr-defined]

    @staticmethod
    def profile_hook_step(step: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(step)
        def wrapper(*arguments: object, **named: object) -> object:
            return step(*arguments, **named)

        return wrapper

    def step(self) -> object: ...


class SGD(Optimizer):
    def step(self) -> object:
        return "stepped"


class Adam(Optimizer):
    def step(self) -> object:
        return "stepped"


class ExecutionTraceObserver:
    def register_callback(self, path: str) -> ExecutionTraceObserver:
        self.path = Path(path)
        return self

    def start(self) -> None: ...

    def stop(self) -> None:
        self.path.write_text(json.dumps({"nodes": NODES}), encoding="utf-8")

    def unregister_callback(self) -> None: ...


class Profile:
    def __init__(self, *, activities: object, schedule: Callable[[int], object]) -> None:
        self.activities, self.schedule = activities, schedule
        self.number = 0
        self.events: list[Entry] = []

    def start(self) -> None: ...

    def step(self) -> None:
        begin = 10_000.0 * self.number
        self.events.append(event(f"ProfilerStep#{self.number}", begin, 9_999.0, cat="user_annotation"))
        self.events += [self._later(one, begin, LENGTHS[self.number]) for one in EVENTS]
        self.number += 1

    def _later(self, one: Entry, begin: float, length: float) -> Entry:
        correlation = one.get("args", {}).get("correlation")
        moved = {**one, "ts": float(str(one["ts"])) + begin}
        if one["cat"] == "kernel":
            moved["dur"] = float(str(one["dur"])) * length
        return moved if correlation is None else {**moved, "args": {"correlation": correlation + begin}}

    def stop(self) -> None:
        self.step()

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text(json.dumps({"traceEvents": self.events}), encoding="utf-8")


optim = SimpleNamespace(Optimizer=Optimizer, SGD=SGD, Adam=Adam)
autograd = SimpleNamespace(backward=lambda *_arguments: None)
cuda = SimpleNamespace(is_initialized=lambda: True, get_device_name=lambda: "Fake H100")
profiler = SimpleNamespace(
    ExecutionTraceObserver=ExecutionTraceObserver,
    profile=Profile,
    supported_activities=set,
    ProfilerAction=SimpleNamespace(RECORD=2),
)

checkpoint = ModuleType("torch.utils.checkpoint")
checkpoint.set_checkpoint_early_stop = nullcontext  # type: ignore[attr-defined]
sys.modules["torch.utils.checkpoint"] = checkpoint
