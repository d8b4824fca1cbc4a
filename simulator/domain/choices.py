"""What can a training run choose among? Kernels, recipes and ways to communicate, by the names that jobs give them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, NonNegativeInt

AttentionKernel = Literal["flash", "flash-2", "flash-1", "unfused", "eager"]
"""`flash` and earlier versions: one fused kernel that never stores the scores; `unfused`, `eager`: separate kernels that do."""
KernelLaunch = Literal["graph", "eager", "eager-2022", "blocking-2022"]

ParallelBlock = Literal["one_norm", "two_norms"]
"""Norms before an attention and a feed-forward block that read the same input."""

QueryKeyNorm = Literal["per_head", "all_heads", "unweighted"]
"""Weights of the norms of queries and keys: for one head, shared by all; for all heads; or none."""

ContextExchange = Literal["ring", "all_gather", "gathered_ring", "all_to_all", "hybrid"]
"""How context-parallel ranks attend to the whole sequence (`simulator.traffic.context_exchange`)."""

ExpertProducts = Literal["grouped", "separate"]
"""`grouped`: one kernel for all experts of a rank; `separate`: one product each (Transformer Engine), with rows padded as 8-bit
products require."""

ExpertDispatch = Literal["all_to_all", "deduplicated"]
"""`all_to_all`: every copy of a token travels separately; `deduplicated`: one copy crosses the fabric to each link domain and
reaches each rank where the token is needed (DeepEP, Hybrid-EP)."""


SeparateProducts = Literal["none", "feed_forward", "all"]
"""Products with a common input that are separate: `feed_forward`, both of a gated network; `all`, also queries, keys and
values."""
SelectiveRecompute = Literal["attention", "every_other_product"]
"""What selective recomputation recomputes. `attention`: its core (Megatron-LM); `every_other_product`: everything except the
attention core and half of the products (operator-wise checkpointing of torchtitan)."""


RecomputeModule = Literal[
    "core_attn", "mla_up_proj", "layernorm", "moe_act", "shared_experts", "mlp", "moe", "mhc"
]
"""Parts of a layer that selective recomputation can recompute (`simulator.domain.recompute_modules`)."""


RecomputeMethod = Literal["block", "uniform"]
"""Meaning of full recomputation of some layers. `block`: the first ones of a chunk; `uniform`: groups of that many layers, of
which only the first input is kept (Megatron Core)."""


CastRecipe = Literal["tensorwise", "delayed", "blockwise", "mxfp8"]
"""How inputs of 8-bit products get their scales. `tensorwise`: from the tensor itself, in an extra pass; `delayed`: from
earlier steps; `blockwise`: per 128 values (DeepSeek-V3); `mxfp8`: per 32 values, by the hardware (Transformer Engine)."""


WeightPrefetch = Literal["both", "forward", "backward", "none"]
"""Passes in which ZeRO-3 prefetches a layer's weights while the previous layer computes."""


ShardedCopies = Literal["none", "fsdp-2"]
"""Copies between computation and sharded weights (`simulator.replicas.sharded_copies`)."""


def _as_number(value: object) -> object:
    """Returns the integer that a table cell spells."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


GradientBytes = Annotated[Literal[2, 4, 6], BeforeValidator(_as_number)]
"""Bytes of one accumulated gradient; 6: 16 bits and a copy in 32."""
WireBytes = Annotated[Literal[1, 2, 4], BeforeValidator(_as_number)]
"""Bytes of one gradient on the wire."""
ScatterStage = Annotated[Literal[1, 2, 3], BeforeValidator(_as_number)]
"""Lowest ZeRO stage whose gradients are reduced only to their owners."""


StageLayers = tuple[NonNegativeInt, ...] | Literal["balanced"] | None
"""Layers of every pipeline chunk (`simulator.layout.chunks`)."""
