"""Which operators of a trace belong together? Layers, backward operators and their forward ones, gradients that are ready.

Traces do not say so. A backward operator belongs to the forward operator whose parameters it reads, including through views of
the same storage. A backward operator without parameters (of a ReLU, say) belongs to the layer of the next one that has some.
"""

from __future__ import annotations

import numpy as np

from simulator.deep.traces.trace import NO_LAYER, NO_OPERATOR, Category, Lists, Phase, Tensors
from simulator.table import Integers


def owners(tensors: Tensors, phase: Integers, inputs: Lists) -> Integers:
    """Returns, for each storage with parameters, the forward operator that reads it first, `(s,)`; else `NO_OPERATOR`."""
    owner = np.full(int(tensors.storage.max(initial=-1)) + 1, NO_OPERATOR)
    is_read = tensors.is_a(Category.PARAMETER)[inputs.values] & (phase[inputs.rows] == Phase.FORWARD.code)
    # Written from the last reader to the first, which remains.
    owner[tensors.storage[inputs.values[is_read]][::-1]] = inputs.rows[is_read][::-1]
    return owner


def mates(tensors: Tensors, phase: Integers, inputs: Lists, owner: Integers) -> Integers:
    """Returns, for each backward operator, the forward one whose parameters it reads, `(n,)`; else `NO_OPERATOR`."""
    mate = np.full(len(phase), NO_OPERATOR)
    found = owner[tensors.storage[inputs.values]]
    is_pair = (found != NO_OPERATOR) & (phase[inputs.rows] == Phase.BACKWARD.code)
    mate[inputs.rows[is_pair][::-1]] = found[is_pair][::-1]
    return mate


def layers(phase: Integers, owner: Integers, forward_of: Integers) -> Integers:
    """Returns the layer of each operator, `(n,)`."""
    layer = np.full(len(phase), NO_LAYER)
    has_parameters = np.zeros(len(phase), dtype=np.bool_)
    has_parameters[owner[owner != NO_OPERATOR]] = True
    is_forward = phase == Phase.FORWARD.code
    layer[is_forward] = np.maximum(np.cumsum(has_parameters)[is_forward] - 1, 0)
    # Backwards through time, so that an operator without parameters finds the layer of the next one that has some.
    current = 0
    for operator in np.flatnonzero(phase == Phase.BACKWARD.code)[::-1].tolist():
        if forward_of[operator] != NO_OPERATOR:
            current = int(layer[forward_of[operator]])
        layer[operator] = current
    return layer


def gradient_operators(
    tensors: Tensors, phase: Integers, inputs: Lists, owner: Integers, forward_of: Integers
) -> Integers:
    """Returns, for each parameter, the operator that completes its gradient, `(m,)`; for other tensors `NO_OPERATOR`.

    It is the last backward operator that reads the parameter. No backward operator reads a bias: its gradient is complete
    with those of the other parameters of its forward operator, or if there are none, when the backward pass is over.
    """
    ready = np.full(len(tensors.names), NO_OPERATOR)
    backward = np.flatnonzero(phase == Phase.BACKWARD.code)
    if not backward.size:
        return ready
    last_reader = np.full(len(owner), NO_OPERATOR)
    is_backward = phase[inputs.rows] == Phase.BACKWARD.code
    last_reader[tensors.storage[inputs.values[is_backward]]] = inputs.rows[is_backward]
    last_of_forward = np.full(len(phase), backward[-1])
    has_mate = backward[forward_of[backward] != NO_OPERATOR]
    last_of_forward[forward_of[has_mate]] = has_mate
    for parameter in _first_views(tensors, owner):
        storage = tensors.storage[parameter]
        read = last_reader[storage]
        ready[parameter] = read if read != NO_OPERATOR else last_of_forward[owner[storage]]
    return ready


def _first_views(tensors: Tensors, owner: Integers) -> Integers:
    """Parameters that the forward pass reads, one tensor for each storage."""
    numbers = np.flatnonzero(tensors.is_a(Category.PARAMETER) & (owner[tensors.storage] != NO_OPERATOR))
    _, first = np.unique(tensors.storage[numbers], return_index=True)
    return np.sort(numbers[first])
