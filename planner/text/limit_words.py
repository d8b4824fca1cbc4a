"""How is it told that designs are feasible? They meet all limits; those of a job without limits can be run."""

from __future__ import annotations

MEETS, MEET = "meets all limits", "meet all limits"
CAN_BE_RUN = "can be run"


def are_feasible(num_designs: int, *, has_limits: bool) -> str:
    """Returns what a number of feasible designs do: `meet all limits`, or `can be run` where the job sets no limit."""
    if not has_limits:
        return CAN_BE_RUN
    return MEETS if num_designs == 1 else MEET


def no_design(*, has_limits: bool) -> str:
    """Returns that there is no feasible design: `No design meets all limits`, with a capital."""
    return f"No design {are_feasible(1, has_limits=has_limits)}"
