"""How is a kernel timed with PyTorch? On the first GPU by its own events, on a CPU by the clock of the machine.

PyTorch is an extra (`capplan[torch]`) and is imported only here, when a device is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from planner.calibration.device import Runs
from planner.calibration.table import Kernel, KernelKind
from simulator.errors import CapplanError
from simulator.units import KILO, MILLISECOND

GRAPH_KERNELS = 100
"""Empty kernels in a graph, so that its own launch does not count."""


def torch_device() -> TorchDevice:
    """Returns the first GPU of this machine.

    Raises:
        CapplanError: PyTorch is not installed, or sees no GPU.
    """
    if find_spec("torch") is None:
        raise CapplanError(
            "measuring a device needs PyTorch: install capplan[torch] on the machine with the GPU, or fit measured steps "
            "with --measured FILE.csv"
        )
    torch = import_module("torch")
    if not torch.cuda.is_available():
        raise CapplanError(
            "PyTorch sees no GPU on this machine: run --device where one is (--output FILE.csv brings its kernels here, "
            "--kernels FILE.csv fits them), or fit measured steps with --measured FILE.csv"
        )
    return TorchDevice(torch, "cuda")


class TorchDevice:
    """A device of PyTorch, `cuda` or `cpu`; a `planner.calibration.device.Device`."""

    def __init__(self, torch: ModuleType, kind: str) -> None:
        self.torch, self.kind = torch, kind
        self.has_gpu = kind == "cuda"

    @property
    def name(self) -> str:
        """Name that the device gives itself."""
        return str(self.torch.cuda.get_device_name(0)) if self.has_gpu else "cpu"

    @property
    def memory_bytes(self) -> float:
        """Free memory; unlimited on a CPU, which swaps."""
        return float(self.torch.cuda.mem_get_info(0)[0]) if self.has_gpu else float("inf")

    @property
    def num_devices(self) -> int:
        """GPUs of this machine."""
        return int(self.torch.cuda.device_count()) if self.has_gpu else 1

    def power_w(self) -> float | None:
        """Power by NVML; `None` where the bindings are missing, or the driver or the board does not tell."""
        if not self.has_gpu or find_spec("pynvml") is None:
            return None
        try:
            return float(self.torch.cuda.power_draw(0)) / KILO
        except (RuntimeError, AttributeError, ModuleNotFoundError, import_module("pynvml").NVMLError):
            return None

    def prepare(self, kernel: Kernel) -> Runs:
        """Makes the inputs of a kernel and returns what times it."""
        run = self.operator(kernel)
        if kernel.kind is KernelKind.EMPTY and self.has_gpu:
            return self._graph_timer(run)
        if kernel.kind is KernelKind.HOST_LAUNCH or not self.has_gpu:
            return self._host_timer(run, waits=kernel.kind is not KernelKind.HOST_LAUNCH)
        return self._event_timer(run)

    def operator(self, kernel: Kernel) -> Callable[[], object]:
        """Makes the inputs of a kernel and returns what runs it."""
        torch = self.torch
        match kernel.kind:
            case KernelKind.GEMM | KernelKind.INPUT_GRADIENT | KernelKind.WEIGHT_GRADIENT:
                left = self._matrix(
                    kernel.m, kernel.k, is_transposed=kernel.kind is KernelKind.WEIGHT_GRADIENT
                )
                right = self._matrix(
                    kernel.k, kernel.n, is_transposed=kernel.kind is KernelKind.INPUT_GRADIENT
                )
                out = torch.empty((kernel.m, kernel.n), dtype=torch.bfloat16, device=self.kind)
                return lambda: torch.mm(left, right, out=out)
            case KernelKind.ATTENTION | KernelKind.ATTENTION_BACKWARD:
                return self._attention(kernel, backward=kernel.kind is KernelKind.ATTENTION_BACKWARD)
            case KernelKind.COPY:
                source, target = self._vector(kernel.num_bytes // 2), self._vector(kernel.num_bytes // 2)
                return lambda: torch.Tensor.copy_(target, source)
            case KernelKind.ADD:
                one, other, total = (self._vector(kernel.num_bytes // 3) for _ in range(3))
                return lambda: torch.add(one, other, out=total)
            case KernelKind.EMPTY | KernelKind.HOST_LAUNCH:
                tiny = self._vector(2)
                return lambda: torch.Tensor.add_(tiny, 1)
            case KernelKind.ALL_REDUCE:
                return self._all_reduce(kernel)

    def _matrix(self, rows: int, columns: int, *, is_transposed: bool) -> object:
        shape = (columns, rows) if is_transposed else (rows, columns)
        matrix = self.torch.randn(shape, device=self.kind).to(self.torch.bfloat16)
        return matrix.t() if is_transposed else matrix

    def _vector(self, num_bytes: int) -> object:
        return self.torch.zeros(max(1, num_bytes // 2), dtype=self.torch.bfloat16, device=self.kind)

    def _attention(self, kernel: Kernel, *, backward: bool) -> Callable[[], object]:
        torch = self.torch
        shape = (kernel.batch, kernel.num_heads, kernel.sequence_length, kernel.head_dim)
        inputs = [
            torch.randn(shape, device=self.kind).to(torch.bfloat16).requires_grad_(backward) for _ in range(3)
        ]
        attend = torch.nn.functional.scaled_dot_product_attention
        if not backward:
            return lambda: attend(*inputs, is_causal=True)
        output = attend(*inputs, is_causal=True)
        gradient = torch.ones_like(output)
        return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)

    def _all_reduce(self, kernel: Kernel) -> Callable[[], object]:
        torch = self.torch
        parts = [
            torch.zeros(kernel.num_bytes // 2, dtype=torch.bfloat16, device=f"cuda:{number}")
            for number in range(kernel.group_size)
        ]
        return lambda: torch.cuda.nccl.all_reduce(parts)

    def _host_timer(self, run: Callable[[], object], *, waits: bool) -> Runs:
        """Times with the clock of the machine; without waiting it is the host's own time, though the queue must not be full."""

        def seconds(num_runs: int) -> float:
            self._wait()
            start = time.perf_counter()
            for _ in range(num_runs):
                run()
            if waits:
                self._wait()
            return time.perf_counter() - start

        return seconds

    def _event_timer(self, run: Callable[[], object], runs_per_call: int = 1) -> Runs:
        torch = self.torch

        def seconds(num_runs: int) -> float:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._wait()
            start.record()
            for _ in range(num_runs):
                run()
            end.record()
            self._wait()
            return float(start.elapsed_time(end)) * MILLISECOND / runs_per_call

        return seconds

    def _graph_timer(self, run: Callable[[], object]) -> Runs:
        graph = self.torch.cuda.CUDAGraph()
        run()
        self._wait()
        with self.torch.cuda.graph(graph):
            for _ in range(GRAPH_KERNELS):
                run()
        return self._event_timer(graph.replay, GRAPH_KERNELS)

    def _wait(self) -> None:
        if self.has_gpu:
            self.torch.cuda.synchronize()
