"""Which share of a step's passes is forward? One of three, counted by products."""

from __future__ import annotations

import pytest

from simulator.domain.lora import Lora
from simulator.domain.plan import Plan, Recompute
from simulator.domain.workload import Workload
from simulator.layout.forward_share import forward_share
from tests.simulator.builders import changed, plan_of, table_of, training

LLAMA = training("llama-3.1-8b")
"""32 layers."""


@pytest.mark.parametrize(
    ("workload", "plan", "share"),
    [
        (LLAMA, plan_of(), 1 / 3),
        (LLAMA, plan_of(recompute=Recompute.FULL), 1 / 4),
        # One of four layers in each of eight chunks.
        (
            LLAMA,
            plan_of(pipeline=2, virtual=4, recompute=Recompute.FULL, recompute_num_layers=1),
            1 / (3 + 1 / 4),
        ),
        (changed(LLAMA, lora=Lora(rank=8)), plan_of(), 1 / 2),  # frozen weights have no gradients
    ],
)
def test_a_backward_pass_has_two_products_for_each_one_forward(
    workload: Workload, plan: Plan, share: float
) -> None:
    assert forward_share(workload, table_of(plan)) == pytest.approx(share, rel=0.04)  # adapters have a little
