"""Which part of a trace does each accelerator execute? Other batches, stages of equal time, buckets of gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.deep.traced_steps.operator_model import (
    OperatorModel,
    Rates,
    fit_operators,
    on_accelerator,
    ratios,
    samples_of,
    seconds,
)
from simulator.deep.traces.trace import NO_LAYER, NO_OPERATOR, Category, OperatorTrace, Phase
from simulator.table import Booleans, Floats, Integers


def with_batch(trace: OperatorTrace, num_samples: float, model: OperatorModel | None = None) -> OperatorTrace:
    """Returns a trace as it would be with another batch.

    Activations, and the time of operators that touch any, grow with the batch. Parameters, their gradients and the optimizer
    do not; TrioSim scales all of them. A batch that leaves the accelerator half idle takes longer than computed here,
    unless lines of operators with their intercepts are given.

    Args:
        trace: the measured trace.
        num_samples: samples of the new step; may be fractional, for micro-batches.
        model: lines of operators; default: time is proportional to the batch.
    """
    scaled, grows = _grown(trace, num_samples)
    longer = np.where(grows, num_samples / trace.batch_size, 1.0)
    if model is not None:
        fitted = _fitted(trace, scaled, model)
        longer = np.where(grows & ~np.isnan(fitted), fitted, longer)
    return replace(scaled, duration_s=longer * trace.duration_s)


def kept_in_proportion(trace: OperatorTrace, num_samples: float, model: OperatorModel) -> tuple[str, ...]:
    """Returns the classes of operators that are scaled in proportion to the batch because no line says otherwise.

    Args:
        trace: the measured trace.
        num_samples: samples of the new step.
        model: lines of operators.
    """
    scaled, grows = _grown(trace, num_samples)
    is_kept = grows & (trace.duration_s > 0.0) & np.isnan(_fitted(trace, scaled, model))
    return tuple(dict.fromkeys(trace.names[row] for row in np.flatnonzero(is_kept).tolist()))


def _fitted(trace: OperatorTrace, scaled: OperatorTrace, model: OperatorModel) -> Floats:
    return ratios(model, trace.names, samples_of(trace).sizes, samples_of(scaled).sizes)


def _grown(trace: OperatorTrace, num_samples: float) -> tuple[OperatorTrace, Booleans]:
    """A trace with the sizes of another batch and its own times, and which operators grow, `(n,)`."""
    ratio = num_samples / trace.batch_size
    is_activation = trace.tensors.is_a(Category.ACTIVATION)
    counted = is_activation.astype(np.float64)
    touched = trace.inputs.sums(counted) + trace.outputs.sums(counted)
    grows = (touched > 0) & ~trace.is_in(Phase.OPTIMIZER)
    num_bytes = np.where(is_activation, ratio, 1.0) * trace.tensors.num_bytes
    scaled = replace(
        trace,
        tensors=replace(trace.tensors, num_bytes=num_bytes),
        num_flop=np.where(grows, ratio, 1.0) * trace.num_flop,
    )
    return scaled, grows


def moved(trace: OperatorTrace, traced_on: Rates, rates: Rates) -> OperatorTrace:
    """Returns a trace as it would be on another accelerator, from lines fitted to its own operators.

    Args:
        trace: the measured trace.
        traced_on: rates of the accelerator of the trace.
        rates: rates of the other one.
    """
    own = fit_operators([samples_of(trace)])
    other = on_accelerator([(traced_on, own)], rates)
    sizes = samples_of(trace).sizes
    before, after = seconds(own, trace.names, sizes), seconds(other, trace.names, sizes)
    longer = np.where(before > 0.0, after / np.where(before > 0.0, before, 1.0), 1.0)
    return replace(trace, duration_s=longer * trace.duration_s)


def stages(trace: OperatorTrace, num_stages: int) -> Integers:
    """Returns the stage of each layer, `(num_layers,)`: runs of layers, divided so that the slowest run is as fast as possible.

    Of equally good divisions it takes the one whose first stages are longest.
    """
    seconds = np.zeros(trace.num_layers)
    has_layer = trace.layer != NO_LAYER
    np.add.at(seconds, trace.layer[has_layer], trace.duration_s[has_layer])
    limit_s = _least_limit(seconds, num_stages)
    stage, used_s, current = np.zeros(len(seconds), dtype=np.int64), 0.0, 0
    for layer, layer_s in enumerate(seconds.tolist()):
        num_left = num_stages - 1 - current
        if layer and num_left and (used_s + layer_s > limit_s or len(seconds) - layer <= num_left):
            current, used_s = current + 1, 0.0
        stage[layer] = current
        used_s += layer_s
    return stage


def _least_limit(seconds: Floats, num_stages: int) -> float:
    """The lowest possible time of the slowest of `num_stages` runs: dynamic programming over where the last run begins."""
    total = np.concatenate([[0.0], np.cumsum(seconds)])
    best = total.copy()
    for _ in range(num_stages - 1):
        best = np.array(
            [np.maximum(best[: end + 1], total[end] - total[: end + 1]).min() for end in range(len(total))]
        )
    return float(best[-1]) * (1.0 + 1e-12)


def boundary_bytes(trace: OperatorTrace, stage: Integers) -> Floats:
    """Returns the bytes of activations that cross the boundary after each stage but the last, `(num_stages - 1,)`.

    These are tensors made before the boundary and read after it; views of the same storage count once. If no tensor links
    both sides of a boundary (a view under a new name), the outputs of the last operator before it are sent.
    """
    num_boundaries = int(stage[-1])
    is_forward = trace.is_in(Phase.FORWARD)
    of_operator = np.where(is_forward, stage[np.maximum(trace.layer, 0)], -1)
    tensors = trace.tensors
    size = int(tensors.storage.max(initial=-1)) + 1
    made, read, num_bytes = np.full(size, np.inf), np.full(size, -1), np.zeros(size)
    is_activation = tensors.is_a(Category.ACTIVATION)
    for lists, column, combine in ((trace.outputs, made, np.minimum), (trace.inputs, read, np.maximum)):
        counts = is_forward[lists.rows] & is_activation[lists.values]
        combine.at(column, tensors.storage[lists.values[counts]], of_operator[lists.rows[counts]])
    np.maximum.at(num_bytes, tensors.storage[is_activation], tensors.num_bytes[is_activation])
    crossing = np.array([num_bytes[(made <= cut) & (read > cut)].sum() for cut in range(num_boundaries)])
    for cut in np.flatnonzero(crossing == 0.0).tolist():
        last = np.flatnonzero(of_operator == cut)[-1]
        crossing[cut] = tensors.num_bytes[trace.outputs.of(last)].sum()
    return crossing


def shared_bytes(trace: OperatorTrace) -> Floats:
    """Returns the bytes that accelerators exchange after an operator that they share by columns of its weight, `(n,)`.

    Forward, these are the operator's outputs, of which each has a part. Backward, they are the gradient of the forward
    operator's inputs, to which each contributes a summand; inputs of the step need no gradient.
    """
    num_bytes = trace.tensors.num_bytes * trace.tensors.is_a(Category.ACTIVATION)
    made = np.zeros(len(num_bytes), dtype=np.bool_)
    made[trace.outputs.values] = True
    gathered, summed = trace.outputs.sums(num_bytes), trace.inputs.sums(num_bytes * made)
    mate = trace.forward_of
    backward = np.where(mate == NO_OPERATOR, 0.0, summed[mate])
    return np.where(trace.can_split, np.where(trace.is_in(Phase.FORWARD), gathered, backward), 0.0)


def local_parameter_bytes(trace: OperatorTrace, tensor_parallel: int) -> Floats:
    """Returns the bytes that one accelerator has of each tensor, `(m,)`: only a part of the inputs of split operators."""
    reader = trace.inputs.rows
    is_read = trace.can_split[reader] & trace.is_in(Phase.FORWARD)[reader]
    is_split = np.zeros(len(trace.tensors.names), dtype=np.bool_)
    is_split[trace.inputs.values[is_read]] = True
    return np.where(is_split, 1.0 / tensor_parallel, 1.0) * trace.tensors.num_bytes


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Gradients that replicas all-reduce together."""

    num_bytes: float
    ready: int
    """The operator after which the last gradient of the bucket is complete."""


def buckets(
    parameters: Integers, num_bytes: Floats, ready: Integers, first_bucket_bytes: float, bucket_bytes: float
) -> list[Bucket]:
    """Returns the buckets of PyTorch's DistributedDataParallel, in the order in which they are sent.

    Parameters are taken in the order in which their gradients are complete. A bucket is closed when it has reached its
    size, so it may exceed it by one parameter (`compute_bucket_assignment_by_size`).

    Args:
        parameters: tensors in that order.
        num_bytes: `(m,)` of all tensors.
        ready: `(m,)` operators that complete the gradients.
        first_bucket_bytes: size of the first bucket.
        bucket_bytes: size of the others.
    """
    found: list[Bucket] = []
    limit, held, last = first_bucket_bytes, 0.0, -1
    for parameter in parameters.tolist():
        held += float(num_bytes[parameter])
        last = int(ready[parameter])
        if held >= limit:
            found.append(Bucket(num_bytes=held, ready=last))
            limit, held = bucket_bytes, 0.0
    if held:
        found.append(Bucket(num_bytes=held, ready=last))
    return found
