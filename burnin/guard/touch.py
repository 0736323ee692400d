"""Whether the program itself wrote to tensors, or put others in their place.

Torch counts the writes to a tensor; memory that decays, or a chip that errs, counts none. A write through `.data` is
not counted, unless it assigns other memory.
"""

from collections.abc import Sequence
from operator import attrgetter, is_
from typing import Any
from weakref import ref

import torch

from burnin.guard.hashes import PLAIN, local

_GONE = torch.empty(0, dtype=torch.uint8, device="cpu")
"""Stands for what is not there."""
_counted, _dtype = attrgetter("_version"), attrgetter("dtype")


class Touch:
    """Where some tensors lay, and how often they had been written to, when this was made. It keeps none alive."""

    def __init__(self, tensors: Sequence[torch.Tensor | None]) -> None:
        """Look at them; nothing is read. None stands for what is not there."""
        given = [_GONE if tensor is None else tensor for tensor in tensors]
        self._refs = list(map(ref, given))  # an address alone may be that of another tensor by now
        self._marks = _marks(given)

    def told_of(self, tensors: Sequence[torch.Tensor | None]) -> bool:
        """Whether these are not the same tensors, or were written to since."""
        given = [_GONE if tensor is None else tensor for tensor in tensors]
        then = [one() for one in self._refs]
        return len(given) != len(then) or not all(map(is_, given, then)) or _marks(given) != self._marks


def _marks(tensors: list[torch.Tensor]) -> list[list[Any]]:
    """Column by column, as in `burnin.guard.hashes`: a step has hundreds."""
    here = tensors if PLAIN.issuperset(map(type, tensors)) else [local(tensor) for tensor in tensors]
    return [_places(here), _writes(here), list(map(_dtype, here))]


def _writes(tensors: list[torch.Tensor]) -> list[int]:
    if not any(map(torch.Tensor.is_inference, tensors)):
        return list(map(_counted, tensors))
    return [0 if tensor.is_inference() else _counted(tensor) for tensor in tensors]  # of these torch counts none


def _places(tensors: list[torch.Tensor]) -> list[int]:
    try:
        return list(map(torch.Tensor.data_ptr, tensors))
    except RuntimeError:  # one is sparse, or a wrapper that has no memory of its own
        return [_place(tensor) for tensor in tensors]


def _place(tensor: torch.Tensor) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0
