"""Which share of the passes of a step is forward?

A backward computes two products for each one of the forward: the gradients of its input and of its weights. Frozen weights have
no gradients, and recomputation adds forwards. With T the arithmetic of training per token without recomputation, F that with
all weights trained, and r the share of the layers that are recomputed, the share is

    1 / (3 T/F + r)        a third with nothing recomputed, a fourth with everything, about half with frozen weights
"""

from __future__ import annotations

from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.layout.recomputed_layers import recomputed_fraction
from simulator.layout.trained_weights import trained_flop_per_token
from simulator.table import Floats

PASSES_OF_A_STEP = 3.0
"""Arithmetic of a step over that of a forward pass, where all weights are trained and nothing is recomputed."""


def forward_share(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the share of forward passes in all passes of a step, `(n,)`, by arithmetic."""
    trained = PASSES_OF_A_STEP * (trained_flop_per_token(workload) / workload.model_flop_per_token)
    return 1.0 / (trained + recomputed_fraction(workload, plans))
