"""Does a stage wait for other stages between its operations, or for parameters from its replicas?

Played again without the traffic of the replicas, every operation ends earlier, by its *delay*. A stage that begins late has
less to wait for later, so later operations make up for most delays. What is never made up for, the *lasting* delay, is the
smallest delay from an operation on until all backwards have ended:

    lasting(k) = min(delay(k), delay(k + 1), ..., delay of the end)

As far as it grows from one operation to the next, the wait between them is for parameters; the rest is a bubble. The lasting
delay never falls, and grows by no more than the length of the wait, since a wait is longer than without traffic by the growth
of the delay. So every stage waits for parameters as long as they delay the end. `simulator.step.step` counts them the same way:
by how much longer the step is for them, whichever stage they hold up first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.step.step_events import EventKind, StepEvents, events_of
from simulator.table import Floats, Integers


@dataclass(frozen=True, kw_only=True)
class StageWork:
    """The operations of one stage in the order played, k of them; all shape `(k,)`."""

    start_s: Floats
    """When each begins to compute."""
    end_s: Floats
    free_s: Floats
    """When the stage is free again: behind its send, if sends block."""
    delay_s: Floats
    """By how much the traffic of the replicas delays its end."""


def waits_of(stage: int, work: StageWork, last_s: float, last_delay_s: float) -> StepEvents:
    """Returns what a stage waits for from the start of the step until all stages have ended their backwards.

    Args:
        stage: its number, for the events.
        work: its operations.
        last_s: when the last backward of any stage ends.
        last_delay_s: by how much the traffic of the replicas makes that later.
    """
    free_s = np.insert(work.free_s, 0, 0.0)
    start_s = np.append(work.start_s, last_s)
    longer_s = np.diff(_lasting_s(np.append(work.delay_s, last_delay_s)), prepend=0.0)
    gathered_s = np.minimum(free_s + longer_s, start_s)  # rounding must not make it later
    stages: Integers = np.full(len(start_s), stage)
    # Parameters are gathered before anything else, so that waits begin with them.
    return StepEvents.concatenate(
        [
            events_of(EventKind.PARAMETER_GATHER.code, stages, free_s, gathered_s),
            events_of(EventKind.BUBBLE.code, stages, gathered_s, start_s),
        ]
    )


def _lasting_s(delay_s: Floats) -> Floats:
    """Returns the part of every delay, `(k,)`, that nothing later makes up for."""
    return np.minimum.accumulate(delay_s[::-1])[::-1]
