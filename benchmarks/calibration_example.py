"""What does a calibration give on a cluster whose constants are known? Steps of a made-up cluster, simulated with noise.

    python -m benchmarks.calibration_example steps.csv

The cluster has H100s with slower clocks and slower links than the published ones; `TRUE_CONSTANTS` says by how much.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import numpy as np

from planner.calibration.steps import MeasuredSteps
from planner.measured.rows import Unmodelled, read_measured
from simulator.domain.calibration import CalibratedConstant, Calibration, ConstantName
from simulator.domain.hardware import Precision
from simulator.machine.rank import Rank

ACCELERATOR = "h100-sxm5-80gb"
NOISE = 0.02
"""Log deviation of a measured step."""
SEED = 7
TRUE_CONSTANTS: Mapping[ConstantName, float] = {
    ConstantName.SUSTAINED_FRACTION: 0.74,
    ConstantName.INTRA_LINK_RATIO: 0.7,
    ConstantName.INTER_LINK_RATIO: 0.5,
}
"""What the made-up cluster reaches; published are 0.885, 1 and 1."""
LAYOUTS = (
    # model, accelerators, tensor, pipeline, sequences in a micro-batch, sequences in a batch, sequence length
    ("llama-3.1-8b", 8, 1, 1, 1, 128, 4096),
    ("llama-3.1-8b", 8, 2, 1, 1, 64, 8192),
    ("llama-3.1-8b", 8, 8, 1, 2, 64, 4096),
    ("llama-3.1-8b", 16, 4, 1, 1, 32, 8192),
    ("llama-3.1-8b", 32, 1, 1, 1, 64, 4096),
    ("llama-3.1-8b", 32, 8, 1, 1, 64, 8192),
    ("llama-3.1-8b", 64, 2, 1, 1, 64, 4096),
    ("llama-3.1-8b", 64, 1, 1, 1, 128, 8192),
    ("llama-3.1-8b", 128, 2, 1, 1, 128, 4096),
    ("llama-3.1-8b", 128, 4, 2, 1, 64, 8192),
    ("llama-3.1-70b", 64, 8, 4, 1, 64, 8192),
    ("llama-3.1-70b", 64, 8, 8, 1, 32, 4096),
    ("llama-3.1-70b", 128, 8, 4, 1, 64, 4096),
    ("llama-3.1-70b", 128, 4, 8, 1, 128, 8192),
    ("llama-3.1-70b", 256, 8, 2, 1, 64, 4096),
    ("llama-3.1-70b", 256, 8, 4, 1, 256, 8192),
)
HEAD = (
    "id",
    "source",
    "model",
    "gpu",
    "n_gpus",
    "precision",
    "tp",
    "pp",
    "dp",
    "micro_batch",
    "global_batch",
    "seq_len",
    "recompute",
    "framework",
    "step_time_s",
)


def true_calibration() -> Calibration:
    """Returns the constants of the made-up cluster, as a calibration."""
    constants = tuple(
        CalibratedConstant(
            name=name,
            accelerator=ACCELERATOR,
            precision=Precision.BF16 if name is ConstantName.SUSTAINED_FRACTION else None,
            value=value,
            published=1.0,
            log_deviation=0.0,
        )
        for name, value in TRUE_CONSTANTS.items()
    )
    return Calibration(
        source="made up",
        source_sha256="0" * 64,
        date="never",
        num_rows=1,
        num_configurations=1,
        error_before_fraction=0.0,
        error_after_fraction=0.0,
        error_left_out_fraction=0.0,
        constants=constants,
    )


def made_up_rows() -> list[dict[str, object]]:
    """Returns rows as a user would measure them on that cluster."""
    rows = [_row(number, *layout, step_time_s=1.0) for number, layout in enumerate(LAYOUTS, 1)]
    calibration = true_calibration()
    with tempfile.TemporaryDirectory() as folder:
        write(rows, Path(folder) / "rows.csv")
        read = [row for row in read_measured(Path(folder) / "rows.csv") if not isinstance(row, Unmodelled)]
    steps = MeasuredSteps.of(read)
    simulated_s = steps.simulated_s(
        lambda job, plans: Rank.of(job.model_copy(update={"calibration": calibration}), plans)
    )
    noise = np.random.default_rng(SEED).normal(0.0, NOISE, len(rows))
    times_s = (simulated_s * np.exp(noise)).tolist()
    return [{**row, "step_time_s": f"{time_s:.4g}"} for row, time_s in zip(rows, times_s, strict=True)]


def _row(number: int, *layout: object, step_time_s: float) -> dict[str, object]:
    model, num_gpus, tensor, pipeline, micro_batch, batch, length = layout
    data = int(str(num_gpus)) // (int(str(tensor)) * int(str(pipeline)))
    values = (
        f"run-{number:02d}",
        "our cluster",
        model,
        ACCELERATOR,
        num_gpus,
        "bf16",
        tensor,
        pipeline,
        data,
        micro_batch,
        batch,
        length,
        "selective",
        "Megatron-LM",
        step_time_s,
    )
    return dict(zip(HEAD, values, strict=True))


def write(rows: Sequence[Mapping[str, object]], path: Path) -> None:
    """Writes rows as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=HEAD, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def main(file: Path) -> None:
    """Writes the steps of the made-up cluster."""
    write(made_up_rows(), file)


if __name__ == "__main__":
    main()
