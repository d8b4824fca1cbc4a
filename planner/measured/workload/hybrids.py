"""Which blocks does a measured hybrid have? Those of the catalogue's model, in the same proportion where it is cut down."""

from __future__ import annotations

from planner.measured.cells.told import CannotModelError
from simulator.domain.layer_shares import kept_shares, whole_step
from simulator.domain.linear_attention import LinearAttention
from simulator.domain.model import ModelShape

PREFIX = "linear_"
"""What tells the cells of blocks with a state from those of attention."""


def counts_all_blocks(known: ModelShape, num_layers: int | None) -> bool:
    """Returns whether a number of layers is that of all blocks of a hybrid, as in the 52 layers of Nemotron-H 8B."""
    linear = known.linear_attention
    return linear is not None and num_layers == known.num_layers + linear.num_mixers


def cut_down(known: ModelShape, num_layers: int) -> ModelShape:
    """Returns a model with fewer layers.

    Raises:
        CannotModelError: the blocks of a hybrid do not come out whole.
    """
    return known.model_copy(
        update={"num_layers": num_layers, "linear_attention": _cut_blocks(known, num_layers)}
    )


def hybrid_cells(known: ModelShape | None, num_layers: int) -> dict[str, object]:
    """Returns the fields of `LinearAttention`, with their prefix, and the gate of attention; nothing for a transformer.

    Raises:
        CannotModelError: the blocks do not come out whole in so many layers.
    """
    if known is None or (linear := _cut_blocks(known, num_layers)) is None:
        return {}
    cells = {f"{PREFIX}{name}": value for name, value in linear.model_dump().items()}
    return {**cells, "has_output_gate": known.has_output_gate}


def _cut_blocks(known: ModelShape, num_layers: int) -> LinearAttention | None:
    linear = known.linear_attention
    if linear is None:
        return None
    counts = [linear.num_blocks, linear.num_attention_blocks]
    step = whole_step(known.num_layers, counts)
    if num_layers % step:
        rule = f"{known.name} can only be cut to multiples of {step} layers: its blocks of either kind must stay whole"
        raise CannotModelError(f"layers = {num_layers}: {rule}")
    blocks, attending = kept_shares(counts, known.num_layers, num_layers)
    return linear.model_copy(update={"num_blocks": blocks, "num_attention_blocks": attending})
