"""How many weights of layers does a rank of a stage hold? Counted by hand from the published shapes."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.layout.chunks import split_layers
from simulator.layout.stage_content import StageContent, layer_weights
from tests.simulator.builders import changed, gpt, plan_of, table_of, training


def on_last_stage(workload: Workload, plan: Plan) -> float:
    plans = table_of(plan)
    stage = StageContent.of(workload, plans, split_layers(workload.model, plans), plans.pipeline_parallel - 1)
    return float(np.squeeze(layer_weights(workload, plans, stage)))


@pytest.mark.parametrize("parts", [1, 2])
def test_a_rank_has_its_part_of_attention_whole_routers_and_its_experts(parts: int) -> None:
    # Mixtral 8x7B (arXiv 2401.04088): 8 of 32 layers, heads of 4,096 with 1,024 for keys and for values.
    mixtral = changed(training("mixtral-8x7b"), expert_tensor_parallel=parts)
    attention, norms, router = 2 * 4096**2 + 2 * 4096 * 1024, 2 * 4096, 8 * 4096
    experts = 8 * 3 * 4096 * 14_336
    plan = plan_of(tensor=2, pipeline=4, data=8, expert=4)
    layer = (attention + norms) / 2 + router + experts / (4 * parts)
    assert on_last_stage(mixtral, plan) == pytest.approx(8 * layer, rel=1e-12)


def test_a_module_has_a_layer_and_a_projection_split_like_it() -> None:
    with_module = gpt().model_copy(update={"num_mtp_layers": 1})
    before, after = (
        on_last_stage(training(model), plan_of(tensor=4, pipeline=2)) for model in (gpt(), with_module)
    )
    # Four h x h and two h x 4h with two norms; the projection of two hidden states with three norms.
    layer, projection = 12 * 2048**2 + 2 * 2048, 2 * 2048**2 + 3 * 2048
    assert after - before == pytest.approx((layer + projection) / 4, rel=1e-12)
