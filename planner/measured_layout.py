"""How was a measured run laid out over its accelerators? Degrees, chunks of the pipeline and batches, from a row's columns."""

from __future__ import annotations

from planner.framework_habits import Habits
from planner.measured_sharding import LAST_STAGE, zero_stage
from planner.measured_told import CannotModelError, Told

MOST_LAYERS_ADDED_FRACTION = 0.1
"""Layers that a pipeline of uneven stages may be given on top, so that every stage is as full as the fullest."""
_GUESSED_GPUS = 8
"""Accelerators up to which a run without degrees is taken to split nothing."""


def layout_cells(told: Told, habits: Habits, num_layers: int) -> dict[str, int]:
    """Returns the fields of a plan that say how the work is split, and the sizes of batches and sequences.

    Raises:
        CannotModelError: a column is missing that cannot be guessed.
    """
    num_gpus = told.count("n_gpus")
    is_sharded = LAST_STAGE in (habits.zero_stage, zero_stage(told.text("zero_stage_or_fsdp")))
    is_split = is_sharded or num_gpus <= _GUESSED_GPUS or told.cells.count("dp") == num_gpus
    for column in ("tp", "pp"):
        if not is_split and not told.cells.count(column):
            raise CannotModelError(
                f"{column} is not given, and a layout on more than one node cannot be guessed"
            )
    names = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}
    degrees = {f"{name}_parallel": told.count(column, 1) for column, name in names.items()}
    t, p, c, _ = degrees.values()
    data = told.cells.count("dp") or max(1, num_gpus // (t * p * c))
    micro_batch, batch = _batch(told, data, is_sharded=is_sharded)
    return {
        **degrees,
        "num_gpus": num_gpus,
        "virtual_pipeline": _chunks_per_stage(told, habits, p, num_layers),
        "data_parallel": data,
        "micro_batch_size": micro_batch,
        "global_batch_size": batch,
        "sequence_length": told.count("seq_len"),
    }


def _chunks_per_stage(told: Told, habits: Habits, num_stages: int, num_layers: int) -> int:
    """Returns the chunks of a stage: as given, or what the framework's usual chunks come to, embedding and output counted."""
    if "vpp" in told.cells.numbers or num_stages == 1:
        return told.cells.count("vpp") or 1
    if habits.chunk_layers is None:
        return told.default("vpp", 1)
    chunks, rest = divmod(num_layers + 2, num_stages * habits.chunk_layers)
    return told.default("vpp", 1 if rest else chunks)


def _batch(told: Told, data_parallel: int, *, is_sharded: bool) -> tuple[int, int]:
    """Returns micro-batch and global batch; frameworks that shard everything seldom accumulate gradients."""
    micro_batch, batch = told.cells.count("micro_batch"), told.cells.count("global_batch")
    if batch is None:
        if micro_batch is None:
            raise CannotModelError("neither global_batch nor micro_batch is given")
        return micro_batch, told.default("global_batch", micro_batch * data_parallel)
    whole = max(1, batch // data_parallel)
    return micro_batch or told.default("micro_batch", whole if is_sharded else 1), batch


def split_layers(told: Told, num_layers: int, layout: dict[str, int]) -> int:
    """Returns the layers, or a few more where they do not split evenly: the fullest stage sets the pace."""
    chunks = layout["pipeline_parallel"] * layout["virtual_pipeline"]
    most = int(num_layers * (1.0 + MOST_LAYERS_ADDED_FRACTION))
    for layers in range(num_layers, most + 1):
        if layers % chunks == 0 or (layers + 2) % chunks == 0:
            return layers if layers == num_layers else told.default("layers", layers)
    return num_layers
