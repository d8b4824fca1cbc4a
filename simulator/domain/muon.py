"""What updates weight matrices where Adam does not? Muon: momentum, made orthogonal (Jordan et al., 2024; arXiv 2502.16982).

Muon updates every weight matrix of the layers; embeddings, output layer, norms, biases and convolutions stay with Adam. A step
of the Newton-Schulz iteration multiplies the whole matrix, so each is updated on one rank as a whole. (Megatron Core:
`emerging_optimizers.py`, `layer_wise_optimizer.py`; NVIDIA's package Emerging-Optimizers.)
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.record import Record

TensorMode = Literal["duplicated", "distributed", "blockwise"]
"""How tensor-parallel ranks orthogonalize a matrix that they share."""
MatrixReduction = Literal["reduce_scatter", "all_reduce"]
"""How the replicas' gradients of matrices reach the rank that updates them."""
LAST_ZERO_STAGE = 1
"""Highest ZeRO stage with which Megatron Core runs Muon: FSDP cuts matrices into pieces."""


class Muon(Record):
    """How Muon updates the weight matrices of the layers."""

    num_steps: int = Field(default=5, gt=0, le=100)
    """Steps of the Newton-Schulz iteration (Megatron Core: `--muon-num-ns-steps`; DeepSeek-V4: 10)."""
    tensor_mode: TensorMode = "duplicated"
    """How tensor-parallel ranks orthogonalize a matrix that they share (`--muon-tp-mode`). `duplicated`: each gathers the whole
    matrix and does all of it; `distributed`: each multiplies its part, and they add up the squares in every step; `blockwise`:
    each orthogonalizes its part alone, which is another update."""
    reduction: MatrixReduction | None = None
    """How gradients reach the rank that updates a matrix, from ZeRO stage 1 on. `reduce_scatter`: buffers are padded until the
    share of every rank holds whole matrices (Megatron Core's default); `all_reduce`: every rank gets all sums, and matrices are
    dealt to the ranks (`--no-use-layer-wise-param-layout`); left out: what moves fewer bytes in a layout."""
    state_bytes: float = Field(default=8.0, ge=2, le=24)
    """Bytes of optimizer states per weight that Muon updates (8: an fp32 master weight and an fp32 momentum); those of other
    weights are `optimizer_bytes` of the workload."""
