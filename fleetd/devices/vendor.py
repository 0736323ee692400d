"""The helper process: `python -m fleetd.devices.vendor VENDOR`. All calls into a vendor library are made here.

JSON lines. Request: `{"id", "do": "open"|"inventory"|"sample"|"power", "places", "gpus", "slow", "energy", "samples"}`;
reply: `{"id", "ok": …}` or `{"id", "error": text, "missing": bool}`. One request at a time; the process ends when its
input does. Which of several `gpus` is being asked stands in memory shared with the parent (`steps`).
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import IO, Any

from fleetd.devices.packed import pack
from fleetd.devices.reader import Placed, Powered, Reader, Reading, VendorError
from fleetd.devices.steps import Steps

READERS = {"nvidia": "fleetd.devices.nvidia:NvidiaReader", "amd": "fleetd.devices.amd:AmdReader"}
"""Vendor → "module:factory" of its reader. A vendor that is written so itself is one more: see `reader.Reader`."""


def reader_of(vendor: str) -> Reader:
    """Make the reader of a vendor. Raises VendorError when there is none."""
    module, colon, name = READERS.get(vendor, vendor).partition(":")
    try:
        factory = getattr(import_module(module), name) if colon else None
    except (ImportError, AttributeError) as error:
        raise VendorError(
            f"there is no vendor reader {vendor}: {error}; install what holds it", missing=True
        ) from error
    if not callable(factory):
        raise VendorError(f"{vendor} is no vendor; known are {', '.join(READERS)} and module:factory", missing=True)
    reader: Reader = factory()
    return reader


class Refusing:
    """Stands for a reader that cannot be made: opening it says why."""

    def __init__(self, error: VendorError) -> None:
        self._error = error

    def open(self) -> None:
        """Raises VendorError."""
        raise self._error

    def inventory(self) -> list[dict[str, Any]]:
        """Raises VendorError."""
        raise self._error

    def sample(self, gpu: str, *, slow: bool) -> Reading:
        """Raises VendorError."""
        raise VendorError(f"GPU {gpu} cannot be read{' in full' if slow else ''}: {self._error}", missing=True)

    def close(self) -> None:
        """Nothing is open."""


def answer(reader: Reader, request: dict[str, Any], steps: Steps | None = None) -> dict[str, Any]:
    """Carry out one request. Raises KeyError on one that the parent cannot have sent."""
    try:
        match request["do"]:
            case "open":
                if isinstance(reader, Placed):
                    reader.places(request.get("places", {}))
                reader.open()
                return {"id": request["id"], "ok": None}
            case "inventory":
                return {"id": request["id"], "ok": reader.inventory()}
            case "sample":
                return {"id": request["id"], "ok": _samples(reader, request, steps)}
            case "power":
                if not isinstance(reader, Powered):
                    raise VendorError("this reader tells no power limits")  # noqa: TRY301 - answered below as any other
                return {"id": request["id"], "ok": _power(reader, request, steps)}
            case unknown:
                raise KeyError(unknown)
    except VendorError as error:
        return {"id": request["id"], "error": str(error), "missing": error.missing}


def _in_turn(request: dict[str, Any], steps: Steps | None) -> Iterator[str]:
    for step, gpu in enumerate(request["gpus"]):
        if steps is not None:
            steps.begin(request["id"], step)
        yield gpu
    if steps is not None:
        steps.begin(request["id"], len(request["gpus"]))  # what happens from now on is no GPU's doing


def _samples(reader: Reader, request: dict[str, Any], steps: Steps | None) -> dict[str, Any]:
    """By GPU: its reading or why there is none, when it was begun and when it was over (seconds of any one clock)."""
    slow, found = set(request["slow"]), {}
    now_s = time.monotonic  # noqa: TID251 - intervals inside one call; this process imports next to nothing
    for gpu in _in_turn(request, steps):
        began_s = now_s()
        try:
            one: dict[str, Any] = {"reading": reader.sample(gpu, slow=gpu in slow)}
        except VendorError as error:
            one = {"error": str(error)}
        found[gpu] = one | {"began_s": began_s, "over_s": now_s()}
    return found


def _power(reader: Powered, request: dict[str, Any], steps: Steps | None) -> dict[str, Any]:
    """By GPU; one that refuses is left out, and its samples tell why."""
    found = {}
    for gpu in _in_turn(request, steps):
        with suppress(VendorError):
            one = dict(reader.power(gpu, energy=request["energy"], samples=gpu in request["samples"]))
            with suppress(TypeError, ValueError, KeyError):  # sent as it is, and refused there
                one["samples"] = pack(one["samples"])
            found[gpu] = one
    return found


def serve(reader: Reader, requests: IO[str], replies: IO[bytes], steps: Steps | None = None) -> None:
    """Answer until there are no more requests, or nobody reads the replies."""
    try:
        for line in requests:
            replies.write((json.dumps(answer(reader, json.loads(line), steps)) + "\n").encode())
    except BrokenPipeError:
        pass  # the parent has given this process up, or is gone: there is nobody to tell
    finally:
        reader.close()


def main() -> None:
    """Serve the vendor named by the first argument on standard input and output; the second is the `Steps`."""
    # A handler in Python runs after the library call has returned. The default action would tear the process out of
    # the driver in the middle of a call, which has wedged GPUs until their reset.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the agent, which ends this process in its own time
    # What a library prints must not end up between the replies.
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    reader: Reader
    try:
        reader = reader_of(sys.argv[1])
    except VendorError as error:
        reader = Refusing(error)
    serve(reader, sys.stdin, replies, Steps.at(int(sys.argv[2])) if sys.argv[2:] else None)


if __name__ == "__main__":
    main()
