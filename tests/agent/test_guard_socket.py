"""The guard's socket: who speaks is asked of the kernel, what is taken becomes a finding without an accusation."""

import asyncio
import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from burnin.guard import tell
from burnin.guard.tell import line_of, tell_agent
from burnin.spec import GUARD_SCHEMA, GuardFinding
from fleetd.agent.guard_socket import GuardSocket, guard_socket
from fleetd.agent.peer_gpus import addresses, open_devices
from fleetd.config import load_policy
from fleetd.core.policy import Accusation, Burnin, FindingKind, first_match
from fleetd.model.finding import DeviceFault, FaultClass, Severity
from fleetd.model.host import Gpu
from fleetd.model.ids import BootId, GpuId, HostName
from fleetd.ports import StoreError

PCI = "00000000:3B:00.0"
GPU = Gpu(gpu=GpuId("GPU-a"), index=5, vendor="nvidia", sku="H200", pci_address=PCI)
FINDING = GuardFinding(
    code="sdc.chip-transient", check="bad", fault_class="chip-transient", gpu="GPU-a", rank=2, step=500, why="R1 = R2",
    asks=("gemm.exact",),
)  # fmt: skip


class Clock:
    now_s = 100.0

    def elapsed_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return 1e9 + self.now_s

    async def sleep_s(self, seconds: float) -> None:
        raise AssertionError(seconds)


class Spool:
    def __init__(self) -> None:
        self.findings: list[Any] = []
        self.refuse = False

    def append(self, finding: Any) -> int:
        if self.refuse:
            raise StoreError("disk full")
        self.findings.append(finding)
        return len(self.findings)


class Rig:
    def __init__(self, path: Path, held: frozenset[str] = frozenset({"0000:3b:00.0"})) -> None:
        self.spool, self.pids, self.path = Spool(), list[int](), path
        self.wait: Callable[[], Awaitable[None]] | None = None

        async def look(pid: int) -> frozenset[str]:
            self.pids.append(pid)
            if self.wait is not None:
                await self.wait()
            return held

        self.server = GuardSocket(
            path, host=HostName("h"), boot_id=BootId("b"), spool=self.spool, clock=Clock(),  # type: ignore[arg-type]
            inventory=lambda: (GPU,), held=look,
        )  # fmt: skip

    async def say(self, line: bytes) -> dict[str, Any]:
        reader, writer = await asyncio.open_unix_connection(self.path)
        writer.write(line)
        answer = await reader.read()
        writer.close()
        return dict(json.loads(answer)) if answer else {}


@pytest.mark.parametrize("form", ["line", "library"])
def test_a_report_becomes_a_finding_that_asks_for_a_test(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tell, "SEND_S", 60.0)  # a training step's patience is not that of a test on a busy machine
    rig = Rig(tmp_path / "agent-guard.sock")

    async def story() -> bool:
        assert await rig.server.start()
        assert stat.S_IMODE(rig.path.stat().st_mode) == 0o666
        if form == "library":
            took = await asyncio.get_running_loop().run_in_executor(None, tell_agent, FINDING, rig.path)
        else:
            took = (await rig.say(line_of(FINDING)))["ok"]
        await rig.server.close()
        return bool(took)

    assert asyncio.run(story())
    assert rig.pids == [os.getpid()]
    (fault,) = rig.spool.findings
    assert isinstance(fault, DeviceFault)
    assert (fault.gpu, fault.index, fault.code) == (GPU.gpu, 5, "sdc.chip-transient")
    assert (fault.fault_class, fault.severity) == (FaultClass.NONE, Severity.WARNING)
    assert f"pid {os.getpid()}" in fault.why
    assert not rig.path.exists()


def test_strangers_nonsense_and_a_full_disk_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        stranger = Rig(tmp_path / "s", held=frozenset())
        await stranger.server.start()
        assert "holds no GPU" in (await stranger.say(line_of(FINDING)))["why"]
        await stranger.server.close()
        rig = Rig(tmp_path / "r")
        await rig.server.start()
        assert "no report" in (await rig.say(b"[" * 4000 + b"\n"))["why"]
        assert "schema" in (await rig.say(b"{}\n"))["why"]
        assert await rig.say(b"x" * 20_000 + b"\n") == {}
        rig.spool.refuse = True
        assert "stored" in (await rig.say(line_of(FINDING)))["why"]
        rig.spool.refuse = False
        # What could not be stored does not count against the limit.
        told = [(await rig.say(line_of(FINDING)))["ok"] for _ in range(8)]
        assert told == [True] * 6 + [False] * 2
        assert rig.server.reports_total == {"taken": 6, "refused": 5}
        await rig.server.close()
        assert stranger.spool.findings == []

    asyncio.run(story())


def test_the_socket_lies_beside_the_status_socket_and_nothing_else_is_removed(tmp_path: Path) -> None:
    assert guard_socket(Path("/run/fleetd/agent.sock")) == Path("/run/fleetd/agent-guard.sock")
    path = tmp_path / "file"
    path.write_text("mine")
    assert asyncio.run(Rig(path).server.start()) is False
    assert path.read_text() == "mine"


def test_a_second_agent_leaves_the_first_ones_socket_alone(tmp_path: Path) -> None:
    first, second = Rig(tmp_path / "s"), Rig(tmp_path / "s")

    async def story() -> None:
        assert await first.server.start()
        assert await second.server.start() is False
        await second.server.close()
        assert (await first.say(line_of(FINDING)))["ok"]
        await first.server.close()

    asyncio.run(story())
    assert len(first.spool.findings) == 1


def test_open_devices_are_told_by_their_numbers() -> None:
    with Path("/dev/null").open("rb"):
        assert (1, 3) in open_devices(os.getpid())
    assert open_devices(2**22 + 1) == frozenset()


def test_a_device_that_is_opened_as_a_path_only_is_not_held() -> None:
    path = os.open("/dev/full", os.O_PATH)  # which anybody may, whatever the file's mode
    try:
        assert (1, 7) not in open_devices(os.getpid())
        with Path("/dev/full").open("rb"):
            assert (1, 7) in open_devices(os.getpid())
    finally:
        os.close(path)


def test_addresses_of_nvidia_and_of_render_nodes(tmp_path: Path) -> None:
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    for minor, address in ((0, "0000:18:00.0"), (3, "0000:3b:00.0")):
        folder = proc / "driver" / "nvidia" / "gpus" / address
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t NVIDIA H200\nDevice Minor: \t {minor}\n")
    (sys / "devices" / "0000:c1:00.0").mkdir(parents=True)
    node = sys / "class" / "drm" / "renderD129"
    node.mkdir(parents=True)
    (node / "device").symlink_to(sys / "devices" / "0000:c1:00.0")
    found = addresses({(195, 3), (195, 255), (226, 129), (226, 0), (226, 130), (1, 3)}, proc=proc, sys=sys)
    assert found == {"0000:3b:00.0", "0000:c1:00.0"}
    assert addresses({(195, 255)}, proc=proc, sys=sys) == set()


def test_without_an_agent_nothing_happens(tmp_path: Path) -> None:
    assert tell_agent(FINDING, tmp_path / "none") is False
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        deaf.listen()
        assert tell_agent(FINDING, tmp_path / "deaf") is False


def test_the_line_has_the_schema() -> None:
    assert json.loads(line_of(FINDING))["schema"] == GUARD_SCHEMA


@pytest.mark.parametrize("name", ["default", "strict"])
def test_the_policies_answer_with_a_burnin(name: str) -> None:
    policy = load_policy(Path(__file__).parents[2] / "policies" / f"{name}.yaml")
    for one in ("chip-persistent", "link", "memory", "software-nondeterminism"):
        accusation = Accusation(
            kind=FindingKind.DEVICE, fault_class=FaultClass.NONE, gpu=GPU.gpu, index=5, at_s=1.0, why="w",
            code=f"sdc.{one}", scope=None, severity=Severity.WARNING, strikes_at_s=(),
        )  # fmt: skip
        rule = first_match(policy.rules, accusation)
        assert rule is not None
        assert isinstance(rule.then, Burnin)
