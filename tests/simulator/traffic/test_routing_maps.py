"""Do maps of the routing take what is published beside the kernels of Hybrid-EP, and is all of it counted once?"""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.deep.plans.plan_expert_traffic import expert_traffic, map_traffic
from simulator.domain.blocks import MixtureOfExperts
from simulator.domain.workload import Workload
from simulator.layers.layer_costs import expert_layer
from simulator.machine.network import all_gather_s, forwarded_exchange_s
from simulator.machine.rank import Rank
from simulator.traffic.expert_exchange import RATE_IN_TRAINING, dispatched_bytes, expert_exchange_s
from simulator.traffic.routing_maps import map_bytes, map_gather_s, map_scan_s, staging_passes
from tests.simulator.builders import changed, plan_of, rank_of, training
from tests.simulator.expert_jobs import NOTHING


def by_maps(model: str = "qwen3-30b-a3b", **changes: object) -> Workload:
    plain = training(model, sequence_length=4096)
    return changed(plain, expert_dispatch="deduplicated", gathers_routing_maps=True, **changes)


def without_maps(workload: Workload) -> Workload:
    return changed(workload, gathers_routing_maps=False)


def on_16(workload: Workload) -> Rank:
    return rank_of(workload, plan_of(expert=16, data=16))


class TestMaps:
    def test_every_rank_gets_a_byte_for_each_expert_of_each_token_of_all(self) -> None:
        rank = on_16(by_maps())
        assert map_bytes(rank) == pytest.approx(16 * 4096 * 128)
        assert map_gather_s(rank) == pytest.approx(
            all_gather_s(num_bytes=16 * 4096 * 128, group_size=16.0, members_per_domain=8.0, links=rank.links)
        )

    @pytest.mark.parametrize(("num_ranks", "left_s"), [(16, 162e-6), (32, 431e-6), (64, 956e-6)])
    def test_they_are_most_of_what_hybrid_ep_takes_beyond_kernel_and_copies(
        self, num_ranks: int, left_s: float
    ) -> None:
        # H100, 4,096 tokens of 7,168 values, 8 of 8 experts a rank (`README_Hybrid-EP.md`): a dispatch from PyTorch at 57.74,
        # 47.36 and 41.46 GB/s, its kernel at 76.80, 57.69 and 50.55; `test_hybrid_ep.py` of November 2025 gathered maps in each
        # call. Less copies of what leaves and of what arrives, 2 (R(e) + 1) passes at 2.6 TB/s.
        experts = MixtureOfExperts(
            num_experts=8 * num_ranks, experts_per_token=8, expert_ffn_hidden_size=2048
        )
        workload = by_maps()
        workload = changed(workload, model=workload.model.model_copy(update={"experts": experts}))
        rank = rank_of(workload, plan_of(expert=num_ranks, data=num_ranks))
        counted_s = (map_gather_s(rank) + map_scan_s(rank))[0]
        assert 0.55 * left_s < counted_s < left_s

    def test_a_rank_with_all_experts_and_other_dispatchers_need_none(self) -> None:
        plain = changed(by_maps(), expert_dispatch="all_to_all")
        alone = rank_of(by_maps(), plan_of(data=8))
        for rank in (alone, on_16(plain), on_16(without_maps(by_maps()))):
            assert not np.any(map_gather_s(rank) + map_scan_s(rank) + staging_passes(rank))
        both = (expert_layer(on_16(each)) for each in (plain, without_maps(plain)))
        assert len({(float(each.forward_s[0]), float(each.backward_s[0])) for each in both}) == 1

    def test_tokens_are_staged_for_cards_alone(self) -> None:
        near = rank_of(by_maps(), plan_of(expert=8, data=8))
        assert staging_passes(near) == 0.0
        assert staging_passes(on_16(by_maps())) == 2.0


class TestExchange:
    def test_a_token_carries_a_weight_for_each_expert_of_a_domain(self) -> None:
        # 64 of 128 experts on a node: 256 bytes beside 4,096.
        assert dispatched_bytes(on_16(by_maps())) * 2048 == pytest.approx(4096 + 64 * 4)
        assert dispatched_bytes(on_16(without_maps(by_maps()))) == pytest.approx(2.0)

    def test_a_token_carries_one_for_each_rank_that_shares_an_expert(self) -> None:
        # Megatron Core shows its dispatcher E t_e experts on e t_e ranks (`MoEFlexTokenDispatcher`): 16 each, 8 ranks a domain.
        rank = rank_of(by_maps(expert_tensor_parallel=2), plan_of(expert=8, data=16))
        assert dispatched_bytes(rank) == pytest.approx(2.0 + 4 * 16 * 8 / 2048)

    def test_maps_are_gathered_forward_and_weights_travel_once_each_way(self) -> None:
        rank = on_16(by_maps())
        forward_s, backward_s = expert_exchange_s(rank, NOTHING, NOTHING, (NOTHING, NOTHING))
        assert forward_s - backward_s == pytest.approx(map_gather_s(rank) / RATE_IN_TRAINING)
        # A token reaches 6.6 of 16 ranks, seven of eight through the scale-up link, and the other node.
        reached = 16 * (1 - math.prod([(120 - i) / (128 - i) for i in range(8)]))
        far = 2 * (1 - math.prod([(64 - i) / (128 - i) for i in range(8)])) / 2
        both_s = [
            forwarded_exchange_s(
                near_bytes=token_bytes * 4096 * reached * 7 / 8,
                far_bytes=token_bytes * 4096 * far,
                group_size=16.0,
                members_per_domain=8.0,
                links=rank.links,
            )
            for token_bytes in (4096 + 256, 4096)
        ]
        assert backward_s == pytest.approx(np.sum(both_s, axis=0) / RATE_IN_TRAINING)

    def test_shared_experts_do_not_hide_the_maps(self) -> None:
        rank = on_16(by_maps("deepseek-v3", overlaps_shared_experts=True))
        endless = np.full(1, 1e3)
        forward_s, backward_s = expert_exchange_s(rank, NOTHING, NOTHING, (endless, endless))
        assert forward_s - backward_s == pytest.approx(map_gather_s(rank) / RATE_IN_TRAINING)

    def test_both_depths_move_the_same(self) -> None:
        rank = on_16(by_maps())
        fast_s = expert_exchange_s(rank, NOTHING, NOTHING, (NOTHING, NOTHING))
        for way in (0, 1):
            played_s = sum(each.alone_s for ways in expert_traffic(rank, way) for each in ways)
            assert played_s == pytest.approx(float(fast_s[way][0]))
        assert [each.num_bytes for each in map_traffic(rank, 0)] == [pytest.approx(16 * 4096 * 128)]
        assert map_traffic(rank, 1) == ()


def test_a_layer_is_longer_by_maps_weights_and_staging() -> None:
    rank, plain = on_16(by_maps()), on_16(without_maps(by_maps()))
    layers = [expert_layer(each) for each in (rank, plain)]
    staged_s = 2 * 2 * 4096 * 2048 / (3.35e12 * float(rank.kernels.memory_fraction[0]))
    weights_s = (
        layers[0].backward_expert_comm_s - layers[1].backward_expert_comm_s
    )  # the same in both directions
    assert layers[0].backward_s - layers[1].backward_s == pytest.approx(staged_s + weights_s)
    more_s = staged_s + weights_s + map_gather_s(rank) / RATE_IN_TRAINING + map_scan_s(rank)
    assert layers[0].forward_s - layers[1].forward_s == pytest.approx(more_s)
