"""What do the passes through a vision encoder keep on the first stage?

Layers keep what those of a transformer of their shape do (`simulator.memory.layer_activations`). In addition, for I tokens of
images, the product of patches keeps these, and every product of a projector its input, behind an activation also that of the
activation. What is frozen, and has nothing trained ahead of it, keeps nothing.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.layout.encoder import encoder_plans, encoder_workload
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.layout.micro_batches import micro_batch_tokens
from simulator.memory.layer_activations import LayerActivations
from simulator.table import Floats


def encoder_activations(workload: Workload, plans: PlanTable) -> LayerActivations:
    """Returns what one micro-batch keeps in the whole encoder, and what one of its layers needs at work, bytes `(n,)` each."""
    none = np.zeros(len(plans))
    if workload.trained_vision == "nothing" or workload.model.vision is None:
        return LayerActivations(kept=none, at_work=none)
    projectors = _projector_bytes(workload, plans)
    if workload.trained_vision == "projectors":
        return LayerActivations(kept=projectors, at_work=none)
    own, own_plans, vision = encoder_workload(workload), encoder_plans(workload, plans), workload.model.vision
    layer = LayerActivations.of(own, own_plans, is_expert=False)
    patches = ACTIVATION_BYTES * micro_batch_tokens(own, own_plans) * vision.patch_values
    return LayerActivations(kept=vision.num_layers * layer.kept + patches + projectors, at_work=layer.at_work)


def _projector_bytes(workload: Workload, plans: PlanTable) -> Floats:
    """Inputs of the products of all projectors; tensor-parallel ranks share those between two products."""
    vision, own_plans = workload.model.vision, encoder_plans(workload, plans)
    assert vision is not None
    tokens = micro_batch_tokens(encoder_workload(workload), own_plans) / vision.patches_per_token
    first, *others = vision.projector_sizes
    width = first + 2.0 * sum(others) / own_plans.tensor_parallel
    return np.asarray(ACTIVATION_BYTES * vision.num_projectors * tokens * width)
