"""How does a Python function become machine code? Numba's decorators in the forms that the kernels use.

Compiled code is cached in `__pycache__` beside its module until that module changes; after a change to another module that it
calls, the cache must be deleted by hand. If that folder cannot be written to, Numba keeps it in the home folder, or in
`NUMBA_CACHE_DIR`. There is no `fastmath`: the same inputs give the same bytes.

Functions that only compiled code calls are `inner`: they have no entry point from Python, because unpacking tuples of many
arrays there takes longer to compile than most functions do. They are compiled together with their callers, once for all
integers, and cached there; called from Python they run as Python functions.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.extending import register_jitable

from simulator.errors import CapplanError

_Function = TypeVar("_Function", bound=Callable[..., object])
_UNCOUNTED: dict[str, Any] = {"_nrt": False}  # without Numba's runtime, which counts references
_ENTRY: dict[str, Any] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True}  # nor an entry point from C
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: _Function) -> _Function:
    """Compiles `function` at its first call and preserves its type for the type checker."""
    return _cached(function)


def inlined(function: _Function) -> _Function:
    """As `compiled`, but inlined into its callers: a call per event would cost more than the event."""
    return _cached(function, inline="always")


def inner(function: _Function) -> _Function:
    """As `compiled`, for functions that only compiled code calls."""
    return register_jitable(**_INNER)(function)


def compiled_uncounted(function: _Function) -> _Function:
    """As `compiled`, for kernels that read arrays from tuples of them and allocate nothing.

    Otherwise every access to such an array would update a reference count, which would take most of the time.
    """
    return _cached(function, **_UNCOUNTED)


def inner_uncounted(function: _Function) -> _Function:
    """As `compiled_uncounted`, for functions that only compiled code calls."""
    return register_jitable(**_INNER, **_UNCOUNTED)(function)


def inlined_uncounted(function: _Function) -> _Function:
    """As `inner_uncounted`, but inlined into its callers as machine code: a call would pass on each array of the tuples."""
    return register_jitable(**_INNER, forceinline=True, **_UNCOUNTED)(function)


def _cached(function: _Function, **options: Any) -> _Function:  # noqa: ANN401  (options of Numba)
    try:
        return cast(_Function, njit(**_ENTRY, **options)(function))
    except RuntimeError as error:  # Numba has no folder for the cache
        beside = Path(function.__code__.co_filename).parent / "__pycache__"
        raise CapplanError(
            f"compiled code can be kept neither in {beside} nor in the home folder, which cannot be written to: "
            "set NUMBA_CACHE_DIR to a folder that can"
        ) from error
