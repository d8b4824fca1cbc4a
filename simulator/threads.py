"""How do several cores share work? A thread each: NumPy and compiled kernels let go of the interpreter while they compute.

Numba's own loops on several threads would do the same, but each is compiled with all that it calls, once more: the step and the
run would be compiled three times when they are used first.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from numba import get_num_threads, set_num_threads

Item = TypeVar("Item")
Result = TypeVar("Result")


def on_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Returns what a function makes of each item, on as many threads as Numba may use; kernels in it have one thread each.

    Whatever a call raises is raised here. Threads pay where arrays are long: NumPy and compiled kernels let go of the
    interpreter for those alone.
    """
    num_threads = min(get_num_threads(), len(items))
    if num_threads < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(num_threads, initializer=set_num_threads, initargs=(1,)) as pool:
        calls = [pool.submit(contextvars.copy_context().run, function, item) for item in items]
        return [call.result() for call in calls]
