"""The model as JSON text and back: a tag names the class of each alternative of a union, fields do the rest."""

from hashlib import blake2b
from typing import Any, TypedDict

import msgspec

from fleetd.model import event, finding, order
from fleetd.model.event import AnyEvent, JobEnded
from fleetd.model.finding import Finding
from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Host
from fleetd.model.journal import JournalEntry, SpoolProgress, WithheldOrder
from fleetd.model.order import Order
from fleetd.ports import StoreError

_CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(finding.BurninEnded, finding.DeviceFault),
        *(order.Quarantine, order.Release, order.RunBurnin, order.Notify),
        *(event.AgentConnected, event.AgentSilent, event.FindingReceived, event.BurninAccepted, event.BurninRefused),
        *(event.OutlierFound, event.Outvoted, event.JobEnded, event.Rejudged, event.TimePassed),
        *(event.OperatorQuarantined, event.OperatorReleased, event.OperatorBurnin, event.OperatorRepairs),
        *(event.OperatorRepaired, event.OperatorRetires, event.GpuSwapped, event.LedgerRestored),
        *(event.BudgetRearmed, event.AutomationStopped, event.AutomationResumed, event.IncidentClosed),
        *(event.OrderObstructed, event.SchedulerDiffers),
    )
}
"""Tag → class. A class that is renamed keeps its old tag here, so that old journals stay readable."""

_encoder = msgspec.json.Encoder(order="deterministic")


def _tagged(value: object) -> dict[str, Any]:
    builtins: dict[str, Any] = msgspec.to_builtins(value)
    return {"type": type(value).__name__, **builtins}


def _untagged(body: dict[str, Any]) -> Any:
    fields = dict(body)
    return msgspec.convert(fields, _CLASSES[fields.pop("type")])


def _event_body(value: AnyEvent) -> dict[str, Any]:
    if isinstance(value, event.FindingReceived):
        return {"type": "FindingReceived", "host": value.host, "finding": _tagged(value.finding)}
    return _tagged(value)


def _event_from(body: dict[str, Any]) -> AnyEvent:
    if body["type"] == "FindingReceived":
        return event.FindingReceived(host=body["host"], finding=_untagged(body["finding"]))
    value: AnyEvent = _untagged(body)
    return value


def dump_finding(value: Finding) -> str:
    """One finding as JSON text."""
    return _encoder.encode(_tagged(value)).decode()


def load_finding(text: str) -> Finding:
    """The finding of `dump_finding`. Raises StoreError on a text that is none."""
    value: Finding = _guard(lambda: _untagged(msgspec.json.decode(text)), "finding")
    return value


def dump_order(value: Order) -> str:
    """One order as JSON text."""
    return _encoder.encode(_tagged(value)).decode()


def load_order(text: str) -> Order:
    """The order of `dump_order`. Raises StoreError on a text that is none."""
    value: Order = _guard(lambda: _untagged(msgspec.json.decode(text)), "order")
    return value


def dump_host(value: Host) -> str:
    """One host as JSON text."""
    return _encoder.encode(value).decode()


def load_host(text: str) -> Host:
    """The host of `dump_host`. Raises StoreError on a text that is none."""
    value: Host = _guard(lambda: msgspec.json.decode(text, type=Host), "host")
    return value


def dump_fleet(value: FleetRecord) -> str:
    """The fleet's record as JSON text."""
    return _encoder.encode(value).decode()


def load_fleet(text: str) -> FleetRecord:
    """The record of `dump_fleet`. Raises StoreError on a text that is none."""
    value: FleetRecord = _guard(lambda: msgspec.json.decode(text, type=FleetRecord), "fleet record")
    return value


def dump_entry(entry: JournalEntry) -> str:
    """One journal entry as JSON text, byte for byte the same for the same entry."""
    body = {
        "at_s": entry.at_s,
        "event": _event_body(entry.event),
        "host": entry.host,
        "orders": [_tagged(o) for o in entry.orders],
        "withheld": [{"order": _tagged(w.order), "why": w.why} for w in entry.withheld],
        "refused": entry.refused,
        "fleet": entry.fleet,
        "why": entry.why,
        "progress": entry.progress,
    }
    return _encoder.encode(body).decode()


_CHAIN = '{"chain":"'
_DIGEST_CHARS = 32
_UNCHAINED = "-"
"""Marks the anchor of an entry of the first versions, which named none before it."""


def digest_of(text: str | None) -> str:
    """What the next entry says of the one before it; None: there is none before it."""
    return blake2b((text or "").encode(), digest_size=_DIGEST_CHARS // 2).hexdigest()


def chained(text: str, before: str | None) -> str:
    """The text of an entry that names the one before it, so that none can go or move unseen; None: it is the first."""
    return chained_to(text, digest_of(before))


def chained_to(text: str, anchor: str) -> str:
    """The same, behind one of which only the anchor is left."""
    return f'{_CHAIN}{anchor.removeprefix(_UNCHAINED)}",{text[1:]}'


def follows(text: str, before: str | None) -> bool:
    """Whether an entry's text follows another's. Those of the first versions name none, and stand before all others."""
    if not text.startswith(_CHAIN):
        return before is None or not before.startswith(_CHAIN)
    return text.startswith(chained("{", before))


def anchor_of(text: str) -> str:
    """What is kept of an entry that is pruned, so that the one after it can still be held against it."""
    return digest_of(text) if text.startswith(_CHAIN) else f"{_UNCHAINED}{digest_of(text)}"


def follows_anchor(text: str, anchor: str) -> bool:
    """Whether an entry's text follows a pruned one, of which only the anchor is left."""
    if not text.startswith(_CHAIN):
        return anchor.startswith(_UNCHAINED)
    return text.startswith(f'{_CHAIN}{anchor.removeprefix(_UNCHAINED)}",')


def load_entry(text: str) -> JournalEntry:
    """The entry of `dump_entry`. Raises StoreError on a text that is none."""

    def build() -> JournalEntry:
        body = msgspec.json.decode(text)
        return JournalEntry(
            at_s=float(body["at_s"]),
            event=_event_from(body["event"]),
            host=None if body["host"] is None else msgspec.convert(body["host"], Host),
            orders=tuple(_untagged(o) for o in body["orders"]),
            withheld=tuple(WithheldOrder(order=_untagged(w["order"]), why=w["why"]) for w in body["withheld"]),
            refused=body["refused"],
            fleet=None if body["fleet"] is None else msgspec.convert(body["fleet"], FleetRecord),
            why=body["why"],
            progress=None if body["progress"] is None else msgspec.convert(body["progress"], SpoolProgress),
        )

    entry: JournalEntry = _guard(build, "journal entry")
    return entry


def load_job_end(text: str) -> JobEnded:
    """The event of an entry that is the end of a job, without the rest of it. Raises StoreError."""
    ended: dict[str, JobEnded] = _guard(lambda: msgspec.json.decode(text, type=_JobEndedEntry), "journal entry")
    return ended["event"]


class _JobEndedEntry(TypedDict):
    event: JobEnded


def _guard(build: Any, what: str) -> Any:
    try:
        return build()
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the store holds a {what} that this version cannot read: {error}") from error
