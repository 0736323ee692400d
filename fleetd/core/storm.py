"""Storms: the same fault on many hosts at once is one incident, not the fault of its hosts.

A driver roll-out, a switch or a power event makes many sound hosts look bad. The first few may be taken out before it
is seen; from then on every quarantine for that fault is withheld until a human closes the incident.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from fleetd.model.finding import BurninEnded, DeviceFault, Finding, Scope, Severity, Verdict
from fleetd.model.fleet import FleetRecord, Incident, IncidentKind
from fleetd.model.host import Host
from fleetd.model.ids import HostName

INCIDENT_HOSTS = 64
"""Hosts that an incident lists; it counts the others."""

MAX_INCIDENTS = 64
"""Open incidents; beyond them no new one is opened, and only the budgets bound a storm."""


def storm_key(finding: Finding) -> str | None:
    """What a finding has in common with those of other hosts in a storm; None when it is about one host alone.

    Device faults are one kind by their code. Failed burn-ins are one kind by their vote key, which covers the kernels,
    the libraries and the driver: eight hosts that compute wrong with the same kernels have a bad kernel.
    """
    if isinstance(finding, BurninEnded):
        blames = finding.verdict is Verdict.FAIL and any(c.fault_class.is_hardware for c in finding.culprits)
        return f"kernels:{finding.vote_key}" if blames and finding.vote_key else None
    serious = finding.severity >= Severity.ERROR and finding.fault_class.is_hardware and finding.scope is not Scope.APP
    return f"fault:{finding.code}" if serious else None


def outdated(finding: Finding, host: Host) -> bool:
    """Whether a device fault is older than what its host has proven since: a log or a store of records read again.

    A failed burn-in is not: no reboot and no weaker pass explains it away.
    """
    return isinstance(finding, DeviceFault) and finding.boot_id != host.boot_id and host.proof is not None


def key_of_incident(incident: str) -> str:
    """The key of an incident's id (`KIND/KEY/NUMBER`)."""
    return incident.split("/", 1)[-1].rsplit("/", 1)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What the other hosts say about a finding."""

    incident: Incident | None
    """The open incident that it belongs to."""
    record: FleetRecord
    """The fleet's record with it."""
    tell: bool
    """Whether a human is to be told now."""


def look(
    record: FleetRecord,
    *,
    now_s: float,
    kind: IncidentKind,
    key: str,
    hosts: Collection[HostName],
    host: HostName,
    at_least: int,
    tell_again_s: float,
    what: str,
) -> Weather:
    """Whether a host's trouble is part of an incident: one that is open, or one that it opens.

    Args:
        record: the fleet's record.
        now_s: wall time, seconds since the epoch.
        kind: of the incident.
        key: what the hosts have in common.
        hosts: those that had it within the policy's window, without this one.
        host: this one.
        at_least: so many hosts make an incident.
        tell_again_s: how long after the last time a human is told again.
        what: the incident in words, after the number of hosts.
    """
    open_one = next((i for i in record.incidents if (i.kind, i.key) == (kind, key)), None)
    everyone = {*hosts, host}
    if open_one is not None:
        return _joined(record, open_one, host, now_s=now_s, tell_again_s=tell_again_s, what=what)
    if len(everyone) < at_least or len(record.incidents) >= MAX_INCIDENTS:
        return Weather(incident=None, record=record, tell=False)
    number = record.incidents_opened + 1
    opened = Incident(
        id=f"{kind}/{key}/{number}",
        kind=kind,
        key=key,
        opened_at_s=now_s,
        hosts=tuple(sorted(everyone)[:INCIDENT_HOSTS]),
        hosts_total=len(everyone),
        why=f"{len(everyone)} hosts {what}",
        told_at_s=now_s,
    )
    grown = replace(record, incidents=(*record.incidents, opened), incidents_opened=number)
    return Weather(incident=opened, record=grown, tell=True)


def _joined(
    record: FleetRecord, incident: Incident, host: HostName, *, now_s: float, tell_again_s: float, what: str
) -> Weather:
    """The open incident with one more host, or with one that was in it already."""
    tell = now_s - incident.told_at_s >= tell_again_s
    new = host not in incident.hosts
    if not new and not tell:
        return Weather(incident=incident, record=record, tell=False)
    # Beyond the listed ones a host that comes again cannot be told from a new one: the count is an upper bound.
    total = incident.hosts_total + new
    room = new and len(incident.hosts) < INCIDENT_HOSTS
    joined = replace(
        incident,
        hosts=tuple(sorted((*incident.hosts, host))) if room else incident.hosts,
        hosts_total=total,
        why=f"{total} hosts {what}",
        told_at_s=now_s if tell else incident.told_at_s,
    )
    incidents = tuple(joined if i is incident else i for i in record.incidents)
    return Weather(incident=joined, record=replace(record, incidents=incidents), tell=tell)
