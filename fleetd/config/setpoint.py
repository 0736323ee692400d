"""`kind: PowerSetPoint`: what `fleetd power tune` stores and the governor loads, strictly."""

import contextlib
import json
import math
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from fleetd.config.envelope_file import watts
from fleetd.config.strict import API_VERSION, ConfigError, read
from fleetd.core.power.setpoint import SetPoint
from fleetd.core.power.tune import Candidate, Profile
from fleetd.durable import settle

KIND = "PowerSetPoint"
_SHA256 = re.compile(r"[0-9a-f]{64}")

CLOCK_LOW_HERTZ, CLOCK_HIGH_HERTZ = 1e8, 1e10
"""No GPU is capped lower or higher: a number outside is in another unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spec:
    profile: Literal["fast_loop", "static"]
    sigma: float
    raw_watts: float | None
    clock_cap_hertz: float | None
    envelope: str
    envelope_sha256: str
    part: str
    firmware: str
    speedup: float
    worst_ratio: float
    seed: int
    tuned_at_s: float
    expires_at_s: float

    def __post_init__(self) -> None:
        self.candidate()
        if self.raw_watts is not None:
            watts(self.raw_watts, "raw_watts")
        cap = self.clock_cap_hertz
        if cap is not None and not CLOCK_LOW_HERTZ <= cap <= CLOCK_HIGH_HERTZ:
            raise ValueError(f"clock_cap_hertz: {cap:g} Hz is no clock of a GPU; is it in megahertz?")
        if not _SHA256.fullmatch(self.envelope_sha256):
            raise ValueError("envelope_sha256: 64 hexadecimal digits")
        if not self.part or not self.firmware:
            raise ValueError("part and firmware: without them nobody knows what it holds for")
        if not 0 < self.worst_ratio <= 1:
            raise ValueError(f"worst_ratio {self.worst_ratio:g}: it broke its envelope")
        if not 0 <= self.tuned_at_s < self.expires_at_s < math.inf:
            raise ValueError("needs 0 <= tuned_at_s < expires_at_s")

    def candidate(self) -> Candidate:
        return Candidate(
            profile=Profile(self.profile),
            sigma=self.sigma,
            raw_watts=self.raw_watts,
            clock_cap_hertz=self.clock_cap_hertz,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    spec: _Spec


def setpoint_text(point: SetPoint) -> str:
    """Write a set-point as JSON, which is YAML too."""
    body = asdict(point)
    candidate = body.pop("candidate")
    document = {"apiVersion": API_VERSION, "kind": KIND, "spec": candidate | body}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"  # escapes of pairs are JSON, but not YAML


def store_setpoint(path: Path, point: SetPoint) -> None:
    """Replace the file at once: who reads it meets the old set-point or the new one, also after a crash.

    Two that store at the same time do not meet: each writes a file of its own, the later one stays.

    Raises:
        ConfigError: It cannot be written, or the path is a device or a pipe, which a file would replace.
    """
    fresh = path.parent / f".{path.name}.{os.getpid()}.new"
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(path, None, "is not a regular file")
        fresh.write_text(setpoint_text(point), encoding="utf-8")
        settle(fresh, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise ConfigError(path, None, f"cannot be written: {error.strerror}") from None


def load_setpoint(path: Path) -> SetPoint:
    """Read a set-point. Whether it still holds is `lapsed`'s to say. Raises ConfigError."""
    spec = read(path, _File, kind=KIND).value.spec
    return SetPoint(
        candidate=spec.candidate(),
        envelope=spec.envelope,
        envelope_sha256=spec.envelope_sha256,
        part=spec.part,
        firmware=spec.firmware,
        speedup=spec.speedup,
        worst_ratio=spec.worst_ratio,
        seed=spec.seed,
        tuned_at_s=spec.tuned_at_s,
        expires_at_s=spec.expires_at_s,
    )
