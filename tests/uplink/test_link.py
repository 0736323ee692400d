"""The agent's line to the controller over real gRPC on the loopback."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from fleetd.model.ids import OrderId
from fleetd.model.order import RecallBurnin
from fleetd.ports import UplinkError
from fleetd.uplink.server import serve


@pytest.mark.parametrize("secure", [True, False])
def test_hello_findings_telemetry_and_orders_arrive(play: Any, make: Any, *, secure: bool) -> None:
    async def scenario(bench: Any) -> None:
        bench.door.to_send = [make.order("h01/1/burnin"), make.order("h01/2/burnin"), make.order("h02/1", host="h02")]
        spool = bench.spool()
        for name in ("a", "b"):
            spool.append(make.fault(name))
        accepted = []

        async def accept(order: Any) -> str:
            accepted.append(order)
            return "busy" if order.id.startswith("h01/2") else ""

        async with bench.server(secure=secure) as server:
            uplink = bench.uplink(server.port, secure=secure)
            async with bench.agent(uplink, spool, accept=accept, telemetry=lambda: (make.sample("GPU-0"),)):
                await bench.door.until(lambda: len(bench.door.confirmed) == 2 and "h01" in bench.door.samples)
                assert uplink.connected
                assert server.agents == 1
                spool.append(make.fault("c"))
                await bench.door.until(lambda: bench.door.ids() == ["a", "b", "c"])
                await make.eventually(lambda: spool.depth == 0)
        ((peer, hello, spool_id),) = bench.door.hellos
        assert (peer.name, peer.role, hello, spool_id) == ("h01", "agent", make.hello(), spool.id)
        assert bench.door.samples["h01"] == (make.sample("GPU-0"),)
        assert accepted == bench.door.to_send[:2]
        assert bench.door.confirmed == [("h01/1/burnin", ""), ("h01/2/burnin", "busy")]
        assert (uplink.connects_total, uplink.connected) == (1, False)
        assert bench.door.open_order_streams == 0

    play(scenario)


def test_a_recall_arrives(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        recall = RecallBurnin(order_id=OrderId("h01/1/burnin"), why="automation is stopped by ann: roll-out")
        bench.door.to_send = [make.order("h01/1/burnin"), recall]
        told: list[RecallBurnin] = []
        async with (
            bench.server() as server,
            bench.agent(bench.uplink(server.port), bench.spool(), recall=told.append),
        ):
            await make.eventually(lambda: told == [recall])
            await bench.door.until(lambda: bench.door.confirmed == [("h01/1/burnin", "")])

    play(scenario)


def test_a_new_server_on_the_same_port_gets_the_rest_and_nothing_twice(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        spool = bench.spool()
        async with bench.server() as server:
            port = server.port
            uplink = bench.uplink(port)
            agent = bench.agent(uplink, spool)
            await agent.__aenter__()
            spool.append(make.fault("a"))
            await bench.door.until(lambda: bench.door.ids() == ["a"])
        # The server was cut, without a drain, and is gone.
        await make.eventually(lambda: not uplink.connected and uplink.failures_total > 0)
        for name in ("b", "c"):
            spool.append(make.fault(name))
        await make.eventually(lambda: "cannot reach the controller" in uplink.last_error)
        async with bench.server(port=port):
            await bench.door.until(lambda: bench.door.ids() == ["a", "b", "c"])
            await make.eventually(lambda: spool.depth == 0)
            await agent.__aexit__(None, None, None)
        assert bench.door.repeats == []
        assert uplink.connects_total == 2

    play(scenario)


def test_cut_before_the_acknowledgement_it_is_stored_once(play: Any, make: Any) -> None:
    """The controller stores the finding, but the stream is gone before it can say so."""

    async def scenario(bench: Any) -> None:
        spool = bench.spool()
        spool.append(make.fault("a"))
        bench.door.hold_findings = asyncio.Event()
        async with bench.server() as server:
            port = server.port
            uplink = bench.uplink(port)
            agent = bench.agent(uplink, spool)
            await agent.__aenter__()
            await bench.door.until(lambda: len(bench.door.hellos) == 1)
            stopping = asyncio.create_task(server.stop(grace_s=0))
            await make.eventually(lambda: not uplink.connected)
            bench.door.hold_findings.set()
            await stopping  # waits for the door: the call was not cut off
        stored_before = list(bench.door.ids())
        async with bench.server(port=port):
            await make.eventually(lambda: spool.depth == 0)
            await agent.__aexit__(None, None, None)
        assert bench.door.ids() == ["a"]
        assert stored_before in ([], ["a"])

    play(scenario)


def test_when_the_store_fails_the_finding_stays_and_comes_again(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        spool = bench.spool()
        spool.append(make.fault("a"))
        bench.door.fail_next_finding = True
        async with bench.server() as server:
            uplink = bench.uplink(server.port)
            async with bench.agent(uplink, spool):
                await bench.door.until(lambda: bench.door.ids() == ["a"])
                await make.eventually(lambda: spool.depth == 0)
        assert "the disk is full" in uplink.last_error
        assert uplink.connects_total == 2

    play(scenario)


def test_more_findings_than_the_window_arrive_in_order(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        spool = bench.spool()
        names = [f"f{i:03d}" for i in range(200)]
        for name in names:
            spool.append(make.fault(name))
        async with bench.server(secure=False) as server, bench.agent(bench.uplink(server.port, secure=False), spool):
            await make.eventually(lambda: spool.depth == 0)
        assert bench.door.ids() == names
        assert bench.door.repeats == []

    play(scenario)


def test_a_drain_is_obeyed_and_counts_as_no_failure(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        spool = bench.spool()
        async with bench.server() as server:
            port = server.port
            uplink = bench.uplink(port, retry_first_seconds=0.05)
            agent = bench.agent(uplink, spool)
            await agent.__aenter__()
            await make.eventually(lambda: uplink.connected)
            with capture_logs() as logs:
                await server.stop(why="upgrade to 0.2")
                await make.eventually(lambda: not uplink.connected)
            ends = [entry for entry in logs if entry["event"].startswith("uplink_")]
            assert (ends[0]["event"], ends[0]["why"]) == ("uplink_drained", "upgrade to 0.2")
        async with bench.server(port=port):
            await make.eventually(lambda: uplink.connects_total == 2)
            await agent.__aexit__(None, None, None)

    play(scenario)


def test_a_newer_connection_of_the_host_takes_over(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        first_spool, second_spool = bench.spool("one.db"), bench.spool("two.db")
        async with bench.server() as server:
            first = bench.uplink(server.port, refused_seconds=1000.0)
            async with bench.agent(first, first_spool):
                await make.eventually(lambda: first.connected)
                second = bench.uplink(server.port)
                async with bench.agent(second, second_spool):
                    await make.eventually(lambda: second.connected and not first.connected)
                    assert server.agents == 1
                    second_spool.append(make.fault("b"))
                    await bench.door.until(lambda: bench.door.ids() == ["b"])
                    assert "two agents run under one name" in first.last_error

    play(scenario)


def test_an_unreadable_finding_of_ours_does_not_block_the_next(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        spool = bench.spool()
        spool.append(make.fault("x" * 1000))
        spool.append(make.fault("b"))
        async with bench.server() as server:
            uplink = bench.uplink(server.port)
            async with bench.agent(uplink, spool):
                await make.eventually(lambda: spool.depth == 0)
        assert bench.door.ids() == ["b"]
        assert uplink.unsendable_total == 1

    play(scenario)


def test_a_controller_that_never_answers_is_left(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        spool = bench.spool()
        spool.append(make.fault("a"))
        bench.door.hold_findings = asyncio.Event()
        async with bench.server() as server:
            uplink = bench.uplink(server.port, answer_seconds=0.3)
            async with bench.agent(uplink, spool):
                await make.eventually(lambda: "has not answered for 0.3 s" in uplink.last_error)
                bench.door.hold_findings.set()
                await make.eventually(lambda: spool.depth == 0)
        assert bench.door.ids() == ["a"]

    play(scenario)


def test_a_hello_is_waited_for_longer_and_then_the_controller_is_left(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        bench.door.hold_hellos = asyncio.Event()
        async with bench.server() as server:
            uplink = bench.uplink(server.port, answer_seconds=0.3)
            async with bench.agent(uplink, bench.spool()):
                await make.eventually(lambda: "has not answered for 0.6 s" in uplink.last_error)
                assert not uplink.connected
                bench.door.hold_hellos.set()
                await make.eventually(lambda: uplink.connected)

    play(scenario)


def test_a_port_in_use_is_one_line(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server() as server:
            config = bench.server_config(port=server.port)
            with pytest.raises(UplinkError, match=r"cannot listen on 127.0.0.1:\d+: Address already in use; stop"):
                await serve(config, agents=bench.door, desk=bench.desk_door, clock=bench.clock)

    play(scenario)


def test_a_bug_in_a_door_ends_the_wait(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        async def broken(*_: Any) -> int:
            raise ZeroDivisionError

        bench.door.hello = broken
        async with bench.server() as server, bench.agent(bench.uplink(server.port), bench.spool()):
            with pytest.raises(ZeroDivisionError):
                await server.wait()

    play(scenario)
    del make


@pytest.mark.parametrize("where", ["welcome", "ack"])
def test_a_controller_that_names_numbers_nobody_gave_does_no_harm_to_the_spool(
    play: Any, make: Any, where: str
) -> None:
    async def scenario(bench: Any) -> None:
        async def far_away(*_: object) -> int:
            return 2**63 if where == "welcome" else 1000

        setattr(bench.door, "hello" if where == "welcome" else "finding", far_away)
        spool = bench.spool()
        spool.append(make.fault("f1"))
        async with bench.server() as server:
            uplink = bench.uplink(server.port)
            async with bench.agent(uplink, spool):
                await make.eventually(lambda: uplink.failures_total > 1)
        assert ("must fit into 48" if where == "welcome" else "acknowledges finding 1000") in uplink.last_error
        assert [entry.seq for entry in spool.pending(after_seq=0, limit=9)] == [1]
        assert spool.append(make.fault("f2")) == 2

    play(scenario)
