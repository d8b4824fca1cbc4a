"""What has to be done, and what waits for what? Tasks in columns, edges between them.

A task takes its `duration_s` on its resource; if it is a flow, it then moves `num_bytes` along a path. A resource (a stream of
an accelerator, say) does one task at a time, in the order in which they become ready. A task without duration, bytes and
resource is a join: it ends when the last of its predecessors has ended, or, where it may miss some of them, when all but that
many have. A task that is needed only `unless` another one has ended takes no time and moves nothing if that one ended first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.compiled import compiled
from simulator.errors import InputError, Problem, refusal
from simulator.table import Floats, Integers

NONE = -1
"""No path, no resource."""
MOST_TASKS = 16_000_000
"""Most tasks of a graph; more would take more than about 4 GB to play."""


@dataclass(frozen=True, kw_only=True)
class TaskGraph:
    """n tasks, and which of them wait for which."""

    duration_s: Floats
    """`(n,)` time on the resource; for a flow, the time until its first byte arrives."""
    num_bytes: Floats
    """`(n,)` bytes that a flow moves."""
    path: Integers
    """`(n,)` the path of a flow, or `NONE`."""
    resource: Integers
    """`(n,)` the resource of a task, which does one task at a time, or `NONE`."""
    label: Integers
    """`(n,)` position in `labels`."""
    labels: tuple[str, ...]
    """Labels of tasks; many tasks share one."""
    offsets: Integers
    """`(n + 1,)` where the successors of a task begin in `successors`."""
    successors: Integers
    num_predecessors: Integers
    """`(n,)` how many must have ended before a task is ready."""
    num_resources: int
    unless: Integers
    """`(n,)` task that makes this one superfluous if it has ended when this one begins, or `NONE`; empty: none does."""

    def __len__(self) -> int:
        return len(self.duration_s)

    def label_of(self, task: int) -> str:
        """Returns the label of a task."""
        return self.labels[int(self.label[task])]


_Number = TypeVar("_Number", np.float64, np.int64)
_NO_EDGES = (np.empty(0, np.int64), np.empty(0, np.int64))
_NO_TASKS = (np.empty(0), np.empty(0), *_NO_EDGES, np.empty(0, np.int64))


@dataclass
class TaskGraphBuilder:
    """Collects tasks in bulk; each call returns the numbers of what it added."""

    num_resources: int = 0
    way_out: str = "take fewer accelerators, micro-batches or messages"
    """What to do about too many tasks."""
    _columns: list[tuple[Floats, Floats, Integers, Integers, Integers]] = field(default_factory=list)
    _edges: list[tuple[Integers, Integers]] = field(default_factory=list)
    _misses: list[tuple[Integers, int]] = field(default_factory=list)
    _unless: list[tuple[Integers, Integers]] = field(default_factory=list)
    _labels: dict[str, int] = field(default_factory=dict)
    _num_tasks: int = 0

    def __len__(self) -> int:
        return self._num_tasks

    def add_resources(self, count: int) -> Integers:
        """Adds resources, which do one task at a time; returns their numbers `(count,)`."""
        first = self.num_resources
        self.num_resources += count
        return np.arange(first, first + count)

    def names(self, labels: Sequence[str]) -> Integers:
        """Returns the numbers of labels, `(k,)`, for use in `add`."""
        return np.array(
            [self._labels.setdefault(label, len(self._labels)) for label in labels], dtype=np.int64
        )

    def add(
        self,
        label: str | Integers,
        *,
        duration_s: ArrayLike = 0.0,
        num_bytes: ArrayLike = 0.0,
        path: ArrayLike = NONE,
        resource: ArrayLike = NONE,
        after: Sequence[ArrayLike] = (),
        unless: ArrayLike = NONE,
    ) -> Integers:
        """Adds tasks; the columns broadcast against each other and against each array of predecessors.

        Args:
            label: one label for all of them, or numbers from `names`, one for each.
            duration_s: time on the resource, or latency of a flow.
            num_bytes: bytes that flows move.
            path: numbers from a `Router`.
            resource: numbers from `add_resources`.
            after: predecessors, each an array that broadcasts to the tasks; `NONE` stands for no predecessor.
            unless: tasks that make these superfluous if they have ended when these begin; `NONE`: nothing does.
        """
        named = self.names([label]) if isinstance(label, str) else label
        figures, references = (duration_s, num_bytes), (path, resource, named, unless, *after)
        shape = _common_shape(*figures, *references)
        size = math.prod(shape)
        self.require_room(size)
        numbers = np.arange(self._num_tasks, self._num_tasks + size)
        duration, moved = (_filled(each, shape, np.float64) for each in figures)
        way, place, called, better, *before = (_filled(each, shape, np.int64) for each in references)
        self._columns.append((duration, moved, way, place, called))
        self._num_tasks += size
        if (better != NONE).any():
            self._unless.append((numbers, better))
        for predecessors in before:
            self._add_pairs(predecessors, numbers)
        return numbers

    def require_room(self, count: int) -> None:
        """Raises `InputError` if `count` more tasks would be too many; callers ask before they prepare many."""
        if self._num_tasks + count > MOST_TASKS:
            rule = f"needs more than {MOST_TASKS:,} tasks: {self.way_out}"
            raise refusal("task graph", rule)

    def add_edges(self, before: ArrayLike, after: ArrayLike) -> None:
        """Makes tasks wait for others, pair by pair."""
        shape = _common_shape(before, after)
        self._add_pairs(_filled(before, shape, np.int64), _filled(after, shape, np.int64))

    def _add_pairs(self, first: Integers, second: Integers) -> None:
        is_edge = first != NONE
        self._edges.append((first[is_edge], second[is_edge]))  # copies: callers may change what `add` returns

    def let_miss(self, tasks: ArrayLike, count: int) -> None:
        """Lets tasks begin when all but `count` of their predecessors have ended, whichever these are."""
        self._misses.append((np.asarray(tasks, dtype=np.int64).ravel(), count))

    def join(self, label: str, tasks: ArrayLike) -> int:
        """Adds a task that ends when all of `tasks` have ended; returns its number."""
        (number,) = self.add(label)
        self.add_edges(tasks, number)
        return int(number)

    def build(self) -> TaskGraph:
        """Returns the graph.

        Raises:
            InputError: a duration or a size is negative or not finite.
        """
        duration, moved, path, resource, label = (
            np.concatenate(parts) for parts in zip(_NO_TASKS, *self._columns, strict=True)
        )
        labels = tuple(self._labels)
        problems = [
            Problem(
                path=f"task {row} ({labels[label[row]]}).{name}", value=str(values[row]), rule="must be >= 0"
            )
            for name, values in (("duration_s", duration), ("num_bytes", moved))
            for row in np.flatnonzero(~(values >= 0) | ~np.isfinite(values))[:1]
        ]
        if problems:
            raise InputError(problems, source="task graph")
        before, after = (np.concatenate(parts) for parts in zip(_NO_EDGES, *self._edges, strict=True))
        offsets, successors = _by_first(before, after, self._num_tasks)
        return TaskGraph(
            duration_s=duration,
            num_bytes=moved,
            path=path,
            resource=resource,
            label=label,
            labels=labels,
            offsets=offsets,
            successors=successors,
            num_predecessors=self._num_needed(after),
            num_resources=self.num_resources,
            unless=self._all_unless(),
        )

    def _num_needed(self, after: Integers) -> Integers:
        needed = np.bincount(after, minlength=self._num_tasks)
        for tasks, count in self._misses:
            needed[tasks] = np.maximum(0, needed[tasks] - count)
        return needed

    def _all_unless(self) -> Integers:
        found = np.full(self._num_tasks if self._unless else 0, NONE, dtype=np.int64)
        for tasks, better in self._unless:
            found[tasks] = better
        return found


def _common_shape(*columns: ArrayLike) -> tuple[int, ...]:
    """Returns the shape to which any number of columns broadcast; most have the same, or are single values."""
    shapes = {np.shape(column) for column in columns} - {()}
    return shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)


def _filled(values: ArrayLike, shape: tuple[int, ...], kind: type[_Number]) -> NDArray[_Number]:
    """Returns values broadcast to a shape, one behind the other; many graphs grow task by task, so that this is quick."""
    filled = np.empty(shape, dtype=kind)
    filled[...] = values
    return filled.ravel()


@compiled
def _by_first(before: Integers, after: Integers, num_tasks: int) -> tuple[Integers, Integers]:
    """Sorts edges by the task at which they begin, those of one task in the order in which they were added."""
    offsets = np.zeros(num_tasks + 1, dtype=np.int64)
    for task in before:
        offsets[task + 1] += 1
    for task in range(num_tasks):
        offsets[task + 1] += offsets[task]
    successors = np.empty(len(before), dtype=np.int64)
    free = offsets.copy()
    for edge in range(len(before)):
        successors[free[before[edge]]] = after[edge]
        free[before[edge]] += 1
    return offsets, successors
