"""How long do hyper-connections take? Kernels that mix the streams of a residual around every block of a layer.

They stand in the place of residual additions. Nomenclature as in `simulator.domain.hyper_connections`; I is the number of
Sinkhorn's iterations. Values of h that a token's kernels read and write in 16 bits, for each block:

    forward    coefficients     n        streams read
               what enters      n + 1    streams read, their sum written
               what leaves    2 n + 1    streams and the block's output read, streams written
    backward   what leaves    2 n + 1    gradients of streams read, those of streams and of the output written
                            + 2 n + 1    gradients, streams and output read, for those of the coefficients
               what enters    2 n + 1    gradient of the sum and streams read, gradients of streams written
               coefficients   2 n        streams read, gradients written
               sum            4 n        of the three gradients of the streams

and for Sinkhorn's n^2 values I times 12.8 bytes forward; backward its matrices and their sums of rows and columns are computed
again, written and read, 16 (n^2 + n) I. Coefficients themselves are hundreds of bytes, and left out. Their product is bound by
its bytes: 24 operations for each with n = 4, a column of the weights for each coefficient.

These are the fused kernels of Megatron Core (`fused_mhc_kernels.py`, `use_fused_mhc`, as of August 2026 on its branch `dev`).
Without them PyTorch compiles the same in more kernels, which is not simulated.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.hyper_connections import HyperConnections
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.layout.recomputed_layers import layers_of_streams
from simulator.machine.rank import Rank
from simulator.table import Floats
from simulator.traffic.layer_collectives import Directions

SINKHORN_BYTES = 12.8
"""Bytes whose traffic takes as long as one iteration does for each value forward: Triton kernels of Transformer Engine on B200
need 12.6 us more for 32,768 tokens than for 8,192, with n = 4 and I = 20, at 8 TB/s (pull request 2790)."""
SINKHORN_BACKWARD_BYTES = 16.0
"""The same backward, of values and sums: each is written and read in 32 bits, before rows are divided and before columns are
(`_ct_sinkhorn_bwd_kernel`)."""
NUM_FORWARD_KERNELS, NUM_BACKWARD_KERNELS = 7.0, 10.0
"""Launches for each block: coefficients, Sinkhorn, sum, what leaves, and casts of three coefficients; backward what leaves and
the sum of gradients are one more each, and the gradient of the weights is accumulated."""
NUM_KERNELS_AGAIN = 2.0
"""Launches of what recomputation of hyper-connections repeats for each block: the sum, and what leaves."""


def connections_s(rank: Rank) -> Directions:
    """Returns the time of the hyper-connections of a layer, forward and backward; zero where the residual has one stream."""
    hyper, num_blocks = rank.workload.model.hyper_connections, rank.workload.model.num_blocks_in_turn
    if hyper is None:
        none_s = np.zeros(len(rank.plans))
        return none_s, none_s
    forward, backward = _stream_passes(hyper)
    iterated = hyper.sinkhorn_iterations * hyper.num_streams
    small = SINKHORN_BYTES * iterated * hyper.num_streams
    small_backward = SINKHORN_BACKWARD_BYTES * iterated * (hyper.num_streams + 1)
    return (
        _moved_s(rank, num_blocks * forward, num_blocks * small, num_blocks * NUM_FORWARD_KERNELS),
        _moved_s(rank, num_blocks * backward, num_blocks * small_backward, num_blocks * NUM_BACKWARD_KERNELS),
    )


def connections_again_s(rank: Rank) -> Floats:
    """Returns the time of what recomputation of the hyper-connections of a layer repeats, `(n,)`.

    Coefficients are kept. The last output of every group of layers is where recomputation begins, and is kept as well.
    """
    model = rank.workload.model
    if not ((hyper := model.hyper_connections) and "mhc" in rank.workload.modules_again):
        return np.zeros(len(rank.plans))
    entering, leaving = hyper.num_streams + 1.0, 2.0 * hyper.num_streams + 1.0
    left_again = model.num_blocks_in_turn - 1.0 / layers_of_streams(rank.workload, rank.plans)
    passes = model.num_blocks_in_turn * entering + left_again * leaving
    return _moved_s(rank, passes, 0.0, NUM_KERNELS_AGAIN * model.num_blocks_in_turn)


def num_connection_kernels(rank: Rank) -> tuple[float, float]:
    """Returns the launches of the hyper-connections of a layer, forward and backward, beyond those of residual additions."""
    model = rank.workload.model
    if model.hyper_connections is None:
        return 0.0, 0.0
    return model.num_blocks_in_turn * NUM_FORWARD_KERNELS, model.num_blocks_in_turn * NUM_BACKWARD_KERNELS


def expansion_s(rank: Rank) -> Directions:
    """Returns the time to copy the embedding to all streams, and to add up their gradients; zero with one stream."""
    hyper = rank.workload.model.hyper_connections
    if hyper is None:
        none_s = np.zeros(len(rank.plans))
        return none_s, none_s
    copied_s = _moved_s(rank, hyper.num_streams + 1.0, 0.0, 1.0)
    return copied_s, copied_s


def contraction_s(rank: Rank) -> Directions:
    """Returns the time to make one stream of several in front of a final norm; zero with one stream.

    Streams are read for the coefficients and for their sum, which is written; backward the gradients of both are written and
    added up (`learned_output_contract`, which PyTorch compiles).
    """
    hyper = rank.workload.model.hyper_connections
    if hyper is None:
        none_s = np.zeros(len(rank.plans))
        return none_s, none_s
    streams = float(hyper.num_streams)
    return _moved_s(rank, 2.0 * streams + 1.0, 0.0, 2.0), _moved_s(rank, 7.0 * streams + 1.0, 0.0, 3.0)


def _stream_passes(hyper: HyperConnections) -> tuple[float, float]:
    """Values of h that the kernels of one block read and write, forward and backward."""
    n = float(hyper.num_streams)
    entering, leaving = n + 1.0, 2.0 * n + 1.0
    return n + entering + leaving, 2.0 * leaving + (2.0 * n + 1.0) + 2.0 * n + 4.0 * n


def _moved_s(
    rank: Rank, passes: Floats | float, small_bytes: Floats | float, num_kernels: Floats | float
) -> Floats:
    """Time of kernels that read and write so many values of h, and so many bytes beside, for each token of a rank."""
    values = ACTIVATION_BYTES * rank.workload.model.hidden_size * passes
    return rank.memory_bound_s(rank.split_tokens * (values + small_bytes), num_kernels)
