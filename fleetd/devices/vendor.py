"""The helper process: `python -m fleetd.devices.vendor VENDOR`. All calls into a vendor library are made here.

JSON lines. Request: `{"id", "do": "open"|"inventory"|"sample", "gpu", "slow"}`; reply: `{"id", "ok": …}` or
`{"id", "error": text, "missing": bool}`. One request at a time; the process ends when its input does.
"""

import json
import os
import signal
import sys
from importlib import import_module
from typing import IO, Any

from fleetd.devices.reader import Reader, VendorError

READERS = {"nvidia": "fleetd.devices.nvidia:NvidiaReader"}
"""Vendor → "module:class" of its reader."""


def answer(reader: Reader, request: dict[str, Any]) -> dict[str, Any]:
    """Carry out one request. Raises KeyError on one that the parent cannot have sent."""
    try:
        match request["do"]:
            case "open":
                reader.open()
                return {"id": request["id"], "ok": None}
            case "inventory":
                return {"id": request["id"], "ok": reader.inventory()}
            case "sample":
                return {"id": request["id"], "ok": reader.sample(request["gpu"], slow=request["slow"])}
            case unknown:
                raise KeyError(unknown)
    except VendorError as error:
        return {"id": request["id"], "error": str(error), "missing": error.missing}


def serve(reader: Reader, requests: IO[str], replies: IO[bytes]) -> None:
    """Answer until there are no more requests, or nobody reads the replies."""
    try:
        for line in requests:
            replies.write((json.dumps(answer(reader, json.loads(line))) + "\n").encode())
    except BrokenPipeError:
        pass  # the parent has given this process up, or is gone: there is nobody to tell
    finally:
        reader.close()


def main() -> None:
    """Serve the vendor named by the first argument on standard input and output."""
    # A handler in Python runs after the library call has returned. The default action would tear the process out of
    # the driver in the middle of a call, which has wedged GPUs until their reset.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the agent, which ends this process in its own time
    # What a library prints must not end up between the replies.
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    module, name = READERS[sys.argv[1]].split(":")
    reader: Reader = getattr(import_module(module), name)()
    serve(reader, sys.stdin, replies)


if __name__ == "__main__":
    main()
