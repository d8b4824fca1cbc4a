"""How long does a step of Muon take on the rank with the most work of the fullest stage?

Matrix after matrix, a rank updates the momentum, makes it orthogonal (`simulator.layout.newton_schulz`) and adds it to the
32-bit weight; nothing hides that. Products run in 16 bits (`--muon-fp32-matmul-prec medium`). Kernels are launched one by one,
so many small matrices take as long as the host needs for their launches. Bytes that are moved, for X of m x n on a rank:

    24 m n             norm, division by it, into 16 bits and back
    8 m n              joining what was gathered
    6 (m n + m m)      in every step, the summands of the two products that add: a copy, and its read
    48 a weight        decay, momentum, two factors, addition to the weight
    18 a weight        norm and clipping of the gradient, 16-bit weight; 6 more where gradients have 16 bits
    16 a weight        queries, keys and values taken apart and joined
    8 m n              more for the norm of what ranks share (`distributed`), in separate kernels
    4 a weight of all  where tensors are dealt, gathered weights are copied to where they belong; beside that, gradients, whose
                       buffer the gather uses if it is behind the next forward pass, are set to zero once more

Adam updates the other weights before or after that (`simulator.layout.update_bytes`).
(`OrthogonalizedOptimizer.step` and `newton_schulz` of Emerging-Optimizers, `TensorParallelMuon` and
`Float16OptimizerWithFloat16Params` of Megatron Core, of August 2026.)
"""

from __future__ import annotations

import numpy as np

from simulator.layout.chunks import Chunks, weights_on_stage
from simulator.layout.matrices import Matrix, end_matrix
from simulator.layout.model_states import FULL_GRADIENT_BYTES, copied_gradient_bytes
from simulator.layout.newton_schulz import Iterated, iterated
from simulator.layout.owned_matrices import (
    MatrixKinds,
    OwnedMatrices,
    deals_tensors,
    muon_of,
    spread_weights,
)
from simulator.layout.trained_weights import StepWeights
from simulator.layout.update_bytes import update_bytes
from simulator.machine.network import Group, all_gather_s, all_reduce_s
from simulator.machine.rank import Rank, members_in_domain
from simulator.step.once_per_step import once_per_step_bytes
from simulator.table import Floats, total

MOMENTUM_BYTES = 4.0
"""A momentum in 32 bits, which ranks gather."""
SQUARED_BYTES = 2.0
"""A value of A in 16 bits, which ranks add up."""
SCALED_BYTES = 24.0
"""Norm (4), division (8), into 16 bits (6) and back (6), for a weight of X."""
JOINED_BYTES = 8.0
"""A read and a write in 32 bits."""
SUMMAND_BYTES = 6.0
"""A summand of a product in 16 bits is copied to its output (4) and read there (2): `torch.addmm`."""
UPDATED_BYTES = 48.0
"""Decay (8), momentum (12), two factors (16) and addition to the 32-bit weight (12)."""
CLIPPED_BYTES = 18.0
"""Norm (4) and clipping (8) of the gradient, and the 16-bit weight from its master (6)."""
TAKEN_APART_BYTES = 16.0
"""Two copies in 32 bits."""
SUMMED_NORM_BYTES = 8.0
"""Squares are written and read, where ranks add up the norm of a matrix that they share: `distributed_normalize_p2`."""
UNPACKED_BYTES = 4.0
"""A gathered 16-bit weight, read and written (`allgather_params`, `finish_param_sync` of Megatron Core)."""
NUM_STEP_KERNELS = 5
"""Three products and two copies in a step of the iteration."""
NUM_PIECE_KERNELS = 10
"""Decay, momentum, norm with its bound and division, both casts, two factors, addition."""
OPERATOR_S = 10e-6
"""Time that the host takes for an operator outside of autograd; estimate."""


def muon_optimizer_s(rank: Rank, chunks: Chunks, weights: StepWeights, num_kernels: float) -> Floats:
    """Returns the time of the optimizer on the slowest stage, `(n,)`: Muon, then Adam for the rest.

    Args:
        rank: Ranks of the designs.
        chunks: Their chunks.
        weights: The weights of these.
        num_kernels: Launches of Adam's step.
    """
    workload, plans, stages = rank.workload, rank.plans, chunks.unlike_stages()
    owned = OwnedMatrices.of(workload, plans, chunks, stages)
    shared, routed = weights_on_stage(workload, plans, chunks, weights.trained, stages)
    # Embedding and output layer are dealt to two ranks where they are on one stage, if there are so many.
    one_end = end_matrix(workload.model).num_weights / plans.tensor_parallel
    end = np.where(owned[0].kinds.ranks > 1, np.minimum(one_end, owned[0].end_weights), owned[0].end_weights)
    moved = update_bytes(workload, plans) * (spread_weights((shared, routed), owned) + end)
    padded = total(weights_on_stage(workload, plans, chunks, weights.exchanged, stages))
    moved = moved + once_per_step_bytes(rank, chunks, stages, weights, padded)
    moved = moved + _unpacked_bytes(rank, chunks, owned, (shared, routed))
    orthogonal_s = total(_update_s(rank, each) for each in owned)
    return np.asarray(np.max(orthogonal_s + rank.memory_bound_s(moved, num_kernels), axis=0))


def _unpacked_bytes(
    rank: Rank, chunks: Chunks, owned: tuple[OwnedMatrices, ...], held: tuple[Floats, Floats]
) -> Floats:
    """Bytes that a rank of stages moves to put gathered tensors where they belong, if tensors are dealt, `(s, n)`."""
    workload = rank.workload
    are_dealt = deals_tensors(workload, rank.plans, chunks)
    zeroed = workload.gradient_bytes if workload.hides_parameter_gather else 0.0
    per_weight = UNPACKED_BYTES + zeroed
    return np.asarray(
        total(
            per_weight * weights * (are_dealt & (each.kinds.ranks > 1))
            for weights, each in zip(held, owned, strict=False)  # a dense model has nothing routed
        )
    )


def _update_s(rank: Rank, owned: OwnedMatrices) -> Floats:
    """Time of Muon on the busiest rank of stages, `(s, n)`: of its kernels, or of the host's launches if that is longer."""
    kinds = owned.kinds
    device_s, host_s = (
        np.array(times)
        for times in zip(*(matrix_s(rank, kinds, each) for each in kinds.matrices), strict=True)
    )
    sums = [np.einsum("ksn,kn->sn", owned.costliest, times) for times in (device_s, host_s)]
    return np.asarray(np.maximum(*sums))


def matrix_s(rank: Rank, kinds: MatrixKinds, matrix: Matrix) -> tuple[Floats, Floats]:
    """Returns the time that the accelerator and the host take for a matrix, `(n,)` each."""
    muon = muon_of(rank.workload)
    pieces = iterated(matrix, kinds.parts, muon.tensor_mode)
    group = _group(rank, kinds)
    rows, columns = kinds.sides(matrix)
    per_weight = UPDATED_BYTES + CLIPPED_BYTES + TAKEN_APART_BYTES * (len(pieces) > 1)
    if copied_gradient_bytes(rank.workload) and rank.workload.gradient_bytes < FULL_GRADIENT_BYTES:
        per_weight += rank.workload.gradient_bytes + FULL_GRADIENT_BYTES
    device_s = rank.memory_bound_s(per_weight * rows * columns, 0.0)
    device_s = device_s + total(_piece_s(rank, piece, group) for piece in pieces)
    num_launches = len(pieces) * (NUM_PIECE_KERNELS + NUM_STEP_KERNELS * muon.num_steps)
    return device_s, np.full(len(rank.plans), num_launches * OPERATOR_S)


def _piece_s(rank: Rank, piece: Iterated, group: Group) -> Floats:
    """Time to make one piece orthogonal, `(n,)`."""
    num_steps = muon_of(rank.workload).num_steps
    m, n = piece.short, piece.long
    of_products = rank.in_16_bits
    step_s = (
        of_products.product_s(m, m, n) + of_products.product_s(m, m, m) + of_products.product_s(m, n, m)
    ) * rank.compute_slowdown
    summands_bytes = SUMMAND_BYTES * (piece.weights + m**2)
    per_weight = SCALED_BYTES + JOINED_BYTES * piece.gathered + SUMMED_NORM_BYTES * piece.summed
    once_bytes = per_weight * piece.weights
    summed_s = np.where(piece.summed, all_reduce_s(num_bytes=SQUARED_BYTES * m**2, **group), 0.0)
    gathered_s = np.where(
        piece.gathered, all_gather_s(num_bytes=MOMENTUM_BYTES * piece.weights, **group), 0.0
    )
    return np.asarray(
        num_steps * (step_s + rank.memory_bound_s(summands_bytes, 2.0) + summed_s)
        + rank.memory_bound_s(once_bytes, float(NUM_PIECE_KERNELS))
        + gathered_s
    )


def _group(rank: Rank, kinds: MatrixKinds) -> Group:
    """The ranks that split a matrix."""
    return {
        "group_size": kinds.parts.astype(np.float64),
        "members_per_domain": members_in_domain(rank, 1, kinds.parts),
        "links": rank.links,
    }
