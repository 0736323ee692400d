"""How a model is spread over ranks: plain, DDP or FSDP2. To add one: a class here, a line in `shape_of`.

A shape knows how to run a replay without the collectives, where that can be done, and how to listen to them.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from burnin.guard.collectives import DdpEar, FsdpEar, param_groups
from burnin.guard.hashes import Hasher
from burnin.guard.records import Records


class Shape(Protocol):
    """See the module."""

    name: str
    replicas: bool
    """Whether all ranks hold the same parameters, gradients and optimizer state after an update."""
    joint: bool
    """Whether a replay takes all ranks: parameters have to be gathered."""
    views: bool
    """Whether a run with collectives writes into the gradients of the run before it."""
    ships_buffers: bool
    """Whether each rank has buffers of its own, which a peer needs to replay its step."""
    no_peers: str
    """Why peers cannot replay a step; "" when they can."""
    part: bool
    """Whether it belongs to some of the job's ranks only."""
    quiet_note: str
    """What of the collectives is not checked, and why; "" when they are."""

    def quiet(self) -> AbstractContextManager[None]:
        """Run without collectives inside, as far as that is possible."""

    def listen(self, seed: int) -> AbstractContextManager[Records]:
        """Follow the collectives of one run."""

    def sever(self) -> None:
        """From now on follow nothing for which other ranks would have to join."""

    def abandon(self) -> None:
        """A replay broke off here: let the other ranks end theirs, and make the model fit to train. Raises nothing."""

    def why_not(self) -> str:
        """Why a step cannot be replayed now; "" when it can."""


class Plain:
    """One process with the whole model."""

    name, replicas, joint, views, part, quiet_note = "plain", False, False, False, False, ""
    ships_buffers, no_peers = False, ""

    def quiet(self) -> AbstractContextManager[None]:
        """There are no collectives."""
        return nullcontext()

    @contextmanager
    def listen(self, seed: int) -> Iterator[Records]:
        """There is nothing to hear."""
        del seed
        yield Records()

    def sever(self) -> None:
        """There is nobody to join."""

    def abandon(self) -> None:
        """Nobody waits, and nothing is left behind."""

    def why_not(self) -> str:
        """A plain step can always be replayed."""
        return ""


class Ddp:
    """Replicas that average their gradients; a replay does without."""

    name, replicas = "ddp", True

    def __init__(self, model: DistributedDataParallel, hasher: Hasher, *, comm_hook: Any) -> None:
        self._model = model
        self._ear = DdpEar(model, hasher, comm_hook=comm_hook)
        self.quiet_note = self._ear.note
        # Without an ear, the gradients before the collective are never seen: replays run it, too, and compare after it.
        self.joint = bool(self._ear.note)
        self.views = bool(model.gradient_as_bucket_view)
        self.ships_buffers = not model.broadcast_buffers
        self.no_peers = "peers: only sums over all ranks are seen, and peers add in another order" if self.joint else ""
        self.part = dist.get_world_size(model.process_group) != dist.get_world_size()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """`no_sync`, and what it leaves behind is undone: the next forward pass would not synchronise its buffers."""
        model: Any = self._model
        synced = model.require_forward_param_sync
        try:
            with self._model.no_sync():
                yield
        finally:
            model.require_forward_param_sync = synced

    def listen(self, seed: int) -> AbstractContextManager[Records]:
        """Through the communication hook."""
        return self._ear.listen(seed)

    def sever(self) -> None:
        """Sums are not bounded any more."""
        self._ear.severed = True

    def abandon(self) -> None:
        """Nobody waits for a replay without collectives; one that has them is begun only after one without worked."""

    def why_not(self) -> str:
        """A replay that synchronises would write over gradients that lie in DDP's own memory."""
        if self.joint and self.views:
            return "gradient_as_bucket_view together with a communication hook that the guard does not know"
        return ""


class Fsdp:
    """Parameters in shards, gathered for each use: all ranks join a replay. The all-reduce of HSDP is not followed."""

    name, replicas, joint, views, part = "fsdp2", False, True, False, False
    ships_buffers, no_peers = True, ""

    def __init__(self, model: Any, hasher: Hasher) -> None:
        self._model = model
        self._ear = FsdpEar(model, hasher)
        self.quiet_note = self._ear.note
        if not hasattr(model, "reset_iter_state"):
            self.quiet_note = self.quiet_note or "this torch cannot go on after an error inside a replay of FSDP2"

    def quiet(self) -> AbstractContextManager[None]:
        """Without its collectives there are no parameters."""
        return nullcontext()

    def listen(self, seed: int) -> AbstractContextManager[Records]:
        """Through FSDP2's own seam for collectives."""
        return self._ear.listen(seed)

    def sever(self) -> None:
        """A replay takes all ranks anyway, so there are none any more."""

    def abandon(self) -> None:
        """Take part in the collectives that are left, and forget the step that broke off."""
        self._ear.finish()
        if hasattr(self._model, "reset_iter_state"):
            with suppress(RuntimeError):  # not the root, or what it waits for is lost
                self._model.reset_iter_state()

    def why_not(self) -> str:
        """Gradients that are accumulated unsharded are kept inside FSDP2, where a replay would add to them."""
        for module in self._model.modules():
            for group in param_groups(module):
                if any(_holds_gradient(one) for one in group.fsdp_params) or not group.reduce_grads:
                    return "FSDP2 accumulates gradients without reducing them (set_requires_gradient_sync(False))"
        return ""


def _holds_gradient(parameter: Any) -> bool:
    """Whether FSDP2 keeps an unsharded gradient of earlier micro-batches: in the reduce dtype, or on the parameter."""
    whole = getattr(parameter, "_unsharded_param", None)
    apart = getattr(parameter, "unsharded_accumulated_grad", None)
    return apart is not None or (whole is not None and whole.grad is not None)


def shape_of(model: torch.nn.Module, hasher: Hasher, *, comm_hook: Any = None) -> Shape:
    """Recognise how a model is spread.

    Args:
        model: as the training step calls it.
        hasher: makes the fingerprints.
        comm_hook: (state, hook) of DDP that the guard calls inside its own; None: the average that DDP computes anyway.

    Raises:
        ValueError: a hook is given for a model that is not DDP.
    """
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    if isinstance(model, DistributedDataParallel):
        return Ddp(model, hasher, comm_hook=comm_hook)
    if comm_hook is not None:
        raise ValueError("comm_hook is for DistributedDataParallel; this model has no communication hooks")
    if hasattr(model, "set_requires_gradient_sync"):  # FSDPModule, whose home has moved between releases of torch
        return Fsdp(model, hasher)
    return Plain()
