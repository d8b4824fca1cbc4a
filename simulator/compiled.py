"""How does a Python function become machine code? Numba's decorators, as the kernels use them.

Compiled code is kept in `__pycache__` beside its module, until that module changes; whoever changes another one that
it calls deletes it. No `fastmath`: the same inputs give the same bytes.

What only compiled code calls is `inner`: it has no way in from Python, whose code to take tuples of many arrays apart takes
longer to compile than most functions do. It is compiled with what calls it, once for all integers, and kept there; called
from Python it is a Python function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit
from numba.extending import register_jitable

_Function = TypeVar("_Function", bound=Callable[..., object])
_UNCOUNTED: dict[str, Any] = {"_nrt": False}  # without Numba's runtime, which counts references
_ENTRY: dict[str, Any] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True}  # nor a way in from C
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: _Function) -> _Function:
    """Compiles `function` at its first call and keeps its type for the checker."""
    return cast(_Function, njit(**_ENTRY)(function))


def inlined(function: _Function) -> _Function:
    """As `compiled`, but copied into its callers: a call per event would cost more than the event."""
    return cast(_Function, njit(**_ENTRY, inline="always")(function))


def inner(function: _Function) -> _Function:
    """As `compiled`, for what only compiled code calls."""
    return register_jitable(**_INNER)(function)


def compiled_uncounted(function: _Function) -> _Function:
    """As `compiled`, for kernels that read arrays from tuples of them and allocate nothing.

    Without it every look at such an array counts a reference, which would take most of the time.
    """
    return cast(_Function, njit(**_ENTRY, **_UNCOUNTED)(function))


def inner_uncounted(function: _Function) -> _Function:
    """As `compiled_uncounted`, for what only compiled code calls."""
    return register_jitable(**_INNER, **_UNCOUNTED)(function)


def inlined_uncounted(function: _Function) -> _Function:
    """As `inner_uncounted`, but copied into its callers as machine code: a call would hand on each array of the tuples."""
    return register_jitable(**_INNER, forceinline=True, **_UNCOUNTED)(function)
