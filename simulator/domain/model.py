"""Which network is trained? The shape of a decoder-only transformer, its parameters and its FLOPs.

Nomenclature (used by every module of the simulator):

    s  sequence length          h  hidden size         L  number of layers
    a  attention heads          g  key-value heads     d  head dimension
    f  feed-forward hidden size V  vocabulary size     T  tokens
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from simulator.domain.attention_span import ChosenTokens, SequenceShape, SlidingWindow
from simulator.domain.blocks import LatentAttention, MixtureOfExperts, PartWeights
from simulator.domain.choices import ParallelBlock, QueryKeyNorm
from simulator.domain.compressed_attention import CompressedAttention
from simulator.domain.documents import Documents
from simulator.domain.hyper_connections import HyperConnections
from simulator.domain.layer_shares import MOST_LAYERS
from simulator.domain.linear_attention import LinearAttention
from simulator.domain.model_flop import flop_per_token, matrix_parameters
from simulator.domain.model_parameters import language_parameters, mixing_parameters, module_weights
from simulator.domain.model_rules import shape_rule
from simulator.domain.token_indexer import TokenIndexer
from simulator.domain.vision import VisionEncoder
from simulator.record import Record
from simulator.table import Integers


class ModelShape(Record):
    """All properties of a decoder-only transformer that its time, memory and cost depend on."""

    name: str = Field(min_length=1, max_length=100)
    """Name of the model as people know it."""
    num_layers: int = Field(gt=0, le=MOST_LAYERS)
    """Transformer layers (L)."""
    hidden_size: int = Field(gt=0, le=1_000_000)
    """Width of the residual stream (h)."""
    num_heads: int = Field(gt=0, le=10_000)
    """Attention heads (a)."""
    num_kv_heads: int = Field(gt=0, le=10_000)
    """Key-value heads (g); equal to num_heads without grouped-query attention."""
    head_dim: int = Field(gt=0, le=10_000)
    """Dimension of one attention head (d)."""
    ffn_hidden_size: int = Field(gt=0, le=10_000_000)
    """Hidden size of the feed-forward block (f), of the dense layers in a mixture of experts."""
    is_gated: bool
    """Whether the feed-forward block has a gate: three matrices (SwiGLU) instead of two."""
    vocabulary_size: int = Field(gt=0, le=10_000_000)
    """Rows of the embedding (V), including padding."""
    has_tied_embeddings: bool = False
    """Whether the output layer shares the weights of the input embedding."""
    num_learned_positions: int = Field(default=0, ge=0, le=10**9)
    """Rows of a learned position embedding; 0 for rotary or ALiBi positions."""
    experts: MixtureOfExperts | None = None
    """Routed experts; left out for a dense model."""
    latent_attention: LatentAttention | None = None
    """Multi-head latent attention; left out for ordinary or grouped-query attention."""
    compressed_attention: CompressedAttention | None = None
    """Attention to a window and to compressed tokens (DeepSeek-V4); left out: to all tokens, or as other fields say."""
    sliding_window: SlidingWindow | None = None
    """How far back some or all layers look; left out: every token sees all before it."""
    linear_attention: LinearAttention | None = None
    """Blocks with a state of fixed size in the place of attention, in a hybrid model; left out: all blocks attend. `num_layers`
    then counts feed-forward blocks, and every layer has an equal share of the blocks that mix tokens."""
    hyper_connections: HyperConnections | None = None
    """Streams that carry the residual from block to block (mHC; DeepSeek-V4); left out: one, to which blocks add."""
    has_output_gate: bool = False
    """Whether the product for queries also makes a gate for the output of the attention core (Qwen3-Next; Megatron Core:
    `attention_output_gate`)."""
    parallel_block: ParallelBlock | None = None
    """Whether attention and feed-forward block of a layer read the same input, and both results are added to it: after one norm
    (GPT-J, PaLM, Falcon 7B, Command R, MegaScale), or two (GPT-NeoX, Falcon 40B); left out: one after the other."""
    qk_norm: QueryKeyNorm | None = None
    """Norms of queries and keys before the attention core, with weights for one head (Qwen3, Gemma 3, GLM-4.5), for all heads
    (OLMo 2 and 3), or without (Llama 4); left out: no such norms. Not for latent attention."""
    vision: VisionEncoder | None = None
    """What makes tokens of images, in front of the layers, where the workload has `images`; left out: nothing does."""
    num_mtp_layers: int = Field(default=0, ge=0, le=100)
    """Modules of multi-token prediction after the last layer, each with a layer of that kind (DeepSeek-V3, arXiv 2412.19437,
    section 2.2; Megatron Core: `mtp_num_layers`; `config.json`: `num_nextn_predict_layers`); 0: none are trained."""
    source: str = "user"
    """Where the shape comes from."""

    @model_validator(mode="after")
    def _shape_is_consistent(self) -> Self:
        if rule := shape_rule(self):
            raise ValueError(rule)
        return self

    @property
    def indexer(self) -> TokenIndexer | None:
        """What chooses the tokens that attention sees; `None` if it sees all before it."""
        return self.latent_attention.indexer if self.latent_attention else None

    @property
    def indexer_share(self) -> float:
        """Indexers per layer; 0 without."""
        return self.indexer.num_among(self.num_layers) / self.num_layers if self.indexer else 0.0

    @property
    def attention_share(self) -> float:
        """Blocks that attend, per layer; 1 in a transformer."""
        return self.linear_attention.num_attention_blocks / self.num_layers if self.linear_attention else 1.0

    @property
    def linear_share(self) -> float:
        """Blocks with linear attention, per layer; 0 in a transformer."""
        return self.linear_attention.num_blocks / self.num_layers if self.linear_attention else 0.0

    @property
    def num_mixers(self) -> float:
        """Blocks of a layer that mix tokens; 1 in a transformer."""
        return self.attention_share + self.linear_share

    @property
    def num_expert_layers(self) -> int:
        """Layers with routed experts."""
        return int(self.num_expert_layers_among(self.num_layers))

    def num_expert_layers_among(self, num_layers: npt.ArrayLike) -> Integers:
        """Returns how many of the first `num_layers` layers have routed experts; any shape."""
        counts = np.asarray(num_layers, dtype=np.int64)
        if self.experts is None:
            return np.zeros_like(counts)
        step, num_leading = self.experts.layer_step, self.experts.num_dense_layers
        # A division for every chunk would take longer than everything else.
        groups = counts if step == 1 else counts // step
        return np.maximum(groups - num_leading // step, 0)

    @property
    def num_dense_layers(self) -> int:
        """Layers with an ordinary feed-forward block."""
        return self.num_layers - self.num_expert_layers

    @property
    def num_predicted_tokens(self) -> int:
        """Number of tokens predicted from each token, and of logits that the output layer computes for it."""
        return 1 + self.num_mtp_layers

    @property
    def has_expert_modules(self) -> bool:
        """Whether layers of multi-token prediction have routed experts, like the last layer of the model."""
        return bool(self.num_expert_layers > self.num_expert_layers_among(self.num_layers - 1))

    @property
    def attention_parameters(self) -> int:
        """Weights of one attention block: query, key, value and output projections."""
        if compressed := self.compressed_attention:
            return compressed.projection_parameters(self)
        if self.latent_attention:
            return self.latent_attention.projection_parameters(self.hidden_size, self.num_heads)
        heads = self.head_dim * (2 * self.num_heads + 2 * self.num_kv_heads)
        return self.hidden_size * (heads + self.gate_width)

    @property
    def mixing_parameters(self) -> float:
        """Weights of the blocks of a layer that mix tokens: those of attention, or the mean over layers that differ in them."""
        return mixing_parameters(self)

    @property
    def indexer_matrices(self) -> float:
        """Weights of the products of an indexer, mean over the layers."""
        if not (self.latent_attention and self.indexer):
            return 0
        parameters = self.indexer.matrix_parameters(self.hidden_size, self.latent_attention.query_rank)
        return self.indexer_share * parameters

    @property
    def indexer_norms(self) -> float:
        """Weights of the norms of an indexer, mean over the layers."""
        return self.indexer_share * self.indexer.norm_parameters if self.indexer else 0

    @property
    def num_layer_norms(self) -> float:
        """Norms of a layer; in a hybrid, the mean over the layers."""
        return 1 if self.parallel_block == "one_norm" else 1 + self.num_mixers

    @property
    def layer_norm_parameters(self) -> float:
        """Weights of the norms of a layer."""
        both = self.num_heads + self.num_kv_heads
        heads = {None: 0, "unweighted": 0, "per_head": 2, "all_heads": both}[self.qk_norm]
        return self.num_layer_norms * self.hidden_size + self.attention_share * heads * self.head_dim

    @property
    def stream_width(self) -> int:
        """Values of a token that pass from block to block: its residual in all streams."""
        return self.hidden_size * (self.hyper_connections.num_streams if self.hyper_connections else 1)

    @property
    def connection_parameters(self) -> float:
        """Weights that mix the streams of the residual around the blocks of a layer."""
        if not (hyper := self.hyper_connections):
            return 0
        return self.num_blocks_in_turn * (hyper.matrix_parameters(self.hidden_size) + hyper.other_parameters)

    @property
    def contraction_parameters(self) -> int:
        """Weights that make one of these streams, at the end of the model and of modules of multi-token prediction."""
        if not (hyper := self.hyper_connections):
            return 0
        return hyper.output_matrix_parameters(self.hidden_size) + hyper.other_output_parameters

    @property
    def has_separate_norms(self) -> bool:
        """Whether the norm in front of attention stands alone, since several products read it, rather than in a product."""
        return self.latent_attention is not None or self.compressed_attention is not None

    @property
    def chooses_tokens(self) -> bool:
        """Whether an indexer chooses the tokens, or compressed ones, that attention sees."""
        return self.indexer is not None or self.compressed_attention is not None

    @property
    def num_blocks_in_turn(self) -> float:
        """Sequential blocks of a layer that add to the residual stream: 1 if both read the same input."""
        return 1 if self.parallel_block else 1 + self.num_mixers

    @property
    def gate_width(self) -> int:
        """Gates of the attention core for one token, one for each of its values; 0 without."""
        return self.num_heads * self.head_dim if self.has_output_gate else 0

    @property
    def num_ffn_matrices(self) -> int:
        """Matrices of a feed-forward block: 3 with a gate, 2 without."""
        return 3 if self.is_gated else 2

    @property
    def dense_layer_parameters(self) -> float:
        """Weights of one dense layer: attention, feed-forward block and norms."""
        ffn = self.num_ffn_matrices * self.hidden_size * self.ffn_hidden_size
        return self.mixing_parameters + ffn + self.layer_norm_parameters + self.connection_parameters

    @property
    def expert_parameters(self) -> int:
        """Weights of one routed expert, including its biases; 0 for a dense model."""
        if self.experts is None:
            return 0
        matrices = self.num_ffn_matrices * self.expert_input_size * self.experts.expert_ffn_hidden_size
        return matrices + self.expert_bias_parameters

    @property
    def expert_bias_parameters(self) -> int:
        """Biases of one routed expert, those of its two products."""
        if self.experts is None or not self.experts.has_biases:
            return 0
        return (self.num_ffn_matrices - 1) * self.experts.expert_ffn_hidden_size + self.expert_input_size

    @property
    def expert_input_size(self) -> int:
        """Width of what routed experts read and return: that of their latent, or of the residual stream."""
        return (self.experts.latent_size if self.experts else 0) or self.hidden_size

    @property
    def expert_latent_parameters(self) -> int:
        """Weights of the projections of an expert layer to the latent of its experts and back; 0 without a latent."""
        return 2 * self.hidden_size * self.experts.latent_size if self.experts else 0

    @property
    def expert_layer_shared_parameters(self) -> float:
        """Weights of an expert layer that every token uses: attention, router, shared experts, norms."""
        if self.experts is None:
            return 0
        h = self.hidden_size
        shared = self.num_ffn_matrices * h * self.experts.shared_ffn_hidden_size
        routed = h * self.experts.num_experts + self.expert_latent_parameters
        around = self.layer_norm_parameters + self.connection_parameters
        return self.mixing_parameters + routed + shared + around

    @property
    def dense_layer_whole_parameters(self) -> float:
        """Weights of a dense layer that every tensor-parallel rank holds whole: down-projections to latents (Megatron Core)."""
        width: float = 0
        if mla := self.latent_attention:
            width = self.attention_share * (mla.query_rank + mla.key_value_rank + mla.rope_head_dim)
        if linear := self.linear_attention:
            width = width + self.linear_share * 2 * linear.low_rank
        others = self.indexer_matrices + self.indexer_norms + self.connection_parameters
        return self.hidden_size * width + others

    @property
    def expert_layer_whole_parameters(self) -> float:
        """Weights of an expert layer that every tensor-parallel rank holds whole: products to and from latents, the router."""
        router = self.hidden_size * self.experts.num_experts if self.experts else 0
        return self.dense_layer_whole_parameters + router + self.expert_latent_parameters

    @property
    def embedding_parameters(self) -> int:
        """Weights of the input embedding with learned positions."""
        return (self.vocabulary_size + self.num_learned_positions) * self.hidden_size

    @property
    def output_parameters(self) -> int:
        """Weights of the output layer beyond the tied embedding, with the final norm and what it reads of several streams."""
        own = 0 if self.has_tied_embeddings else self.vocabulary_size * self.hidden_size
        return own + self.hidden_size + self.contraction_parameters

    @property
    def mtp_parameters(self) -> int:
        """Weights of a module of multi-token prediction without its layer: two norms, the projection 2 h -> h, a final norm."""
        return 2 * self.hidden_size**2 + 3 * self.hidden_size + self.contraction_parameters

    @property
    def mtp_weights(self) -> PartWeights:
        """Weights of a module with its layer; embedding and output layer are those of the model."""
        return module_weights(self)

    @property
    def copied_parameters(self) -> int:
        """Weights of the input embedding that the stage of the output layer also needs: for logits, or for look-ups."""
        return self.embedding_parameters if self.num_mtp_layers else self.tied_parameters

    @property
    def tied_parameters(self) -> int:
        """Weights of the input embedding that the output layer shares; 0 if it has its own."""
        return self.vocabulary_size * self.hidden_size if self.has_tied_embeddings else 0

    @property
    def norm_parameters(self) -> int:
        """Weights of all norms: of the layers, the final one, and those of multi-token prediction."""
        num_layers = self.num_layers + self.num_mtp_layers
        of_ends = (1 + 3 * self.num_mtp_layers) * self.hidden_size
        return round(num_layers * self.layer_norm_parameters) + of_ends

    @property
    def num_parameters(self) -> int:
        """All weights, including those of multi-token prediction, which shares embedding and output layer."""
        return language_parameters(self) + self.vision_parameters

    @property
    def vision_parameters(self) -> int:
        """Weights of the vision encoder with its projectors; 0 without."""
        return self.vision.parameters(self.hidden_size) if self.vision else 0

    @property
    def num_routed_parameters(self) -> int:
        """Weights of all routed experts; 0 for a dense model."""
        num_experts = self.experts.num_experts if self.experts else 0
        return self.num_layers_of_each_kind[1] * num_experts * self.expert_parameters

    @property
    def num_layers_of_each_kind(self) -> tuple[int, int]:
        """Layers with an ordinary feed-forward block and with routed experts, including those of multi-token prediction."""
        num_expert = self.num_expert_layers + self.has_expert_modules * self.num_mtp_layers
        return self.num_layers + self.num_mtp_layers - num_expert, num_expert

    @property
    def num_active_parameters(self) -> int:
        """Weights that one token of text uses: all of a dense model, otherwise those of its top-k experts."""
        if self.experts is None:
            return language_parameters(self)
        idle = self.experts.num_experts - self.experts.experts_per_token
        return language_parameters(self) - self.num_layers_of_each_kind[1] * idle * self.expert_parameters

    @property
    def num_matrix_parameters(self) -> int:
        """Weights that one token uses in matrix products, as often as it does (`simulator.domain.model_flop`)."""
        return matrix_parameters(self)

    def model_flop_per_token(self, sequence_length: int, *, documents: Documents | None = None) -> float:
        """Floating-point operations that training needs per token, without recomputation (`simulator.domain.model_flop`)."""
        return flop_per_token(self, sequence_length, documents)

    def sequence_shape(self, sequence_length: int, documents: Documents | None) -> SequenceShape:
        """Returns the attention pattern of a sequence of this length, or of one packed with documents."""
        shape = self.visible_shape(sequence_length, documents)
        if self.indexer:
            return replace(shape, window=ChosenTokens(window_tokens=self.indexer.chosen_tokens))
        return shape

    def visible_shape(self, sequence_length: int, documents: Documents | None) -> SequenceShape:
        """Returns the pattern of all tokens that may be seen, from which an indexer chooses where there is one."""
        linear = self.linear_attention
        num_layers = linear.num_attention_blocks if linear else self.num_layers
        return SequenceShape(
            tokens=sequence_length, num_layers=num_layers, window=self.sliding_window, documents=documents
        )

    @property
    def num_key_heads(self) -> int:
        """Heads of keys and values that attention sees; latents are made into those of every head."""
        return self.num_heads if self.latent_attention else self.num_kv_heads

    @property
    def attention_dims(self) -> tuple[int, int]:
        """Dimensions of a query-key head and of a value head."""
        return self.latent_attention.head_dims if self.latent_attention else (self.head_dim, self.head_dim)
