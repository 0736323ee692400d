"""What one peer can take from the others: nothing beyond its limits."""

import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fleetd.model.ids import OrderId
from fleetd.model.order import RecallBurnin
from fleetd.pb.v1 import agent_pb2
from fleetd.ports import Refused, Spooled, UplinkError
from fleetd.system import RealClock
from fleetd.uplink.buckets import Buckets
from fleetd.uplink.channel import END_OF_STREAM, open_channel
from fleetd.uplink.codec import spooled_to_pb, telemetry_to_pb
from fleetd.uplink.config import TlsFiles
from fleetd.uplink.hello_codec import hello_to_pb
from fleetd.uplink.turnstile import AGENT_OPEN_MAX, host_of


class SlowClock(RealClock):
    """Counts what was waited for, waits for none of it, and its monotonic time passes only so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def elapsed_s(self) -> float:
        return self.now_s

    async def sleep_s(self, seconds: float) -> None:
        if seconds < 3600:  # the end of a certificate is not waited for here
            self.now_s += seconds
            seconds = 0.0
        await super().sleep_s(seconds)


def hello_bytes(make: Any, host: str = "h01") -> bytes:
    return agent_pb2.AgentMessage(hello=hello_to_pb(make.hello(host), "spool-1")).SerializeToString()


@asynccontextmanager
async def raw_stream(bench: Any, port: int, stem: str | None = "agents/h01") -> AsyncIterator[Any]:
    """A stream as an agent opens it, on a connection of its own; what is sent and read is up to the test."""
    files = TlsFiles(**bench.tls(stem)) if stem else None
    async with open_channel(f"127.0.0.1:{port}", files, receive_max_bytes=1 << 20) as channel:
        yield channel.stream_stream("/fleetd.pb.v1.AgentLink/Connect", None, None)(None)


async def end_of(call: Any) -> tuple[grpc.StatusCode, str]:
    with suppress(grpc.aio.AioRpcError):
        while await call.read() is not END_OF_STREAM:
            pass
    return await call.code(), await call.details()


def test_an_agent_that_does_not_read_is_cut_off_and_its_host_can_come_back(play: Any, make: Any) -> None:
    """It answers pings, so that no keepalive ends it; what it is sent is more than the line can hold."""

    async def scenario(bench: Any) -> None:
        bench.door.to_send = itertools.repeat(RecallBurnin(order_id=OrderId("h01/1"), why="x" * 4000))
        async with bench.server(slow_reader_seconds=0.3) as server, raw_stream(bench, server.port) as call:
            await call.write(hello_bytes(make))
            await bench.door.until(lambda: len(bench.door.hellos) == 1)
            with capture_logs() as logs:
                await make.eventually(lambda: server._link._streams == set())
            (told,) = [entry for entry in logs if entry["event"] == "agent_reads_too_slowly"]
            assert (told["host"], server._link.slow_readers_total) == ("h01", 1)
            assert (server.agents, bench.door.open_order_streams) == (0, 0)
            bench.door.to_send = []
            uplink = bench.uplink(server.port)
            async with bench.agent(uplink, bench.spool()):
                await make.eventually(lambda: uplink.connected)
            why = "h01 has not read for 0.3 s what it was sent"
            assert await end_of(call) == (grpc.StatusCode.RESOURCE_EXHAUSTED, why)

    play(scenario)


def test_who_does_not_read_time_and_again_is_kept_out_for_a_while(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        bench.clock = SlowClock()
        async with bench.server() as server:
            link = server._link
            for _ in range(3):
                assert link._slow.take("h01") == 0.0
            link._shut_out["h01"] = bench.clock.elapsed_s() + link._slow.take("h01")
            with pytest.raises(Refused, match=r"h01 did not read what it was sent, time and again: back in 600 s"):
                link._let_in("h01")
            link._let_in("h02")
            bench.clock.now_s += 601
            link._let_in("h01")
            assert link._shut_out == {}

    play(scenario)


def test_people_have_a_rate_of_their_own_and_are_told(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        bench.clock = SlowClock()
        async with bench.server(desk_calls_per_second=2.0, agent_calls_per_second=0.1) as server:
            async with bench.desk(server.port) as ann, bench.desk(server.port, stem="viewers/eve") as eve:
                for _ in range(10):
                    await ann.fleet()
                with capture_logs() as logs:
                    for _ in range(3):
                        with pytest.raises(
                            UplinkError, match=r"turned this away: operator ann calls too often: try again in 0.5 s"
                        ):
                            await ann.fleet()
                assert [entry["event"] for entry in logs] == ["turned_away"]  # said once, not three times
                assert server.turned_away == {"limit": 3, "slow_reader": 0}
                await eve.fleet()
                bench.clock.now_s += 0.5
                await ann.fleet()
            uplink = bench.uplink(server.port)
            async with bench.agent(uplink, bench.spool()):
                await make.eventually(lambda: uplink.connected)

    play(scenario)


def test_an_agent_that_connects_without_end_is_slowed_down_and_no_other_is(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        bench.clock = SlowClock()
        async with bench.server(agent_calls_per_second=1.0) as server:
            for _ in range(10):
                async with raw_stream(bench, server.port) as call:
                    await call.write(hello_bytes(make))
                    await call.read()
            async with raw_stream(bench, server.port) as call:
                why = "agent h01 calls too often: try again in 1.0 s"
                assert await end_of(call) == (grpc.StatusCode.RESOURCE_EXHAUSTED, why)
            async with raw_stream(bench, server.port, "agents/h02") as call:
                await call.write(hello_bytes(make, "h02"))
                assert isinstance(await call.read(), bytes)

    play(scenario)


def test_a_peer_has_so_many_calls_open_and_no_more(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server() as server, AsyncExitStack() as stack:
            calls = [await stack.enter_async_context(raw_stream(bench, server.port)) for _ in range(AGENT_OPEN_MAX)]
            turnstile = server._turnstile
            for call in calls:  # each of them says nothing, which it may for ten seconds
                await call.wait_for_connection()
            await make.eventually(lambda: turnstile._open["agent h01"] == AGENT_OPEN_MAX)
            async with raw_stream(bench, server.port) as call:
                code, why = await end_of(call)
            assert (code, why.startswith("agent h01 has 8 calls open")) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
            for call in calls:
                call.cancel()
            await make.eventually(lambda: turnstile._open == {})

    play(scenario)


def test_agents_do_not_take_the_room_of_people(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server(agents_max=1) as server, raw_stream(bench, server.port) as first:
            await first.write(hello_bytes(make))
            await first.read()
            async with raw_stream(bench, server.port, "agents/h02") as second:
                assert await end_of(second) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "1 agents are connected")
            async with bench.desk(server.port) as desk:
                assert len(await desk.hosts()) == 3

    play(scenario)


def test_an_agent_that_talks_too_much_is_read_later_and_loses_nothing(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        bench.clock = SlowClock()
        spool = bench.spool()
        names = [f"f{i:03d}" for i in range(120)]
        for name in names:
            spool.append(make.fault(name))
        async with bench.server(agent_messages_per_second=5.0) as server, bench.agent(bench.uplink(server.port), spool):
            await make.eventually(lambda: spool.depth == 0)
        assert bench.door.ids() == names
        assert bench.clock.now_s >= (120 - 25) / 5  # all but the burst were paced

    play(scenario)


def test_a_repeated_sequence_number_is_stored_once_and_a_lower_one_changes_nothing(play: Any, make: Any) -> None:
    """Against the controller's own intake the same is held by `tests/controller`; here a replay crosses the wire."""

    async def scenario(bench: Any) -> None:
        first = spooled_to_pb(Spooled(seq=1, finding=make.fault("a")))
        replayed = agent_pb2.AgentMessage(finding=first).SerializeToString()
        second = agent_pb2.AgentMessage(finding=spooled_to_pb(Spooled(seq=2, finding=make.fault("b"))))
        async with bench.server() as server, raw_stream(bench, server.port) as call:
            for message in (hello_bytes(make), replayed, second.SerializeToString(), replayed, replayed):
                await call.write(message)
            answers = [agent_pb2.ControllerMessage.FromString(await call.read()) for _ in range(5)]
        assert [answer.ack.seq for answer in answers[1:]] == [1, 2, 2, 2]
        assert (bench.door.ids(), bench.door.repeats) == (["a", "b"], [1, 1])

    play(scenario)


def test_a_finding_about_another_host_is_refused_and_not_stored(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        pb = spooled_to_pb(Spooled(seq=1, finding=make.fault("a", host="h02")))
        async with bench.server() as server, raw_stream(bench, server.port) as call:
            await call.write(hello_bytes(make))
            await call.read()
            await call.write(agent_pb2.AgentMessage(finding=pb).SerializeToString())
            answer = agent_pb2.ControllerMessage.FromString(await call.read())
            assert answer.refused.why == "the agent of h01 sent a finding about h02"
            assert (await end_of(call))[0] is grpc.StatusCode.OK
        assert bench.door.ids() == []

    play(scenario)


def test_the_largest_telemetry_passes_and_a_larger_message_ends_only_its_own_stream(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        pb = telemetry_to_pb(tuple(make.sample(f"GPU-{n}") for n in range(256)))
        telemetry = agent_pb2.AgentMessage(telemetry=pb).SerializeToString()
        async with (
            bench.server() as server,
            raw_stream(bench, server.port) as good,
            raw_stream(bench, server.port, "agents/h02") as bad,
        ):
            for call, host in ((good, "h01"), (bad, "h02")):
                await call.write(hello_bytes(make, host))
                await call.read()
            await bad.write(b"\x00" * (2 << 20))
            assert (await end_of(bad))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
            await good.write(telemetry)
            await bench.door.until(lambda: len(bench.door.samples.get("h01", ())) == 256)
            assert server.agents == 1

    play(scenario)


# ── the bucket itself ───────────────────────────────────────────────────────────────────────────────────────────────


@given(
    rate=st.floats(0.1, 100),
    gaps=st.lists(st.floats(0, 2), min_size=1, max_size=200),
)
def test_a_bucket_never_gives_more_than_its_burst_and_its_rate(rate: float, gaps: list[float]) -> None:
    now = [0.0]
    buckets = Buckets(rate, elapsed_s=lambda: now[0], burst=3)
    given = 0
    for gap in gaps:
        now[0] += gap
        wait_s = buckets.take("peer")
        given += wait_s == 0.0
        assert given <= 3 + rate * now[0] + 0.01
        if wait_s:  # what it says is enough, and not too much
            assert wait_s <= 1 / rate + 1e-9
            now[0] += wait_s
            assert buckets.take("peer") == 0.0
            given += 1


def test_buckets_are_bounded_and_forget_the_oldest() -> None:
    buckets = Buckets(1.0, elapsed_s=lambda: 0.0, burst=1, peers_max=2)
    assert [buckets.take(peer) for peer in ("a", "b", "a", "c", "b")] == [0.0, 0.0, 1.0, 0.0, 0.0]
    assert len(buckets._levels) == 2


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:192.0.2.1:4711", "192.0.2.1"),
        ("ipv6:%5B2001:db8::1%5D:4711", "2001:db8::1"),
        ("ipv6:[::1]:4711", "::1"),
        ("unix:", "unix:"),
    ],
)
def test_an_address_is_told_without_its_port(peer: str, host: str) -> None:
    assert host_of(peer) == host
