"""`kind: PowerSetPoint`: what `fleetd power tune` stores and the governor loads, strictly."""

import contextlib
import json
import math
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from fleetd.config.strict import API_VERSION, ConfigError, read
from fleetd.core.power.setpoint import SetPoint
from fleetd.core.power.tune import Candidate, Profile

KIND = "PowerSetPoint"
_SHA256 = re.compile(r"[0-9a-f]{64}")


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
    return json.dumps({"apiVersion": API_VERSION, "kind": KIND, "spec": candidate | body}, indent=2) + "\n"


def store_setpoint(path: Path, point: SetPoint) -> None:
    """Replace the file at once: who reads it meets the old set-point or the new one. Raises ConfigError."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(setpoint_text(point))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
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
