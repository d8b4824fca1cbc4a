"""What do the kernels of `simulator.pipeline` keep of one design? Records, the workspace, and the rows of a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.compiled import compiled

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Records = npt.NDArray[np.void]

# What the kernels keep of one design, as records: three arrays to pass instead of twenty.
_CHUNK = np.dtype(
    [(name, np.float64) for name in ("forward_s", "backward_s", "sync_s", "gather_s")]
    + [(name, np.int64) for name in ("num_forwards", "num_backwards", "then_forwards", "then_backwards")]
)
_STAGE = np.dtype(
    [(name, np.float64) for name in ("compute_free_s", "network_free_s", "gathered_s", "then_free_s")]
    + [(name, np.int64) for name in ("num_forwards", "num_backwards", "peak_in_flight")]
)
DURATION = np.dtype([("forward_s", np.float64), ("backward_s", np.float64)])
"""How long a micro-batch runs on a chunk."""
_SPAN_FIELDS = ("forward_start_s", "forward_end_s", "backward_start_s", "backward_end_s")
_SPAN = np.dtype([(name, np.float64) for name in _SPAN_FIELDS])


class PipelineBatch(NamedTuple):
    """`simulator.pipeline.PipelineColumns` as the kernels read them: of one type each, contiguous."""

    num_stages: IntArray
    num_chunks_per_stage: IntArray
    num_micro_batches: IntArray
    num_overlap_buckets: IntArray
    send_blocks_sender: BoolArray
    send_s: FloatArray
    chunk_forward_s: FloatArray
    chunk_backward_s: FloatArray
    gradient_sync_s: FloatArray
    parameter_gather_s: FloatArray


class PipelineDesign(NamedTuple):
    """The numbers of one row of a batch."""

    num_stages: int
    num_chunks: int
    num_micro_batches: int
    num_overlap_buckets: int
    send_s: float
    send_blocks_sender: bool


class PipelineWorkspace(NamedTuple):
    """One step of one design while it is played: allocated once, overwritten by the next design."""

    chunks: Records
    """Shape (C,) of `_CHUNK`."""
    stages: Records
    """Shape (P,) of `_STAGE`."""
    spans: Records
    """Shape (C, M) of `_SPAN`."""


class PipelineResults(NamedTuple):
    """The arrays of `PipelineTimes`, to be filled."""

    step_s: FloatArray
    exposed_sync_s: FloatArray
    busy_s: FloatArray
    send_busy_s: FloatArray
    stage_end_s: FloatArray
    peak_in_flight: npt.NDArray[np.int32]


@compiled
def new_workspace(batch: PipelineBatch) -> PipelineWorkspace:
    """Allocates a workspace that is large enough for every design of the batch."""
    num_chunks = batch.num_stages * batch.num_chunks_per_stage
    num_spans = (num_chunks * batch.num_micro_batches).max()
    return allocated_workspace(num_chunks.max(), batch.num_stages.max(), (1, num_spans))


@compiled
def allocated_workspace(num_chunks: int, num_stages: int, shape: tuple[int, int]) -> PipelineWorkspace:
    """Allocates a workspace for so many chunks and stages, and spans of a shape."""
    return PipelineWorkspace(
        np.empty(num_chunks, dtype=_CHUNK),
        np.empty(num_stages, dtype=_STAGE),
        np.empty(shape, dtype=_SPAN),
    )


@compiled
def workspace_of(memory: PipelineWorkspace, design: PipelineDesign) -> PipelineWorkspace:
    """Returns the workspace with spans of one design side by side: rows that lie apart would miss the cache."""
    num_spans = design.num_chunks * design.num_micro_batches
    spans = memory.spans[0, :num_spans].reshape((design.num_chunks, design.num_micro_batches))
    return PipelineWorkspace(memory.chunks, memory.stages, spans)


@compiled
def design_of(batch: PipelineBatch, row: int) -> PipelineDesign:
    """Returns the numbers of one row; a single stage sends nothing."""
    num_stages = batch.num_stages[row]
    return PipelineDesign(
        num_stages,
        num_stages * batch.num_chunks_per_stage[row],
        batch.num_micro_batches[row],
        batch.num_overlap_buckets[row],
        batch.send_s[row] if num_stages > 1 else 0.0,
        batch.send_blocks_sender[row],
    )


@compiled
def has_schedule(design: PipelineDesign) -> bool:
    """Interleaving deals micro-batches out in groups of p, so that p must divide m."""
    return design.num_chunks == design.num_stages or design.num_micro_batches % design.num_stages == 0


@compiled
def load_chunks(batch: PipelineBatch, row: int, design: PipelineDesign, chunks: Records) -> None:
    """Copies the durations of one row into the workspace."""
    for chunk in range(design.num_chunks):
        chunks[chunk].forward_s = batch.chunk_forward_s[row, chunk]
        chunks[chunk].backward_s = batch.chunk_backward_s[row, chunk]
        chunks[chunk].sync_s = batch.gradient_sync_s[row, chunk]
        chunks[chunk].gather_s = batch.parameter_gather_s[row, chunk]
