"""Which operators and collectives belong to a vision encoder on the first stage: patches, layers, projectors?"""

from __future__ import annotations

from dataclasses import replace

from simulator.deep.plans.plan_items import PartPasses, work
from simulator.deep.plans.plan_operators import layer_passes
from simulator.deep.plans.tensor_ends import TensorEnds
from simulator.layers.encoder_costs import (
    encoder_rank,
    patches,
    projector_weight_gradients_s,
    projectors,
)
from simulator.machine.rank import Rank
from simulator.step.parts import Part, has_backward

PATCHES, PROJECTORS = "patches", "projectors"
"""Names of the operators at the ends of the encoder."""


def vision_passes(rank: Rank, kind: Part) -> PartPasses:
    """Returns the passes through a part of the vision encoder; a frozen one has no backward pass."""
    if kind is Part.ENCODER:
        passes = layer_passes(encoder_rank(rank), is_expert=False)
    else:
        passes = _patch_passes(rank) if kind is Part.PATCHES else _projector_passes(rank)
    return (
        passes if has_backward(rank.workload, kind) else replace(passes, backward=(), weight_gradient_s=0.0)
    )


def _patch_passes(rank: Rank) -> PartPasses:
    times = patches(rank)
    backward_s = float(times.backward_compute_s[0])
    return PartPasses(
        forward=work(PATCHES, float(times.forward_compute_s[0])),
        backward=work(PATCHES, backward_s, has_weights=True),
        weight_gradient_s=backward_s,
    )


def _projector_passes(rank: Rank) -> PartPasses:
    times, (forward, backward) = projectors(rank), TensorEnds.of_projectors(rank)
    return PartPasses(
        forward=(*work(PROJECTORS, float(times.forward_compute_s[0])), *forward),
        backward=(*work(PROJECTORS, float(times.backward_compute_s[0]), has_weights=True), *backward),
        weight_gradient_s=float(projector_weight_gradients_s(rank)[0]),
    )
