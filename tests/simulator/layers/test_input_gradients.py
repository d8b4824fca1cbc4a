"""Do sums of input gradients hide behind the product that Megatron has beside them, and behind nothing where it has none?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator import catalog
from simulator.deep.plans.plan_items import LENT, works_of
from simulator.deep.plans.plan_step import parts_and_shape, plan_step
from simulator.domain.hardware import Precision
from simulator.domain.lora import Lora
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan, Schedule
from simulator.domain.workload import Workload
from simulator.layers.input_gradients import entered_in_layer, entered_in_output
from simulator.layers.layer_costs import dense_layer, expert_layer
from simulator.layers.model_ends import output_layer
from simulator.layers.part_times import PartTimes
from simulator.layers.token_prediction import projection
from simulator.machine.network import Group, all_gather_s, all_reduce_s, reduce_scatter_s
from simulator.step.model_parts import part_times
from simulator.table import Floats
from simulator.traffic.layer_collectives import CORE_SHARE
from tests.simulator.builders import changed, gpt, job_of, plan_of, rank_of, training

TOKENS, HIDDEN = 4096.0, 4096.0
"""Of Llama 3.1 8B with one sequence of 4,096 tokens; it has 32 heads and 8 for keys and values of 128, and f = 14,336."""

GPT_J = ModelShape(
    name="gpt-j",
    num_layers=28,
    hidden_size=4096,
    num_heads=16,
    num_kv_heads=16,
    head_dim=256,
    ffn_hidden_size=16_384,
    is_gated=False,
    vocabulary_size=50_400,
    parallel_block="one_norm",
)


def backward_s(times: PartTimes) -> float:
    return float(times.backward_tensor_comm_s[0])


def one_by_one(workload: Workload) -> Workload:
    return changed(workload, overlaps_input_gradients=False)


def hidden_s(traffic_s: Floats, cover_s: Floats) -> float:
    """What collectives add to a computation that they run beside, taking cores from it, unless they end last."""
    return float(np.sum(np.maximum(CORE_SHARE * np.minimum(traffic_s, cover_s), traffic_s - cover_s)))


def product(num_rows: float, num_columns: float, depth: float) -> tuple[Floats, Floats, Floats]:
    """The sizes m, n and k of one product, `(1,)` each."""
    return np.full(1, num_rows), np.full(1, num_columns), np.full(1, depth)


def first_products(t: int) -> list[tuple[Floats, Floats, Floats]]:
    """The products behind the norms of Llama 3.1 8B on one of `t` tensor-parallel ranks."""
    return [product(TOKENS, width / t, HIDDEN) for width in ((32 + 2 * 8) * 128, 2 * 14_336)]


@pytest.mark.parametrize("t", [2, 8])
def test_the_scatter_runs_beside_the_weight_gradient_and_the_gather_beside_the_other_one(t: int) -> None:
    rank = rank_of(training("llama-3.1-8b", sequence_length=4096), plan_of(tensor=t))
    group = Group(group_size=float(t), members_per_domain=float(t), links=rank.links)
    gather_s, scatter_s = (
        each(num_bytes=2 * TOKENS * HIDDEN, **group) for each in (all_gather_s, reduce_scatter_s)
    )
    shown_s = 2 * float(np.sum(gather_s))
    for m, n, k in first_products(t):
        shown_s += hidden_s(scatter_s, rank.weight_gradient_s(m, n, k))
        shown_s += hidden_s(gather_s, rank.input_gradient_s(m, n, k))
    assert backward_s(dense_layer(rank)) == pytest.approx(shown_s)


def test_without_sequence_parallelism_the_all_reduce_does() -> None:
    workload = changed(training("llama-3.1-8b", sequence_length=4096), has_sequence_parallel=False)
    rank = rank_of(workload, plan_of(tensor=8))
    reduce_s = all_reduce_s(
        num_bytes=2 * TOKENS * HIDDEN, group_size=8.0, members_per_domain=8.0, links=rank.links
    )
    shown_s = sum(hidden_s(reduce_s, rank.weight_gradient_s(*each)) for each in first_products(8))
    assert backward_s(dense_layer(rank)) == pytest.approx(shown_s)
    assert backward_s(dense_layer(rank)) < 0.5 * backward_s(
        dense_layer(rank_of(one_by_one(workload), plan_of(tensor=8)))
    )


def test_what_was_cast_is_gathered_again_as_it_was() -> None:
    # `gather_along_first_dim(inputmat, ..., quantizer=quantizer)` in front of dgrad in Transformer Engine's `linear.py`
    workload = changed(training("llama-3.1-8b", sequence_length=4096), fp8_recipe="delayed")
    rank = rank_of(workload, plan_of(tensor=8, precision=Precision.FP8))
    in_16_bits = rank_of(one_by_one(workload), plan_of(tensor=8, precision=Precision.FP8))
    group = Group(group_size=8.0, members_per_domain=8.0, links=rank.links)
    scatter_s = reduce_scatter_s(num_bytes=2 * TOKENS * HIDDEN, **group)
    gather_s = all_gather_s(num_bytes=TOKENS * HIDDEN, **group)
    longer_s = 0.0
    for m, n, k in first_products(8):
        longer_s += hidden_s(scatter_s, rank.weight_gradient_s(m, n, k)) - float(scatter_s[0])
        longer_s += hidden_s(gather_s, rank.input_gradient_s(m, n, k))
    assert backward_s(dense_layer(rank)) - backward_s(dense_layer(in_16_bits)) == pytest.approx(longer_s)


@pytest.mark.parametrize("has_sequence_parallel", [True, False])
def test_latents_are_summed_beside_the_products_up_to_heads_and_the_rotary_key_beside_none(
    has_sequence_parallel: bool,
) -> None:
    # Megatron Core, `multi_latent_attention.py`: `linear_q_up_proj` and `linear_kv_up_proj` are column-parallel, the products
    # down `duplicated`, `gather_from_sequence_parallel_region(k_pos_emb)` scatters backward. DeepSeek-V3 has 128 heads of
    # 128 + 64 for queries and keys and 128 for values, latents of 1,536 and 512, h = 7,168 and f = 18,432.
    workload = training("deepseek-v3", sequence_length=4096)
    rank = rank_of(changed(workload, has_sequence_parallel=has_sequence_parallel), plan_of(tensor=8))
    group = Group(group_size=8.0, members_per_domain=8.0, links=rank.links)
    sum_s = reduce_scatter_s if has_sequence_parallel else all_reduce_s
    shown_s = float(sum_s(num_bytes=2 * TOKENS * 64, **group)[0])
    for width, columns in ((1536, 128 * 192 / 8), (512, 128 * 256 / 8), (7168, 2 * 18_432 / 8)):
        sizes = product(TOKENS, columns, width)
        shown_s += hidden_s(sum_s(num_bytes=2 * TOKENS * width, **group), rank.weight_gradient_s(*sizes))
        if has_sequence_parallel:
            gather_s = all_gather_s(num_bytes=2 * TOKENS * width, **group)
            shown_s += hidden_s(gather_s, rank.input_gradient_s(*sizes))
    if has_sequence_parallel:
        shown_s += 2 * float(all_gather_s(num_bytes=2 * TOKENS * 7168, **group)[0])
    assert backward_s(dense_layer(rank)) == pytest.approx(shown_s)


def test_queries_without_latents_are_summed_with_the_whole_residual_stream() -> None:
    # `linear_q_proj` is column-parallel.
    workload = training("deepseek-v3", sequence_length=4096)
    assert workload.model.latent_attention
    latents = changed(workload.model.latent_attention, query_rank=0)
    workload = changed(workload, model=changed(workload.model, latent_attention=latents))
    rank, behind = (rank_of(each, plan_of(tensor=8)) for each in (workload, one_by_one(workload)))
    group = Group(group_size=8.0, members_per_domain=8.0, links=rank.links)
    longer_s = 0.0
    for width, columns in ((7168, 128 * 192 / 8), (512, 128 * 256 / 8), (7168, 2 * 18_432 / 8)):
        sizes = product(TOKENS, columns, width)
        scatter_s = reduce_scatter_s(num_bytes=2 * TOKENS * width, **group)
        longer_s += hidden_s(scatter_s, rank.weight_gradient_s(*sizes)) - float(scatter_s[0])
        longer_s += hidden_s(
            all_gather_s(num_bytes=2 * TOKENS * width, **group), rank.input_gradient_s(*sizes)
        )
    assert backward_s(dense_layer(rank)) - backward_s(dense_layer(behind)) == pytest.approx(longer_s)


def test_the_projection_of_multi_token_prediction_sums_both_its_inputs_beside_its_product() -> None:
    # `eh_proj` is a column-parallel product from 2 h to h.
    workload = training("deepseek-v3", sequence_length=4096)
    rank, behind = (rank_of(each, plan_of(tensor=8)) for each in (workload, one_by_one(workload)))
    group = Group(group_size=8.0, members_per_domain=8.0, links=rank.links)
    sizes, num_bytes = product(TOKENS, 7168 / 8, 2 * 7168), 4 * TOKENS * 7168
    scatter_s = reduce_scatter_s(num_bytes=num_bytes, **group)
    longer_s = hidden_s(scatter_s, rank.weight_gradient_s(*sizes)) - float(scatter_s[0])
    longer_s += hidden_s(all_gather_s(num_bytes=num_bytes, **group), rank.input_gradient_s(*sizes))
    assert backward_s(projection(rank)) - backward_s(projection(behind)) == pytest.approx(longer_s)


@pytest.mark.parametrize(
    ("separate", "columns"),
    [
        # InternEvo: `Wqkv`, then w1 and w3, `FusedDenseFunc` each.
        ("feed_forward", [(32 + 2 * 8) * 128, 14_336, 14_336]),
        # Colossal-AI: `q_proj`, `k_proj`, `v_proj`, `gate_proj` and `up_proj`, `Linear1D_Col` each.
        ("all", [32 * 128, 8 * 128, 8 * 128, 14_336, 14_336]),
    ],
)
@pytest.mark.parametrize("has_sequence_parallel", [True, False])
@pytest.mark.parametrize("is_beside", [True, False])
def test_products_that_are_apart_sum_up_each_for_itself(
    separate: str, columns: list[int], has_sequence_parallel: bool, is_beside: bool
) -> None:
    workload = changed(
        training("llama-3.1-8b", sequence_length=4096),
        has_sequence_parallel=has_sequence_parallel,
        separate_first_products=separate,
        overlaps_input_gradients=is_beside,
    )
    rank = rank_of(workload, plan_of(tensor=8))
    group = Group(group_size=8.0, members_per_domain=8.0, links=rank.links)
    gather_s, sum_s = (
        each(num_bytes=2 * TOKENS * HIDDEN, **group)
        for each in (all_gather_s, reduce_scatter_s if has_sequence_parallel else all_reduce_s)
    )
    heads, gated = first_products(8)  # each part is priced as its share of one product
    wholes = [heads] * (len(columns) - 2) + [gated] * 2
    shown_s = 2 * float(gather_s[0]) if has_sequence_parallel else 0.0
    for width, whole in zip(columns, wholes, strict=True):
        share = width / 8 / whole[1]
        weight_s, input_s = (share * each(*whole) for each in (rank.weight_gradient_s, rank.input_gradient_s))
        shown_s += hidden_s(sum_s, weight_s if is_beside else np.zeros(1))
        if has_sequence_parallel and is_beside:
            shown_s += hidden_s(gather_s, input_s)
    assert backward_s(dense_layer(rank)) == pytest.approx(shown_s)
    forward_s = float(dense_layer(rank).forward_tensor_comm_s[0])
    num_forward = len(columns) + 2 if has_sequence_parallel else 2
    assert forward_s == pytest.approx(num_forward * float(gather_s[0] if has_sequence_parallel else sum_s[0]))


@pytest.mark.parametrize("separate", ["feed_forward", "all"])
@pytest.mark.parametrize("is_beside", [True, False])
def test_both_depths_have_products_that_are_apart(separate: str, is_beside: bool) -> None:
    workload = changed(
        training("llama-3.1-70b", global_batch_size=16),
        separate_first_products=separate,
        overlaps_input_gradients=is_beside,
        has_sequence_parallel=False,
    )
    step = plan_step(job_of(workload), plan_of(tensor=8, data=2))
    assert step.step_time_s == pytest.approx(float(step.fast.step_time_s[0]), rel=0.005)


@pytest.mark.parametrize("has_sequence_parallel", [True, False])
def test_the_output_layer_gathers_the_residual_stream_once_more(*, has_sequence_parallel: bool) -> None:
    workload = changed(training("llama-3.1-8b"), has_sequence_parallel=has_sequence_parallel)
    rank = rank_of(workload, plan_of(tensor=4))
    entered = entered_in_output(rank)
    num_bytes = 2 * 4096 * 4096 * has_sequence_parallel
    assert entered.gathered_bytes[0] == num_bytes
    gather_s = all_gather_s(num_bytes=np.array([float(num_bytes)]), **rank.tensor_group)
    assert entered.gather_s[0] == pytest.approx(gather_s[0] if has_sequence_parallel else 0.0)


def test_the_output_layer_hides_it_too_and_shared_experts_do() -> None:
    for workload, part in ((training("llama-3.1-8b"), output_layer), (training("deepseek-v2"), expert_layer)):
        plan = plan_of(tensor=4, expert=4, data=4) if part is expert_layer else plan_of(tensor=4)
        both = (rank_of(each, plan) for each in (workload, one_by_one(workload)))
        beside_s, behind_s = (backward_s(part(rank)) for rank in both)
        assert beside_s < behind_s


@pytest.mark.parametrize(
    ("changes", "plan"),
    [
        ({"lora": Lora(rank=16)}, plan_of(tensor=8)),
        ({"overlaps_tensor_comm": True}, plan_of(tensor=8)),
        ({}, plan_of(tensor=8, pipeline=2, schedule=Schedule.ZB_H1, zero=0)),
        ({}, plan_of()),
    ],
)
def test_nothing_hides_where_there_is_no_such_product_or_all_is_in_pieces(
    changes: dict[str, object], plan: Plan
) -> None:
    workload = changed(training("llama-3.1-8b"), **changes)
    both = (rank_of(each, plan) for each in (workload, one_by_one(workload)))
    beside_s, behind_s = (backward_s(dense_layer(rank)) for rank in both)
    assert beside_s == behind_s


@pytest.mark.parametrize("has_sequence_parallel", [True, False])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-v2", "deepseek-v3"])
def test_both_depths_hide_as_much(model: str, has_sequence_parallel: bool) -> None:
    shape = catalog.model(model).model_copy(
        update={"num_layers": 8, "num_mtp_layers": int(model == "deepseek-v3")}
    )
    workload = changed(training(shape, global_batch_size=16), has_sequence_parallel=has_sequence_parallel)
    plan = plan_of(tensor=8, data=2, expert=8 if workload.model.experts else 1)
    steps = [plan_step(job_of(each), plan) for each in (one_by_one(workload), workload)]
    behind, beside = (step.step_time_s / float(step.fast.step_time_s[0]) for step in steps)
    assert beside == pytest.approx(behind, abs=0.01)


@pytest.mark.parametrize("has_sequence_parallel", [True, False])
@pytest.mark.parametrize("t", [2, 8])
def test_products_that_are_apart_behind_one_norm_have_one_sum_of_all_their_input_gradients(
    t: int, has_sequence_parallel: bool
) -> None:
    workload = training(GPT_J, sequence_length=2048, global_batch_size=64)
    workload = changed(workload, has_sequence_parallel=has_sequence_parallel)
    apart = changed(workload, separate_first_products="all")
    plan = plan_of(tensor=t, data=16 // t)
    steps = [plan_step(job_of(each), plan) for each in (workload, apart)]
    assert steps[1].step_time_s == pytest.approx(steps[0].step_time_s, rel=1e-9)
    assert float(steps[1].fast.step_time_s[0]) == pytest.approx(float(steps[0].fast.step_time_s[0]), rel=1e-9)
    assert steps[1].step_time_s == pytest.approx(float(steps[1].fast.step_time_s[0]), rel=0.01)


@pytest.mark.short(18)
@pytest.mark.parametrize("has_sequence_parallel", [True, False])
@pytest.mark.parametrize("separate", ["none", "feed_forward", "all"])
@pytest.mark.parametrize("block", [None, "one_norm", "two_norms"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b", "deepseek-v2"])
def test_no_part_is_negative_and_operators_keep_their_time_with_sums_beside_them(
    model: str, block: str | None, separate: str, has_sequence_parallel: bool
) -> None:
    workload = training(model, global_batch_size=16)
    workload = changed(
        workload,
        model=changed(workload.model, parallel_block=block),
        separate_first_products=separate,
        has_sequence_parallel=has_sequence_parallel,
    )
    plan = plan_of(tensor=2, data=8, expert=8 if workload.model.experts else 1)
    parts, _ = parts_and_shape(job_of(workload), plan)
    for kind, passes in parts.passes.items():
        times = part_times(parts.rank, kind)
        assert min(float(times.forward_tensor_comm_s[0]), float(times.backward_tensor_comm_s[0])) >= 0.0
        own = [each for each in works_of(passes.backward) if not each.label.startswith(LENT)]
        compute_s = float(times.backward_compute_s[0])
        assert sum(each.duration_s for each in own) == pytest.approx(compute_s, rel=1e-9)


def test_a_gate_of_attention_is_made_with_the_queries() -> None:
    # Heads of 128, 16 for queries, 16 for their gates, 16 each for keys and values.
    gated = changed(gpt(), has_output_gate=True)
    workload = changed(training(gated), separate_first_products="all")
    entered = entered_in_layer(rank_of(workload, plan_of(tensor=2)), is_expert=False)
    assert [float(np.squeeze(each.factor)) for each in entered[:3]] == pytest.approx([0.5, 0.25, 0.25])
