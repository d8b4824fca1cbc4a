"""Which job file and plan stand for a measured row? With them, every command simulates the run as `validate` does.

Site, rent and number of tokens are placeholders: they play no part in a step.
"""

from __future__ import annotations

import math
from pathlib import Path

import yaml

from planner.input.own_files import check_own_file, replacing
from planner.job.typed_command import TypedCommand
from planner.measured.runs import Row, job_of, node_of_row, on_cluster, plan_of
from simulator import catalog
from simulator.argument_names import Argument
from simulator.catalog import Kind
from simulator.catalog.files import is_own
from simulator.catalog.lookup import FILES
from simulator.domain.calibration import Calibration
from simulator.domain.hardware import Node
from simulator.record import Record

WRITE_JOB = Argument("write_job")
"""The argument that names the file."""
_HEAD = "# A measured row as capplan reads it: "
LAST_IN_PART = "the last node is used in part, which offers of a job cannot be"
_WIDTH = 110
_LONGEST_ID = 60
_SHARED = (
    "network_bytes_per_s",
    "host_power_w",
    "fan_power_w",
    "purchase_usd",
    "embodied_host_kgco2e",
    "host_memory_bytes",
    "host_memory_bytes_per_s",
)
"""Quantities of a node of which its accelerators have equal parts."""


def row_document(row: Row, calibration: Calibration | None = None) -> dict[str, object]:
    """Returns the fields of a job file whose only offer is the cluster of a row; catalogue entries are named."""
    job = on_cluster(job_of(row), calibration)
    whole = job.model_dump(mode="json", exclude_defaults=True)
    num_gpus = int(row["num_gpus"])
    node = _used_part(node_of_row(row), num_gpus)
    (cluster,) = job.offers
    is_known = node == catalog.node(row["node"])
    offer = {
        "accelerator": _named(Kind.ACCELERATORS, row["accelerator"], cluster.accelerator),
        "node": _named(Kind.NODES, row["node"] if is_known else "", node),
        "fabric": _named(Kind.FABRICS, row["fabric"], cluster.fabric),
        "num_gpus": {"min": num_gpus, "max": num_gpus},
        "rent_usd_per_gpu_hour": 1.0,
    }
    return {**whole, "offers": [offer]}


def _named(kind: Kind, name: str, record: Record) -> object:
    """Returns the name of what the shipped catalogue has, and all figures of anything else."""
    is_shipped = name in catalog.names(kind) and not is_own(FILES[kind], name)
    return name if is_shipped else record.model_dump(mode="json", exclude_defaults=True)


def fills_its_nodes(row: Row) -> bool:
    """Returns whether a run has whole nodes or part of one, as offers of a job have: a last node in part has no job file."""
    num_gpus, node = int(row["num_gpus"]), node_of_row(row).num_accelerators
    return num_gpus < node or num_gpus % node == 0


def _used_part(node: Node, num_gpus: int) -> Node:
    """Returns the share of a node that a run within it uses, since offers have whole nodes: the same step."""
    if num_gpus >= node.num_accelerators:
        return node
    share, cards, domain = num_gpus / node.num_accelerators, node.num_network_cards, node.link_domain_size
    if domain <= node.num_accelerators:  # no rack of several nodes
        domain = num_gpus if domain >= num_gpus else math.gcd(domain, num_gpus)
    values = {
        "id": f"{num_gpus}-of-{node.id}"[:_LONGEST_ID],
        "name": f"{num_gpus} of the {node.num_accelerators} accelerators of {node.name}",
        "num_accelerators": num_gpus,
        "link_domain_size": domain,
        "num_network_cards": cards and math.ceil(cards * share),
        **{name: getattr(node, name) * share for name in _SHARED if getattr(node, name) is not None},
    }
    return node.model_copy(update=values)


def simulate_command(row: Row, file: Path) -> str:
    """Returns what simulates the run of a row from its job file."""
    return TypedCommand(job=str(file)).simulate(plan_of(row))


def check_row_job_file(file: Path) -> None:
    """Raises `InputError` if the file cannot be written, or would replace anything but such a file."""
    check_own_file(file, "measured row", WRITE_JOB, _is_row_job)


def write_row_job(row: Row, file: Path, calibration: Calibration | None = None) -> None:
    """Writes the job file of a row, with the command that simulates it; an older such file is replaced.

    Args:
        row: the row.
        file: where to.
        calibration: constants of the cluster, which become part of the job.

    Raises:
        InputError: the file cannot be written, or is something else.
    """
    check_row_job_file(file)
    name = " ".join(f"{row['row_id']} of {row['group']}".split())
    lines = [
        f"{_HEAD}{name}",
        "# Site, rent and tokens (those of one step) are placeholders: they play no part in a step.",
        f"# {simulate_command(row, file)}",
    ]
    text = yaml.safe_dump(row_document(row, calibration), sort_keys=False, allow_unicode=True, width=_WIDTH)
    with replacing(file, WRITE_JOB) as draft:
        draft.write_text("\n".join([*lines, text]), encoding="utf-8")


def _is_row_job(file: Path) -> bool:
    with file.open(encoding="utf-8", errors="replace") as lines:
        return lines.read(len(_HEAD)) == _HEAD
