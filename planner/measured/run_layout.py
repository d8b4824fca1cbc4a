"""How was a measured run split over its accelerators? Its degrees, its batch and its sequence length in one record."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True, kw_only=True)
class RunLayout:
    """Fields of a plan and a workload that say how the work of a run is split; the names are theirs."""

    tensor_parallel: int
    pipeline_parallel: int
    context_parallel: int
    expert_parallel: int
    num_gpus: int
    virtual_pipeline: int
    """Chunks of layers per pipeline stage."""
    data_parallel: int
    micro_batch_size: int
    """Sequences."""
    global_batch_size: int
    """Sequences per step."""
    sequence_length: int
    """Tokens."""

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches per replica and step."""
        return self.global_batch_size // (self.data_parallel * self.micro_batch_size)

    @property
    def num_chunks(self) -> int:
        """Chunks of layers of the whole pipeline."""
        return self.pipeline_parallel * self.virtual_pipeline

    @property
    def cells(self) -> dict[str, int]:
        """The fields by name, as cells of a row."""
        return asdict(self)

    def folded(self, num_mirrored: int) -> RunLayout:
        """Returns a layout with so many times fewer stages, and so many times the replicas."""
        return replace(
            self,
            pipeline_parallel=self.pipeline_parallel // num_mirrored,
            data_parallel=self.data_parallel * num_mirrored,
        )
