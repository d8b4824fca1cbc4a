"""Which kernels of a device are timed, and how often each? A grid of products, attention, copies and sums, and whole layers.

A device only has to run a kernel several times in a row and report how long that took, so everything else can be tested without
one. Single kernels are timed in short bursts with pauses between them, at the clock of a cool device, like those behind the
published constants. Layers are timed under sustained load, at the clock that the power limit allows, as in training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np

from planner.calibration.rows import MOST_NAMED
from planner.calibration.table import Kernel, KernelKind, KernelTable, Software, check_date, today
from simulator import catalog
from simulator.domain.hardware import Precision
from simulator.domain.model import ModelShape
from simulator.errors import CapplanError
from simulator.units import GIB, MIB

TOKENS = (512, 2048, 8192)
WIDTHS = (1024, 4096, 12288)
"""Row counts, and widths and inner sizes of products: from small models on many ranks to large ones on few."""
PRODUCTS = (
    (Precision.BF16, KernelKind.GEMM),
    (Precision.BF16, KernelKind.INPUT_GRADIENT),
    (Precision.BF16, KernelKind.WEIGHT_GRADIENT),
    (Precision.BF16, KernelKind.ADDED_GRADIENT),
    (Precision.FP8, KernelKind.GEMM),
    (Precision.FP8, KernelKind.INPUT_GRADIENT),
)
"""In 8 bits, all products have the forward layout, and gradients do not use fast accumulation."""
ATTENTION_TOKENS = 16384
SEQUENCE_LENGTHS = (1024, 2048, 4096, 8192, 16384)
NUM_HEADS = (4, 16)
HEAD_DIMS = (64, 128)
MOVED_BYTES = tuple(size * int(MIB) for size in (3, 12, 48, 192, 768))
"""From sizes at which the launch matters to sizes at which only bandwidth does; divisible by two and three 16-bit elements."""
SUMMED_BYTES = tuple(size * int(MIB) for size in (1, 16, 256))
LAYER_SIZES = (
    ("llama-3.2-1b", 1, 128),
    ("gpt2-xl", 1, 128),
    ("llama-3.2-1b", 4, 4096),
    ("gpt2-xl", 8, 1024),
    ("llama-3.1-8b", 1, 4096),
    ("llama-3.1-8b", 2, 8192),
    ("gpt3-175b", 1, 2048),
    ("llama-3.1-70b", 1, 8192),
    ("llama-3.1-405b", 1, 8192),
)
"""Models, numbers of sequences and sequence lengths: two micro-batches so small that only host time shows, then usual ones."""
LAYERS_IN_8_BITS = (("llama-3.2-1b", 4, 4096), ("llama-3.1-8b", 1, 4096), ("llama-3.1-70b", 1, 8192))
MOST_LAYERS = 4
"""Layers run in a row, so that starting a pass matters little and weights are not in the cache."""
WEIGHT_AND_GRADIENT_BYTES = 4
ACTIVATION_BYTES_PER_VALUE = 64
"""Memory of one layer per value of the residual stream, without fusion and rounded up."""
LAYER_MEMORY_SHARE = 0.8
LEAST_MEMORY_BYTES = 4 * GIB
"""Least memory in which the largest kernels of the grid fit with their inputs."""
TIMED_S = 0.005
"""Duration of one burst: long compared with the resolution of clocks, short compared with the second over which a power limit
acts."""
RESTS = 10.0
"""Pause after a burst, in burst lengths; it reduces the power to a tenth of that under sustained load."""
MOST_RUNS = 10_000
NUM_REPETITIONS = 5
"""An odd number, so that one interruption does not move the median."""
LOADED_S = 2.0
"""Duration of products before the power is read: meters average over about a second."""

Runs = Callable[[int], float]
"""Runs a kernel so many times in a row and returns the seconds that all of them took."""


class LayerTimes(NamedTuple):
    """Seconds of one layer, and the bytes that it keeps from forward to backward."""

    forward_s: float
    backward_s: float
    kept_bytes: float = 0.0
    """0 if unknown."""


class Device(Protocol):
    """Something that can be timed."""

    @property
    def name(self) -> str:
        """Name that the device reports."""

    @property
    def memory_bytes(self) -> float:
        """Memory available to kernels."""

    @property
    def num_devices(self) -> int:
        """Devices of this kind that can reach each other."""

    def can_run(self, kind: KernelKind, precision: Precision) -> bool:
        """Returns whether it supports such products."""

    def prepare(self, kernel: Kernel) -> Runs | None:
        """Makes the inputs of a kernel, which are freed with the returned function; `None` if the kernel cannot run."""

    def layer_times(self, layer: Kernel, num_layers: int) -> LayerTimes | None:
        """Runs the given number of layers in a row under sustained load; `None` if it cannot."""

    def rest(self, seconds: float) -> None:
        """Waits, so that the device cools."""

    def power_w(self) -> float | None:
        """Power that it draws; `None` if it cannot be read."""


Tell = Callable[[int, int], None]
Skip = Callable[[Kernel], None]


def measure(
    device: Device,
    *,
    date: str | None = None,
    tell: Tell = lambda _done, _total: None,
    skip: Skip = lambda _kernel: None,
) -> KernelTable:
    """Times the grid on a device.

    Args:
        device: what is timed; nothing else should run on it.
        date: when; if omitted, today.
        tell: is called with the number of kernels and layers done, and their total number.
        skip: is called with every kernel and layer that could not run and is left out.

    Raises:
        InputError: the date is too long.
        CapplanError: the device has too little memory.
    """
    check_date(date)
    if device.memory_bytes < LEAST_MEMORY_BYTES:
        raise CapplanError(
            f"{device.name} has {device.memory_bytes / GIB:.1f} GiB of free memory, and the measurement needs "
            f"{LEAST_MEMORY_BYTES / GIB:.0f} GiB: stop other programs on it"
        )
    idle_power_w = device.power_w()
    kernels, layers = tuple(grid(device)), tuple(layers_of(device))
    num_all = len(kernels) + len(layers)
    timed: list[tuple[Kernel, float]] = []
    for done, kernel in enumerate(kernels):
        tell(done, num_all)
        if runs := device.prepare(kernel):
            timed.append((kernel, time_s(runs, device.rest)))
        else:
            skip(kernel)
    loaded_power_w = _loaded_power_w(device) if idle_power_w is not None else None
    for done, (layer, num_layers) in enumerate(layers, len(kernels)):
        tell(done, num_all)
        if times := device.layer_times(layer, num_layers):
            timed.append((replace(layer, num_bytes=round(times.kept_bytes)), times.forward_s))
            timed.append((replace(layer, kind=KernelKind.LAYER_BACKWARD), times.backward_s))
        else:
            skip(layer)
    return KernelTable(
        device=device.name,
        date=date or today(),
        kernels=tuple(kernel for kernel, _ in timed),
        seconds=np.array([float(f"{seconds:.6g}") for _, seconds in timed]),  # as the table stores it
        idle_power_w=idle_power_w,
        loaded_power_w=loaded_power_w,
    )


def note_of_skipped(skipped: Sequence[Kernel]) -> Iterator[str]:
    """Yields a sentence that names what could not run; nothing if everything ran."""
    words = [
        " ".join(
            [
                kernel.model or kernel.kind.value,
                kernel.precision.value,
                *([kernel.software] if kernel.software else []),
            ]
        )
        for kernel in skipped
    ]
    named = list(dict.fromkeys(words))
    if named:
        rest = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        yield f"Left out because it could not run here: {', '.join(named[:MOST_NAMED])}{rest}."


def grid(device: Device) -> Iterator[Kernel]:
    """Yields the kernels that are timed individually, large ones mixed with small ones."""
    for kind, num_bytes in product((KernelKind.COPY, KernelKind.ADD), MOVED_BYTES):
        yield Kernel(kind=kind, num_bytes=num_bytes)
    products = [(precision, kind) for precision, kind in PRODUCTS if device.can_run(kind, precision)]
    for m, n, k in product(TOKENS, WIDTHS, WIDTHS):
        for precision, kind in products:
            yield Kernel(kind=kind, precision=precision, m=m, n=n, k=k)
    for length, heads, width in product(SEQUENCE_LENGTHS, NUM_HEADS, HEAD_DIMS):
        for kind in (KernelKind.ATTENTION, KernelKind.ATTENTION_BACKWARD):
            yield Kernel(
                kind=kind,
                batch=ATTENTION_TOKENS // length,
                sequence_length=length,
                num_heads=heads,
                head_dim=width,
            )
    if device.num_devices > 1:
        for num_bytes in SUMMED_BYTES:
            yield Kernel(kind=KernelKind.ALL_REDUCE, num_bytes=num_bytes, group_size=device.num_devices)


def layers_of(device: Device) -> Iterator[tuple[Kernel, int]]:
    """Yields the layers to time, each for both passes, and how many of each fit in a row."""
    in_8_bits = LAYERS_IN_8_BITS if device.can_run(KernelKind.GEMM, Precision.FP8) else ()
    asked = [
        *((Precision.BF16, software, size) for size in LAYER_SIZES for software in Software),
        *((Precision.FP8, Software.COMPILED, size) for size in in_8_bits),
    ]
    for precision, software, (model, batch, length) in asked:
        num_layers = _num_layers(catalog.model(model), batch * length, device.memory_bytes)
        if num_layers:
            yield (
                Kernel(
                    kind=KernelKind.LAYER,
                    precision=precision,
                    model=model,
                    software=software,
                    batch=batch,
                    sequence_length=length,
                ),
                num_layers,
            )


def time_s(runs: Runs, rest: Callable[[float], None] = lambda _: None) -> float:
    """Returns the seconds of one run: the median over bursts, each long enough for the clock, after a warm-up."""
    runs(1)
    first_s = max(runs(3) / 3.0, 1e-9)
    num_runs = int(np.clip(TIMED_S / first_s, 1, MOST_RUNS))
    found = []
    for _ in range(NUM_REPETITIONS):
        rest(RESTS * num_runs * first_s)
        found.append(runs(num_runs) / num_runs)
    return float(np.median(found))


def _num_layers(shape: ModelShape, tokens: int, memory_bytes: float) -> int:
    """Returns how many layers fit, together with what they keep for the backward pass."""
    weights = WEIGHT_AND_GRADIENT_BYTES * shape.dense_layer_parameters
    kept = ACTIVATION_BYTES_PER_VALUE * tokens * shape.hidden_size
    return int(min(MOST_LAYERS, LAYER_MEMORY_SHARE * memory_bytes // (weights + kept)))


def _loaded_power_w(device: Device) -> float | None:
    """Returns the power right after the largest product has run for some seconds."""
    largest = Kernel(kind=KernelKind.GEMM, m=max(TOKENS), n=max(WIDTHS), k=max(WIDTHS))
    if runs := device.prepare(largest):
        once_s = max(time_s(runs), 1e-9)
        runs(max(1, int(LOADED_S / once_s)))
    return device.power_w() if runs else None
