"""Do layers keep what PyTorch's autograd saves where their small operators run one by one?"""

from __future__ import annotations

import numpy as np
import pytest

from planner.calibration.torch_layer import layer_of, weights_of
from simulator import catalog
from simulator.domain.lora import Lora
from simulator.domain.workload import Workload
from simulator.memory.layer_activations import kept_per_layer
from tests.simulator.builders import plan_of, table_of, training
from tests.simulator.saved_tensors import saved_bytes

LLAMA = "llama-3.2-1b"


def workload_of(model: str = LLAMA, **fields: object) -> Workload:
    job = training(model, sequence_length=2048, global_batch_size=1)
    return Workload.model_validate({**job.model_dump(), "has_fused_operators": False, **fields})


def kept_per_value(workload: Workload, *, tensor: int = 1) -> float:
    """Bytes that a layer keeps for each value of the residual stream."""
    kept, _ = kept_per_layer(workload, table_of(plan_of(tensor=tensor)))
    return float(kept[0]) / workload.sequence_length / workload.model.hidden_size


def test_a_layer_of_llama_keeps_the_tensors_that_pytorch_saves() -> None:
    # h 2048, f = 4 h, keys and values h / 4. Fused: input 2, norm 2, queries 2, keys and values 1, attention 2, residual 2,
    # norm 2, gate 8, up 8, product 8. One by one, each norm has 4 for its input in 32 bits in the place of 2, and 2 for what
    # its weights multiply; SiLU's result 8.
    assert kept_per_value(workload_of(has_fused_operators=True)) == pytest.approx(37.0)
    assert kept_per_value(workload_of()) == pytest.approx(37.0 + 2 * (4 - 2 + 2) + 8)


def test_blocks_like_those_of_gpt_keep_the_same_either_way() -> None:
    # PyTorch's LayerNorm and GELU save their inputs.
    fused, separate = (
        kept_per_value(workload_of("gpt2-xl", has_fused_operators=is_fused)) for is_fused in (True, False)
    )
    assert separate == fused


@pytest.mark.parametrize("tensor", [1, 4])
def test_norms_of_heads_keep_copies_too(tensor: int) -> None:
    fused, separate = (
        tensor * kept_per_value(workload_of("qwen3-8b", has_fused_operators=is_fused), tensor=tensor)
        for is_fused in (True, False)
    )
    shape = catalog.model("qwen3-8b")
    heads = (shape.num_heads + shape.num_kv_heads) * shape.head_dim / shape.hidden_size
    assert separate - fused == pytest.approx(
        8.0 + 2.0 * shape.ffn_hidden_size / shape.hidden_size + 4.0 * heads
    )


def test_frozen_norms_keep_nothing_for_their_weights() -> None:
    lora = Lora(rank=16)
    frozen, fused = (
        kept_per_value(workload_of(lora=lora, has_fused_operators=is_fused)) for is_fused in (False, True)
    )
    assert frozen - fused == pytest.approx(2 * (4 - 2) + 8)


@pytest.mark.parametrize("has_sequence_parallel", [True, False])
def test_tensor_parallel_ranks_share_what_they_split(has_sequence_parallel: bool) -> None:
    def more(tensor: int) -> float:
        fused, separate = (
            kept_per_value(
                workload_of(has_fused_operators=is_fused, has_sequence_parallel=has_sequence_parallel),
                tensor=tensor,
            )
            for is_fused in (True, False)
        )
        return separate - fused

    assert more(1) == pytest.approx(16.0)
    assert more(4) == pytest.approx(4.0 if has_sequence_parallel else 8.0 + 2.0)


def test_experts_keep_the_results_of_their_gates_and_what_they_return() -> None:
    fused, separate = (
        kept_per_layer(workload_of("mixtral-8x7b", has_fused_operators=is_fused), table_of(plan_of()))[1]
        for is_fused in (True, False)
    )
    shape = catalog.model("mixtral-8x7b")
    assert shape.experts is not None
    routed = 2.0 * shape.experts.experts_per_token * shape.experts.expert_ffn_hidden_size
    returned = 4.0 * shape.experts.experts_per_token * shape.hidden_size
    np.testing.assert_allclose(separate - fused, 2048 * (8.0 * shape.hidden_size + routed + returned))


@pytest.mark.parametrize("model", [LLAMA, "gpt2-xl"])
def test_pytorch_saves_just_these_bytes(model: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    shape = catalog.model(model)
    layer = layer_of(torch, shape, 64, "cpu", is_compiled=False, is_cast=False)
    weights = weights_of(torch, shape, "cpu")
    inputs = torch.randn((1, 64, shape.hidden_size), dtype=torch.bfloat16).requires_grad_()
    saved = saved_bytes(torch, lambda: layer(inputs, weights), weights)
    per_value = saved / 64 / shape.hidden_size
    # Beside whole tensors a value for each token and head, and tables of positions as long as the sequence.
    assert per_value == pytest.approx(kept_per_value(workload_of(model)), rel=0.05)
