"""What do hyper-connections keep for their backward pass, and what does their recomputation free? Bytes per token of one rank.

Nomenclature as in `simulator.domain.hyper_connections`. Around each block are kept, next to input and output of its norm,

    2 n h                       the streams, which the coefficients, the sum that enters and the streams that leave read
    2 h                         the output of the block, which a residual addition would not need
    6 (n^2 + 2 n) + 4 n^2 + 4   coefficients in 32 and in 16 bits, the matrix before its iterations, the norm, in 32

Recomputation (`mhc`) keeps outputs of blocks and coefficients, and of every group of G layers the streams that enter the first.
Everything else of them is computed again before the backward pass of the last: of G layers at once.

(Megatron Core: `hyper_connection.py`, `CheckpointWithoutOutputManager`.)
"""

from __future__ import annotations

import numpy as np

from simulator.domain.hyper_connections import HyperConnections
from simulator.domain.lora import AdaptedProduct
from simulator.domain.plan import PlanTable, keeps_restored_inputs
from simulator.domain.workload import Workload
from simulator.layout.kept_inputs import ACTIVATION_BYTES, WIDE_BYTES, norm_width, sequence_split
from simulator.layout.recomputed_layers import layers_of_streams
from simulator.table import Floats

NUM_GRADIENTS = 3.0
"""Gradients of the streams that are added up where a block begins, beside their sum (`BroadcastTensorFused`)."""


def streams_width(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the bytes that the hyper-connections of a layer keep, `(n,)`; 0 where the residual has one stream."""
    model = workload.model
    if not (hyper := model.hyper_connections):
        return np.zeros(len(plans))
    values = ACTIVATION_BYTES * (model.stream_width + model.hidden_size)
    kept = model.num_blocks_in_turn * (values + _coefficient_bytes(hyper))
    return np.asarray(kept / (sequence_split(workload, plans) + np.zeros(len(plans))))


def streams_again_width(workload: Workload, plans: PlanTable, *, is_expert: bool) -> Floats:
    """Returns the bytes of a layer that recomputation of hyper-connections computes again, `(n,)`; 0 without it.

    These are streams, inputs of norms, and outputs of norms that stand alone, whether or not `layernorm` is named as well.
    """
    model = workload.model
    if not (model.hyper_connections and "mhc" in workload.modules_again):
        return np.zeros(len(plans))
    num_streams = model.num_blocks_in_turn - 1.0 / layers_of_streams(workload, plans)
    values = num_streams * model.stream_width + model.num_blocks_in_turn * model.hidden_size
    again = ACTIVATION_BYTES * values / sequence_split(workload, plans)
    behind = [AdaptedProduct.QKV] if model.has_separate_norms else []
    behind += [AdaptedProduct.FC1] if is_expert else []
    norms = sum(norm_width(workload, plans, product, is_expert=is_expert) for product in behind)
    return np.asarray(again + ~keeps_restored_inputs(plans) * norms)


def summed_gradients_width(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the bytes of gradients of the streams that wait to be added up, `(n,)`; 0 with one stream."""
    if not workload.model.hyper_connections:
        return np.zeros(len(plans))
    width = NUM_GRADIENTS * ACTIVATION_BYTES * workload.model.stream_width
    return np.asarray(width / (sequence_split(workload, plans) + np.zeros(len(plans))))


def _coefficient_bytes(hyper: HyperConnections) -> float:
    both = (WIDE_BYTES + ACTIVATION_BYTES) * hyper.num_coefficients
    return both + WIDE_BYTES * (hyper.num_streams**2 + 1.0)
