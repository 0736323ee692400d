"""A step operation by operation: what went into each and what came out, as fingerprints.

Two traces of the same step differ first at the operation that is to blame: its inputs are equal, its outputs are not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from burnin.guard.hashes import Hasher, digest

OPERATIONS_MAX = 200_000
"""Of one trace; a longer one is cut off, and says so."""
_UNWRITTEN = ("empty", "new_empty", "empty_like", "empty_strided")
"""Operations whose results hold whatever was in the memory before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call."""

    name: str
    """As torch names it: `aten.mm.default`."""
    shapes: str
    before: int
    """Digest of the tensors that went in."""
    after: int
    """Digest of those that came out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The first operation at which two traces part."""

    index: int
    name: str
    shapes: str
    why: str


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records every operation that runs inside it, the backward pass included. Slow: it waits for each result."""

    def __init__(self, hasher: Hasher, *, see: Callable[[int, str, Any], None] = lambda *_: None) -> None:
        """`see`: called with number, name and result of each operation, before its fingerprint is taken."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._hasher = hasher
        self._see = see
        self.operations: list[Operation] = []
        self._unwritten: set[int] = set()
        self.cut = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation and write down what it did."""
        del types
        inputs = _tensors((args, kwargs))
        # What was allocated and never written is no input yet: `bernoulli_` of dropout fills such a tensor.
        before = self._digest([tensor for tensor in inputs if tensor.data_ptr() not in self._unwritten])
        result = func(*args, **(kwargs or {}))
        name = str(func)
        outputs = {tensor.data_ptr() for tensor in _tensors(result)}
        if name.split(".")[1] in _UNWRITTEN:
            self._unwritten |= outputs
            return result
        self._unwritten -= outputs
        if name.startswith(("prim.", "c10d.")):
            return result
        if len(self.operations) >= OPERATIONS_MAX:
            self.cut = True
            return result
        self._see(len(self.operations), name, result)
        shapes = ", ".join("x".join(map(str, tensor.shape)) or "scalar" for tensor in inputs)
        after = self._digest(_tensors(result))
        self.operations.append(Operation(name=name, shapes=shapes, before=before, after=after))
        return result

    def _digest(self, tensors: list[torch.Tensor]) -> int:
        return digest(self._hasher.values(tensors, 0))


def first_split(one: Sequence[Operation], other: Sequence[Operation]) -> Split | None:
    """Return where two traces part; None: nowhere."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if (left.name, left.shapes) != (right.name, right.shapes):
            why = f"one run goes on with {left.name}, the other with {right.name}: the program itself differs"
            return Split(index=index, name=left.name, shapes=left.shapes, why=why)
        if left.before != right.before:
            why = "its inputs differ already: they were made outside of what is traced (data, random numbers, memory)"
            return Split(index=index, name=left.name, shapes=left.shapes, why=why)
        if left.after != right.after:
            return Split(index=index, name=left.name, shapes=left.shapes, why="same inputs, different results")
    if len(one) != len(other):
        longer = max(one, other, key=len)[min(len(one), len(other))]
        why = "one run ends here, the other goes on"
        return Split(index=min(len(one), len(other)), name=longer.name, shapes=longer.shapes, why=why)
    return None


def unstable(one: Sequence[Operation], other: Sequence[Operation]) -> tuple[str, ...]:
    """Return the names of all operations that made different results of the same inputs, in order of appearance."""
    pairs = zip(one, other, strict=False)
    parted = [a.name for a, b in pairs if (a.name, a.before) == (b.name, b.before) and a.after != b.after]
    return tuple(dict.fromkeys(parted))


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [
        leaf
        for leaf in pytree.tree_leaves(tree)
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.device.type != "meta"
    ]
