"""Agents and controllers of earlier versions: what theirs said, as it was recorded, and what they make of ours.

`older/NAME.jsonl` is one connection of that version's agent with that version's controller, byte by byte (of the
readings the first only; the id of the boot was replaced): four simulated GPUs, one of them bad, from the hello to the
acknowledged end of the burn-in. `older/NAME.binpb` is that version's protocol, as protoc describes it. `first` knew
neither a host's place nor its clock; `before-budgets` knew no power budgets.
"""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from fleetd.model.finding import BurninEnded
from fleetd.model.host import Place
from fleetd.model.telemetry import GpuSample
from fleetd.pb.v1 import agent_pb2
from fleetd.uplink.channel import open_channel
from fleetd.uplink.hello_codec import hello_to_pb

FOLDER = Path(__file__).parent / "older"
VERSIONS = ("first", "before-budgets")
METHOD = "Connect"
SERVICE = "fleetd.pb.v1.AgentLink"


def recorded(version: str, who: str) -> list[bytes]:
    lines = (FOLDER / f"{version}.jsonl").read_text().splitlines()
    return [bytes.fromhex(one["bytes"]) for one in map(json.loads, lines) if one["from"] == who]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_agent_is_heard_and_what_it_does_not_say_is_absent(play: Any, version: str) -> None:
    async def scenario(bench: Any) -> None:
        async with (
            bench.server(secure=False) as server,
            open_channel(f"127.0.0.1:{server.port}", None, receive_max_bytes=1 << 20) as channel,
        ):
            call = channel.stream_stream(f"/{SERVICE}/{METHOD}", None, None)(None)
            for message in recorded(version, "agent"):
                await call.write(message)
            answers = [agent_pb2.ControllerMessage.FromString(await call.read()) for _ in range(2)]
            call.cancel()
        assert [answer.WhichOneof("kind") for answer in answers] == ["welcome", "ack"]
        assert answers[1].ack.seq == 1

        ((peer, hello, spool),) = bench.door.hellos
        assert (peer.role, hello.host, hello.agent_version) == ("agent", "h01", "0.1.0")
        assert [gpu.gpu for gpu in hello.inventory] == [f"SIM-h01-0{n}" for n in range(4)]
        assert hello.place == Place(), "nobody's neighbour"
        assert (hello.at_s is None) is (version == "first")
        assert "power-leases" not in hello.capabilities, "it is counted at its maximum"

        samples = bench.door.samples["h01"]
        said, unsaid = fields_known_to(version), set(GpuSample.__dataclass_fields__)
        assert [sample.gpu for sample in samples] == [gpu.gpu for gpu in hello.inventory]
        assert all(sample.power_watts is not None and sample.power_watts > 0 for sample in samples)
        for missing in unsaid - said - {"gpu", "at_s"}:
            assert all(getattr(sample, missing) in (None, ()) for sample in samples), missing

        (((seq, ended),),) = (bench.door.stored[spool],)
        assert isinstance(ended, BurninEnded)
        assert (seq, ended.host, ended.verdict) == (1, "h01", "fail")
        assert [culprit.gpu for culprit in ended.culprits] == ["SIM-h01-02"]
        assert bench.door.confirmed == [("h01/1/burnin", "")]

    play(scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_controller_is_obeyed_and_its_silence_harms_nothing(play: Any, make: Any, version: str) -> None:
    async def scenario(bench: Any) -> None:
        heard: list[agent_pb2.AgentMessage] = []
        welcome, run_burnin, ack = recorded(version, "controller")

        async def connect(requests: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
            async for message in requests:
                heard.append(agent_pb2.AgentMessage.FromString(message))
                match heard[-1].WhichOneof("kind"):
                    case "hello":
                        yield welcome
                        yield run_burnin
                    case "finding":
                        yield ack

        server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(connect)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        taken = []

        async def accept(order: Any) -> str:
            taken.append(order)
            return ""

        spool = bench.spool()
        spool.append(make.fault("f1"))
        uplink = bench.uplink(port, secure=False)
        async with bench.agent(uplink, spool, accept=accept, telemetry=lambda: (make.sample("GPU-0"),)):
            await make.eventually(lambda: spool.depth == 0 and bool(taken))
            await make.eventually(lambda: any(m.WhichOneof("kind") == "order_confirmed" for m in heard))
        await server.stop(0)
        (order,) = taken
        assert (order.id, order.host, order.level, order.why) == (
            *("h01/1/burnin", "h01", "smoke"),
            "a new host must qualify",
        )
        assert (uplink.failures_total, uplink.unsendable_total) == (0, 0)

    play(scenario)


# ── what they make of ours ──────────────────────────────────────────────────────────────────────────────────────────


def older_pool(version: str) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString((FOLDER / f"{version}.binpb").read_bytes()).file:
        pool.Add(file)  # type: ignore[no-untyped-call]
    return pool


def older_message(version: str, name: str) -> Descriptor:
    return older_pool(version).FindMessageTypeByName(f"fleetd.pb.v1.{name}")  # type: ignore[no-any-return, no-untyped-call]


def fields_known_to(version: str) -> set[str]:
    return {field.name for field in older_message(version, "GpuSample").fields}


def changes(old: Descriptor, new: Descriptor, seen: set[str]) -> Iterator[str]:
    """What a message of one version would mean to the other that it does not mean to itself."""
    if old.full_name in seen:
        return
    seen.add(old.full_name)
    ours = {field.number: field for field in new.fields}
    for field in old.fields:
        now = ours.get(field.number)
        where = f"{old.full_name}.{field.name}"
        if now is None:
            if not (field.has_presence and given_up(field, new)):
                yield f"{where} is gone"
        elif shape(field) != shape(now):
            yield f"{where} was {shape(field)}, and is {shape(now)}"
        elif field.message_type is not None:
            yield from changes(field.message_type, now.message_type, seen)
        elif field.enum_type is not None:
            values = {value.number: value.name for value in now.enum_type.values}
            yield from (
                f"{where}: {value.name} is gone"
                for value in field.enum_type.values
                if values.get(value.number) != value.name
            )


def given_up(field: FieldDescriptor, new: Descriptor) -> bool:
    """An optional field that is sent no more: its number and its name never come to mean anything else."""
    proto = descriptor_pb2.DescriptorProto()
    new.CopyToProto(proto)
    numbers = any(one.start <= field.number < one.end for one in proto.reserved_range)
    return numbers and field.name in proto.reserved_name


def shape(field: FieldDescriptor) -> tuple[object, ...]:
    kind = field.message_type.full_name if field.message_type is not None else field.type
    return (field.name, kind, field.is_repeated, field.has_presence)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["AgentMessage", "ControllerMessage"])
def test_every_field_that_there_was_means_the_same_today(version: str, name: str) -> None:
    seen: set[str] = set()
    today = getattr(agent_pb2, name).DESCRIPTOR
    assert list(changes(older_message(version, name), today, seen)) == []
    assert len(seen) > 4, "it was looked at"


def test_a_field_that_means_something_else_would_be_seen() -> None:
    (said,) = changes(older_message("first", "Welcome"), agent_pb2.Hello.DESCRIPTOR, set())
    assert said.startswith("fleetd.pb.v1.Welcome.last_seq was ('last_seq', ")


def test_a_field_that_is_gone_without_being_reserved_would_be_seen() -> None:
    old, today = older_message("first", "GpuSample"), agent_pb2.AgentMessage.DESCRIPTOR
    (brake,) = (field for field in old.fields if field.name == "throttle_power_brake_ratio")
    (samples,) = (field for field in today.fields if field.name == "telemetry")
    (sample,) = (field for field in samples.message_type.fields if field.name == "samples")
    assert given_up(brake, sample.message_type)
    assert not given_up(brake, today)
    (power,) = (field for field in old.fields if field.name == "power_watts")
    assert not given_up(power, sample.message_type)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_controller_reads_todays_hello(make: Any, version: str) -> None:
    """With fields that it does not know, which it passes over."""
    said = replace(make.hello(), place=Place(rack="r1"), at_s=5.0, driver_version="580.1")
    sent = agent_pb2.AgentMessage(hello=hello_to_pb(said, "spool-1")).SerializeToString()
    read = GetMessageClass(older_message(version, "AgentMessage")).FromString(sent)
    assert read.WhichOneof("kind") == "hello"
    assert (read.hello.host, read.hello.boot_id, read.hello.spool_id) == ("h01", "boot-1", "spool-1")
    assert [gpu.gpu for gpu in read.hello.inventory] == ["GPU-0"]
