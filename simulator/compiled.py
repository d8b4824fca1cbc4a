"""How does a Python function become machine code? Numba's decorators, as the kernels use them.

Compiled code is kept in `__pycache__` beside its module, until that module changes; whoever changes another one that
it calls deletes it. No `fastmath`: the same inputs give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., object])
_UNCOUNTED: dict[str, Any] = {"_nrt": False}  # without Numba's runtime, which counts references


def compiled(function: _Function) -> _Function:
    """Compiles `function` at its first call and keeps its type for the checker."""
    return cast(_Function, njit(cache=True, nogil=True)(function))


def inlined(function: _Function) -> _Function:
    """As `compiled`, but copied into its callers: a call per event would cost more than the event."""
    return cast(_Function, njit(cache=True, nogil=True, inline="always")(function))


def compiled_parallel(function: _Function) -> _Function:
    """As `compiled`, with the iterations of `numba.prange` on several threads."""
    return cast(_Function, njit(cache=True, nogil=True, parallel=True)(function))


def compiled_uncounted(function: _Function) -> _Function:
    """As `compiled`, for kernels that read arrays from tuples of them and allocate nothing.

    Without it every look at such an array counts a reference, which would take most of the time.
    """
    return cast(_Function, njit(cache=True, nogil=True, **_UNCOUNTED)(function))


def inlined_uncounted(function: _Function) -> _Function:
    """As `compiled_uncounted`, but copied into its callers as machine code: a call would hand on each array of the tuples."""
    return cast(_Function, njit(cache=True, nogil=True, forceinline=True, **_UNCOUNTED)(function))
