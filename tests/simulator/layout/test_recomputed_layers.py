"""Do layers that are computed again keep their input only, and the others everything, and do steps take what that means?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraints.best_cut import best_cut
from constraints.step_bound import bound_step
from simulator.domain.plan import Plan, Recompute
from simulator.domain.workload import Workload
from simulator.errors import InputError
from simulator.memory.peak import memory_by_stage
from tests.simulator.builders import changed, gpt, job_of, memory_of, plan_of, step_of, table_of, training

DENSE = training(
    gpt(num_layers=16, hidden_size=4096, num_heads=32, vocabulary_size=1024), global_batch_size=64
)
EXPERTS = training("deepseek-v3", global_batch_size=256)
"""61 layers, of which the first three have no experts."""
REPLICAS = plan_of(data=8)
BY_UNIFORM = DENSE.model_copy(update={"recompute_method": "uniform"})


def recomputing(num_layers: int | None, plan: Plan = REPLICAS) -> Plan:
    """The plan with so many layers of every chunk computed again, or all of them."""
    return changed(plan, recompute=Recompute.FULL, recompute_num_layers=num_layers)


class TestBlock:
    def test_so_many_layers_keep_their_input_only(self) -> None:
        none, some, all_ = (
            memory_of(DENSE, plan).activations_bytes[0]
            for plan in (REPLICAS, recomputing(5), recomputing(None))
        )
        assert some == pytest.approx((5 * all_ + 11 * none) / 16)

    def test_so_many_layers_are_computed_again(self) -> None:
        none, some, all_ = (
            step_of(DENSE, plan).compute_s[0] for plan in (REPLICAS, recomputing(5), recomputing(None))
        )
        assert some - none == pytest.approx((all_ - none) * 5 / 16)

    def test_all_layers_of_a_chunk_are_all(self) -> None:
        for columns in zip(
            *(
                step_of(DENSE, recomputing(n, plan_of(pipeline=4, data=2))).columns().values()
                for n in (4, None)
            ),
            strict=True,
        ):
            np.testing.assert_array_equal(*columns)

    def test_every_chunk_has_its_own(self) -> None:
        # Two chunks of two layers on each of four stages: one of two in each is computed again.
        plan = plan_of(pipeline=4, virtual=2, data=2)
        none, one, all_ = (
            step_of(DENSE, each).compute_s[0]
            for each in (plan, recomputing(1, plan), recomputing(None, plan))
        )
        assert one - none == pytest.approx((all_ - none) / 2)

    def test_dense_layers_of_a_mixture_come_first(self) -> None:
        plan = plan_of(expert=8, data=64)
        passes = [
            step_of(EXPERTS, each).expert_comm_s[0]
            for each in (plan, *(recomputing(num_layers, plan) for num_layers in (3, 4, None)))
        ]
        # Recomputation sends tokens to their experts once more: in none of the three dense layers, then in one of 58.
        assert passes[1] == pytest.approx(passes[0])
        assert passes[2] - passes[0] == pytest.approx((passes[3] - passes[0]) / 58)

    def test_layers_behind_them_have_gone_back_when_they_are_computed_again(self) -> None:
        none, some, all_ = (memory_of(DENSE, plan) for plan in (REPLICAS, recomputing(5), recomputing(None)))
        layer = none.activations_bytes[0] / 16
        # What a layer needs at work is more by itself where it is computed again, and 11 of the others are gone by then.
        assert layer < all_.workspace_bytes[0] - none.workspace_bytes[0] + 1.0 < 11 * layer
        assert some.workspace_bytes == pytest.approx(none.workspace_bytes)

    def test_the_last_of_them_may_need_more_than_those_that_keep_everything(self) -> None:
        # 15 of 16 layers are computed again, and one that keeps everything is gone by then.
        workload = DENSE.model_copy(update={"attention": "unfused"})
        none, some, all_ = (
            memory_of(workload, plan) for plan in (REPLICAS, recomputing(15), recomputing(None))
        )
        layer, again = none.activations_bytes[0] / 16, all_.workspace_bytes[0] - none.workspace_bytes[0]
        assert some.workspace_bytes[0] - none.workspace_bytes[0] == pytest.approx(max(0.0, again - layer))

    def test_every_stage_has_its_own_memory(self) -> None:
        plan = plan_of(pipeline=4, data=2)
        none, half, all_ = (
            memory_by_stage(DENSE, each).activations_bytes
            for each in (plan, recomputing(2, plan), recomputing(None, plan))
        )
        np.testing.assert_allclose(half, (none + all_) / 2)

    def test_layers_that_depend_on_their_place_are_not_cut_anew(self) -> None:
        with pytest.raises(InputError, match="recompute_num_layers = 2: must be left out"):
            best_cut(job_of(DENSE), recomputing(2, plan_of(pipeline=4, data=2)))


class TestUniform:
    def test_a_group_keeps_one_input_and_computes_all_of_it_again(self) -> None:
        one, four = (memory_of(BY_UNIFORM, recomputing(n)) for n in (None, 4))
        layer = memory_of(DENSE, REPLICAS).activations_bytes[0] / 16
        assert four.activations_bytes == pytest.approx(one.activations_bytes / 4)
        assert four.workspace_bytes - one.workspace_bytes == pytest.approx(3 * layer)

    def test_a_step_is_as_long_as_with_groups_of_one(self) -> None:
        one, four = (step_of(BY_UNIFORM, recomputing(n)).step_time_s for n in (None, 4))
        assert one == four


@given(
    num_layers=st.integers(1, 4),
    pipeline=st.sampled_from([1, 2, 4]),
    zero=st.integers(0, 3),
    workload=st.sampled_from([DENSE, EXPERTS]),
)
def test_more_recomputation_is_slower_and_smaller(
    num_layers: int, pipeline: int, zero: int, workload: Workload
) -> None:
    plan = plan_of(pipeline=pipeline, data=8, zero=zero)
    plans = [plan, *(recomputing(n, plan) for n in (num_layers, num_layers + 1, None))]
    steps = step_of(workload, *plans)
    steps_s = steps.step_time_s
    kept = memory_of(workload, *plans).activations_bytes
    assert len(steps_s) == len(kept) == 4
    assert np.all(np.diff(steps_s) >= -1e-9 * steps_s[0])
    assert np.all(np.diff(kept) <= 1e-9 * kept[0])
    bounds = bound_step(job_of(workload), table_of(*plans))
    assert np.all(bounds.step_time_s <= steps_s * (1 + 1e-9))
    np.testing.assert_allclose(bounds.compute_s, steps.compute_s)


def test_what_a_design_comes_to_does_not_depend_on_its_neighbours() -> None:
    plans = [REPLICAS, recomputing(5), recomputing(None)]
    together = step_of(DENSE, *plans)
    for row, plan in enumerate(plans):
        for name, column in step_of(DENSE, plan).columns().items():
            assert column[0] == getattr(together, name)[row], name
