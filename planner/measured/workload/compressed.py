"""What does a measured DeepSeek-V4 compute? Compressed attention and streams of the catalogue's model, fused kernels."""

from __future__ import annotations

from collections.abc import Mapping

from planner.measured.cells.notes import freezes_indexer
from planner.measured.cells.told import CannotModelError, Told
from simulator.domain.layer_shares import kept_shares
from simulator.domain.model import ModelShape

PREFIX, STREAMS_PREFIX = "compressed_", "hyper_"
"""What tells the cells of compressed attention, and of hyper-connections, from others."""


def compressed_cells(told: Told, known: ModelShape | None, num_layers: int) -> dict[str, object]:
    """Returns the fields of `CompressedAttention` and `HyperConnections`, with their prefixes; nothing for other models.

    Of fewer layers than the model has, as many see compressed tokens of either kind as in proportion, rounded.

    Args:
        told: the row, whose notes may say that the indexer learns nothing.
        known: the catalogue's model of that name and size.
        num_layers: of the run.
    """
    cells: dict[str, object] = {}
    if known and (compressed := known.compressed_attention):
        counts = compressed.num_chosen_layers, compressed.num_heavy_layers
        chosen, heavy = kept_shares(counts, known.num_layers, num_layers)
        numbers = {"num_chosen_layers": chosen, "num_heavy_layers": heavy}
        cells |= {f"{PREFIX}{name}": value for name, value in (compressed.model_dump() | numbers).items()}
        cells["trains_indexer"] = not freezes_indexer(told.text("notes"))
    if known and (hyper := known.hyper_connections):
        cells |= {f"{STREAMS_PREFIX}{name}": value for name, value in hyper.model_dump().items()}
    return cells


def refuse_shared_sequences(cells: Mapping[str, object]) -> None:
    """Refuses layouts in which ranks share the heads or the sequences of compressed attention.

    Args:
        cells: fields of a run's network and plan.

    Raises:
        CannotModelError: Megatron Core has no such layout, and it is not simulated.
    """
    if f"{PREFIX}query_rank" not in cells:
        return
    for name in ("tensor_parallel", "context_parallel"):
        if (degree := cells.get(name)) not in (None, 1):
            rule = "compressed attention is simulated with all heads and whole sequences on every rank"
            raise CannotModelError(f"{name} = {degree}: {rule}")
