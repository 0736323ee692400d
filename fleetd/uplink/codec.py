"""Model ↔ protobuf for what travels between an agent and its controller after the hello, which is in `hello_codec`.

Encoding cuts free text and leaves out readings that are not numbers, so that a sick host can always report; decoding
trusts nothing and raises `CodecError`, one line that names the field.
"""

from typing import assert_never

from fleetd.model.finding import (
    Ballot,
    BurninEnded,
    Culprit,
    DeviceFault,
    FaultClass,
    Finding,
    Scope,
    Severity,
    Verdict,
)
from fleetd.model.ids import BootId, FindingId, GpuId, HostName, OrderId
from fleetd.model.order import AgentOrder, RecallBurnin, RunBurnin
from fleetd.model.telemetry import GpuSample
from fleetd.pb.v1 import agent_pb2, common_pb2
from fleetd.ports import Spooled
from fleetd.uplink.newer import unknown_kind
from fleetd.uplink.sample_codec import sample_from_pb, sample_to_pb
from fleetd.uplink.wire import (
    MAX_BALLOTS,
    MAX_GPUS,
    MAX_MESSAGE_BYTES,
    CodecError,
    Words,
    clean,
    finite,
    items,
    label,
    name,
    text,
    unsigned,
)

_ENVELOPE_BYTES = 64
"""What the enclosing message adds, and some more."""

# The fallbacks are explained in common.proto, where the other implementations of the protocol can read them.
SEVERITIES = Words(Severity, common_pb2.Severity.Value, "SEVERITY_", fallback=Severity.ERROR)
SCOPES = Words(Scope, common_pb2.Scope.Value, "SCOPE_", fallback=Scope.HOST)
VERDICTS = Words(Verdict, common_pb2.Verdict.Value, "VERDICT_", fallback=Verdict.NOT_JUDGED)
FAULT_CLASSES = Words(FaultClass, common_pb2.FaultClass.Value, "FAULT_CLASS_", fallback=None)


# ── findings ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _culprit_to_pb(culprit: Culprit) -> common_pb2.Culprit:
    return common_pb2.Culprit(
        gpu=name(culprit.gpu, "culprit gpu"),
        index=unsigned(culprit.index, "culprit index", bits=32),
        fault_class=FAULT_CLASSES.to_pb(culprit.fault_class),
        why=clean(culprit.why),
    )


def _culprit_from_pb(pb: common_pb2.Culprit) -> Culprit:
    return Culprit(
        gpu=GpuId(name(pb.gpu, "culprit gpu")),
        index=pb.index,
        fault_class=FAULT_CLASSES.from_pb(pb.fault_class, "culprit fault_class"),
        why=text(pb.why, "culprit why"),
    )


def _ballot_to_pb(ballot: Ballot) -> common_pb2.Ballot:
    return common_pb2.Ballot(
        key=name(ballot.key, "ballot key"), fingerprint=name(ballot.fingerprint, "ballot fingerprint")
    )


def _ballot_from_pb(pb: common_pb2.Ballot) -> Ballot:
    return Ballot(key=name(pb.key, "ballot key"), fingerprint=name(pb.fingerprint, "ballot fingerprint"))


def finding_to_pb(finding: Finding) -> common_pb2.Finding:
    """Encode a finding; raises CodecError on an identifier that breaks the limits."""
    pb = common_pb2.Finding(
        id=name(finding.id, "finding id"),
        host=name(finding.host, "finding host"),
        boot_id=name(finding.boot_id, "finding boot_id"),
        at_s=finite(finding.at_s, "finding at_s"),
        why=clean(finding.why),
    )
    match finding:
        case BurninEnded():
            pb.burnin_ended.CopyFrom(
                common_pb2.BurninEnded(
                    order_id=None if finding.order_id is None else name(finding.order_id, "finding order_id"),
                    level=name(finding.level, "finding level"),
                    verdict=VERDICTS.to_pb(finding.verdict),
                    fault_class=FAULT_CLASSES.to_pb(finding.fault_class),
                    seed=unsigned(finding.seed, "finding seed", bits=64),
                    vote_key=label(finding.vote_key, "finding vote_key"),
                    culprits=items(finding.culprits, _culprit_to_pb, "finding culprits", limit=MAX_GPUS),
                    ballots=items(finding.ballots, _ballot_to_pb, "finding ballots", limit=MAX_BALLOTS),
                )
            )
        case DeviceFault():
            pb.device_fault.CopyFrom(
                common_pb2.DeviceFault(
                    code=name(finding.code, "finding code"),
                    gpu=None if finding.gpu is None else name(finding.gpu, "finding gpu"),
                    index=None if finding.index is None else unsigned(finding.index, "finding index", bits=32),
                    scope=SCOPES.to_pb(finding.scope),
                    severity=SEVERITIES.to_pb(finding.severity),
                    fault_class=FAULT_CLASSES.to_pb(finding.fault_class),
                )
            )
        case _:
            assert_never(finding)
    return pb


def finding_from_pb(pb: common_pb2.Finding) -> Finding:
    """Decode a finding, also of a kind that only a newer agent knows; raises CodecError."""
    match pb.WhichOneof("kind"):
        case "burnin_ended":
            return _burnin_ended_from_pb(pb, pb.burnin_ended)
        case "device_fault":
            return _device_fault_from_pb(pb, pb.device_fault)
        case _:
            return unknown_kind(pb)


def _burnin_ended_from_pb(pb: common_pb2.Finding, run: common_pb2.BurninEnded) -> BurninEnded:
    return BurninEnded(
        id=FindingId(name(pb.id, "finding id")),
        host=HostName(name(pb.host, "finding host")),
        boot_id=BootId(name(pb.boot_id, "finding boot_id")),
        at_s=finite(pb.at_s, "finding at_s"),
        why=text(pb.why, "finding why"),
        order_id=OrderId(name(run.order_id, "finding order_id")) if run.HasField("order_id") else None,
        level=name(run.level, "finding level"),
        verdict=VERDICTS.from_pb(run.verdict, "finding verdict"),
        fault_class=FAULT_CLASSES.from_pb(run.fault_class, "finding fault_class"),
        seed=run.seed,
        vote_key=label(run.vote_key, "finding vote_key"),
        culprits=items(run.culprits, _culprit_from_pb, "finding culprits", limit=MAX_GPUS),
        ballots=items(run.ballots, _ballot_from_pb, "finding ballots", limit=MAX_BALLOTS),
    )


def _device_fault_from_pb(pb: common_pb2.Finding, fault: common_pb2.DeviceFault) -> DeviceFault:
    return DeviceFault(
        id=FindingId(name(pb.id, "finding id")),
        host=HostName(name(pb.host, "finding host")),
        boot_id=BootId(name(pb.boot_id, "finding boot_id")),
        at_s=finite(pb.at_s, "finding at_s"),
        why=text(pb.why, "finding why"),
        code=name(fault.code, "finding code"),
        gpu=GpuId(name(fault.gpu, "finding gpu")) if fault.HasField("gpu") else None,
        index=fault.index if fault.HasField("index") else None,
        scope=SCOPES.from_pb(fault.scope, "finding scope"),
        severity=SEVERITIES.from_pb(fault.severity, "finding severity"),
        fault_class=FAULT_CLASSES.from_pb(fault.fault_class, "finding fault_class"),
    )


def spooled_to_pb(spooled: Spooled) -> agent_pb2.SpooledFinding:
    """Encode a finding with its place in the spool; raises CodecError."""
    pb = agent_pb2.SpooledFinding(seq=spooled.seq, finding=finding_to_pb(spooled.finding))
    if pb.ByteSize() > MAX_MESSAGE_BYTES - _ENVELOPE_BYTES:
        raise CodecError(f"finding {pb.finding.id} is {pb.ByteSize()} bytes long, more than {MAX_MESSAGE_BYTES}")
    return pb


def spooled_from_pb(pb: agent_pb2.SpooledFinding) -> Spooled:
    """Decode a finding with its place in the spool; raises CodecError."""
    if pb.seq == 0:
        raise CodecError("finding seq is missing")
    # Stores keep the number in a signed column.
    return Spooled(seq=unsigned(pb.seq, "finding seq", bits=63), finding=finding_from_pb(pb.finding))


# ── telemetry and orders ────────────────────────────────────────────────────────────────────────────────────────────


def telemetry_to_pb(samples: tuple[GpuSample, ...]) -> agent_pb2.Telemetry:
    """Encode one reading of all GPUs of a host; raises CodecError."""
    return agent_pb2.Telemetry(samples=items(samples, sample_to_pb, "telemetry samples", limit=MAX_GPUS))


def telemetry_from_pb(pb: agent_pb2.Telemetry) -> tuple[GpuSample, ...]:
    """Decode one reading of all GPUs of a host; raises CodecError."""
    return items(pb.samples, sample_from_pb, "telemetry samples", limit=MAX_GPUS)


def run_burnin_to_pb(order: RunBurnin) -> agent_pb2.RunBurnin:
    """Encode an order; raises CodecError."""
    return agent_pb2.RunBurnin(
        id=name(order.id, "order id"),
        host=name(order.host, "order host"),
        issued_at_s=finite(order.issued_at_s, "order issued_at_s"),
        why=clean(order.why),
        level=name(order.level, "order level"),
        boot_id=name(order.boot_id, "order boot_id"),
        not_after_s=finite(order.not_after_s, "order not_after_s"),
    )


def agent_order_to_pb(order: AgentOrder) -> agent_pb2.ControllerMessage:
    """Encode what an agent is told; raises CodecError."""
    if isinstance(order, RunBurnin):
        return agent_pb2.ControllerMessage(run_burnin=run_burnin_to_pb(order))
    recall = agent_pb2.RecallBurnin(order_id=name(order.order_id, "recall order_id"), why=clean(order.why))
    return agent_pb2.ControllerMessage(recall_burnin=recall)


def recall_from_pb(pb: agent_pb2.RecallBurnin) -> RecallBurnin:
    """Decode a recall; raises CodecError."""
    return RecallBurnin(order_id=OrderId(name(pb.order_id, "recall order_id")), why=text(pb.why, "recall why"))


def run_burnin_from_pb(pb: agent_pb2.RunBurnin) -> RunBurnin:
    """Decode an order; raises CodecError."""
    return RunBurnin(
        id=OrderId(name(pb.id, "order id")),
        host=HostName(name(pb.host, "order host")),
        issued_at_s=finite(pb.issued_at_s, "order issued_at_s"),
        why=text(pb.why, "order why"),
        level=name(pb.level, "order level"),
        boot_id=BootId(name(pb.boot_id, "order boot_id")),
        not_after_s=finite(pb.not_after_s, "order not_after_s"),
    )
