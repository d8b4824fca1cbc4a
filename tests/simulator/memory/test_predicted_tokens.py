"""What of a module of multi-token prediction is computed again, and what does it keep instead?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.plan import Recompute
from simulator.layout.chunks import split_layers
from simulator.memory.activations import activations_of_stage
from simulator.memory.predicted_tokens import kept_and_again_bytes, plans_of_modules
from tests.simulator.builders import plan_of, table_of, training


@pytest.mark.parametrize(
    ("recompute", "num_layers", "method", "is_again"),
    [
        (Recompute.NONE, None, "uniform", False),
        (Recompute.FULL, None, "uniform", True),
        (Recompute.FULL, 1, "uniform", True),
        # The first layers of every chunk alone, of which a module is none.
        (Recompute.FULL, 1, "block", False),
    ],
)
def test_a_module_computes_its_norms_and_its_projection_again_with_its_layer(
    recompute: Recompute, num_layers: int | None, method: str, is_again: bool
) -> None:
    usual = training("llama-3.1-8b")
    workload = usual.model_copy(
        update={"recompute_method": method, "model": usual.model.model_copy(update={"num_mtp_layers": 1})}
    )
    plans = table_of(plan_of(recompute=recompute, recompute_num_layers=num_layers))
    kept, again = kept_and_again_bytes(workload, plans)
    # In 16 bits: both halves of what the projection reads, and the input of the final norm; a module begins with two inputs.
    value = 2.0 * 4096 * 4096
    assert again == pytest.approx(3 * value if is_again else 0.0)
    # The embedding of the next tokens in any case, and one of the inputs in the place of the projection's output.
    assert kept == pytest.approx(2 * value if is_again else (1 + 2 + 3) * value)


@pytest.mark.parametrize(
    ("recompute", "num_layers", "method", "own"),
    [
        (Recompute.NONE, None, "uniform", Recompute.NONE),
        (Recompute.SELECTIVE, None, "uniform", Recompute.SELECTIVE),
        (Recompute.FULL, None, "uniform", Recompute.FULL),
        (Recompute.FULL, 2, "uniform", Recompute.FULL),
        (Recompute.FULL, 2, "block", Recompute.NONE),
    ],
)
def test_the_layer_of_a_module_is_alone_and_computed_again_as_others_are(
    recompute: Recompute, num_layers: int | None, method: str, own: Recompute
) -> None:
    workload = training("llama-3.1-8b").model_copy(update={"recompute_method": method})
    plans = table_of(plan_of(recompute=recompute, recompute_num_layers=num_layers))
    found = plans_of_modules(workload, plans)
    assert (found.recompute.tolist(), found.recompute_num_layers.tolist()) == ([own.code], [0])


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
def test_modules_go_backward_one_after_another(recompute: Recompute) -> None:
    usual, plans = training("llama-3.1-8b"), table_of(plan_of(recompute=recompute))
    at_work = []
    for num_modules in (1, 2):
        model = usual.model.model_copy(update={"num_mtp_layers": num_modules})
        workload, chunks = usual.model_copy(update={"model": model}), split_layers(model, plans)
        at_work.append(activations_of_stage(workload, plans, chunks, np.array([0])).at_work_bytes)
    assert at_work[0] == at_work[1] > 0.0
