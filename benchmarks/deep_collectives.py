"""How far are collectives simulated as flows from measured ones, by size and by group? With the constants of the fast depth.

    python -m benchmarks.deep_collectives --measured DIR            prints the table of docs/deep/comparisons.md
    python -m benchmarks.deep_collectives --measured DIR --page     writes it into that page

DIR is as in `benchmarks.collectives`. Inside a node, accelerators are connected to one switch. A cable has the bandwidth that
rings of the group's size reach and half the latency of a ring's step; the start-up of a call is added. The constants also have
a ramp: the smaller a collective, the less of the bandwidth it reaches. The rows `flows alone` omit this ramp. The rows `flows,
ramp` include it and use rings only, so they are the fast depth's prediction, simulated as flows.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from benchmarks.collectives import NAMES, Table, all_tables, error_rows, mean_error
from docs.markdown import replaced
from simulator.deep.collectives.chosen_collectives import ChosenCollectives
from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.collectives.schedules import Collectives
from simulator.deep.networks.routing import Router
from simulator.deep.networks.topologies import switch
from simulator.deep.playing.play import play
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.domain.links import LinkConstants
from simulator.machine.network import scale_up_rate
from simulator.table import Floats

PAGE = Path(__file__).parents[1] / "docs" / "deep" / "comparisons.md"
MARK = "deep-collectives"


def flow_times_s(sizes: Floats, group: int, links: LinkConstants, *, has_ramp: bool) -> Floats:
    """Returns how long all-reduces of some sizes take inside a node, played one after the other."""
    rate = float(scale_up_rate(links.all_reduce_fraction, float(group), links)[0])
    ramp_s = float(links.intra_ramp_s[0]) if has_ramp else 0.0
    topology = switch(group, rate, float(links.intra_hop_s[0]) / 2.0).with_ramp(ramp_s)
    graph, router = TaskGraphBuilder(), Router(topology)
    collectives = Collectives(graph=graph, router=router)
    chosen = ChosenCollectives(
        collectives=collectives, algorithm=Algorithm.RING if has_ramp else Algorithm.NCCL
    )
    before, ends = NONE, []
    for size in sizes.tolist():
        before = graph.join("done", chosen.all_reduce(np.arange(group), size, np.full(group, before)))
        ends.append(before)
    end_s = play(graph.build(), topology, router.table()).end_s[np.array(ends)]
    return np.asarray(np.diff(end_s, prepend=0.0) + float(links.intra_latency_s[0]))


def predicted_s(table: Table, *, has_ramp: bool) -> Floats:
    """Returns what flows say of every row of a table of all-reduces inside nodes."""
    found = np.zeros(len(table.rows))
    size = table.rows.num_bytes.to_numpy(float)
    for group, indices in table.rows.groupby("group").indices.items():
        sizes, row_of = np.unique(size[indices], return_inverse=True)
        found[indices] = flow_times_s(sizes, int(group), table.links, has_ramp=has_ramp)[row_of]
    return found


def errors_of(measured: Path) -> tuple[list[str], list[str]]:
    """Returns the lines of the table, and the means from 1 MiB up."""
    lines, means = [], []
    for table in all_tables(measured):
        if table.is_transfers:
            continue
        inside = table.inside_nodes()
        for name, has_ramp in (("flows alone", False), ("flows, ramp", True)):
            times_s = predicted_s(inside, has_ramp=has_ramp)
            lines += error_rows(inside, times_s, f"{table.name}, {name}")
            means.append(f"- {table.name}, {name}: {mean_error(inside, times_s)}")
    return lines, means


def main() -> int:
    """Prints the table of errors, or writes it into the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measured", type=Path, required=True, help="folder with collectives/ and vtrain/")
    parser.add_argument("--page", action="store_true", help="write the table into docs/deep/comparisons.md")
    given = parser.parse_args()
    lines, means = errors_of(given.measured)
    head = [f"| measured | group | {' | '.join(NAMES)} |", "|---" * (2 + len(NAMES)) + "|"]
    told = "\n".join([*head, *lines, "", "Inside a node, from 1 MiB up, all groups:", "", *means])
    if given.page:
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), MARK, told), encoding="utf-8")
    else:
        print(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
