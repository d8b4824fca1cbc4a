"""Can Numba compile with the settings of this environment? If not, which variable must change?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from simulator.errors import InputError, Problem

_RULES: Final = {
    "NUMBA_NUM_THREADS": (
        re.compile(r"\s*\+?0*[1-9]\d*\s*"),
        "must be a whole number above 0, or unset for one thread a core",
    ),
    "NUMBA_DISABLE_JIT": (
        re.compile(r"\s*[+-]?0+\s*"),
        "must be 0 or unset, since the simulator runs as compiled code only",
    ),
    "NUMBA_THREADING_LAYER": (
        re.compile(r"default|safe|threadsafe|forksafe|omp|tbb|workqueue"),
        "must be default, safe, threadsafe, forksafe, omp, tbb or workqueue, or unset",
    ),
}
"""By variable, what it may be, and the rule. Numba would fail with a traceback, or far from the variable."""


def check_numba_settings(environment: Mapping[str, str]) -> None:
    """Raises `InputError` for variables with which Numba cannot run the simulator.

    Example:
        >>> check_numba_settings({"NUMBA_NUM_THREADS": "2"})
    """
    problems = [
        Problem(path=name, value=repr(environment[name]), rule=rule)
        for name, (allowed, rule) in _RULES.items()
        if name in environment and not allowed.fullmatch(environment[name])
    ]
    if problems:
        raise InputError(problems, "environment")
