"""What a step depends on besides its parameters: random streams, buffers, gradients that were there, the micro-batch.

A replay begins from the same bits. Whatever the replays leave behind is undone: `keep` puts back what the original step
made, by reference, so that a guarded run goes on with exactly the tensors of an unguarded one.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree


@dataclass(slots=True)
class Streams:
    """The state of every random number generator that a step may draw from."""

    cpu: torch.Tensor
    cuda: dict[int, torch.Tensor]
    python: Any
    numpy: Any

    @classmethod
    def capture(cls, devices: Sequence[int]) -> "Streams":
        """Read them; `devices` are CUDA ordinals. Nothing is drawn."""
        return cls(
            cpu=torch.get_rng_state(),
            cuda={ordinal: torch.cuda.get_rng_state(ordinal) for ordinal in devices},
            python=random.getstate(),
            numpy=np.random.get_state(),  # noqa: NPY002 - the global stream is what others draw from
        )

    def restore(self) -> None:
        """Put all of them back."""
        torch.set_rng_state(self.cpu)
        for ordinal, state in self.cuda.items():
            torch.cuda.set_rng_state(state, ordinal)
        random.setstate(self.python)
        np.random.set_state(self.numpy)  # noqa: NPY002


def tensors_of(batch: Any) -> list[torch.Tensor]:
    """The tensors of a micro-batch, any nesting of lists, tuples and dicts, in a fixed order."""
    return [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, torch.Tensor)]


def with_tensors(batch: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """The same nesting with other tensors, which may have other shapes."""
    others = iter(tensors)
    return pytree.tree_map(lambda leaf: next(others) if isinstance(leaf, torch.Tensor) else leaf, batch)


class Start:
    """The state before a step, from which it can be replayed any number of times."""

    def __init__(
        self,
        *,
        parameters: Sequence[torch.Tensor],
        buffers: Sequence[torch.Tensor],
        batch: Any,
        devices: Sequence[int],
    ) -> None:
        """Copy it: the micro-batch, the buffers, and gradients that were accumulated before (usually none)."""
        self._parameters = parameters
        self._buffers = buffers
        self._batch = tensors_of(batch)
        self._streams = Streams.capture(devices)
        self.held_buffers = [buffer.detach().clone() for buffer in buffers]
        self.held_batch = [tensor.detach().clone() for tensor in self._batch]
        self._held_grads = [None if p.grad is None else p.grad.detach().clone() for p in parameters]
        self._leaves_grads = any(grad is not None for grad in self._held_grads)

    @property
    def accumulated(self) -> bool:
        """Whether gradients of earlier micro-batches were there."""
        return self._leaves_grads

    @property
    def streams(self) -> Streams:
        """The random streams before the step."""
        return self._streams

    def restore(self, streams: Streams | None = None, buffers: Sequence[torch.Tensor] = ()) -> None:
        """Go back to it; with the random streams and buffers of another rank, if they are given.

        Gradients are new tensors afterwards: those that the original step made are not touched.
        """
        (streams or self._streams).restore()
        with torch.no_grad():
            for buffer, held in zip(self._buffers, buffers or self.held_buffers, strict=True):
                buffer.copy_(held)
            for tensor, held in zip(self._batch, self.held_batch, strict=True):
                tensor.copy_(held)
        for parameter, grad in zip(self._parameters, self._held_grads, strict=True):
            parameter.grad = None if grad is None else grad.clone()


@contextmanager
def keep(
    start: Start,
    *,
    parameters: Sequence[torch.Tensor],
    buffers: Sequence[torch.Tensor],
    batch: Any,
    changed: bool,
    devices: Sequence[int],
) -> Iterator[None]:
    """Undo, at the end, whatever replays did: to gradients, buffers, the micro-batch and random streams.

    Gradients are put back by reference: replays make new ones.

    Args:
        start: the state before the step.
        parameters: those whose gradients are kept.
        buffers: of the model.
        batch: the micro-batch as the original step left it.
        changed: whether it is not what it was before; if it is, no copy is needed.
        devices: CUDA ordinals.
    """
    grads = [parameter.grad for parameter in parameters]
    leaves = tensors_of(batch)
    held_batch = [leaf.detach().clone() for leaf in leaves] if changed else start.held_batch
    held_buffers = [buffer.detach().clone() for buffer in buffers]
    streams = Streams.capture(devices)
    try:
        yield
    finally:
        streams.restore()
        with torch.no_grad():
            for tensor, held in zip([*buffers, *leaves], [*held_buffers, *held_batch], strict=True):
                tensor.copy_(held)
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = grad
