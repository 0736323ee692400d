"""Alerts of other monitors as findings: a policy decides on them by code, and by themselves they blame no hardware.

The body is that of Alertmanager's webhook (version 4). An alert says which host it is about by a label; which label is
not the same everywhere, so the usual ones are tried in turn.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any

from fleetd.core.lifecycle import line
from fleetd.model.alert import Alert
from fleetd.model.finding import DeviceFault, FaultClass, Scope, Severity
from fleetd.model.host import Host
from fleetd.model.ids import FindingId, GpuId, HostName

MAX_ALERTS = 1000
"""In one body; Alertmanager truncates by `max_alerts`."""
MAX_WORD = 200
_SAME_CHARS_MAX = 64
"""Of what tells an alert from others; Alertmanager's fingerprints have 16."""

HOST_LABELS = ("host", "hostname", "Hostname", "node", "nodename", "kubernetes_node", "instance")
"""Tried in this order; of `instance` the port is cut off. `Hostname` is what dcgm-exporter says."""
GPU_LABELS = ("gpu_uuid", "UUID", "uuid", "GPU_UUID", "gpu_id", "serial_number")
"""Labels that hold a UUID or serial; an index is no identity."""

_SEVERITIES = {
    "page": Severity.ERROR,
    "critical": Severity.ERROR,
    "error": Severity.ERROR,
    "warning": Severity.WARNING,
    "warn": Severity.WARNING,
    "info": Severity.INFO,
    "none": Severity.INFO,
}
"""An alert is never `fatal`: it is another program's rule, not evidence of our own."""
_CODE = re.compile(r"[^a-z0-9_]+")


class UnreadableAlerts(ValueError):  # noqa: N818 - it says what is wrong
    """A body that is none of Alertmanager's; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a body says."""

    alerts: tuple[Alert, ...]
    """Those that fire and name a host."""
    resolved: int
    """Those that do not fire any more: they change nothing, what cures a host is a proof."""
    refused: tuple[str, ...]
    """One line for each that cannot be used."""


def read(body: object) -> Read:
    """Read the body of a webhook. Raises UnreadableAlerts; an alert that is wrong is refused by itself."""
    if not isinstance(body, Mapping) or not isinstance(body.get("alerts"), list):
        raise UnreadableAlerts("no body of Alertmanager's webhook: an object with the list `alerts` is expected")
    listed = body["alerts"]
    if len(listed) > MAX_ALERTS:
        raise UnreadableAlerts(f"{len(listed)} alerts in one body, at most {MAX_ALERTS} are read: set max_alerts")
    alerts: list[Alert] = []
    refused: list[str] = []
    resolved = 0
    for number, item in enumerate(listed, start=1):
        labels = item.get("labels") if isinstance(item, Mapping) else None
        if not isinstance(item, Mapping) or not isinstance(labels, Mapping):
            refused.append(f"alert {number}: no object with `labels`")
        elif item.get("status") == "resolved":
            resolved += 1
        else:
            found = _alert(item, labels)
            if isinstance(found, str):
                refused.append(f"alert {number}: {found}")
            else:
                alerts.append(found)
    return Read(alerts=tuple(alerts), resolved=resolved, refused=tuple(refused))


def finding_of(alert: Alert, host: Host) -> DeviceFault | str:
    """The finding that an alert is on a host that is known; or why it is none, in one line."""
    if host.boot_id is None:
        return f"{alert.name}: the agent of {host.name} has never said hello"
    gpu = next((g for g in host.inventory if g.gpu == alert.gpu), None)
    about = "" if alert.gpu is None or gpu is not None else f" (it names gpu {line(alert.gpu, 80)}, which is not there)"
    return DeviceFault(
        id=FindingId(f"{host.name}/alert/{line(alert.id, 80)}"),
        host=host.name,
        boot_id=host.boot_id,
        at_s=alert.at_s,
        why=line(f"alert {alert.name}: {alert.said}{about}"),
        code=code_of(alert.name),
        gpu=None if gpu is None else gpu.gpu,
        index=None if gpu is None else gpu.index,
        scope=Scope.HOST if gpu is None else Scope.GPU,
        severity=min(alert.severity, Severity.ERROR),
        fault_class=FaultClass.NONE,
    )


def code_of(name: str) -> str:
    """The code by which a policy's rules name an alert: `alert.` and its name in small letters."""
    return f"alert.{_CODE.sub('_', name.lower()).strip('_') or 'unnamed'}"[:MAX_WORD]


def _alert(item: Mapping[str, Any], labels: Mapping[str, Any]) -> Alert | str:
    """One alert; or what is missing in it."""
    name = _word(labels, "alertname")
    if name is None:
        return "the label `alertname` is missing"
    host = next(((word, label) for label in HOST_LABELS if (word := _word(labels, label)) is not None), None)
    if host is None:
        return f"{name}: no label says which host: {', '.join(HOST_LABELS)}"
    begun = item.get("startsAt")
    at_s = _time(begun)
    if at_s is None:
        return f"{name}: startsAt is no time: {begun!r:.60}"
    notes = item.get("annotations")
    notes = notes if isinstance(notes, Mapping) else {}
    said = next((w for key in ("summary", "description", "message") if (w := _word(notes, key, 400))), "no summary")
    gpu = next((word for label in GPU_LABELS if (word := _word(labels, label)) is not None), None)
    same = _word(item, "fingerprint") or f"{name}/{host[0]}/{gpu or ''}"
    if len(same) > _SAME_CHARS_MAX:  # never cut: what is cut alike would be taken for one alert
        same = blake2b(same.encode(), digest_size=_SAME_CHARS_MAX // 2).hexdigest()
    return Alert(
        id=f"{same}/{at_s:.0f}",
        name=name,
        host=HostName(_without_port(host[0]) if host[1] == "instance" else host[0]),
        gpu=None if gpu is None else GpuId(gpu),
        severity=_SEVERITIES.get((_word(labels, "severity") or "").lower(), Severity.WARNING),
        said=said,
        at_s=at_s,
    )


def _word(values: Mapping[str, Any], key: str, limit: int = MAX_WORD) -> str | None:
    value = values.get(key)
    return (
        line("".join(c if c.isprintable() else " " for c in value), limit) or None if isinstance(value, str) else None
    )


def _time(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if isinstance(text, str) and "T" in text else None
    except (ValueError, OverflowError):
        return None


def _without_port(instance: str) -> str:
    name, colon, port = instance.rpartition(":")
    return name.strip("[]") if colon and port.isdigit() and name else instance
