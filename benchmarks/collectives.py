"""How far are simulated collectives from measured ones, by size and by group?

    python -m benchmarks.collectives                           the sizes in this repository
    python -m benchmarks.collectives --measured DIR            all sizes
    python -m benchmarks.collectives --measured DIR --carry    all sizes, and rewrites those in this repository

DIR holds `collectives/` with all-reduces and transfers on DGX A100 and DGX H100 (microsoft/vidur, MIT:
`a100_dgx_all_reduce.csv` and so on) and `vtrain/` with all-reduces on 2, 4 and 8 A100 of one node (VIA-Research/vTrain:
`AR_GPU8_1M_1024M_LUT` and so on). The fit of `benchmarks.fit_links` uses four fifths of the transfers and, of the all-reduces
inside a node, two sizes per octave. The network cards of the A100 nodes are not stated; 200 Gbit/s per accelerator are assumed,
as in a DGX A100.

Vidur calls collectives from PyTorch, one at a time, so a small one takes as long as its call. Calls are not part of a
collective, since the step model counts the host separately. From 1 MiB up, a prediction is therefore at least the median time
of the group's calls below 1 MiB. Below 1 MiB, the collective is predicted on its own.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.domain.links import LinkConstants, link_constants
from simulator.machine.network import all_reduce_s, point_to_point_s
from simulator.table import Floats
from simulator.units import MIB, MILLISECOND, gigabits_per_s

CARRIED = Path(__file__).parent / "data" / "measured_all_reduces.csv"
CARRIED_PER_CELL = 16
NANOSECOND = 1e-9
DECADES = ((0.0, MIB / 16), (MIB / 16, MIB), (MIB, 10 * MIB), (10 * MIB, 100 * MIB), (100 * MIB, np.inf))
"""Lower and upper size."""
NAMES = ("< 64 KiB", "64 KiB - 1 MiB", "1 - 10 MiB", "10 - 100 MiB", "> 100 MiB")
WITHIN_NODE = (2, 4, 8)
PLACE = ["members", "group"]
"""Columns that tell groups of a table apart."""


class Machine(TypedDict):
    """What connects a table's accelerators."""

    family: str
    bytes_per_s: float
    network_bytes_per_s: float


MACHINES = {
    "A100": Machine(family="ampere", bytes_per_s=300e9, network_bytes_per_s=gigabits_per_s(200.0)),
    "H100": Machine(family="hopper", bytes_per_s=450e9, network_bytes_per_s=gigabits_per_s(400.0)),
}


@dataclass(frozen=True, kw_only=True)
class Table:
    """Measured seconds of one operation on one machine."""

    name: str
    family: str
    bytes_per_s: float
    """Scale-up bandwidth of one accelerator."""
    network_bytes_per_s: float
    """Network card of one accelerator."""
    rows: pd.DataFrame
    """Columns: num_bytes, group, members (in each node), seconds."""

    @property
    def predicted_s(self) -> Floats:
        """Returns the model's prediction for every row, without calls."""
        links = self.links
        size = self.rows.num_bytes.to_numpy(float)
        group, members = self.rows.group.to_numpy(float), self.rows.members.to_numpy(float)
        if self.is_transfers:
            return point_to_point_s(num_bytes=size, is_same_domain=members == group, links=links)
        return all_reduce_s(num_bytes=size, group_size=group, members_per_domain=members, links=links)

    @property
    def is_transfers(self) -> bool:
        """Returns whether the rows are point-to-point transfers; otherwise they are all-reduces."""
        return self.name.endswith("transfers")

    @property
    def call_s(self) -> Floats:
        """Returns the lower bound of every row's prediction: the median of calls below 1 MiB; 0 for these, or without any."""
        is_small = self.rows.num_bytes < MIB
        small = self.rows[is_small].groupby(PLACE).seconds.median().rename("call_s")
        call_s = self.rows.join(small, on=PLACE).call_s.fillna(0.0)
        return np.asarray(call_s.mask(is_small, 0.0), dtype=float)

    def inside_nodes(self) -> Table:
        """Returns the rows of groups that are in one node."""
        is_inside = self.rows.members == self.rows.group
        return replace(self, rows=self.rows[is_inside].reset_index(drop=True))

    @property
    def links(self) -> LinkConstants:
        """Returns the constants of its links."""
        return link_constants(
            [self.family],
            ["infiniband-hdr"],
            intra_bytes_per_s=self.bytes_per_s,
            inter_bytes_per_s_per_gpu=self.network_bytes_per_s,
            gpus_per_domain=8.0,
        )


def all_tables(measured: Path) -> list[Table]:
    """Returns every table of the folder."""
    folder = measured / "collectives"
    tables = [_table("A100 all-reduce (vTrain)", _vtrain(measured / "vtrain"))]
    for label, system in (("A100", "a100_dgx"), ("H100", "h100_dgx")):
        for operation, name in (("all_reduce", "all-reduce (Vidur)"), ("send_recv", "transfers")):
            rows = _vidur(folder / f"{system}_{operation}.csv", operation)
            tables.append(_table(f"{label} {name}", rows))
    return tables


def carried_tables() -> list[Table]:
    """Returns every table at the sizes that are carried."""
    rows = pd.read_csv(CARRIED)
    return [_table(name, rows[rows.table == name].reset_index(drop=True)) for name in rows.table.unique()]


def carried_rows(table: Table) -> pd.DataFrame:
    """Returns rows spread evenly over the sizes of each decade and group, no more than `CARRIED_PER_CELL` in each."""
    rows = table.rows.assign(table=table.name, decade=decades(table.rows)).sort_values("num_bytes")
    cells = [
        cell.iloc[np.unique(np.linspace(0, len(cell) - 1, CARRIED_PER_CELL).round().astype(int))]
        for _, cell in rows.groupby([*PLACE, "decade"])
    ]
    return pd.concat(cells)[["table", *PLACE, "num_bytes", "seconds"]]


def decades(rows: pd.DataFrame) -> NDArray[np.int64]:
    """Returns the index of each row's size in `DECADES` `(n,)`."""
    return np.asarray(
        np.searchsorted([low for low, _ in DECADES], rows.num_bytes.to_numpy(float), side="right") - 1
    )


def _table(name: str, rows: pd.DataFrame) -> Table:
    """Returns a table by its name, which begins with the accelerator."""
    return Table(name=name, rows=rows, **MACHINES[name.split(maxsplit=1)[0]])


def _vidur(file: Path, operation: str) -> pd.DataFrame:
    """Returns medians of the repetitions; groups fill their nodes evenly."""
    rows = pd.read_csv(file)
    return pd.DataFrame(
        {
            "num_bytes": rows["size"].astype(float),
            "group": rows["num_workers"],
            "members": np.minimum(rows["devices_per_node"], rows["num_workers"]),
            "seconds": rows[f"time_stats.{operation}.median"] * MILLISECOND,
        }
    )


def _vtrain(folder: Path) -> pd.DataFrame:
    """Returns times out of place; columns are size, count, type, time in ns, and others."""
    frames = []
    for group in WITHIN_NODE:
        rows = pd.read_csv(
            folder / f"AR_GPU{group}_1M_1024M_LUT", usecols=[0, 3], names=["size", "ns"], skiprows=1
        )
        frames.append(
            pd.DataFrame(
                {"num_bytes": rows["size"].astype(float), "group": group, "seconds": rows.ns * NANOSECOND}
            )
        )
    joined = pd.concat(frames, ignore_index=True)
    return joined.assign(members=joined.group)


def error_rows(table: Table, predicted_s: Floats | None = None, name: str | None = None) -> list[str]:
    """Returns a line for each group: mean absolute error and bias by size.

    Args:
        table: what was measured.
        predicted_s: prediction for its rows, without calls; if omitted, that of the fast depth.
        name: of the lines; if omitted, that of the table.
    """
    errors = relative_errors(table, predicted_s)
    lines = []
    for (members, group), indices in table.rows.groupby(PLACE).indices.items():
        size = table.rows.num_bytes.to_numpy()[indices]
        cells = [_cell(errors[indices][(size >= low) & (size < high)]) for low, high in DECADES]
        nodes = group // members
        place = f"{group} in a node" if nodes == 1 else f"{members} in each of {nodes} nodes"
        lines.append(f"| {name or table.name} | {place} | {' | '.join(cells)} |")
    return lines


def mean_error(table: Table, predicted_s: Floats | None = None) -> str:
    """Returns mean absolute error, bias and number of all rows inside a node from 1 MiB up; arguments as in `error_rows`."""
    rows = table.rows
    is_counted = (rows.members == rows.group).to_numpy() & (rows.num_bytes >= MIB).to_numpy()
    return _cell(relative_errors(table, predicted_s)[is_counted])


def relative_errors(table: Table, predicted_s: Floats | None = None) -> Floats:
    """Returns predicted over measured seconds less 1 `(n,)`; arguments as in `error_rows`."""
    said_s = table.predicted_s if predicted_s is None else predicted_s
    return np.asarray(np.maximum(said_s, table.call_s) / table.rows.seconds.to_numpy() - 1.0)


def _cell(errors: Floats) -> str:
    if not errors.size:
        return "-"
    return f"{np.abs(errors).mean():.1%} ({errors.mean():+.1%}, {errors.size:,})"


def main() -> int:
    """Prints the table of errors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measured", type=Path, help="folder with collectives/ and vtrain/")
    parser.add_argument("--carry", action="store_true", help=f"rewrite {CARRIED.name}")
    given = parser.parse_args()
    if given.carry and not given.measured:
        parser.error("--carry takes the sizes out of --measured")
    tables = all_tables(given.measured) if given.measured else carried_tables()
    if given.carry:
        pd.concat([carried_rows(table) for table in tables]).to_csv(
            CARRIED, index=False, float_format="%.6g", lineterminator="\n"
        )
    lines = [line for table in tables for line in error_rows(table)]
    head = f"| measured | group | {' | '.join(NAMES)} |"
    print("\n".join([head, "|---" * (2 + len(NAMES)) + "|", *lines]))
    print("\nInside a node, from 1 MiB up, all groups:")
    print("\n".join(f"- {table.name}: {mean_error(table)}" for table in tables))
    return 0


if __name__ == "__main__":
    sys.exit(main())
