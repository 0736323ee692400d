"""One run of a step, original or replay, and its fingerprints."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from traceback import clear_frames
from typing import Any

import torch

from burnin.guard.hashes import PLAIN, Hasher, Pending, digest, local
from burnin.guard.records import Records, outside
from burnin.guard.shapes import Shape
from burnin.guard.state import Start, Streams, keep, tensors_of, with_tensors
from burnin.guard.steady import Steady, steadily
from burnin.guard.structure import Origin, Structure

StepFunction = Callable[[Any], Any]
"""Micro-batch → loss; runs forward and backward."""

REPLAY_ERRORS = (Exception,)
"""What a replay may raise though the original did not: anything, for it runs somebody else's program. Then the step is
not checked, and training goes on."""


class NoRoomError(RuntimeError):
    """A replay may not fit into the device's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Print:
    """The fingerprints of one run."""

    arithmetic: dict[str, int]
    """What this rank computed by itself: gradients before the collective, loss, buffers."""
    post: int
    """Digest of what all ranks must have alike; 0 where nothing must."""
    parts: tuple[int, ...]
    """What this rank got of sums of which each rank has another part."""
    outside: int
    """Blocks of sums that lie outside the bound."""
    loss: Any


class Replayer:
    """Runs steps of one model and fingerprints them."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, shape: Shape, hasher: Hasher) -> None:
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        self._names = [name.removeprefix("module.") for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        self._model = model
        self._optimizer = optimizer
        self.shape = shape
        self._hasher = hasher
        devices = {local(tensor).device for tensor in [*self.parameters, *model.buffers()]}
        self.device = next((one for one in devices if one.type == "cuda"), torch.device("cpu"))
        self._ordinals = [one.index for one in devices if one.type == "cuda"]
        self.compiled = any(
            hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
            for module in model.modules()
        )
        """Whether kernels run that torch does not show operation by operation."""
        self.steady: Steady | None = None
        """By which checked steps and replays run; None: by the kernels that the program has chosen."""

    def buffers(self) -> dict[str, torch.Tensor]:
        """Those that the model has now, by name: a step may put others in their place."""
        return {name: local(buffer) for name, buffer in self._model.named_buffers()}

    def start(self, batch: Any) -> Start:
        """Copy what a replay begins from. Raises ValueError."""
        optimised = [leaf for group in self._optimizer.param_groups for leaf in group["params"]]
        # Also what was frozen when the guard was made, and what is trained beside the model.
        others = [leaf for leaf in [*self._model.parameters(), *optimised] if leaf.requires_grad]
        return Start(model=self._model, parameters=self.parameters, others=others, batch=batch, devices=self._ordinals,
                     still=self._still())  # fmt: skip

    def _still(self) -> list[torch.Tensor]:
        """What a step must not change by itself; FSDP2 puts gathered parameters in the place of its shards."""
        return [*self.parameters] if self.shape.name == "fsdp2" else list(self._model.parameters())

    def need_repeatable(self, start: Start, loss: Any) -> None:
        """Make sure that nothing but gradients came of a run. Raises ValueError: a replay would change training."""
        start.need_repeatable(self._still(), loss)

    def resting(self, seed: int) -> Pending:
        """Begin to fingerprint what a step must not change; what has no plain bytes is left out."""
        return self._hasher.begin([one for one in map(local, self._still()) if type(one) in PLAIN], seed)

    def keep(self, start: Start, batch: Any, *, changed: bool) -> Any:
        """See `burnin.guard.state.keep`."""
        return keep(start, model=self._model, batch=batch, changed=changed, devices=self._ordinals)

    def allocated(self) -> int:
        """Bytes that tensors take on the device; 0 on a CPU."""
        return torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else 0

    def need_room(self, before: int) -> None:
        """Make sure that a replay fits into the device's memory. Call it after the original run.

        A replay needs at most what the original run took at its peak, while the original's gradients stay. Of the peak
        is known that of the program so far, which includes this run (unless the program resets it, then this run's).

        Args:
            before: `allocated` before the original run.

        Raises:
            NoRoomError: it may not fit.
        """
        if self.device.type == "cuda":
            need = torch.cuda.max_memory_allocated(self.device) - before
            unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
            room_for(need, torch.cuda.mem_get_info(self.device)[0] + unused)

    def structure(self, fn: StepFunction, batch: Any, start: Start, seed: int) -> dict[str, Origin]:
        """Replay operation by operation; return what each result is computed from. Raises REPLAY_ERRORS."""
        mode = Structure(self.steady)
        with mode:
            run = self.replay(fn, batch, start, seed)
        grads = [name for name in run.arithmetic if not name.startswith(("loss.", "buffer."))]
        if self.shape.name == "fsdp2" and grads != self._names:  # what went into its collectives
            found = dict(zip(grads, mode.scattered, strict=True))
        else:
            found = {
                name: mode.origin(parameter.grad) for name, parameter in zip(self._names, self.parameters, strict=True)
            }
        found |= {f"loss.{number}": mode.origin(one) for number, one in enumerate(tensors_of(run.loss))}
        return found | {f"buffer.{name}": mode.origin(one) for name, one in self.buffers().items()}

    def inputs(self, batch: Any, seed: int) -> Pending:
        """Begin to fingerprint a micro-batch."""
        return self._hasher.begin(tensors_of(batch), seed)

    def differ(self, one: Pending, other: Pending) -> bool:
        """Whether two lists of fingerprints do. Raises LateError."""
        self._hasher.read([one, other])
        return one.values != other.values

    def standing(self, seed: int) -> Pending:
        """Begin to fingerprint the parameters, and the optimizer's state after them."""
        return self._hasher.begin(self.at_rest(), seed)

    def at_rest(self) -> list[torch.Tensor]:
        """The parameters, and the optimizer's state after them: what nothing should touch between two steps."""
        states: Any = self._optimizer.state
        state = [
            value
            for group in self._optimizer.param_groups
            for parameter in group["params"]
            for _, value in sorted(states.get(parameter, {}).items())
            if isinstance(value, torch.Tensor)
        ]
        return [*self.parameters, *state]

    def digests(self, standing: Pending) -> tuple[int, int]:
        """Of parameters, and of the optimizer's state. Raises LateError."""
        values = self._hasher.read([standing])
        return digest(values[: len(self.parameters)]), digest(values[len(self.parameters) :])

    def run(self, fn: StepFunction, batch: Any, seed: int) -> tuple[Any, Records]:
        """Run the step as it is, and follow its collectives. What `fn` raises passes."""
        with self.shape.listen(seed) as records, steadily(self.steady):
            loss = fn(batch)
        return loss, records

    def replay(self, fn: StepFunction, batch: Any, start: Start, seed: int, *, sync: bool = False,
               other: tuple[Sequence[torch.Tensor], Streams] | None = None) -> Print:  # fmt: skip
        """Run it again from the same start.

        Args:
            fn: the step.
            batch: its micro-batch, whose tensors are overwritten by what they were.
            start: the state before it.
            seed: of the fingerprints.
            sync: with the collectives, where they could be left out.
            other: micro-batch (as many tensors), perhaps followed by buffers, and random streams of another rank, in
                place of this one's.

        Raises:
            REPLAY_ERRORS: the step could not be run again, or the device hangs (LateError).
        """
        try:
            if other is None:
                start.restore()
            else:
                tensors, streams = other
                count = len(start.held_batch)
                start.restore(streams, tensors[count:])
                batch = with_tensors(batch, tensors[:count])
            with nullcontext() if sync or self.shape.joint else self.shape.quiet():
                loss, records = self.run(fn, batch, seed)
        except REPLAY_ERRORS as error:
            clear_frames(error.__traceback__)  # which hold activations, and memory may be what was missing
            self.shape.abandon()
            raise
        return self.prints(loss, records, seed)

    def prints(self, loss: Any, records: Records, seed: int, also: Sequence[Pending] = ()) -> Print:
        """Fingerprint what a run left: start all, then wait once, for what else is on its way, too. Raises LateError.

        On a GPU every wait empties its queue, and it idles until the host has filled it again.
        """
        sums, gathers = records.sums, records.gathers
        whole = self.shape.replicas or not sums
        grads = [parameter.grad for parameter in self.parameters] if whole else []
        losses, buffers = tensors_of(loss), self.buffers()
        own = self._hasher.begin([*grads, *losses, *buffers.values()], seed)
        before = [call.before for call in sums if call.before is not None]
        after = [call.after for call in gathers if call.after is not None]
        parts = [call.after for call in sums if call.after is not None]
        beyond = _outside(records)
        self._hasher.read([own, *before, *after, *parts, *also])
        values = iter(own.values)
        local_grads = [next(values) for _ in grads]
        found = dict(zip(records.names, _flat(before), strict=True)) or dict(zip(self._names, local_grads, strict=True))
        found |= {f"loss.{number}": next(values) for number in range(len(losses))}
        found |= {f"buffer.{name}": next(values) for name in buffers}
        alike = local_grads if self.shape.replicas and sums else _flat(after)
        return Print(
            arithmetic=found,
            post=digest(alike) if alike else 0,
            parts=tuple(_flat(parts)),
            outside=0 if beyond is None else int(beyond),
            loss=loss,
        )


def room_for(need: int, free: int) -> None:
    """Compare bytes. Raises NoRoomError."""
    if need > free:
        raise NoRoomError(f"a replay may need {need / 2**30:.1f} GiB of GPU memory, and {free / 2**30:.1f} are free")


def _flat(pending: Sequence[Pending]) -> list[int]:
    return [value for one in pending for value in one.values]


def _outside(records: Records) -> torch.Tensor | None:
    """How many blocks of sums lie outside the bound, an int64 on the device; None: none was followed."""
    calls = [(call, call.put, call.got) for call in records.sums]
    world = torch.distributed.get_world_size() if calls else 1
    found = [
        outside(put, got, world=world, dtype=call.dtype)
        for call, put, got in calls
        if put is not None and got is not None
    ]
    return torch.stack(found).sum() if found else None
