"""Do the timers and the tournament of the player give things back in order, whatever is put in?"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.deep.networks.heap import first_key, set_key, set_keys, take_due
from simulator.deep.playing.timers import new_timers, next_timer, next_timer_s, set_timer

moments = st.lists(st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, 7.5]), min_size=1, max_size=40)


@given(moments, st.integers(0, 2**32 - 1), st.integers(0, 39))
def test_durations_end_in_the_order_of_their_times_and_then_of_their_tasks(
    ends_s: list[float], seed: int, num_first: int
) -> None:
    order = np.random.default_rng(seed).permutation(len(ends_s)).tolist()
    timers = new_timers(len(ends_s))
    first, rest = order[:num_first], order[num_first:]
    for task in first:
        set_timer(timers, task, ends_s[task])
    taken = [next_timer(timers)] if first else []
    expected = sorted(first, key=lambda task: (ends_s[task], task))[:1]
    for task in rest:
        set_timer(timers, task, ends_s[task])
    left = sorted(set(order) - set(taken), key=lambda task: (ends_s[task], task))
    while np.isfinite(next_timer_s(timers)):
        assert next_timer_s(timers) == ends_s[left[len(taken) - len(expected)]]
        taken.append(next_timer(timers))
    assert taken == expected + left


@given(st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_all_items_that_are_due_are_taken_in_order(num_items: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    size = 1 << (num_items - 1).bit_length()
    tournament, plain = np.full(2 * size, np.inf), np.full(num_items, np.inf)
    due = np.zeros(num_items, dtype=np.int64)
    for _ in range(12):
        changed = random.permutation(num_items)[: random.integers(num_items + 1)]
        plain[changed] = random.uniform(0.0, 10.0, len(changed))
        if random.integers(2):
            set_keys(tournament, changed, len(changed), plain)
        else:
            for item in changed.tolist():
                set_key(tournament, item, plain[item])
        assert first_key(tournament) == plain.min()
        until = random.uniform(0.0, 10.0)
        count = take_due(tournament, until, due)
        assert due[:count].tolist() == np.flatnonzero(plain <= until).tolist()
        plain[plain <= until] = np.inf
        assert first_key(tournament) == plain.min()
