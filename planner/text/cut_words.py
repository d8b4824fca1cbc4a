"""How is a cut of layers into chunks written: in short, and for Megatron Core?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from planner.shared_choices import cut_at_indexers, shares_choices
from simulator.domain.model import ModelShape
from simulator.domain.plan import TO_AND_FRO, Plan


def in_short(layers: Sequence[int]) -> str:
    """Returns layer counts with equal neighbours grouped: `7, 14 x 8, 7`."""
    runs = ((count, len(list(run))) for count, run in groupby(layers))
    return ", ".join(f"{times} x {count}" if times > 1 else str(count) for count, times in runs)


def megatron_layout(model: ModelShape, plan: Plan, layers: Sequence[int]) -> str | None:
    """Returns a cut as `layout_of` writes it; `None` where Megatron Core has none.

    It does not have schedules in a V, and the blocks of a hybrid are letters of another pattern (`--hybrid-layer-pattern`). If
    layers share what an indexer chooses, its chunks begin with layers that have one.
    """
    if plan.pipeline_schedule in TO_AND_FRO or model.linear_attention:
        return None
    if shares_choices(model) and cut_at_indexers(model, layers) != tuple(layers):
        return None
    return layout_of(layers, model.num_mtp_layers)


def layout_of(layers: Sequence[int], num_mtp_layers: int = 0) -> str:
    """Returns what `--pipeline-model-parallel-layout` of Megatron Core takes for chunks of a pipeline, in model order.

    E is the embedding, t a layer, m a module of multi-token prediction, L the loss, a bar the end of a chunk (Megatron Core's
    user guide, Custom Pipeline Model Parallel Layout).

    Args:
        layers: layers of two chunks or more.
        num_mtp_layers: modules of multi-token prediction on the last chunk.

    Example:
        >>> layout_of([1, 1, *[2] * 29, 1])
        'Et|t|(tt|)*29tL'
    """
    first, *inner, last = map(_letters, layers)
    runs = ((f"{letters}|", len(list(run))) for letters, run in groupby(inner))
    between = "".join(f"({chunk})*{times}" if times > 1 else chunk for chunk, times in runs)
    return f"E{first}|{between}{last}{'m' * num_mtp_layers}L"


def _letters(num_layers: int) -> str:
    return "t" * num_layers if num_layers < 3 else f"t*{num_layers}"
