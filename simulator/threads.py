"""How do several cores share work? One thread each: NumPy and compiled kernels release the GIL while they compute.

Numba's own parallel loops would do the same, but each is compiled again with everything that it calls: the step and the run
would be compiled three times at first use.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from numba import get_num_threads, set_num_threads

Item = TypeVar("Item")
Result = TypeVar("Result")


def num_parts(num_items: int, least: int) -> int:
    """Returns in how many parts items are shared among threads: each gets at least so many, and few items stay together."""
    return max(1, min(get_num_threads(), num_items // least))


def on_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Returns the results of a function for each item, on as many threads as Numba may use; kernels in it get one thread each.

    An exception in any call is raised here. Threads pay off if arrays are long, since only then the GIL is released.
    """
    num_threads = min(get_num_threads(), len(items))
    if num_threads < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(num_threads, initializer=set_num_threads, initargs=(1,)) as pool:
        calls = [pool.submit(contextvars.copy_context().run, function, item) for item in items]
        return [call.result() for call in calls]
