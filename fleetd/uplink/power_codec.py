"""Model ↔ protobuf for leases of power budgets, and for how the budgets stand. Raises CodecError as `codec` does."""

from fleetd.model.ids import HostName
from fleetd.model.power_lease import Answer, AreaUse, Ask, Grant, HostUse, NoGrant, PowerUse
from fleetd.pb.v1 import agent_pb2, desk_pb2
from fleetd.uplink.wire import CodecError, clean, finite, items, name, text, unsigned

MAX_AREAS = 100_000
MAX_HOSTS = 100_000
"""Most areas and hosts of a tree."""
_SEQ_BITS = 63


def ask_to_pb(ask: Ask) -> agent_pb2.AgentMessage:
    """Encode a host's question; who asks is known by the stream."""
    return agent_pb2.AgentMessage(
        power_ask=agent_pb2.PowerAsk(
            epoch=unsigned(ask.epoch, "power_ask epoch", bits=_SEQ_BITS),
            seq=unsigned(ask.seq, "power_ask seq", bits=_SEQ_BITS),
            demand_watts=finite(ask.demand_watts, "power_ask demand_watts"),
            applied_seq=unsigned(ask.applied_seq, "power_ask applied_seq", bits=_SEQ_BITS),
            holds_watts=finite(ask.holds_watts, "power_ask holds_watts"),
            safe_watts=finite(ask.safe_watts, "power_ask safe_watts"),
            uncapped=clean(ask.uncapped) if ask.uncapped else None,
        )
    )


def ask_from_pb(pb: agent_pb2.PowerAsk, host: HostName) -> Ask:
    """Decode a question of the host whose stream it came by."""
    if pb.applied_seq > pb.seq:
        raise CodecError(f"power_ask applied_seq is {pb.applied_seq}, and the question is only number {pb.seq}")
    return Ask(
        host=host,
        epoch=unsigned(pb.epoch, "power_ask epoch", bits=_SEQ_BITS),
        seq=unsigned(pb.seq, "power_ask seq", bits=_SEQ_BITS),
        demand_watts=finite(pb.demand_watts, "power_ask demand_watts"),
        applied_seq=pb.applied_seq,
        holds_watts=finite(pb.holds_watts, "power_ask holds_watts"),
        safe_watts=finite(pb.safe_watts, "power_ask safe_watts"),
        uncapped=text(pb.uncapped, "power_ask uncapped") if pb.HasField("uncapped") else "",
    )


def answer_to_pb(answer: Answer) -> agent_pb2.ControllerMessage:
    """Encode an answer."""
    if isinstance(answer, NoGrant):
        no_grant = agent_pb2.PowerNoGrant(why=clean(answer.why), budgets=answer.budgets)
        return agent_pb2.ControllerMessage(power_no_grant=no_grant)
    return agent_pb2.ControllerMessage(
        power_grant=agent_pb2.PowerGrant(
            epoch=answer.epoch,
            seq=answer.seq,
            watts=finite(answer.watts, "power_grant watts"),
            ttl_seconds=finite(answer.ttl_s, "power_grant ttl_seconds"),
            max_watts=finite(answer.max_watts, "power_grant max_watts"),
            why=clean(answer.why) if answer.why else None,
        )
    )


def grant_from_pb(pb: agent_pb2.PowerGrant, host: HostName) -> Grant:
    """Decode a grant for the host whose stream it came by."""
    return Grant(
        host=host,
        epoch=pb.epoch,
        seq=pb.seq,
        watts=finite(pb.watts, "power_grant watts"),
        ttl_s=finite(pb.ttl_seconds, "power_grant ttl_seconds"),
        max_watts=finite(pb.max_watts, "power_grant max_watts"),
        why=text(pb.why, "power_grant why") if pb.HasField("why") else "",
    )


def no_grant_from_pb(pb: agent_pb2.PowerNoGrant) -> NoGrant:
    """Decode the answer that there is no lease."""
    return NoGrant(why=text(pb.why, "power_no_grant why"), budgets=pb.budgets)


# ── how the budgets stand ───────────────────────────────────────────────────────────────────────────────────────────


def power_to_pb(use: PowerUse) -> desk_pb2.GetPowerResponse:
    """Encode how the budgets stand."""
    return desk_pb2.GetPowerResponse(
        areas=items(use.areas, _area_to_pb, "power areas", limit=MAX_AREAS),
        hosts=items(use.hosts, _host_to_pb, "power hosts", limit=MAX_HOSTS),
        settles_seconds=finite(use.settles_s, "power settles_seconds"),
    )


def power_from_pb(pb: desk_pb2.GetPowerResponse) -> PowerUse:
    """Decode how the budgets stand."""
    return PowerUse(
        areas=items(pb.areas, _area_from_pb, "power areas", limit=MAX_AREAS),
        hosts=items(pb.hosts, _host_from_pb, "power hosts", limit=MAX_HOSTS),
        settles_s=finite(pb.settles_seconds, "power settles_seconds"),
    )


def _area_to_pb(area: AreaUse) -> desk_pb2.PowerArea:
    return desk_pb2.PowerArea(
        name=name(area.name, "power area"),
        parent=None if area.parent is None else name(area.parent, "power area parent"),
        budget_watts=finite(area.budget_watts, "power area budget_watts"),
        reserved_watts=finite(area.reserved_watts, "power area reserved_watts"),
        demand_watts=finite(area.demand_watts, "power area demand_watts"),
        stranded_watts=finite(area.stranded_watts, "power area stranded_watts"),
    )


def _area_from_pb(pb: desk_pb2.PowerArea) -> AreaUse:
    return AreaUse(
        name=name(pb.name, "power area"),
        parent=name(pb.parent, "power area parent") if pb.HasField("parent") else None,
        budget_watts=finite(pb.budget_watts, "power area budget_watts"),
        reserved_watts=finite(pb.reserved_watts, "power area reserved_watts"),
        demand_watts=finite(pb.demand_watts, "power area demand_watts"),
        stranded_watts=finite(pb.stranded_watts, "power area stranded_watts"),
    )


def _host_to_pb(host: HostUse) -> desk_pb2.PowerHost:
    return desk_pb2.PowerHost(
        name=name(host.name, "power host"),
        area=name(host.area, "power host area"),
        safe_watts=finite(host.safe_watts, "power host safe_watts"),
        max_watts=finite(host.max_watts, "power host max_watts"),
        reserved_watts=finite(host.reserved_watts, "power host reserved_watts"),
        demand_watts=finite(host.demand_watts, "power host demand_watts"),
        lease_watts=None if host.lease_watts is None else finite(host.lease_watts, "power host lease_watts"),
        left_seconds=None if host.left_s is None else finite(host.left_s, "power host left_seconds"),
        uncapped=clean(host.uncapped) if host.uncapped else None,
    )


def _host_from_pb(pb: desk_pb2.PowerHost) -> HostUse:
    return HostUse(
        name=HostName(name(pb.name, "power host")),
        area=name(pb.area, "power host area"),
        safe_watts=finite(pb.safe_watts, "power host safe_watts"),
        max_watts=finite(pb.max_watts, "power host max_watts"),
        reserved_watts=finite(pb.reserved_watts, "power host reserved_watts"),
        demand_watts=finite(pb.demand_watts, "power host demand_watts"),
        lease_watts=finite(pb.lease_watts, "power host lease_watts") if pb.HasField("lease_watts") else None,
        left_s=finite(pb.left_seconds, "power host left_seconds") if pb.HasField("left_seconds") else None,
        uncapped=text(pb.uncapped, "power host uncapped") if pb.HasField("uncapped") else "",
    )
