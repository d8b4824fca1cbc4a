"""What do the readers of traces do with broken files? Thousands of mutated ones, which they may only read or refuse.

    python -m benchmarks.fuzz_traces FOLDER --count 10000

FOLDER has a small `trace.csv` and `tensor.csv` of TrioSim's, `profile.json` and `graph.json` of PyTorch, and `captured.json`
of `capplan trace capture`; the files of our own and of Chakra are made from the first two, those of OpenDC from nothing. Any
error that is not one message of ours, and any reader that takes longer than `MOST_SECONDS`, ends the run and leaves the file
for a look.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from planner.opendc_failures import read_failures
from planner.opendc_files import CARBON, FAILURES, write_parquet
from simulator.deep.chakra_export import chakra_export
from simulator.deep.chakra_files import read_chakra, write_chakra
from simulator.deep.parallelism import Parallelism
from simulator.deep.profiled_trace import read_profiled
from simulator.deep.trace_file import read_trace_file, write_trace_file
from simulator.deep.triosim_files import read_triosim
from simulator.errors import InputError
from simulator.traces import read_trace
from simulator.units import DAY, MILLISECOND

PIECES = (b",", b'"', b"\n", b"-", b"9" * 30, b"[", b"{", b"nan", b"\x00", b"\xff\xff\xff\xff")
"""What is put in between."""
MOST_SECONDS = 5.0


def mutations(content: bytes, count: int, seed: int = 1) -> Iterator[bytes]:
    """Yields content with a few bytes changed, removed, repeated or added, again and again, always the same."""
    for number in range(count):
        yield mutated(content, np.random.default_rng([seed, number]))


def mutated(content: bytes, draw: np.random.Generator) -> bytes:
    """Returns content with one to four mutations."""
    changed = bytearray(content)
    for _ in range(draw.integers(1, 5)):
        place, length = int(draw.integers(len(changed) + 1)), int(draw.integers(1, 40))
        match int(draw.integers(4)):
            case 0:
                changed[place : place + 1] = bytes([int(draw.integers(256))])
            case 1:
                del changed[place : place + length]
            case 2:
                changed[place:place] = changed[place : place + length]
            case _:
                changed[place:place] = PIECES[int(draw.integers(len(PIECES)))]
    return bytes(changed)


def num_refused(read: Callable[[], object]) -> int:
    """Reads; returns 1 where the reader refuses in our words. Any other error passes."""
    try:
        read()
    except InputError:
        return 1
    return 0


def readers(folder: Path) -> Iterator[tuple[Path, Callable[[], object]]]:
    """Yields every kind of file, made in the folder where it is not there, and what reads it."""
    trace = read_triosim(folder)
    write_trace_file(trace, folder / "own.json")
    (nodes, _) = chakra_export(trace, Parallelism(data_parallel=2)).nodes
    for name in ("trace.csv", "tensor.csv"):
        yield folder / name, lambda: read_triosim(folder)
    yield folder / "own.json", lambda: read_trace_file(folder / "own.json")
    for suffix in (".et", ".json"):
        path = folder / f"chakra{suffix}"
        write_chakra(path, nodes)
        yield path, lambda path=path: read_chakra(path)  # type: ignore[misc] # bound now
    yield from opendc_readers(folder)
    captured = folder / "captured.json"
    if captured.exists():
        yield captured, lambda: read_trace_file(captured)
    profile, graph = folder / "profile.json", folder / "graph.json"
    if profile.exists():
        for path in (profile, graph):
            yield path, lambda: read_profiled(profile, graph, batch_size=1)


def opendc_readers(folder: Path) -> Iterator[tuple[Path, Callable[[], object]]]:
    """Yields a failure trace and a carbon trace of two days, and what reads them."""
    failures, carbon = folder / "failures.parquet", folder / "carbon.parquet"
    rows = np.full(20, int(DAY / MILLISECOND))
    write_parquet(
        failures,
        FAILURES,
        [{"failure_interval": rows, "failure_duration": rows, "failure_intensity": np.ones(20)}],
    )
    yield failures, lambda: read_failures(failures, num_nodes=10)
    hours = np.datetime64("2026-01-01", "ms") + np.arange(48) * np.timedelta64(1, "h")
    write_parquet(carbon, CARBON, [{"timestamp": hours, "carbon_intensity": np.arange(100.0, 148.0)}])
    yield carbon, lambda: read_trace(carbon)


def main() -> None:
    """Prints how many mutated files of each kind were refused, and the longest time for one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=10_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(shutil.copytree(arguments.folder, Path(scratch) / "traces"))
        for path, read in readers(folder):
            content, refused, longest_s = path.read_bytes(), 0, 0.0
            for changed in mutations(content, arguments.count):
                path.write_bytes(changed)
                start = time.perf_counter()
                refused += num_refused(read)
                longest_s = max(longest_s, time.perf_counter() - start)
            path.write_bytes(content)
            assert longest_s < MOST_SECONDS, f"{path.name} took {longest_s:.1f} s"
            print(
                f"{path.name:16} {arguments.count:,} mutated, {refused:,} refused, longest {longest_s:.2f} s"
            )


if __name__ == "__main__":
    main()
