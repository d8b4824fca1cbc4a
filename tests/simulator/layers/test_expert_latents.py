"""What changes where routed experts read a latent of each token? Weights, FLOPs, products, traffic and memory, by hand."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from simulator.deep.plans.plan_items import collectives_of, seconds_of, works_of
from simulator.deep.plans.plan_step import parts_and_shape
from simulator.domain.hardware import Precision
from simulator.domain.model import ModelShape
from simulator.domain.plan import Recompute
from simulator.domain.workload import Workload
from simulator.layers.layer_costs import (
    INTO_LATENT,
    OUT_OF_LATENT,
    ROUTED_EXPERTS,
    feed_forward_operators,
    latent_products,
)
from simulator.layers.token_sorting import sorted_bytes
from simulator.memory.layer_activations import LayerActivations
from simulator.step.model_parts import part_times
from simulator.step.parts import Part
from simulator.traffic.expert_exchange import routed_bytes
from tests.simulator.builders import changed, job_of, plan_of, rank_of, table_of, training
from tests.simulator.hybrids import NEMOTRON_3_SUPER, QWEN_3_NEXT

PLAN = plan_of(tensor=2, expert=8, data=8)


def with_latent(size: int) -> ModelShape:
    """Qwen3-Next (h = 2,048, 512 experts of 512, ten of them a token) with a latent of this size."""
    experts = QWEN_3_NEXT.experts
    assert experts is not None
    return changed(QWEN_3_NEXT, experts=changed(experts, latent_size=size))


class TestCounts:
    def test_weights_are_those_that_are_published(self) -> None:
        assert NEMOTRON_3_SUPER.num_parameters == pytest.approx(120.6e9, rel=0.01)
        assert NEMOTRON_3_SUPER.num_active_parameters == pytest.approx(12.7e9, rel=0.02)

    def test_experts_are_narrower_and_every_layer_has_two_more_products(self) -> None:
        latent, plain = with_latent(512), with_latent(0)
        assert latent.expert_parameters * 4 == plain.expert_parameters
        added = latent.expert_layer_shared_parameters - plain.expert_layer_shared_parameters
        assert added == 2 * 2048 * 512
        whole = latent.expert_layer_whole_parameters - plain.expert_layer_whole_parameters
        assert whole == added

    def test_flop_count_as_in_megatron_lm(self) -> None:
        """4 l f k instead of 4 h f k, times 3/2 with a gate, and 4 h l; three times in a step."""
        difference = with_latent(512).model_flop_per_token(4096) - with_latent(0).model_flop_per_token(4096)
        of_layer = 4 * (512 - 2048) * 512 * 10 * 1.5 + 4 * 2048 * 512
        assert difference == pytest.approx(3 * 48 * of_layer)


def test_shared_experts_hide_no_exchange_of_latents() -> None:
    """`MoELayer.preprocess` of Megatron Core raises an error in training."""
    fields = training(NEMOTRON_3_SUPER).model_dump()
    with pytest.raises(ValidationError, match=r"experts that read a latent \(latent_size 1024\)"):
        Workload.model_validate(fields | {"overlaps_shared_experts": True})


class TestLayers:
    def test_each_rank_projects_the_tokens_that_it_routes(self) -> None:
        rank = rank_of(training(with_latent(512)), PLAN)
        sizes = [tuple(float(each[0]) for each in product) for product in latent_products(rank)]
        assert sizes == [(2048.0, 512.0, 2048.0), (2048.0, 2048.0, 512.0)]
        assert latent_products(rank_of(training(with_latent(0)), PLAN)) == []

    def test_experts_take_less_time_and_projections_some(self) -> None:
        narrow, wide = (
            feed_forward_operators(rank_of(training(with_latent(size)), PLAN), is_expert=True)
            for size in (512, 0)
        )
        assert narrow[ROUTED_EXPERTS][0][0] < wide[ROUTED_EXPERTS][0][0]
        assert min(narrow[name][way][0] for name in (INTO_LATENT, OUT_OF_LATENT) for way in (0, 1)) > 0.0
        assert set(narrow) - set(wide) == {INTO_LATENT, OUT_OF_LATENT}

    def test_tokens_travel_and_are_sorted_as_latents(self) -> None:
        narrow, wide = (rank_of(training(with_latent(size)), PLAN) for size in (512, 0))
        assert routed_bytes(wide, 2.0)[0] == 4.0 * routed_bytes(narrow, 2.0)[0]
        assert sorted_bytes(wide)[0][0] == 4.0 * sorted_bytes(narrow)[0][0]

    def test_experts_keep_latents_and_the_product_out_of_it_its_input(self) -> None:
        narrow, wide = (
            LayerActivations.of(training(with_latent(size)), table_of(PLAN), is_expert=True).kept[0]
            for size in (512, 0)
        )
        tokens, of_copies = 4096, 10 * 2.0 * (2048 - 512)
        assert wide - narrow == pytest.approx(tokens * (of_copies - 2.0 * 512) / 2)

    @pytest.mark.parametrize("recipe", ["tensorwise", "delayed"])
    def test_the_product_into_a_latent_keeps_an_input_of_its_own_in_8_bits(self, recipe: str) -> None:
        plan = changed(PLAN, precision=Precision.FP8)
        narrow, wide = (
            LayerActivations.of(
                changed(training(with_latent(size)), fp8_recipe=recipe), table_of(plan), is_expert=True
            ).kept[0]
            for size in (512, 0)
        )
        tokens, of_copies = 4096, 10 * 1.0 * (2048 - 512)
        assert wide - narrow == pytest.approx(tokens * (of_copies - 512 - 2048) / 2)

    @pytest.mark.parametrize("recompute", Recompute)
    @pytest.mark.parametrize("modules", [("core_attn",), ("moe",)])
    def test_operators_and_traffic_take_as_long_as_at_the_fast_depth(
        self, recompute: Recompute, modules: tuple[str, ...]
    ) -> None:
        choices = {"overlaps_input_gradients": False, "recompute_modules": modules}
        workload = changed(training(with_latent(512), global_batch_size=16), **choices)
        plan = changed(PLAN, recompute=recompute)
        parts, _ = parts_and_shape(job_of(workload), plan)
        times, layer = part_times(parts.rank, Part.EXPERT), parts.passes[Part.EXPERT]
        for way, items in (("forward", layer.forward), ("backward", layer.backward)):
            compute_s = float(getattr(times, f"{way}_compute_s")[0])
            assert seconds_of(items) == pytest.approx(compute_s, rel=1e-9)
            traffic_s = sum(each.alone_s for each in collectives_of(items))
            assert traffic_s == pytest.approx(float(getattr(times, f"{way}_s")[0]) - compute_s)

    def test_tokens_are_projected_before_they_leave_and_after_they_are_back(self) -> None:
        parts, _ = parts_and_shape(job_of(training(with_latent(512))), PLAN)
        layer = parts.passes[Part.EXPERT]
        forward, backward = (
            [each.label for each in works_of(items)] for items in (layer.forward, layer.backward)
        )
        order = [INTO_LATENT, ROUTED_EXPERTS, OUT_OF_LATENT]
        assert [label for label in forward if label in order] == order
        assert [label for label in backward if label in order] == order[::-1]
