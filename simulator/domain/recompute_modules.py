"""Which parts of a layer can selective recomputation recompute, and which layers have them?

The modules are those of Megatron Core's `TransformerConfig.recompute_modules`. Checkpoints that discard their output keep the
input of a module, and the next operators read the output that the backward pass has recomputed. Ordinary checkpoints keep the
input and recompute the whole module.

    module           computes again                                                         keeps
    core_attn        attention core                                        ordinary         queries, keys and values
    mla_up_proj      up-projections of latent attention and positions      no output        latents, shared rotary key
    layernorm        norms that stand alone: before latent attention,      no output        the residual stream
                     and before experts
    moe_act          activation function of routed experts                 no output        its input
    shared_experts   shared experts                                        ordinary         output of the norm
    mlp              feed-forward block of layers without experts, the     ordinary         the residual stream
                     norm before it included
    moe              router, exchange, routed and shared experts           ordinary         output of the norm
    mhc              streams of hyper-connections, and norms behind them   no output        outputs of blocks, coefficients

If a block begins with an ordinary product, its norm is fused into that (Transformer Engine) and is not a module.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.domain.choices import RecomputeModule
from simulator.domain.model import ModelShape

CORE: tuple[RecomputeModule, ...] = ("core_attn",)
"""Default meaning of Megatron-LM's selective recomputation."""
RESTORED: frozenset[RecomputeModule] = frozenset({"core_attn", "mla_up_proj", "layernorm", "moe_act", "mhc"})
"""Modules whose recomputation leaves the inputs of products in place for later weight gradients."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Parts that the layers of a model have."""

    latent_attention: bool
    """Latent or compressed attention, whose queries come from a latent and whose norm stands alone."""
    experts: bool
    shared_experts: bool
    dense_layers: bool
    """Layers with an ordinary feed-forward block."""
    streams: bool = False
    """Hyper-connections."""

    @classmethod
    def of(cls, model: ModelShape) -> Parts:
        """Returns the parts of a model's layers."""
        experts = model.experts
        return cls(
            latent_attention=model.has_separate_norms,
            experts=experts is not None,
            shared_experts=experts is not None and experts.shared_ffn_hidden_size > 0,
            dense_layers=experts is None or experts.num_dense_layers > 0 or experts.layer_step > 1,
            streams=model.hyper_connections is not None,
        )

    def reason_against(self, module: RecomputeModule) -> str:
        """Returns why a module has nothing to recompute; empty if it has."""
        is_there, reason = {
            "core_attn": (True, ""),
            "mla_up_proj": (self.latent_attention, "needs latent attention"),
            "layernorm": (
                self.latent_attention or self.experts,
                "needs latent attention or experts; other norms are part of products",
            ),
            "moe_act": (self.experts, "needs experts"),
            "shared_experts": (self.shared_experts, "needs shared experts"),
            "mlp": (self.dense_layers, "needs layers without experts; moe computes experts again"),
            "moe": (self.experts, "needs experts; mlp computes ordinary feed-forward blocks again"),
            "mhc": (self.streams, "needs hyper_connections"),
        }[module]
        return "" if is_there else reason


def modules_rule(model: ModelShape, modules: tuple[RecomputeModule, ...]) -> str | None:
    """Returns why a model cannot have these modules recomputed; `None` if it can."""
    if len(set(modules)) != len(modules):
        return "recompute_modules names a module twice; once is enough"
    if {"mhc", "mlp"} <= set(modules):
        return "recompute_modules mhc excludes mlp, whose checkpoints Megatron Core keeps otherwise; give one of them"
    reasons = ((module, Parts.of(model).reason_against(module)) for module in modules)
    return next((f"recompute_modules {module} {reason}" for module, reason in reasons if reason), None)
