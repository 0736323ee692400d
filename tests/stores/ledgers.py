"""Ledgers with a history, made by the judgement itself."""

from collections.abc import Iterable, Sequence

from fleetd.config import load_policy
from fleetd.config.shipped import policy_path
from fleetd.core.replay import Replay, Taken
from fleetd.model.event import AgentConnected, AnyEvent, FindingReceived, FleetEvent
from fleetd.model.finding import BurninEnded, Culprit, FaultClass, Verdict
from fleetd.model.host import Gpu, Hello
from fleetd.model.ids import BootId, FindingId, GpuId, HostName
from fleetd.model.journal import JournalEntry

DAY = 86400.0


def gpu_of(host: str, index: int = 0) -> Gpu:
    return Gpu(gpu=GpuId(f"GPU-{host}-{index}"), index=index, vendor="sim", sku="S1", pci_address=f"0:{index}")


def hello(host: str, boot: str = "b1") -> AgentConnected:
    name = HostName(host)
    said = Hello(host=name, boot_id=BootId(boot), agent_version="0", capabilities=(), inventory=(gpu_of(host),))
    return AgentConnected(host=name, hello=said)


def burnin(host: str, finding: str, at_s: float, *, order: str | None = None, bad: bool = True) -> FindingReceived:
    name = HostName(host)
    verdict, kind = (Verdict.FAIL, FaultClass.CHIP_PERSISTENT) if bad else (Verdict.PASS, FaultClass.NONE)
    culprit = Culprit(gpu=gpu_of(host).gpu, index=0, fault_class=kind, why="outvoted")
    found = BurninEnded(
        id=FindingId(finding),
        host=name,
        boot_id=BootId("b1"),
        at_s=at_s,
        why="the run says so",
        order_id=order,  # type: ignore[arg-type]
        level="smoke",
        verdict=verdict,
        fault_class=kind,
        seed=1,
        vote_key="",
        culprits=(culprit,) if bad else (),
    )
    return FindingReceived(host=name, finding=found)


class Ledgerer:
    """Judges events and keeps the entries that a controller would write."""

    def __init__(self) -> None:
        self.replay = Replay(load_policy(policy_path("default")))
        self.entries: list[JournalEntry] = []

    def at(self, at_s: float, event: AnyEvent) -> Sequence[JournalEntry]:
        """Judge one event and all that follows from it; returns the new entries."""
        new = [_entry(at_s, taken) for taken in self.replay.play(at_s, event)]
        self.entries += new
        return new

    def join(self, at_s: float, hosts: Iterable[str]) -> None:
        """Hosts appear and pass their first burn-in a minute later."""
        for host in hosts:
            ordered = self.at(at_s, hello(host))[0].orders[0]
            self.at(at_s + 60.0, burnin(host, f"{host}/pass", at_s + 59.0, order=ordered.id, bad=False))


def _entry(at_s: float, taken: Taken) -> JournalEntry:
    step = taken.step
    return JournalEntry(
        at_s=at_s,
        event=taken.event,
        host=None if isinstance(taken.event, FleetEvent) else step.state,
        orders=step.orders,
        withheld=step.withheld,
        refused=step.refused,
        fleet=step.fleet,
        why=step.why,
        progress=None,
    )
