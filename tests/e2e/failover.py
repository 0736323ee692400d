"""Three controllers on one PostgreSQL, agents with findings, and what befalls the judge: for the test and the bench."""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import psycopg
import yaml

from fleetd.burner import LEASH
from fleetd.compose import keeping
from fleetd.config.shipped import policy_path
from fleetd.loopback import free_ports
from fleetd.model.finding import BurninEnded, DeviceFault, FaultClass, Scope, Severity, Verdict
from fleetd.model.host import Gpu, Hello, Place
from fleetd.model.ids import BootId, FindingId, GpuId, HostName
from fleetd.model.order import RunBurnin
from fleetd.stores.place import PgPlace
from fleetd.system import RealClock
from fleetd.uplink.client import GrpcUplink
from fleetd.uplink.config import UplinkConfig
from fleetd.uplink.spool import SqliteSpool
from tests.e2e.cable import Cable
from tests.postgres import Cluster
from tests.reading import lines_of
from tests.stopping import stop

CONTROLLERS = 3
SETTLED_SECONDS = 240.0
LOOK_SECONDS = 0.01


class Agent:
    """A host whose line to the controllers and whose spool are the real ones."""

    def __init__(
        self, folder: Path, number: int, addresses: tuple[str, ...], appended_s: dict[FindingId, float]
    ) -> None:
        self.host, self.boot = HostName(f"h{number:03}"), BootId(f"boot-{number}")
        rng = random.Random(number)  # noqa: S311 - jitter, and the name of a spool
        self.spool = SqliteSpool(folder / f"{self.host}.db", rng=rng)
        self._uplink = GrpcUplink(UplinkConfig(address=addresses, insecure=True), clock=RealClock(), rng=rng)
        self._gpu = Gpu(gpu=GpuId(f"GPU-{number}"), index=0, vendor="sim", sku="simulated", pci_address=None)
        self._appended_s, self._clock = appended_s, RealClock()
        self._number = 0

    async def run(self) -> None:
        await self._uplink.run(
            hello=self._hello, spool=self.spool, telemetry=tuple, accept=self._burn, recall=lambda _: None
        )

    def _hello(self) -> Hello:
        return Hello(
            host=self.host,
            boot_id=self.boot,
            agent_version="test",
            capabilities=("burnin",),
            inventory=(self._gpu,),
            place=Place(),
            at_s=self._clock.wall_s(),
        )

    async def _burn(self, order: RunBurnin) -> str:
        ended = BurninEnded(
            id=FindingId(f"{order.id}/end"),
            host=self.host,
            boot_id=self.boot,
            at_s=self._clock.wall_s(),
            why="all agree",
            order_id=order.id,
            level=order.level,
            verdict=Verdict.PASS,
            fault_class=FaultClass.NONE,
            seed=1,
            vote_key="",
            culprits=(),
        )
        self.spool.append(ended)
        return ""

    def find(self) -> None:
        """See an error that a human is to hear of."""
        self._number += 1
        fault = DeviceFault(
            id=FindingId(f"{self.host}/error/{self._number}"),
            host=self.host,
            boot_id=self.boot,
            at_s=self._clock.wall_s(),
            why="an error that no rule is about",
            code="test.error",
            gpu=self._gpu.gpu,
            index=0,
            scope=Scope.GPU,
            severity=Severity.ERROR,
            fault_class=FaultClass.NONE,
        )
        self._appended_s[fault.id] = self._clock.elapsed_s()
        self.spool.append(fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it."""

    findings: int
    kills: int
    cuts: int
    terms: int
    """Times that a controller became the judge."""
    latencies_s: tuple[float, ...]
    """From each finding's spool to its order in the actuator's record, sorted."""
    wrong: tuple[str, ...]
    """What was lost, done twice or damaged: nothing."""

    def latency_s(self, share: float) -> float:
        """So many of the findings took no longer."""
        return self.latencies_s[min(len(self.latencies_s) - 1, int(len(self.latencies_s) * share))]


class Failover:
    """Everything that runs."""

    def __init__(self, folder: Path, cluster: Cluster, *, agents: int) -> None:
        self._folder, self._clock, self._cluster = folder, RealClock(), cluster
        self._place = cluster.place()
        schema = self._place.url.rpartition("%3D")[2]
        self._cables = [Cable(cluster.port) for _ in range(CONTROLLERS)]
        ports = free_ports(2 * CONTROLLERS)
        self._ports, self._metrics = ports[:CONTROLLERS], ports[CONTROLLERS:]
        self._record = folder / "orders.jsonl"
        self._record.touch()
        policy = yaml.safe_load(policy_path("default").read_text())
        policy["tell_again_seconds"] = 1e-6  # each finding gives an order
        (folder / "policy.yaml").write_text(yaml.safe_dump(policy))
        for number, cable in enumerate(self._cables):
            self._configure(number, cluster.url("postgres", schema=schema, port=cable.port))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._appended_s: dict[FindingId, float] = {}
        self._recorded_s: dict[str, float] = {}
        addresses = tuple(f"127.0.0.1:{port}" for port in self._ports)
        self._agents = [Agent(folder, number, addresses, self._appended_s) for number in range(agents)]
        self.kills = self.cuts = 0

    def _configure(self, number: int, url: str) -> None:
        state = self._folder / f"c{number}"
        state.mkdir()
        (state / "orders.jsonl").symlink_to(self._record)  # the one scheduler that they all act on
        body = {
            "apiVersion": "fleetd/v1",
            "kind": "Controller",
            "state_dir": str(state),
            "store": url,
            "policy": str(self._folder / "policy.yaml"),
            "server": {"listen": f"127.0.0.1:{self._ports[number]}", "insecure": True},
            "exporter": {"listen": f"127.0.0.1:{self._metrics[number]}"},
        }
        (self._folder / f"c{number}.yaml").write_text(yaml.safe_dump(body))

    # ── what befalls it ─────────────────────────────────────────────────────────────────────────────────────────────

    def command(self, *words: str, controllers: Iterable[int] = range(CONTROLLERS)) -> subprocess.CompletedProcess[str]:
        """Run a `fleetd` command that asks some of the controllers."""
        where = ",".join(f"127.0.0.1:{self._ports[number]}" for number in controllers)
        asked = [sys.executable, "-m", "fleetd", *words, "--controller", where, "--insecure"]
        return subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)

    def leads(self, number: int) -> str:
        """What a controller's page of metrics says of whether it judges; empty without a page."""
        with (
            contextlib.suppress(OSError),
            urlopen(f"http://127.0.0.1:{self._metrics[number]}/metrics", timeout=10) as page,
        ):
            found = [line for line in page.read().decode().splitlines() if line.startswith("fleetd_controller_leader ")]
            return found[0].partition(" ")[2] if found else ""
        return ""

    def alive(self, number: int) -> bool:
        """Whether the process of a controller runs."""
        return self._processes[number].poll() is None

    def end(self, number: int) -> int:
        """End a controller in order; returns its exit code."""
        self._processes[number].terminate()
        return self._processes[number].wait()

    def start(self, number: int) -> None:
        """Start a controller, as the service manager does."""
        with (self._folder / f"c{number}.log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-c", LEASH, str(os.getpid())),
                    *(sys.executable, "-m", "fleetd", "controller", "--config", str(self._folder / f"c{number}.yaml")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def judge(self) -> tuple[int, int] | None:
        """The controller that judges, as the ledger has it, and its term."""
        try:
            with closing(psycopg.connect(self._place.url)) as connection:
                row = connection.execute("SELECT holder, number FROM term").fetchone()
        except (psycopg.errors.UndefinedTable, psycopg.OperationalError):
            return None  # there is none yet, or the database is away
        return None if row is None else (next(n for n, port in enumerate(self._ports) if f":{port})" in row[0]), row[1])

    async def elected(self, *, after: int = 0) -> tuple[int, int]:
        """Wait for a judge of a later term; returns its number and its term."""
        deadline_s = self._clock.elapsed_s() + SETTLED_SECONDS
        while (judge := await asyncio.to_thread(self.judge)) is None or judge[1] <= after:
            assert self._clock.elapsed_s() < deadline_s, self.logs()
            await self._clock.sleep_s(0.05)
        return judge

    async def kill_the_judge(self, *, away_s: float) -> None:
        """Kill it without a warning; it comes back after a while."""
        judge, term = await self.elected()
        process = self._processes[judge]
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)
        self.kills += 1
        await self._clock.sleep_s(away_s)
        self.start(judge)
        await self.elected(after=term)

    async def cut_the_judge_off(self, *, away_s: float) -> None:
        """Cut its line to the database: it must stop by itself, and another one judges meanwhile."""
        judge, term = await self.elected()
        self._cables[judge].cut()
        self.cuts += 1
        await self.elected(after=term)
        await self._clock.sleep_s(away_s)
        self._cables[judge].mend()

    async def restart_the_database(self) -> None:
        """Let the database crash: nobody judges until it is back."""
        await asyncio.to_thread(self._cluster.restart)

    async def stop_the_judge(self) -> int:
        """Stop it as a debugger does, with every connection open, until another one judges; returns its number."""
        judge, term = await self.elected()
        await asyncio.to_thread(stop, self._processes[judge].pid)
        await self.elected(after=term)
        return judge

    def go_on(self, number: int) -> None:
        """Let a controller that was stopped go on with what it was doing."""
        self._processes[number].send_signal(signal.SIGCONT)

    # ── the run ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Controllers and agents run, and the record is watched."""
        for number in range(CONTROLLERS):
            self.start(number)
        await self.elected()
        tasks = [asyncio.create_task(agent.run()) for agent in self._agents]
        tasks.append(asyncio.create_task(self._watch_record()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            for process in self._processes.values():
                process.terminate()
                process.send_signal(signal.SIGCONT)
            for process in self._processes.values():
                await asyncio.to_thread(process.wait)
            for agent in self._agents:
                agent.spool.close()
            for cable in self._cables:
                with cable:
                    pass
            assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends

    async def find_for(self, seconds: float, *, per_second: float) -> None:
        """Have findings at a steady rate, host after host."""
        began_s, made = self._clock.elapsed_s(), 0
        while (now_s := self._clock.elapsed_s() - began_s) < seconds:
            while made < now_s * per_second:
                self._agents[made % len(self._agents)].find()
                made += 1
            await self._clock.sleep_s(LOOK_SECONDS)

    async def _watch_record(self) -> None:
        while True:
            for line in lines_of(self._record)[len(self._recorded_s) :]:
                self._recorded_s.setdefault(json.loads(line)["order"], self._clock.elapsed_s())
            await self._clock.sleep_s(LOOK_SECONDS)

    async def settled(self) -> None:
        """Wait until every finding is acknowledged and every order of the scheduler is carried out."""
        deadline_s = self._clock.elapsed_s() + SETTLED_SECONDS
        while any(agent.spool.depth for agent in self._agents) or await asyncio.to_thread(self._open_orders):
            assert self._clock.elapsed_s() < deadline_s, self.logs()
            await self._clock.sleep_s(0.1)

    def _open_orders(self) -> int:
        return len(self._rows("SELECT id FROM orders WHERE kind <> 'RunBurnin' AND NOT done"))

    def _rows(self, query: str) -> list[tuple[object, ...]]:
        with closing(psycopg.connect(self._place.url)) as connection:
            return connection.execute(query.encode()).fetchall()

    def outcome(self) -> Outcome:
        """Compare what was found with what the ledger and the scheduler have."""
        wrong: list[str] = []
        stored = {str(row[0]) for row in self._rows("SELECT id FROM findings")}
        wrong += [f"{finding}: lost" for finding in self._appended_s if finding not in stored]
        query = "SELECT f.id, o.id FROM findings f JOIN orders o USING (position) WHERE o.kind = 'Notify'"
        order_of: dict[str, list[str]] = {}
        for finding, order in self._rows(query):
            order_of.setdefault(str(finding), []).append(str(order))
        wrong += [f"{f}: {len(order_of.get(f, ()))} orders" for f in self._appended_s if len(order_of.get(f, ())) != 1]
        recorded = Counter(json.loads(line)["order"] for line in lines_of(self._record))
        wrong += [f"{order}: done {times} times" for order, times in recorded.items() if times != 1]
        given = {str(row[0]) for row in self._rows("SELECT id FROM orders WHERE kind <> 'RunBurnin'")}
        wrong += [f"{order}: never done" for order in given - set(recorded)]
        wrong += [f"{order}: done and not in the ledger" for order in set(recorded) - given]
        keeping.check(PgPlace(url=self._place.url))  # the chain is whole, and nothing is missing in it
        latencies = [
            self._recorded_s[order_of[finding][0]] - at_s
            for finding, at_s in self._appended_s.items()
            if order_of.get(finding, [""])[0] in self._recorded_s
        ]
        ((terms,),) = self._rows("SELECT number FROM term")
        return Outcome(
            findings=len(self._appended_s),
            kills=self.kills,
            cuts=self.cuts,
            terms=int(str(terms)),
            latencies_s=tuple(sorted(latencies)),
            wrong=tuple(wrong),
        )

    def logs(self) -> str:
        """What the controllers said last, for whoever looks at a failure."""
        return "\n".join(
            f"c{number}: " + "\n".join((self._folder / f"c{number}.log").read_text().splitlines()[-15:])
            for number in range(CONTROLLERS)
        )


async def troubled(failover: Failover, *, troubles: int, every_s: float, per_second: float) -> Outcome:
    """Kill the judge and cut it off in turn while findings come in; returns what came of it."""
    async with failover.running():
        await failover.settled()  # every host has passed its first burn-in
        async with asyncio.TaskGroup() as group:
            group.create_task(failover.find_for((troubles + 1) * every_s, per_second=per_second))
            for number in range(troubles):
                await RealClock().sleep_s(every_s - 1.0)
                if number % 3 == 1:
                    await failover.cut_the_judge_off(away_s=1.0)
                else:
                    await failover.kill_the_judge(away_s=1.0)
        await failover.settled()
        return await asyncio.to_thread(failover.outcome)
