"""Which of the modules that a run recomputes does its network have? Others are left out with a remark."""

from __future__ import annotations

from collections.abc import Mapping

from planner.measured.cells.told import Told
from planner.measured.recomputation.module_names import MODULES
from planner.measured.recomputation.recomputed import Recomputed
from simulator.domain.choices import RecomputeModule
from simulator.domain.recompute_modules import CORE, RESTORED, Parts


def in_model(told: Told, again: Recomputed, sizes: Mapping[str, object]) -> dict[str, object]:
    """Returns the cells of the modules that a network of such sizes has; of others there is a remark."""
    if not again.modules:
        return {}
    parts = _parts(sizes)
    reasons = {module: parts.reason_against(module) for module in again.modules}
    for module, reason in reasons.items():
        if reason:
            told.remark("recompute", f"{module} {reason}; left out")
    fitting = [module for module, reason in reasons.items() if not reason]
    if not fitting:
        return {"recompute": "none"}
    return {"selective_recompute": "attention", "recompute_modules": " ".join(fitting)}


def restored_modules(sizes: Mapping[str, object]) -> tuple[RecomputeModule, ...]:
    """Returns the modules, beside the attention core, that leave the inputs of products in place once computed again.

    Args:
        sizes: of the network.
    """
    parts = _parts(sizes)
    restored = RESTORED.difference(CORE)
    return tuple(module for module in MODULES if module in restored and not parts.reason_against(module))


def _parts(sizes: Mapping[str, object]) -> Parts:
    """Returns what the layers of a network have."""
    has_experts = _is_some(sizes.get("num_experts"))
    return Parts(
        latent_attention=any(
            _is_some(sizes.get(each)) for each in ("key_value_rank", "compressed_query_rank")
        ),
        experts=has_experts,
        shared_experts=has_experts and _is_some(sizes.get("shared_ffn_hidden_size")),
        streams=_is_some(sizes.get("hyper_num_streams")),
        dense_layers=not has_experts or _is_some(sizes.get("num_dense_layers")) or _has_layers_between(sizes),
    )


def _has_layers_between(sizes: Mapping[str, object]) -> bool:
    """Whether layers without experts stand between those that have some, as in Llama 4 Maverick."""
    return sizes.get("layer_step") not in (None, "", 1, "1")


def _is_some(value: object) -> bool:
    """Whether a number, or a cell that spells one, is there and not zero."""
    return value not in (None, "", 0, "0")
