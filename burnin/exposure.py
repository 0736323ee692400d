"""How long each GPU was tested by what, added up over runs in one small file: what a clean record is worth. Torch-free.

The file is replaced whole; runs that end at the same time wait for each other. The agent shows it as a metric.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from burnin.telling.write import write
from burnin.verdict.evidence import Evidence

SCHEMA = "fleetd.burnin.exposure/1"
BYTES_MAX = 1 << 20
GPUS_MAX = 256
"""GPUs in the file; those that come beyond are left out, so that a host whose GPUs change for years stays bounded."""

Exposure = Mapping[tuple[str, str], float]
"""(GPU, test) → seconds of launches whose results were checked."""


class ExposureError(ValueError):
    """The file is damaged or none of ours; one line."""


def exposure_of(evidence: Evidence) -> Exposure:
    """What was done, in seconds of measured launches; what does not count as work is no exposure either."""
    found: dict[tuple[str, str], float] = {}
    for cast in evidence.casts:
        if cast.ballot.launches:
            at = (cast.gpu, cast.test)
            found[at] = found.get(at, 0.0) + cast.ballot.elapsed_s
    return found


def read(path: Path) -> Exposure:
    """What the file says; nothing when it is not there yet.

    Raises:
        ExposureError: It cannot be read or is damaged.
    """
    try:
        with path.open("rb") as file:
            text = file.read(BYTES_MAX + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ExposureError(f"{path}: {error.strerror}") from error
    found = _seconds(text)
    if found is None:
        raise ExposureError(f"{path}: it is no record of exposure, or a part of one only")
    return found


def _seconds(text: bytes) -> Exposure | None:
    """What a record says; None when it is none."""
    try:
        whole = json.loads(text) if len(text) <= BYTES_MAX else {}
        gpus: dict[str, dict[str, Any]] = whole["seconds"]
        found = {(gpu, test): float(seconds) for gpu, tests in gpus.items() for test, seconds in tests.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    sane = all(0 <= seconds < float("inf") for seconds in found.values())
    return found if whole.get("schema") == SCHEMA and sane else None


def add(path: Path, more: Exposure) -> str:
    """Add to the file. Returns what a person should know: that a damaged one was put aside; else empty.

    Raises:
        OSError: It cannot be written.
    """
    note = ""
    with _alone(path.parent):
        try:
            known = dict(read(path))
        except ExposureError as error:
            aside = path.with_name(f"{path.name}.damaged")
            path.replace(aside)
            known, note = {}, f"{error}; it was put aside as {aside.name}, and counting starts anew"
        for at, seconds in more.items():
            known[at] = known.get(at, 0.0) + seconds
        tests: dict[str, dict[str, float]] = {}
        for (gpu, test), seconds in known.items():
            if gpu in tests or len(tests) < GPUS_MAX:
                tests.setdefault(gpu, {})[test] = round(seconds, 6)
        write(path, json.dumps({"schema": SCHEMA, "seconds": tests}, indent=1) + "\n")
    return note


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Whoever else adds to a file in this folder waits; the lock goes with the process that holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
