"""Whether limits can keep an envelope at all: of some parts no numbers are public, and those can only be looked at."""

from collections.abc import Mapping
from dataclasses import dataclass

from fleetd.core.power.compiler import Infeasible, compile_envelope
from fleetd.core.power.govern import safe_limits
from fleetd.model.envelope import Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What an envelope can be kept by."""

    sustained_watts: float
    """What may be drawn for ever, margin taken off."""
    safe: Mapping[str, float]
    """Limits of the safe cap, by knob; empty: there are none."""
    why: str
    """Why it can be looked at only; "": it can be kept."""


def keeping(envelope: Envelope) -> Kept:
    """Find out whether limits can keep an envelope: of some parts no numbers are public."""
    try:
        sustained_watts = compile_envelope(envelope).sustained_watts
        return Kept(sustained_watts=sustained_watts, safe=safe_limits(envelope), why="")
    except (Infeasible, ValueError) as error:
        return Kept(sustained_watts=0.0, safe={}, why=str(error))
