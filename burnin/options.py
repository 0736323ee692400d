"""What a user asks of a run, checked before anything starts. Torch-free."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from burnin.levels import LEVELS
from burnin.like import Aim
from burnin.spec import Device, Inject, SpecError
from burnin.tests import BACKENDS, chosen

MAX_GPUS = 64
"""Simulated or CPU stand-ins in one run; more would only swap."""
SEED_LIMIT = 1 << 63
"""Seeds are below this, so that every JSON reader with 64-bit integers keeps them exactly."""
RETENTION_MAX_S = 1800.0
"""Longest hold of a memory test, in seconds: what an acceptance of several hours can afford."""
SECONDS_MAX = 30 * 86400.0
"""Longest run, in seconds."""
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
INJECT_KEYS = ("gpu", "fault", "rate", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One run as the user asked for it."""

    backend: str
    """`auto` or one of `burnin.tests.BACKENDS`."""
    level: str
    seed: int
    host: str
    tests: tuple[str, ...] = ()
    """In place of the level's, if not empty."""
    gpus: int | None = None
    devices: tuple[str, ...] = ()
    """Indexes or ids; all if empty."""
    inject: tuple[Inject, ...] = ()
    force: bool = False
    """Run on GPUs that others use."""
    retention_s: float = 0.0
    """How long `hbm` lets memory hold what was written; 0: as its level does, which may be not at all."""
    seconds: float | None = None
    """How long the run takes in place of its level's time; None: its level's, or single tests once."""
    like: tuple[Aim, ...] = ()
    """What failed before, for a run that is directed at it."""
    resume: Path | None = None
    """Where to write after every slice how far the run is, and to go on from if it is there."""
    exposure: Path | None = None
    """Where to add up how long each GPU was tested by what."""

    def command(self, test: str | None, *, backend: str) -> str:
        """The command that computes the same inputs again on the same devices: of one test, or (None) of the run."""
        words = ["fleetd", "burnin", "run", "--backend", backend]
        if test is not None:
            words += ["--test", test]
        else:
            words += ["--level", self.level, *(word for one in self.tests for word in ("--test", one))]
        words += ["--seed", str(self.seed)]
        words += ["--gpus", str(self.gpus)] if self.gpus is not None else []
        words += ["--devices", ",".join(self.devices)] if self.devices else []
        words += ["--host", self.host] if backend != "cuda" else []
        words += ["--retention", f"{self.retention_s:g}"] if self.retention_s and test in {None, "hbm"} else []
        seconds = f"{self.seconds or 0.0:.6f}".rstrip("0").rstrip(".")
        words += ["--for", f"{seconds}s"] if self.seconds is not None and test is None else []
        for one in self.inject:
            words += ["--inject", f"gpu={one.gpu},fault={one.fault},rate={one.rate},seed={one.seed}"]
        return shlex.join(words)


def check(options: Options) -> None:
    """Refuse what cannot work on any host. Raises SpecError."""
    if options.backend not in {"auto", *BACKENDS}:
        raise SpecError(f"--backend {options.backend!r}: no such backend; there are: auto, {', '.join(BACKENDS)}")
    if options.gpus is not None and not 1 <= options.gpus <= MAX_GPUS:
        raise SpecError(f"--gpus {options.gpus}: give a number from 1 to {MAX_GPUS}")
    if not 0 <= options.seed < SEED_LIMIT:
        raise SpecError(f"--seed {options.seed}: give a number from 0 to {SEED_LIMIT - 1}")
    if not options.host or not options.host.isprintable() or set(options.host) & set(" /,\t"):
        raise SpecError(f"--host {options.host!r}: give a printable name without spaces, commas and slashes")
    _check_times(options)
    for repeated in _repeated(options.devices):
        raise SpecError(f"--devices: {repeated!r} is named twice")
    for repeated in _repeated([str(one.gpu) for one in options.inject]):
        raise SpecError(f"--inject: gpu={repeated} is given two faults; plant one fault on a GPU")


def _check_times(options: Options) -> None:
    if not 0 <= options.retention_s <= RETENTION_MAX_S:  # also what is no number
        raise SpecError(f"--retention {options.retention_s:g}: give 0 to {RETENTION_MAX_S:.0f} seconds")
    if options.retention_s and all(one.id != "hbm" for one in chosen(options.level, options.tests)):
        raise SpecError("--retention: it is a part of the memory test; add --test hbm")
    if options.seconds is not None and not 0 < options.seconds <= SECONDS_MAX:
        raise SpecError(f"--for: give more than 0 and at most {SECONDS_MAX / 86400:.0f} days")
    if options.like and (options.tests or not LEVELS[options.level].long):
        raise SpecError("--like: a directed run takes turns with other tests; use --level soak, without --test")


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for at, name in enumerate(names) if name in names[:at]]


def parse_devices(text: str) -> tuple[str, ...]:
    """Read `--devices 0,2` or ids. Raises SpecError for an empty name."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise SpecError(f"--devices {text!r}: give indexes or ids, separated by commas")
    return names


def parse_seconds(text: str) -> float:
    """Read `90s`, `30m`, `4h`, `1.5d` or a number of seconds. Raises SpecError."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd]?)", text.strip())
    if found is None:
        raise SpecError(f"--for {text!r:.40}: give a time such as 90s, 30m, 4h or 2d")
    return float(found[1]) * UNITS[found[2] or "s"]


def parse_inject(text: str, *, seed: int) -> Inject:
    """Read `gpu=5,fault=F03[,rate=0.01][,seed=7]`; `seed` is used where the text has none.

    Whether the fault exists and can change a result is checked by `burnin.inject` when the cases are known.

    Raises:
        SpecError: Unknown, missing or repeated key, or a value that is no number or out of its range.
    """
    fields: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise SpecError(f"--inject {text!r}: {part!r} is not key=value; write gpu=5,fault=F03,rate=0.01,seed=7")
        if key not in INJECT_KEYS:
            raise SpecError(f"--inject {text!r}: unknown key {key!r}; there are: {', '.join(INJECT_KEYS)}")
        if key in fields:
            raise SpecError(f"--inject {text!r}: {key!r} is given twice")
        fields[key] = value
    for key in ("gpu", "fault"):
        if key not in fields:
            raise SpecError(f"--inject {text!r}: {key}= is missing; write gpu=5,fault=F03")
    rate = _number(text, "rate", fields.get("rate", "1"))
    if not 0 < rate <= 1:
        raise SpecError(f"--inject {text!r}: rate={fields['rate']}: give a probability above 0 and up to 1")
    return Inject(
        gpu=_whole(text, "gpu", fields["gpu"]),
        fault=fields["fault"],
        rate=rate,
        seed=_whole(text, "seed", fields.get("seed", str(seed))),
    )


def _number(text: str, key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise SpecError(f"--inject {text!r}: {key}={value} is not a number") from None


def _whole(text: str, key: str, value: str) -> int:
    # The length first: Python refuses to convert thousands of digits.
    whole = value.isascii() and value.isdigit() and len(value) <= len(str(SEED_LIMIT))
    if not whole or int(value) >= SEED_LIMIT:
        raise SpecError(f"--inject {text!r:.80}: {key}={value:.40} is not a whole number from 0 to {SEED_LIMIT - 1}")
    return int(value)


def select(devices: tuple[Device, ...], names: tuple[str, ...]) -> tuple[Device, ...]:
    """The named devices, in the host's order; all when no names are given.

    Raises:
        SpecError: A name fits no device, or two names the same one.
    """
    if not names:
        return devices
    chosen: dict[str, Device] = {}
    for name in names:
        found = [device for device in devices if name in {device.gpu, str(device.index)}]
        if not found:
            known = ", ".join(str(device.index) for device in devices)
            raise SpecError(f"--devices: no device {name!r} here; there are: {known} (or their ids)")
        if found[0].gpu in chosen:
            raise SpecError(f"--devices: {name!r} names a device that is named before")
        chosen[found[0].gpu] = found[0]
    return tuple(device for device in devices if device.gpu in chosen)


def check_inject(inject: tuple[Inject, ...], devices: tuple[Device, ...]) -> None:
    """Refuse a fault on a GPU that is not in the run. Raises SpecError."""
    known = [device.index for device in devices]
    for one in inject:
        if one.gpu not in known:
            raise SpecError(f"--inject gpu={one.gpu}: no such GPU in this run; there are: {', '.join(map(str, known))}")


def in_use(devices: tuple[Device, ...], busy: Mapping[str, Sequence[int]]) -> str:
    """Which processes of others use these devices; empty when nobody does.

    Args:
        devices: those of the run; others may be in use.
        busy: GPU → process ids of others.
    """
    used = [(device.index, busy[device.gpu]) for device in devices if busy.get(device.gpu)]
    users = "; ".join(f"GPU {index} by process {', '.join(map(str, pids))}" for index, pids in used)
    return f"in use: {users}" if used else ""
