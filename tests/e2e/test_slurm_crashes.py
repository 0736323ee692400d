"""The controller dies at every place between a decision and its effect in a real Slurm: the effect is there once."""

import asyncio
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fleetd.actuators.command import Answer, Commands
from fleetd.actuators.config import SlurmConfig
from fleetd.actuators.slurm import Slurm
from fleetd.config import load_policy
from fleetd.config.shipped import policy_path
from fleetd.controller.controller import Controller
from fleetd.controller.dispatcher import DispatcherConfig
from fleetd.model.finding import BurninEnded, Culprit, FaultClass, Verdict
from fleetd.model.host import Gpu, Hello, Lifecycle
from fleetd.model.ids import BootId, FindingId, GpuId, HostName, OrderId, SpoolId
from fleetd.model.journal import JournalEntry
from fleetd.model.order import FleetOrder, Notify
from fleetd.ports import NotJudge, Peer, Receipt, Refused, Standing
from fleetd.sim.life import Fuse, Killed, Life
from fleetd.stores.sql import SqlStore
from fleetd.system import RealClock, run_blocking
from tests.actuators.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NODE = HostName("h01")
AGENT = Peer(name=NODE, role="agent")
OPERATOR = Peer(name="eve", role="operator")
SPOOL = SpoolId("s1")
GPUS = tuple(Gpu(gpu=GpuId(f"G{n}"), index=n, vendor="sim", sku="simulated", pci_address=None) for n in range(4))
HELLO = Hello(host=NODE, boot_id=BootId("b1"), agent_version="0.1.0", capabilities=("burnin",), inventory=GPUS)
BAD = BurninEnded(
    id=FindingId("f1"),
    host=NODE,
    boot_id=BootId("b1"),
    at_s=1.0,
    why="gpu 2 computes wrong",
    order_id=None,
    level="smoke",
    verdict=Verdict.FAIL,
    fault_class=FaultClass.CHIP_PERSISTENT,
    seed=1,
    vote_key="k",
    culprits=(Culprit(gpu=GpuId("G2"), index=2, fault_class=FaultClass.CHIP_PERSISTENT, why="alone"),),
)


class CutStore(SqlStore):
    """The real ledger on a real disk; the process can die before and after each write."""

    def __init__(self, path: Path, life: Life) -> None:
        super().__init__(path)
        self._life = life

    def commit(self, entries: Sequence[JournalEntry]) -> None:
        self._life.boundary("before commit")
        super().commit(entries)
        self._life.boundary("after commit")

    def finish_order(self, order: OrderId, result: str) -> None:
        self._life.boundary("before finish")
        super().finish_order(order, result)
        self._life.boundary("after finish")


class CutCommands(Commands):
    """The real commands; the process can die before and after each of them."""

    def __init__(self, cluster: SlurmCluster, life: Life, acts: list[str]) -> None:
        super().__init__(timeout_s=60, environment=cluster.environment)
        self._life = life
        self._acts = acts

    async def run(self, *words: str) -> Answer:
        what = " ".join(words[:3])
        self._life.boundary(f"before {what}")
        answer = await super().run(*words)
        self._acts += [word for word in words if word.startswith("State=")]
        self._life.boundary(f"after {what}")
        return answer


class QuietPages(Slurm):
    """Pages are no boundary of this story."""

    async def carry_out(self, order: FleetOrder) -> Receipt:
        if isinstance(order, Notify):
            return Receipt(order_id=order.id, done=True, why="read")
        return await super().carry_out(order)

    async def standing(self, hosts: Collection[HostName]) -> Mapping[HostName, Standing]:
        return await super().standing(hosts)


class Story:
    """One host is condemned, drained, released by an operator and opened, by as many controllers as it takes."""

    def __init__(self, cluster: SlurmCluster, ledger: Path, fuse: Fuse) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._fuse = fuse
        self.lives = 0
        self.acts: list[str] = []
        """What Slurm was told to do, by all lives together."""
        self._asked_back = False

    def play(self) -> None:
        """Restart the controller until the story is over."""
        while self.lives < 4:
            self.lives += 1
            if asyncio.run(self._live()):
                return
        raise AssertionError("one death, and four lives were not enough")

    async def _live(self) -> bool:
        """One process; False when it was killed."""
        life = Life("controller", fuse=self._fuse, on_end=lambda: None)
        store = CutStore(self._ledger, life)
        config = SlurmConfig(kind="slurm", timeout_seconds=60)
        controller = Controller(
            store=store,
            actuator=QuietPages(config, commands=CutCommands(self._cluster, life, self.acts), clock=RealClock()),
            policy=replace(load_policy(policy_path("default")), jobs=None),
            clock=RealClock(),
            run_blocking=run_blocking,
            dispatcher=DispatcherConfig(workers=1),
        )
        controller.load()
        run = asyncio.create_task(controller.run())
        tell = asyncio.create_task(self._tell(controller, store))
        try:
            await asyncio.wait((run, tell), return_when=asyncio.FIRST_COMPLETED)
            if life.cut:
                return False
            await tell
            return True
        finally:
            life.alive = False
            run.cancel()
            tell.cancel()
            for ended in await asyncio.gather(run, tell, return_exceptions=True):
                assert _dead(ended) or (life.cut and isinstance(ended, NotJudge)), ended
            store.close()

    async def _tell(self, controller: Controller, store: SqlStore) -> None:
        """What agent and operator do, from the beginning each time: they do not know where the controller died."""
        await controller.intake.hello(AGENT, HELLO, SPOOL)
        await controller.intake.finding(NODE, SPOOL, 1, BAD)
        if not self._asked_back:
            assert controller.judge.hosts[NODE].state is Lifecycle.QUARANTINED
            await until(lambda: "DRAIN" in self._cluster.state(NODE) and all_done(store, "quarantine"))
        self._asked_back = True
        try:
            await controller.desk.release(OPERATOR, NODE, "looked at", override=True)
        except Refused as error:
            if "nothing to release" not in str(error):  # else it was on disk when the controller died
                raise
        await until(lambda: "DRAIN" not in self._cluster.state(NODE) and all_done(store, "release"))


def all_done(store: SqlStore, kind: str) -> bool:
    orders = [record for record in store.orders(NODE, limit=50) if record.order.id.endswith(f"/{kind}")]
    return len(orders) == 1 and orders[0].done


def _dead(ended: object) -> bool:
    if isinstance(ended, BaseExceptionGroup):
        return all(_dead(one) for one in ended.exceptions)
    return ended is None or isinstance(ended, Killed | asyncio.CancelledError)


async def until(holds: Callable[[], bool]) -> None:
    clock = RealClock()
    deadline_s = clock.elapsed_s() + 120
    while not await asyncio.to_thread(holds):
        assert clock.elapsed_s() < deadline_s
        await clock.sleep_s(0.02)


def times_opened(cluster: SlurmCluster) -> int:
    log = (cluster.folder / "slurmctld.log").read_text()
    return len(re.findall(rf"update_node: node {NODE} state set to IDLE", log))


@pytest.fixture(name="places", scope="module")
def _places(cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    uncut = Fuse()
    Story(cluster, tmp_path_factory.mktemp("uncut") / "fleet.db", uncut).play()
    return uncut.passed


def test_the_boundaries_are_all_there(places: list[str]) -> None:
    kinds = {place.removeprefix("controller: ") for place in places}
    writes = {f"{when} {what}" for when in ("before", "after") for what in ("commit", "finish")}
    looks = {f"{when} scontrol show node{s}" for when in ("before", "after") for s in ("", "s")}
    acts = {f"{when} scontrol update NodeName={NODE}" for when in ("before", "after")}
    leaves = {f"{when} squeue --noheader --nodelist={NODE}" for when in ("before", "after")}
    assert kinds == writes | looks | acts | leaves


def test_a_death_at_any_of_them_changes_nothing_that_counts(
    cluster: SlurmCluster, places: list[str], tmp_path: Path
) -> None:
    died = 0
    for cut_at in range(len(places) + 6):  # a few more: two runs need not pass the same number of looks
        fuse = Fuse(cut_at)
        drained, opened = cluster.times_drained(NODE), times_opened(cluster)
        story = Story(cluster, tmp_path / f"{cut_at}.db", fuse)
        story.play()
        died += story.lives - 1
        where = fuse.passed[cut_at] if cut_at < len(fuse.passed) else "nowhere"
        assert story.acts == ["State=DRAIN", "State=UNDRAIN"], f"killed {where}"
        assert cluster.times_drained(NODE) == drained + 1, f"killed {where}"
        assert times_opened(cluster) == opened + 1, f"killed {where}"
        assert cluster.show(NODE, "Reason") == ""
    assert died >= len(places) - 6
