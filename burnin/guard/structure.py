"""What a step's results are computed from: which of them may differ from run to run, however rarely.

No number of equal replays proves a tensor reproducible: atomic additions that are rounded to bf16 afterwards agree in
99 of 100 runs. So the step runs once operation by operation, the backward pass included, and everything that is
computed from the result of an operation of `burnin.guard.sources` is *tainted* by it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from burnin.guard.hashes import local
from burnin.guard.sources import is_source, strictly
from burnin.guard.steady import Steady

_EMPTY = frozenset({"empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided"})
_WHOLE = frozenset({"copy_", "fill_", "zero_"})
"""Operations that overwrite all of their first argument."""
_UNWRITTEN = "(unwritten)"
UNSEEN = "a kernel that torch does not show (custom or compiled), after "


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Of one result."""

    taint: str
    """The operation that makes it differ, as torch names it; "": none is known to."""
    place: int
    """Number of the operation that wrote it last; what is computed from it has a greater one."""


class Structure(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the data of a step that runs inside it. Nothing is held in memory but a word a storage.

    Autograd hands the mode to its threads of the backward pass. A storage's entry is overwritten when a new one appears
    at the address of a freed one, since every allocation is the result of an operation that is seen.
    """

    def __init__(self, steady: Steady | None = None) -> None:
        """`steady`: by which the step runs, if it does."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._strict = strictly()
        self._steady = steady
        self._taints: dict[int, str] = {}
        self._places: dict[int, int] = {}
        self._number = 0
        self._first = ""
        self.scattered: list[Origin] = []
        """Of what went into each reduce-scatter, in order."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation and follow it."""
        del types
        kwargs = kwargs or {}
        namespace, name = str(func).split(".")[:2]
        inputs = dict(_storages((args, kwargs)))
        if namespace == "c10d" and "reduce_scatter" in name:
            self.scattered += [self._origin(key) for key, _ in _storages(args[1:2])]
        result = func(*args, **kwargs)
        self._number += 1
        outputs = dict(_storages(result))
        if name in _EMPTY:
            self._taints |= dict.fromkeys(outputs, _UNWRITTEN)
            return result
        written = set(inputs) if namespace == "c10d" else set(_written(func, args, kwargs))
        fresh = outputs.keys() - inputs.keys()
        if not fresh and not written:
            return result  # a view
        whole = name in _WHOLE and _covers(args[0])
        taint = self._made_of(inputs.keys() - written if whole else inputs, written)
        cuda = any(device == "cuda" for device in [*inputs.values(), *outputs.values()])
        strict = self._strict or (self._steady is not None and func not in self._steady.refused)
        if namespace == "aten" and is_source(name, args, cuda=cuda, strict=strict):
            taint = taint or str(func)
            self._first = self._first or taint
        self._write(fresh, written, taint, whole=whole)
        return result

    def origin(self, tensor: torch.Tensor | None) -> Origin:
        """Of a result, after the step."""
        keys = [key for key, _ in _storages(tensor)]
        return self._origin(keys[0]) if keys else Origin(taint="", place=0)

    def _origin(self, key: int) -> Origin:
        taint = self._taints.get(key, "")
        return Origin(taint=self._unseen() if taint == _UNWRITTEN else taint, place=self._places.get(key, 0))

    def _made_of(self, inputs: Iterable[int], written: set[int]) -> str:
        for key in inputs:
            taint = self._taints.get(key, "")
            if taint == _UNWRITTEN:
                taint = "" if key in written else self._unseen()
            if taint:
                return taint
        return ""

    def _write(self, fresh: Iterable[int], written: Iterable[int], taint: str, *, whole: bool) -> None:
        for key in fresh:
            self._set(key, taint)
        for key in written:
            old = self._taints.get(key, "")
            self._set(key, taint if taint or whole or old == _UNWRITTEN else old)

    def _set(self, key: int, taint: str) -> None:
        self._places[key] = self._number
        if taint:
            self._taints[key] = taint
        else:
            self._taints.pop(key, None)

    def _unseen(self) -> str:
        """Memory that was written by no operation that is seen: what it was made of is not known."""
        return UNSEEN + self._first if self._first and not self._first.startswith(UNSEEN) else self._first


def _storages(tree: Any) -> list[tuple[int, str]]:
    """(identity of the storage, kind of device) of all tensors."""
    return [
        (leaf.untyped_storage()._cdata, leaf.device.type)  # noqa: SLF001 - the identity that outlives a resize
        for leaf in map(_plain, pytree.tree_leaves(tree))
        if leaf is not None
    ]


def _plain(leaf: Any) -> torch.Tensor | None:
    if not isinstance(leaf, torch.Tensor):
        return None
    leaf = local(leaf)
    return leaf if leaf.layout is torch.strided and leaf.device.type != "meta" else None


def _written(func: Any, args: Any, kwargs: Any) -> list[int]:
    found = []
    for place, argument in enumerate(func._schema.arguments):  # noqa: SLF001 - the only way to it
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            found += [key for key, _ in _storages(value)]
    return found


def _covers(tensor: torch.Tensor) -> bool:
    """Whether it is all of its storage."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
