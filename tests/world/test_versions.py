"""Agents of an older and of a newer version talk to one controller, through the bytes of the real wire."""

from fleetd.model.event import AgentConnected, FindingReceived
from fleetd.model.finding import DeviceFault, FaultClass, Scope, Severity
from fleetd.model.host import Lifecycle
from fleetd.model.ids import HostName
from fleetd.model.order import Quarantine
from fleetd.pb.v1 import agent_pb2
from fleetd.ports import Spooled
from fleetd.sim.wire import Confirmed, Greeting, Numbered, Up
from fleetd.uplink.codec import spooled_from_pb, spooled_to_pb, telemetry_from_pb, telemetry_to_pb
from fleetd.uplink.hello_codec import hello_from_pb, hello_to_pb
from fleetd.uplink.newer import CODE
from tests.world.fakes_world import fleet

HOUR = 3600.0
OLDER, NEWER = HostName("h01"), HostName("h02")
NEW_KIND = "nvidia.xid.900"
"""What the newer agent tells as a kind of finding that the controller does not have."""
KIND_NUMBER = 15


def field(number: int) -> bytes:
    """One field of a later version: a text, as bytes on the wire."""
    key, word = number << 3 | 2, b"of tomorrow"
    return bytes([key & 0x7F | 0x80, key >> 7] if key > 0x7F else [key]) + bytes([len(word)]) + word


def of_a_newer_version(told: agent_pb2.SpooledFinding) -> None:
    """Add what this version does not know: a field, or in place of the kind another one."""
    if told.finding.device_fault.code == NEW_KIND:
        told.finding.ClearField("device_fault")
        told.finding.why = "the GPU has a headache"
        told.finding.MergeFromString(field(KIND_NUMBER))
    elif told.finding.HasField("device_fault"):
        told.finding.device_fault.MergeFromString(field(99))
    else:
        told.finding.burnin_ended.MergeFromString(field(99))


def over_the_wire(host: HostName, message: Up) -> Up:
    """What the controller reads of what an agent of its own, an older or a newer version wrote."""
    match message:
        case Greeting():
            hello = hello_to_pb(message.hello, message.spool)
            if host == OLDER:
                for name in ("at_s", "place", "capabilities", "driver_version"):
                    hello.ClearField(name)
                hello.agent_version = "0.0.1"
            if host == NEWER:
                hello.agent_version = "99.0.0"
                hello.capabilities.append("telepathy")
                hello.MergeFromString(field(99))
            read, spool = hello_from_pb(agent_pb2.Hello.FromString(hello.SerializeToString()))
            return Greeting(hello=read, spool=spool)
        case Numbered():
            told = spooled_to_pb(Spooled(seq=message.seq, finding=message.finding))
            if host == NEWER:
                of_a_newer_version(told)
            spooled = spooled_from_pb(agent_pb2.SpooledFinding.FromString(told.SerializeToString()))
            return Numbered(seq=spooled.seq, finding=spooled.finding)
        case tuple():
            telemetry = telemetry_to_pb(message)
            if host == NEWER:
                telemetry.samples[0].MergeFromString(field(99))
            return telemetry_from_pb(agent_pb2.Telemetry.FromString(telemetry.SerializeToString()))
        case Confirmed():
            return message


def test_agents_of_three_versions_are_served_by_one_controller() -> None:
    world = fleet()
    world.at(0).do("the wire is real", lambda w: setattr(w.network, "hears", over_the_wire))
    lost = {"severity": Severity.FATAL, "fault_class": FaultClass.UNRESPONSIVE}
    for number in range(3):
        world.at(600 + number).report(NEWER, NEW_KIND, gpu=0, **lost)  # type: ignore[arg-type]  # by name
    world.at(700).report(NEWER, "nvidia.xid.31", gpu=1, scope=Scope.APP, severity=Severity.WARNING)
    world.at(1200).report(OLDER, "nvidia.xid.79", gpu=1, **lost)  # type: ignore[arg-type]  # by name
    world.expect(Quarantine, host=OLDER).times(1)
    world.expect(Quarantine, host=NEWER).never()
    outcome = world.run(seconds=2 * HOUR)

    versions = {e.event.hello.agent_version for _, e in outcome.journal if isinstance(e.event, AgentConnected)}
    assert {"0.0.1", "99.0.0"} < versions
    assert outcome.state(NEWER).state is Lifecycle.HEALTHY
    told = [
        e.event.finding
        for _, e in outcome.journal
        if isinstance(e.event, FindingReceived) and e.event.host == NEWER and isinstance(e.event.finding, DeviceFault)
    ]
    assert [f.code for f in told] == [*(3 * [f"{CODE}.{KIND_NUMBER}"]), "nvidia.xid.31"]  # in order, none held up
    assert told[0].why.startswith("the GPU has a headache (told by a newer agent")
    assert (told[0].fault_class, told[0].severity) == (FaultClass.NONE, Severity.WARNING)
    assert {row.id for row in outcome.rows} >= {f.id for f in told}  # kept
