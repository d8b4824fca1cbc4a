"""Which few constants describe measured collectives best, and how well do they predict other sizes?

Rewrites simulator/data/link_efficiency.csv from four sets of microbenchmarks; no training run is among them:

    python -m benchmarks.fit_links --tables .../aiconfigurator_core/systems/data \\
        --measured DIR --ratios .../inputs/ratio/nic_ratio.csv

Tables: NCCL inside one node, from the package `aiconfigurator-core` (Apache-2.0). Measured: transfers and all-reduces from
microsoft/vidur (MIT) and all-reduces from VIA-Research/vTrain (MIT), laid out as for `benchmarks.collectives`. Traffic between
A100 nodes, at 6 to 20 GB/s over network cards that are not stated, is left out. Ratios: bus bandwidth over 2 to 128 nodes of 8,
from aliyun/SimAI (MIT). Vidur's and vTrain's all-reduces have thousands of sizes; two per octave are taken from 1 MiB up, so
that the three sources, which differ by up to 17 % on the same kind of node, have about equal weight. Every fifth point is held
out of each fit and gives the `error` column.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.collectives import Table, all_tables
from benchmarks.fitting import Line, fit, write_lines
from simulator.domain.links import OTHER_FABRIC, OTHER_SCALE_UP, LinkConstants
from simulator.machine.network import all_gather_s, all_reduce_s, all_to_all_s, point_to_point_s
from simulator.table import Floats
from simulator.units import GIB, GIGA, MIB, MILLISECOND, gigabits_per_s

OUTPUT = Path(__file__).parents[1] / "simulator" / "data" / "link_efficiency.csv"
MIN_BYTES = 65536.0
"""Smaller messages cost their start-up, whatever the bandwidth; training sends few of them."""
NODE_SIZE = 8.0
PLATEAU_BYTES = 16.0 * GIB
PLATEAU_NODES = 16.0
"""From this size and up to these nodes the ratio table is flat: start-up no longer counts."""
RATIO_NODES = (2, 4, 8, 16, 32, 64, 128)
"""Clusters of the ratio table, in the order of its columns after the first, which is one node."""
RATIO_BYTES_PER_S_PER_GPU = gigabits_per_s(400.0)
"""Network card per GPU assumed for the ratio table, which does not name it. With it a ring costs what NCCL's
own tuning table says (14.0 us per network hop, 3.4 us per NVLink hop); with half of it, twice as much."""

Model = Callable[[LinkConstants, pd.DataFrame], Floats]


@dataclass(frozen=True, kw_only=True)
class ScaleUp:
    """One generation of NVLink and where it was measured."""

    link: str
    folders: tuple[str, ...]
    bytes_per_s: float
    send_recv: str
    family: str
    """Architecture of the tables of all-reduces that were measured on it."""


SCALE_UPS = (
    ScaleUp(
        link="nvlink3",
        folders=("a100_sxm",),
        bytes_per_s=300 * GIGA,
        send_recv="a100_dgx",
        family="ampere",
    ),
    ScaleUp(
        link="nvlink4",
        folders=("h100_sxm", "h200_sxm"),
        bytes_per_s=450 * GIGA,
        send_recv="h100_dgx",
        family="hopper",
    ),
    ScaleUp(
        link="nvlink5",
        folders=("b200_sxm", "b300_sxm", "gb200"),
        bytes_per_s=900 * GIGA,
        send_recv="",
        family="blackwell",
    ),
)
SAMPLES_PER_OCTAVE = 2
SAMPLE_WIDTH = 0.03
"""A size counts as that of the nearest step of an octave if it differs by no more than this."""

COLLECTIVE_START = {
    "intra_latency_s": 5e-6,
    "intra_hop_s": 1e-6,
    "intra_ramp_s": 5e-6,
    "all_reduce_fraction": 0.8,
    "gather_fraction": 0.8,
    "all_to_all_fraction": 0.8,
    "group_exponent": 0.2,
}

XGMI_LINK_FRACTION = 48.0 / 64.0
"""Share of an xGMI link that is left after error correction and protocol (AMD: 48 of 64 GB/s)."""
MESH_LINKS = 7.0
"""Links of one accelerator in a mesh of eight: a group of two uses one of them."""
ROCE_FRACTION = 600.0 / 800.0
"""Bus bandwidth of two nodes with eight 100 Gbit/s RoCE cards each (NVIDIA/nccl issue 495)."""

CHECK_INFINIBAND = (
    "other clusters: 0.96 (NVIDIA/nccl-tests issue 119, four HDR cards), 0.94 (Bekman, four nodes of B200)"
)

NCCL_SOURCE = "aiconfigurator-core 0.12.0, systems/data nccl_perf"
ALL_REDUCE_SOURCE = (
    "microsoft/vidur, data/profiling/network all_reduce; VIA-Research/vTrain, AR_GPU*_LUT (ampere)"
)
SEND_SOURCE = "microsoft/vidur, data/profiling/network send_recv"
RATIO_SOURCE = "aliyun/SimAI, inputs/ratio/nic_ratio.csv, 400 Gbit/s per GPU assumed"
MESH_SOURCE = "AMD ROCm blog on RCCL and xGMI: 48 of 64 GB/s per link; seven links of a mesh of eight"
UNITS = {"group_exponent": "1"}


@dataclass(frozen=True, kw_only=True)
class LinkLine(Line):
    """One row of the shipped file."""

    link: str


def lines_of(link: str, values: dict[str, float], fitted_on: str, error: str, source: str) -> list[LinkLine]:
    """Returns one line per constant."""
    return [
        LinkLine(
            link=link,
            constant=name,
            value=float(f"{value:.4g}"),
            unit="s" if name.endswith("_s") else UNITS.get(name, "fraction"),
            fitted_on=fitted_on,
            error=error,
            source=source,
        )
        for name, value in values.items()
    ]


def constants_of(values: dict[str, float]) -> LinkConstants:
    """Returns a table of one row; constants that a fit does not use are neutral."""
    neutral = dict.fromkeys(LinkConstants.names(), 0.0) | {
        name: 1.0 for name in LinkConstants.names() if name.endswith("_fraction") or "bytes_per_s" in name
    }
    return LinkConstants(**{name: np.array([value]) for name, value in (neutral | values).items()})


def read_collectives(tables: Path, scale_up: ScaleUp) -> pd.DataFrame:
    """Returns collectives inside one node: operation, members, full buffer, seconds (mean of versions)."""
    files = [
        file
        for folder in scale_up.folders
        for file in sorted((tables / folder).glob("comm/nccl/*/*.parquet"))
    ]
    rows = pd.concat([pd.read_parquet(file).assign(folder=file.parts[-5]) for file in files])
    rows = rows[rows.nccl_dtype == "half"]
    rows = rows.assign(num_bytes=2.0 * rows.message_size, log_s=np.log(rows.latency * MILLISECOND))
    rows = rows[rows.num_bytes >= MIN_BYTES]
    return rows.groupby(["folder", "op_name", "num_gpus", "num_bytes"])["log_s"].mean().reset_index()


def sampled_all_reduces(table: Table) -> pd.DataFrame:
    """Returns medians of all-reduces inside a node at two sizes an octave from 1 MiB up; columns as in `read_collectives`."""
    inside = table.inside_nodes()
    rows = inside.rows.assign(call_s=inside.call_s, op_name="all_reduce")[inside.rows.num_bytes >= MIB]
    size = 2.0 ** ((SAMPLES_PER_OCTAVE * np.log2(rows.num_bytes)).round() / SAMPLES_PER_OCTAVE)
    is_near = (rows.num_bytes / size - 1.0).abs() <= SAMPLE_WIDTH
    near = rows.assign(num_gpus=rows.group, num_bytes=size)[is_near]
    found = near.groupby(["op_name", "num_gpus", "num_bytes"])[["seconds", "call_s"]].median().reset_index()
    return found.assign(log_s=np.log(found.seconds))


def read_send_recv(measured: Path, system: str, *, is_same_domain: bool) -> pd.DataFrame:
    """Returns one-way transfers inside or between two nodes: bytes, seconds (median of the repetitions)."""
    rows = pd.read_csv(measured / "collectives" / f"{system}_send_recv.csv")
    rows = rows[(rows["devices_per_node"] == (2 if is_same_domain else 1)) & (rows["size"] >= MIN_BYTES)]
    seconds = rows["time_stats.send_recv.median"] * MILLISECOND
    return pd.DataFrame({"num_bytes": rows["size"].astype(float), "log_s": np.log(seconds)}).reset_index(
        drop=True
    )


def read_ratios(path: Path) -> pd.DataFrame:
    """Returns rings over whole nodes: nodes, bytes, seconds of one trip; ratios are bus to nominal rate."""
    table = pd.read_csv(path)
    frames = [
        pd.DataFrame(
            {"nodes": float(nodes), "num_bytes": table["Size"].astype(float), "ratio": table.iloc[:, 2 + at]}
        )
        for at, nodes in enumerate(RATIO_NODES)
    ]
    rows = pd.concat(frames, ignore_index=True)
    volume = (1.0 - 1.0 / (rows.nodes * NODE_SIZE)) * rows.num_bytes
    return rows.assign(log_s=np.log(volume / (rows.ratio * NODE_SIZE * RATIO_BYTES_PER_S_PER_GPU)))


def collective_model(links: LinkConstants, rows: pd.DataFrame) -> Floats:
    """Returns seconds of collectives inside one node, but no less than a call takes."""
    size = rows.num_gpus.to_numpy(float)
    sent = rows.num_bytes.to_numpy()
    is_reduce, is_exchange = (
        (rows.op_name == "all_reduce").to_numpy(),
        (rows.op_name == "alltoall").to_numpy(),
    )
    reduce_s, exchange_s, gather_s = (
        collective(num_bytes=sent, group_size=size, members_per_domain=size, links=links)
        for collective in (all_reduce_s, all_to_all_s, all_gather_s)
    )
    collective_s = np.where(is_reduce, reduce_s, np.where(is_exchange, exchange_s, gather_s))
    return np.asarray(np.maximum(collective_s, rows.call_s.to_numpy()))


def ring_model(links: LinkConstants, rows: pd.DataFrame) -> Floats:
    """Returns seconds of one trip around all members of all nodes."""
    nodes = rows.nodes.to_numpy()
    return all_gather_s(
        num_bytes=rows.num_bytes.to_numpy(),
        group_size=NODE_SIZE * nodes,
        members_per_domain=NODE_SIZE,
        links=links,
    )


def fit_rows(
    model: Model, rows: pd.DataFrame, fixed: dict[str, float], start: dict[str, float]
) -> tuple[dict[str, float], str]:
    """Returns the constants fitted to the rows, and their error on the held-out ones."""
    measured = rows.log_s.to_numpy()

    def log_errors(values: dict[str, float]) -> Floats:
        return np.asarray(np.log(model(constants_of(fixed | values), rows)) - measured)

    return fit(log_errors, start)


def fit_scale_up(
    tables: Path, measured: Path, scale_up: ScaleUp, point_to_point: float | None
) -> list[LinkLine]:
    """Returns the lines of one NVLink generation; `point_to_point` is taken over where nobody measured it."""
    others = [
        sampled_all_reduces(table)
        for table in all_tables(measured)
        if table.family == scale_up.family and not table.is_transfers
    ]
    rows = pd.concat([read_collectives(tables, scale_up).assign(call_s=0.0), *others], ignore_index=True)
    nominal = {"intra_bytes_per_s": scale_up.bytes_per_s, "gpus_per_domain": NODE_SIZE}
    values, error = fit_rows(collective_model, rows, nominal, COLLECTIVE_START)
    fitted_on = f"{' '.join(scale_up.folders)}: {len(rows)} collectives of 2 to 8"
    source = f"{NCCL_SOURCE}; {ALL_REDUCE_SOURCE}" if others else NCCL_SOURCE
    lines = lines_of(scale_up.link, values, fitted_on, error, source)
    if point_to_point is not None:
        taken = {"point_to_point_fraction": point_to_point}
        return lines + lines_of(scale_up.link, taken, "nvlink4", "not measured", SEND_SOURCE)
    rows = read_send_recv(measured, scale_up.send_recv, is_same_domain=True)
    fraction, error = fit_rows(
        lambda links, r: point_to_point_s(num_bytes=r.num_bytes.to_numpy(), is_same_domain=True, links=links),
        rows,
        nominal | {"intra_latency_s": values["intra_latency_s"]},
        {"point_to_point_fraction": 0.8},
    )
    return lines + lines_of(
        scale_up.link, fraction, f"{scale_up.send_recv}: {len(rows)} transfers", error, SEND_SOURCE
    )


def fit_fabric(measured: Path, ratios: Path, nvlink4: dict[str, float]) -> list[LinkLine]:
    """Returns the lines of InfiniBand: transfers give the hop, rings what passing through a node adds."""
    rows = read_send_recv(measured, "h100_dgx", is_same_domain=False)
    nominal = nvlink4 | {"intra_bytes_per_s": 450 * GIGA, "gpus_per_domain": NODE_SIZE}
    sends, error = fit_rows(
        lambda links, r: point_to_point_s(
            num_bytes=r.num_bytes.to_numpy(), is_same_domain=False, links=links
        ),
        rows,
        nominal | {"inter_bytes_per_s_per_gpu": gigabits_per_s(400.0)},
        {"inter_latency_s": 1e-5, "inter_point_to_point_fraction": 0.8},
    )
    lines = lines_of("infiniband", sends, f"h100_dgx, two nodes: {len(rows)} transfers", error, SEND_SOURCE)
    rows = read_ratios(ratios)
    is_flat = (rows.num_bytes >= PLATEAU_BYTES) & (rows.nodes <= PLATEAU_NODES)
    plateau = {"inter_fraction": float(rows.ratio[is_flat].median())}
    lines += lines_of("infiniband", plateau, "16 GiB over 2 to 16 nodes", CHECK_INFINIBAND, RATIO_SOURCE)
    nominal |= sends | plateau | {"inter_bytes_per_s_per_gpu": RATIO_BYTES_PER_S_PER_GPU}
    rings, error = fit_rows(ring_model, rows, nominal, {"inter_member_s": 3e-6})
    return lines + lines_of(
        "infiniband", rings, f"2 to 128 nodes of 8: {len(rows)} rings", error, RATIO_SOURCE
    )


def ethernet_lines(infiniband: list[LinkLine]) -> list[LinkLine]:
    """Returns InfiniBand's hops and bandwidths between InfiniBand's and a published RoCE figure."""
    values = {line.constant: line.value for line in infiniband}
    share = (ROCE_FRACTION / values["inter_fraction"]) ** 0.5
    hops = {name: value for name, value in values.items() if name.endswith("_s")}
    rates = {name: value * share for name, value in values.items() if name.endswith("_fraction")}
    lines = lines_of(OTHER_FABRIC, hops, "infiniband", "not measured", "infiniband")
    source = "geometric mean of infiniband and NVIDIA/nccl issue 495 (600 of 800 Gbit/s over RoCE, two nodes)"
    return lines + lines_of(
        OTHER_FABRIC, rates, "published", f"the two differ by {1 / share**2 - 1:.0%}", source
    )


def mesh_lines(nvlinks: list[LinkLine]) -> list[LinkLine]:
    """Returns the lines of all other scale-up links: NVLink's mean latencies, bandwidths of a mesh."""
    taken = {
        name: float(np.exp(np.mean([np.log(line.value) for line in nvlinks if line.constant == name])))
        for name in ("intra_latency_s", "intra_hop_s", "intra_ramp_s")
    }
    lines = lines_of(OTHER_SCALE_UP, taken, "nvlink3 nvlink4 nvlink5", "not measured", "geometric mean")
    names = ("all_reduce_fraction", "gather_fraction", "all_to_all_fraction")
    rates = dict.fromkeys(names, XGMI_LINK_FRACTION)
    rates |= {"point_to_point_fraction": XGMI_LINK_FRACTION / MESH_LINKS, "group_exponent": 1.0}
    error = "Gaudi 3 all-reduce of 8: measured 0.98 (513 of 525 GB/s, docs.habana.ai)"
    return lines + lines_of(OTHER_SCALE_UP, rates, "published", error, MESH_SOURCE)


def all_lines(tables: Path, measured: Path, ratios: Path) -> list[LinkLine]:
    """Returns the lines of every link, in the order of the file."""
    lines: list[LinkLine] = []
    for scale_up in SCALE_UPS:
        known = {line.constant: line.value for line in lines if line.link == "nvlink4"}
        point_to_point = None if scale_up.send_recv else known["point_to_point_fraction"]
        lines += fit_scale_up(tables, measured, scale_up, point_to_point)
    nvlink4 = {line.constant: line.value for line in lines if line.link == "nvlink4"}
    mesh = mesh_lines(lines)
    infiniband = fit_fabric(measured, ratios, nvlink4)
    return lines + mesh + infiniband + ethernet_lines(infiniband)


def main() -> None:
    """Fits every link, prints the errors and writes the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tables", type=Path, required=True, help="folder systems/data of aiconfigurator-core"
    )
    parser.add_argument("--measured", type=Path, required=True, help="folder with collectives/ and vtrain/")
    parser.add_argument("--ratios", type=Path, required=True, help="nic_ratio.csv of SimAI")
    arguments = parser.parse_args()
    write_lines(OUTPUT, all_lines(arguments.tables, arguments.measured, arguments.ratios))


if __name__ == "__main__":
    main()
