"""Do the cuts that could be fast contain every one that is? Against pipelines without sends that are played pass by pass."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from constraints.cut_bounds import FastCuts, fast_cuts
from constraints.plan_costs import PlanCosts
from constraints.stage_balance import LayerCosts
from simulator.domain.plan import Schedule
from tests.constraints.test_best_cut import every_cut

FORWARD_S = np.array([1.0, 1.0, 2.0, 1.0, 3.0])
BACKWARD_S = np.array([2.0, 2.0, 3.0, 2.0, 5.0])
EMBEDDING_S = (1.0, 2.0)
OUTPUT_S = (3.0, 5.0)
"""Forward and backward pass of five layers and of the ends of the model."""
COSTS = PlanCosts(
    layers=LayerCosts(
        layer_s=FORWARD_S + BACKWARD_S,
        embedding_s=sum(EMBEDDING_S),
        output_s=sum(OUTPUT_S),
        layer_bytes=np.ones(5),
        activation_bytes=np.ones(5),
    ),
    layer_forward_s=FORWARD_S,
    num_held=np.array([[3, 2, 1]]),
    capacity_bytes=1e9,
    most_free_bytes=np.full(3, 1e9),
    turns_back=False,
)
SCHEDULES = [Schedule.GPIPE, Schedule.ONE_F_ONE_B]


def passes_s(cut: tuple[int, ...]) -> tuple[list[float], list[float]]:
    """Forward and backward pass of each stage."""
    ends = np.cumsum([0, *cut])
    both = []
    for way, layers_s in enumerate((FORWARD_S, BACKWARD_S)):
        stages_s = [float(layers_s[begin:end].sum()) for begin, end in pairwise(ends)]
        stages_s[0] += EMBEDDING_S[way]
        stages_s[-1] += OUTPUT_S[way]
        both.append(stages_s)
    return both[0], both[1]


def order_of(stage: int, m: int, schedule: Schedule) -> Iterator[tuple[bool, int]]:
    """Whether each pass of a stage is a forward one, and its micro-batch: all forwards first, or one after each backward."""
    num_first = m if schedule is Schedule.GPIPE else min(3 - stage, m)
    yield from ((True, number) for number in range(num_first))
    for number in range(m):
        yield False, number
        if num_first + number < m:
            yield True, num_first + number


def played_s(cut: tuple[int, ...], m: int, schedule: Schedule) -> float:
    """A step, each pass of which begins as soon as its stage and its micro-batch are free."""
    forward_s, backward_s = passes_s(cut)
    orders = [list(order_of(stage, m, schedule)) for stage in range(3)]
    done_s: dict[tuple[int, bool, int], float] = {}
    free_s = [0.0] * 3
    while any(orders):
        for stage, order in enumerate(orders):
            while order:
                is_forward, number = order[0]
                before = (stage - 1 if is_forward else stage + 1, is_forward, number)
                if not is_forward and stage == 2:
                    before = (2, True, number)
                if before[0] >= 0 and before not in done_s:
                    break
                begin_s = max(free_s[stage], done_s.get(before, 0.0))
                free_s[stage] = begin_s + (forward_s if is_forward else backward_s)[stage]
                done_s[stage, is_forward, number] = free_s[stage]
                order.pop(0)
    return max(free_s)


def fast(m: int, schedule: Schedule, step_s: float) -> FastCuts:
    return fast_cuts(COSTS, num_micro_batches=m, schedule=schedule, step_s=step_s)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("m", [1, 2, 3, 8])
def test_every_cut_is_among_those_that_could_be_as_fast_as_it_is(m: int, schedule: Schedule) -> None:
    cuts = list(every_cut(5, 3))
    assert len(cuts) == 15  # of 7 parts in 3 runs: 6 over 2
    for cut in cuts:
        assert list(cut) in fast(m, schedule, played_s(cut, m, schedule)).listed().tolist()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_cut_could_be_faster_than_all_passes_of_its_slowest_stage(schedule: Schedule) -> None:
    m = 8
    cuts = list(every_cut(5, 3))
    best_s = min(played_s(cut, m, schedule) for cut in cuts)
    slowest_s = {cut: m * max(map(sum, zip(*passes_s(cut), strict=True))) for cut in cuts}
    listed = set(map(tuple, fast(m, schedule, best_s).listed().tolist()))
    assert listed < set(cuts)
    assert all(slowest_s[cut] <= best_s for cut in listed)


def test_the_last_stage_of_gpipe_takes_as_long_as_its_bound() -> None:
    # It is the slowest, so it waits for the first micro-batch alone, and the last one has the way back before it.
    for cut in ((0, 1, 4), (1, 1, 3)):
        step_s = played_s(cut, 8, Schedule.GPIPE)
        *before_s, last_s = (sum(both) for both in zip(*passes_s(cut), strict=True))
        assert step_s == 8 * last_s + sum(before_s)
        assert list(cut) not in fast(8, Schedule.GPIPE, 0.999 * step_s).listed().tolist()
