"""An alert: what another monitor (Alertmanager, in front of any exporter's rules) says about a host."""

from dataclasses import dataclass

from fleetd.model.finding import Severity
from fleetd.model.ids import GpuId, HostName


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert that is firing."""

    id: str
    """The same alert has the same id, however often it is told; when it fires anew it has another."""
    name: str
    host: HostName
    gpu: GpuId | None
    """None: it names none."""
    severity: Severity
    said: str
    at_s: float
    """Wall time at which it began to fire."""
