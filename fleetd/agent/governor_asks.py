"""What the governor tells the power guard of a GPU: its limits when a lease begins, and what others have lowered."""

from collections.abc import Mapping
from typing import Any

from fleetd.core.power.govern import GovernConfig, GpuState, Limits
from fleetd.model.envelope import Envelope
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.power import PowerReading


def declaration(envelope: Envelope, gpu: Gpu, config: GovernConfig, reading: PowerReading) -> dict[str, Any] | None:
    """An entry of `arm` (`fleetd/powerguard/wire.py`); None: the GPU's limits must be left alone."""
    seen = {knob.knob: knob for knob in reading.knobs}
    limits = {}
    for knob, safe in config.safe.items():
        told = seen.get(knob)
        if reading.locked or told is None or told.set_watts is None:
            return None
        if safe < (told.low_watts or 0.0) or (told.high_watts is not None and safe > told.high_watts + 1e-6):
            return None  # another part than the envelope's, whatever it is called
        highest = max(safe, *(k.high_watts for k in envelope.knobs if k.name == knob))
        limits[knob] = {
            "prior_watts": max(told.set_watts, told.low_watts or 0.0),
            "safe_watts": safe,
            "ceiling_watts": highest,
        }
    return {"gpu": gpu.gpu, "vendor": gpu.vendor, "pci": gpu.pci_address or "", "limits": limits}


def lowered(states: Mapping[GpuId, GpuState], readings: Mapping[GpuId, PowerReading]) -> dict[str, Limits]:
    """Limits that others hold below ours, by GPU and knob: no fall may raise them."""
    lower: dict[str, Limits] = {}
    for name, state in states.items():
        if state.drift is None or state.drift.raised or state.locked or name not in readings:
            continue
        knob = state.drift.knob or next((k.knob for k in readings[name].knobs if k.knob in state.targets), "")
        # Nothing can be set below the lowest, so a fall to there would be refused, and leave the limit where it is.
        lowest = next((k.low_watts for k in readings[name].knobs if k.knob == knob), None) or 0.0
        if (watts := max(state.drift.to_watts, lowest)) > 0.0:
            lower[name] = {knob: watts}
    return lower
