"""A tuned set-point, and when it no longer holds: it was found for one envelope, one part and one firmware."""

import hashlib
import json
from dataclasses import asdict, dataclass

from fleetd.core.power.tune import Candidate
from fleetd.model.envelope import Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPoint:
    """What tuning stored."""

    candidate: Candidate
    envelope: str
    """Name, for people."""
    envelope_sha256: str
    part: str
    firmware: str
    speedup: float
    worst_ratio: float
    """Audited in its last trial, to the allowance without the margin."""
    seed: int
    tuned_at_s: float
    """Wall time."""
    expires_at_s: float


def envelope_sha256(envelope: Envelope) -> str:
    """Hash all that an envelope demands; its reason and owner are words, and changing them changes no limit."""
    demands = {key: value for key, value in asdict(envelope).items() if key not in {"reason", "owner"}}
    return hashlib.sha256(json.dumps(demands, sort_keys=True).encode()).hexdigest()


def lapsed(point: SetPoint, *, envelope: Envelope, firmware: str | None, now_s: float, sha256: str = "") -> str | None:
    """Say why a set-point must not be used any more; None: it holds.

    Args:
        point: What was stored.
        envelope: The one in force.
        firmware: Of the part as it is; None: not read, which is not the same firmware.
        now_s: Wall time.
        sha256: Of the envelope, where it has been hashed before, which costs more than a turn of the governor; "": not.
    """
    if envelope.part != point.part:
        return f"it was tuned for {point.part}, this is {envelope.part}"
    if (sha256 or envelope_sha256(envelope)) != point.envelope_sha256:
        return f"the envelope is no longer the {point.envelope} that it was tuned under"
    if firmware != point.firmware:
        return f"it was tuned under firmware {point.firmware}, this is {firmware or 'unknown'}"
    if not point.tuned_at_s <= now_s < point.expires_at_s:
        return "it has expired" if now_s >= point.expires_at_s else "it was tuned in the future: a clock is wrong"
    return None
