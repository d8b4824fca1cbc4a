"""How long does a run wait for other nodes where waits decide when nodes fail? The pool of spares, played on its own.

Where a wait takes as long as the up-time between failures, failures are no more independent of each other: nothing fails
while the run waits, nodes that failed in turn come back in turn, and wait for each other again. No closed form is known to
us; so failures, waits and returns are played as in the event loop (`simulator.run.pool`), without saves and work. Ways back
take their means. Every design meets the same luck, so that more spares mean shorter waits in all but a few draws.
"""

from __future__ import annotations

import numpy as np

from simulator.compiled import compiled
from simulator.run.columns import MAX_NODES_IN_REPAIR, Runs
from simulator.run.draws import UP_TIME, exponential, luck_of
from simulator.run.kernel import kind_of
from simulator.run.pool import replacement_wait_s
from simulator.run.state import STATE, FloatArray, Records, designs_of
from simulator.table import Floats

MOST_OF_A_RUN = 1024
"""Interruptions that are played of a run that has more."""
NUM_RUNS = 8.0
"""Runs of so many interruptions, or more short ones, that are played of each design: long after a run began it depends on how,
as nodes that failed together come back together."""
LEAST_RUNS, RUNS_PER_SHARE = 2.0, 32.0
"""Of a design without spares, which are never left: two, and more where the queue takes longer, so many per repair."""
SEED = 1


def played_wait_s(runs: Runs, expected_s: Floats) -> Floats:
    """Returns the mean wait after each kind of interruption, `(n, 4)`.

    Runs of which a part is played count from the middle of it on, when the pool was full long ago.

    Args:
        runs: the runs.
        expected_s: waits after kinds that did not occur, `(n, 4)`.
    """
    back_s = (
        runs.kind_restart_s
        + runs.kind_fast_survival * runs.fast_load_s[:, None]
        + (1.0 - runs.kind_fast_survival) * runs.durable_load_s[:, None]
    )
    sums_s, numbers = np.zeros(back_s.shape), np.zeros(back_s.shape)
    _play_pools(designs_of(runs), runs.work_s, back_s, sums_s, numbers)
    return np.divide(sums_s, numbers, out=expected_s.copy(), where=numbers > 0.0)


@compiled
def _play_pools(
    designs: Records, work_s: FloatArray, back_s: FloatArray, sums_s: FloatArray, numbers: FloatArray
) -> None:
    """Adds up waits and their numbers by kind, `(n, 4)`."""
    states, unplayed = np.zeros(1, dtype=STATE), np.zeros(1, dtype=STATE)
    returns_s = np.zeros(MAX_NODES_IN_REPAIR)
    for row in range(len(designs)):
        design, state = designs[row], states[0]
        is_part = work_s[row] >= MOST_OF_A_RUN * design.mtbf_s
        num_runs = NUM_RUNS
        if design.num_spares == 0.0:
            num_runs = min(max(RUNS_PER_SHARE * design.queue_wait_s / design.repair_s, LEAST_RUNS), NUM_RUNS)
        num_left, replication = int(MOST_OF_A_RUN * num_runs), 0
        while num_left > 0:
            states[0] = unplayed[0]
            state.spares_left = design.num_spares
            luck = luck_of(SEED, replication)
            up_s = now_s = 0.0
            for index in range(min(num_left, MOST_OF_A_RUN) if is_part else num_left):
                unit_s = design.mtbf_s * exponential(luck, UP_TIME, index)
                up_s += unit_s
                if not is_part and up_s >= work_s[row]:
                    break
                now_s += unit_s
                kind = kind_of(design, luck, index, 1.0)
                wait_s = replacement_wait_s(design, design.kind_nodes[kind], now_s, state, returns_s)
                now_s += wait_s + back_s[row, kind]
                num_left -= 1
                if not is_part or 2 * index >= MOST_OF_A_RUN:
                    sums_s[row, kind] += wait_s
                    numbers[row, kind] += 1.0
            replication += 1
            num_left -= 1  # runs without any interruption end, too
