"""Fake doors, real certificates, and a real server and client between them on the loopback."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from fleetd.model.alert import Alert
from fleetd.model.fact import BEGINNING, Fact, FactQuery
from fleetd.model.finding import DeviceFault, FaultClass, Finding, Scope, Severity
from fleetd.model.fleet import FleetRecord, Stopped
from fleetd.model.host import Gpu, Hello, Host, Lifecycle
from fleetd.model.ids import BootId, FindingId, GpuId, HostName, OrderId, SpoolId
from fleetd.model.order import AgentOrder, Drain, RecallBurnin, RunBurnin
from fleetd.model.power_lease import Answer, AreaUse, Ask, HostUse, NoGrant, PowerUse
from fleetd.model.telemetry import GpuSample, Telemetry
from fleetd.ports import AlertsTaken, Clock, IdentityDoor, Peer, PowerLine, Refused, StoreError
from fleetd.system import RealClock
from fleetd.uplink.certificate import base, leaf
from fleetd.uplink.client import GrpcUplink
from fleetd.uplink.config import DeskConfig, ServerConfig, UplinkConfig
from fleetd.uplink.desk import DeskClient
from fleetd.uplink.pki import DevPki, make_dev_pki
from fleetd.uplink.server import Server, serve
from fleetd.uplink.spool import SqliteSpool

PATIENCE_S = 120.0
"""A scenario that takes longer has failed; none of them needs a second of it on a quiet machine."""


class FakeAgentDoor:
    """Stores in memory, tells when something came in, and refuses or fails when it is told to."""

    def __init__(self) -> None:
        self.hellos: list[tuple[Peer, Hello, SpoolId]] = []
        self.stored: dict[SpoolId, list[tuple[int, Finding]]] = {}
        self.repeats: list[int] = []
        self.samples: dict[HostName, tuple[GpuSample, ...]] = {}
        self.telemetries: list[Telemetry] = []
        self.confirmed: list[tuple[OrderId, str]] = []
        self.to_send: list[AgentOrder] = []
        self.asks: list[tuple[HostName, Ask]] = []
        self.power_answers: list[Answer | None] = []
        self.refuse = ""
        self.fail_next_finding = False
        self.hold_findings: asyncio.Event | None = None
        self.hold_hellos: asyncio.Event | None = None
        self.changed = asyncio.Condition()
        self.open_order_streams = 0

    def ids(self) -> list[str]:
        return [finding.id for rows in self.stored.values() for _seq, finding in rows]

    async def until(self, done: Callable[[], bool]) -> None:
        async with self.changed:
            await self.changed.wait_for(done)

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def hello(self, peer: Peer, hello: Hello, spool: SpoolId) -> int:
        if self.refuse:
            raise Refused(self.refuse)
        if self.hold_hellos is not None:
            await self.hold_hellos.wait()
        self.hellos.append((peer, hello, spool))
        await self._tell()
        return max((seq for seq, _ in self.stored.get(spool, [])), default=0)

    async def finding(self, host: HostName, spool: SpoolId, seq: int, finding: Finding) -> int:
        if self.fail_next_finding:
            self.fail_next_finding = False
            raise StoreError("the disk is full")
        if self.hold_findings is not None:
            await self.hold_findings.wait()
        if finding.host != host:
            raise Refused(f"the agent of {host} sent a finding about {finding.host}")
        rows = self.stored.setdefault(spool, [])
        if any(known == seq for known, _ in rows):
            self.repeats.append(seq)
        else:
            rows.append((seq, finding))
        await self._tell()
        return max(known for known, _ in rows)

    async def telemetry_received(self, host: HostName, telemetry: Telemetry) -> None:
        self.samples[host] = telemetry.whole()
        self.telemetries.append(telemetry)
        await self._tell()

    async def power_asked(self, host: HostName, ask: Ask) -> Answer | None:
        self.asks.append((host, ask))
        await self._tell()
        return self.power_answers.pop(0) if self.power_answers else NoGrant(why="no tree\x1b[31m", budgets=False)

    async def orders(self, host: HostName) -> AsyncIterator[AgentOrder]:
        self.open_order_streams += 1
        try:
            for order in self.to_send:
                if isinstance(order, RecallBurnin) or order.host == host:
                    yield order
            await asyncio.Event().wait()
        finally:
            self.open_order_streams -= 1

    async def order_confirmed(self, host: HostName, order_id: OrderId, refused: str) -> None:
        del host
        self.confirmed.append((order_id, refused))
        await self._tell()


class FakeDeskDoor:
    """A fleet of a few hosts that remembers who did what."""

    def __init__(self) -> None:
        self.record = FleetRecord(stopped=Stopped(who="operator:ann", reason="roll-out", at_s=1.0))
        self.known = {HostName(f"h{i:02d}"): host(f"h{i:02d}") for i in range(3)}
        self.done: list[tuple[Peer, str, str]] = []
        self.all_facts: list[Fact] = []
        self.queries: list[FactQuery] = []
        self.old = False
        """Of a version that knows the order of the journal only."""

    def _known(self, name: HostName) -> Host:
        if name not in self.known:
            raise Refused(f"no host {name!r}")
        return self.known[name]

    async def hosts(self) -> tuple[Host, ...]:
        return tuple(self.known[name] for name in sorted(self.known))

    async def host(self, name: HostName) -> tuple[Host, tuple[GpuSample, ...], tuple[Finding, ...]]:
        return self._known(name), (sample("GPU-0"),), (fault("f1", host=name),)

    async def quarantine(
        self,
        peer: Peer,
        name: HostName,
        reason: str,
        *,
        expires_at_s: float | None = None,
        drain: Drain | None = None,
    ) -> Host:
        until = "" if expires_at_s is None else f" until {expires_at_s:g}"
        until += "" if drain is None else f" {drain}"
        return self._do(peer, "quarantine", name, f"{reason}{until}")

    async def burnin(self, peer: Peer, name: HostName, reason: str, *, level: str | None) -> Host:
        return self._do(peer, f"burnin {level}", name, reason)

    async def repair(self, peer: Peer, name: HostName, reason: str) -> Host:
        return self._do(peer, "repair", name, reason)

    async def retire(self, peer: Peer, name: HostName, reason: str) -> Host:
        return self._do(peer, "retire", name, reason)

    async def job_ended(self, peer: Peer, name: HostName, job: str, *, ok: bool, ran_seconds: float) -> Host:
        return self._do(peer, "job", name, f"{job} {ok} {ran_seconds:g}")

    async def repaired(self, peer: Peer, name: HostName, reason: str) -> Host:
        return self._do(peer, "repaired", name, reason)

    async def swap(self, peer: Peer, name: HostName, reason: str, *, old: GpuId, new: GpuId) -> Host:
        return self._do(peer, f"swap {old} {new}", name, reason)

    async def facts(self, query: FactQuery) -> tuple[Fact, ...]:
        self.queries.append(query)
        begin = [f for f in self.all_facts if f.event == BEGINNING and query.after == 0 and not query.newest]
        rest = [f for f in self.all_facts if f.event != BEGINNING and f.position > query.after]
        rest = [f for f in rest if query.before is None or f.position < query.before]
        if query.newest and not self.old:
            rest.reverse()
        return (*begin, *rest[: query.limit])

    async def alerts(self, peer: Peer, alerts: Sequence[Alert]) -> AlertsTaken:
        self.done += [(peer, f"alert {alert.id}", repr(alert)) for alert in alerts]
        return AlertsTaken(taken=len(alerts), refused=("X: no host\x1b[31m",))

    def _do(self, peer: Peer, verb: str, name: HostName, reason: str) -> Host:
        self.done.append((peer, f"{verb} {name}", reason))
        return self._known(name)

    async def fleet(self) -> FleetRecord:
        return self.record

    async def power(self) -> PowerUse:
        area = AreaUse(
            name="rack", parent=None, budget_watts=9.0, reserved_watts=5.0, demand_watts=7.0, stranded_watts=0.5
        )
        leased = HostUse(
            name=HostName("h01"),
            area="rack",
            safe_watts=2.0,
            max_watts=4.0,
            reserved_watts=3.0,
            demand_watts=4.0,
            lease_watts=3.0,
            left_s=12.5,
        )
        bare = replace(leased, name=HostName("h02"), lease_watts=None, left_s=None, uncapped="it observes")
        return PowerUse(areas=(area,), hosts=(leased, bare), settles_s=1.5)

    async def rearm_budget(self, peer: Peer, reason: str) -> FleetRecord:
        return self._do_fleet(peer, "rearm", reason)

    async def stop_automation(self, peer: Peer, reason: str) -> FleetRecord:
        return self._do_fleet(peer, "stop", reason)

    async def resume_automation(self, peer: Peer, reason: str) -> FleetRecord:
        return self._do_fleet(peer, "resume", reason)

    async def close_incident(self, peer: Peer, incident: str, reason: str, *, acquit: bool) -> FleetRecord:
        return self._do_fleet(peer, f"close {incident} {acquit}", reason)

    def _do_fleet(self, peer: Peer, verb: str, reason: str) -> FleetRecord:
        self.done.append((peer, verb, reason))
        return self.record

    async def release(self, peer: Peer, name: HostName, reason: str, *, override: bool) -> Host:
        if not override:
            raise Refused("the proof is missing: a passing `smoke` burn-in")
        self.done.append((peer, f"release {name}", reason))
        return self._known(name)

    async def explain(self, name: HostName) -> tuple[tuple[float, str], ...]:
        return ((1.0, f"{name} said hello"), (2.5, "it passed"))


def fault(name: str, *, host: str = "h01", severity: Severity = Severity.ERROR, why: str = "it broke") -> DeviceFault:
    return DeviceFault(
        id=FindingId(name),
        host=HostName(host),
        boot_id=BootId("boot-1"),
        at_s=1000.5,
        why=why,
        code="nvidia.xid.79",
        gpu=GpuId("GPU-0"),
        index=0,
        scope=Scope.GPU,
        severity=severity,
        fault_class=FaultClass.UNRESPONSIVE,
    )


def sample(gpu: str, *, power_watts: float | None = 300.0) -> GpuSample:
    return GpuSample(gpu=GpuId(gpu), at_s=1000.0, power_watts=power_watts)


def order(name: str, *, host: str = "h01") -> RunBurnin:
    return RunBurnin(
        id=OrderId(name),
        host=HostName(host),
        issued_at_s=1.0,
        why="new host",
        level="smoke",
        boot_id=BootId("boot-1"),
        not_after_s=4000.0,
    )


def hello(host: str = "h01") -> Hello:
    gpu = Gpu(gpu=GpuId("GPU-0"), index=0, vendor="sim", sku="simulated", pci_address=None)
    return Hello(
        host=HostName(host), boot_id=BootId("boot-1"), agent_version="0.1", capabilities=("burnin",), inventory=(gpu,)
    )


def host(name: str) -> Host:
    return Host(
        name=HostName(name),
        state=Lifecycle.HEALTHY,
        why="it passed",
        since_s=10.0,
        boot_id=None,
        inventory=(),
        holds=(),
        strikes=(),
        pending=None,
        proof=None,
        orders_issued=1,
        attempts=0,
    )


@dataclass
class Bench:
    """What a scenario needs to hand; certificates of two CAs that do not know each other."""

    path: Path
    pki: Path
    foreign: Path
    door: FakeAgentDoor
    desk_door: FakeDeskDoor
    spools: list[SqliteSpool] = field(default_factory=list)
    clock: Clock = field(default_factory=RealClock)
    identity: IdentityDoor | None = None

    def spool(self, name: str = "spool.db", **options: int) -> SqliteSpool:
        spool = SqliteSpool(self.path / name, rng=random.Random(name), **options)  # noqa: S311 - names a spool
        self.spools.append(spool)
        return spool

    def tls(self, stem: str, *, pki: Path | None = None) -> dict[str, str]:
        """Return ca, cert and key of one party."""
        root = pki or self.pki
        made = self.path / "made"  # by `certify`
        if (made / f"{stem}.crt").exists():
            return {"ca": str(root / "ca.crt"), "cert": str(made / f"{stem}.crt"), "key": str(made / f"{stem}.key")}
        return {"ca": str(root / "ca.crt"), "cert": str(root / f"{stem}.crt"), "key": str(root / f"{stem}.key")}

    def server_config(self, *, port: int = 0, secure: bool = True, **options: Any) -> ServerConfig:
        options = {"drain_retry_after_seconds": 0.01, **options}
        tls = self.tls("controller") if secure else {}
        return ServerConfig(listen=f"127.0.0.1:{port}", insecure=not secure, **tls, **options)

    @asynccontextmanager
    async def server(self, **options: Any) -> AsyncIterator[Server]:
        server = await serve(
            self.server_config(**options),
            agents=self.door,
            desk=self.desk_door,
            clock=self.clock,
            identity=self.identity,
        )
        try:
            yield server
        finally:
            await server.stop(grace_s=0)

    def uplink(
        self, port: int, *, secure: bool = True, tls: dict[str, str] | None = None, **options: Any
    ) -> GrpcUplink:
        quick = {
            "retry_first_seconds": 0.005,
            "retry_max_seconds": 0.05,
            "refused_seconds": 0.02,
            "telemetry_interval_seconds": 0.02,
        }
        files = (tls or self.tls("agents/h01")) if secure else {}
        config = UplinkConfig(address=f"127.0.0.1:{port}", insecure=not secure, **files, **{**quick, **options})
        return GrpcUplink(config, clock=RealClock(), rng=random.Random(7))  # noqa: S311 - jitter

    @asynccontextmanager
    async def agent(
        self,
        uplink: GrpcUplink,
        spool: SqliteSpool,
        *,
        as_host: str = "h01",
        accept: Callable[[RunBurnin], Awaitable[str]] | None = None,
        recall: Callable[[RecallBurnin], None] = lambda _: None,
        power: PowerLine | None = None,
        telemetry: Callable[[], tuple[GpuSample, ...]] = lambda: (),
    ) -> AsyncIterator[None]:
        async def take(_order: RunBurnin) -> str:
            return ""

        task = asyncio.create_task(
            uplink.run(
                hello=lambda: hello(as_host),
                spool=spool,
                telemetry=telemetry,
                accept=accept or take,
                recall=recall,
                power=power,
            )
        )
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled(), task.exception()

    def desk(self, port: int, *, stem: str = "operators/ann", secure: bool = True) -> DeskClient:
        tls = self.tls(stem) if secure else {}
        return DeskClient(DeskConfig(address=f"127.0.0.1:{port}", insecure=not secure, **tls))


def certify(
    bench: Bench,
    stem: str,
    names: Sequence[str],
    *,
    begins_s: float = -3600.0,
    ends_s: float = 3600.0,
    pki: Path | None = None,
    server: bool = False,
) -> None:
    """A certificate of the bench's CA that `pki dev` would not make; times are from now. Its files lie in the bench."""
    root = pki or bench.pki
    issuer = x509.load_pem_x509_certificate((root / "ca.crt").read_bytes())
    signer = load_pem_private_key((root / "ca.key").read_bytes(), None)
    key, now_s = ec.generate_private_key(ec.SECP256R1()), RealClock().wall_s()
    builder = base(
        subject=stem,
        public_key=key.public_key(),
        issuer=issuer.subject,
        begins=datetime.fromtimestamp(int(now_s + begins_s), UTC),
        ends=datetime.fromtimestamp(int(now_s + ends_s), UTC),
        authority=x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),  # type: ignore[arg-type]
    )
    uris: list[x509.GeneralName] = [x509.UniformResourceIdentifier(name) for name in names] or [x509.DNSName("nobody")]
    if server:
        uris: list[x509.GeneralName] = [x509.IPAddress(ip_address("127.0.0.1"))]
    signed = leaf(builder, uris, server=server).sign(signer, hashes.SHA256())  # type: ignore[arg-type]
    (bench.path / "made").mkdir(exist_ok=True)
    (bench.path / "made" / f"{stem}.crt").write_bytes(signed.public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    kept = bench.path / "made" / f"{stem}.key"
    kept.touch(mode=0o600)  # a key that others can read is refused
    kept.write_bytes(private)


def reissue(pki: Path, fresh: Path, *, hosts: Sequence[str]) -> None:
    """New keys and certificates of the same CA, for the controller and for hosts."""
    bench = Bench(path=fresh, pki=pki, foreign=pki, door=FakeAgentDoor(), desk_door=FakeDeskDoor())
    (fresh / "agents").mkdir(parents=True)
    for stem, names in [("controller", []), *((f"agents/{host}", [f"fleetd://agent/{host}"]) for host in hosts)]:
        certify(bench, Path(stem).name, names, server=stem == "controller")
        for suffix in (".crt", ".key"):
            (fresh / "made" / f"{Path(stem).name}{suffix}").replace(fresh / f"{stem}{suffix}")


def nameless(bench: Bench, stem: str) -> None:
    """A certificate that is good and names nobody of ours."""
    certify(bench, stem, [])


async def eventually(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something holds that nobody announces."""
    while not condition():  # noqa: ASYNC110 - what is looked at has no event
        await asyncio.sleep(0.001)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    clock = RealClock()
    root = tmp_path_factory.mktemp("pki")
    for name in ("ours", "foreign"):
        wanted = DevPki(hosts=("h01", "h02"), operators=("ann",), viewers=("eve",))
        make_dev_pki(root / name, wanted, now_s=clock.wall_s())
    return root / "ours", root / "foreign"


@pytest.fixture
def play(tmp_path: Path, certificates: tuple[Path, Path]) -> Callable[..., None]:
    """Run one scenario: a coroutine function that takes the bench."""

    def run(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def timed() -> None:
            ours, foreign = certificates
            bench = Bench(path=tmp_path, pki=ours, foreign=foreign, door=FakeAgentDoor(), desk_door=FakeDeskDoor())
            stray: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _loop, context: stray.append(context))
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await scenario(bench)
            finally:
                for spool in bench.spools:
                    spool.close()
            # gRPC wakes the loops of earlier scenarios too when it hears of an event late; they are closed by then.
            assert [context for context in stray if "PollerCompletionQueue" not in context["message"]] == []

        asyncio.run(timed())

    return run


@pytest.fixture
def make() -> SimpleNamespace:
    """Builders of model values, and `eventually`."""
    return SimpleNamespace(
        fault=fault,
        sample=sample,
        order=order,
        hello=hello,
        host=host,
        eventually=eventually,
        nameless=nameless,
        certify=certify,
        reissue=reissue,
    )
