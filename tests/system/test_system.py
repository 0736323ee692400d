"""The real world's edges: systemd's socket, signals, the boot id, the log."""

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fleetd.system import (
    RealClock,
    Systemd,
    boot_id,
    entropy,
    host_name,
    reload_on_signal,
    run_blocking,
    stop_on_signals,
)


def test_clocks_and_sleep() -> None:
    async def case() -> None:
        clock = RealClock()
        before_s = clock.elapsed_s()
        await clock.sleep_s(0.01)
        assert clock.elapsed_s() - before_s >= 0.01
        assert clock.wall_s() > 1.7e9

    asyncio.run(case())


def test_what_is_there_is_left_alone_by_the_collector_and_what_comes_is_not() -> None:
    script = (
        "import gc, weakref; from fleetd.system import GC_THRESHOLDS, few_full_collections\n"
        "few_full_collections()\n"
        "assert gc.get_threshold() == GC_THRESHOLDS and gc.get_freeze_count() > 1000 and gc.isenabled()\n"
        "class Ring: pass\n"
        "ring = Ring(); ring.me = ring; gone = weakref.ref(ring); del ring\n"
        "kept = [[] for _ in range(2 * GC_THRESHOLDS[0])]\n"
        "assert gone() is None"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_entropy_differs_each_time() -> None:
    assert entropy().getrandbits(64) != entropy().getrandbits(64)


def test_threads_share_few_arenas_of_memory() -> None:
    script = (
        "import sys, threading, time\n"
        "from fleetd.system import few_arenas\n"
        "assert sys.argv[1] == 'all' or few_arenas()\n"
        "barrier = threading.Barrier(17)\n"
        "def work():\n"
        "    kept = [bytes(1000) for _ in range(200)]\n"
        "    barrier.wait(); barrier.wait()\n"
        "[threading.Thread(target=work).start() for _ in range(16)]\n"
        "barrier.wait()\n"
        "print(sum('rw-p' in line and line.split()[0].split('-')[0].endswith('000000') and len(line.split()) == 5"
        " for line in open('/proc/self/maps')))\n"
        "barrier.wait()\n"
    )
    found = {
        which: int(
            subprocess.run([sys.executable, "-c", script, which], capture_output=True, text=True, check=True).stdout
        )
        for which in ("few", "all")
    }
    assert found["few"] < found["all"]


def test_blocking_work_leaves_the_loop() -> None:
    async def case() -> None:
        assert await run_blocking(threading.get_ident) != threading.get_ident()

    asyncio.run(case())


def test_boot_id_is_the_kernels_or_one_of_this_process(tmp_path: Path) -> None:
    file = tmp_path / "boot_id"
    file.write_text("1f6c\n")
    assert boot_id(file) == "1f6c"
    none = tmp_path / "none"
    assert boot_id(none).startswith("process-")
    assert boot_id(none) != boot_id(none), "facts of different boots must never mix"


def test_host_name() -> None:
    assert host_name() == socket.gethostname()


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told(tmp_path: Path, abstract: bool) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        address = f"@fleetd-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
        receiver.bind(address.replace("@", "\0") if abstract else address)
        receiver.settimeout(60)
        systemd = Systemd({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30000000"})
        systemd.notify("READY=1")
        assert receiver.recv(100) == b"READY=1"
        assert systemd.watchdog_s == 30.0


def test_without_systemd_nothing_is_told() -> None:
    systemd = Systemd({"WATCHDOG_USEC": "30000000"})
    systemd.notify("READY=1")
    assert systemd.watchdog_s is None


def test_a_watchdog_of_another_process_is_not_ours(tmp_path: Path) -> None:
    environ = {"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}
    assert Systemd(environ).watchdog_s is None


def test_a_service_manager_that_is_gone_does_no_harm(tmp_path: Path) -> None:
    Systemd({"NOTIFY_SOCKET": str(tmp_path / "gone")}).notify("READY=1")


def test_sigterm_sets_the_stop_event() -> None:
    async def case() -> None:
        stop = stop_on_signals()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), 60)

    asyncio.run(case())


def test_sighup_asks_for_a_reload_and_ends_nothing() -> None:
    async def case() -> None:
        asked = reload_on_signal()
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(asked.wait(), 60)

    asyncio.run(case())


def test_the_log_is_one_json_object_a_line() -> None:
    code = (
        "import structlog; from fleetd.system import setup_logging; setup_logging(); log = structlog.get_logger();"
        "log.debug('no'); log.warning('silent', gpu='GPU-1')\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: log.exception('bug')"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    first, second = map(json.loads, io.StringIO(said))
    assert (first["event"], first["level"], first["gpu"]) == ("silent", "warning", "GPU-1")
    assert first["at"].endswith("Z")
    assert "ZeroDivisionError" in second["exception"]
