"""What one peer can take from the others: nothing beyond its limits."""

from contextlib import suppress
from typing import Any

import grpc
from structlog.testing import capture_logs

from fleetd.model.ids import OrderId
from fleetd.model.order import RecallBurnin
from fleetd.pb.v1 import agent_pb2
from fleetd.uplink.channel import END_OF_STREAM, open_channel
from fleetd.uplink.config import TlsFiles
from fleetd.uplink.hello_codec import hello_to_pb


def hello_bytes(make: Any, host: str = "h01") -> bytes:
    return agent_pb2.AgentMessage(hello=hello_to_pb(make.hello(host), "spool-1")).SerializeToString()


def test_an_agent_that_does_not_read_is_cut_off_and_its_host_can_come_back(play: Any, make: Any) -> None:
    """It answers pings, so that no keepalive ends it; what it is sent is more than the line can hold."""

    async def scenario(bench: Any) -> None:
        why = "x" * 4000
        bench.door.to_send = [RecallBurnin(order_id=OrderId(f"h01/{n}"), why=why) for n in range(2000)]
        async with bench.server(slow_reader_seconds=0.3) as server:
            files = TlsFiles(**bench.tls("agents/h01"))
            async with open_channel(f"127.0.0.1:{server.port}", files, receive_max_bytes=1 << 20) as channel:
                call = channel.stream_stream("/fleetd.pb.v1.AgentLink/Connect", None, None)(None)
                await call.write(hello_bytes(make))
                await bench.door.until(lambda: len(bench.door.hellos) == 1)
                with capture_logs() as logs:
                    await make.eventually(lambda: server.agents == 0)
                    await make.eventually(lambda: bench.door.open_order_streams == 0)
                    await make.eventually(lambda: server._link._streams == set())
                (told,) = [entry for entry in logs if entry["event"] == "agent_reads_too_slowly"]
                assert (told["host"], server._link.slow_readers_total) == ("h01", 1)
                bench.door.to_send = []
                uplink = bench.uplink(server.port)
                async with bench.agent(uplink, bench.spool()):
                    await make.eventually(lambda: uplink.connected)
                    assert server.agents == 1
                with suppress(grpc.aio.AioRpcError):
                    while await call.read() is not END_OF_STREAM:
                        pass
                assert (await call.code(), await call.details()) == (
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    "h01 has not read for 0.3 s what it was sent",
                )

    play(scenario)
