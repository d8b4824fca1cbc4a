"""What does a module of multi-token prediction keep beside its layer, and when does it compute that again?

Behind its forward pass it holds the hidden value and the embedding, both of which norms need again, what the projection reads,
the input of its final norm, and what the output layer reads: with 16 bits 2 h (2 + 2 + 1 + 1) a token, of which sequence
parallelism leaves a share on each rank. The names are those of `simulator.layers.token_prediction`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.domain.plan import PlanTable, Recompute
from simulator.domain.workload import Workload
from simulator.layout.kept_inputs import ACTIVATION_BYTES, input_bytes, sequence_split
from simulator.layout.micro_batches import micro_batch_tokens
from simulator.table import Booleans, Floats

NUM_INPUTS = 2.0
"""Values that the projection reads for each that it gives."""


def repeats_projection(workload: Workload, plans: PlanTable) -> Booleans:
    """Returns whether the backward pass computes norms and projection of a module again, `(n,)`, and its layer with them."""
    is_left_out = (plans.recompute_num_layers > 0) & (workload.recompute_method == "block")
    return np.asarray((plans.recompute == Recompute.FULL.code) & ~is_left_out)


def plans_of_modules(workload: Workload, plans: PlanTable) -> PlanTable:
    """Returns plans that compute again what these do of the layer of a module: nothing where some layers are named."""
    keeps = ~repeats_projection(workload, plans) & (plans.recompute == Recompute.FULL.code)
    return replace(
        plans,
        recompute=np.where(keeps, Recompute.NONE.code, plans.recompute),
        recompute_num_layers=np.zeros_like(plans.recompute_num_layers),
    )


def kept_and_again_bytes(workload: Workload, plans: PlanTable) -> tuple[Floats, Floats]:
    """Returns what a module keeps of a micro-batch beside its layer, and what of that it computes again, `(n,)` each.

    The layer counts the output of the projection, its own input. Where all is computed again, the module keeps the two values
    that it begins with, one of which stands in the place of that. Adapters need neither the embedding again, nor inputs of
    products.
    """
    tokens = micro_batch_tokens(workload, plans)
    value = ACTIVATION_BYTES * tokens * workload.model.hidden_size / sequence_split(workload, plans)
    is_trained = workload.lora is None
    products = is_trained * NUM_INPUTS * input_bytes(workload, plans) / ACTIVATION_BYTES
    again = (products + 1.0) * value  # what the projection reads, and the input of the final norm
    begin = (1.0 + is_trained) * value
    is_again = repeats_projection(workload, plans)
    kept = is_trained * value + np.where(is_again, value, begin + again)
    return kept, np.where(is_again, again, 0.0)
