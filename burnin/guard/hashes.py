"""Fingerprints of many tensors at once: one launch on a GPU, one pass of numpy elsewhere; the same values on both.

A step has hundreds of tensors, and a GPU fingerprints them faster than a host can look at them one by one. So the host
does, before the launch, only what the launch needs, column by column (`map` over a method of torch takes 50 ns for each
tensor, a function of ours 500), and the rest while the device works. The values come back by themselves, into pinned
memory.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b
from operator import attrgetter, or_
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from burnin import checksum as cs
from burnin.kernels import have_triton, sums_on_device
from burnin.keys import derive

POLL_TURNS = 1 << 10
"""Looks at the device's event between two looks at the clock."""
_CPU = -1
"""The ordinal that torch gives what lies on no GPU."""
PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
"""Types whose values lie in memory as they are."""
_QUANTIZED = frozenset({"qint8", "quint8", "qint32", "quint4x2", "quint2x4"})
_ODD = frozenset(
    one for name, one in vars(torch).items() if isinstance(one, torch.dtype) and (one.is_complex or name in _QUANTIZED)
)
"""Types of which something else than the values may lie there: conjugates, numbers that a scale makes values of."""
_nbytes, _dtype = attrgetter("nbytes"), attrgetter("dtype")


class LateError(RuntimeError):
    """The device did not finish by the deadline."""


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that lies on this rank (of a sharded one its shard), without its history."""
    to_local = getattr(tensor, "to_local", None)
    found: torch.Tensor = tensor if to_local is None else to_local()
    return found.detach()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The fingerprints of those tensors of a list that lie on one device."""

    places: Sequence[int]
    """In the list."""
    values: npt.NDArray[np.uint64]
    """On the host; of a GPU in pinned memory, where they are once `event` is there."""
    terms: npt.NDArray[np.uint64] | int
    """What is still to be added to them."""
    event: Any
    """Recorded after the copy; None: they are there."""


class Pending:
    """Fingerprints that may be under way; they take no memory of the device that outlives its work."""

    def __init__(self, count: int, parts: list[Part]) -> None:
        """`count`: of the tensors, each of which is in one of the parts."""
        self._values = [0] * count
        self.parts = parts

    def __len__(self) -> int:
        return len(self._values)

    def settle(self) -> None:
        """Take what has come; the events are there."""
        for part in self.parts:
            found = (part.values + part.terms).tolist()
            if len(found) == len(self._values):  # all of them, in order: as it mostly is
                self._values = found
                continue
            for place, value in zip(part.places, found, strict=True):
                self._values[place] = value
        self.parts = []

    @property
    def values(self) -> list[int]:
        """One a tensor, 0 … 2**64 - 1, in order. Raises RuntimeError: not read yet."""
        if self.parts:
            raise RuntimeError("fingerprints are read before they are looked at")
        return self._values


class Hasher:
    """Makes fingerprints and waits for them, up to a deadline."""

    def __init__(self, *, monotonic: Callable[[], float], deadline_s: float) -> None:
        self._monotonic = monotonic
        self._deadline_s = deadline_s
        self._plans: dict[Any, Any] = {}

    def begin(self, tensors: Sequence[torch.Tensor | None], seed: int) -> Pending:
        """Start computing `burnin.checksum.checksum` of each tensor. None counts as empty.

        On a GPU nothing is waited for; tensors may lie on several. It reads them on the current streams, as any
        operation of torch: what may be done with their memory afterwards is what may be done after `tensor.sum()`.

        Raises:
            TypeError: a tensor is sparse or quantised and has no plain bytes.
        """
        given = [_NOTHING if tensor is None else tensor for tensor in tensors]
        if not _lie_plainly(given):
            return self._begin([_dense(tensor) for tensor in given], seed)
        pending = self._begin(given, seed)
        # Whether bytes that can be read are also those of the values is found out while a device reads them.
        return pending if _hold_plainly(given) else self._begin([_dense(tensor) for tensor in given], seed)

    def _begin(self, tensors: list[torch.Tensor], seed: int) -> Pending:
        ordinals = list(map(torch.Tensor.get_device, tensors)) if have_triton() else [_CPU] * len(tensors)
        different = dict.fromkeys(ordinals)
        parts = []
        for ordinal in different:
            places: Sequence[int] = range(len(tensors))
            those = tensors
            if len(different) > 1:
                places = [place for place, one in enumerate(ordinals) if one == ordinal]
                those = [tensors[place] for place in places]
            if ordinal == _CPU:
                found = cs.checksums_on_cpu([cs.raw_bytes(tensor) for tensor in those], seed)
                parts.append(Part(places=places, values=np.array(found, dtype=np.uint64), terms=0, event=None))
            else:
                parts.append(self._launch(places, those, ordinal, seed))
        return Pending(len(tensors), parts)

    def _launch(self, places: Sequence[int], tensors: list[torch.Tensor], ordinal: int, seed: int) -> Part:
        addresses = tuple(map(torch.Tensor.data_ptr, tensors))
        if reduce(or_, addresses) % 4:  # slices of narrow dtypes begin anywhere
            tensors = [tensor.detach().clone() if tensor.data_ptr() % 4 else tensor for tensor in tensors]
            addresses = tuple(map(torch.Tensor.data_ptr, tensors))
        sizes = tuple(map(_nbytes, tensors))
        key, device = derive(seed, "checksum"), tensors[0].device
        with torch.cuda.device(ordinal):
            stream = torch.cuda.current_stream()
            handle = stream.cuda_stream
            sums = sums_on_device(addresses, sizes, key=key, device=device, stream=handle, plans=self._plans)
            # New each time: torch's allocator keeps a block of pinned memory from others until the copy is done.
            here = torch.empty(len(tensors), dtype=torch.int64, device="cpu", pin_memory=True)
            here.copy_(sums, non_blocking=True)
            event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(stream)
        term = {size: cs.length_term(size, seed) for size in set(sizes)}
        terms = np.fromiter(map(term.__getitem__, sizes), np.uint64, len(sizes))
        return Part(places=places, values=here.numpy().view(np.uint64), terms=terms, event=event)

    def read(self, pending: Sequence[Pending]) -> list[int]:
        """Wait for what `begin` returned; one list after the other. Raises LateError: the device hangs."""
        for one in pending:
            for part in one.parts:
                if part.event is not None:
                    self.wait_for(part.event)
        for one in pending:
            one.settle()
        return [value for one in pending for value in one.values]

    def values(self, tensors: Sequence[torch.Tensor | None], seed: int) -> list[int]:
        """Return the fingerprints. Raises LateError."""
        return self.read([self.begin(tensors, seed)])

    def wait_for(self, event: Any) -> None:
        """Wait for an event that was recorded on a device. Raises LateError."""
        self.wait_until(event.query, "the device has not finished")

    def wait_until(self, there: Callable[[], bool], what: str, *, share: float = 1.0) -> None:
        """Poll until something is there.

        Args:
            there: whether it is.
            what: for the message of the error.
            share: of the deadline that is waited for; less than 1 where other ranks wait for this one meanwhile.

        Raises:
            LateError: it is not there by the deadline.
        """
        until_s = self._monotonic() + share * self._deadline_s
        while not any(there() for _ in range(POLL_TURNS)):
            if self._monotonic() > until_s:
                raise LateError(f"{what} after {share * self._deadline_s:.0f} s")


def digest(values: Sequence[int]) -> int:
    """One 63-bit value for a list of fingerprints: what ranks compare before they compare more."""
    packed = array("Q", values).tobytes()  # a step has hundreds: as text this would take longer than all the rest
    return int.from_bytes(blake2b(packed, digest_size=8).digest(), "little") >> 1


_NOTHING = torch.empty(0, dtype=torch.uint8, device="cpu")


def _lie_plainly(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether each is a part of this device's memory in one piece, in row-major order from `data_ptr` on."""
    try:
        return PLAIN.issuperset(map(type, tensors)) and all(map(torch.Tensor.is_contiguous, tensors))
    except RuntimeError:  # a sparse one, which cannot be asked
        return False


def _hold_plainly(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether what lies there are surely the values, not perhaps their conjugates, their opposites or codes of them."""
    return _ODD.isdisjoint(map(_dtype, tensors)) and not any(map(torch.Tensor.is_neg, tensors))


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The part that lies here, with its bytes in row-major order from `data_ptr` on; the tensor itself, if it is so."""
    if type(tensor) not in PLAIN:
        tensor = local(tensor)
    plain = tensor.layout is torch.strided and not tensor.is_quantized
    if plain and tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj()):
        return tensor
    return cs.raw_bytes(tensor)
