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

from burnin.guard.hanging import Hanging
from burnin.guard.hashes import local
from burnin.guard.touch import Touch
from burnin.keys import derive


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


CHANGES_ITSELF = "the step changes parameters by itself, and a replay would change them once more"
_TOLD = (type(None), bool, int, float, str, bytes, torch.dtype)
"""Types whose text is all of them."""


def tensors_of(batch: Any) -> list[torch.Tensor]:
    """The tensors of a micro-batch, any nesting of lists, tuples and dicts, in a fixed order."""
    return [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, torch.Tensor)]


def not_handed_over(batch: Any) -> tuple[str, int]:
    """What of a micro-batch its tensors do not tell another rank.

    Returns:
        Why another rank cannot run a step with its tensors ("": it can, if the rest is alike), and a digest of the
        rest: nesting, names, numbers, texts.
    """
    leaves, nesting = pytree.tree_flatten(batch)
    rest = [one for one in leaves if not isinstance(one, torch.Tensor | torch.nn.Module)]
    if odd := next((type(one).__name__ for one in rest if type(one) not in _TOLD), ""):
        return f"the micro-batch holds a {odd}, whose content is not known", 0
    if not any(isinstance(one, torch.Tensor) for one in leaves):
        return "the micro-batch holds no tensor", 0
    return "", derive(0, "micro-batch", str(nesting), repr(rest))


def with_tensors(batch: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """The same nesting with other tensors, which may have other shapes."""
    others = iter(tensors)
    return pytree.tree_map(lambda leaf: next(others) if isinstance(leaf, torch.Tensor) else leaf, batch)


class Start:
    """The state before a step, from which it can be replayed any number of times."""

    def __init__(
        self,
        *,
        model: torch.nn.Module,
        parameters: Sequence[torch.Tensor],
        others: Sequence[torch.Tensor],
        batch: Any,
        devices: Sequence[int],
        still: Sequence[torch.Tensor],
    ) -> None:
        """Copy it: the micro-batch, the buffers, and gradients that were accumulated before (usually none).

        Args:
            model: whose buffers a step may change, or replace.
            parameters: on which gradients are checked.
            others: on which a step may leave gradients, too: they are put back, and not checked.
            batch: the micro-batch.
            devices: CUDA ordinals.
            still: parameters that a step must not change by itself: no replay puts them back.

        Raises:
            ValueError: a replay would change training.
        """
        self._batch = tensors_of(batch)
        self.not_handed_over, self.rest = not_handed_over(batch)
        own = [tensor for tensor in self._batch if tensor.requires_grad]
        if not all(tensor.is_leaf for tensor in own):
            raise ValueError("the micro-batch was computed with gradients: a replay would go through that once more")
        self.leaves = list({id(leaf): leaf for leaf in [*parameters, *others, *own]}.values())
        if any(getattr(leaf, "_post_accumulate_grad_hooks", None) for leaf in self.leaves):
            raise ValueError("a hook runs as soon as a gradient is there, and would run again in a replay")
        self.accumulated = any(parameter.grad is not None for parameter in parameters)
        """Whether gradients of earlier micro-batches were there."""
        self.streams = Streams.capture(devices)
        """The random streams before the step."""
        self._still, self._grads = Touch(still), Touch(gradients(parameters))
        self._parameters = parameters
        self._hanging = Hanging(model)
        self._buffers = [local(buffer) for buffer in model.buffers()]
        self.held_buffers = [buffer.clone() for buffer in self._buffers]
        self.held_batch = [tensor.detach().clone() for tensor in self._batch]
        self._held_grads = [None if leaf.grad is None else leaf.grad.detach().clone() for leaf in self.leaves]

    def need_repeatable(self, still: Sequence[torch.Tensor], loss: Any) -> None:
        """Look, right after the original run, whether nothing but gradients came of it.

        Args:
            still: see `__init__`, as they are now.
            loss: what the run returned.

        Raises:
            ValueError: a replay would change training.
        """
        if self._still.told_of(still):
            raise ValueError(CHANGES_ITSELF)
        later = any(tensor.grad_fn is not None for tensor in tensors_of(loss))
        if later and not self._grads.told_of(gradients(self._parameters)):
            raise ValueError("the backward pass of the loss is still to come: run it inside the guarded function")

    def restore(self, streams: Streams | None = None, buffers: Sequence[torch.Tensor] = ()) -> None:
        """Go back to it; with the random streams and buffers of another rank, if they are given.

        Gradients are new tensors afterwards: those that the original step made are not touched.
        """
        (streams or self.streams).restore()
        self._hanging.put_back()
        with torch.no_grad():
            for buffer, held in zip(self._buffers, buffers or self.held_buffers, strict=True):
                buffer.copy_(held)
            for tensor, held in zip(self._batch, self.held_batch, strict=True):
                tensor.copy_(held)
        put_gradients(self.leaves, [None if grad is None else grad.clone() for grad in self._held_grads])


def gradients(leaves: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """By reference."""
    return [leaf.grad for leaf in leaves]


def put_gradients(leaves: Sequence[torch.Tensor], grads: Sequence[torch.Tensor | None]) -> None:
    """By reference."""
    for leaf, grad in zip(leaves, grads, strict=True):
        leaf.grad = grad


@contextmanager
def keep(start: Start, *, model: torch.nn.Module, batch: Any, changed: bool, devices: Sequence[int]) -> Iterator[None]:
    """Undo, at the end, whatever replays did: to gradients, buffers, the micro-batch and random streams.

    Gradients are put back by reference: replays make new ones.

    Args:
        start: the state before the step.
        model: as the original step left it.
        batch: the micro-batch as the original step left it.
        changed: whether it is not what it was before; if it is, no copy is needed.
        devices: CUDA ordinals.
    """
    grads, hanging = gradients(start.leaves), Hanging(model)
    leaves, buffers = tensors_of(batch), [local(buffer) for buffer in model.buffers()]
    held_batch = [leaf.detach().clone() for leaf in leaves] if changed else start.held_batch
    held_buffers = [buffer.clone() for buffer in buffers]
    streams = Streams.capture(devices)
    try:
        yield
    finally:
        streams.restore()
        hanging.put_back()
        with torch.no_grad():
            for tensor, held in zip([*buffers, *leaves], [*held_buffers, *held_batch], strict=True):
                tensor.copy_(held)
        put_gradients(start.leaves, grads)
