"""What did the software of a measured run do? What its row states, and what its framework does by default.

This covers sharding, recomputation, hidden traffic, formats of what is kept and sent, and offloading.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.measured.cells import notes as measured_notes
from planner.measured.cells.file import BYTES_OF_A_WEIGHT
from planner.measured.cells.told import Told
from planner.measured.frameworks.habits import Habits
from planner.measured.frameworks.names import is_maxtext
from planner.measured.hardware.nodes import MeasuredNode
from planner.measured.layout.degrees import GRADIENTS_STAGE
from planner.measured.layout.sharding import (
    LAST_STAGE,
    SHARD_GROUPS,
    counts_shards,
    keeps_weights,
    says_to_shard_again,
    told_shard_ranks,
    told_stage,
    zero_stage,
)
from planner.measured.recomputation.cell import recomputed
from planner.measured.recomputation.recomputed import (
    NOT_GIVEN,
    Recomputed,
    layers_of_a_chunk,
    of_a_chunk,
)
from planner.measured.run_layout import RunLayout
from planner.measured.software.framework_habits import (
    in_pipeline,
    outside_pipeline,
    reducing_in_pipeline,
    sharding_gradients,
)
from planner.measured.software.gradient_formats import gradient_cells
from planner.measured.software.offload import activation_offload_fraction, optimizer_offload_fraction
from planner.measured.software.told_habits import GATHERED_CASTS, UNTOLD_HABITS
from planner.measured.workload.adapters import adapter_cells
from planner.measured.workload.experts import expert_habits
from planner.measured.workload.precision import fp8_recipe, scales_rows
from planner.measured.workload.sequences import counts_ranks
from planner.measured.workload.shape import has_experts
from simulator.domain.model import ModelShape

_BETWEEN_SLICES = "tpu-dcn"


@dataclass(frozen=True, kw_only=True)
class RunSetting:
    """A measured run without its layout: what it ran on, and with which software."""

    told: Told
    """Collects what has to be assumed."""
    habits: Habits
    """The framework's habits, whatever the layout."""
    precision: str
    """Number format of the products."""
    kind: str
    """What was measured; empty for an ordinary step."""
    known: ModelShape | None
    """Catalogue model of the same name and size."""
    node: MeasuredNode
    """What it ran on."""
    splits_sequence: bool | None
    """Whether tensor-parallel ranks split the sequence; `None` if the row does not say."""

    def sharding(self, layout: RunLayout) -> tuple[Habits, int | None]:
        """Returns the habits for the layout, and the ZeRO stage that the row states or `None`."""
        written, is_pipeline = self.told.text("zero_stage_or_fsdp"), layout.pipeline_parallel > 1
        habits = reducing_in_pipeline(self.habits) if is_pipeline else outside_pipeline(self.habits)
        stage = told_stage(self.told, habits.zero_stage)
        if (habits.zero_stage if stage is None else stage) >= GRADIENTS_STAGE:
            habits = sharding_gradients(habits)
        is_habit = stage != 0 and (not says_to_shard_again(written) or keeps_weights(written))
        most = habits.pipeline_zero_stage
        if not (most and is_pipeline and is_habit):
            return habits, stage
        return in_pipeline(habits), None if stage is None else min(stage, most)

    def remark_whole_gradients(self, habits: Habits, stage: int | None) -> None:
        """Remarks if a row names ZeRO-2 but its framework's pipelines do less."""
        written = self.told.text("zero_stage_or_fsdp")
        if stage == 1 and zero_stage(written) == 2 and not keeps_weights(written):
            meaning = f"pipelines of {habits.name} reduce whole gradients once, as ZeRO-1"
            self.told.remark("zero_stage_or_fsdp", meaning)

    def recomputed(self) -> Recomputed:
        """Returns what the row says about recomputation."""
        return recomputed(self.told.text("recompute"), self.told.text("notes")) or NOT_GIVEN

    def cells(
        self, layout: RunLayout, num_layers: int, habits: Habits, stage: int | None
    ) -> dict[str, object]:
        """Returns the cells of a row that say how it ran.

        Args:
            layout: degrees of parallelism and chunks per stage.
            num_layers: of the model.
            habits: of the framework with this layout.
            stage: ZeRO stage that the row states; `None` if it states none.
        """
        notes = self.told.text("notes")
        told = {
            "overlaps_tensor_comm": measured_notes.hides_tensor_traffic(notes),
            "overlaps_gradient_sync": measured_notes.hides_gradient_traffic(notes),
            "overlaps_parameter_gather": False if measured_notes.waits_for_weights(notes) else None,
            "gathers_cast_weights": measured_notes.gathers_cast_weights(
                f"{notes}; {self.told.text('precision')}"
            ),
        }
        numbers = self.told.cells.numbers
        return {
            "fp8_recipe": fp8_recipe(self.told.text("precision")) or habits.fp8_recipe or "",
            **self._recompute_cells(layout, num_layers),
            **self._shard_cells(layout, habits, stage),
            "has_sequence_parallel": layout.tensor_parallel > 1 and self._splits_sequence(),
            "logit_bytes": measured_notes.logit_bytes(notes) or self._logit_bytes(layout),
            "activation_offload_fraction": activation_offload_fraction(self.told, num_layers),
            "optimizer_offload_fraction": optimizer_offload_fraction(self.told),
            **{name: getattr(habits, name) for name in UNTOLD_HABITS},
            **{name: getattr(habits, name) or self._gathers_tensor_scaled() for name in GATHERED_CASTS},
            **{name: is_on for name, is_on in told.items() if is_on is not None},
            **gradient_cells(f"{notes}; {self.told.text('precision')}", habits),
            **{name: numbers.get(name, getattr(habits, name)) for name in BYTES_OF_A_WEIGHT},
            **expert_habits(self.told, self.known, self.habits, self.node, num_ranks=layout.expert_parallel),
            **adapter_cells(self.told, self.kind, has_experts=has_experts(self.told, self.known)),
        }

    def _shard_cells(self, layout: RunLayout, habits: Habits, stage: int | None) -> dict[str, object]:
        told, replicas = self.told, layout.data_parallel * layout.context_parallel
        simulated_stage = told.default("zero_stage_or_fsdp", habits.zero_stage) if stage is None else stage
        ranks = told_shard_ranks(
            told,
            replicas=replicas,
            node_ranks=self.node.num_accelerators // layout.tensor_parallel,
            context=layout.context_parallel,
        )
        if ranks is None and simulated_stage == LAST_STAGE:
            ranks = self._slice_ranks(replicas, layout.tensor_parallel)
        return {"zero_stage": simulated_stage, "shard_ranks": ranks}

    def _slice_ranks(self, replicas: int, tensor: int) -> int | None:
        """Returns the ranks of a shard group of MaxText on several slices of TPUs; `None` where all replicas are one group.

        It shards within a slice and keeps copies on the others (`ici_fsdp_parallelism: -1`, `dcn_data_parallelism: -1` in
        `base.yml`).
        """
        ranks, is_slice = self.node.link_domain_size // tensor, self.node.cells["fabric"] == _BETWEEN_SLICES
        is_told = counts_shards(self.told.text("zero_stage_or_fsdp"))
        if not is_maxtext(self.told.framework) or not is_slice or is_told:
            return None
        if not 0 < ranks < replicas or replicas % ranks:
            return None
        return self.told.default(SHARD_GROUPS, ranks)

    def _recompute_cells(self, layout: RunLayout, num_layers: int) -> dict[str, object]:
        num_chunks = layout.num_chunks
        written, most = self.recomputed(), layers_of_a_chunk(num_layers, num_chunks)
        again = of_a_chunk(written, num_layers=num_layers, num_chunks=num_chunks)
        count = written.num_layers or 0
        if written.of_layers is None and count > most and count != num_layers:
            self.told.remark(
                "recompute", f"{count} layers of a chunk, which has {most}; taken as all of them"
            )
        if not again.is_exact:
            self._remark_recomputed(again, num_chunks)
        return {
            "recompute": again.kind,
            "recompute_num_layers": again.num_layers,
            "recompute_method": again.method,
        }

    def _remark_recomputed(self, again: Recomputed, num_chunks: int) -> None:
        self.told.default("recompute", again.kind)
        if not again.is_understood:
            self.told.remark("recompute", "is not understood; taken as none")
        if again.is_some:
            meaning = "does not say what; taken as none, or as what makes room: memory is not judged"
            self.told.remark("recompute", meaning)
        if again.unread:
            self.told.remark("recompute", f"{', '.join(again.unread)}: no known module; left out")
        if again.method == "uniform":
            self.told.remark("recompute", f"taken as groups of {again.num_layers} layers")
        elif again.num_layers:
            self.told.remark("recompute", f"taken as {again.num_layers} in each of {num_chunks} chunks")

    def _gathers_tensor_scaled(self) -> bool:
        """Returns whether inputs of 8-bit products have one scale, and the framework gathers those, and weights, in 8 bits."""
        written = self.told.text("precision")
        has_one_scale = fp8_recipe(written) in ("", "tensorwise") and not scales_rows(written)
        return self.habits.gathers_tensor_scaled_inputs and self.precision == "fp8" and has_one_scale

    def _logit_bytes(self, layout: RunLayout) -> int:
        split = self.habits.split_logit_bytes if layout.tensor_parallel > 1 else None
        return split or self.habits.logit_bytes

    def _splits_sequence(self) -> bool:
        if counts_ranks(self.told.text("sp")):
            self.told.remark("sp", "taken as yes, of the tensor-parallel ranks")
        if self.splits_sequence is None:
            return self.told.default("sp", self.habits.has_sequence_parallel)
        return self.splits_sequence
