"""Model ↔ protobuf for what operators see: the host with its holds, strikes and pending burn-in."""

from fleetd.model.host import Charge, DueBurnin, Hold, Host, Lifecycle, Mark, PendingBurnin, Silent, Strike
from fleetd.model.ids import BootId, FindingId, GpuId, HostName, OrderId
from fleetd.model.order import Drain
from fleetd.pb.v1 import desk_pb2
from fleetd.uplink.codec import FAULT_CLASSES
from fleetd.uplink.hello_codec import gpu_from_pb, gpu_to_pb, place_from_pb, place_to_pb
from fleetd.uplink.wire import MAX_GPUS, Words, clean, finite, items, name, text, unsigned

MAX_HOLDS = 1000
"""Most holds of one host."""
MAX_EVIDENCE = 1000
"""Most findings behind one hold; the newest are sent."""
MAX_STRIKES = 10_000
"""Most strikes of one host."""

LIFECYCLES = Words(Lifecycle, desk_pb2.Lifecycle.Value, "LIFECYCLE_", fallback=None)
DRAINS = Words(Drain, desk_pb2.Leaving.Value, "LEAVING_", fallback=None)


def _hold_to_pb(hold: Hold) -> desk_pb2.Hold:
    return desk_pb2.Hold(
        owner=name(hold.owner, "hold owner"),
        reason=clean(hold.reason),
        evidence=[name(finding, "hold evidence") for finding in hold.evidence[-MAX_EVIDENCE:]],
        gpu=None if hold.gpu is None else name(hold.gpu, "hold gpu"),
        fault_class=FAULT_CLASSES.to_pb(hold.fault_class),
        boot_id=None if hold.boot_id is None else name(hold.boot_id, "hold boot_id"),
        at_s=finite(hold.at_s, "hold at_s"),
        proof_level=None if hold.proof_level is None else name(hold.proof_level, "hold proof_level"),
        after_reboot=hold.after_reboot,
        expires_at_s=None if hold.expires_at_s is None else finite(hold.expires_at_s, "hold expires_at_s"),
    )


def _hold_from_pb(pb: desk_pb2.Hold) -> Hold:
    return Hold(
        owner=name(pb.owner, "hold owner"),
        reason=text(pb.reason, "hold reason"),
        evidence=items(
            pb.evidence, lambda word: FindingId(name(word, "hold evidence")), "hold evidence", limit=MAX_EVIDENCE
        ),
        gpu=GpuId(name(pb.gpu, "hold gpu")) if pb.HasField("gpu") else None,
        fault_class=FAULT_CLASSES.from_pb(pb.fault_class, "hold fault_class"),
        boot_id=BootId(name(pb.boot_id, "hold boot_id")) if pb.HasField("boot_id") else None,
        at_s=finite(pb.at_s, "hold at_s"),
        proof_level=name(pb.proof_level, "hold proof_level") if pb.HasField("proof_level") else None,
        after_reboot=pb.after_reboot,
        expires_at_s=finite(pb.expires_at_s, "hold expires_at_s") if pb.HasField("expires_at_s") else None,
    )


def _charge_to_pb(charge: Charge) -> desk_pb2.Charge:
    return desk_pb2.Charge(
        hold=_hold_to_pb(charge.hold),
        withheld=clean(charge.withheld),
        key=None if charge.key is None else name(charge.key, "charge key"),
    )


def _charge_from_pb(pb: desk_pb2.Charge) -> Charge:
    return Charge(
        hold=_hold_from_pb(pb.hold),
        withheld=text(pb.withheld, "charge withheld"),
        key=name(pb.key, "charge key") if pb.HasField("key") else None,
    )


def _mark_to_pb(mark: Mark) -> desk_pb2.Mark:
    return desk_pb2.Mark(
        gpu=None if mark.gpu is None else name(mark.gpu, "mark gpu"),
        slot=None if mark.slot is None else name(mark.slot, "mark slot"),
        finding=name(mark.finding, "mark finding"),
        fault_class=FAULT_CLASSES.to_pb(mark.fault_class),
        at_s=finite(mark.at_s, "mark at_s"),
    )


def _mark_from_pb(pb: desk_pb2.Mark) -> Mark:
    return Mark(
        gpu=GpuId(name(pb.gpu, "mark gpu")) if pb.HasField("gpu") else None,
        slot=name(pb.slot, "mark slot") if pb.HasField("slot") else None,
        finding=FindingId(name(pb.finding, "mark finding")),
        fault_class=FAULT_CLASSES.from_pb(pb.fault_class, "mark fault_class"),
        at_s=finite(pb.at_s, "mark at_s"),
    )


def _strike_to_pb(strike: Strike) -> desk_pb2.Strike:
    return desk_pb2.Strike(
        gpu=name(strike.gpu, "strike gpu"),
        finding=name(strike.finding, "strike finding"),
        at_s=finite(strike.at_s, "strike at_s"),
    )


def _strike_from_pb(pb: desk_pb2.Strike) -> Strike:
    return Strike(
        gpu=GpuId(name(pb.gpu, "strike gpu")),
        finding=FindingId(name(pb.finding, "strike finding")),
        at_s=finite(pb.at_s, "strike at_s"),
    )


def _pending_to_pb(pending: PendingBurnin) -> desk_pb2.PendingBurnin:
    return desk_pb2.PendingBurnin(
        order_id=name(pending.order_id, "pending order_id"),
        level=name(pending.level, "pending level"),
        issued_at_s=finite(pending.issued_at_s, "pending issued_at_s"),
        not_after_s=finite(pending.not_after_s, "pending not_after_s"),
        accepted=pending.accepted,
    )


def _pending_from_pb(pb: desk_pb2.PendingBurnin) -> PendingBurnin:
    return PendingBurnin(
        order_id=OrderId(name(pb.order_id, "pending order_id")),
        level=name(pb.level, "pending level"),
        issued_at_s=finite(pb.issued_at_s, "pending issued_at_s"),
        not_after_s=finite(pb.not_after_s, "pending not_after_s"),
        accepted=pb.accepted,
    )


def _due_to_pb(due: DueBurnin) -> desk_pb2.DueBurnin:
    not_before_s = finite(due.not_before_s, "due not_before_s")
    return desk_pb2.DueBurnin(level=name(due.level, "due level"), why=clean(due.why), not_before_s=not_before_s)


def _due_from_pb(pb: desk_pb2.DueBurnin) -> DueBurnin:
    not_before_s = finite(pb.not_before_s, "due not_before_s")
    return DueBurnin(level=name(pb.level, "due level"), why=text(pb.why, "due why"), not_before_s=not_before_s)


def _silent_to_pb(silent: Silent) -> desk_pb2.Silent:
    return desk_pb2.Silent(since_s=finite(silent.since_s, "silent since_s"), before=LIFECYCLES.to_pb(silent.before))


def _silent_from_pb(pb: desk_pb2.Silent) -> Silent:
    return Silent(since_s=finite(pb.since_s, "silent since_s"), before=LIFECYCLES.from_pb(pb.before, "silent before"))


def host_to_pb(host: Host) -> desk_pb2.Host:
    """Encode what operators see of a host, without the judgement's own bookkeeping; raises CodecError."""
    return desk_pb2.Host(
        name=name(host.name, "host name"),
        state=LIFECYCLES.to_pb(host.state),
        why=clean(host.why),
        since_s=finite(host.since_s, "host since_s"),
        boot_id=None if host.boot_id is None else name(host.boot_id, "host boot_id"),
        inventory=items(host.inventory, gpu_to_pb, "host inventory", limit=MAX_GPUS),
        holds=items(host.holds, _hold_to_pb, "host holds", limit=MAX_HOLDS),
        strikes=items(host.strikes, _strike_to_pb, "host strikes", limit=MAX_STRIKES),
        pending=None if host.pending is None else _pending_to_pb(host.pending),
        proof=None if host.proof is None else name(host.proof, "host proof"),
        orders_issued=unsigned(host.orders_issued, "host orders_issued", bits=32),
        attempts=unsigned(host.attempts, "host attempts", bits=32),
        place=place_to_pb(host.place),
        charges=items(host.charges, _charge_to_pb, "host charges", limit=MAX_HOLDS),
        marks=items(host.marks, _mark_to_pb, "host marks", limit=MAX_HOLDS),
        due=None if host.due is None else _due_to_pb(host.due),
        silent=None if host.silent is None else _silent_to_pb(host.silent),
        probation_until_s=None
        if host.probation_until_s is None
        else finite(host.probation_until_s, "host probation_until_s"),
    )


def host_from_pb(pb: desk_pb2.Host) -> Host:
    """Decode a host; raises CodecError."""
    return Host(
        name=HostName(name(pb.name, "host name")),
        state=LIFECYCLES.from_pb(pb.state, "host state"),
        why=text(pb.why, "host why"),
        since_s=finite(pb.since_s, "host since_s"),
        boot_id=BootId(name(pb.boot_id, "host boot_id")) if pb.HasField("boot_id") else None,
        inventory=items(pb.inventory, gpu_from_pb, "host inventory", limit=MAX_GPUS),
        holds=items(pb.holds, _hold_from_pb, "host holds", limit=MAX_HOLDS),
        strikes=items(pb.strikes, _strike_from_pb, "host strikes", limit=MAX_STRIKES),
        pending=_pending_from_pb(pb.pending) if pb.HasField("pending") else None,
        proof=FindingId(name(pb.proof, "host proof")) if pb.HasField("proof") else None,
        orders_issued=pb.orders_issued,
        attempts=pb.attempts,
        place=place_from_pb(pb.place),
        charges=items(pb.charges, _charge_from_pb, "host charges", limit=MAX_HOLDS),
        marks=items(pb.marks, _mark_from_pb, "host marks", limit=MAX_HOLDS),
        due=_due_from_pb(pb.due) if pb.HasField("due") else None,
        silent=_silent_from_pb(pb.silent) if pb.HasField("silent") else None,
        probation_until_s=finite(pb.probation_until_s, "host probation_until_s")
        if pb.HasField("probation_until_s")
        else None,
    )
