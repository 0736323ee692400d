"""Who may come in, and what a broken or hostile peer meets."""

import shutil
from pathlib import Path
from typing import Any

import grpc
import pytest

from fleetd.model.order import Drain
from fleetd.pb.v1 import agent_pb2
from fleetd.ports import Peer, Refused, UplinkError
from fleetd.uplink.channel import open_channel
from fleetd.uplink.codec import spooled_to_pb
from fleetd.uplink.config import TlsFiles
from fleetd.uplink.hello_codec import hello_to_pb


async def raw_call(
    port: int, *messages: bytes, tls: dict[str, str] | None = None, wait: bool = True
) -> tuple[list[agent_pb2.ControllerMessage], grpc.StatusCode, str]:
    """Send bytes as an agent would, and return what came back until the stream ended."""
    files = TlsFiles(**tls) if tls else None
    async with open_channel(f"127.0.0.1:{port}", files, receive_max_bytes=1 << 20) as channel:
        call = channel.stream_stream("/fleetd.pb.v1.AgentLink/Connect", None, None)(None)
        answers = []
        try:
            for message in messages:
                await call.write(message)
            if not wait:
                await call.done_writing()
            while isinstance(answer := await call.read(), bytes):
                answers.append(agent_pb2.ControllerMessage.FromString(answer))
        except grpc.aio.AioRpcError:
            pass
        return answers, await call.code(), await call.details() or ""


def hello_bytes(make: Any, host: str = "h01") -> bytes:
    return agent_pb2.AgentMessage(hello=hello_to_pb(make.hello(host), "spool-1")).SerializeToString()


@pytest.mark.parametrize(
    ("stem", "as_host", "why"),
    [
        ("agents/h01", "h02", "the certificate names h01, so its agent may not report for h02"),
        ("operators/ann", "h01", "ann has the role operator; only agents may connect here"),
        ("controller", "h01", "that it accepts this certificate"),  # it is for servers only: TLS stops it
    ],
)
def test_a_certificate_speaks_only_for_whom_it_names(play: Any, make: Any, stem: str, as_host: str, why: str) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server() as server:
            uplink = bench.uplink(server.port, tls=bench.tls(stem))
            async with bench.agent(uplink, bench.spool(), as_host=as_host):
                await make.eventually(lambda: uplink.failures_total > 1)
            assert why in uplink.last_error
            assert not bench.door.hellos

    play(scenario)


def test_what_the_door_refuses_is_said_and_not_hammered(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        bench.door.refuse = "this controller is of another fleet"
        async with bench.server() as server:
            uplink = bench.uplink(server.port, refused_seconds=1000.0)
            async with bench.agent(uplink, bench.spool()):
                await make.eventually(lambda: uplink.last_error == "this controller is of another fleet")
                assert uplink.failures_total == 1

    play(scenario)


@pytest.mark.parametrize("foreign", ["client", "server"])
def test_a_foreign_ca_gets_nowhere(play: Any, make: Any, foreign: str) -> None:
    async def scenario(bench: Any) -> None:
        tls = bench.tls("agents/h01", pki=bench.foreign)
        if foreign == "client":  # it trusts our controller, but its own certificate is of another CA
            tls["ca"] = bench.tls("agents/h01")["ca"]
        async with bench.server() as server:
            uplink = bench.uplink(server.port, tls=tls)
            async with bench.agent(uplink, bench.spool()):
                await make.eventually(lambda: uplink.failures_total > 1)
            assert "controller at 127.0.0.1" in uplink.last_error
            assert not bench.door.hellos
            desk = bench.desk(server.port)
            async with desk:  # the server is none the worse for it
                assert len(await desk.hosts()) == 3

    play(scenario)


def test_no_certificate_gets_nowhere(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server() as server:
            _, code, _ = await raw_call(server.port, hello_bytes(make))
            assert code is grpc.StatusCode.UNAVAILABLE
            assert not bench.door.hellos

    play(scenario)


def test_new_certificates_are_used_without_a_restart(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        live = bench.path / "live"
        shutil.copytree(bench.pki, live)
        ours, bench.pki = bench.pki, live
        async with bench.server() as server:
            async with bench.desk(server.port) as desk:
                await desk.hosts()
            for name in ("ca.crt", "controller.crt", "controller.key"):
                fresh = live / f"{name}.new"
                shutil.copy(bench.foreign / name, fresh)
                fresh.replace(live / name)
            bench.pki = bench.foreign
            async with bench.desk(server.port) as desk:
                assert len(await desk.hosts()) == 3
            bench.pki = ours
            with pytest.raises(UplinkError):
                async with bench.desk(server.port) as desk:
                    await desk.hosts()

    play(scenario)


def test_malformed_messages_end_the_stream_in_one_line(play: Any, make: Any) -> None:
    no_kind = agent_pb2.AgentMessage(hello=None)
    no_kind.finding.seq = 1
    no_kind.finding.finding.id = "f"
    finding = spooled_to_pb_of(make)
    finding.finding.device_fault.fault_class = 99
    too_long = spooled_to_pb_of(make)
    too_long.finding.why = "x" * 5000
    no_seq = spooled_to_pb_of(make)
    no_seq.seq = 0
    cases = [
        ((b"\xff\xff\xff",), "not protobuf"),
        ((message(finding=spooled_to_pb_of(make)),), "the first message must be a hello"),
        ((hello_bytes(make), hello_bytes(make)), "a second hello"),
        ((hello_bytes(make), message(finding=finding)), "finding fault_class is 99"),
        ((hello_bytes(make), message(finding=too_long)), "finding why is 5000 characters long"),
        ((hello_bytes(make), message(finding=no_seq)), "finding seq is missing"),
        ((hello_bytes(make), no_kind.SerializeToString()), "finding without a kind"),
        ((agent_pb2.AgentMessage(hello=agent_pb2.Hello(host="h\n1")).SerializeToString(),), "cannot be printed"),
    ]

    async def scenario(bench: Any) -> None:
        async with bench.server(secure=False) as server:
            for messages, line in cases:
                _, code, details = await raw_call(server.port, *messages)
                assert (code, line in details, "\n" in details) == (grpc.StatusCode.INVALID_ARGUMENT, True, False), (
                    details
                )
            assert bench.door.ids() == []
            await make.eventually(lambda: server.agents == 0)

    play(scenario)


def spooled_to_pb_of(make: Any) -> agent_pb2.SpooledFinding:
    return spooled_to_pb(type("S", (), {"seq": 1, "finding": make.fault("a")})())


def message(*, finding: agent_pb2.SpooledFinding) -> bytes:
    return agent_pb2.AgentMessage(finding=finding).SerializeToString()


def test_a_newer_agents_unknown_words_are_passed_over(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server(secure=False) as server:
            unknown_field = bytes([0x7A, 0x01, 0x00])  # field 15 of AgentMessage, one byte
            answers, code, _ = await raw_call(server.port, hello_bytes(make), unknown_field, wait=False)
            assert [answer.WhichOneof("kind") for answer in answers] == ["welcome"]
            assert code is grpc.StatusCode.OK

    play(scenario)


def test_an_oversized_message_is_refused(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server(secure=False) as server:
            _, code, _ = await raw_call(server.port, hello_bytes(make), b"\x00" * (2 << 20))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            await make.eventually(lambda: server.agents == 0)

    play(scenario)


def test_a_silent_connection_is_ended(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server(secure=False, hello_seconds=0.02) as server:
            _, code, details = await raw_call(server.port)
            assert (code, details) == (grpc.StatusCode.DEADLINE_EXCEEDED, "no hello within 0.02 s")

    play(scenario)


def test_the_desk_answers_an_operator(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server() as server, bench.desk(server.port) as desk:
            assert await desk.hosts() == await bench.desk_door.hosts()
            assert await desk.host("h01") == (make.host("h01"), (make.sample("GPU-0"),), (make.fault("f1"),))
            assert await desk.explain("h01") == ((1.0, "h01 said hello"), (2.5, "it passed"))
            await desk.quarantine("h01", "smells")
            with pytest.raises(Refused, match="the proof is missing"):
                await desk.release("h01", "looks fine", override=False)
            await desk.release("h01", "looks fine", override=True)
            with pytest.raises(Refused, match="no host 'h09'"):
                await desk.host("h09")
            with pytest.raises(Refused, match="cannot be printed"):
                await desk.host("h\udc80")
        ann = Peer(name="ann", role="operator")
        assert bench.desk_door.done == [(ann, "quarantine h01", "smells"), (ann, "release h01", "looks fine")]

    play(scenario)


def test_every_verb_of_the_desk_reaches_the_controller_with_its_reason(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server() as server, bench.desk(server.port) as desk:
            record = await desk.fleet()
            assert record == bench.desk_door.record
            await desk.quarantine("h01", "fan", expires_at_s=99.0)
            await desk.quarantine("h01", "fire", drain=Drain.NOW)
            await desk.burnin("h01", "new GPU", level=None)
            await desk.burnin("h01", "new GPU", level="smoke")
            await desk.repair("h01", "new GPU")
            await desk.retire("h01", "old")
            await desk.job_ended("h01", "7", ok=True, ran_seconds=2.5)
            assert await desk.rearm_budget("looked") == record
            assert await desk.stop_automation("roll-out") == record
            assert await desk.resume_automation("done") == record
            assert await desk.close_incident("storm/fault:x/1", "driver", acquit=True) == record
        assert [(verb, reason) for _, verb, reason in bench.desk_door.done] == [
            ("quarantine h01", "fan until 99"),
            ("quarantine h01", "fire now"),
            ("burnin None h01", "new GPU"),
            ("burnin smoke h01", "new GPU"),
            ("repair h01", "new GPU"),
            ("retire h01", "old"),
            ("job h01", "7 True 2.5"),
            ("rearm", "looked"),
            ("stop", "roll-out"),
            ("resume", "done"),
            ("close storm/fault:x/1 True", "driver"),
        ]
        assert {peer.name for peer, _, _ in bench.desk_door.done} == {"ann"}

    play(scenario)


def test_a_viewer_may_look_and_nothing_else(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server() as server, bench.desk(server.port, stem="viewers/eve") as desk:
            assert len(await desk.hosts()) == 3
            with pytest.raises(Refused, match="eve has the role viewer; only an operator may change a host"):
                await desk.quarantine("h01", "smells")
            assert (await desk.fleet()).stopped is not None
            for change in (
                desk.release("h01", "smells", override=True),
                desk.burnin("h01", "r", level=None),
                desk.repair("h01", "r"),
                desk.retire("h01", "r"),
                desk.job_ended("h01", "7", ok=True, ran_seconds=2.5),
                desk.rearm_budget("r"),
                desk.stop_automation("r"),
                desk.resume_automation("r"),
                desk.close_incident("i", "r", acquit=True),
            ):
                with pytest.raises(Refused, match="only an operator"):
                    await change
        assert bench.desk_door.done == []

    play(scenario)


def test_an_agent_has_no_business_at_the_desk(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server() as server, bench.desk(server.port, stem="agents/h01") as desk:
            with pytest.raises(Refused, match="h01 has the role agent; the desk is for operators and viewers"):
                await desk.hosts()

    play(scenario)


def test_in_insecure_mode_nobody_is_named(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server(secure=False) as server, bench.desk(server.port, secure=False) as desk:
            await desk.quarantine("h01", "smells")
        assert bench.desk_door.done[0][0] == Peer(name="unauthenticated", role="operator")

    play(scenario)


def test_a_big_fleet_comes_in_pages(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        names = [f"n{i:04d}" for i in range(1203)]
        bench.desk_door.known = {name: make.host(name) for name in names}
        async with bench.server(secure=False) as server, bench.desk(server.port, secure=False) as desk:
            assert [host.name for host in await desk.hosts()] == names

    play(scenario)


def test_an_unreachable_controller_is_one_line(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server() as server:
            port = server.port
        async with bench.desk(port) as desk:
            with pytest.raises(UplinkError, match=rf"cannot reach the controller at 127.0.0.1:{port}: check") as caught:
                await desk.hosts()
        assert "\n" not in str(caught.value)

    play(scenario)


def test_a_missing_certificate_is_one_line(play: Any, tmp_path: Path) -> None:
    async def scenario(bench: Any) -> None:
        desk = bench.desk(1, stem="operators/nobody")
        with pytest.raises(UplinkError, match=r"cannot read .*nobody.*: No such file"):
            await desk.__aenter__()
        (bench.path / "ca.crt").write_text("hello")
        for name in ("controller.crt", "controller.key"):
            shutil.copy(bench.pki / name, bench.path / name)
        bench.pki = bench.path
        with pytest.raises(UplinkError, match=r"ca.crt is no PEM file"):
            async with bench.server():
                pass

    play(scenario)
    del tmp_path


def test_a_key_that_is_not_the_certificates_is_one_line(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        live = bench.path / "live"
        shutil.copytree(bench.pki, live)
        shutil.copy(bench.foreign / "controller.key", live / "controller.key")
        bench.pki = live
        with pytest.raises(UplinkError, match=r"cannot listen on 127.0.0.1:0: gRPC could not use it"):
            async with bench.server():
                pass

    play(scenario)
