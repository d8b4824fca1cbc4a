"""Does a plan take as long at the deep depth as at the fast one, and what holds it up where it does not?"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.deep_plans import GRID, grid_line, size_cases, size_cells
from simulator import catalog
from simulator.deep.plans.plan_breakdown import plan_breakdown
from simulator.deep.plans.plan_cluster import Faults, PlanCluster
from simulator.deep.plans.plan_collectives import Collective, Group, Operation, forwarded_exchange, ring
from simulator.deep.plans.plan_expert_traffic import expert_traffic
from simulator.deep.plans.plan_items import Beside, Items, Work, collectives_of, seconds_of
from simulator.deep.plans.plan_parts import PlanParts
from simulator.deep.plans.plan_roles import block_size, folded
from simulator.deep.plans.plan_step import PlanStep, parts_and_shape, plan_step
from simulator.deep.playing.waits import waits
from simulator.domain.blocks import LatentAttention, MixtureOfExperts
from simulator.domain.hardware import Precision
from simulator.domain.links import link_constants
from simulator.domain.lora import Lora
from simulator.domain.model import ModelShape
from simulator.domain.plan import SPLIT_BACKWARD, TO_AND_FRO, Plan, Recompute, Schedule
from simulator.errors import InputError
from simulator.layers.weight_gradients import dense_layer_weight_gradients_s
from simulator.machine.network import FORWARDED_FRACTION
from simulator.step.model_parts import part_times
from simulator.step.parts import Part
from simulator.step.step import STEP_PARTS, step_parts
from tests.simulator.builders import changed, gpt, job_of, plan_of, rented, training
from tests.simulator.checkpoint_jobs import with_node
from tests.simulator.compressed import DENSE as COMPRESSED
from tests.simulator.deep.plan_cases import FEW, LARGE, MIXTURE, SMALL, TWO_NODES, Case
from tests.simulator.hybrids import HYBRIDS, NEMOTRON_H
from tests.simulator.sparse import INDEXER, with_indexer
from tests.simulator.sparse import SMALL as SPARSE
from tests.simulator.streams import LATENT_STREAMS, MIXED_STREAMS, STREAMS, with_streams

LARGE_DIFFERENCE = 0.01
"""Largest difference of the depths on steps of seconds in which computing takes most; docs/deep/plans.md says so."""
SLOW_FOLDED = 0.033
"""How far a folded step may be from every message where something is slow, as docs/deep/plans.md says: a slow member holds up
its block at once when folded, else neighbour by neighbour."""
SHARED_FOLDED = 0.011
"""The same where collectives meet on links, as docs/deep/plans.md says: an equal claim of each, or of each message."""
PAGE = Path(__file__).parents[3] / "docs" / "deep" / "plans.md"
_LATENTS = LatentAttention(
    query_rank=0, key_value_rank=512, rope_head_dim=64, nope_head_dim=128, value_head_dim=128
)
LATENT = MIXTURE.model_copy(update={"latent_attention": _LATENTS})
LATENT_QUERIES = SMALL.model_copy(
    update={"latent_attention": _LATENTS.model_copy(update={"query_rank": 768})}
)
"""Latent attention as in DeepSeek-V2-Lite, and with latents of queries, too."""
ROUNDING = 1e-9


def assert_as_at_the_fast_depth(parts: PlanParts) -> None:
    """Asserts that operators and collectives of every part take as long as at the fast depth."""
    for kind, passes in parts.passes.items():
        times = part_times(parts.rank, kind)
        for way, items in (("forward", passes.forward), ("backward", passes.backward)):
            compute_s = float(getattr(times, f"{way}_compute_s")[0])
            assert seconds_of(items) == pytest.approx(compute_s, rel=ROUNDING)
            traffic_s = sum(each.alone_s for each in collectives_of(items))
            whole_s = float(getattr(times, f"{way}_s")[0])
            assert traffic_s == pytest.approx(whole_s - compute_s, rel=1e-6)


def _step(case: Case, *, is_folded: bool = True, faults: Faults | None = None) -> PlanStep:
    return plan_step(case.job, case.plan, is_folded=is_folded, faults=faults)


def _difference(step: PlanStep) -> float:
    return step.step_time_s / float(step.fast.step_time_s[0]) - 1.0


@cache
def _of_grid(name: str) -> tuple[str, float]:
    """Line of the page, and difference of the depths, of one plan."""
    step = _step(GRID[name])
    return grid_line(name, GRID[name], step), _difference(step)


def _inner(items: Items) -> list[Beside]:
    """All work with traffic beside it, however deep."""
    found = [each for each in items if isinstance(each, Beside)]
    return found + [inner for each in found for inner in _inner(each.items)]


class TestDepths:
    @pytest.mark.short(16)
    @pytest.mark.parametrize("name", LARGE)
    def test_a_step_of_seconds_differs_by_less_than_one_percent(self, name: str) -> None:
        _, difference = _of_grid(name)
        assert abs(difference) < LARGE_DIFFERENCE

    @pytest.mark.short(20)
    @pytest.mark.parametrize("name", GRID)
    def test_the_page_on_the_deep_depth_has_what_is_played(self, name: str) -> None:
        line, _ = _of_grid(name)
        assert line in PAGE.read_text(encoding="utf-8").splitlines()

    def test_the_page_has_the_tasks_of_today(self) -> None:
        lines = PAGE.read_text(encoding="utf-8").splitlines()
        rows = [line.removeprefix("| ").split(" | ")[:4] for line in lines]
        for name, case, is_folded in size_cases():
            assert [*size_cells(name, _step(case, is_folded=is_folded))] in rows

    def test_a_model_without_experts_has_no_parts_of_them(self) -> None:
        workload = training(gpt(num_layers=4), global_batch_size=4)
        whole, parts = (
            plan_step(job_of(workload.model_copy(update={"expert_tensor_parallel": shares})), plan_of(data=2))
            for shares in (1, 4)
        )
        assert parts.step_time_s == whole.step_time_s

    def test_a_rank_that_shares_no_weights_waits_for_no_gathers(self) -> None:
        case = Case(job=job_of(training(gpt(num_layers=12), global_batch_size=2)), plan=plan_of(zero=3))
        step = _step(case)
        assert abs(_difference(step)) < ROUNDING
        # Layers that waited for all that layers before them wait for would have thousands of edges each.
        assert len(step.graph.successors) < 3 * len(step.graph)

    @pytest.mark.parametrize("zero", [2, 3])
    @pytest.mark.parametrize(("data", "sequence"), [(8, 2048), (64, 8192), (256, 512)])
    def test_sharded_weights_take_what_the_fast_depth_sums_up(
        self, data: int, sequence: int, zero: int
    ) -> None:
        # What ZeRO-2 gathers once is in pieces here.
        workload = training(gpt(num_layers=12), sequence_length=sequence, global_batch_size=3 * data)
        case = Case(job=job_of(workload, rented("a100-sxm4-80gb")), plan=plan_of(data=data, zero=zero))
        step = _step(case)
        gathered_s = float(step.fast.gradient_sync_s[0])
        found_s = step.step_time_s - float(step.fast.step_time_s[0])
        assert found_s == pytest.approx(0.0, abs=1e-9 + gathered_s)

    @pytest.mark.parametrize("experts", [None, MIXTURE.experts])
    def test_weights_that_are_gathered_once_for_nothing_to_hide_have_a_start_up_and_a_ramp_for_each_part(
        self, experts: MixtureOfExperts | None
    ) -> None:
        model = gpt(num_layers=12).model_copy(update={"experts": experts})
        workload = changed(training(model, global_batch_size=8), overlaps_parameter_gather=False)
        assert _difference(plan_step(job_of(workload), plan_of(data=8, zero=2))) == pytest.approx(
            0.0, abs=ROUNDING
        )

    @pytest.mark.parametrize(
        ("plan", "most"),
        [
            # Weights that are waited for make up for cores that were lent before: lent behind them, 3.6 %.
            (plan_of(tensor=2, context=2, data=8), 0.025),
            # The host is waited for between operators: behind each layer, where pieces are waited for at once, 5.9 %.
            (plan_of(tensor=4, pipeline=2, data=4), 0.02),
        ],
    )
    def test_steps_that_wait_for_weights_are_as_long_where_nothing_else_is_on_the_links(
        self, plan: Plan, most: float
    ) -> None:
        workload = training(MIXTURE, sequence_length=2048, global_batch_size=plan.data_parallel)
        step = plan_step(job_of(workload), plan)
        assert step.unshared_step_time_s == pytest.approx(float(step.fast.step_time_s[0]), rel=most)

    @pytest.mark.parametrize(("pipeline", "batch"), [(8, 8), (8, 32), (16, 32)])
    def test_first_gathers_of_backward_passes_are_hidden_while_stages_wait(
        self, pipeline: int, batch: int
    ) -> None:
        # Experts that are gathered for longer than they compute: shown in every backward pass, up to 12 % apart.
        experts = MixtureOfExperts(num_experts=64, experts_per_token=2, expert_ffn_hidden_size=4096)
        model = gpt(num_layers=16).model_copy(update={"experts": experts})
        workload = training(model, sequence_length=2048, global_batch_size=2 * batch)
        step = plan_step(job_of(workload), plan_of(pipeline=pipeline, data=16, zero=3))
        assert abs(_difference(step)) < 0.025

    @pytest.mark.parametrize(
        ("model", "sequence", "plan", "num_micro_batches"),
        [
            # Where forward passes hid all of them: 11 and 4 % apart.
            ("llama-3.1-70b", 4096, plan_of(pipeline=4, virtual=3, data=8, zero=3), 4),
            ("llama-3.1-70b", 4096, plan_of(pipeline=4, virtual=3, data=8, zero=3), 16),
            # Where the last stage showed no more of its output layer than others of their layers: 3 % apart.
            ("llama-3.1-8b", 1024, plan_of(pipeline=4, data=16, zero=3, schedule=Schedule.GPIPE), 4),
        ],
    )
    def test_first_gathers_of_backward_passes_show_behind_backward_passes(
        self, model: str, sequence: int, plan: Plan, num_micro_batches: int
    ) -> None:
        shape = catalog.model(model).model_copy(update={"num_layers": 12})
        batch = plan.data_parallel * num_micro_batches
        workload = training(shape, sequence_length=sequence, global_batch_size=batch)
        job = job_of(changed(workload, lora=Lora(rank=16)), rented("h100-pcie-80gb"))
        assert abs(_difference(plan_step(job, plan))) < 0.01

    @pytest.mark.parametrize(
        ("model", "sequence", "plan", "most"),
        [
            ("qwen3-30b-a3b", 4096, plan_of(expert=16, data=32, zero=3), 0.015),
            # Keys and values go round in the middle of a part, backward behind the shards beside its first products; at the
            # fast depth they are spread over it.
            ("llama-3.1-8b", 32768, plan_of(context=16, data=4, zero=3), 0.06),
        ],
    )
    def test_shards_hold_up_the_collectives_that_they_share_cards_with(
        self, model: str, sequence: int, plan: Plan, most: float
    ) -> None:
        # Where collectives went first, and shards found the cards free between them: 13 and 10 % apart.
        workload = training(model, sequence_length=sequence, global_batch_size=2 * plan.data_parallel)
        assert abs(_difference(plan_step(job_of(workload), plan))) < most

    @pytest.mark.short(1)
    @pytest.mark.parametrize(
        ("model", "accelerator", "plan"),
        [
            ("deepseek-v3", "gb200", plan_of(expert=4, data=16, zero=3)),
            ("llama-3.1-70b", "gb200", plan_of(tensor=8, data=8, zero=3)),
            ("llama-3.1-8b", "h100-sxm5-80gb", plan_of(tensor=4, data=2, zero=3)),
            ("llama-3.1-8b", "h100-pcie-80gb", plan_of(tensor=2, data=4, zero=3)),
        ],
    )
    def test_shards_hold_up_the_collectives_that_they_share_scale_up_links_with(
        self, model: str, accelerator: str, plan: Plan
    ) -> None:
        # Where scale-up links were free for both: 6.7, 2.7 and 2.5 % apart; for half of the shards, as if over cards: 16 %.
        workload = training(model, global_batch_size=4 * plan.data_parallel)
        assert abs(_difference(plan_step(job_of(workload, rented(accelerator)), plan))) < 0.02

    @pytest.mark.parametrize(
        ("model", "plan", "num_micro_batches", "most"),
        [
            ("llama-3.1-8b", plan_of(tensor=16, data=4), 1, 0.015),
            ("llama-3.1-8b", plan_of(tensor=16, data=4), 4, 0.005),
            ("qwen3-30b-a3b", plan_of(expert=16, data=64), 1, 0.005),
        ],
    )
    def test_passes_wait_for_traffic_once_per_step_on_the_cards_of_their_collectives(
        self, model: str, plan: Plan, num_micro_batches: int, most: float
    ) -> None:
        # Where collectives went first: 14, 4 and 9 % apart.
        workload = training(model, global_batch_size=num_micro_batches * plan.data_parallel)
        assert abs(_difference(plan_step(job_of(workload), plan))) < most

    def test_the_piece_that_no_pass_is_beside_takes_as_long_as_alone(self) -> None:
        # Keys and values go round between nodes of four. Where the last piece of gradients waited for them, too: 6.1 % apart.
        workload = training(gpt(num_layers=8), global_batch_size=16)
        job = job_of(workload, rented("a100-sxm4-64gb"))
        plan = plan_of(tensor=2, context=4, data=8, micro_batch=2, recompute=Recompute.FULL)
        assert abs(_difference(plan_step(job, plan))) < 0.01

    @pytest.mark.parametrize("sequence", [512, 1024])
    def test_sends_of_interleaved_stages_hold_up_shards(self, sequence: int) -> None:
        # Shards outlast what few tokens compute. Where they found cards free that sends are on: 1.9 and 3.1 % apart.
        workload = training("llama-3.1-8b", sequence_length=sequence, global_batch_size=128)
        step = plan_step(job_of(workload), plan_of(pipeline=2, virtual=4, data=16, zero=3))
        assert abs(_difference(step)) < 0.015

    @pytest.mark.parametrize("num_experts", [16, 32])
    def test_what_groups_of_interleaved_stages_reduce_hides_behind_forward_passes_too(
        self, num_experts: int
    ) -> None:
        # All-reduces of whole gradients that outlast backward passes.
        experts = MixtureOfExperts(num_experts=num_experts, experts_per_token=2, expert_ffn_hidden_size=4096)
        model = gpt(num_layers=16).model_copy(update={"experts": experts})
        workload = training(model, sequence_length=2048, global_batch_size=16 * 32)
        job = job_of(changed(workload, scatters_gradients_from=3))
        assert abs(_difference(plan_step(job, plan_of(pipeline=2, virtual=2, data=32, zero=2)))) < 0.06

    @pytest.mark.short(1)
    @pytest.mark.parametrize(("tensor", "batch", "virtual"), [(8, 32, 5), (8, 64, 2), (4, 128, 2)])
    def test_what_groups_of_interleaved_stages_leave_is_a_queue_of_their_stage(
        self, tensor: int, batch: int, virtual: int
    ) -> None:
        # As the mean beside every pass: 18, 9 and 3 % apart.
        workload = training("llama-3.1-70b", sequence_length=1024, global_batch_size=batch)
        plan = plan_of(tensor=tensor, pipeline=2, virtual=virtual, data=4, zero=2)
        assert abs(_difference(plan_step(job_of(workload), plan))) < 0.005

    def test_copies_of_hybrid_sharding_follow_the_reductions_of_groups_once(self) -> None:
        # Where they waited for the mean of these reductions, too: 7.4 % apart.
        workload = training("qwen3-30b-a3b", sequence_length=2048, global_batch_size=64)
        plan = plan_of(tensor=8, pipeline=2, virtual=3, expert=2, data=16, zero=2, shards=4)
        job = job_of(workload, rented("a100-sxm4-80gb"))
        assert abs(_difference(plan_step(job, plan))) < 0.015

    def test_stages_wait_for_shards_that_share_cards_with_the_copies_of_the_stage_before(self) -> None:
        # Where passes went on as without copies: 9.5 % apart.
        workload = training("llama-3.1-8b", sequence_length=1024, global_batch_size=32)
        plan = plan_of(tensor=4, pipeline=2, data=16, zero=3, shards=4)
        assert abs(_difference(plan_step(job_of(workload), plan))) < 0.02

    @pytest.mark.parametrize("accelerator", ["h100-sxm5-80gb", "h100-pcie-80gb"])
    def test_copies_of_hybrid_sharding_in_one_link_domain_share_its_links_with_their_shards(
        self, accelerator: str
    ) -> None:
        # Where they found the links free: 14 and 23 % apart.
        workload = training("llama-3.1-8b", sequence_length=1024, global_batch_size=4)
        plan = plan_of(tensor=2, data=4, zero=3, shards=2)
        assert abs(_difference(plan_step(job_of(workload, rented(accelerator)), plan))) < 0.01

    @pytest.mark.parametrize(
        ("accelerator", "context", "zero"),
        [("h100-pcie-80gb", 1, 1), ("h100-pcie-80gb", 2, 0), ("h100-sxm5-80gb", 2, 1)],
    )
    def test_traffic_once_per_step_shares_scale_up_links_with_collectives_of_passes_in_its_domain(
        self, accelerator: str, context: int, zero: int
    ) -> None:
        # Where it found the links free: 13, 2.8 and 1.8 % apart.
        workload = training("llama-3.1-8b", sequence_length=2048, global_batch_size=4)
        plan = plan_of(tensor=2, context=context, data=4 // context, zero=zero)
        assert abs(_difference(plan_step(job_of(workload, rented(accelerator)), plan))) < 0.01

    @pytest.mark.short(1)
    @pytest.mark.parametrize(
        ("accelerator", "plan", "sequence", "most"),
        [
            ("a100-pcie-80gb", plan_of(tensor=4, data=4), 2048, 0.02),
            ("h100-pcie-80gb", plan_of(tensor=2, data=16), 2048, 0.01),
            ("mi300x", plan_of(context=4, data=4), 8192, 0.01),
            ("a100-pcie-80gb", plan_of(tensor=2, pipeline=2, data=8, zero=2), 2048, 0.01),
        ],
    )
    def test_traffic_once_per_step_that_leaves_its_domain_shares_scale_up_links_for_a_part_of_its_time(
        self, accelerator: str, plan: Plan, sequence: int, most: float
    ) -> None:
        # Where it found the links free: 10, 15, 5 and 9 % apart.
        batch = plan.pipeline_parallel * plan.data_parallel
        workload = training("llama-3.1-8b", sequence_length=sequence, global_batch_size=batch)
        assert abs(_difference(plan_step(job_of(workload, rented(accelerator)), plan))) < most

    @pytest.mark.parametrize("sequence", [512, 8192])
    @pytest.mark.parametrize("prefetch", ["none", "forward", "backward"])
    def test_weights_that_are_not_prefetched_take_what_the_fast_depth_sums_up(
        self, prefetch: str, sequence: int
    ) -> None:
        workload = training(gpt(num_layers=12), sequence_length=sequence, global_batch_size=24)
        job = job_of(changed(workload, weight_prefetch=prefetch), rented("a100-sxm4-80gb"))
        assert _difference(plan_step(job, plan_of(data=8, zero=3))) == pytest.approx(0.0, abs=ROUNDING)

    @pytest.mark.parametrize("sequence", [512, 8192])
    @pytest.mark.parametrize("zero", [2, 3])
    def test_reductions_behind_which_nothing_goes_on_take_what_the_fast_depth_sums_up(
        self, zero: int, sequence: int
    ) -> None:
        workload = training(gpt(num_layers=12), sequence_length=sequence, global_batch_size=24)
        job = job_of(changed(workload, overlaps_gradient_sync=False), rented("a100-sxm4-80gb"))
        step = plan_step(job, plan_of(data=8, zero=zero))
        # What ZeRO-2 gathers once is in pieces here.
        apart = float(step.fast.gradient_sync_s[0] / step.fast.step_time_s[0]) if zero == 2 else 0.0
        assert _difference(step) == pytest.approx(0.0, abs=ROUNDING + apart)

    @pytest.mark.parametrize(("zero", "overlaps"), [(1, True), (2, True), (2, False), (3, True), (3, False)])
    @pytest.mark.parametrize(
        "offload",
        [
            {"activation_offload_fraction": 0.75},
            {"optimizer_offload_fraction": 1.0, "offloads_gradients": True},
        ],
        ids=["activations", "gradients"],
    )
    def test_copies_to_main_memory_hold_a_step_up_as_long_as_at_the_fast_depth(
        self, offload: dict[str, object], zero: int, overlaps: bool
    ) -> None:
        workload = training(gpt(num_layers=12), sequence_length=512, global_batch_size=24)
        job = job_of(changed(workload, overlaps_gradient_sync=overlaps, **offload), rented("a100-sxm4-80gb"))
        job = with_node(job, host_copy_bytes_per_s=2e9)
        step = plan_step(job, plan_of(data=8, zero=zero))
        copied_s = float(step.fast.host_copy_s[0])
        assert (copied_s > 0.0) is (zero > 1 or "activation_offload_fraction" in offload)
        # What is exchanged once in a step is in pieces here.
        assert _difference(step) == pytest.approx(0.0, abs=0.01 if zero < 3 else ROUNDING)
        told_s = plan_breakdown(step).seconds[:, STEP_PARTS.index("host_copy_s")]
        assert told_s == pytest.approx(copied_s)

    @pytest.mark.parametrize(
        ("chunks", "group_size", "apart"), [(1, None, 1e-6), (5, None, 0.01), (5, 8, 0.01)]
    )
    def test_groups_of_zero_2_in_a_pipeline_that_nothing_hides_take_what_the_fast_depth_says(
        self, chunks: int, group_size: int | None, apart: float
    ) -> None:
        workload = training("llama-3.1-70b", sequence_length=4096, global_batch_size=256)
        job = job_of(changed(workload, overlaps_gradient_sync=False))
        plan = plan_of(tensor=4, pipeline=4, virtual=chunks, data=16, zero=2, group_size=group_size)
        step = plan_step(job, plan)
        # The fast depth lets every pass reduce the mean of its group.
        assert step.unshared_step_time_s == pytest.approx(float(step.fast.step_time_s[0]), rel=apart)

    @pytest.mark.parametrize("sequence", [512, 8192])
    def test_weights_that_every_forward_pass_gathers_again_take_what_the_fast_depth_sums_up(
        self, sequence: int
    ) -> None:
        workload = training(gpt(num_layers=12), sequence_length=sequence, global_batch_size=24)
        chosen = workload.model_copy(update={"regathers_weights": True})
        step = _step(Case(job=job_of(chosen, rented("a100-sxm4-80gb")), plan=plan_of(data=8, zero=2)))
        gathers = [step.graph.label_of(task) for task in range(len(step.graph))].count("weight all-gather")
        # Three micro-batches of 14 parts, forward alone.
        assert gathers == 3 * 14
        assert _difference(step) == pytest.approx(0.0, abs=1e-9)

    def test_gathers_and_reductions_are_never_on_their_way_at_the_same_time(self) -> None:
        workload = training(gpt(num_layers=6), sequence_length=256, global_batch_size=16)
        step = _step(Case(job=job_of(workload), plan=plan_of(data=8, zero=3)))
        played = step.played
        moving = sorted(
            (played.start_s[task], played.end_s[task])
            for task in range(len(step.graph))
            if step.graph.label_of(task) in ("weight all-gather", "gradient reduce-scatter")
        )
        # Two micro-batches of eight parts, of which the output layer is gathered once.
        assert len(moving) == 2 * (8 + 7 + 8)
        assert all(begin >= end * (1 - ROUNDING) for (_, end), (begin, _) in pairwise(moving))

    def test_reductions_of_several_passes_follow_each_other_where_the_stage_goes_on(self) -> None:
        workload = training("llama-3.1-70b", sequence_length=512, global_batch_size=16)
        step = plan_step(job_of(workload), plan_of(tensor=8, pipeline=2, virtual=5, data=8, zero=2))
        played, moving = step.played, defaultdict[int, list[tuple[float, float]]](list)
        for task in range(len(step.graph)):
            if step.graph.label_of(task) == "gradient reduce-scatter":
                moving[step.graph.path[task]].append((played.start_s[task], played.end_s[task]))
        # A stage has 40 layers and an end of the model in five chunks, whose only groups are two micro-batches.
        assert [len(each) for each in moving.values()] == [41, 41]
        for each in moving.values():
            assert all(begin >= end * (1 - ROUNDING) for (_, end), (begin, _) in pairwise(sorted(each)))

    def test_copies_of_hybrid_sharding_are_added_up_behind_their_reductions(self) -> None:
        step = _step(FEW["hybrid sharding"])
        # A third of the weights is the embedding, one of three pieces at the fast depth, where the first is ready later.
        assert _difference(step) == pytest.approx(0.0, abs=0.025)

    def test_gradients_that_a_pipeline_reduces_once_are_as_far_apart_under_zero_2_as_under_zero_1(
        self,
    ) -> None:
        def apart(zero: int) -> float:
            workload = training("llama-3.1-70b", sequence_length=8192, global_batch_size=64)
            return _difference(plan_step(job_of(workload), plan_of(tensor=4, pipeline=4, data=16, zero=zero)))

        # Layer by layer, or in pieces of a chunk, behind the last of four passes; a layer is a twentieth of a stage.
        assert apart(2) == pytest.approx(apart(1), abs=0.02)

    def test_without_traffic_both_are_the_same(self) -> None:
        case = Case(job=job_of(training(SMALL, global_batch_size=4)), plan=plan_of())
        assert _difference(_step(case)) == pytest.approx(0.0, abs=ROUNDING)

    @pytest.mark.parametrize("schedule", Schedule)
    def test_a_pipeline_without_other_traffic_plays_the_schedule_of_the_fast_depth(
        self, schedule: Schedule
    ) -> None:
        model = gpt(num_layers=8)
        # Stages of one domain: every send takes the same, as the fast depth assumes.
        stages, chunks = (4, 2) if schedule in TO_AND_FRO else (8, 1)
        case = Case(
            job=job_of(training(model, global_batch_size=16)),
            plan=plan_of(pipeline=stages, virtual=chunks, zero=0, schedule=schedule),
        )
        assert _difference(_step(case)) == pytest.approx(0.0, abs=1e-6)

    @pytest.mark.parametrize("schedule", SPLIT_BACKWARD)
    def test_a_ring_hides_behind_a_whole_core_where_weight_gradients_come_later(
        self, schedule: Schedule
    ) -> None:
        workload = training("llama-3.1-8b", sequence_length=8192, global_batch_size=128)
        workload = changed(workload, copies_shared_heads=True)
        plan = plan_of(
            context=2,
            pipeline=4,
            virtual=2 if schedule in TO_AND_FRO else 1,
            data=8,
            zero=0,
            schedule=schedule,
        )
        case = Case(job=job_of(workload, rented("mi300x")), plan=plan)
        assert abs(_difference(_step(case))) < LARGE_DIFFERENCE
        parts, _ = parts_and_shape(case.job, case.plan)
        layer = parts.passes[Part.DENSE]
        whole, left = (_inner(items) for items in (layer.backward, layer.input_gradient))
        assert whole
        assert left == whole
        later_s = seconds_of(layer.backward) - seconds_of(layer.input_gradient)
        assert later_s == pytest.approx(float(dense_layer_weight_gradients_s(parts.rank)[0]))

    @pytest.mark.short(2)
    @pytest.mark.parametrize("is_folded", [True, False])
    @pytest.mark.parametrize("plan", [plan_of(tensor=2, data=4, zero=3), plan_of(tensor=4, data=4, zero=2)])
    def test_groups_of_a_mesh_that_have_no_pair_in_common_share_no_links(
        self, plan: Plan, is_folded: bool
    ) -> None:
        # Tensor-parallel ranks and shards; over one link for all of a rank they were 6.6 and 4.7 % longer.
        workload = training("llama-3.1-8b", sequence_length=8192, global_batch_size=2 * plan.data_parallel)
        step = plan_step(job_of(workload, rented("mi300x")), plan, is_folded=is_folded)
        assert abs(_difference(step)) < 1e-3

    def test_groups_of_a_mesh_that_have_pairs_in_common_share_their_links(self) -> None:
        # All context-parallel ranks are in the group of the shards. At the fast depth rings are spread over the pass.
        workload = training("llama-3.1-8b", sequence_length=8192, global_batch_size=2)
        step = plan_step(job_of(workload, rented("mi300x")), plan_of(context=8, data=2, zero=2))
        assert step.step_time_s > 1.1 * step.unshared_step_time_s
        assert abs(_difference(step)) < 0.045

    @pytest.mark.parametrize("accelerator", ["mi300x", "mi355x", "gaudi3"])
    def test_rings_of_a_mesh_share_their_links_with_shards_at_both_depths(self, accelerator: str) -> None:
        # With nothing shared at the fast depth they were 10 to 30 % apart.
        workload = training("llama-3.1-8b", sequence_length=8192, global_batch_size=2)
        step = plan_step(job_of(workload, rented(accelerator)), plan_of(context=8, zero=3))
        assert abs(_difference(step)) < 0.04

    @pytest.mark.parametrize("accelerator", ["mi300x", "gaudi3"])
    def test_rings_of_a_mesh_share_their_links_with_traffic_once_per_step(self, accelerator: str) -> None:
        # Where it found them free: 18 and 20 % apart.
        workload = training("llama-3.1-8b", sequence_length=8192, global_batch_size=1)
        job = job_of(workload, rented(accelerator))
        assert abs(_difference(plan_step(job, plan_of(context=8)))) < 0.025

    def test_traffic_of_a_chunk_meets_passes_of_another_on_interleaved_stages(self) -> None:
        # Where it found cards and cores free: 3.8 and 3.2 % apart.
        workload = training("llama-3.1-70b", sequence_length=2048, global_batch_size=4)
        plan = plan_of(tensor=16, pipeline=2, virtual=2, data=2)
        assert abs(_difference(plan_step(job_of(workload, rented("h200-sxm-141gb")), plan))) < 0.015
        workload = training("qwen3-30b-a3b", sequence_length=2048, global_batch_size=64)
        plan = plan_of(tensor=2, pipeline=2, virtual=4, data=16, expert=16)
        assert abs(_difference(plan_step(job_of(workload, rented("b200-sxm-180gb")), plan))) < 0.01

    def test_sends_share_cards_with_gradients_of_their_chunks_and_with_exchanges_at_both_depths(self) -> None:
        # The last backward passes send beside gradients of their chunks: 3.3 % apart where these have the cards for themselves.
        workload = training("mixtral-8x7b", sequence_length=2048, global_batch_size=128)
        plan = plan_of(pipeline=8, virtual=4, data=16, expert=8)
        assert abs(_difference(plan_step(job_of(workload, rented("h200-sxm-141gb")), plan))) < 0.004
        # Every pass exchanges beside a send: 4.4 % apart where exchanges wait for nothing.
        workload = training("qwen3-30b-a3b", sequence_length=8192, global_batch_size=128)
        plan = plan_of(pipeline=2, virtual=4, data=32, expert=16, zero=3)
        hidden = changed(workload, overlaps_expert_exchange=True)
        assert abs(_difference(plan_step(job_of(hidden, rented("b200-sxm-180gb")), plan))) < 0.025

    def test_shards_wait_for_an_exchange_that_hides_as_long_as_it_waits_for_them(self) -> None:
        # With w shown/alone for what the exchange waits 6.8 % apart.
        workload = training("qwen3-30b-a3b", sequence_length=8192, global_batch_size=64)
        hidden = changed(workload, overlaps_expert_exchange=True)
        plan = plan_of(tensor=2, data=16, expert=16, zero=3)
        assert abs(_difference(plan_step(job_of(hidden, rented("b200-sxm-180gb")), plan))) < 0.02

    def test_an_exchange_of_a_mesh_takes_as_long_message_by_message(self) -> None:
        # Each member has a link to each other one, so that all messages go at once at a seventh of the bandwidth.
        workload = training("mixtral-8x7b", global_batch_size=32)
        job, plan = job_of(workload, rented("mi300x")), plan_of(data=8, expert=4, zero=0)
        folded, single = (plan_step(job, plan, is_folded=each) for each in (True, False))
        assert single.step_time_s == pytest.approx(folded.step_time_s, rel=1e-3)

    def test_the_exchange_of_a_pair_hides_behind_its_gradients_of_weights_too(self) -> None:
        # F&B of DualPipe has the whole backward pass. With exchanges that outlast what else a pair computes 5.2 % apart.
        workload = training("qwen3-30b-a3b", global_batch_size=256)
        plan = plan_of(pipeline=4, virtual=2, data=16, expert=16, schedule=Schedule.DUAL_PIPE_V)
        step = plan_step(job_of(changed(workload, overlaps_expert_exchange=True)), plan)
        assert abs(_difference(step)) < 0.01

    @pytest.mark.parametrize("group_size", [None, 6, 11, 16])
    def test_the_same_in_interleaved_groups_of_any_size(self, group_size: int | None) -> None:
        case = Case(
            job=job_of(training(gpt(num_layers=8), global_batch_size=16)),
            plan=plan_of(pipeline=4, virtual=2, zero=0, group_size=group_size),
        )
        assert _difference(_step(case)) == pytest.approx(0.0, abs=1e-6)

    @pytest.mark.parametrize("group_size", [8, 11])
    def test_gradients_of_the_last_group_are_reduced_under_zero_2_however_small_it_is(
        self, group_size: int
    ) -> None:
        workload = training(SMALL, global_batch_size=32)
        plan = plan_of(pipeline=2, virtual=2, data=2, zero=2, group_size=group_size)
        assert abs(_difference(_step(Case(job=job_of(workload), plan=plan)))) < LARGE_DIFFERENCE

    @pytest.mark.parametrize("block", [None, "one_norm", "two_norms"])
    @pytest.mark.parametrize("model", [MIXTURE, SMALL, LATENT, LATENT_QUERIES])
    @pytest.mark.parametrize("is_split", [True, False])
    def test_operators_and_traffic_take_as_long_as_parts_of_the_fast_depth(
        self, model: ModelShape, block: str | None, is_split: bool
    ) -> None:
        experts = model.experts.model_copy(update={"has_biases": True}) if model.experts else None
        norm = None if model.latent_attention else "per_head"
        shape = model.model_copy(update={"parallel_block": block, "qk_norm": norm, "experts": experts})
        choices = {
            "fp8_recipe": "mxfp8",
            "has_sequence_parallel": is_split,
            "expert_products": "separate",
            "overlaps_input_gradients": False,
        }
        workload = training(shape, global_batch_size=16).model_copy(update=choices)
        plan = plan_of(tensor=2, expert=4 if model.experts else 1, data=4, precision=Precision.FP8)
        case = Case(job=job_of(workload), plan=plan)
        parts, _ = parts_and_shape(case.job, case.plan)
        for kind, passes in parts.passes.items():
            times = part_times(parts.rank, kind)
            assert seconds_of(passes.forward) == pytest.approx(
                float(times.forward_compute_s[0]), rel=ROUNDING
            )
            assert seconds_of(passes.backward) == pytest.approx(
                float(times.backward_compute_s[0]), rel=ROUNDING
            )
            forward_s, backward_s = (
                sum(each.alone_s for each in collectives_of(items))
                for items in (passes.forward, passes.backward)
            )
            assert forward_s == pytest.approx(float(times.forward_s[0] - times.forward_compute_s[0]))
            assert backward_s == pytest.approx(float(times.backward_s[0] - times.backward_compute_s[0]))

    @pytest.mark.parametrize("name", HYBRIDS)
    @pytest.mark.parametrize("recompute", Recompute)
    @pytest.mark.parametrize("is_split", [True, False])
    def test_blocks_of_a_hybrid_take_their_share_of_each_layer(
        self, name: str, recompute: Recompute, is_split: bool
    ) -> None:
        choices = {"has_sequence_parallel": is_split, "overlaps_input_gradients": False}
        workload = changed(training(HYBRIDS[name], global_batch_size=16), **choices)
        plan = plan_of(tensor=2, context=2, recompute=recompute)
        parts, _ = parts_and_shape(job_of(changed(workload, context_exchange="all_to_all")), plan)
        assert_as_at_the_fast_depth(parts)

    @pytest.mark.parametrize("recompute", Recompute)
    @pytest.mark.parametrize("layer_step", [1, 3])
    @pytest.mark.parametrize(
        "choices",
        [{}, {"recompute_modules": ("core_attn", "mla_up_proj")}],
        ids=["core", "products"],
    )
    def test_an_indexer_takes_its_share_of_each_layer(
        self, recompute: Recompute, layer_step: int, choices: dict[str, object]
    ) -> None:
        model = with_indexer(SPARSE, changed(INDEXER, layer_step=layer_step, chosen_tokens=512))
        workload = changed(training(model, global_batch_size=16), overlaps_input_gradients=False, **choices)
        plan = plan_of(tensor=2, context=2, recompute=recompute)
        parts, _ = parts_and_shape(job_of(workload), plan)
        assert_as_at_the_fast_depth(parts)

    @pytest.mark.parametrize("model", [STREAMS, MIXED_STREAMS, LATENT_STREAMS])
    @pytest.mark.parametrize("recompute", Recompute)
    @pytest.mark.parametrize("modules", [("core_attn",), ("mhc",)])
    def test_streams_of_the_residual_are_mixed_around_every_block(
        self, model: ModelShape, recompute: Recompute, modules: tuple[str, ...]
    ) -> None:
        shape = changed(model, num_mtp_layers=2)
        choices = {"overlaps_input_gradients": False, "recompute_modules": modules}
        workload = changed(training(shape, global_batch_size=16), **choices)
        plan = plan_of(tensor=2, pipeline=2, data=2, recompute=recompute)
        parts, _ = parts_and_shape(job_of(workload), plan)
        assert_as_at_the_fast_depth(parts)

    @pytest.mark.parametrize("recompute", Recompute)
    @pytest.mark.parametrize("modules", [("core_attn",), ("mla_up_proj", "layernorm", "mhc")])
    @pytest.mark.parametrize("trains", [True, False])
    @pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP8])
    def test_compressed_tokens_are_chosen_before_the_core(
        self, recompute: Recompute, modules: tuple[str, ...], trains: bool, precision: Precision
    ) -> None:
        model = changed(with_streams(COMPRESSED), num_mtp_layers=1, experts=MIXTURE.experts)
        choices = {"recompute_modules": modules, "trains_indexer": trains}
        workload = changed(training(model, global_batch_size=16), **choices)
        plan = plan_of(pipeline=2, data=8, expert=4, recompute=recompute, precision=precision)
        parts, _ = parts_and_shape(job_of(workload), plan)
        assert_as_at_the_fast_depth(parts)
        works = [each.label for each in parts.passes[Part.EXPERT].forward if isinstance(each, Work)]
        labels = [label for label in works if label != "waiting for the host"]
        assert labels.index("indexer") == labels.index("attention core") - 1

    @pytest.mark.parametrize("plan", [plan_of(pipeline=4, data=2), plan_of(data=8, zero=3)])
    def test_steps_with_compressed_tokens_are_as_long(self, plan: Plan) -> None:
        case = Case(job=job_of(training(COMPRESSED, sequence_length=16_384, global_batch_size=32)), plan=plan)
        assert abs(_difference(_step(case))) < LARGE_DIFFERENCE

    @pytest.mark.parametrize("plan", [plan_of(pipeline=4, data=2), plan_of(pipeline=2, virtual=2, tensor=4)])
    def test_steps_with_all_streams_between_stages_are_as_long(self, plan: Plan) -> None:
        case = Case(job=job_of(training(STREAMS, sequence_length=8192, global_batch_size=32)), plan=plan)
        assert abs(_difference(_step(case))) < LARGE_DIFFERENCE

    def test_ranks_gather_what_an_indexer_reads_before_it_chooses(self) -> None:
        workload = changed(training(SPARSE), kernel_launch="graph")
        parts, _ = parts_and_shape(job_of(workload), plan_of(tensor=2, context=2))
        labels = [
            each.label for each in parts.passes[Part.DENSE].forward if isinstance(each, Work | Collective)
        ]
        indexer = labels.index("indexer")
        assert labels[indexer - 1 : indexer + 2] == ["context all-gather", "indexer", "attention core"]
        # The residual stream and latents of queries; before, latents of queries and keys, and the rotary key.
        projections = labels.index("attention projections")
        assert labels[projections + 1 : indexer - 1] == ["tensor all-gather"] * 2
        assert labels[:projections].count("tensor all-gather") == 3

    def test_ranks_exchange_heads_of_a_hybrid_around_its_scan(self) -> None:
        plan = plan_of(context=4)
        parts, _ = parts_and_shape(job_of(training(NEMOTRON_H)), plan)
        layer = parts.passes[Part.DENSE]
        for items in (layer.forward, layer.backward):
            labels = [each.label for each in items if isinstance(each, Work | Collective)]
            scan = labels.index("scan of linear attention")
            assert labels[scan - 1] == labels[scan + 1] == "linear all-to-all"

    @pytest.mark.parametrize(
        ("model", "plan", "choices"),
        [
            # Passes wait for the host, and the second forward pass waits as well.
            (SMALL, plan_of(recompute=Recompute.FULL), {"kernel_launch": "eager", "sequence_length": 128}),
            # What leaves both blocks together is repeated with neither.
            (
                changed(SMALL, parallel_block="one_norm"),
                plan_of(tensor=2, recompute=Recompute.SELECTIVE),
                {"recompute_modules": ("mlp",)},
            ),
        ],
        ids=["layers", "products of parallel blocks"],
    )
    def test_what_is_recomputed_takes_as_long_as_at_the_fast_depth(
        self, model: ModelShape, plan: Plan, choices: dict[str, object]
    ) -> None:
        workload = changed(training(model), overlaps_input_gradients=False, **choices)
        parts, _ = parts_and_shape(job_of(workload), plan)
        times, layer = part_times(parts.rank, Part.DENSE), parts.passes[Part.DENSE]
        compute_s = float(times.backward_compute_s[0])
        assert seconds_of(layer.backward) == pytest.approx(compute_s, rel=ROUNDING)
        traffic_s = sum(each.alone_s for each in collectives_of(layer.backward))
        hidden_s = sum(part.alone_s for each in _inner(layer.backward) for part in each.traffic)
        assert traffic_s - hidden_s == pytest.approx(float(times.backward_s[0]) - compute_s, abs=1e-12)

    def test_keys_and_values_go_round_again_only_where_the_attention_core_is_repeated(self) -> None:
        def exchanges(recompute: Recompute, *modules: str) -> int:
            workload = changed(training(SMALL), recompute_modules=modules)
            parts, _ = parts_and_shape(job_of(workload), plan_of(context=4, recompute=recompute))
            traffic = collectives_of(parts.passes[Part.DENSE].backward)
            return sum(each.label.startswith("context") for each in traffic)

        once = exchanges(Recompute.NONE)
        assert exchanges(Recompute.SELECTIVE, "mlp") == once
        assert exchanges(Recompute.SELECTIVE, "core_attn") > once

    def test_experts_that_are_all_on_a_rank_exchange_nothing_that_could_hide(self) -> None:
        workload = changed(training(MIXTURE), overlaps_expert_exchange=True)
        step = plan_step(job_of(workload), plan_of(data=8))
        assert step.fast.expert_comm_s[0] == 0.0
        assert abs(_difference(step)) < LARGE_DIFFERENCE

    @pytest.mark.parametrize("in_pieces", [False, True])
    def test_what_hides_of_an_expert_exchange_is_beside_operators_alone(self, in_pieces: bool) -> None:
        workload = changed(training(MIXTURE), overlaps_expert_exchange=True, overlaps_tensor_comm=in_pieces)
        parts, _ = parts_and_shape(job_of(workload), plan_of(tensor=2, expert=8, data=8))
        layer = next(passes for kind, passes in parts.passes.items() if kind.has_experts)
        for way, items in enumerate((layer.forward, layer.backward)):
            hidden = [each for each in _inner(items) if each.traffic[0].label.startswith("expert")]
            assert not collectives_of(item for each in hidden for item in each.items)
            # All of the exchange is there, hidden or not, and hides as far as at the fast depth.
            traffic = [each for each in collectives_of(items) if each.label.startswith("expert")]
            whole_s = sum(each.alone_s for each_way in expert_traffic(parts.rank, way) for each in each_way)
            assert sum(each.alone_s for each in traffic) == pytest.approx(whole_s)
            shown_s = whole_s - sum(part.alone_s for each in hidden for part in each.traffic)
            times = part_times(parts.rank, Part.EXPERT)
            fast_s = (times.forward_expert_comm_s, times.backward_expert_comm_s)[way]
            assert shown_s == pytest.approx(float(fast_s[0]))

    def test_gradients_retrace_the_ways_of_tokens_to_experts_and_back(self) -> None:
        parts, _ = parts_and_shape(job_of(training(MIXTURE)), plan_of(expert=8, data=8))
        layer = next(passes for kind, passes in parts.passes.items() if kind.has_experts)
        labels = [
            [each.label for each in collectives_of(items) if each.label.startswith("expert")]
            for items in (layer.forward, layer.backward)
        ]
        assert labels == [["expert dispatch", "expert combine"], ["expert combine", "expert dispatch"]]

    def test_chunks_have_the_weights_of_their_parts(self) -> None:
        case = LARGE["mixtral experts in a pipeline"]
        parts, _ = parts_and_shape(case.job, case.plan)
        for chunk, kinds in enumerate(parts.kinds):
            have = [parts.weights_of(kind).trained for kind in kinds]
            assert sum(each.shared for each in have) == parts.chunk_weights(chunk).shared
            assert sum(each.routed for each in have) == parts.chunk_weights(chunk).routed


class TestCollectives:
    @pytest.mark.parametrize(("stride", "size"), [(1, 8), (1, 16), (8, 4), (2, 8), (4, 16)])
    @pytest.mark.parametrize("operation", [Operation.ALL_REDUCE, Operation.ALL_GATHER])
    def test_alone_they_take_what_the_fast_depth_says(
        self, stride: int, size: int, operation: Operation
    ) -> None:
        case = Case(job=job_of(training(SMALL)), plan=plan_of(data=64))
        rank = parts_and_shape(case.job, case.plan)[0].rank
        made = ring("ring", operation, 1e9, Group.of(rank, stride, size), rank.links)
        near_s = made.near_bytes / float(rank.links.intra_bytes_per_s[0])
        far_s = made.far_bytes / float(rank.links.inter_bytes_per_s_per_gpu[0])
        found_s = made.rest_s + max(near_s, far_s)
        members = made.group.members_per_domain
        # One of g rings does not pass the scale-up link of a member: where that link decides, it has 1/g less to carry.
        spared = 1.0 / members if 1 < members < size else 0.0
        assert (1.0 - spared) * made.alone_s - ROUNDING <= found_s <= made.alone_s + ROUNDING

    @pytest.mark.parametrize("operation", [Operation.ALL_REDUCE, Operation.ALL_GATHER])
    def test_a_ring_in_a_node_that_is_faster_through_network_cards_takes_no_longer(
        self, operation: Operation
    ) -> None:
        job = job_of(training(SMALL), rented("a100-pcie-80gb"))
        rank = parts_and_shape(job, plan_of(data=8))[0].rank
        made = ring("ring", operation, 1e9, Group.of(rank, 1, 8), rank.links)
        assert made.rest_s + made.near_bytes / float(rank.links.intra_bytes_per_s[0]) == pytest.approx(
            made.alone_s, rel=ROUNDING
        )


class TestFolding:
    @pytest.mark.parametrize("name", TWO_NODES)
    def test_rings_of_several_members_in_a_node_agree_where_they_share_no_link(self, name: str) -> None:
        step, whole = (_step(TWO_NODES[name], is_folded=is_folded) for is_folded in (True, False))
        assert step.unshared_step_time_s == pytest.approx(whole.unshared_step_time_s, rel=1e-5)
        assert step.step_time_s == pytest.approx(whole.step_time_s, rel=SHARED_FOLDED)

    @pytest.mark.short(6)
    @pytest.mark.parametrize("name", FEW)
    def test_symmetric_steps_are_the_same_folded_and_message_by_message(self, name: str) -> None:
        step, whole = (_step(FEW[name], is_folded=is_folded) for is_folded in (True, False))
        is_shared = step.step_time_s - step.unshared_step_time_s > ROUNDING
        # Where an all-to-all shares links with a ring, each message has a claim of its own instead of each collective.
        apart = 0.01 if name == "experts" else SHARED_FOLDED if is_shared else 1e-5
        assert step.step_time_s == pytest.approx(whole.step_time_s, rel=apart)

    @pytest.mark.short(4)
    @pytest.mark.parametrize("name", ["tensor", "data on two nodes", "pipeline", "experts on two nodes"])
    @pytest.mark.parametrize(
        "faults", [Faults(speed={1: 0.5}), Faults(scale_up={1: 0.25}), Faults(card={1: 0.25})]
    )
    def test_slow_parts_hold_up_folded_steps_as_they_do_every_message(
        self, name: str, faults: Faults
    ) -> None:
        whole = _step(FEW[name], is_folded=False, faults=faults)
        folded_s = _step(FEW[name], faults=faults).step_time_s
        assert folded_s == pytest.approx(whole.step_time_s, rel=SLOW_FOLDED)

    def test_a_slow_accelerator_makes_a_role_of_its_block(self) -> None:
        case = LARGE["70b pipeline"]
        cluster = PlanCluster.of(case.job, case.plan, Faults(speed={5: 0.5}))
        roles = folded(cluster, block_size(case.plan, case.job.workload))
        # 64 ranks of a stage in blocks of 4; accelerator 5 is in the second block of stage 0.
        assert roles.counts.tolist() == [60, 4]
        assert roles.ranks[:2].tolist() == [[0, 5], [64, 68]]
        assert roles.speed[0].tolist() == [1.0, 0.5]
        assert roles.speed[1:].min() == 1.0

    @pytest.mark.long
    def test_more_accelerators_do_not_make_more_tasks(self) -> None:
        def tasks(data: int, *, is_beside: bool) -> int:
            workload = training("llama-3.1-70b", sequence_length=8192, global_batch_size=8 * data)
            job = job_of(changed(workload, overlaps_input_gradients=is_beside))
            return len(plan_step(job, plan_of(tensor=8, pipeline=8, data=data)).graph)

        # Buckets of more replicas are larger, and fewer.
        assert tasks(256, is_beside=False) <= tasks(32, is_beside=False) == tasks(16, is_beside=False)
        assert tasks(256, is_beside=True) <= tasks(32, is_beside=True) <= tasks(16, is_beside=True)


class TestNetwork:
    def test_leaves_hold_the_same_card_of_half_a_switch_of_nodes(self) -> None:
        case = LARGE["405b"]  # 256 nodes of eight, switches of 64 ports
        cluster = PlanCluster.of(case.job, case.plan)
        assert cluster.nodes_per_leaf == 32
        assert cluster.num_leaves == 8 * 8
        assert cluster.leaf(np.array([0, 1, 8, 8 * 32])).tolist() == [0, 1, 0, 8]

    def test_oversubscription_is_felt_where_the_spine_is_crossed(self) -> None:
        offer = rented()
        narrow = offer.model_copy(
            update={"fabric": offer.fabric.model_copy(update={"oversubscription": 4.0})}
        )
        workload = training("llama-3.1-8b", sequence_length=8192, global_batch_size=1024)
        plan = plan_of(tensor=8, pipeline=2, data=64, zero=0)
        wide_s, narrow_s = (plan_step(job_of(workload, each), plan).step_time_s for each in (offer, narrow))
        assert narrow_s > wide_s
        # Rings of replicas pass the spine twice in 64 nodes, stages of 64 nodes send all of theirs through it.
        step = plan_step(job_of(workload, narrow), plan)
        uplinks = [
            link for link in range(step.topology.num_links) if "-> spine" in step.topology.link_name(link)
        ]
        assert max(step.played.link_full_s[link] for link in uplinks) > 0.0

    @pytest.mark.parametrize(
        ("switch_ports", "passing"),
        [
            # One leaf for card i of all nodes.
            (64, 0),
            # Leaves of four nodes: each member there sends 4 of 7 messages through the spine, 16/7 flows like its own.
            (8, 3),
        ],
    )
    def test_an_exchange_passes_the_spine_for_members_at_other_leaves_in_whole_flows(
        self, switch_ports: int, passing: int
    ) -> None:
        offer = rented()
        fabric = changed(offer.fabric, switch_ports=switch_ports)
        workload = changed(training(MIXTURE, global_batch_size=16), expert_tensor_parallel=8)
        step = plan_step(
            job_of(workload, changed(offer, fabric=fabric)), plan_of(tensor=8, expert=8, data=16)
        )
        exchanges = {
            int(path)
            for row, path in enumerate(step.graph.path)
            if step.graph.label_of(row).partition(" #")[0] == "expert dispatch"
        }
        assert exchanges
        for path in exchanges:
            links = [step.topology.link_name(int(link)) for link in step.paths.links_of(path)]
            assert sum("-> spine" in name for name in links) == passing

    def test_every_second_of_an_accelerator_is_told(self) -> None:
        step = _step(LARGE["70b interleaved"], faults=Faults(speed={3: 0.7}))
        found = waits(step.graph, step.played, len(step.paths))
        told_s = found.busy_s + found.for_traffic_s.sum(axis=1) + found.for_others_s + found.over_s
        assert told_s == pytest.approx(np.full(len(told_s), step.step_time_s), rel=1e-6)


class TestRefusals:
    def test_too_many_accelerators_are_not_played_one_by_one(self) -> None:
        with pytest.raises(InputError, match="at most 1,024 to be played one by one"):
            plan_step(job_of(), plan_of(data=2048), is_folded=False)

    def test_too_many_micro_batches_are_counted_before_there_is_a_task(self) -> None:
        workload = training(SMALL, global_batch_size=100_000_000)
        with pytest.raises(
            InputError, match=r"global_batch_size = 100000000: makes 50,000,000 micro-batches"
        ):
            plan_step(job_of(workload), plan_of(data=2))

    @pytest.mark.parametrize(
        ("faults", "message"),
        [
            (Faults(speed={64: 0.5}), "speed = 64: must be the number of an accelerator, 0 to 63"),
            (Faults(card={0: 1.5}), "card = 0=1.5: must be above 0 and at most 1"),
            (Faults(leaf={8: 0.5}), "leaf = 8: must be the number of a leaf, 0 to 7"),
        ],
    )
    def test_slow_parts_must_be_there(self, faults: Faults, message: str) -> None:
        with pytest.raises(InputError, match=message):
            plan_step(job_of(), plan_of(data=64), faults=faults)


def test_a_tied_embedding_is_added_up_between_the_ends_of_the_pipeline() -> None:
    case = FEW["pipeline"]
    label = "tied gradient all-reduce"
    step = _step(case)
    rows = [row for row in range(len(step.graph)) if step.graph.label_of(row) == label]
    tied_s = float((step.played.end_s - step.played.start_s)[rows].max())
    parts, _ = parts_and_shape(case.job, case.plan)
    expected_s = float(step_parts(parts.rank, parts.chunks).tied_gradient_s[0])
    assert tied_s == pytest.approx(expected_s, rel=ROUNDING)


def test_a_forwarded_exchange_is_on_each_link_for_its_own_bytes_alone() -> None:
    # Parts hide behind each other for most of the time, so neither link is busy for as long as the exchange takes.
    links = link_constants(
        ["hopper"], [""], intra_bytes_per_s=400e9, inter_bytes_per_s_per_gpu=50e9, gpus_per_domain=8
    )
    group = Group(stride=1, size=32, members_per_domain=8)
    found = forwarded_exchange("expert", 4e9, 1e9, group, links, FORWARDED_FRACTION)
    assert found.near_bytes == pytest.approx(4e9 / FORWARDED_FRACTION)
    assert found.far_bytes == pytest.approx(1e9 * 50e9 / float(links.fabric_bytes_per_s[0]))
    assert max(found.near_bytes / 400e9, found.far_bytes / 50e9) < found.alone_s
