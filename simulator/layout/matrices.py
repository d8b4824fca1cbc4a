"""Which weight matrices does a layer have, and how do tensor-parallel ranks split them?

Matrices as Megatron Core stores them, in the order in which it registers them: the product that leaves attention, and an
indexer, are ahead of the products that enter it (`Attention.__init__`). Queries, keys and values are one, and so are both
inputs of a gated feed-forward block. Muon takes queries, keys and values apart (`--muon-split-qkv`, the default), but not what
latent attention raises. The entering product of Mamba-2 is left to Adam (`mamba_mixer.py`: `use_muon`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from simulator.domain.compressed_attention import OVERLAPPING_SERIES, compressed_of
from simulator.domain.hyper_connections import NUM_SCALES
from simulator.domain.model import ModelShape

MAMBA_VECTORS = 6
"""Tensors of a block of Mamba-2 that are no matrices: convolution and its bias, A, D, the bias of dt, norm."""
GATED_DELTA_VECTORS = 4
"""Those of Gated DeltaNet: convolution, A, the bias of dt, norm."""
KIMI_DELTA_VECTORS = 6
"""Those of Kimi Delta Attention: three convolutions, A, the bias of decays, norm."""
_LINEAR_VECTORS = {
    "mamba-2": MAMBA_VECTORS,
    "gated-delta-net": GATED_DELTA_VECTORS,
    "kimi-delta": KIMI_DELTA_VECTORS,
}
INDEXER_VECTORS = 2
"""Weight and bias of the norm of an indexer's key."""
MODULE_VECTORS = 3
"""Norms of a module of multi-token prediction beside those of its layer."""


class Split(Enum):
    """Which side of a matrix tensor-parallel ranks split."""

    ROWS = auto()
    """The outputs."""
    COLUMNS = auto()
    """The inputs."""
    NONE = auto()
    """Neither: every rank has the whole matrix."""


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """One weight matrix of a layer, over all tensor-parallel ranks."""

    pieces: tuple[float, ...]
    """Rows, the outputs of its product, of each piece that is orthogonalized by itself."""
    columns: float
    """The inputs of its product."""
    split: Split
    per_layer: float = 1.0
    """How many of it a layer has, mean over layers that differ."""

    @property
    def rows(self) -> float:
        """Rows of all pieces."""
        return sum(self.pieces)

    @property
    def num_weights(self) -> float:
        """Weights of one such matrix."""
        return self.rows * self.columns


def attention_matrices(model: ModelShape) -> Iterator[Matrix]:
    """Yields the matrices of the blocks of a layer that mix tokens."""
    h, share = float(model.hidden_size), model.attention_share
    attended = model.num_heads * float(model.attention_dims[1])
    if model.compressed_attention:
        yield from _compressed_matrices(model)
        return
    yield from _indexer_matrices(model)
    yield Matrix(pieces=(h,), columns=attended, split=Split.COLUMNS, per_layer=share)
    if model.latent_attention is None:
        keys = float(model.num_kv_heads * model.head_dim)
        gates = (float(model.gate_width),) if model.gate_width else ()
        yield Matrix(pieces=(attended, *gates, keys, keys), columns=h, split=Split.ROWS, per_layer=share)
    else:
        yield from _latent_matrices(model)
    if linear := model.linear_attention:
        share = model.linear_share
        if linear.kind != "mamba-2":
            yield Matrix(pieces=(linear.entering_width,), columns=h, split=Split.ROWS, per_layer=share)
        if linear.low_rank:
            low = float(linear.low_rank)
            for raised in (linear.raised_width - linear.value_width, linear.value_width):
                yield Matrix(pieces=(low,), columns=h, split=Split.NONE, per_layer=share)
                yield Matrix(pieces=(raised,), columns=low, split=Split.ROWS, per_layer=share)
        yield Matrix(pieces=(h,), columns=linear.value_width, split=Split.COLUMNS, per_layer=share)


def _latent_matrices(model: ModelShape) -> Iterator[Matrix]:
    """Those of latent attention up to its core."""
    assert model.latent_attention is not None
    latent, h, share = model.latent_attention, float(model.hidden_size), model.attention_share
    queries = model.num_heads * float(model.attention_dims[0])
    if latent.query_rank:
        yield Matrix(pieces=(latent.query_rank,), columns=h, split=Split.NONE, per_layer=share)
    yield Matrix(pieces=(queries,), columns=latent.query_rank or h, split=Split.ROWS, per_layer=share)
    yield Matrix(pieces=(latent.key_width,), columns=h, split=Split.NONE, per_layer=share)
    raised = float(model.num_heads * (latent.nope_head_dim + latent.value_head_dim))
    yield Matrix(pieces=(raised,), columns=latent.key_value_rank, split=Split.ROWS, per_layer=share)


def _indexer_matrices(model: ModelShape) -> Iterator[Matrix]:
    """Those that choose tokens; none without an indexer."""
    if (indexer := model.indexer) is None:
        return
    assert model.latent_attention is not None
    h = float(model.hidden_size)
    for rows, columns in (
        (indexer.query_width, model.latent_attention.query_rank or h),
        (indexer.head_dim, h),
        (indexer.num_heads, h),
    ):
        yield Matrix(pieces=(rows,), columns=columns, split=Split.NONE, per_layer=model.indexer_share)


def _compressed_matrices(model: ModelShape) -> Iterator[Matrix]:
    """Those of attention to compressed tokens, all whole: no tensor-parallel ranks have it (`csa.py` of Megatron Core)."""
    compressed, h = compressed_of(model), float(model.hidden_size)
    q, d, series = compressed.query_rank, float(model.head_dim), OVERLAPPING_SERIES
    heads, groups = model.num_heads * d, compressed.output_groups
    chosen, heavy = compressed.compressing_shares(model.num_layers)
    d_i = float(compressed.indexer_head_dim)
    for rows, columns, per_layer in (
        (q, h, 1.0),
        (heads, q, 1.0),
        (d, h, 1.0),
        (compressed.output_rank, heads / groups, float(groups)),
        (h, groups * compressed.output_rank, 1.0),
        (series * d, h, 2.0 * chosen),
        (d, h, 2.0 * heavy),
        (compressed.indexer_width, q, chosen),
        (compressed.indexer_heads, h, chosen),
        (series * d_i, h, 2.0 * chosen),
    ):
        yield Matrix(pieces=(rows,), columns=columns, split=Split.NONE, per_layer=per_layer)


def _stream_matrices(model: ModelShape) -> tuple[Matrix, ...]:
    """Products that make the coefficients of a layer's hyper-connections; none with one stream of the residual."""
    if (hyper := model.hyper_connections) is None:
        return ()
    columns = float(hyper.num_streams * model.hidden_size)
    number = float(model.num_blocks_in_turn)
    return (Matrix(pieces=(hyper.num_coefficients,), columns=columns, split=Split.NONE, per_layer=number),)


def dense_matrices(model: ModelShape) -> tuple[Matrix, ...]:
    """Returns the matrices of a layer with an ordinary feed-forward block."""
    block = _block(model, model.ffn_hidden_size, model.hidden_size)
    return (*attention_matrices(model), *block, *_stream_matrices(model))


def shared_matrices(model: ModelShape) -> tuple[Matrix, ...]:
    """Returns the matrices of a layer with experts that every token uses; none for a dense model."""
    if (experts := model.experts) is None:
        return ()
    h, latent = float(model.hidden_size), experts.latent_size
    router = Matrix(pieces=(experts.num_experts,), columns=h, split=Split.NONE)
    latents = (
        (
            Matrix(pieces=(latent,), columns=h, split=Split.NONE),
            Matrix(pieces=(h,), columns=latent, split=Split.NONE),
        )
        if latent
        else ()
    )
    shared = _block(model, experts.shared_ffn_hidden_size, h) if experts.shared_ffn_hidden_size else ()
    return (*attention_matrices(model), router, *latents, *shared, *_stream_matrices(model))


def routed_matrices(model: ModelShape) -> tuple[Matrix, ...]:
    """Returns the matrices of all routed experts of a layer, which expert-tensor-parallel ranks split; none without."""
    if model.experts is None:
        return ()
    block = _block(model, model.experts.expert_ffn_hidden_size, model.expert_input_size)
    return tuple(
        Matrix(
            pieces=each.pieces, columns=each.columns, split=each.split, per_layer=model.experts.num_experts
        )
        for each in block
    )


def module_matrices(model: ModelShape) -> tuple[Matrix, ...]:
    """Returns the matrices of a module of multi-token prediction beside those of its layer.

    With hyper-connections embedding and streams have a product each (`simulator.layers.token_prediction`).
    """
    h, number = float(model.hidden_size), 2 if model.hyper_connections else 1
    projection = Matrix(pieces=(h,), columns=2.0 * h / number, split=Split.ROWS)
    return number * (projection,) if model.num_mtp_layers else ()


def _block(model: ModelShape, width: float, input_size: float) -> tuple[Matrix, Matrix]:
    """Both matrices of a feed-forward block."""
    into = (model.num_ffn_matrices - 1) * float(width)
    return (
        Matrix(pieces=(into,), columns=float(input_size), split=Split.ROWS),
        Matrix(pieces=(float(input_size),), columns=float(width), split=Split.COLUMNS),
    )


def end_matrix(model: ModelShape) -> Matrix:
    """Returns the matrix of the embedding, or of the output layer, which Adam updates."""
    return Matrix(pieces=(float(model.vocabulary_size),), columns=float(model.hidden_size), split=Split.ROWS)


def num_layer_vectors(model: ModelShape) -> float:
    """Returns the norms, biases, convolutions and factors of a layer, without biases of experts; mean over layers that differ.

    They are tensors of their own, and smaller than any matrix.
    """
    normed = 2.0 * (model.qk_norm not in {None, "unweighted"})
    if latent := model.latent_attention:
        normed = 1 + bool(latent.query_rank)
    if compressed := model.compressed_attention:
        chosen, heavy = compressed.compressing_shares(model.num_layers)
        normed = 3 + 4 * chosen + 2 * heavy  # with sinks, and with positions of compressors
    found = model.num_layer_norms + model.attention_share * normed + INDEXER_VECTORS * model.indexer_share
    if linear := model.linear_attention:
        found += model.linear_share * _LINEAR_VECTORS[linear.kind]
    if model.hyper_connections:
        found += model.num_blocks_in_turn * (NUM_SCALES + 1)
    return found


def num_expert_vectors(model: ModelShape) -> int:
    """Returns the biases of all routed experts of a layer, one for each product."""
    return 2 * model.experts.num_experts if model.experts and model.experts.has_biases else 0


def num_matrix_weights(model: ModelShape) -> float:
    """Returns the weights of all matrices of the layers, including those of multi-token prediction."""
    of_expert_layer = sum(
        each.per_layer * each.num_weights for each in (*shared_matrices(model), *routed_matrices(model))
    )
    of_dense_layer = sum(each.per_layer * each.num_weights for each in dense_matrices(model))
    num_expert = model.num_expert_layers + model.has_expert_modules * model.num_mtp_layers
    num_dense = model.num_layers + model.num_mtp_layers - num_expert
    of_module = sum(each.num_weights for each in module_matrices(model))
    return num_dense * of_dense_layer + num_expert * of_expert_layer + model.num_mtp_layers * of_module
