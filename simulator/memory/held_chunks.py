"""How many chunks of micro-batches does a stage hold at most, and how large are they when chunks differ?

Interleaved stages hold more of their first chunks than of their last ones. The first of p stages holds N + p - 1 micro-batches
of its first chunk and N of each other chunk, where N is the group size, p unless the plan says otherwise. Where all chunks have
the same number of layers, the total is this count times the mean size.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simulator.compiled import compiled, inner
from simulator.domain.plan import Plan, PlanTable, Schedule, interleaved_groups
from simulator.pipeline.shape import DUAL_PIPE_V, ONE_F_ONE_B, PipelineShape, num_directions, turns_back
from simulator.pipeline.turns import fill_turns, turns_of_stages
from simulator.table import Floats, Integers

NUM_ROUNDS = 3
"""Rounds of N micro-batches until a stage holds most: after fewer than v + 1 passes of N through its v chunks, of which a
round has v, its order repeats itself every round, until a smaller last one."""
ALIKE_FRACTION = 1e-9
"""Chunks count as alike if they differ by no more than rounding."""


def most_held(plans: PlanTable, num_micro_batches: Integers, stage: Integers) -> Integers:
    """Returns the maximum number of (micro-batch, chunk) activations that a stage holds, `(n,)`.

    1F1B: min(p - r, m). Interleaved: warm-up 2 (p - r - 1) + (v - 1) N forwards and the one that follows, at most m v
    (Narayanan et al., arXiv 2104.04473, section 2.2, N = p; `get_pp_rank_microbatches` of Megatron Core). GPipe: m v.
    ZB-H1: min(p, m), ZB-V: min(2 p - r - 1, m) of its first chunk beside min(r + 1, m) of its second one, which are 2 p with
    2 p - 1 micro-batches, where activations are kept until their weight gradients are computed (Qi et al., arXiv 2401.10241).
    DualPipeV: 2 p + 1 on every stage, as one of a pair is taken up before the other one is let go (DeepSeek-V3, arXiv
    2412.19437, table 2: p + 1, of a model in p chunks).
    Twice the stages hold more layers in flight where ceil(L / p) does not halve: 3 of 17 layers on 8 stages, 2 on 16.
    """
    p, v, schedule = plans.pipeline_parallel, plans.virtual_pipeline, plans.pipeline_schedule
    num_all = num_micro_batches * v
    warm_up = np.where(v > 1, 2 * (p - stage - 1) + (v - 1) * interleaved_groups(plans), p - stage - 1)
    most = {
        Schedule.ONE_F_ONE_B: warm_up + 1,
        Schedule.GPIPE: num_all,
        Schedule.ZB_H1: p,
        Schedule.ZB_V: np.minimum(2 * p - stage - 1, num_micro_batches)
        + np.minimum(stage + 1, num_micro_batches),
        Schedule.DUAL_PIPE_V: 2 * p + 1,
    }
    return np.asarray(np.minimum(np.choose(schedule, [most[choice] for choice in Schedule]), num_all))


def held_ratio(plans: PlanTable, num_micro_batches: Integers, chunk_bytes: Floats, stage: Integers) -> Floats:
    """Returns the most bytes that a stage holds, over the same number of chunks of mean size.

    Args:
        plans: `(n,)` designs.
        num_micro_batches: of a step, `(n,)`.
        chunk_bytes: what each chunk keeps of a micro-batch, `(n, C)`.
        stage: the stage of each design, `(n,)`, or s stages, `(s, n)`; results have the same shape.
    """
    ratios = np.ones(stage.shape)
    if np.any(plans.virtual_pipeline > 1):
        _fill_ratios(
            plans.pipeline_schedule,
            plans.pipeline_parallel,
            plans.virtual_pipeline,
            num_micro_batches,
            interleaved_groups(plans),
            np.ascontiguousarray(chunk_bytes),
            np.atleast_2d(np.ascontiguousarray(stage)),
            np.atleast_2d(ratios),
        )
    return ratios


def held_at_moments(plan: Plan, num_micro_batches: int) -> Integers:
    """Returns how many micro-batches of every chunk are held, `(K, C)`, at K moments of each stage.

    Whatever chunks keep, the peak is at one of these moments: while a stage steadily takes up one chunk and releases another,
    memory changes in one direction, so that only the first and the last moment count.
    """
    p, v = plan.pipeline_parallel, plan.virtual_pipeline
    if v == 1:
        plans = PlanTable.from_plans([plan]).take(np.zeros(p, dtype=np.intp))
        return most_held(plans, np.full(p, num_micro_batches), np.arange(p))[None, :]
    group = plan.interleaved_group_size or p
    shape = _shortened(PipelineShape(plan.pipeline_schedule.code, p, p * v, num_micro_batches, group))
    found = [_moments(shape, own) for own in turns_of_stages(shape)]
    most = max(map(len, found))
    moments = [own[np.minimum(np.arange(most), len(own) - 1)] for own in found]
    return np.asarray(np.sum(moments, axis=0), dtype=np.int64)


def _moments(shape: PipelineShape, turns: npt.NDArray[np.int32]) -> Integers:
    """What one stage holds after forwards, `(k, C)`, without moments at which another one holds no less of any chunk."""
    c, last_way = shape.num_chunks, num_directions(shape.schedule) - 1
    is_forward = turns < c
    steps = np.zeros((len(turns), c), dtype=np.int64)
    steps[np.arange(len(turns)), turns % c] = is_forward.astype(np.int64) - (turns >= last_way * c)
    held = np.cumsum(steps, axis=0)[is_forward]
    is_same_way = np.all(np.diff(held, n=2, axis=0) == 0, axis=1)
    held = np.unique(held[~np.pad(is_same_way, 1)[: len(held)]], axis=0)
    is_within = np.all(held[:, None] <= held[None], axis=2) & ~np.eye(len(held), dtype=np.bool_)
    return np.asarray(held[~is_within.any(axis=1)])


@inner
def _shortened(shape: PipelineShape) -> PipelineShape:
    """Returns the shape with only `NUM_ROUNDS` rounds, and the last one where that is smaller."""
    m, group = shape.num_micro_batches, shape.group_size
    num_played = min(m, NUM_ROUNDS * shape.num_stages)
    if shape.schedule == ONE_F_ONE_B:
        num_played = m - max(0, m // group - NUM_ROUNDS) * group
    return PipelineShape(shape.schedule, shape.num_stages, shape.num_chunks, num_played, group)


@compiled
def _fill_ratios(
    schedules: Integers,
    num_stages: Integers,
    chunks_per_stage: Integers,
    num_micro_batches: Integers,
    group_sizes: Integers,
    chunk_bytes: Floats,
    stages: Integers,
    ratios: Floats,
) -> None:
    for row in range(len(schedules)):
        schedule, p, v = schedules[row], num_stages[row], chunks_per_stage[row]
        # Layouts without a schedule come here, too.
        if v == 1 or (schedule != ONE_F_ONE_B and not (turns_back(schedule) and v == 2)):
            continue
        if schedule == DUAL_PIPE_V and num_micro_batches[row] < 2 * p:
            continue
        shape = _shortened(PipelineShape(schedule, p, p * v, num_micro_batches[row], group_sizes[row]))
        for place in range(len(stages)):
            if place > 0 and stages[place, row] == stages[place - 1, row]:
                ratios[place, row] = ratios[place - 1, row]
            elif _has_unlike_chunks(shape, stages[place, row], chunk_bytes[row]):
                ratios[place, row] = _ratio(shape, stages[place, row], chunk_bytes[row])


@inner
def _own_chunk(shape: PipelineShape, stage: int, place: int) -> int:
    """Returns one of the chunks of a stage, counted from 0."""
    if turns_back(shape.schedule) and place == 1:
        return shape.num_chunks - 1 - stage
    return stage + place * shape.num_stages


@inner
def _has_unlike_chunks(shape: PipelineShape, stage: int, chunk_bytes: Floats) -> bool:
    least = most = chunk_bytes[stage]
    for place in range(1, shape.num_chunks // shape.num_stages):
        own = chunk_bytes[_own_chunk(shape, stage, place)]
        least, most = min(least, own), max(most, own)
    return bool(most - least > ALIKE_FRACTION * most)


@inner
def _ratio(shape: PipelineShape, stage: int, chunk_bytes: Floats) -> float:
    v, mean = shape.num_chunks // shape.num_stages, 0.0
    for place in range(v):
        mean += chunk_bytes[_own_chunk(shape, stage, place)] / v
    if turns_back(shape.schedule):
        most_bytes, num_held = _played(shape, stage, chunk_bytes)
    else:
        most_bytes, num_held = _in_turn(shape, stage, chunk_bytes)
    return float(most_bytes / (num_held * mean)) if num_held > 0 else 1.0


@inner
def _in_turn(shape: PipelineShape, stage: int, chunk_bytes: Floats) -> tuple[float, int]:
    """Peak bytes and chunks of a stage under 1F1B, which runs through each chunk N micro-batches at a time.

    After the warm-up, forwards of one run alternate with backwards of another, so memory rises or falls steadily until one of
    the two runs ends. Once all runs have met they repeat, unless the last ones are shorter.
    """
    p, v = shape.num_stages, shape.num_chunks // shape.num_stages
    num_forwards = shape.num_micro_batches * v
    n, num_left = shape.group_size, shape.num_micro_batches % shape.group_size
    num_held = min(2 * (p - 1 - stage) + (v - 1) * n + 1, num_forwards)
    num_rounds = num_held // (n * v)
    own_round = n if num_rounds < shape.num_micro_batches // n else num_left
    held = 0.0
    for place in range(v):
        num_own = num_rounds * n + min(max(num_held - num_rounds * n * v - place * own_round, 0), own_round)
        held += num_own * chunk_bytes[stage + place * p]
    most_bytes, done = held, 0
    num_unlike = num_forwards - num_held
    while done < (min(n * v, num_unlike) if num_left == 0 else num_unlike):
        begun = num_held + done
        taken_up, forwards_left = _run(shape, begun)
        place, backwards_left = _run(shape, done)
        run, let_go = min(forwards_left, backwards_left, num_forwards - begun), v - 1 - place
        held += run * (chunk_bytes[stage + taken_up * p] - chunk_bytes[stage + let_go * p])
        most_bytes = max(most_bytes, held)
        done += run
    return most_bytes, num_held


@inner
def _run(shape: PipelineShape, number: int) -> tuple[int, int]:
    """Returns the place of a pass's chunk within its stage, counted from 0, and how many passes in turn remain for it."""
    v, n = shape.num_chunks // shape.num_stages, shape.group_size
    in_last_round = number - shape.num_micro_batches // n * n * v
    if in_last_round < 0:
        return number // n % v, n - number % n
    num_left = shape.num_micro_batches % n
    return in_last_round // num_left, num_left - in_last_round % num_left


@inner
def _played(shape: PipelineShape, stage: int, chunk_bytes: Floats) -> tuple[float, int]:
    """Peak for any order: a forward adds its chunk, the last operation of its backward releases it."""
    c, num_ways = shape.num_chunks, num_directions(shape.schedule)
    turns = np.empty(num_ways * c // shape.num_stages * shape.num_micro_batches, dtype=np.int32)
    fill_turns(shape, stage, turns)
    held = most_bytes = 0.0
    num_held = most_chunks = 0
    for kind in turns:
        if kind < c:
            num_held += 1
            held += chunk_bytes[kind]
            most_bytes, most_chunks = max(most_bytes, held), max(most_chunks, num_held)
        elif kind >= (num_ways - 1) * c:
            num_held -= 1
            held -= chunk_bytes[kind % c]
    return most_bytes, most_chunks
