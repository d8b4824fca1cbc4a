"""Which measured runs does a file of vTrain hold, in the columns of `capplan validate`?

    python -m benchmarks.convert_vtrain FOLDER/ground_truth_multi.csv runs.csv
    capplan validate --measured runs.csv

vTrain (arXiv 2312.12391, https://github.com/VIA-Research/vTrain) published 109 iterations of 64 to 512 A100 and 1,440 of
one node. What its files do not say is taken from its code and configurations: full recomputation (the times of one node leave
no room for it: docs/validation.md), GPT-2's vocabulary, 800 Gbit/s per node.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from simulator.errors import refusal
from simulator.units import MILLISECOND

COLUMNS = {
    "n_gpus": "# GPUs",
    "global_batch": "global batch",
    "micro_batch": "micro batch",
    "hidden": "hidden size",
    "heads": "attention heads",
    "layers": "# layers",
    "seq_len": "sequence length",
    "tp": "tensor parallelism",
    "dp": "data parallelism",
    "pp": "pipeline parallelism",
}
"""Columns of `capplan validate` by those of vTrain."""
TIME_COLUMN = "iteration time (ms)"
FRAMEWORKS = {"ground_truth_single": "vTrain (Megatron)", "ground_truth_multi": "vTrain (Megatron-DeepSpeed)"}
"""Its single-node model splits the vocabulary without padding; the multi-node runs show no sign of odd widths."""
ASSUMED = {
    "gpu": "A100-80GB",
    "gpus_per_node": "8",
    "interconnect": "NVLink3 node + 4x200G HDR InfiniBand",
    "precision": "fp16",
    "vocab": "50257",
    "mlp_matrices": "2",
    "sp": "no",
    "zero_stage_or_fsdp": "none",
    "recompute": "full",
    "metric_kind": "iteration time",
}


def converted(path: Path) -> list[dict[str, str]]:
    """Returns the rows of a file of vTrain, each with the cells of a measured run.

    Raises:
        InputError: the file has no row, or lacks a column of vTrain's.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    missing = [name for name in (*COLUMNS.values(), TIME_COLUMN) if not rows or name not in rows[0]]
    if missing:
        rule = f"must have the columns of vTrain's ground truth; missing: {', '.join(missing)}"
        raise refusal(path, rule)
    return [_run(path.stem, number, row) for number, row in enumerate(rows, 1)]


def _run(name: str, number: int, row: Mapping[str, str]) -> dict[str, str]:
    sizes = {column: row[theirs] for column, theirs in COLUMNS.items()}
    return {
        "id": f"{name}-{number}",
        "source": f"vTrain {name.removeprefix('ground_truth_')}",
        "model": f"GPT h{sizes['hidden']} L{sizes['layers']}",
        **sizes,
        **ASSUMED,
        "framework": FRAMEWORKS.get(name, "Megatron-LM"),
        "step_time_s": str(float(row[TIME_COLUMN]) * MILLISECOND),
    }


def write_runs(runs: Sequence[Mapping[str, str]], path: Path) -> None:
    """Writes measured runs, one a row."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(runs[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(runs)


@click.command()
@click.argument("source", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False))
def main(source: Path, target: Path) -> None:
    """Writes the runs of vTrain's file SOURCE to TARGET."""
    write_runs(converted(source), target)


if __name__ == "__main__":
    main()
