"""Which operators and collectives belong to a vision encoder on the first stage: patches, layers, projectors?"""

from __future__ import annotations

from dataclasses import replace

from simulator.deep.plans.plan_items import PartPasses, repeated, work
from simulator.deep.plans.plan_operators import layer_passes
from simulator.deep.plans.tensor_ends import TensorEnds
from simulator.layers.encoder_costs import (
    encoder_rank,
    encoder_share,
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
    made = {Part.PATCHES: _patch_passes, Part.ENCODER: _layer_passes, Part.PROJECTOR: _projector_passes}
    passes = made[kind](rank)
    return (
        passes if has_backward(rank.workload, kind) else replace(passes, backward=(), weight_gradient_s=0.0)
    )


def _layer_passes(rank: Rank) -> PartPasses:
    """One layer, as often as a micro-batch passes it."""
    share, passes = float(encoder_share(rank)[0]), layer_passes(encoder_rank(rank), is_expert=False)
    return PartPasses(
        forward=repeated(passes.forward, share),
        backward=repeated(passes.backward, share),
        weight_gradient_s=share * passes.weight_gradient_s,
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
