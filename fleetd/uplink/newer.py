"""What a newer agent says in words that this version does not have: kept and shown, and nobody is accused by it."""

from google.protobuf.unknown_fields import UnknownFieldSet

from fleetd.model.finding import DeviceFault, FaultClass, Scope, Severity
from fleetd.model.ids import BootId, FindingId, HostName
from fleetd.pb.v1 import common_pb2
from fleetd.uplink.wire import CodecError, finite, name, text

CODE = "fleetd.unknown_finding"
"""Code of a finding whose kind this version does not know; the number of the kind on the wire follows it."""


def unknown_kind(pb: common_pb2.Finding) -> DeviceFault:
    """Decode a finding of a kind that only a newer agent knows.

    Refusing it would hold back everything that its host tells afterwards, as findings are told in order. Its sentence
    for the operator is in the part that every version reads; its class is `none`, so it takes no host away.

    Raises CodecError for a finding without any kind, and for an identifier that breaks the limits.
    """
    unknown = UnknownFieldSet(pb)
    kinds = sorted(unknown[number].field_number for number in range(len(unknown)))
    if not kinds:
        raise CodecError("finding without a kind")
    return DeviceFault(
        id=FindingId(name(pb.id, "finding id")),
        host=HostName(name(pb.host, "finding host")),
        boot_id=BootId(name(pb.boot_id, "finding boot_id")),
        at_s=finite(pb.at_s, "finding at_s"),
        why=f"{text(pb.why, 'finding why')} (told by a newer agent, not judged: upgrade the controller)",
        code=f"{CODE}.{kinds[0]}",
        gpu=None,
        index=None,
        scope=Scope.HOST,
        severity=Severity.WARNING,
        fault_class=FaultClass.NONE,
    )
