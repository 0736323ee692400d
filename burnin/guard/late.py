"""The loss of each step as a number, without making the host wait for the GPU."""

from typing import Any

import torch

from burnin.guard.state import tensors_of


class LateLoss:
    """On a CPU the loss of this step; on a GPU that of an earlier one, as soon as it has arrived."""

    def __init__(self) -> None:
        self._pinned: torch.Tensor | None = None
        self._event: Any = None

    def take(self, loss: Any) -> float | None:
        """Take the loss of a step; return one that is there, or None. What is no single number is left alone."""
        now = next(iter(tensors_of(loss)), None)
        if now is None:
            return float(loss) if isinstance(loss, float) else None
        if now.numel() != 1 or now.is_complex() or now.is_meta:
            return None
        if not now.is_cuda:
            return float(now.detach())
        return self._late(now.detach())

    def _late(self, now: torch.Tensor) -> float | None:
        found = None
        if self._pinned is None:
            self._pinned = torch.empty(1, dtype=torch.float32, device="cpu", pin_memory=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        elif self._event.query():
            found = float(self._pinned[0])
        else:
            return None  # the one before is still under way: this one is left out
        self._pinned.copy_(now.reshape(1), non_blocking=True)
        self._event.record(torch.cuda.current_stream(now.device))
        return found
