"""Fingerprints of many tensors at once: one launch on a GPU, one pass of numpy elsewhere; the same values on both.

A step has hundreds of tensors, and a GPU fingerprints them faster than a host can look at them one by one: what is done
for each is a handful of attribute reads.
"""

from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import torch

from burnin import checksum as cs
from burnin.kernels import checksums_on_device, have_triton
from burnin.keys import MASK64, derive

POLL_TURNS = 1 << 10
"""Looks at the device's event between two looks at the clock."""
_CPU = -1
"""The ordinal that torch gives what lies on no GPU."""
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class LateError(RuntimeError):
    """The device did not finish by the deadline."""


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that lies on this rank (of a sharded one its shard), without its history."""
    to_local = getattr(tensor, "to_local", None)
    found: torch.Tensor = tensor if to_local is None else to_local()
    return found.detach()


class Pending:
    """Fingerprints that may be under way on a device; once `Hasher.read`, they take no memory of it any more."""

    def __init__(self, values: list[int]) -> None:
        """`values`: as many as there are tensors, those known by now in their places."""
        self._values = values
        self.parts: list[tuple[list[int], torch.Tensor]] = []
        """Places of some of them, and the int64 that a device writes."""

    def __len__(self) -> int:
        return len(self._values)

    def settle(self, values: Sequence[Sequence[int]]) -> None:
        """Take what was read, part by part."""
        for (places, _), found in zip(self.parts, values, strict=True):
            for place, value in zip(places, found, strict=True):
                self._values[place] = value & MASK64
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

        On a GPU nothing is waited for; tensors may lie on several.

        Raises:
            TypeError: a tensor is sparse or quantised and has no plain bytes.
        """
        dense = [_NOTHING if tensor is None else _dense(tensor) for tensor in tensors]
        triton = have_triton()
        ordinals = [tensor.get_device() if triton else _CPU for tensor in dense]
        pending = Pending([0] * len(tensors))
        for ordinal in dict.fromkeys(ordinals):
            places = [place for place, one in enumerate(ordinals) if one == ordinal]
            those = [dense[place] for place in places]
            if ordinal == _CPU:
                found = cs.checksums_on_cpu([cs.raw_bytes(tensor) for tensor in those], seed)
                pending.parts.append((places, torch.tensor([cs.signed64(one) for one in found], dtype=torch.int64)))
            else:
                pending.parts.append((places, self._launch(those, seed)))
        return pending

    def _launch(self, tensors: list[torch.Tensor], seed: int) -> torch.Tensor:
        addresses = [tensor.data_ptr() for tensor in tensors]
        if any(address % 4 for address in addresses):  # slices of narrow dtypes begin anywhere
            tensors = [tensor.detach().clone() if tensor.data_ptr() % 4 else tensor for tensor in tensors]
            addresses = [tensor.data_ptr() for tensor in tensors]
        sizes = [tensor.nbytes for tensor in tensors]
        terms = {size: cs.signed64(cs.length_term(size, seed)) for size in set(sizes)}
        lengths = [terms[size] for size in sizes]
        key = derive(seed, "checksum")
        return checksums_on_device(addresses, sizes, lengths, key=key, device=tensors[0].device, plans=self._plans)

    def read(self, pending: Sequence[Pending]) -> list[int]:
        """Wait, once, for what `begin` returned; one list after the other. Raises LateError: the device hangs."""
        slots: dict[torch.device, list[torch.Tensor]] = {}
        for one in pending:
            for _, slot in one.parts:
                slots.setdefault(slot.device, []).append(slot)
        joined = {device: torch.cat(those) for device, those in slots.items()}
        for device in joined:
            if device.type == "cuda":
                self._wait(device)
        rest = {device: iter(values.tolist()) for device, values in joined.items()}
        for one in pending:
            one.settle([[next(rest[slot.device]) for _ in places] for places, slot in one.parts])
        return [value for one in pending for value in one.values]

    def values(self, tensors: Sequence[torch.Tensor | None], seed: int) -> list[int]:
        """Return the fingerprints. Raises LateError."""
        return self.read([self.begin(tensors, seed)])

    def _wait(self, device: torch.device) -> None:
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(device))
        self.wait_for(event)

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


_NOTHING = torch.empty(0, dtype=torch.uint8)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The part that lies here, with its bytes in row-major order from `data_ptr` on; the tensor itself, if it is so."""
    if type(tensor) not in _PLAIN:
        tensor = local(tensor)
    plain = tensor.layout is torch.strided and not tensor.is_quantized
    if plain and tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj()):
        return tensor
    return cs.raw_bytes(tensor)
