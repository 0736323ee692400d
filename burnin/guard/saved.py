"""A training step in a file, and replaying it operation by operation: on two devices, or twice on one."""

import importlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError  # noqa: TID251 - the name of an error; torch reads with weights_only
from typing import Any

import torch

from burnin.guard.hashes import Hasher, LateError
from burnin.guard.parity import RunError
from burnin.guard.trace import Operation, Split, Tracer, first_split
from burnin.spec import SpecError

SCHEMA = "fleetd.guard.step/1"
KEYS = frozenset({"state", "batch", "cpu", "cuda"})

Build = Callable[[], tuple[torch.nn.Module, Callable[[torch.nn.Module, Any], Any]]]
"""Makes the model and the step: (model, batch) → loss, forward and backward."""


def save_step(path: Path | str, model: torch.nn.Module, batch: Any) -> None:
    """Write what a step begins from: parameters, buffers, micro-batch and random streams.

    Call it before the step; FSDP2 shards have to be gathered first.

    Raises:
        OSError: the file cannot be written.
    """
    state = {name.removeprefix("module."): tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    torch.save({"schema": SCHEMA, "state": state, "batch": batch, "cpu": torch.get_rng_state(), "cuda": cuda}, path)


def load_step(path: Path | str) -> dict[str, Any]:
    """Read a saved step; nothing in it is run. Raises SpecError."""
    if not zipfile.is_zipfile(path):
        raise SpecError(f"{path}: not a saved step, or not there; make one with burnin.guard.save_step")
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, UnpicklingError) as error:
        raise SpecError(f"{path}: not a saved step ({_first(error)}); make one with save_step") from None
    if not isinstance(saved, dict) or saved.get("schema") != SCHEMA or not saved.keys() >= KEYS:
        raise SpecError(f"{path}: not a saved step of this version; make one with burnin.guard.save_step")
    return saved


def builder(reference: str) -> Build:
    """Import what makes the model: `module:function`. Raises SpecError."""
    module, _, name = reference.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SpecError(f"--build {reference}: {error}; name a function as package.module:function") from None
    if not callable(found):
        raise SpecError(f"--build {reference}: it cannot be called")
    made: Build = found
    return made


def trace_step(saved: dict[str, Any], build: Build, device: torch.device, hasher: Hasher) -> list[Operation]:
    """Run a saved step once and write down each operation.

    Raises:
        SpecError: model and file do not belong together.
        RunError: the program that trains does not run here.
    """
    try:
        model, fn = build()
    except Exception as error:  # somebody else's program
        raise RunError(f"--build: it raised {type(error).__name__}: {_first(error)}") from error
    try:
        model.load_state_dict(saved["state"])
    except RuntimeError as error:
        raise SpecError(f"the model that was built is not the saved one: {_first(error)}") from None
    model.to(device)
    torch.set_rng_state(saved["cpu"])
    if device.type == "cuda" and saved["cuda"] is not None:
        torch.cuda.set_rng_state(saved["cuda"], device)
    batch = torch.utils._pytree.tree_map_only(  # noqa: SLF001 - torch has no public name for it
        torch.Tensor, lambda tensor: tensor.clone().to(device), saved["batch"]
    )
    tracer = Tracer(hasher)
    try:
        with tracer:
            fn(model, batch)
    except LateError:
        raise
    except Exception as error:  # somebody else's program
        raise RunError(f"the step raised {type(error).__name__}: {_first(error)}") from error
    return tracer.operations


def bisect(saved: dict[str, Any], build: Build, devices: tuple[torch.device, torch.device], hasher: Hasher,
           *, runs: int) -> tuple[Split | None, int]:  # fmt: skip
    """Compare traces; returns where they part (None: nowhere) and how many operations were compared.

    Args:
        saved: from `load_step`.
        build: makes the model.
        devices: the two to compare; the same one twice compares runs of it.
        hasher: makes the fingerprints.
        runs: at most so many runs on the second device are compared with the one on the first.

    Raises:
        SpecError, RunError: see `trace_step`.
        LateError: a device hangs.
    """
    first = trace_step(saved, build, devices[0], hasher)
    for _ in range(runs):
        split = first_split(first, trace_step(saved, build, devices[1], hasher))
        if split is not None:
            return split, len(first)
    return None, len(first)


def _first(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:100]
