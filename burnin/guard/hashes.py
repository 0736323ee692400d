"""Fingerprints of many tensors at once: two launches on a GPU, one pass of numpy elsewhere; the same values on both."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from burnin import checksum as cs
from burnin.kernels import checksums_on_device, have_triton
from burnin.keys import MASK64, derive

POLL_TURNS = 1 << 10
"""Looks at the device's event between two looks at the clock."""


class LateError(RuntimeError):
    """The device did not finish by the deadline."""


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that lies on this rank (of a sharded one its shard), without its history."""
    to_local = getattr(tensor, "to_local", None)
    found: torch.Tensor = tensor if to_local is None else to_local()
    return found.detach()


class Hasher:
    """Makes fingerprints and waits for them, up to a deadline."""

    def __init__(self, *, monotonic: Callable[[], float], deadline_s: float) -> None:
        self._monotonic = monotonic
        self._deadline_s = deadline_s
        self._plans: dict[Any, Any] = {}

    def begin(self, tensors: Sequence[torch.Tensor | None], seed: int) -> torch.Tensor:
        """Start computing and return int64, one a tensor: `burnin.checksum.checksum` of it. None counts as empty.

        On a GPU nothing is waited for.
        """
        raws = [
            torch.empty(0, dtype=torch.uint8) if tensor is None else cs.raw_bytes(local(tensor)) for tensor in tensors
        ]
        here = [index for index, raw in enumerate(raws) if not (raw.is_cuda and have_triton())]
        on_cpu = cs.checksums_on_cpu([raws[index] for index in here], seed)
        values = torch.tensor([cs.signed64(one) for one in on_cpu], dtype=torch.int64)
        there = [index for index, raw in enumerate(raws) if raw.is_cuda and have_triton()]
        if not there:
            return values
        device = raws[there[0]].device
        out = torch.empty(len(raws), dtype=torch.int64, device=device)
        self._launch(out[: len(there)], [raws[index] for index in there], seed)
        if not here:
            return out
        # Some lie on the CPU (the step counts of an optimizer): put all in order.
        out[len(there) :] = values.to(device)
        order = torch.tensor([*there, *here])
        return out[torch.argsort(order).to(device)]

    def _launch(self, out: torch.Tensor, raws: Sequence[torch.Tensor], seed: int) -> None:
        lengths = [cs.signed64(cs.length_term(raw.numel(), seed)) for raw in raws]
        checksums_on_device(out, raws, lengths, derive(seed, "checksum"), self._plans)

    def read(self, slots: Sequence[torch.Tensor]) -> list[int]:
        """Wait for what `begin` returned, one list after the other. Raises LateError: the device hangs."""
        devices = {slot.device for slot in slots if slot.is_cuda}
        for device in devices:
            self._wait(device)
        return [int(value) & MASK64 for slot in slots for value in slot.tolist()]

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
    return derive(0, "digest", *values) >> 1
