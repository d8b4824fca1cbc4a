"""Does a row describe a network as large as its name says? `Foo 16B` of 116 billion parameters has a wrong or missing size."""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.measured.cells.told import Told
from planner.measured.workload.model_names import layers_in_name, sizes_in_name
from simulator.units import GIGA

MOST_TIMES = 1.5
"""How many times larger or smaller than its name says a network is without a remark: names are rounded, and some leave out
embeddings."""
_CUT = re.compile(r"proxy|\bcut\b|reduced|\bmini\b|\d layers?\b", re.IGNORECASE)


def remark_other_size(
    told: Told, shape: Mapping[str, int], experts: Mapping[str, int | None], *, is_known: bool
) -> None:
    """Remarks how many parameters the sizes of a row make up, where its name says far more or fewer.

    Args:
        told: the row.
        shape: fields of `ModelShape`.
        experts: fields of `MixtureOfExperts`.
        is_known: whether the sizes are those of the catalogue's model, which has been compared by name.
    """
    name = told.name("model")
    sizes = sizes_in_name(name)
    if is_known or not sizes or layers_in_name(name) or _CUT.search(name):
        return
    possible = _possible_parameters(shape, experts)
    if not any(size / MOST_TIMES <= one <= size * MOST_TIMES for size in sizes for one in possible):
        told.remark("model", f"the sizes of the row make up {possible[0] / GIGA:.3g} billion parameters")


def _possible_parameters(shape: Mapping[str, int], experts: Mapping[str, int | None]) -> list[float]:
    """Returns about how many parameters a network has, and how many without its experts, which some are named after."""
    hidden, layers, matrices = shape["hidden_size"], shape["num_layers"], 3 if shape["is_gated"] else 2
    heads = 2 * shape["num_heads"] + 2 * shape["num_kv_heads"]
    embeddings = shape["vocabulary_size"] * hidden * (1 if shape["has_tied_embeddings"] else 2)
    rest = float(embeddings + layers * hidden * shape["head_dim"] * heads)
    dense = rest + layers * matrices * hidden * shape["ffn_hidden_size"]
    num_experts, width = experts["num_experts"], experts.get("expert_ffn_hidden_size")
    if not (num_experts and width):
        return [dense]
    sparse = (layers - (experts["num_dense_layers"] or 0)) // (experts["layer_step"] or 1)
    routed = num_experts * width + (experts["shared_ffn_hidden_size"] or 0)
    widths = (layers - sparse) * shape["ffn_hidden_size"] + sparse * routed
    return [rest + matrices * hidden * widths, dense]
