"""One run of a step, original or replay, and its fingerprints."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from burnin.guard.hashes import Hasher, digest, local
from burnin.guard.records import Records, outside
from burnin.guard.shapes import Shape
from burnin.guard.state import Start, Streams, keep, tensors_of, with_tensors
from burnin.guard.structure import Origin, Structure

StepFunction = Callable[[Any], Any]
"""Micro-batch → loss; runs forward and backward."""

REPLAY_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,  # torch's own, out of memory and broken collectives among them
    StopIteration,
    TypeError,
    ValueError,
)
"""What a replay may raise though the original did not: then the step is not checked, and training goes on."""


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
        self._buffer_names = [name for name, _ in model.named_buffers()]
        self.buffers = [local(buffer) for buffer in model.buffers()]
        self._optimizer = optimizer
        self.shape = shape
        self._hasher = hasher
        devices = {local(tensor).device for tensor in [*self.parameters, *self.buffers]}
        self.device = next((one for one in devices if one.type == "cuda"), torch.device("cpu"))
        self._ordinals = [one.index for one in devices if one.type == "cuda"]
        self.compiled = any(
            hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
            for module in model.modules()
        )
        """Whether kernels run that torch does not show operation by operation."""

    def start(self, batch: Any) -> Start:
        """Copy what a replay begins from."""
        return Start(parameters=self.parameters, buffers=self.buffers, batch=batch, devices=self._ordinals)

    def keep(self, start: Start, batch: Any, *, changed: bool) -> Any:
        """See `burnin.guard.state.keep`."""
        return keep(
            start,
            parameters=self.parameters,
            buffers=self.buffers,
            batch=batch,
            changed=changed,
            devices=self._ordinals,
        )

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
        mode = Structure()
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
        return found | {
            f"buffer.{name}": mode.origin(one) for name, one in zip(self._buffer_names, self.buffers, strict=True)
        }

    def inputs(self, batch: Any, seed: int) -> int:
        """Digest of a micro-batch. Raises LateError."""
        return digest(self._hasher.values(tensors_of(batch), seed))

    def standing(self, seed: int) -> tuple[int, int]:
        """Digests of parameters, and of the optimizer's state. Raises LateError."""
        states: Any = self._optimizer.state
        state = [
            value
            for group in self._optimizer.param_groups
            for parameter in group["params"]
            for _, value in sorted(states.get(parameter, {}).items())
            if isinstance(value, torch.Tensor)
        ]
        values = self._hasher.values([*self.parameters, *state], seed)
        return digest(values[: len(self.parameters)]), digest(values[len(self.parameters) :])

    def run(self, fn: StepFunction, batch: Any, seed: int) -> tuple[Any, Records]:
        """Run the step as it is, and follow its collectives. What `fn` raises passes."""
        with self.shape.listen(seed) as records:
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
        if other is None:
            start.restore()
        else:
            tensors, streams = other
            count = len(start.held_batch)
            start.restore(streams, tensors[count:])
            batch = with_tensors(batch, tensors[:count])
        if sync or self.shape.joint:
            return self.prints(*self.run(fn, batch, seed), seed)
        with self.shape.quiet():
            loss, records = self.run(fn, batch, seed)
        return self.prints(loss, records, seed)

    def prints(self, loss: Any, records: Records, seed: int) -> Print:
        """Fingerprint what a run left: start all, then wait once. Raises LateError."""
        sums, gathers = records.sums, records.gathers
        grads = [parameter.grad for parameter in self.parameters]
        slots = {
            "before": [call.before for call in sums if call.before is not None],
            "grads": [self._hasher.begin(grads, seed)] if self.shape.replicas or not sums else [],
            "loss": [self._hasher.begin(tensors_of(loss), seed)],
            "buffers": [self._hasher.begin(self.buffers, seed)],
            "gathers": [call.after for call in gathers if call.after is not None],
            "parts": [call.after for call in sums if call.after is not None],
        }
        values = iter(self._hasher.read([slot for group in slots.values() for slot in group]))
        read = {name: [next(values) for slot in group for _ in range(slot.numel())] for name, group in slots.items()}
        found = dict(zip(records.names, read["before"], strict=True)) or dict(
            zip(self._names, read["grads"], strict=True)
        )
        found |= {f"loss.{number}": value for number, value in enumerate(read["loss"])}
        found |= {f"buffer.{name}": value for name, value in zip(self._buffer_names, read["buffers"], strict=True)}
        alike = read["grads"] if self.shape.replicas and sums else read["gathers"]
        return Print(
            arithmetic=found,
            post=digest(alike) if alike else 0,
            parts=tuple(read["parts"]),
            outside=_outside(records),
            loss=loss,
        )


def room_for(need: int, free: int) -> None:
    """Compare bytes. Raises NoRoomError."""
    if need > free:
        raise NoRoomError(f"a replay may need {need / 2**30:.1f} GiB of GPU memory, and {free / 2**30:.1f} are free")


def _outside(records: Records) -> int:
    found = 0
    world = torch.distributed.get_world_size() if records.sums else 1
    for call in records.sums:
        if call.put is not None and call.got is not None:
            found += outside(call.put, call.got, world=world, dtype=call.dtype)
    return found
