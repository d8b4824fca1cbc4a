"""How many launches does a pass through a layer take? Counted by hand; an idle accelerator waits for all of them."""

from __future__ import annotations

import numpy as np
import pytest

from simulator import catalog
from simulator.domain.lora import ATTENTION_PRODUCTS, Lora
from simulator.domain.plan import Plan, Recompute
from simulator.domain.workload import Workload
from simulator.layers.host_time import NO_MORE, host_waits_s
from simulator.layers.layer_costs import dense_layer, expert_layer
from tests.simulator.builders import changed, gpt, plan_of, rank_of, training
from tests.simulator.sparse import DENSE, LATENTS

EAGER = changed(training(gpt()), kernel_launch="eager")
FORWARD = 12 + 4 + 1
"""Memory-bound kernels, products and the attention core; backward twice as many."""


def launches(
    workload: Workload, plan: Plan, more: tuple[np.ndarray, np.ndarray] = NO_MORE
) -> tuple[float, float]:
    """Launches that an accelerator waits for that computes in no time."""
    rank = rank_of(workload, plan)
    waits_s = host_waits_s(rank, np.zeros(1), np.zeros(1), more)
    return tuple(float(wait_s[0] / rank.training.launch_s) for wait_s in waits_s)  # type: ignore[return-value]


def with_model(**fields: object) -> Workload:
    return changed(EAGER, model=changed(EAGER.model, **fields))


@pytest.mark.parametrize(
    ("workload", "plan", "forward", "backward"),
    [
        (EAGER, plan_of(), FORWARD, 2 * FORWARD),
        # Two collectives, each behind a block.
        (EAGER, plan_of(tensor=2), FORWARD + 2, 2 * (FORWARD + 2)),
        # A norm of queries and one of keys.
        (with_model(qk_norm=True), plan_of(), FORWARD + 2, 2 * (FORWARD + 2)),
        # Full recomputation launches all of the forward pass again.
        (EAGER, plan_of(recompute=Recompute.FULL), FORWARD, 3 * FORWARD),
        # Norms from 32-bit copies: a cast each; backward these norms again, a cast and a norm each, and a sum between them.
        (changed(EAGER, checkpoints_norms=True), plan_of(), FORWARD + 2, 2 * (FORWARD + 2) + 5),
        (
            changed(EAGER, checkpoints_norms=True),
            plan_of(recompute=Recompute.FULL),
            FORWARD + 2,
            3 * (FORWARD + 2),
        ),
    ],
)
def test_launches_of_a_layer_are_those_of_its_operators(
    workload: Workload, plan: Plan, forward: float, backward: float
) -> None:
    assert launches(workload, plan) == pytest.approx((forward, backward))


def test_more_operators_are_launched_beside_those_of_an_ordinary_layer() -> None:
    more = np.array([5.0]), np.array([7.0])
    assert launches(EAGER, plan_of(), more) == pytest.approx((FORWARD + 5, 2 * FORWARD + 7))
    again = launches(EAGER, plan_of(recompute=Recompute.FULL), more)
    assert again == pytest.approx((FORWARD + 5, 2 * FORWARD + 7 + FORWARD + 5))


def test_the_host_runs_ahead_of_what_the_accelerator_is_busy_for() -> None:
    rank = rank_of(EAGER, plan_of())
    whole_s = FORWARD * rank.training.launch_s
    forward_s, backward_s = np.array([0.25 * whole_s]), np.array([1.5 * whole_s])
    waits_s = host_waits_s(rank, forward_s, backward_s)
    assert [float(wait_s[0]) for wait_s in waits_s] == pytest.approx([0.75 * whole_s, 0.5 * whole_s])
    busy_s = np.array([3.0 * whole_s])
    assert [float(wait_s[0]) for wait_s in host_waits_s(rank, busy_s, busy_s)] == [0.0, 0.0]
    graph = rank_of(changed(EAGER, kernel_launch="graph"), plan_of())
    assert [float(wait_s[0]) for wait_s in host_waits_s(graph, np.zeros(1), np.zeros(1))] == [0.0, 0.0]


def test_blocks_side_by_side_share_a_collective() -> None:
    # GPT-J's attention and feed-forward block have one input, and their outputs are summed together.
    parallel = launches(with_model(parallel_block="one_norm"), plan_of(tensor=2))
    assert parallel[0] - launches(with_model(parallel_block="one_norm"), plan_of())[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("latents", "number"),
    [
        # Down to and up from a latent of queries, the same of keys and values, out of attention: five instead of two.
        ({}, 3),
        ({"query_rank": 0}, 2),
    ],
)
def test_each_product_of_latent_attention_is_launched(latents: dict[str, int], number: int) -> None:
    latent = changed(DENSE, latent_attention=changed(LATENTS, **latents))
    plain = changed(DENSE, latent_attention=None)
    ours, theirs = (launches(changed(EAGER, model=model), plan_of()) for model in (latent, plain))
    assert np.subtract(ours, theirs) == pytest.approx([number, 2 * number])


@pytest.mark.parametrize(("products", "number"), [("grouped", 1), ("separate", 3)])
def test_frozen_experts_have_no_launches_for_gradients_of_their_weights(products: str, number: int) -> None:
    lora = Lora(rank=8, targets=ATTENTION_PRODUCTS)
    trained = changed(training("mixtral-8x7b"), kernel_launch="blocking-2022", expert_products=products)
    # Two experts on a rank: the router's product, and two for each expert but one.
    plan, waits = plan_of(data=4, expert=4), []
    for workload in (trained, changed(trained, model=catalog.model("mistral-7b"))):
        own = plan if workload is trained else plan_of(data=4)
        layer = expert_layer if workload is trained else dense_layer
        for adapters in (None, lora):
            kinds = (
                changed(workload, lora=adapters, kernel_launch=way) for way in ("blocking-2022", "graph")
            )
            waiting, never = (layer(rank_of(each, own)) for each in kinds)
            waits.append(waiting.backward_compute_s - never.backward_compute_s)
    experts, frozen_experts, dense, frozen_dense = waits
    launch_s = rank_of(trained, plan).training.blocking_launch_s
    fewer = (experts - dense) - (frozen_experts - frozen_dense)
    assert fewer == pytest.approx(number * launch_s)
