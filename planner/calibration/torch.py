"""How are kernels and layers timed with PyTorch? On the first GPU by its events, on a CPU by the machine's clock.

GPU kernels are replayed from a CUDA graph, so that host launches do not count. They cycle through several sets of inputs, so
that none is in the cache. PyTorch is an extra (`capplan[torch]`) and is imported only here, when a device is requested.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import cycle, islice
from types import ModuleType
from typing import Any

import numpy as np

from planner.calibration.device import LayerTimes, Runs
from planner.calibration.table import Kernel, KernelKind, Software
from planner.calibration.torch_layer import layer_of, scaled_product, weights_of
from simulator import catalog
from simulator.domain.hardware import Precision
from simulator.errors import CapplanError
from simulator.units import KILO, MIB, MILLISECOND

CACHED_BYTES = 512 * MIB
"""More than the last-level cache of any GPU; the sets of inputs together have this size."""
MOST_SETS = 256
GRAPH_S = 1e-3
"""Total kernel time per graph, so that the graph's own launch hardly counts."""
WARM_S = 1.5
"""Duration of load before layers are timed, until the power limit has lowered the clock."""
LOADED_S = 1.5
FEWEST_PASSES = 5
SHORTEST_S = 1e-6
"""Duration of a pass for which the clock shows none."""
ELEMENT_BYTES = 2
UNABLE = (RuntimeError, TypeError, AttributeError, NotImplementedError)
"""What PyTorch raises if a device or release does not support something."""
Run = Callable[[], object]
Tensor = Any
Mark = Any
"""A GPU event, or seconds on the clock."""


def torch_device() -> TorchDevice:
    """Returns the first GPU of this machine.

    Raises:
        CapplanError: PyTorch is not installed, or sees no GPU.
    """
    if find_spec("torch") is None:
        raise CapplanError(
            "measuring a device needs PyTorch: install capplan[torch] on the machine with the GPU, or fit measured steps "
            "(`capplan calibrate --measured FILE.csv`)"
        )
    torch = import_module("torch")
    if not torch.cuda.is_available():
        raise CapplanError(
            "PyTorch finds no GPU here: measure on a machine with one (`capplan calibrate --device --output FILE.csv`), "
            "and fit its kernels here (`capplan calibrate --kernels FILE.csv`), or fit measured steps (`capplan calibrate "
            "--measured FILE.csv`)"
        )
    return TorchDevice(torch, "cuda")


class TorchDevice:
    """A device of PyTorch, `cuda` or `cpu`; a `planner.calibration.device.Device`."""

    def __init__(self, torch: ModuleType, kind: str) -> None:
        self.torch, self.kind = torch, kind
        self.has_gpu = kind == "cuda"

    @property
    def name(self) -> str:
        """Name that the device reports."""
        return str(self.torch.cuda.get_device_name(0)) if self.has_gpu else "cpu"

    @property
    def memory_bytes(self) -> float:
        """Free memory; unlimited on a CPU, which can swap."""
        return float(self.torch.cuda.mem_get_info(0)[0]) if self.has_gpu else float("inf")

    @property
    def num_devices(self) -> int:
        """Number of GPUs in this machine."""
        return int(self.torch.cuda.device_count()) if self.has_gpu else 1

    def power_w(self) -> float | None:
        """Power from NVML; `None` if the bindings are missing, or the driver or board does not report it."""
        if not self.has_gpu or find_spec("pynvml") is None:
            return None
        try:
            return float(self.torch.cuda.power_draw(0)) / KILO
        except (RuntimeError, AttributeError, ModuleNotFoundError, import_module("pynvml").NVMLError):
            return None

    def rest(self, seconds: float) -> None:
        """Waits; a CPU needs no pause."""
        if self.has_gpu:
            time.sleep(seconds)

    def can_run(self, kind: KernelKind, precision: Precision) -> bool:
        """Returns whether PyTorch supports a product here; not every device and release has 8 bits or 32-bit accumulation."""
        try:
            self.operator(Kernel(kind=kind, precision=precision, m=64, n=64, k=64))()
            self._wait()
        except UNABLE:
            return False
        return True

    def prepare(self, kernel: Kernel) -> Runs | None:
        """Makes the inputs of a kernel and returns its timer; `None` if it cannot run, or memory is too small."""
        try:
            if not self.has_gpu:
                return self._host_timer(self.operator(kernel))
            if kernel.kind is KernelKind.ALL_REDUCE:
                return self._event_timer(self.operator(kernel))
            return self._graph_timer(kernel)
        except UNABLE:
            return None

    def operator(self, kernel: Kernel) -> Run:
        """Makes the inputs of a single kernel and returns a function that runs it."""
        torch = self.torch
        match kernel.kind:
            case KernelKind.ATTENTION | KernelKind.ATTENTION_BACKWARD:
                return self._attention(kernel, backward=kernel.kind is KernelKind.ATTENTION_BACKWARD)
            case KernelKind.COPY:
                source, target = self._vector(kernel.num_bytes // 2), self._vector(kernel.num_bytes // 2)
                return lambda: torch.Tensor.copy_(target, source)
            case KernelKind.ADD:
                one, other, total = (self._vector(kernel.num_bytes // 3) for _ in range(3))
                return lambda: torch.add(one, other, out=total)
            case KernelKind.ALL_REDUCE:
                return self._all_reduce(kernel)
            case _:
                return self._product(kernel)

    def layer_times(self, layer: Kernel, num_layers: int) -> LayerTimes | None:
        """Runs layers in a row, forward and backward, until the clock has settled, and then times them.

        Returns `None` if this release cannot run them, the compiler is missing, or memory is too small.
        """
        try:
            return self._layer_times(layer, num_layers)
        except (*UNABLE, OSError):
            return None

    def _layer_times(self, layer: Kernel, num_layers: int) -> LayerTimes:
        torch, shape = self.torch, catalog.model(layer.model)
        is_compiled = layer.software is Software.COMPILED
        run = layer_of(
            torch,
            shape,
            layer.sequence_length,
            self.kind,
            is_compiled=is_compiled,
            is_cast=layer.precision is Precision.FP8,
        )
        if is_compiled:
            torch.compiler.reset()  # otherwise the compiler gives up at the ninth layer in a process
            run = torch.compile(run, dynamic=False)
        if self.has_gpu:
            torch.cuda.empty_cache()
        weights = [weights_of(torch, shape, self.kind) for _ in range(num_layers)]
        size = (layer.batch, layer.sequence_length, shape.hidden_size)
        inputs, gradient = self._random(size).requires_grad_(), self._random(size)
        wanted = [inputs, *(weight for of_layer in weights for weight in of_layer)]

        def forward() -> Tensor:
            output = inputs
            for of_layer in weights:
                output = run(output, of_layer)
            return output

        def passes(number: int) -> list[tuple[float, float]]:
            """Runs all layers forward and backward, `number` times."""
            marks = []
            for _ in range(number):
                start, output, middle = self._mark(), forward(), self._mark()
                torch.autograd.grad(output, wanted, gradient)
                marks.append((start, middle, self._mark()))
            self._wait()
            return [(_between_s(one, two), _between_s(two, three)) for one, two, three in marks]

        passes(FEWEST_PASSES)  # compiles
        kept_bytes = self._kept_bytes(forward) / num_layers
        once_s = max(sum(passes(1)[0]), SHORTEST_S)
        passes(math.ceil(WARM_S / once_s))
        times = passes(max(FEWEST_PASSES, math.ceil(LOADED_S / once_s)))
        forward_s, backward_s = np.mean(times, axis=0) / num_layers
        return LayerTimes(float(forward_s), float(backward_s), kept_bytes)

    def _kept_bytes(self, forward: Run) -> float:
        """Returns the bytes that a forward pass keeps for its backward pass, including its output; 0 on a CPU."""
        if not self.has_gpu:
            return 0.0
        allocated = self.torch.cuda.memory_allocated
        before = allocated()
        output = forward()
        kept = allocated() - before
        del output
        return float(kept)

    def _product(self, kernel: Kernel) -> Run:
        """A product as in a step: weights are stored as (columns, inner); a weight gradient takes both inputs transposed."""
        torch, kind = self.torch, kernel.kind
        is_forward, is_cast = kind is KernelKind.GEMM, kernel.precision is Precision.FP8
        of_weights = kind in (KernelKind.WEIGHT_GRADIENT, KernelKind.ADDED_GRADIENT)
        left = self._matrix(kernel.m, kernel.k, is_turned=of_weights)
        right = self._matrix(kernel.k, kernel.n, is_turned=is_forward or is_cast)
        if is_cast:
            left, right = (one.to(torch.float8_e4m3fn) for one in (left, right))
            scale = torch.ones((), device=self.kind)
            return lambda: scaled_product(torch, left, right, (scale, scale), is_forward=is_forward)
        if kind is KernelKind.ADDED_GRADIENT:
            total = torch.zeros((kernel.m, kernel.n), device=self.kind)
            return lambda: torch.addmm(total, left, right, out_dtype=torch.float32, out=total)
        out = torch.empty((kernel.m, kernel.n), dtype=torch.bfloat16, device=self.kind)
        return lambda: torch.mm(left, right, out=out)

    def _attention(self, kernel: Kernel, *, backward: bool) -> Run:
        torch = self.torch
        shape = (kernel.batch, kernel.num_heads, kernel.sequence_length, kernel.head_dim)
        inputs = [self._random(shape).requires_grad_(backward) for _ in range(3)]
        attend = torch.nn.functional.scaled_dot_product_attention
        if not backward:
            return lambda: attend(*inputs, is_causal=True)
        output = attend(*inputs, is_causal=True)
        gradient = self._random(shape)
        return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)

    def _all_reduce(self, kernel: Kernel) -> Run:
        torch = self.torch
        parts = [
            torch.zeros(kernel.num_bytes // 2, dtype=torch.bfloat16, device=f"cuda:{number}")
            for number in range(kernel.group_size)
        ]
        return lambda: torch.cuda.nccl.all_reduce(parts)

    def _matrix(self, rows: int, columns: int, *, is_turned: bool) -> Tensor:
        return self._random((columns, rows)).t() if is_turned else self._random((rows, columns))

    def _vector(self, num_bytes: int) -> Tensor:
        return self._random((max(1, num_bytes // 2),))

    def _random(self, shape: tuple[int, ...]) -> Tensor:
        return self.torch.randn(shape, device=self.kind, dtype=self.torch.bfloat16)

    def _host_timer(self, run: Run) -> Runs:
        """Times with the machine's clock."""

        def seconds(num_runs: int) -> float:
            start = time.perf_counter()
            for _ in range(num_runs):
                run()
            return time.perf_counter() - start

        return seconds

    def _event_timer(self, run: Run) -> Runs:
        def seconds(num_runs: int) -> float:
            self._wait()
            start = self._mark()
            for _ in range(num_runs):
                run()
            end = self._mark()
            self._wait()
            return _between_s(start, end)

        return seconds

    def _graph_timer(self, kernel: Kernel) -> Runs:
        """Replays many runs at a time; a backward pass can only be captured on the stream of its forward pass."""
        cuda = self.torch.cuda
        graph, stream = cuda.CUDAGraph(), cuda.Stream()
        with cuda.stream(stream):
            runs = [self.operator(kernel) for _ in range(_num_sets(kernel))]
            for run in runs:
                run()
            once_s = self._event_timer(runs[0])(len(runs)) / len(runs)
        num_recorded = len(runs) * math.ceil(GRAPH_S / (once_s * len(runs)))
        with cuda.graph(graph, stream=stream):
            for run in islice(cycle(runs), num_recorded):
                run()
        replays_s = self._event_timer(graph.replay)

        def seconds(num_runs: int) -> float:
            num_replays = math.ceil(num_runs / num_recorded)
            return replays_s(num_replays) * num_runs / (num_replays * num_recorded)

        return seconds

    def _mark(self) -> Mark:
        """Marks the current time; on a GPU, the current position in its queue."""
        if not self.has_gpu:
            return time.perf_counter()
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _wait(self) -> None:
        if self.has_gpu:
            self.torch.cuda.synchronize()


def _between_s(start: Mark, end: Mark) -> float:
    return end - start if isinstance(end, float) else float(start.elapsed_time(end)) * MILLISECOND


def _num_sets(kernel: Kernel) -> int:
    """Returns how many sets of inputs and outputs exceed the cache."""
    of_product = kernel.m * kernel.k + kernel.k * kernel.n + kernel.m * kernel.n
    of_attention = 4 * kernel.batch * kernel.sequence_length * kernel.num_heads * kernel.head_dim
    num_bytes = max(kernel.num_bytes, ELEMENT_BYTES * max(of_product, of_attention))
    return int(min(MOST_SETS, math.ceil(CACHED_BYTES / num_bytes)))
