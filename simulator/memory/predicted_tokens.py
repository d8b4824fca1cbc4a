"""What does a module of multi-token prediction keep in addition to its layer, and when does it recompute that?

After its forward pass it holds the hidden state and the embedding, which norms need again; the input of the projection; the
input of its final norm; and the input of the output layer. With 16 bits these are 2 h (2 + 2 + 1 + 1) bytes per token, of which
sequence parallelism leaves a share on each rank. With n streams of the residual the hidden state is n h, and so are its norm in
front of the projection and what the final norm's sum reads. The names are those of `simulator.layers.token_prediction`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.domain.model import ModelShape
from simulator.domain.plan import PlanTable, Recompute
from simulator.domain.workload import Workload
from simulator.layout.kept_inputs import ACTIVATION_BYTES, input_bytes, sequence_split
from simulator.layout.micro_batches import micro_batch_tokens
from simulator.table import Booleans, Floats

NUM_INPUTS = 2.0
"""Values that the projection reads for each one that it writes."""


def entering_values(model: ModelShape) -> float:
    """Returns the values of h that enter the projection of a module for a token: the embedding, all streams of the residual."""
    return NUM_INPUTS - 1.0 + model.stream_width / model.hidden_size


def repeats_projection(workload: Workload, plans: PlanTable) -> Booleans:
    """Returns whether the backward pass recomputes norms and projection of a module together with its layer, `(n,)`."""
    is_left_out = (plans.recompute_num_layers > 0) & (workload.recompute_method == "block")
    return np.asarray((plans.recompute == Recompute.FULL.code) & ~is_left_out)


def plans_of_modules(workload: Workload, plans: PlanTable) -> PlanTable:
    """Returns plans that recompute what these recompute of a module's layer: nothing if they recompute only some layers."""
    keeps = ~repeats_projection(workload, plans) & (plans.recompute == Recompute.FULL.code)
    return replace(
        plans,
        recompute=np.where(keeps, Recompute.NONE.code, plans.recompute),
        recompute_num_layers=np.zeros_like(plans.recompute_num_layers),
    )


def kept_and_again_bytes(workload: Workload, plans: PlanTable) -> tuple[Floats, Floats]:
    """Returns what a module keeps of a micro-batch in addition to its layer, and what part of it is recomputed, `(n,)` each.

    The layer already counts its own input, the output of the projection. Under full recomputation the module keeps its two
    inputs instead, one of which takes the place of that output. Adapters need neither the embedding again nor inputs of
    products.
    """
    tokens = micro_batch_tokens(workload, plans)
    value = ACTIVATION_BYTES * tokens * workload.model.hidden_size / sequence_split(workload, plans)
    is_trained, num_streams = workload.lora is None, entering_values(workload.model) - 1.0
    products = is_trained * entering_values(workload.model) * input_bytes(workload, plans) / ACTIVATION_BYTES
    summed = num_streams if workload.model.hyper_connections else 0.0
    again = (products + 1.0 + summed) * value  # what the projection reads, and the input of the final norm
    begin = (num_streams + is_trained) * value
    is_again = repeats_projection(workload, plans)
    kept = is_trained * value + np.where(is_again, value, begin + again)
    return kept, np.where(is_again, again, 0.0)
