"""When do fields of a job matter, and why not otherwise?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.job import Job


@dataclass(frozen=True, kw_only=True)
class UnusedRule:
    """Fields that only matter where a job has something else."""

    is_used: Callable[[Job], bool]
    why: str
    """Why not, where it has not."""
    paths: tuple[str, ...]
