"""Letting go of the GPUs on request, and the socket over which it is asked for (S44)."""

import asyncio
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from fleetd.agent.attachment import Attachment, PatientBurner
from fleetd.agent.control_socket import ControlSocket
from fleetd.agent.sampler import Sampler, SamplerConfig
from fleetd.agent.status_client import Refused, control_socket, tell
from fleetd.ports import DeviceError, DevicesReleased
from tests.agent.fakes_agent import BOOT, HOST, FakeBurner, FakeClock, FakeDevices, FakeSpool, order, report
from tests.devices.nvidia_bench import bench, gone, run, settled


def test_a_release_ends_by_itself_and_may_be_ended_before() -> None:
    async def case() -> None:
        clock = FakeClock()
        devices = FakeDevices(clock, lambda _: {0})
        attachment = Attachment(devices, clock=clock)
        assert await attachment.release(60.0) == ""
        assert devices.closed
        for call in (attachment.sample, attachment.inventory):
            with pytest.raises(DevicesReleased, match="another 60 s"):
                await call()
        clock.now_s += 60.0
        assert attachment.released_s is None
        assert len(await attachment.sample()) == 1
        await attachment.release(60.0)
        attachment.attach()
        assert len(await attachment.sample()) == 1

    asyncio.run(case())


@pytest.mark.parametrize("seconds", [0.0, -1.0, 3601.0, float("nan"), float("inf")])
def test_a_release_for_ever_is_refused(seconds: float) -> None:
    clock = FakeClock()
    attachment = Attachment(FakeDevices(clock, lambda _: {0}), clock=clock)
    assert "at most 3600 s" in asyncio.run(attachment.release(seconds))
    assert attachment.released_s is None


def test_a_burn_in_keeps_the_gpus_and_waits_for_the_end_of_a_release(tmp_path: Path) -> None:
    async def case() -> None:
        clock = FakeClock()
        attachment = Attachment(FakeDevices(clock, lambda _: {0}), clock=clock)
        inner = FakeBurner(lambda _: report())
        inner.hold = asyncio.Event()
        burner = PatientBurner(inner, attachment)
        await attachment.release(60.0)
        burning = asyncio.create_task(burner.burn(order(), tmp_path / "r.json"))
        await inner.started.wait()
        assert clock.now_s >= 1060.0, "it began when the release was over"
        assert "a burn-in is using the GPUs" in await attachment.release(60.0)
        inner.hold.set()
        await burning
        assert await attachment.release(60.0) == ""

    asyncio.run(case())


def test_released_gpus_are_no_silent_gpus_and_get_their_time_to_come_back() -> None:
    async def case() -> list[str]:
        clock, spool = FakeClock(), FakeSpool()
        # From the release on the driver does not answer: it was unloaded.
        devices = FakeDevices(clock, lambda now_s: {0} if now_s < 1010.0 else DeviceError("driver is loading"))
        attachment = Attachment(devices, clock=clock)
        sampler = Sampler(host=HOST, boot_id=BOOT, devices=attachment, spool=spool, clock=clock, config=SamplerConfig())
        assert await sampler.sample_once() is None
        clock.now_s += 10.0
        await attachment.release(600.0)
        while attachment.released_s is not None:
            assert await sampler.sample_once() == 1.0
            clock.now_s += 1.0
        assert spool.findings == []
        assert (sampler.latest(), sampler.age_s) == ((), None)
        began_s = clock.now_s
        while not spool.findings:
            clock.now_s += await sampler.sample_once() or 1.0
        assert clock.now_s - began_s > 60.0, "as patient as after a start"
        return [finding.why for finding in spool.findings]

    (why,) = asyncio.run(case())
    assert "no GPU answers" in why


def test_s44_on_request_no_process_of_the_agent_holds_a_gpu_and_it_attaches_afterwards(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path) as host:
            attachment = Attachment(host.devices, clock=host.clock)
            assert len(await attachment.sample()) == 3
            starts, ends = host.lines(".starts"), host.lines(".ends")
            assert (len(starts), ends) == (1, []), "one process has the library open"
            # A sample that is asked for at the same moment must not open the library again behind the release.
            racing = [asyncio.create_task(attachment.sample()) for _ in range(2)]
            assert await attachment.release(30.0) == ""
            await asyncio.wait(racing)
            assert host.lines(".ends") == host.lines(".starts") == starts, "every opened library was shut down"
            await gone(int(starts[0]))
            host.clock.now_s += 30.0
            assert len(await attachment.sample()) == 3
            assert len(host.lines(".starts")) == 2

    run(case())


def test_s44_a_helper_that_is_stuck_in_the_driver_is_named_as_a_holder(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=2) as host:
            attachment = Attachment(host.devices, clock=host.clock)
            await attachment.sample()
            host.tell(1, hang__PowerUsage=1)
            await attachment.sample()
            stuck = host.lines(".starts")[0]
            await settled(host.devices)
            assert await attachment.release(30.0) == f"still inside the nvidia driver: helper process {stuck}"
            host.tell(1, hang__PowerUsage=None)
            host.scenario.let_go()
            await gone(int(stuck))
            assert await attachment.release(30.0) == "", "asked again once it has come out"
            attachment.attach()
            assert len(await attachment.sample()) == 2, "also the one that had been left alone"

    run(case())


# ── the control socket ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_control_socket_is_for_its_owner_and_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    async def carry_out(request: dict[str, Any]) -> str:
        if request.get("do") != "attach":
            raise ValueError("known is attach")
        return ""

    async def case() -> None:
        status = tmp_path / "a.sock"
        path = control_socket(status)
        assert path.name == "a-control.sock"
        server = ControlSocket(path, carry_out)
        assert await server.start()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        await asyncio.to_thread(lambda: tell(status, {"do": "attach"}, timeout_s=60.0))
        with pytest.raises(Refused, match="that is no request: known is attach"):
            await asyncio.to_thread(lambda: tell(status, {"do": "reboot"}, timeout_s=60.0))
        for line in (b"\n", b"[]\n", b"{\n", b"\xff\n", b"[" * 4000 + b"\n"):
            assert not (await converse(path, line))["ok"]
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"x" * 100_000)
        with pytest.raises((ConnectionError, EOFError)):  # hung up on: longer than any request
            await reader.readexactly(1)
        writer.close()
        await server.close()
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
        again = ControlSocket(path, carry_out)
        assert await again.start(), "the socket of a killed agent is taken over"
        await again.close()
        assert not path.exists()

    asyncio.run(case())


async def converse(path: Path, line: bytes) -> dict[str, Any]:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    answer: dict[str, Any] = json.loads(await reader.readline())
    writer.close()
    return answer


def test_an_agent_without_a_place_for_its_control_socket_goes_on(tmp_path: Path) -> None:
    async def carry_out(_: dict[str, Any]) -> str:
        return ""

    async def case() -> None:
        assert not await ControlSocket(tmp_path / "none" / "c.sock", carry_out).start()
        (tmp_path / "file").write_text("kept")
        assert not await ControlSocket(tmp_path / "file", carry_out).start()
        assert (tmp_path / "file").read_text() == "kept"
        assert not await ControlSocket(Path(str(tmp_path / ("x" * 120))), carry_out).start()

    asyncio.run(case())
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208 - names are compared
