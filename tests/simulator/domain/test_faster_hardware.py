"""Does faster hardware, or a block that has less to do, never make a step longer, and does no step beat the peak?"""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulator.domain.choices import RecomputeModule
from simulator.domain.hardware import Precision
from simulator.domain.plan import Plan, Recompute
from simulator.domain.recompute_modules import CORE, Parts
from simulator.domain.workload import Workload
from simulator.simulate import simulate
from tests.simulator.builders import job_of, plan_of, rented, table_of, training
from tests.simulator.domain.test_workload_choices import outcome, workloads
from tests.simulator.faster import improved, with_rate_of_chip

ROUNDING = 1e-9
"""A step is a sum of thousands of times; their last bits may round either way."""
BESIDE = 1e-3
"""What a faster part may cost where traffic of the replicas runs beside passes, and waits for it show elsewhere
(docs/limits.md): one random step in 6,500 is longer by more (`benchmarks.faster_parts`)."""


@st.composite
def layouts(draw: st.DrawFn) -> Plan:
    recompute = draw(st.sampled_from(Recompute))
    zero, pipeline = draw(st.integers(0, 3)), draw(st.sampled_from([1, 2, 4]))
    return plan_of(
        tensor=draw(st.sampled_from([1, 2, 4])),
        pipeline=pipeline,
        virtual=draw(st.sampled_from([1, 2])) if pipeline > 1 else 1,
        context=draw(st.sampled_from([1, 2])),
        data=draw(st.sampled_from([8, 16])),
        recompute=recompute,
        recompute_num_layers=draw(st.sampled_from([None, 3])) if recompute is Recompute.FULL else None,
        zero=zero,
        shards=draw(st.sampled_from([None, 4])) if zero else None,
        precision=draw(st.sampled_from([Precision.BF16, Precision.FP8])),
    )


@pytest.mark.parametrize(
    "name",
    [
        "flop_per_s",
        "memory_bytes_per_s",
        "scale_up_bytes_per_s",
        "network_bytes_per_s",
        "host_copy_bytes_per_s",
        "host_memory_bytes_per_s",
        "link_domain_size",
    ],
)
@settings(max_examples=20)
@given(
    workload=workloads(),
    plan=layouts(),
    has_fast_links=st.booleans(),
    is_overlapped=st.booleans(),
    factor=st.floats(1.0, 9.0),
)
def test_more_of_any_rate_never_makes_a_step_longer(
    name: str, workload: Workload, plan: Plan, has_fast_links: bool, is_overlapped: bool, factor: float
) -> None:
    if name == "link_domain_size" and plan.zero_stage < 3:
        # More of what is exchanged once per step is then on the scale-up links beside passes (docs/model/network.md).
        is_overlapped = False
    chosen = workload.model_copy(update={"overlaps_gradient_sync": is_overlapped})
    offer = with_rate_of_chip(rented(), "scale_up_bytes_per_s", 2.0) if has_fast_links else rented()
    slow, fast = (
        outcome(chosen, plan, one).steps.step_time_s[0] for one in (offer, improved(offer, name, factor))
    )
    assert fast <= slow * (1.0 + (BESIDE if is_overlapped else ROUNDING))


def test_a_wide_group_that_keeps_its_way_over_cards_is_on_scale_up_links_as_in_a_smaller_domain() -> None:
    # Sixteen replicas, of which pairs pass keys and values round.
    workload, plan = training(sequence_length=32_768, global_batch_size=64), plan_of(context=2, data=8)
    slow, fast = (
        outcome(workload, plan, one).steps.step_time_s[0]
        for one in (rented(), improved(rented(), "link_domain_size", 2))
    )
    assert fast <= slow * (1.0 + ROUNDING)


@pytest.mark.parametrize(
    ("accelerator", "model", "sequence", "plan", "factor"),
    [
        (
            "h100-pcie-80gb",
            "mixtral-8x7b",
            8192,
            plan_of(tensor=16, expert=2, data=8, micro_batch=4, zero=3, recompute=Recompute.FULL),
            1.5,
        ),
        (
            "a100-pcie-80gb",
            "qwen3-30b-a3b",
            8192,
            plan_of(tensor=16, expert=2, data=2, micro_batch=4, zero=2),
            1.5,
        ),
        (
            "gb200",
            "mixtral-8x7b",
            2048,
            plan_of(tensor=16, expert=4, data=32, micro_batch=2, zero=2, recompute=Recompute.SELECTIVE),
            1.05,
        ),
    ],
)
def test_shards_wait_no_longer_on_scale_up_links_where_cards_are_faster(
    accelerator: str, model: str, sequence: int, plan: Plan, factor: float
) -> None:
    # Exchanges of sixteen tensor-parallel ranks are as long on links inside a domain, however fast cards are.
    workload = training(model, sequence_length=sequence, global_batch_size=512)
    slow, fast = (
        simulate(job_of(workload, one), table_of(plan)).steps.step_time_s[0]
        for one in (rented(accelerator), improved(rented(accelerator), "network_bytes_per_s", factor))
    )
    assert fast <= slow


@settings(max_examples=20)
@given(
    workload=workloads(),
    plan=layouts(),
    block=st.sampled_from(["one_norm", "two_norms"]),
    modules=st.sets(st.sampled_from(get_args(RecomputeModule)), min_size=1),
    choices=st.fixed_dictionaries(
        {
            "overlaps_tensor_comm": st.booleans(),
            "overlaps_input_gradients": st.booleans(),
            "has_sequence_parallel": st.booleans(),
            "has_fused_operators": st.booleans(),
        }
    ),
)
def test_blocks_side_by_side_never_make_a_step_longer_nor_keep_more(
    workload: Workload, plan: Plan, block: str, modules: set[RecomputeModule], choices: dict[str, bool]
) -> None:
    assume(workload.model.linear_attention is None)
    parts = Parts.of(workload.model)
    again = tuple(sorted(module for module in modules if not parts.reason_against(module))) or CORE
    # What hides the exchange may not be computed again.
    update = {**choices, "recompute_modules": again, "overlaps_shared_experts": False}
    chosen = workload.model_copy(update=update)
    serial, parallel = (
        outcome(
            chosen.model_copy(
                update={"model": chosen.model.model_copy(update={"parallel_block": parallel_block})}
            ),
            plan,
        )
        for parallel_block in (None, block)
    )
    assert parallel.steps.step_time_s[0] <= serial.steps.step_time_s[0] * (1.0 + ROUNDING)
    assert parallel.memory.activations_bytes[0] <= serial.memory.activations_bytes[0]
    assert parallel.summary.peak_memory_bytes[0] <= serial.summary.peak_memory_bytes[0] * (1.0 + ROUNDING)


@settings(max_examples=20)
@given(workload=workloads(), plan=layouts(), imbalance=st.none() | st.floats(1.0, 3.0))
def test_no_step_beats_the_peak_and_its_parts_are_all_of_it(
    workload: Workload, plan: Plan, imbalance: float | None
) -> None:
    chosen = workload.model_copy(update={"expert_imbalance": imbalance}) if imbalance else workload
    found = outcome(chosen, plan)
    parts = [name for name in found.steps.names() if name != "step_time_s"]
    assert 0.0 < found.summary.mfu_fraction[0] <= 1.0
    assert sum(getattr(found.steps, name)[0] for name in parts) == pytest.approx(
        found.steps.step_time_s[0], rel=ROUNDING
    )
    assert all(getattr(found.steps, name)[0] >= 0.0 for name in parts)
