"""How are the waits of many accelerators summed up in one sentence?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from planner.text import human


def waits_of_all(
    seconds: Sequence[float],
    what: str,
    *,
    name: Callable[[int], str],
    least_s: float,
    weights: Sequence[float] | None = None,
) -> str | None:
    """Returns a sentence on how long accelerators wait for something; `None` if none waits as long as `least_s`.

    Args:
        seconds: the wait of each.
        what: what they wait for.
        name: gives the name of an accelerator by its position.
        least_s: shorter waits are not mentioned.
        weights: how many accelerators each stands for; default: one.
    """
    most = max(range(len(seconds)), key=seconds.__getitem__)
    longest = human.duration(seconds[most])
    if seconds[most] < least_s:
        return None
    if len(seconds) == 1:
        return f"{name(0).capitalize()} waits {longest} for {what}."
    mean = human.duration(float(np.average(seconds, weights=weights)))
    if seconds[most] - min(seconds) < least_s or mean == longest:
        return f"Each accelerator waits {longest} for {what}."
    return f"Accelerators wait {mean} for {what} on average; {name(most)} waits longest, {longest}."
