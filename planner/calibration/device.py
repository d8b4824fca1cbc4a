"""Which kernels of a device are timed, and how often each? A grid of products, attention, copies, launches and sums.

A device only has to run a kernel some times in a row and say how long that took, so that all else is tried without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Protocol

import numpy as np

from planner.calibration.table import Kernel, KernelKind, KernelTable, today
from simulator.errors import CapplanError
from simulator.units import GIB, MIB

TOKENS = (512, 2048, 8192)
WIDTHS = (1024, 4096, 12288)
"""Rows, and widths and depths of products: from small models on many ranks to large ones on few."""
ATTENTION_TOKENS = 16384
SEQUENCE_LENGTHS = (1024, 2048, 4096, 8192, 16384)
NUM_HEADS = (4, 16)
HEAD_DIMS = (64, 128)
MOVED_BYTES = tuple(size * int(MIB) for size in (48, 192, 768))
"""Far more than caches hold; divisible by two and three elements of 16 bits."""
SUMMED_BYTES = tuple(size * int(MIB) for size in (1, 16, 256))
LEAST_MEMORY_BYTES = 4 * GIB
"""Memory below which the largest kernels of the grid, with their inputs, do not fit."""
TIMED_S = 0.02
"""Time of one repetition: long against the resolution of clocks and the launch of its first kernel."""
MOST_RUNS = 10_000
NUM_REPETITIONS = 5
"""The median of an odd few is not moved by one interruption."""
LOADED_S = 2.0
"""Products before the power is read: meters average over about a second."""

Runs = Callable[[int], float]
"""Runs a kernel so many times in a row and returns the seconds that all of them took."""


class Device(Protocol):
    """Something that can be timed."""

    @property
    def name(self) -> str:
        """Name that it gives itself."""

    @property
    def memory_bytes(self) -> float:
        """Memory that kernels can have."""

    @property
    def num_devices(self) -> int:
        """Devices of this kind that can reach each other."""

    def prepare(self, kernel: Kernel) -> Runs:
        """Makes the inputs of a kernel; they are freed with what is returned."""

    def power_w(self) -> float | None:
        """Power that it draws; `None` where nothing can be read."""


Tell = Callable[[int, int], None]


def measure(
    device: Device, *, date: str | None = None, tell: Tell = lambda _done, _total: None
) -> KernelTable:
    """Times the grid on a device.

    Args:
        device: what is timed; nothing else should run on it.
        date: when; left out: today.
        tell: is told how many kernels are done, and how many there are.

    Raises:
        CapplanError: the device has too little memory.
    """
    if device.memory_bytes < LEAST_MEMORY_BYTES:
        raise CapplanError(
            f"{device.name} has {device.memory_bytes / GIB:.1f} GiB of free memory, and the measurement needs "
            f"{LEAST_MEMORY_BYTES / GIB:.0f} GiB: end what else runs on it"
        )
    idle_power_w = device.power_w()
    kernels = tuple(grid(device.num_devices))
    seconds = []
    for done, kernel in enumerate(kernels):
        tell(done, len(kernels))
        seconds.append(float(f"{time_s(device.prepare(kernel)):.6g}"))  # as the table keeps it
    return KernelTable(
        device=device.name,
        date=date or today(),
        kernels=kernels,
        seconds=np.array(seconds),
        idle_power_w=idle_power_w,
        loaded_power_w=_loaded_power_w(device) if idle_power_w is not None else None,
    )


def grid(num_devices: int) -> Iterator[Kernel]:
    """Yields the kernels that are timed, launches first and large ones mixed with small ones."""
    yield Kernel(kind=KernelKind.EMPTY)
    yield Kernel(kind=KernelKind.HOST_LAUNCH)
    for kind, num_bytes in product((KernelKind.COPY, KernelKind.ADD), MOVED_BYTES):
        yield Kernel(kind=kind, num_bytes=num_bytes)
    for m, n, k in product(TOKENS, WIDTHS, WIDTHS):
        for kind in (KernelKind.GEMM, KernelKind.INPUT_GRADIENT, KernelKind.WEIGHT_GRADIENT):
            yield Kernel(kind=kind, m=m, n=n, k=k)
    for length, heads, width in product(SEQUENCE_LENGTHS, NUM_HEADS, HEAD_DIMS):
        for kind in (KernelKind.ATTENTION, KernelKind.ATTENTION_BACKWARD):
            yield Kernel(
                kind=kind,
                batch=ATTENTION_TOKENS // length,
                sequence_length=length,
                num_heads=heads,
                head_dim=width,
            )
    if num_devices > 1:
        for num_bytes in SUMMED_BYTES:
            yield Kernel(kind=KernelKind.ALL_REDUCE, num_bytes=num_bytes, group_size=num_devices)


def time_s(runs: Runs) -> float:
    """Returns the seconds of one run: the median of repetitions, each long enough for the clock, after warming up."""
    runs(1)
    first_s = max(runs(3) / 3.0, 1e-9)
    num_runs = int(np.clip(TIMED_S / first_s, 1, MOST_RUNS))
    return float(np.median([runs(num_runs) / num_runs for _ in range(NUM_REPETITIONS)]))


def _loaded_power_w(device: Device) -> float | None:
    """Returns the power right after some seconds of the largest product."""
    largest = Kernel(kind=KernelKind.GEMM, m=max(TOKENS), n=max(WIDTHS), k=max(WIDTHS))
    runs = device.prepare(largest)
    once_s = max(time_s(runs), 1e-9)
    runs(max(1, int(LOADED_S / once_s)))
    return device.power_w()
