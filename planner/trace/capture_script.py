"""What does a training script do in a few of its iterations? Runs it as `python SCRIPT` would, and profiles PyTorch meanwhile.

    python trace_capture_script.py FOLDER SKIP ITERATIONS SCRIPT [ARGUMENT ...]

`planner.trace.capture` starts this file by its path and reads FOLDER. The file imports nothing of capplan, whose package names
may clash with the script's own, and hooks into PyTorch only once the script has imported it. One iteration runs under the
execution trace observer, which slows operators down; the next ones run under the profiler alone. Then an exception that is not
an `Exception` unwinds the script, as Ctrl-C does.
"""

from __future__ import annotations

import functools
import json
import os
import runpy
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

GRAPH, PROFILE, OUTCOME = "graph.json", "profile.json", "outcome.json"
"""Files in the folder: tensors of one iteration, times of the next ones, and how the script ended."""


class EnoughSeenError(BaseException):
    """All iterations are profiled, so the script need not go on."""


class Iterations:
    """When does an iteration end? With the optimizer that steps last before the first one steps again."""

    def __init__(self) -> None:
        self.num_ended = 0
        self._order: list[int] = []
        self._last: int | None = None

    def ends_with(self, optimizer: int) -> bool:
        """Returns whether an iteration ends with this step of an optimizer, which is given by its `id`."""
        if self._last is None:
            if optimizer not in self._order:
                self._order.append(optimizer)
                return False
            self._last = self._order[-1]
            self.num_ended = 1  # the previous one, whose end could not be recognised at the time
        self.num_ended += optimizer == self._last
        return optimizer == self._last


class Capture:
    """What is observed of the script."""

    def __init__(self, folder: Path, num_skipped: int, num_profiled: int) -> None:
        self.folder, self.num_skipped, self.num_profiled = folder, num_skipped, num_profiled
        self.iterations = Iterations()
        self.num_steps, self.num_backward, self.num_backward_a_step = 0, 0, 0
        self.clock_s: list[float] = []
        self.has_all = False
        self.torch: ModuleType | None = None
        self._depth = 0
        self._was_unwound = False

    def watch(self, torch: ModuleType) -> None:
        """Hooks into every optimizer and every backward pass.

        PyTorch's public post-step hook runs inside the range that it records for the step, and a profiler that is stopped
        inside one of its own ranges writes to freed memory. Therefore the function that records the step is wrapped instead.
        """
        self.torch, turns = torch, self._observations(torch)
        recorded, backward = torch.optim.Optimizer.profile_hook_step, torch.autograd.backward

        def hooked(step: Callable[..., object]) -> Callable[..., object]:
            inner = recorded(step)

            @functools.wraps(inner)
            def outer(*arguments: object, **named: object) -> object:
                self._depth += 1
                try:
                    result = inner(*arguments, **named)
                finally:
                    self._depth -= 1
                if not self._depth:  # one optimizer may step another
                    self._stepped(id(arguments[0]), turns)
                return result

            return outer

        def counted(*arguments: object, **named: object) -> None:
            self.num_backward += 1
            backward(*arguments, **named)

        torch.optim.Optimizer.profile_hook_step = staticmethod(hooked)
        torch.autograd.backward = counted

    def _stepped(self, optimizer: int, turns: Iterator[None]) -> None:
        self.num_steps += 1
        if not self.iterations.ends_with(optimizer):
            return
        try:
            next(turns)
        except StopIteration:
            if self._was_unwound:  # but the script catches everything; all is written
                sys.stdout.flush()
                os._exit(0)
            self._was_unwound = True
            raise EnoughSeenError from None

    def _observations(self, torch: ModuleType) -> Iterator[None]:
        """Advances at the end of every iteration."""
        began_s = time.perf_counter()
        while self.iterations.num_ended < self.num_skipped:
            yield
            self.clock_s.append(time.perf_counter() - began_s)
            began_s = time.perf_counter()
        observer = torch.profiler.ExecutionTraceObserver().register_callback(str(self.folder / GRAPH))
        self.num_backward = 0
        # Recomputation is ended by an exception as early as it can be, and the observer loses its place when one passes.
        with import_module("torch.utils.checkpoint").set_checkpoint_early_stop(False):
            observer.start()
            yield
            observer.stop()
        observer.unregister_callback()
        self.num_backward_a_step = self.num_backward
        profile = torch.profiler.profile(
            activities=torch.profiler.supported_activities(),
            schedule=lambda _step: torch.profiler.ProfilerAction.RECORD,  # without one it marks no steps
        )
        profile.start()
        for _ in range(self.num_profiled - 1):
            yield
            profile.step()
        yield
        profile.stop()
        profile.export_chrome_trace(str(self.folder / PROFILE))
        self.has_all = True
        self.write()

    def write(self, failure: str = "") -> None:
        """Writes how the script ended."""
        has_gpu = self.torch is not None and self.torch.cuda.is_initialized()
        outcome = {
            "failure": failure,
            "has_all": self.has_all,
            "num_steps": self.num_steps,
            "num_iterations": self.iterations.num_ended,
            "num_backward_a_step": self.num_backward_a_step,
            "clock_s": self.clock_s,
            "torch_version": str(self.torch.__version__) if self.torch else "",
            "device": str(self.torch.cuda.get_device_name()) if self.torch and has_gpu else "a CPU",
        }
        (self.folder / OUTCOME).write_text(json.dumps(outcome), encoding="utf-8")


class WhenImported(MetaPathFinder):
    """Lets a capture watch PyTorch from the moment the script imports it; settings that the script made before are kept."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: object = None
    ) -> ModuleSpec | None:
        """Returns how PyTorch is loaded; any other module is left to others."""
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec and spec.loader:
            spec.loader = _Watching(spec.loader, self.capture)
        return spec


class _Watching(Loader):
    def __init__(self, loader: Loader, capture: Capture) -> None:
        self.loader, self.capture = loader, capture

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        self.capture.watch(module)


def run(script: str, arguments: Sequence[str]) -> str:
    """Runs a script as the main program; returns how it failed, or an empty text."""
    sys.argv = [script, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except EnoughSeenError:
        return ""
    except SystemExit as stop:
        if isinstance(stop.code, str):
            sys.stderr.write(f"{stop.code}\n")
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        return f"it exited with code {code}" if code else ""
    except BaseException as error:  # noqa: BLE001 # whatever it is, it is the script's
        return _told(error, script)
    return ""


def _told(error: BaseException, script: str) -> str:
    """Prints the traceback from the script on, as Python would; returns the error in one line."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename != script:
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames or error.__traceback__)
    lines = [frame.lineno for frame in traceback.extract_tb(frames) if frame.filename == script]
    text = traceback.format_exception_only(error)[-1].strip()
    return f"{text} (line {lines[-1]})" if lines else text


def main(folder: str, num_skipped: str, num_profiled: str, script: str, *arguments: str) -> None:
    """Captures a script, and writes how it ended."""
    capture = Capture(Path(folder), int(num_skipped), int(num_profiled))
    if "torch" in sys.modules:  # the environment imports it at the start of every program
        capture.watch(sys.modules["torch"])
    else:
        sys.meta_path.insert(0, WhenImported(capture))
    failure = run(script, arguments)
    if not capture.has_all:
        capture.write(failure)


if __name__ == "__main__":
    main(*sys.argv[1:])
