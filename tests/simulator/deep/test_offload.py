"""Is memory counted as tensors live, is it never exceeded, and do copies take the time that they must?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.deep.networks.routing import Router
from simulator.deep.networks.topologies import photonic, ring, switch
from simulator.deep.playing.play import Played, play
from simulator.deep.traced_steps.extrapolate import Extrapolation, extrapolate
from simulator.deep.traced_steps.memory import lifetimes
from simulator.deep.traced_steps.memory_tiers import MemoryTier, with_tiers
from simulator.deep.traced_steps.offload import BACK, OUT, Offload, plan_offload
from simulator.deep.traces.parallelism import GradientSync, Parallelism
from simulator.deep.traces.trace import Category, OperatorTrace, Phase
from simulator.deep.traces.trace_build import OperatorRecord, TensorRecord, build_trace
from simulator.errors import InputError

SIZE = 100.0
"""Bytes of every activation."""
FAST = MemoryTier(name="host", bandwidth_bytes_per_s=1e12)


def chain(
    num_layers: int, *, seconds: float = 1.0, weight_bytes: float = 0.0, is_shared: bool = True
) -> OperatorTrace:
    """Layers that read what the one before made and read it again backward; gradients of activations take no room.

    All of them read the weight, or only the first one.
    """
    layers = range(num_layers)

    def read(number: int) -> list[str]:
        return ["w"] if is_shared or number == 0 else []

    tensors = [TensorRecord(id=f"a{number}", num_bytes=SIZE) for number in layers]
    tensors += [TensorRecord(id=f"g{number}", num_bytes=0.0) for number in range(num_layers + 1)]
    tensors.append(TensorRecord(id="w", num_bytes=weight_bytes, category=Category.PARAMETER))
    forward = [
        OperatorRecord(
            name=f"forward {number}",
            phase=Phase.FORWARD,
            duration_s=seconds,
            inputs=(*read(number), *([f"a{number - 1}"] if number else [])),
            outputs=(f"a{number}",),
        )
        for number in layers
    ]
    backward = [
        OperatorRecord(
            name=f"backward {number}",
            phase=Phase.BACKWARD,
            duration_s=seconds,
            inputs=(*read(number), f"g{number + 1}", f"a{number}"),
            outputs=(f"g{number}",),
        )
        for number in reversed(layers)
    ]
    start = OperatorRecord(
        name="loss", phase=Phase.BACKWARD, duration_s=0.0, inputs=(), outputs=(f"g{num_layers}",)
    )
    return build_trace("chain", 1, tensors, [*forward, start, *backward])


def made(trace: OperatorTrace, capacity_bytes: float, *tiers: MemoryTier, replicas: int = 1) -> Extrapolation:
    parallelism = Parallelism(data_parallel=replicas)
    offload = Offload(capacity_bytes=capacity_bytes, tiers=tiers)
    return extrapolate(trace, parallelism, switch(replicas, 1e12, 0.0), offload=offload)


def played(step: Extrapolation) -> Played:
    return play(step.graph, step.topology, step.paths)


class TestLifetimes:
    def test_activations_live_until_they_are_read_backward(self) -> None:
        needed = lifetimes(chain(3, weight_bytes=40.0))
        assert needed.live_bytes.tolist() == [140.0, 240.0, 340.0, 340.0, 340.0, 240.0, 140.0]
        assert needed.peak_bytes == 340.0

    def test_views_of_the_same_bytes_count_once_and_gradients_stay_for_the_optimizer(self) -> None:
        tensors = [
            TensorRecord(id="x", num_bytes=10.0),
            TensorRecord(id="w", num_bytes=100.0, category=Category.PARAMETER, storage="w"),
            TensorRecord(id="wt", num_bytes=100.0, category=Category.PARAMETER, storage="w"),
            TensorRecord(id="y", num_bytes=30.0),
            TensorRecord(id="dw", num_bytes=100.0, category=Category.GRADIENT),
            TensorRecord(id="m", num_bytes=200.0, category=Category.STATE),
            TensorRecord(id="scratch", num_bytes=7.0, category=Category.STATE),
            TensorRecord(id="unused", num_bytes=1e9),
        ]
        kinds = (
            (Phase.FORWARD, ("x", "w"), ("y",)),
            (Phase.BACKWARD, ("y", "wt"), ("dw",)),
            (Phase.BACKWARD, (), ()),
            (Phase.OPTIMIZER, ("m",), ("scratch",)),
            (Phase.OPTIMIZER, ("w",), ()),
        )
        operators = [
            OperatorRecord(name="operator", phase=phase, duration_s=1.0, inputs=inputs, outputs=outputs)
            for phase, inputs, outputs in kinds
        ]
        live = lifetimes(build_trace("views", 1, tensors, operators)).live_bytes
        assert live.tolist() == [340.0, 430.0, 400.0, 407.0, 300.0]


class TestPlan:
    def test_what_is_needed_last_leaves(self) -> None:
        # Forward 3 has a2 and a3; of a0 and a1, which must both leave for a room of two, a0 is needed last.
        plan = plan_offload(lifetimes(chain(4)), Offload(capacity_bytes=2 * SIZE, tiers=(FAST,)), 1)
        assert [(move.out_after, move.out_by, move.back_by) for move in plan.moves] == [(2, 3, 7), (1, 2, 8)]

    def test_weights_never_leave_however_long_they_are_not_needed(self) -> None:
        # Only the first layer reads the weight, which is larger than what it makes, at the beginning and at the end.
        live = lifetimes(chain(4, weight_bytes=2 * SIZE, is_shared=False))
        plan = plan_offload(live, Offload(capacity_bytes=5 * SIZE, tiers=(FAST,)), 1)
        assert plan.moves
        assert live.can_move[[move.storage for move in plan.moves]].all()

    def test_it_comes_back_as_soon_as_there_is_room(self) -> None:
        # Room of three: a0 leaves for a3. Backward 3 and its a3 are through after operator 5, from when on there is room.
        (move,) = plan_offload(lifetimes(chain(4)), Offload(capacity_bytes=3 * SIZE, tiers=(FAST,)), 1).moves
        assert (move.out_after, move.out_by, move.back_after, move.back_by) == (1, 3, 5, 8)

    def test_nothing_leaves_where_everything_fits(self) -> None:
        plan = plan_offload(lifetimes(chain(4)), Offload(capacity_bytes=4 * SIZE, tiers=(FAST,)), 1)
        assert plan.moves == ()
        assert plan.tier_peak_bytes == (0.0,)

    def test_the_second_tier_takes_what_the_first_has_no_room_for(self) -> None:
        tiers = (
            MemoryTier(name="host", bandwidth_bytes_per_s=1e12, capacity_bytes=SIZE),
            MemoryTier(
                name="pool", bandwidth_bytes_per_s=1e12, shared_bytes_per_s=1e12, capacity_bytes=4 * SIZE
            ),
        )
        plan = plan_offload(lifetimes(chain(5)), Offload(capacity_bytes=2 * SIZE, tiers=tiers), 2)
        assert sorted(move.tier for move in plan.moves) == [0, 1, 1]
        assert plan.tier_peak_bytes == (SIZE, 2 * SIZE)
        with pytest.raises(InputError, match=r"no room for 100 bytes of tensor 'a\d'"):
            plan_offload(lifetimes(chain(5)), Offload(capacity_bytes=2 * SIZE, tiers=tiers), 4)

    def test_a_memory_below_what_one_operator_needs_is_refused(self) -> None:
        with pytest.raises(
            InputError, match=r"capacity_bytes = 239: must be at least 240: operator 1 needs most"
        ):
            made(chain(3, weight_bytes=40.0), 239.0, FAST)

    @pytest.mark.parametrize("capacity_bytes", [5.0, 49.0, 69.0, 89.0])
    def test_a_refusal_names_the_size_that_is_enough_for_all_operators(self, capacity_bytes: float) -> None:
        # 40 of weights stay; the operators touch 10, then 20, then 30 and 20 together: the last needs 90.
        sizes = {"a": 10.0, "b": 20.0, "c": 30.0}
        tensors = [TensorRecord(id=name, num_bytes=size) for name, size in sizes.items()]
        tensors.append(TensorRecord(id="w", num_bytes=40.0, category=Category.PARAMETER))
        operators = [
            OperatorRecord(name="x", phase=Phase.FORWARD, duration_s=1.0, inputs=("w",), outputs=("a",)),
            OperatorRecord(name="x", phase=Phase.FORWARD, duration_s=1.0, inputs=("w",), outputs=("b",)),
            OperatorRecord(name="x", phase=Phase.FORWARD, duration_s=1.0, inputs=("b",), outputs=("c",)),
            OperatorRecord(name="x", phase=Phase.BACKWARD, duration_s=1.0, inputs=("w", "a")),
        ]
        trace = build_trace("growing", 1, tensors, operators)
        given = f"capacity_bytes = {capacity_bytes:.0f}: "
        with pytest.raises(InputError, match=f"{given}must be at least 90: operator 2 needs most"):
            made(trace, capacity_bytes, FAST)
        assert made(trace, 90.0, FAST).offload is not None

    def test_a_refusal_shows_the_size_as_it_was_given(self) -> None:
        with pytest.raises(
            InputError, match="capacity_bytes = 5,000,000,000: must be at least 9,000,000,000: "
        ):
            made(chain(3, weight_bytes=9e9 - 200.0), 5e9, FAST)

    @given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.floats(0.3, 1.0))
    def test_memory_is_never_exceeded_and_all_is_there_when_it_is_needed(
        self, seed: int, num_tensors: int, fraction: float
    ) -> None:
        random = np.random.default_rng(seed)
        sizes = random.uniform(1.0, 100.0, num_tensors)
        tensors = [TensorRecord(id=str(number), num_bytes=size) for number, size in enumerate(sizes.tolist())]
        operators = [
            OperatorRecord(name="make", phase=Phase.FORWARD, duration_s=1.0, outputs=(str(number),))
            for number in range(num_tensors)
        ]
        operators += [
            OperatorRecord(
                name="use",
                phase=Phase.BACKWARD,
                duration_s=1.0,
                inputs=tuple(map(str, random.choice(num_tensors, size=min(2, num_tensors), replace=False))),
            )
            for _ in range(2 * num_tensors)
        ]
        trace = build_trace("random", 1, tensors, operators)
        needed = lifetimes(trace)
        alone = max(
            sum(size for size, uses in zip(needed.num_bytes, needed.touches, strict=True) if operator in uses)
            for operator in range(len(trace))
        )
        capacity = max(alone, fraction * needed.peak_bytes)
        step = made(
            trace, capacity, MemoryTier(name="host", bandwidth_bytes_per_s=random.uniform(5.0, 500.0))
        )
        plan = step.offload
        assert plan is not None
        here = np.zeros((len(needed.touches), len(trace)), dtype=bool)
        for storage, row in enumerate(here):
            row[needed.first[storage] : needed.last[storage] + 1] = True
        for move in plan.moves:
            here[move.storage, move.out_by : move.back_after + 1] = False
        for storage, uses in enumerate(needed.touches):
            assert here[storage, uses].all()
        assert (needed.num_bytes @ here <= capacity * (1 + 1e-12)).all()
        assert plan.live_bytes == pytest.approx(needed.num_bytes @ here)
        result = played(step)
        assert result.makespan_s >= len(trace) - 1e-9
        moved = sum(move.num_bytes for move in plan.moves)
        names = step.graph.labels
        for label in (OUT, BACK) if plan.moves else ():
            is_copy = step.graph.label == names.index(label)
            assert step.graph.num_bytes[is_copy].sum() == pytest.approx(moved)


class TestTime:
    def test_copies_hide_behind_computing_where_the_link_is_wide(self) -> None:
        # a0 has operator 2 to leave in, and operators 6 and 7 to come back in.
        step = made(chain(4), 3 * SIZE, MemoryTier(name="host", bandwidth_bytes_per_s=SIZE))
        assert played(step).makespan_s == pytest.approx(8.0)

    def test_operators_wait_for_copies_over_a_narrow_link(self) -> None:
        # Room of two, 2 s a copy. a0 leaves from 2 s to 4, when forward 2 begins; it ends at 5. backward 2 is through
        # at 6, from when on there is room for a0, which is back at 8; backward 1 has run beside that. 9 s in all.
        step = made(chain(3), 2 * SIZE, MemoryTier(name="host", bandwidth_bytes_per_s=SIZE / 2))
        assert played(step).makespan_s == pytest.approx(9.0)

    def test_latency_comes_on_top_of_every_copy(self) -> None:
        tier = MemoryTier(name="host", bandwidth_bytes_per_s=SIZE / 2, latency_s=0.25)
        assert played(made(chain(3), 2 * SIZE, tier)).makespan_s == pytest.approx(9.5)

    def test_host_links_are_not_shared_and_a_pool_is(self) -> None:
        # Four replicas through a pool that is twice as wide as the link of one: each has half of its link.
        host = MemoryTier(name="host", bandwidth_bytes_per_s=SIZE)
        pool = MemoryTier(name="pool", bandwidth_bytes_per_s=SIZE, shared_bytes_per_s=2 * SIZE)
        alone_s = played(made(chain(3), 2 * SIZE, host)).makespan_s
        assert played(made(chain(3), 2 * SIZE, host, replicas=4)).makespan_s == pytest.approx(alone_s)
        shared_s = played(made(chain(3), 2 * SIZE, pool, replicas=4)).makespan_s
        assert shared_s == pytest.approx(9.0)

    @settings(max_examples=20)
    @given(st.integers(2, 8), st.integers(2, 8), st.floats(0.1, 100.0))
    def test_a_step_takes_no_less_than_its_copies_and_no_more_than_both_in_turn(
        self, num_layers: int, room: int, copy_s: float
    ) -> None:
        tier = MemoryTier(name="host", bandwidth_bytes_per_s=SIZE / copy_s)
        step = made(chain(num_layers), room * SIZE, tier)
        assert step.offload is not None
        num_moves = len(step.offload.moves)
        assert num_moves == max(0, num_layers - room)
        took_s = played(step).makespan_s
        assert took_s >= max(2.0 * num_layers, num_moves * copy_s) - 1e-9
        assert took_s <= 2.0 * num_layers + 2.0 * num_moves * copy_s + 1e-9


class TestTiers:
    def test_no_traffic_between_accelerators_passes_through_memory(self) -> None:
        wide = MemoryTier(name="pool", bandwidth_bytes_per_s=1e15, shared_bytes_per_s=1e15)
        topology = with_tiers(ring(8, 1e9, 1e-3), (wide,)).topology
        router = Router(topology)
        (path,) = router.paths([0], [4])
        names = [topology.link_name(int(link)) for link in router.table().links_of(int(path))]
        assert len(names) == 4
        assert not any("pool" in name for name in names)

    def test_memory_stands_beside_a_network_of_circuits(self) -> None:
        trace = chain(3)
        network = photonic(2, 1e12, 0.0, num_ports=1, set_up_s=0.0)
        offload = Offload(
            capacity_bytes=2 * SIZE, tiers=(MemoryTier(name="host", bandwidth_bytes_per_s=SIZE),)
        )
        step = extrapolate(trace, Parallelism(data_parallel=2), network, offload=offload)
        assert played(step).makespan_s == pytest.approx(7.0)

    @pytest.mark.parametrize(
        "parallelism",
        [Parallelism(tensor_parallel=2), Parallelism(pipeline_parallel=2), Parallelism(num_microbatches=2)],
        ids=["tensor", "pipeline", "micro-batches"],
    )
    def test_replicas_must_be_whole(self, parallelism: Parallelism) -> None:
        offload = Offload(capacity_bytes=1e9, tiers=(FAST,))
        with pytest.raises(InputError, match="replicas are whole"):
            extrapolate(chain(4), parallelism, switch(2, 1.0, 0.0), offload=offload)

    def test_every_replica_is_played_even_if_all_are_alike(self) -> None:
        offload = Offload(capacity_bytes=2 * SIZE, tiers=(FAST,))
        whole = made(chain(4), 2 * SIZE, FAST, replicas=2)
        asked = extrapolate(
            chain(4), Parallelism(data_parallel=2), switch(2, 1e12, 0.0), offload=offload, is_folded=True
        )
        assert asked.fold is None
        assert len(asked.graph) == len(whole.graph)

    def test_sharded_replicas_are_refused(self) -> None:
        offload = Offload(capacity_bytes=1e9, tiers=(FAST,))
        parallelism = Parallelism(data_parallel=2, sync=GradientSync.SHARDED)
        with pytest.raises(InputError, match="sync = sharded: must be left out"):
            extrapolate(chain(4), parallelism, switch(2, 1.0, 0.0), offload=offload)

    @pytest.mark.parametrize(
        ("tier", "rule"),
        [
            (MemoryTier(name="host", bandwidth_bytes_per_s=0.0), "host.bandwidth_bytes_per_s = 0.0"),
            (MemoryTier(name="host", bandwidth_bytes_per_s=np.inf), "host.bandwidth_bytes_per_s = inf"),
            (
                MemoryTier(name="pool", bandwidth_bytes_per_s=1.0, shared_bytes_per_s=np.nan),
                "pool.shared_bytes_per_s = nan",
            ),
            (MemoryTier(name="host", bandwidth_bytes_per_s=1.0, latency_s=-1.0), "host.latency_s = -1.0"),
        ],
    )
    def test_impossible_tiers_are_refused(self, tier: MemoryTier, rule: str) -> None:
        with pytest.raises(InputError, match=rule):
            with_tiers(switch(2, 1.0, 0.0), (tier,))
