"""Several controllers, one of which judges: agents and operators go round until they find it."""

import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from fleetd.config.files import load_agent
from fleetd.config.strict import ConfigError
from fleetd.loopback import free_ports
from fleetd.ports import NotJudge, StoreError, UplinkError
from fleetd.system import RealClock
from fleetd.uplink.client import GrpcUplink
from fleetd.uplink.config import DeskConfig, UplinkConfig
from fleetd.uplink.desk import DeskClient
from fleetd.uplink.server import Server, serve
from tests.uplink.conftest import FakeAgentDoor, FakeDeskDoor


class StandBy(FakeAgentDoor):
    """A controller that judges only at times."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.judges = False
        self.asked = 0

    async def hello(self, *words: Any) -> int:
        self.asked += 1
        if not self.judges:
            raise NotJudge(f"{self.name} stands by")
        return await super().hello(*words)


class StandByDesk(FakeDeskDoor):
    """Its desk."""

    def __init__(self, door: StandBy) -> None:
        super().__init__()
        self._door = door

    async def fleet(self) -> Any:
        if not self._door.judges:
            raise NotJudge(f"{self._door.name} stands by")
        return await super().fleet()


@dataclass
class Waits(RealClock):
    """The real clock, which notes how long an agent waits."""

    waits: list[float] = field(default_factory=list)

    async def sleep_s(self, seconds: float) -> None:
        self.waits.append(seconds)
        await super().sleep_s(seconds)


class Three:
    """Three controllers; `c2` is not there at all."""

    def __init__(self, bench: Any) -> None:
        self._bench = bench
        self.doors = [StandBy("c0"), StandBy("c1")]
        self.servers: list[Server] = []
        self.clock = Waits()
        self.addresses: tuple[str, ...] = ()

    async def start(self, stack: AsyncExitStack) -> None:
        for door in self.doors:
            config = self._bench.server_config(secure=False)
            server = await serve(config, agents=door, desk=StandByDesk(door), clock=RealClock())
            stack.push_async_callback(server.stop, grace_s=0)
            self.servers.append(server)
        ports = [self.servers[0].port, *free_ports(1), self.servers[1].port]
        self.addresses = tuple(f"127.0.0.1:{port}" for port in ports)

    def uplink(self, **options: Any) -> GrpcUplink:
        waits = {"retry_first_seconds": 0.01, "retry_max_seconds": 0.05, **options}
        config = UplinkConfig(address=self.addresses, insecure=True, telemetry_interval_seconds=3600.0, **waits)
        return GrpcUplink(config, clock=self.clock, rng=random.Random(7))  # noqa: S311 - jitter

    def judge(self, which: int) -> None:
        for number, (door, server) in enumerate(zip(self.doors, self.servers, strict=True)):
            door.judges = number == which
            if not door.judges:
                server.turn_away("another one is the judge")


def test_an_agent_goes_round_without_a_pause_and_follows_the_judge(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with AsyncExitStack() as stack:
            three = Three(bench)
            await three.start(stack)
            three.judge(1)
            spool, uplink = bench.spool(), three.uplink()
            spool.append(make.fault("a"))
            async with bench.agent(uplink, spool):
                await three.doors[1].until(lambda: three.doors[1].ids() == ["a"])
                assert [wait for wait in three.clock.waits if wait < 3600.0] == [0.0, 0.0]  # one stood by, one is gone
                three.judge(0)
                spool.append(make.fault("b"))
                await three.doors[0].until(lambda: "b" in three.doors[0].ids())
                await make.eventually(lambda: spool.depth == 0)
            assert uplink.connects_total == 2

    play(scenario)


def test_while_nobody_judges_each_round_ends_in_a_bounded_wait(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with AsyncExitStack() as stack:
            three = Three(bench)
            await three.start(stack)
            uplink = three.uplink()
            with capture_logs() as logs:
                async with bench.agent(uplink, bench.spool()):
                    await make.eventually(lambda: uplink.failures_total >= 15)
            waits = three.clock.waits[:15]
            assert [wait for n, wait in enumerate(waits) if n % 3 != 2] == [0.0] * 10
            rounds = [wait for n, wait in enumerate(waits) if n % 3 == 2]
            assert all(
                most / 2 <= wait <= most for wait, most in zip(rounds, (0.01, 0.02, 0.04, 0.05, 0.05), strict=True)
            )
            # Standing by is no trouble, being away is.
            assert {log["log_level"] for log in logs if "stands by" in str(log["why"])} == {"info"}
            assert {log["log_level"] for log in logs if "cannot reach" in str(log["why"])} == {"warning"}

    play(scenario)


class Hurried(Waits):
    """A clock on which every connection lasts for a time of its own."""

    def __init__(self, lasts_s: float) -> None:
        super().__init__()
        self._lasts_s = lasts_s
        self._now_s = 0.0

    def elapsed_s(self) -> float:
        self._now_s += self._lasts_s
        return self._now_s


@pytest.mark.parametrize(("lasts_s", "longest"), [(1.0, 0.01), (0.001, 0.05)])
def test_only_a_connection_that_lasted_is_a_recovery(play: Any, make: Any, lasts_s: float, longest: float) -> None:
    async def scenario(bench: Any) -> None:
        async with AsyncExitStack() as stack:
            three = Three(bench)
            three.clock = Hurried(lasts_s)
            await three.start(stack)
            three.judge(0)
            bench_door, uplink = three.doors[0], three.uplink()
            spool = bench.spool()

            async def broken(*words: Any) -> int:
                raise StoreError(f"no room for {len(words)} words")

            bench_door.finding = broken  # type: ignore[method-assign]  # each connection is welcomed, and then ends
            spool.append(make.fault("a"))
            async with bench.agent(uplink, spool):
                await make.eventually(lambda: uplink.connects_total >= 8)
            rounds = [wait for wait in three.clock.waits if 0.0 < wait < 3600.0]
            assert longest / 2 <= max(rounds) <= longest

    play(scenario)


def test_an_operator_is_led_to_the_judge_and_a_change_is_asked_for_once(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with AsyncExitStack() as stack:
            three = Three(bench)
            await three.start(stack)
            config = DeskConfig(address=", ".join(three.addresses), insecure=True)
            with pytest.raises(
                UplinkError, match=r"no controller judges: try again .*c0 stands by.*cannot reach.*c1 stands"
            ):
                await DeskClient(config).__aenter__()
            three.judge(1)
            async with DeskClient(config) as desk:
                await desk.fleet()
                three.judge(0)  # in the middle of a command
                with pytest.raises(UplinkError, match="c1 stands by"):
                    await desk.fleet()

    play(scenario)


def agent_file(folder: Path, address: object) -> Path:
    body = {"apiVersion": "fleetd/v1", "kind": "Agent", "state_dir": str(folder)}
    path = folder / "agent.yaml"
    path.write_text(yaml.safe_dump({**body, "uplink": {"address": address, "insecure": True}}))
    return path


def test_one_address_or_a_list_stands_in_the_file(tmp_path: Path) -> None:
    for address in ("127.0.0.1:7443", ["127.0.0.1:7443", "localhost:7444"]):
        config = load_agent(agent_file(tmp_path, address)).uplink
        assert config.addresses == ((address,) if isinstance(address, str) else tuple(address))


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ([], "name from 1 to 16 controllers, each once"),
        (["127.0.0.1:1", "127.0.0.1:1"], "each once"),
        (["127.0.0.1:1", "nowhere"], "'nowhere' is no address"),
        (["127.0.0.1:1", "10.0.0.1:1"], "not on this host"),
        ([["127.0.0.1:1"]], "expected a single value"),
        ({"a": 1}, "expected a single value"),
        (7443, "expected"),
    ],
)
def test_what_is_no_list_of_controllers_is_one_line(tmp_path: Path, address: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_agent(agent_file(tmp_path, address))
