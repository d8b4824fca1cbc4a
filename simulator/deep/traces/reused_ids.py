"""Which tensors of an execution trace are the same? Its observer numbers addresses, and a freed address is used again.

An operator allocates bytes, or returns some that it was given. Bytes that come out of an operator without being among its
inputs are new, whatever number they have. Tensors are the same if number, bytes and size are: autograd unpacks what it has
saved as a new tensor of the old bytes, under any free number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count


@dataclass(frozen=True, kw_only=True)
class GraphTensor:
    """A tensor as an operator sees it."""

    id: int
    storage: int
    num_elements: int
    element_bytes: int
    shape: tuple[int, ...] = ()
    argument: str = ""
    """Its name as an argument of the operator, such as `weight`."""

    @property
    def num_bytes(self) -> float:
        """Number of elements times bytes of each."""
        return float(self.num_elements * self.element_bytes)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One operator, and those that it called."""

    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]
    inside: tuple[Call, ...] = ()

    def tensors(self) -> Iterator[GraphTensor]:
        """Yields the tensors that it reads and makes, and those of the calls inside it."""
        yield from chain(self.inputs, self.outputs)
        for call in self.inside:
            yield from call.tensors()


def told_apart(calls: Sequence[Call]) -> list[Call]:
    """Returns calls, in the order in which they ran, with a unique number for each tensor and each storage."""
    numbers = _Numbers(list(chain.from_iterable(call.tensors() for call in calls)))
    return [_told_apart(call, numbers) for call in calls]


def _told_apart(call: Call, numbers: _Numbers) -> Call:
    inputs = numbers.of(call.inputs)
    # Before the calls inside: these may fill bytes that no call was seen to allocate.
    numbers.renew({tensor.storage for tensor in call.outputs} - {tensor.storage for tensor in call.inputs})
    inside = tuple(_told_apart(one, numbers) for one in call.inside)
    return Call(inputs=inputs, outputs=numbers.of(call.outputs), inside=inside)


class _Numbers:
    """What each number of the observer stands for at present; the first owner of a number keeps it."""

    def __init__(self, tensors: Sequence[GraphTensor]) -> None:
        self._storages: dict[int, int] = {}
        self._ids: dict[tuple[int, int, int], int] = {}
        self._taken: set[int] = set()
        self._new_storage = count(max((tensor.storage for tensor in tensors), default=0) + 1)
        self._new_id = count(max((tensor.id for tensor in tensors), default=0) + 1)

    def of(self, tensors: Iterable[GraphTensor]) -> tuple[GraphTensor, ...]:
        """Returns tensors with their numbers replaced by what these stand for."""
        return tuple(self._of(tensor) for tensor in tensors)

    def _of(self, tensor: GraphTensor) -> GraphTensor:
        storage = self._storages.setdefault(tensor.storage, tensor.storage)
        key = tensor.id, storage, tensor.num_elements * tensor.element_bytes
        if key not in self._ids:
            self._ids[key] = next(self._new_id) if tensor.id in self._taken else tensor.id
            self._taken.add(tensor.id)
        return replace(tensor, id=self._ids[key], storage=storage)

    def renew(self, storages: Iterable[int]) -> None:
        """Makes the numbers of storages stand for new bytes from now on."""
        for storage in sorted(storages):
            if storage in self._storages:
                self._storages[storage] = next(self._new_storage)
