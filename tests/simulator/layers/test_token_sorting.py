"""Is what moves around experts one by one what PyTorch's operators read and write, and takes it as long as was measured?"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.measure_experts import MEASURED_FILE, PAGE, experts_of, experts_sheet, read_experts
from simulator.domain.blocks import MixtureOfExperts
from simulator.domain.hardware import Precision
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.layers.token_sorting import (
    BACKWARD,
    FORWARD,
    NUM_ROUTING_KERNELS,
    ORDER_BACKWARD_KERNELS,
    ORDER_KERNELS,
    SeparateBytes,
    sorted_bytes,
    sorting_kernels,
)
from simulator.memory.layer_activations import kept_per_layer
from tests.simulator.builders import H100, plan_of, rank_of, table_of, training
from tests.simulator.saved_tensors import saved_bytes

Tensor = Any
Operator = Any
Arguments = Any
TOKENS, HIDDEN, COPIES, WIDTH = 2048, 512, 4, 256
SHAPE = ModelShape(
    name="experts",
    num_layers=1,
    hidden_size=HIDDEN,
    num_heads=8,
    num_kv_heads=8,
    head_dim=64,
    ffn_hidden_size=HIDDEN,
    vocabulary_size=1024,
    is_gated=True,
    experts=MixtureOfExperts(
        num_experts=8, experts_per_token=COPIES, expert_ffn_hidden_size=WIDTH, shared_ffn_hidden_size=WIDTH
    ),
)
RECORDED_MEAN_ERROR, HALF_A_POINT = 0.056, 0.005
SPREAD = plan_of(expert=4, data=4)
PRODUCTS = ("mm", "_grouped_mm", "grouped_mm")


def workload_of(**fields: object) -> Workload:
    plain = training(SHAPE, sequence_length=TOKENS, global_batch_size=16)
    return Workload.model_validate({**plain.model_dump(), "has_fused_operators": False, **fields})


def per_value(workload: Workload, plan: Plan) -> tuple[float, float]:
    forward, backward = sorted_bytes(rank_of(workload, plan))
    return float(forward[0]) / TOKENS / HIDDEN, float(backward[0]) / TOKENS / HIDDEN


def test_experts_of_one_rank_are_copied_weighed_and_added_up() -> None:
    assert per_value(workload_of(), plan_of()) == (4 * 30 + 6 + 6, 4 * 52 + 8 + 12)


@pytest.mark.parametrize(("dispatch", "order"), [("all_to_all", (4 * 8, 4 * 12)), ("deduplicated", (0, 0))])
def test_copies_from_other_ranks_are_put_in_the_order_of_experts(
    dispatch: str, order: tuple[int, int]
) -> None:
    workload = workload_of(expert_dispatch=dispatch)
    alone, apart = per_value(workload, plan_of()), per_value(workload, SPREAD)
    assert np.subtract(apart, alone) == pytest.approx(order)
    kernels = sorting_kernels(rank_of(workload, SPREAD))
    added = (ORDER_KERNELS, ORDER_BACKWARD_KERNELS) if dispatch == "all_to_all" else (0, 0)
    assert [float(number[0]) - NUM_ROUTING_KERNELS for number in kernels] == list(added)


def test_the_most_loaded_rank_has_more_copies_of_as_many_tokens() -> None:
    even, uneven = (per_value(workload_of(expert_imbalance=load), SPREAD)[0] for load in (1.0, 1.5))
    assert uneven - even == pytest.approx(0.5 * 4 * (FORWARD.copy + FORWARD.order))


def test_ranks_that_share_experts_order_what_any_of_them_receives() -> None:
    plan = plan_of(expert=4, data=4, tensor=2)
    whole, shared = (per_value(workload_of(expert_tensor_parallel=ranks), plan)[0] for ranks in (1, 2))
    assert shared - whole == pytest.approx(4 * FORWARD.order / 2)


@pytest.mark.parametrize(("precision", "num_bytes"), [(Precision.BF16, 0), (Precision.FP8, 4 * 4 * 2)])
@pytest.mark.parametrize("is_fused", [True, False])
def test_products_of_each_expert_in_8_bits_pad_its_rows_and_take_the_padding_away(
    precision: Precision, num_bytes: int, *, is_fused: bool
) -> None:
    # Each of 4 copies is read and written twice, in 16 bits.
    padded, filled = (
        per_value(
            workload_of(expert_products="separate", fills_expert_rows=fills, has_fused_operators=is_fused),
            plan_of(precision=precision),
        )
        for fills in (False, True)
    )
    assert np.subtract(padded, filled) == pytest.approx((num_bytes, num_bytes))


def test_fused_operators_move_a_fraction_of_it() -> None:
    for fused, separate in zip(
        per_value(workload_of(has_fused_operators=True), SPREAD),
        per_value(workload_of(), SPREAD),
        strict=True,
    ):
        assert 3.0 < separate / fused < 6.0


def bytes_of(torch: ModuleType, call: Callable[[], object]) -> float:
    """Bytes that PyTorch's operators read and write, but for matrix products and for what moves nothing."""
    # PyTorch has no other name for it.
    mode: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
    moved = [0.0]

    class Counter(mode):  # type: ignore[misc] # PyTorch is an extra
        def __torch_dispatch__(
            self, operator: Operator, types: object, args: Arguments = (), kwargs: Arguments = None
        ) -> object:
            found = operator(*args, **(kwargs or {}))
            name = operator.overloadpacket.__name__
            inputs = [one for one in args if isinstance(one, torch.Tensor)]
            outputs = [
                one
                for one in (found if isinstance(found, tuple) else (found,))
                if isinstance(one, torch.Tensor)
            ]
            moved[0] += _moved(name, inputs, outputs, args)
            return found

    with Counter():
        call()
    return moved[0]


def _moved(name: str, inputs: list[Tensor], outputs: list[Tensor], args: Arguments) -> float:
    if name in PRODUCTS:
        return 0.0
    if name in ("index", "index_select", "gather"):  # rows that are read are those that are written
        return float(sum(2 * one.nbytes for one in outputs))
    if name in ("index_put_", "_index_put_impl_"):  # adds up what it reads
        return float(3 * args[2].nbytes)
    if name == "index_add":  # into a copy
        return float(2 * args[0].nbytes + 3 * args[3].nbytes)
    owned = {one.untyped_storage().data_ptr() for one in inputs}
    made = [one for one in outputs if one.untyped_storage().data_ptr() not in owned]
    if not made:  # a view
        return 0.0
    return float(sum(one.nbytes for one in [*inputs, *made]))


def test_pytorch_reads_and_writes_just_these_bytes() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    layer, weights = experts_of(torch, SHAPE, TOKENS, "cpu")
    inputs, gradient = (torch.randn((TOKENS, HIDDEN), dtype=torch.bfloat16) for _ in range(2))
    inputs.requires_grad_()
    outputs: list[Tensor] = []
    forward = bytes_of(torch, lambda: outputs.append(layer(inputs)))
    backward = bytes_of(torch, lambda: torch.autograd.grad(outputs[0], [inputs, *weights], gradient))

    def told(value: SeparateBytes, of_activation: float, of_token: float) -> float:
        around = COPIES * value.copy + value.token + value.shared + of_token
        return TOKENS * (HIDDEN * around + (COPIES + 1) * WIDTH * of_activation)

    # SiLU 4 and a product 6; backward 6 and two products; forward the sum with the choice of the router.
    assert forward == pytest.approx(told(FORWARD, 10.0, 4.0), rel=0.03)
    assert backward == pytest.approx(told(BACKWARD, 18.0, 0.0), rel=0.03)


def test_pytorch_saves_just_what_experts_keep() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    layer, weights = experts_of(torch, SHAPE, TOKENS, "cpu")
    inputs = torch.randn((TOKENS, HIDDEN), dtype=torch.bfloat16).requires_grad_()
    saved = saved_bytes(torch, lambda: layer(inputs), weights)
    dense, experts = (float(kept[0]) for kept in kept_per_layer(workload_of(), table_of(plan_of())))
    # A dense layer also keeps what is ahead of its block; of its own its input and four widths: gate, up, SiLU and product.
    ahead = dense - TOKENS * (2 + 4 * 2) * HIDDEN
    # `index_add` also keeps what it adds, for its size; torchtitan's sum does not.
    added = TOKENS * COPIES * 2 * HIDDEN
    assert saved == pytest.approx(experts - ahead + added, rel=0.01)


def test_experts_take_as_long_as_they_were_measured() -> None:
    sheet = experts_sheet(read_experts(MEASURED_FILE), H100)
    assert sheet.markdown() in PAGE.read_text(encoding="utf-8")
    errors = [abs(float(line[-1].rstrip("%"))) / 100.0 for line in sheet.lines]
    assert np.mean(errors) < RECORDED_MEAN_ERROR + HALF_A_POINT
