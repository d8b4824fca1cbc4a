"""Is a batch of designs the same as each of them alone, and do the parts fit together?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator import simulate as module
from simulator.domain.hardware import Precision
from simulator.domain.plan import LAYOUT_COLUMNS, CheckpointScheme, Plan, PlanTable, Recompute
from simulator.simulate import Outcomes, layout_memory, simulate
from tests.simulator.builders import A100, H100, gpt, job_of, plan_of, rented, table_of, training

PLANS = [
    plan_of(data=64, zero=3),
    plan_of(tensor=2, pipeline=4, data=8, zero=2, recompute=Recompute.SELECTIVE),
    plan_of(tensor=8, pipeline=2, virtual=4, data=16),
    plan_of(tensor=8, pipeline=2, virtual=4, data=16, scheme=CheckpointScheme.IN_MEMORY_PEER, spares=3),
    plan_of(tensor=8, pipeline=2, virtual=4, data=16, cap=0.6),
    plan_of(tensor=4, context=2, data=4, micro_batch=2, recompute=Recompute.FULL),
    plan_of(tensor=2, data=4, precision=Precision.FP8).model_copy(update={"offer": 1}),
    plan_of(),
]
JOB = job_of(training("llama-3.1-8b"), rented(A100), rented(H100))


def assert_same(first: Outcomes, second: Outcomes) -> None:
    for name, column in first.columns().items():
        np.testing.assert_array_equal(column, second.columns()[name], err_msg=name)


def test_a_batch_is_bitwise_what_its_designs_are_alone() -> None:
    together = simulate(JOB, table_of(*PLANS))
    alone = Outcomes.concatenate([simulate(JOB, table_of(plan)) for plan in PLANS])
    assert len(together) == len(PLANS)
    assert_same(together, alone)


def test_a_design_is_bitwise_the_same_in_any_company() -> None:
    degrees = [(1, 8), (2, 4), (4, 2), (8, 1)]
    layouts = [
        plan_of(tensor=t, pipeline=p, data=d, zero=z)
        for t, d in degrees
        for p in (1, 2, 4, 8, 16, 32)
        for z in range(4)
    ]
    together = simulate(JOB, table_of(*layouts))
    for start in range(0, len(layouts), 7):  # other neighbours, other widths
        alone = simulate(JOB, table_of(*layouts[start : start + 7]))
        assert_same(together.take(slice(start, start + 7)), alone)


def test_order_does_not_matter() -> None:
    order = np.random.default_rng(0).permutation(len(PLANS))
    plans = table_of(*PLANS)
    assert_same(simulate(JOB, plans.take(order)), simulate(JOB, plans).take(order))


def test_designs_with_the_same_layout_share_its_step() -> None:
    plans = table_of(*[plan for plan in PLANS for _ in range(3)])
    simulated = simulate(JOB, plans)
    assert_same(simulated.take(slice(0, None, 3)), simulate(JOB, table_of(*PLANS)))
    assert_same(simulated.take(slice(0, None, 3)), simulated.take(slice(2, None, 3)))


def test_blocks_of_layouts_do_not_change_results(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = simulate(JOB, table_of(*PLANS))
    monkeypatch.setattr(module, "LAYOUTS_PER_BLOCK", 2)
    assert_same(simulate(JOB, table_of(*PLANS)), whole)


def test_every_column_that_a_step_depends_on_makes_a_layout_of_its_own() -> None:
    # What is not a layout column must not change the step: how often and where to save, and spares.
    others = set(PlanTable.names()) - set(LAYOUT_COLUMNS)
    assert others == {"checkpoint_scheme", "checkpoint_interval_s", "num_spare_nodes"}


def test_no_designs_have_no_outcomes() -> None:
    empty = table_of(*PLANS).take(np.array([], dtype=np.intp))
    assert len(simulate(JOB, empty)) == 0


def test_memory_alone_is_that_of_the_simulation() -> None:
    plans = table_of(*PLANS)
    assert (layout_memory(JOB, plans).peak_bytes == simulate(JOB, plans).summary.peak_memory_bytes).all()


def test_each_offer_has_its_own_hardware() -> None:
    old = plan_of(data=8)
    plans = table_of(old, old.model_copy(update={"offer": 1}))
    outcomes = simulate(JOB, plans)
    assert outcomes.steps.step_time_s[0] > 2 * outcomes.steps.step_time_s[1]
    assert outcomes.summary.memory_capacity_bytes.tolist() == [80 * 2**30, 80 * 2**30]
    assert outcomes.power.peak_power_w[0] < outcomes.power.peak_power_w[1]


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
def test_utilization_follows_from_the_step_and_counts_nothing_twice(recompute: Recompute) -> None:
    workload = training(gpt(num_layers=32, hidden_size=4096), sequence_length=2048, global_batch_size=64)
    outcomes = simulate(job_of(workload), table_of(plan_of(data=8, recompute=recompute)))
    # 72 s l h^2 (1 + s/(12 h) + V/(12 l h)) a sequence with causal scores (arXiv 2104.04473 without recomputation).
    s, num_layers, h, v = 2048, 32, 4096, 51_200
    flop = 64 * 72 * s * num_layers * h**2 * (1 + s / (12 * h) + v / (12 * num_layers * h))
    rate = flop / 8 / outcomes.steps.step_time_s
    assert outcomes.summary.mfu_fraction == pytest.approx(
        rate / 989.4e12, rel=1e-3
    )  # dense bf16 peak of an H100
    assert 0.3 < outcomes.summary.mfu_fraction[0] < 0.7


def test_a_format_that_the_accelerator_lacks_has_no_time() -> None:
    plan = plan_of(data=8, precision=Precision.FP8)  # A100
    assert np.isnan(simulate(JOB, table_of(plan)).steps.step_time_s)


@pytest.mark.parametrize("scheme", CheckpointScheme)
def test_the_step_does_not_depend_on_how_it_is_saved(scheme: CheckpointScheme) -> None:
    plan: Plan = plan_of(tensor=2, data=8, scheme=scheme)
    steps = simulate(JOB, table_of(plan, plan_of(tensor=2, data=8))).steps
    assert steps.step_time_s[0] == steps.step_time_s[1]


def test_outcomes_name_their_columns_once() -> None:
    outcomes = simulate(JOB, table_of(plan_of()))
    parts = (
        outcomes.steps,
        outcomes.memory,
        outcomes.checkpoints,
        outcomes.run,
        outcomes.energy,
        outcomes.power,
        outcomes.summary,
    )
    assert len(outcomes.columns()) == sum(len(part.columns()) for part in parts)
