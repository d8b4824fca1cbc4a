"""What makes tokens of images? A vision encoder in front of a language model.

An image is cut into patches, each a token of the encoder: a transformer whose tokens see all others of their image. Projectors
turn one or several patches into a token of the language model, which takes the place of one of text (LLaVA, arXiv 2304.08485;
Megatron Core: `LLaVAModel`). How many images there are is a question of the workload (`simulator.domain.images`).
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from simulator.domain.attention_span import SequenceShape, SlidingWindow
from simulator.record import Record

TrainedVision = Literal["all", "projectors", "nothing"]
"""What is trained of a vision encoder with its projectors."""
SEEN_FROM_BOTH_SIDES = 2
"""A token sees half of a sequence under a causal mask, a patch all of its image."""
NORMS_OF_LAYER = 2
"""Norms of a layer of an encoder: before attention, and before the feed-forward block."""


class VisionEncoder(Record):
    """Shape of a vision encoder with its projectors."""

    num_layers: int = Field(gt=0, le=10_000)
    """Layers of the encoder."""
    hidden_size: int = Field(gt=0, le=1_000_000)
    """Width of its residual stream."""
    num_heads: int = Field(gt=0, le=10_000)
    """Its attention heads."""
    head_dim: int = Field(gt=0, le=10_000)
    """Dimension of one of them."""
    ffn_hidden_size: int = Field(gt=0, le=10_000_000)
    """Hidden size of its feed-forward blocks."""
    is_gated: bool = False
    """Whether these have a gate: three matrices instead of two."""
    patch_values: int = Field(gt=0, le=10_000_000)
    """Values of a patch: its pixels times colours times frames (14 x 14 x 3 = 588)."""
    num_learned_positions: int = Field(default=0, ge=0, le=10_000_000)
    """Rows of a learned position embedding; 0 for rotary positions alone."""
    patches_per_token: PositiveInt = Field(default=1, le=10_000)
    """Patches that make one token of the language model."""
    projector_sizes: tuple[Annotated[int, Field(gt=0, le=10_000_000)], ...] = Field(
        min_length=1, max_length=10
    )
    """Width of what enters each matrix of the projector, in order; the last one leads to the width of the language model. The
    first is that of all patches of a token where they stand side by side, or of one where their mean is taken."""
    num_projectors: PositiveInt = Field(default=1, le=100)
    """Projectors: more than one where layers of the language model get features of inner layers, too (DeepStack: Qwen3-VL)."""
    window_patches: int | None = Field(default=None, gt=0, le=1_000_000)
    """Patches that see each other in layers with windows (Qwen2.5-VL: 8 x 8 = 64); left out: all of an image."""
    full_every: int | None = Field(default=None, gt=0, le=10_000)
    """The last of every n layers sees the whole image, whatever the window; left out: none does."""
    has_biases: bool = True
    """Whether the products of the layers have biases."""
    has_norm_biases: bool = True
    """Whether norms have biases (LayerNorm)."""
    has_projector_biases: bool = True
    """Whether the products of projectors have biases."""
    is_replicated: bool = False
    """Whether every tensor-parallel rank runs all of the encoder and its projectors (Hugging Face's modules in Megatron-Bridge:
    Qwen2.5-VL, Gemma 3, GLM-4.5V, Kimi K2.5), or a share of its heads and of its feed-forward blocks."""
    counts_as_layers: int = Field(default=0, ge=0, le=10_000)
    """Layers of the language model that the encoder counts as on the first stage where `stage_layers` are `balanced`."""
    other_parameters: int = Field(default=0, ge=0, le=10**9)
    """Weights beside all of these: the bias of the product of patches, norms around the layers and in projectors, a class
    token."""

    @model_validator(mode="after")
    def _projectors_read_patches(self) -> Self:
        one, side_by_side = self.hidden_size, self.hidden_size * self.patches_per_token
        if (first := self.projector_sizes[0]) not in (one, side_by_side):
            raise ValueError(
                f"projector_sizes begin with {first} and must begin with hidden_size ({one}), or with this times "
                f"patches_per_token ({side_by_side})"
            )
        return self

    @model_validator(mode="after")
    def _full_layers_need_windows(self) -> Self:
        if self.full_every and not self.window_patches:
            raise ValueError(
                f"full_every ({self.full_every}) needs window_patches; leave it out, or give both"
            )
        return self

    def windows(self, ratio: int) -> SlidingWindow | None:
        """Returns the windows of its layers, longer by a ratio; `None` where every layer sees the whole image."""
        if not self.window_patches:
            return None
        return SlidingWindow(
            window_tokens=ratio * self.window_patches, full_every=self.full_every, is_chunked=True
        )

    @property
    def num_ffn_matrices(self) -> int:
        """Matrices of a feed-forward block: 3 with a gate, 2 without."""
        return 3 if self.is_gated else 2

    @property
    def head_width(self) -> int:
        """Values of all heads together."""
        return self.num_heads * self.head_dim

    @property
    def layer_matrix_parameters(self) -> int:
        """Weights of the products of a layer."""
        return self.hidden_size * (4 * self.head_width + self.num_ffn_matrices * self.ffn_hidden_size)

    def largest_product(self, language_size: int) -> int:
        """Returns the weights of the largest product of a layer or a projector."""
        widest = max(3 * self.head_width, (self.num_ffn_matrices - 1) * self.ffn_hidden_size)
        projected = max(inner * outer for inner, outer in self.projections(language_size))
        return max(self.hidden_size * widest, projected)

    @property
    def layer_parameters(self) -> int:
        """Weights of a layer with its norms and biases."""
        norms = NORMS_OF_LAYER * (1 + self.has_norm_biases) * self.hidden_size
        biases = (
            3 * self.head_width + (self.num_ffn_matrices - 1) * self.ffn_hidden_size + 2 * self.hidden_size
        )
        return self.layer_matrix_parameters + norms + self.has_biases * biases

    @property
    def patch_parameters(self) -> int:
        """Weights of the product that patches enter, of the positions, and those beside all others."""
        rows = self.patch_values + self.num_learned_positions
        return rows * self.hidden_size + self.other_parameters

    @property
    def tower_parameters(self) -> int:
        """Weights of the encoder without its projectors."""
        return self.num_layers * self.layer_parameters + self.patch_parameters

    def projections(self, language_size: int) -> list[tuple[int, int]]:
        """Returns input and output width of the matrices of a projector to a language model of this width."""
        return list(zip(self.projector_sizes, (*self.projector_sizes[1:], language_size), strict=True))

    def projector_parameters(self, language_size: int) -> int:
        """Returns the weights of all projectors to a language model of this width."""
        matrices = [
            (inner + self.has_projector_biases) * outer for inner, outer in self.projections(language_size)
        ]
        return self.num_projectors * sum(matrices)

    def parameters(self, language_size: int) -> int:
        """Returns all weights of the encoder and its projectors to a language model of this width."""
        return self.tower_parameters + self.projector_parameters(language_size)

    def flop_per_token(self, language_size: int, patches_per_image: int, trained: TrainedVision) -> float:
        """Returns the operations of forward and backward pass for a token of the language model that stands for an image.

        Two per weight and pass, and four for each value of the heads and each patch that a patch sees; backward twice as many.
        Patches are the result of nothing, so that their product has no gradient of its input. What is frozen has no gradients
        of its weights, and no backward pass where nothing ahead of it is trained.

        Args:
            language_size: Width of the language model.
            patches_per_image: Patches of an image.
            trained: What is trained.
        """
        attended = SequenceShape(tokens=patches_per_image, num_layers=self.num_layers, window=self.windows(1))
        seen = self.num_layers * attended.mean_span
        of_patches = 2.0 * self.patches_per_token * self.patch_values * self.hidden_size
        of_layers = self.patches_per_token * (
            2.0 * self.num_layers * self.layer_matrix_parameters + 4.0 * self.head_width * seen
        )
        first, *others = (
            2.0 * self.num_projectors * inner * outer for inner, outer in self.projections(language_size)
        )
        forward = of_patches + of_layers + first + sum(others)
        match trained:
            case "nothing":
                return forward
            case "projectors":
                return forward + first + 2.0 * sum(others)
            case "all":
                return 3.0 * forward - of_patches
