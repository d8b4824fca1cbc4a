"""How many bytes does PyTorch save for the backward pass of a layer?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Tensor = Any


def saved_bytes(torch: ModuleType, forward: Callable[[], object], weights: Sequence[Tensor]) -> int:
    """Returns the bytes of all tensors that a forward pass saves, except its weights."""
    own = {weight.untyped_storage().data_ptr() for weight in weights}
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward()
    return sum(saved.values())
