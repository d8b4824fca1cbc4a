"""How is a result shared by many batches of one job computed only once? The latest arguments are remembered with it.

Jobs do not change, and comparing two of them takes longer than most computations on one. Arguments therefore count as the same
only if they are the same objects.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def remembering_latest(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Returns the function with its latest result cached for calls with the same positional objects.

    The result is returned without a copy: callers must not change it.
    """
    latest: list[tuple[tuple[object, ...], _Result]] = []

    @functools.wraps(function)
    def remembered(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        assert not kwargs, "only positional arguments are compared"
        for known, result in latest:
            if len(known) == len(args) and all(one is other for one, other in zip(known, args, strict=True)):
                return result
        result = function(*args, **kwargs)
        latest[:] = [(args, result)]  # at once, for other threads look here, too
        return result

    return remembered
