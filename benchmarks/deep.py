"""How fast is the deep depth compared with TrioSim and ASTRA-sim, and does an event cost the same on a large network?

    python -m benchmarks.deep [FOLDER] [--picture docs/pictures/cost-of-an-event.svg]

FOLDER is `sample_trace/trace2-h100-bs128` of github.com/sarchlab/triosim (commit 3fb3c06), with `vgg13` and `resnet50`; if
omitted, it is `tests/data/traces`, which holds the same two traces in capplan's format. --picture draws the last two of the
four tables. The times of TrioSim (the same commit) and ASTRA-sim 2 (commit 4f387bc, analytical network) were measured on a
machine with two cores and are for the whole program. Ours are for building and playing the graph in a warm process, in seconds
of one core, the shortest of five runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from simulator.deep.collectives.schedules import Collectives
from simulator.deep.networks.routing import Router
from simulator.deep.networks.topologies import cluster, fat_tree, ring, switch
from simulator.deep.networks.topology import Topology
from simulator.deep.playing.play import play
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.deep.traced_steps.extrapolate import extrapolate
from simulator.deep.traced_steps.triosim import TrioSimCase, triosim_step
from simulator.deep.traces.parallelism import Parallelism
from simulator.deep.traces.read import read_operator_trace
from simulator.deep.traces.trace import OperatorTrace
from simulator.units import GIB, MIB, MICROSECOND

NUM_RUNS = 5
TRACES = Path(__file__).parents[1] / "tests" / "data" / "traces"
TRIOSIM_S = {
    ("vgg13", "dp"): {8: "0.03", 32: "0.32", 64: "1.0"},
    ("vgg13", "ddp"): {8: "0.16", 32: "1.9", 64: "8.4"},
    ("vgg13", "tp"): {8: "0.25", 32: "3.8", 64: "33.8"},
    ("vgg13", "pp"): {8: "0.02"},
    ("resnet50", "dp"): {8: "0.34", 32: "1.8", 64: "6.0"},
    ("resnet50", "ddp"): {8: "2.2", 32: "37.3", 64: "> 200"},
    ("resnet50", "tp"): {8: "1.6", 32: "49.6", 64: "> 200"},
    ("resnet50", "pp"): {8: "0.07"},
}
"""Wall seconds of TrioSim."""
ASTRA_S = {64: "0.03 / 0.04", 256: "0.33 / 0.54", 1024: "6.5 / 13.7"}
"""Wall seconds of ASTRA-sim for a ring all-reduce of 1 GiB, without and with congestion."""
NODES = (8, 32, 128, 512, 2048)
MEETING = (16, 64, 256, 1024)
"""Accelerators whose messages meet."""
MESSAGES = 16
"""That each of them sends."""


def best_s(run: Callable[[], tuple[float, int]]) -> tuple[float, float, int]:
    """Returns the shortest time of some runs on one core, the simulated time, and the number of tasks."""
    simulated_s, num_tasks = run()
    seconds = []
    for _ in range(NUM_RUNS):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds), simulated_s, num_tasks


def as_triosim(trace: OperatorTrace, case: str, num_gpus: int) -> tuple[float, int]:
    """Plays a step under TrioSim's rules; returns its time and its number of tasks."""
    step = triosim_step(trace, TrioSimCase(case), num_gpus=num_gpus)
    return play(step.graph, step.topology, step.paths).makespan_s, len(step.graph)


def by_default(trace: OperatorTrace, parallelism: Parallelism) -> tuple[float, int]:
    """Plays a step under our own rules on a ring; returns its time and its number of tasks."""
    made = extrapolate(trace, parallelism, ring(parallelism.num_gpus, 130e9, 1e-6))
    return play(made.graph, made.topology, made.paths).makespan_s, len(made.graph)


def all_reduce(
    topology: Topology, num_bytes: float, num_at_once: int = 1, num_played: int | None = None
) -> tuple[float, int]:
    """Plays all-reduces over all accelerators, at once; returns their time and the number of tasks.

    Behind one switch all ranks are alike, so that it is enough to play some; left out: all are.
    """
    graph, router = TaskGraphBuilder(), Router(topology)
    ranks = np.arange(topology.num_ranks)
    after = np.full(num_played or len(ranks), NONE)
    for _ in range(num_at_once):
        Collectives(graph=graph, router=router).ring_all_reduce(ranks, num_bytes, after)
    built = graph.build()
    return play(built, topology, router.table()).makespan_s, len(built)


def many_rings(topology: Topology, num_bytes: float) -> tuple[float, float, int]:
    """All-reduces around rings of 64 accelerators, all at once: seconds to find the ways, to play, and the tasks."""
    graph, router = TaskGraphBuilder(), Router(topology)
    ranks = np.arange(topology.num_ranks).reshape(-1, 64)
    start = time.process_time()
    router.paths(ranks, np.roll(ranks, -1, axis=-1))
    route_s = time.process_time() - start
    Collectives(graph=graph, router=router).ring_all_reduce(ranks, num_bytes, np.full(ranks.shape, NONE))
    built, paths = graph.build(), router.table()
    play_s, _, num_tasks = best_s(lambda: (play(built, topology, paths).makespan_s, len(built)))
    return route_s, play_s, num_tasks


def random_messages(num_ranks: int) -> tuple[float, int]:
    """Messages of 1 MB, more or less, between random accelerators of a fat tree at random times: seconds, and how many.

    The tree has half of what its leaves could send, so that most messages share links with others all the time.
    """
    random, size = np.random.default_rng(0), num_ranks * MESSAGES
    topology = fat_tree(num_ranks, 5e10, 1e-6, ranks_per_leaf=8, num_spines=4, oversubscription=2.0)
    graph, router = TaskGraphBuilder(), Router(topology)
    source = random.integers(0, num_ranks, size)
    target = (source + random.integers(1, num_ranks, size)) % num_ranks
    begin = graph.add("wait", duration_s=random.uniform(0.0, 4.0 * MESSAGES * 1e6 / 5e10, size))
    path = router.paths(source, target)
    graph.add("message", num_bytes=1e6 * random.uniform(0.5, 1.5, size), path=path, after=[begin])
    built, paths = graph.build(), router.table()
    play_s, _, _ = best_s(lambda: (play(built, topology, paths).makespan_s, size))
    return play_s, size


def pods(num_nodes: int) -> Topology:
    """Returns nodes of eight accelerators with a card each, on rails."""
    return cluster(
        num_nodes,
        8,
        scale_up_bytes_per_s=450e9,
        scale_up_latency_s=5e-7,
        card_bytes_per_s=50e9,
        fabric_latency_s=2e-6,
    )


def print_steps(traces: dict[str, OperatorTrace]) -> None:
    """Prints the steps that TrioSim plays, too, and the same under our own rules."""
    print("| step | GPUs | simulated ms | tasks | s | TrioSim s |\n| --- | --- | --- | --- | --- | --- |")
    for (model, case), theirs in TRIOSIM_S.items():
        for num_gpus, seconds in theirs.items():
            own_s, simulated_s, tasks = best_s(partial(as_triosim, traces[model], case, num_gpus))
            print(
                f"| {model} {case} | {num_gpus} | {simulated_s * 1e3:.3f} | {tasks:,} | {own_s:.3f} | {seconds} |"
            )
    divisions = {"ddp": Parallelism(data_parallel=64), "tp": Parallelism(tensor_parallel=64)}
    for name, trace in traces.items():
        for case, parallelism in divisions.items():
            own_s, simulated_s, tasks = best_s(partial(by_default, trace, parallelism))
            print(
                f"| {name} {case}, our rules | 64 | {simulated_s * 1e3:.3f} | {tasks:,} | {own_s:.3f} | - |"
            )


def print_all_reduces() -> None:
    """Prints all-reduces of 1 GiB, one and two that share every link."""
    print("\n| ring all-reduces of 1 GiB | ranks | simulated ms | s | s, one rank played | ASTRA-sim s |")
    print("| --- | --- | --- | --- | --- | --- |")
    for num_ranks, seconds in ASTRA_S.items():
        topology = switch(num_ranks, 400e9, 9.3625e-7)
        for at_once, note in ((1, seconds), (2, "-")):
            own_s, simulated_s, _ = best_s(partial(all_reduce, topology, GIB, at_once))
            folded_s, same_s, _ = best_s(partial(all_reduce, topology, GIB, at_once, 1))
            assert abs(same_s - simulated_s) <= 1e-12 * simulated_s, "ranks behind a switch are alike"
            row = f"{at_once} at once | {num_ranks} | {simulated_s * 1e3:.2f} | {own_s:.3f} | {folded_s:.4f}"
            print(f"| {row} | {note} |")


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What a network cost to play."""

    num_ranks: int
    task_s: float
    """Seconds a task."""


def print_growth() -> list[Growth]:
    """Prints what an event costs on larger and larger networks, and returns it."""
    grown = []
    print("\n| rings of 64 at once | accelerators | links | tasks | s to find the ways | us a task |")
    print("| --- | --- | --- | --- | --- | --- |")
    for num_nodes in NODES:
        topology = pods(num_nodes)
        route_s, play_s, tasks = many_rings(topology, 64 * MIB)
        row = f"{topology.num_ranks:,} | {topology.num_links:,} | {tasks:,} | {route_s:.2f}"
        print(f"| nodes on rails | {row} | {play_s / tasks * 1e6:.3f} |")
        grown.append(Growth(num_ranks=topology.num_ranks, task_s=play_s / tasks))
    return grown


def print_meeting() -> list[Growth]:
    """Prints what a message costs that meets others, on larger and larger networks, and returns it."""
    grown = []
    print("\n| random messages | accelerators | messages | us a message |\n| --- | --- | --- | --- |")
    for num_ranks in MEETING:
        play_s, size = random_messages(num_ranks)
        print(f"| fat tree | {num_ranks:,} | {size:,} | {play_s / size * 1e6:.1f} |")
        grown.append(Growth(num_ranks=num_ranks, task_s=play_s / size))
    return grown


def draw_growth(grown: Sequence[Growth], meeting: Sequence[Growth], path: Path) -> None:
    """Draws what an event costs on larger and larger networks, as SVG; the same rows give the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "capplan", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(6.0, 3.2), layout="constrained")
    curves = (("in rings of 64: share no link", grown), ("random messages: meet", meeting))
    for label, rows in curves:
        costs = [row.task_s / MICROSECOND for row in rows]
        axis.plot([row.num_ranks for row in rows], costs, marker="o", label=label)
    sizes = sorted({row.num_ranks for _, rows in curves for row in rows})
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axis.set_xlabel("accelerators")
    axis.set_ylabel("microseconds a task or message")
    axis.legend()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Prints the four tables, and draws the last two where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "folder", type=Path, nargs="?", help="TrioSim's own; left out: the same in our format"
    )
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="what an event costs, drawn")
    given = parser.parse_args()
    folder = given.folder
    paths = {name: folder / name if folder else TRACES / f"{name}.json" for name in ("vgg13", "resnet50")}
    print_steps({name: read_operator_trace(path) for name, path in paths.items()})
    print_all_reduces()
    grown, meeting = print_growth(), print_meeting()
    if given.picture is not None:
        draw_growth(grown, meeting, given.picture)


if __name__ == "__main__":
    main()
