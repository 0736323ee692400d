"""What a load balancer and a person with a generic client see of the controller."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from fleetd.uplink.channel import END_OF_STREAM, open_channel
from fleetd.uplink.config import TlsFiles

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
SERVICES = ["fleetd.pb.v1.AgentLink", "fleetd.pb.v1.Desk", "fleetd.pb.v1.Identity"]


def channel(bench: Any, port: int, stem: str) -> grpc.aio.Channel:
    return open_channel(f"127.0.0.1:{port}", TlsFiles(**bench.tls(stem)), receive_max_bytes=1 << 20)


@pytest.mark.parametrize("stem", ["agents/h01", "viewers/eve", "nobody"])
def test_health_answers_any_certificate(play: Any, make: Any, stem: str) -> None:
    async def scenario(bench: Any) -> None:
        make.nameless(bench, "nobody")
        async with bench.server() as server, channel(bench, server.port, stem) as line:
            for service in ("", *SERVICES):
                answer = await HealthStub(line).Check(health_pb2.HealthCheckRequest(service=service))
                assert answer.status == SERVING
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await HealthStub(line).Check(health_pb2.HealthCheckRequest(service="Nothing"))
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND

    play(scenario)


def test_health_says_so_while_the_controller_drains_or_stands_by(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server() as server, channel(bench, server.port, "viewers/eve") as line:
            watch = HealthStub(line).Watch(health_pb2.HealthCheckRequest(service=SERVICES[1]))
            assert (await watch.read()).status == SERVING
            await server.serving(yes=False)
            assert (await watch.read()).status == NOT_SERVING
            await server.serving(yes=True)
            assert (await watch.read()).status == SERVING
            stopping = asyncio.create_task(server.stop(grace_s=5.0))
            assert (await watch.read()).status == NOT_SERVING
            watch.cancel()
            await stopping
            await server.serving(yes=True)  # too late

    play(scenario)


async def reflected(line: grpc.aio.Channel, **question: Any) -> reflection_pb2.ServerReflectionResponse:
    call = ServerReflectionStub(line).ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(**question))
    answer = await call.read()
    await call.done_writing()
    assert await call.read() is END_OF_STREAM
    assert isinstance(answer, reflection_pb2.ServerReflectionResponse)
    return answer


@pytest.mark.parametrize("stem", ["viewers/eve", "operators/ann", "agents/h01"])
def test_reflection_tells_a_peer_with_a_role_what_can_be_asked(play: Any, stem: str) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server() as server, channel(bench, server.port, stem) as line:
            listed = await reflected(line, list_services="")
            names = sorted(service.name for service in listed.list_services_response.service)
            assert names == [*SERVICES, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"]
            described = await reflected(line, file_containing_symbol=SERVICES[1])
            assert described.file_descriptor_response.file_descriptor_proto

    play(scenario)


def test_reflection_tells_nobody_else(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        make.nameless(bench, "nobody")
        async with bench.server() as server, channel(bench, server.port, "nobody") as line:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await reflected(line, list_services="")
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert "must name one peer" in (caught.value.details() or "")

    play(scenario)


def test_without_a_certificate_there_is_not_even_health(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with (
            bench.server() as server,
            open_channel(f"127.0.0.1:{server.port}", None, receive_max_bytes=1 << 20) as line,
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await HealthStub(line).Check(health_pb2.HealthCheckRequest())
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    play(scenario)
