"""How is a wait of many accelerators told in one sentence?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner import human


def waits_of_all(
    seconds: Sequence[float], what: str, *, name: Callable[[int], str], least_s: float
) -> str | None:
    """Returns how long accelerators wait for something, `None` where none does for as long as `least_s`.

    Args:
        seconds: the wait of each.
        what: what they wait for.
        name: what an accelerator is called, by its place.
        least_s: what is less is not spoken of.
    """
    most = max(range(len(seconds)), key=seconds.__getitem__)
    longest = human.duration(seconds[most])
    if seconds[most] < least_s:
        return None
    if len(seconds) == 1:
        return f"{name(0).capitalize()} waits {longest} for {what}."
    if seconds[most] - min(seconds) < least_s:
        return f"Each accelerator waits {longest} for {what}."
    mean = human.duration(sum(seconds) / len(seconds))
    return f"Accelerators wait {mean} for {what} on average; {name(most)} longest, {longest}."
