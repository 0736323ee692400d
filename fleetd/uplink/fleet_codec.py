"""Model ↔ protobuf for the fleet as one thing: tripped budgets, the kill switch, open incidents."""

from fleetd.model.fleet import Area, AreaKey, FleetRecord, Incident, IncidentKind, Stopped, Tripped
from fleetd.model.ids import HostName
from fleetd.pb.v1 import desk_pb2
from fleetd.uplink.wire import Words, clean, finite, items, label, name, text, unsigned

MAX_TRIPPED = 100_000
"""Most budgets that have tripped: a host belongs to a handful of areas."""
MAX_INCIDENTS = 1000
MAX_INCIDENT_HOSTS = 1000
"""Most open incidents, and hosts listed in one."""

AREAS = Words(Area, desk_pb2.Area.Value, "AREA_", fallback=None)
INCIDENT_KINDS = Words(IncidentKind, desk_pb2.IncidentKind.Value, "INCIDENT_KIND_", fallback=None)


def fleet_to_pb(record: FleetRecord) -> desk_pb2.Fleet:
    """Encode the fleet's record; raises CodecError."""
    stopped = record.stopped
    return desk_pb2.Fleet(
        tripped=items(record.tripped, _tripped_to_pb, "fleet tripped", limit=MAX_TRIPPED),
        stopped=None
        if stopped is None
        else desk_pb2.Stopped(who=clean(stopped.who), reason=clean(stopped.reason), at_s=stopped.at_s),
        incidents=items(record.incidents, _incident_to_pb, "fleet incidents", limit=MAX_INCIDENTS),
        incidents_opened=unsigned(record.incidents_opened, "fleet incidents_opened", bits=32),
    )


def fleet_from_pb(pb: desk_pb2.Fleet) -> FleetRecord:
    """Decode the fleet's record; raises CodecError."""
    return FleetRecord(
        tripped=items(pb.tripped, _tripped_from_pb, "fleet tripped", limit=MAX_TRIPPED),
        stopped=Stopped(
            who=text(pb.stopped.who, "stopped who"),
            reason=text(pb.stopped.reason, "stopped reason"),
            at_s=finite(pb.stopped.at_s, "stopped at_s"),
        )
        if pb.HasField("stopped")
        else None,
        incidents=items(pb.incidents, _incident_from_pb, "fleet incidents", limit=MAX_INCIDENTS),
        incidents_opened=pb.incidents_opened,
    )


def _tripped_to_pb(tripped: Tripped) -> desk_pb2.Tripped:
    return desk_pb2.Tripped(
        area=AREAS.to_pb(tripped.key.area),
        name=label(tripped.key.name, "tripped name"),
        at_s=finite(tripped.at_s, "tripped at_s"),
        why=clean(tripped.why),
        told_at_s=finite(tripped.told_at_s, "tripped told_at_s"),
    )


def _tripped_from_pb(pb: desk_pb2.Tripped) -> Tripped:
    return Tripped(
        key=AreaKey(area=AREAS.from_pb(pb.area, "tripped area"), name=label(pb.name, "tripped name")),
        at_s=finite(pb.at_s, "tripped at_s"),
        why=text(pb.why, "tripped why"),
        told_at_s=finite(pb.told_at_s, "tripped told_at_s"),
    )


def _incident_to_pb(incident: Incident) -> desk_pb2.Incident:
    return desk_pb2.Incident(
        id=text(incident.id, "incident id"),
        kind=INCIDENT_KINDS.to_pb(incident.kind),
        key=text(incident.key, "incident key"),
        opened_at_s=finite(incident.opened_at_s, "incident opened_at_s"),
        hosts=items(incident.hosts, lambda host: name(host, "incident host"), "hosts", limit=MAX_INCIDENT_HOSTS),
        hosts_total=unsigned(incident.hosts_total, "incident hosts_total", bits=32),
        why=clean(incident.why),
        told_at_s=finite(incident.told_at_s, "incident told_at_s"),
    )


def _incident_from_pb(pb: desk_pb2.Incident) -> Incident:
    return Incident(
        id=text(pb.id, "incident id"),
        kind=INCIDENT_KINDS.from_pb(pb.kind, "incident kind"),
        key=text(pb.key, "incident key"),
        opened_at_s=finite(pb.opened_at_s, "incident opened_at_s"),
        hosts=items(pb.hosts, lambda host: HostName(name(host, "incident host")), "hosts", limit=MAX_INCIDENT_HOSTS),
        hosts_total=pb.hosts_total,
        why=text(pb.why, "incident why"),
        told_at_s=finite(pb.told_at_s, "incident told_at_s"),
    )
