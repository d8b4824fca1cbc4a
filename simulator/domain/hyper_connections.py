"""What carries the residual of a model from block to block? Several streams, mixed anew around every block.

Manifold-constrained hyper-connections (mHC, arXiv 2512.24880; DeepSeek-V4) replace the residual stream x of h values by n
streams X, and the addition around a block F by

    X <- A^T X + b F(norm(a X))        a, b: n values of a token; A: n x n, doubly stochastic

    (a, b, A) = scale W X / |X| + bias     W: (n^2 + 2 n) x n h; sigmoids for a and b, Sinkhorn's iterations for A

At the beginning of the model every stream is a copy of the embedding. At its end, and at that of every module of multi-token
prediction, a weighed sum of the streams, with weights of the same kind as a, enters the final norm.

(Megatron Core: `hyper_connection.py`; transformers: `DeepseekV4HyperConnection`, `DeepseekV4HyperHead`.)
"""

from __future__ import annotations

from pydantic import Field

from simulator.record import Record

NUM_SCALES = 3
"""Factors in front of a, b and A."""


class HyperConnections(Record):
    """Streams of the residual, and how they are mixed."""

    num_streams: int = Field(default=4, gt=1, le=64)
    """Residual streams (n; `config.json`: `hc_mult`; Megatron Core: `mhc_num_residual_streams`)."""
    sinkhorn_iterations: int = Field(default=20, gt=0, le=1000)
    """Iterations that make the matrix between the streams doubly stochastic (`hc_sinkhorn_iters`)."""

    @property
    def num_coefficients(self) -> int:
        """Values that a token gets for each block: what enters, what leaves, and the matrix between the streams."""
        return self.num_streams * (self.num_streams + 2)

    def matrix_parameters(self, hidden_size: int) -> int:
        """Returns the weights of the product that makes the coefficients of one block."""
        return self.num_coefficients * self.num_streams * hidden_size

    @property
    def other_parameters(self) -> int:
        """Biases and factors of one block."""
        return self.num_coefficients + NUM_SCALES

    def output_matrix_parameters(self, hidden_size: int) -> int:
        """Returns the weights of the product that weighs the streams at the end of the model."""
        return self.num_streams * self.num_streams * hidden_size

    @property
    def other_output_parameters(self) -> int:
        """Biases and the factor there."""
        return self.num_streams + 1
