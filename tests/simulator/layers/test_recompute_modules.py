"""Do modules that are computed again keep, take and send what Megatron Core's checkpoints of them do?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simulator.domain.choices import RecomputeModule
from simulator.domain.hardware import Precision
from simulator.domain.plan import Plan, Recompute, Schedule
from simulator.domain.workload import Workload
from simulator.layers.layer_costs import (
    dense_layer,
    expert_layer,
    feed_forward_operators,
    selected_s,
)
from simulator.layers.part_times import PartTimes
from simulator.memory.activations import activations_of_layers
from simulator.memory.layer_activations import kept_per_layer
from tests.simulator.builders import changed, memory_of, plan_of, rank_of, step_of, table_of, training

DEEPSEEK = training("deepseek-v3", sequence_length=4096, global_batch_size=512)
MIXTRAL = training("mixtral-8x7b", sequence_length=4096, global_batch_size=512)
ALL: tuple[RecomputeModule, ...] = (
    "core_attn",
    "mla_up_proj",
    "layernorm",
    "moe_act",
    "shared_experts",
    "mlp",
    "moe",
)
SELECTIVE = Recompute.SELECTIVE

# DeepSeek-V3: h 7168, dense blocks of 18432, 8 experts of 2048 and a shared one, 128 heads of 192 (queries, keys) and 128
# (values), ranks 1536 and 512, rotary keys of 64.
HEADS, LATENTS, EXPERT = 128 * (192 + 192 + 128), 1536 + 512, 2048


def again(workload: Workload, *modules: RecomputeModule) -> Workload:
    return changed(workload, recompute_modules=modules)


def kept_values(workload: Workload, plan: Plan) -> tuple[float, float]:
    """Bytes of a token in a dense layer and in one with experts."""
    dense, expert = kept_per_layer(workload, table_of(plan))
    return float(dense[0]) / 4096, float(expert[0]) / 4096


class TestBytes:
    @pytest.mark.parametrize(
        ("module", "dense", "expert"),
        [
            ("core_attn", 0, 0),  # fused: nothing of it is kept anyway
            ("mla_up_proj", 2 * (HEADS + LATENTS - 64), 2 * (HEADS + LATENTS - 64)),
            ("layernorm", 2 * 7168, 2 * 2 * 7168),  # the norm of a dense block is part of its product
            ("moe_act", 0, 2 * 8 * EXPERT),
            ("shared_experts", 0, 2 * 3 * EXPERT),
            ("mlp", 2 * (7168 + 3 * 18432), 0),
            ("moe", 0, 2 * (8 * (7168 + 3 * EXPERT) + 3 * EXPERT)),
        ],
    )
    def test_a_module_keeps_its_input_alone(
        self, module: RecomputeModule, dense: float, expert: float
    ) -> None:
        none = kept_values(DEEPSEEK, plan_of())
        found = kept_values(again(DEEPSEEK, module), plan_of(recompute=SELECTIVE))
        assert (none[0] - found[0], none[1] - found[1]) == pytest.approx((dense, expert))

    def test_in_8_bits_inputs_of_products_are_what_is_not_kept(self) -> None:
        plans = [plan_of(precision=Precision.FP8, recompute=each) for each in (Recompute.NONE, SELECTIVE)]
        none = kept_values(DEEPSEEK, plans[0])[1]
        less = {module: none - kept_values(again(DEEPSEEK, module), plans[1])[1] for module in ALL}
        # Copies for both products down to latents, and what the router keeps in 16 bits.
        assert less["layernorm"] == pytest.approx(2 * 7168 + 2 * 7168)
        assert less["moe_act"] == pytest.approx(8 * EXPERT)
        assert less["mla_up_proj"] == pytest.approx(2 * HEADS + LATENTS - 2 * 64)
        # Experts start again from the 16 bits that their router keeps anyway.
        assert less["moe"] == pytest.approx(8 * (7168 + 5 * EXPERT) + 5 * EXPERT)

    def test_norms_and_activations_wait_for_late_weight_gradients_but_queries_do_not(self) -> None:
        def kept(*modules: RecomputeModule) -> tuple[float, float]:
            plan = plan_of(pipeline=4, schedule=Schedule.ZB_H1, recompute=SELECTIVE)
            return kept_values(again(DEEPSEEK, *modules), plan)

        assert kept("layernorm", "moe_act") == kept("core_attn")
        assert kept("mla_up_proj") < kept("core_attn")

    def test_scores_of_unfused_attention_are_kept_unless_its_core_is_named(self) -> None:
        unfused = changed(training("llama-3.1-8b"), attention="unfused")
        none = kept_values(unfused, plan_of())[0]
        block = 2 * (4096 + 3 * 14336)
        for modules, scores in ((("mlp",), 0), (("mlp", "core_attn"), 5 * 4096 * 32)):
            found = kept_values(changed(unfused, recompute_modules=modules), plan_of(recompute=SELECTIVE))[0]
            assert none - found == pytest.approx(block + scores)

    def test_what_is_computed_again_is_there_while_its_block_is_at_work(self) -> None:
        def at_work(*modules: RecomputeModule) -> float:
            table = table_of(plan_of(expert=8, data=8, recompute=SELECTIVE))
            found = activations_of_layers(
                again(DEEPSEEK, *modules),
                table,
                stage=np.array([0]),
                dense_layers=np.array([0.0]),
                expert_layers=np.array([1.0]),
            )
            return float(found.at_work_bytes[0]) / 4096

        residual, widest = 2 * 7168, 2 * 8 * (7168 + 2 * EXPERT)  # gradients
        block, queries = 2 * (8 * (7168 + 3 * EXPERT) + 3 * EXPERT), 2 * (HEADS + LATENTS)
        assert at_work("core_attn") == pytest.approx(residual + widest)
        assert at_work("moe") == pytest.approx(residual + widest + block)
        # When queries are computed again, experts and their gradients are gone, which were more.
        assert queries - block < widest
        assert at_work("mla_up_proj") == at_work("core_attn")
        assert at_work("mla_up_proj", "moe") == at_work("moe")


class TestTime:
    def test_the_feed_forward_block_costs_what_was_measured(self) -> None:
        # Megatron-Bridge (perf-activation-recompute): Llama 3 70B in fp8 on 32 H100 at 704 TFLOP/s, with `mlp` 593.6, with
        # `mlp` and `core_attn` 586.8. The spread of these runs, 704 to 710, is a percent.
        workload = training("llama-3.1-70b", sequence_length=4096, global_batch_size=32)
        plan = plan_of(tensor=4, pipeline=4, virtual=5, data=2, precision=Precision.FP8, recompute=SELECTIVE)
        core, mlp, both = (
            step_of(again(workload, *modules), plan).step_time_s[0]
            for modules in (("core_attn",), ("mlp",), ("mlp", "core_attn"))
        )
        assert core / mlp == pytest.approx(593.6 / 704, abs=0.015)
        assert core / both == pytest.approx(586.8 / 704, abs=0.015)

    def test_experts_travel_again_with_the_collectives_of_their_block(self) -> None:
        plan = plan_of(tensor=2, expert=8, data=8, recompute=SELECTIVE)
        none, moe, act = (
            expert_layer(rank_of(again(DEEPSEEK, module), plan)) for module in ("core_attn", "moe", "moe_act")
        )
        assert moe.backward_expert_comm_s == pytest.approx(
            none.backward_expert_comm_s + none.forward_expert_comm_s
        )
        # The block is entered and left over the residual stream; attention is entered by its latents.
        gather_s = rank_of(DEEPSEEK, plan).hidden_gather_s
        assert moe.backward_tensor_comm_s == pytest.approx(none.backward_tensor_comm_s + 2 * gather_s)
        assert act.backward_expert_comm_s == none.backward_expert_comm_s
        assert act.backward_tensor_comm_s == none.backward_tensor_comm_s

    def test_a_norm_and_an_activation_are_repeated_with_the_products_of_their_block(self) -> None:
        rank = rank_of(again(training("llama-3.1-8b"), "mlp"), plan_of(recompute=SELECTIVE))
        forward_s = np.ones(1)
        products_s = feed_forward_operators(rank, is_expert=False)["feed-forward products"][0]
        # 2 bytes a value: the norm reads and writes 4,096, the activation reads two times 14,336 and writes them once.
        moved_s = rank.memory_bound_s(2.0 * rank.tokens * (2 * 4096 + 3 * 14_336), 2.0)
        assert selected_s(rank, forward_s, forward_s, is_expert=False) == pytest.approx(products_s + moved_s)

    def test_routed_experts_alone_repeat_no_tensor_parallel_collectives(self) -> None:
        # With sequence parallelism every rank sends its own tokens to experts; nothing is gathered around them.
        plan = plan_of(tensor=4, expert=8, data=8, recompute=SELECTIVE)
        core, moe = (expert_layer(rank_of(again(MIXTRAL, each), plan)) for each in ("core_attn", "moe"))
        assert moe.backward_tensor_comm_s == core.backward_tensor_comm_s

    def test_only_layers_that_have_a_module_repeat_it(self) -> None:
        plan = plan_of(expert=8, data=8, recompute=SELECTIVE)

        def backward(*modules: RecomputeModule) -> tuple[float, float]:
            rank = rank_of(again(DEEPSEEK, *modules), plan)
            return float(dense_layer(rank).backward_s[0]), float(expert_layer(rank).backward_s[0])

        none, mlp, act = backward("layernorm"), backward("layernorm", "mlp"), backward("layernorm", "moe_act")
        assert (mlp[0] > none[0], mlp[1]) == (True, none[1])
        assert (act[0], act[1] > none[1]) == (none[0], True)


def times_s(times: PartTimes) -> float:
    return float((times.forward_s + times.backward_s)[0])


@given(
    one=st.sets(st.sampled_from(ALL), min_size=1),
    more=st.sets(st.sampled_from(ALL)),
    precision=st.sampled_from([Precision.BF16, Precision.FP8]),
    tensor=st.sampled_from([1, 4]),
    has_fused=st.booleans(),
)
def test_a_longer_list_never_keeps_more_and_never_takes_less(
    one: set[RecomputeModule],
    more: set[RecomputeModule],
    precision: Precision,
    tensor: int,
    has_fused: bool,
) -> None:
    plan = plan_of(tensor=tensor, pipeline=4, expert=8, data=16, precision=precision, recompute=SELECTIVE)
    full = plan_of(
        tensor=tensor, pipeline=4, expert=8, data=16, precision=precision, recompute=Recompute.FULL
    )
    base = changed(DEEPSEEK, has_fused_operators=has_fused)
    short, long = (again(base, *sorted(modules)) for modules in (one, one | more))
    for layer, kind in ((dense_layer, 0), (expert_layer, 1)):
        shorter_s, longer_s, full_s = (
            times_s(layer(rank_of(workload, each)))
            for workload, each in ((short, plan), (long, plan), (base, full))
        )
        assert shorter_s <= longer_s * (1 + 1e-12)
        assert longer_s <= full_s * (1 + 1e-12)
        assert kept_values(long, plan)[kind] <= kept_values(short, plan)[kind]
    assert memory_of(long, plan).peak_bytes[0] <= memory_of(short, plan).peak_bytes[0] * (1 + 1e-12)


class TestRules:
    @pytest.mark.parametrize(
        ("workload", "modules", "rule"),
        [
            (MIXTRAL, ["mla_up_proj"], "mla_up_proj needs latent attention"),
            (training(), ["moe_act"], "moe_act needs experts"),
            (training(), ["layernorm"], "layernorm needs latent attention or experts"),
            (MIXTRAL, ["mlp"], "mlp needs layers without experts"),
            (MIXTRAL, ["shared_experts"], "shared_experts needs shared experts"),
            (DEEPSEEK, ["moe", "moe"], "names a module twice"),
            (
                changed(DEEPSEEK, selective_recompute="every_other_product"),
                ["moe"],
                "needs selective_recompute",
            ),
            (
                changed(DEEPSEEK, overlaps_shared_experts=True),
                ["shared_experts"],
                "excludes recompute_modules",
            ),
        ],
    )
    def test_modules_that_there_are_not_are_refused(
        self, workload: Workload, modules: list[str], rule: str
    ) -> None:
        with pytest.raises(ValidationError, match=rule):
            Workload.model_validate(dict(workload) | {"recompute_modules": modules})

    def test_norms_before_latent_attention_start_from_what_a_stage_received(self) -> None:
        freeing = changed(DEEPSEEK, frees_stage_inputs=True)
        plan = plan_of(pipeline=4, recompute=SELECTIVE)

        def freed_bytes(module: RecomputeModule) -> float:
            kept, freed = (memory_of(again(each, module), plan).peak_bytes[0] for each in (DEEPSEEK, freeing))
            return float(kept - freed)

        assert freed_bytes("mla_up_proj") > 0.0
        assert freed_bytes("layernorm") == 0.0
