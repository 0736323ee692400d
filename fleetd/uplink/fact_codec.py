"""Model ↔ protobuf for facts and alerts: the audit trail, the report, what other monitors say."""

from fleetd.model.alert import Alert
from fleetd.model.fact import Fact, FactQuery, Kind
from fleetd.model.ids import GpuId, HostName
from fleetd.pb.v1 import desk_pb2
from fleetd.uplink.codec import SEVERITIES
from fleetd.uplink.desk_codec import LIFECYCLES
from fleetd.uplink.wire import clean, finite, items, label, name, text, unsigned

FACTS_PAGE = 1000
"""Facts in one answer; how hosts stood where the journal begins comes on top, one fact a host."""
MAX_FACTS = 200_000
"""Most facts that an answer may have."""
MAX_ORDERS = 1000
MAX_ALERTS = 1000
_POSITION_BITS = 63


def fact_to_pb(fact: Fact) -> desk_pb2.Fact:
    """Encode a fact; raises CodecError."""
    return desk_pb2.Fact(
        position=unsigned(fact.position, "fact position", bits=_POSITION_BITS),
        at_s=finite(fact.at_s, "fact at_s"),
        event=name(fact.event, "fact event"),
        host=None if fact.host is None else name(fact.host, "fact host"),
        who=None if fact.who is None else clean(fact.who),
        reason=clean(fact.reason),
        why=clean(fact.why),
        refused=fact.refused,
        was=clean(fact.was),
        now=clean(fact.now),
        orders=items(fact.orders, lambda order: name(order, "fact order"), "fact orders", limit=MAX_ORDERS),
        state=None if fact.state is None else LIFECYCLES.to_pb(fact.state),
        vendor=None if fact.kind.vendor is None else clean(fact.kind.vendor),
        sku=None if fact.kind.sku is None else clean(fact.kind.sku),
        pool=None if fact.kind.pool is None else clean(fact.kind.pool),
        gpus=unsigned(fact.gpus, "fact gpus", bits=32),
        held_by_us=fact.held_by_us,
        found_at_s=None if fact.found_at_s is None else finite(fact.found_at_s, "fact found_at_s"),
        override=fact.override,
        job_ok=fact.job_ok,
        job_seconds=finite(fact.job_seconds, "fact job_seconds"),
    )


def fact_from_pb(pb: desk_pb2.Fact) -> Fact:
    """Decode a fact; raises CodecError."""
    return Fact(
        position=unsigned(pb.position, "fact position", bits=_POSITION_BITS),
        at_s=finite(pb.at_s, "fact at_s"),
        event=name(pb.event, "fact event"),
        host=HostName(name(pb.host, "fact host")) if pb.HasField("host") else None,
        who=text(pb.who, "fact who") if pb.HasField("who") else None,
        reason=text(pb.reason, "fact reason"),
        why=text(pb.why, "fact why"),
        refused=pb.refused,
        was=text(pb.was, "fact was"),
        now=text(pb.now, "fact now"),
        orders=items(pb.orders, lambda order: name(order, "fact order"), "fact orders", limit=MAX_ORDERS),
        state=LIFECYCLES.from_pb(pb.state, "fact state") if pb.HasField("state") else None,
        kind=Kind(
            vendor=text(pb.vendor, "fact vendor") if pb.HasField("vendor") else None,
            sku=text(pb.sku, "fact sku") if pb.HasField("sku") else None,
            pool=text(pb.pool, "fact pool") if pb.HasField("pool") else None,
        ),
        gpus=pb.gpus,
        held_by_us=pb.held_by_us,
        found_at_s=finite(pb.found_at_s, "fact found_at_s") if pb.HasField("found_at_s") else None,
        override=pb.override,
        job_ok=pb.job_ok if pb.HasField("job_ok") else None,
        job_seconds=finite(pb.job_seconds, "fact job_seconds"),
    )


def query_to_pb(query: FactQuery) -> desk_pb2.ListFactsRequest:
    """Encode a question for facts; raises CodecError."""
    return desk_pb2.ListFactsRequest(
        after=unsigned(query.after, "after", bits=_POSITION_BITS),
        limit=unsigned(query.limit, "limit", bits=32),
        notable=query.notable,
        people=query.people,
        host=None if query.host is None else name(query.host, "host"),
        who=None if query.who is None else name(query.who, "who"),
        event=None if query.event is None else name(query.event, "event"),
        since_s=None if query.since_s is None else finite(query.since_s, "since_s"),
        until_s=None if query.until_s is None else finite(query.until_s, "until_s"),
        before=None if query.before is None else unsigned(query.before, "before", bits=_POSITION_BITS),
        newest=query.newest,
    )


def query_from_pb(pb: desk_pb2.ListFactsRequest) -> FactQuery:
    """Decode a question for facts, cut to a page; raises CodecError."""
    return FactQuery(
        after=unsigned(pb.after, "after", bits=_POSITION_BITS),
        limit=min(pb.limit or FACTS_PAGE, FACTS_PAGE),
        notable=pb.notable,
        people=pb.people,
        host=HostName(name(pb.host, "host")) if pb.HasField("host") else None,
        who=name(pb.who, "who") if pb.HasField("who") else None,
        event=name(pb.event, "event") if pb.HasField("event") else None,
        since_s=finite(pb.since_s, "since_s") if pb.HasField("since_s") else None,
        until_s=finite(pb.until_s, "until_s") if pb.HasField("until_s") else None,
        before=unsigned(pb.before, "before", bits=_POSITION_BITS) if pb.HasField("before") else None,
        newest=pb.newest,
    )


def alert_to_pb(alert: Alert) -> desk_pb2.Alert:
    """Encode an alert; raises CodecError."""
    return desk_pb2.Alert(
        id=name(alert.id, "alert id"),
        name=name(alert.name, "alert name"),
        host=name(alert.host, "alert host"),
        gpu=None if alert.gpu is None else label(alert.gpu, "alert gpu"),
        severity=SEVERITIES.to_pb(alert.severity),
        said=clean(alert.said),
        at_s=finite(alert.at_s, "alert at_s"),
    )


def alert_from_pb(pb: desk_pb2.Alert) -> Alert:
    """Decode an alert; raises CodecError."""
    return Alert(
        id=name(pb.id, "alert id"),
        name=name(pb.name, "alert name"),
        host=HostName(name(pb.host, "alert host")),
        gpu=GpuId(name(pb.gpu, "alert gpu")) if pb.HasField("gpu") else None,
        severity=SEVERITIES.from_pb(pb.severity, "alert severity"),
        said=text(pb.said, "alert said"),
        at_s=finite(pb.at_s, "alert at_s"),
    )
