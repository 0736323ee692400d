"""The status socket and those who ask it: `fleetd check`, `fleetd agent status`, a job."""

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleetd.agent import status_socket
from fleetd.agent.status_client import ENVIRON, SOCKET, NoAnswer, ask, default_socket
from fleetd.agent.status_document import document
from fleetd.agent.status_socket import CONNECTIONS_MAX, SOCKET_BYTES_MAX, StatusConfig, StatusSocket
from fleetd.cli import check as check_module
from fleetd.cli.agent import command as agent_command
from fleetd.cli.check import command as check_command
from fleetd.core.gate import Standing
from fleetd.core.policy import Action
from fleetd.model.finding import Severity
from fleetd.model.ids import GpuId
from fleetd.model.status import AgentStatus
from fleetd.model.telemetry import GpuSample
from tests.agent.fakes_agent import BOOT, HOST, gpu

XID = Standing(
    code="nvidia.xid.79",
    gpu=gpu(1).gpu,
    severity=Severity.FATAL,
    action=Action.REBOOT,
    clear="on_test(smoke)",
    why="XID79 on 0000:01:00",
    at_s=1e9,
    last_s=5.0,
)


def status(
    *faults: Standing,
    age_s: float | None = 0.5,
    silent: tuple[GpuId, ...] = (),
    released_s: float | None = None,
    answering: int = 2,
    unheard: tuple[GpuId, ...] = (),
) -> dict[str, Any]:
    return document(
        host=HOST,
        boot_id=BOOT,
        version="0.1.0",
        status=AgentStatus(
            inventory=(gpu(0), gpu(1)),
            samples=tuple(GpuSample(gpu=GpuId(f"GPU-{index}"), at_s=0.0) for index in range(answering)),
            samples_age_s=age_s,
            silent_gpus=silent,
            overruns_total=0,
            uplink_connected=True,
            spool_pending=0,
            spool_dropped_total=0,
            findings_total=1,
            kernel_log_age_s=None,
            kernel_log_lost_total=None,
            errors_total={"store": 0},
            burnin_runs_total={},
        ),
        faults={(one.code, one.gpu): one for one in faults},
        driver_silent="",
        stale_s=30.0,
        unheard=unheard,
        released_s=released_s,
    )


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], Path]]:
    """Serves a document from a thread with an event loop of its own, as the agent does."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    servers: list[StatusSocket] = []

    def begin(body: dict[str, Any]) -> Path:
        path = tmp_path / "s"
        server = StatusSocket(path, lambda: body)
        assert asyncio.run_coroutine_threadsafe(server.start(), loop).result(60)
        servers.append(server)
        return path

    yield begin
    for server in servers:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


def check(path: Path, *options: str, patience_s: float = 60.0) -> Result:
    """Run `fleetd check`. Its own patience is a tenth of a second, and a test may wait that long for a processor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_module, "_TIMEOUT_S", patience_s)
        return CliRunner().invoke(check_command, ["--socket", str(path), *options])


def test_check_says_ready(serve: Callable[[dict[str, Any]], Path]) -> None:
    result = check(serve(status()))
    assert result.exit_code == 0
    assert result.output == "ready: 2 GPUs answer, and no fault stands that forbids new work\n"


def test_check_cannot_tell_of_a_gpu_that_has_not_answered_since_the_start(
    serve: Callable[[dict[str, Any]], Path],
) -> None:
    result = check(serve(status(answering=1, unheard=(GpuId("GPU-1"),))))
    assert result.exit_code == 3
    assert "fleetd: cannot tell: 1 of 2 GPUs have not answered yet: GPU-1" in result.output


def test_s21_check_names_the_fault_and_exits_1(serve: Callable[[dict[str, Any]], Path]) -> None:
    result = check(serve(status(XID)), "--json", "-")
    assert result.exit_code == 1
    assert "fleetd: bad: nvidia.xid.79 on GPU-1: XID79 on 0000:01:00" in result.output
    found = json.loads(result.stdout)
    assert found["readiness"] == "bad"
    (event,) = found["gpus"][1]["events"]
    assert event["code"] == "nvidia.xid.79"
    assert event["at_seconds"] == 1e9
    assert found["gpus"][0]["events"] == []


@pytest.mark.parametrize("age_s", [None, 31.0])
def test_check_cannot_tell_without_a_fresh_reading(
    serve: Callable[[dict[str, Any]], Path], age_s: float | None
) -> None:
    assert check(serve(status(age_s=age_s))).exit_code == 3


def test_check_cannot_tell_without_an_agent(tmp_path: Path) -> None:
    result = check(tmp_path / "none", "--json", str(tmp_path / "out"))
    assert result.exit_code == 3
    assert result.output.count("\n") == 1
    assert json.loads((tmp_path / "out").read_text("utf-8"))["readiness"] == "cannot_tell"


def test_check_cannot_tell_when_the_agent_hangs(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        result = check(tmp_path / "s", patience_s=check_module._TIMEOUT_S)
    assert result.exit_code == 3
    assert "does not answer within 0.1 s" in result.output


def test_check_refuses_usage_with_2(tmp_path: Path) -> None:
    assert check(tmp_path, "--nonsense").exit_code == 2


@pytest.mark.parametrize("said", [b"hello\n", b'{"schema": "other/9"}\n', b"", b"{" * 100, b"[" * 50_000 + b"\n"])
def test_what_is_no_agent_is_not_believed(tmp_path: Path, said: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "s"))
        other.listen()

        def answer() -> None:
            channel, _ = other.accept()
            channel.sendall(said)
            channel.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(NoAnswer):
            ask(tmp_path / "s", timeout_s=60.0)
        thread.join(60)


def test_s43_anybody_on_the_host_may_read_and_nobody_can_write(serve: Callable[[dict[str, Any]], Path]) -> None:
    path = serve(status(XID))
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    with socket.socket(socket.AF_UNIX) as job:
        job.connect(str(path))
        with suppress(OSError):  # what is written is never read, and the connection may be gone by then
            job.sendall(b'{"do": "reset"}\n' * 10)
    assert ask(path, timeout_s=60.0)["gpus"][1]["events"][0]["why"] == "XID79 on 0000:01:00"


def test_callers_beyond_the_bound_are_turned_away_and_the_next_is_served(
    serve: Callable[[dict[str, Any]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_socket, "_WRITE_S", 60.0)  # else a slow test's first callers lose their places
    big = {**status(), "padding": "x" * (1 << 20)}  # more than a socket's buffer: each caller keeps its place
    path = serve(big)
    callers = [socket.socket(socket.AF_UNIX) for _ in range(CONNECTIONS_MAX + 4)]
    try:
        for caller in callers:
            caller.settimeout(60)
            caller.connect(str(path))
        held = 0
        for caller in callers:
            try:
                held += bool(caller.recv(1))
            except ConnectionError:
                continue
        assert held == CONNECTIONS_MAX
    finally:
        for caller in callers:
            caller.close()
    assert ask(path, timeout_s=60.0)["readiness"] == "ready"


def test_a_socket_left_by_a_killed_agent_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    async def case() -> None:
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(tmp_path / "s"))
        left.close()
        server = StatusSocket(tmp_path / "s", dict)
        assert await server.start()
        await server.close()
        assert not (tmp_path / "s").exists()
        (tmp_path / "f").write_text("mine", encoding="utf-8")
        assert not await StatusSocket(tmp_path / "f", dict).start()
        assert (tmp_path / "f").read_text("utf-8") == "mine"
        assert not await StatusSocket(tmp_path / "no" / "such", dict).start()
        assert not await StatusSocket(tmp_path / ("x" * 200), dict).start()

    asyncio.run(case())


def test_agent_status_shows_gpus_and_their_events(serve: Callable[[dict[str, Any]], Path]) -> None:
    path = serve(status(XID, answering=1))
    result = CliRunner().invoke(agent_command, ["status", "--socket", str(path)])
    assert result.exit_code == 0
    assert "GPU 1: fatal: nvidia.xid.79: XID79 on 0000:01:00 (clears: on_test(smoke))" in result.output
    assert "GPU 1  GPU-1  H200  silent" in result.output
    assert CliRunner().invoke(agent_command, ["status", "--socket", str(path) + "x"]).exit_code == 3
    assert CliRunner().invoke(agent_command, []).exit_code == 2


@pytest.mark.parametrize(
    ("path", "complaint"),
    [("agent.sock", "no absolute path"), ("/" + "x" * SOCKET_BYTES_MAX, "a path of 100 bytes; the kernel allows 99")],
)
def test_a_path_that_cannot_be_a_socket_is_refused(path: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^socket: .*{complaint}"):
        StatusConfig(socket=Path(path))


def test_check_loads_nothing_heavy(serve: Callable[[dict[str, Any]], Path]) -> None:
    """Its 200 ms are mostly Python's start; what would break them is an import of the daemon's libraries."""
    code = (
        "import sys\nfrom fleetd.cli import check, main\ncheck._TIMEOUT_S = 60.0\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(end.code)\n"
        "heavy = ('grpc', 'msgspec', 'yaml', 'structlog', 'asyncio', 'sqlalchemy')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    path = serve(status())
    done = subprocess.run(
        [sys.executable, "-c", code, "check", "--socket", str(path)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[1:] == ["0", "[]"], done.stdout + done.stderr


def test_the_agent_and_the_commands_have_one_rule_for_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_socket({}) == SOCKET
    assert default_socket({ENVIRON: ""}) == SOCKET
    assert default_socket({ENVIRON: "/x/a.sock"}) == Path("/x/a.sock")
    monkeypatch.setenv(ENVIRON, "/no/such/place/a.sock")
    said = CliRunner().invoke(check_command, [])
    assert (said.exit_code, "no agent at /no/such/place/a.sock" in said.output) == (3, True)


def test_a_second_agent_does_not_take_the_socket_of_a_living_one_away(tmp_path: Path) -> None:
    async def case() -> None:
        path = tmp_path / "a.sock"
        first, second = (StatusSocket(path, lambda name=name: {"name": name}) for name in ("first", "second"))
        assert await first.start()
        try:
            assert not await second.start()
            await second.close()
            reader, writer = await asyncio.open_unix_connection(path)
            assert json.loads(await reader.readline()) == {"name": "first"}
            writer.close()
        finally:
            await first.close()
        assert await second.start()
        await second.close()

    asyncio.run(case())


@pytest.mark.parametrize("age_s", [0.5, 99.0, None])
def test_while_the_gpus_are_released_that_is_the_reason_why_nobody_can_tell(age_s: float | None) -> None:
    found = status(age_s=age_s, released_s=60.0)
    assert found["readiness"] == "cannot_tell"
    assert "released for another 60 s" in found["why"]
    assert status(XID, age_s=age_s, released_s=60.0)["readiness"] == "bad", "a fault that stands is worse"
