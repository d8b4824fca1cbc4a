"""What do the readers of traces do with broken files? They get thousands of mutated ones, and may only read or refuse them.

    python -m benchmarks.fuzz_traces --count 10000

The files are those of the tests: a small trace in TrioSim's form and in ours, a profile and an execution trace like PyTorch's,
Chakra traces in all their forms, and OpenDC's traces of failures and carbon. Each is broken by bytes and by its form.
`--folder` adds more: a real `profile.json` with its `graph.json`, and `captured.json` from `capplan trace capture`. The run
ends if an error is not one of our own messages, or if a reader takes longer than `MOST_SECONDS`; the file is kept for
inspection.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.fuzz_mutations import CSV, JSON, JSON_LINES, PROTOBUF, Form, mutations
from planner.opendc.failures import read_failures
from planner.opendc.files import CARBON, FAILURES, write_parquet
from simulator.deep.traced_steps.chakra_export import chakra_export
from simulator.deep.traces.chakra import ChakraNode
from simulator.deep.traces.chakra_files import read_chakra, write_chakra
from simulator.deep.traces.parallelism import Parallelism
from simulator.deep.traces.profiled_trace import read_profiled
from simulator.deep.traces.trace import OperatorTrace
from simulator.deep.traces.trace_file import read_trace_file, write_trace_file
from simulator.deep.traces.triosim_files import read_triosim
from simulator.domain.traces import read_trace
from simulator.errors import InputError
from simulator.units import DAY, MILLISECOND
from tests.simulator.deep.profiles import EVENTS, NODES, written
from tests.simulator.deep.traces import write_small

MOST_SECONDS = 5.0


def num_refused(read: Callable[[], object]) -> int:
    """Reads; returns 1 where the reader refuses in our words. Any other error passes."""
    try:
        read()
    except InputError:
        return 1
    return 0


@dataclass(frozen=True)
class Case:
    """A file, and what reads it."""

    path: Path
    read: Callable[[], object]
    form: Form | None = None
    """By which it is mutated, too; left out: only byte by byte."""


def cases(folder: Path) -> Iterator[Case]:
    """Yields every kind of file, made in the folder, and those that lie there already."""
    trace = read_triosim(write_small(folder))
    for name in ("trace.csv", "tensor.csv"):
        yield Case(folder / name, partial(read_triosim, folder), CSV)
    own = folder / "own.json"
    write_trace_file(trace, own)
    yield Case(own, partial(read_trace_file, own), JSON)
    yield from chakra_cases(folder, trace)
    yield from opendc_cases(folder)
    captured = folder / "captured.json"
    if captured.exists():
        yield Case(captured, partial(read_trace_file, captured), JSON)
    yield from profiled_cases(*written(folder, EVENTS, NODES, prefix="small-"))
    if (folder / "profile.json").exists():
        yield from profiled_cases(folder / "profile.json", folder / "graph.json")


def profiled_cases(profile: Path, graph: Path) -> Iterator[Case]:
    """Yields a profile and an execution trace, which are read together."""
    for path in (profile, graph):
        yield Case(path, partial(read_profiled, profile, graph, batch_size=1), JSON)


def chakra_cases(folder: Path, trace: OperatorTrace) -> Iterator[Case]:
    """Yields the first accelerator's trace of a step on four in protobuf and in both kinds of JSON."""
    parallelism = Parallelism(data_parallel=2, pipeline_parallel=2)
    (nodes, *_) = chakra_export(trace, parallelism).nodes
    for suffix, form in ((".et", PROTOBUF), (".json", JSON_LINES)):
        path = folder / f"chakra{suffix}"
        write_chakra(path, nodes)
        yield Case(path, partial(read_chakra, path), form)
    path = folder / "feeder.json"
    path.write_text(json.dumps({"workload_graph": [_feeder_node(node) for node in nodes]}), encoding="utf-8")
    yield Case(path, partial(read_chakra, path), JSON)


def _feeder_node(node: ChakraNode) -> dict[str, object]:
    """As chakra's feeder reads nodes from JSON; it knows no groups."""
    return {
        "Id": node.id,
        "Name": node.name,
        "NodeType": int(node.type),
        "runtime": node.duration_micros,
        "data_deps": node.deps,
        **{name: value for name, value in node.attributes.items() if name != "pg_name"},
    }


def opendc_cases(folder: Path) -> Iterator[Case]:
    """Yields a failure trace and a carbon trace of two days."""
    failures, carbon = folder / "failures.parquet", folder / "carbon.parquet"
    rows = np.full(20, int(DAY / MILLISECOND))
    write_parquet(
        failures,
        FAILURES,
        [{"failure_interval": rows, "failure_duration": rows, "failure_intensity": np.ones(20)}],
    )
    yield Case(failures, partial(read_failures, failures, num_nodes=10))
    hours = np.datetime64("2026-01-01", "ms") + np.arange(48) * np.timedelta64(1, "h")
    write_parquet(carbon, CARBON, [{"timestamp": hours, "carbon_intensity": np.arange(100.0, 148.0)}])
    yield Case(carbon, partial(read_trace, carbon))


def fuzzed(case: Case, form: Form | None, count: int) -> str:
    """Breaks a file again and again and has it read; returns how often it was refused, and the longest time of one."""
    content, refused, longest_s = case.path.read_bytes(), 0, 0.0
    for changed in mutations(content, count, form=form):
        case.path.write_bytes(changed)
        start = time.perf_counter()
        refused += num_refused(case.read)
        longest_s = max(longest_s, time.perf_counter() - start)
    case.path.write_bytes(content)
    assert longest_s < MOST_SECONDS, f"{case.path.name} took {longest_s:.1f} s"
    return f"{count:,} mutated, {refused:,} refused, longest {longest_s:.2f} s"


def main() -> None:
    """Prints how many mutated files of each kind were refused, and the longest time for one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, help="more files; they are not changed")
    parser.add_argument("--count", type=int, default=10_000)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    if arguments.folder:
        shutil.copytree(arguments.folder, folder, dirs_exist_ok=True)
    try:
        for case in cases(folder):
            ways = {"bytes": None, **({"form": case.form} if case.form else {})}
            for name, form in ways.items():
                print(f"{case.path.name:20} {name:6} {fuzzed(case, form, arguments.count)}", flush=True)
    except BaseException:
        print(f"the files are in {folder}")
        raise
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
