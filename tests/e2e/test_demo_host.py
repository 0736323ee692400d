"""`fleetd demo --host`: an agent with the vendor's own binding on a machine that has no GPU."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fleetd.agent.status_client import NoAnswer, ask
from fleetd.cli.check import ENVIRON
from fleetd.sim.vendorlibs import amd, nvidia
from tests.e2e.test_story import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@contextmanager
def demo(folder: Path, host: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    command = [sys.executable, "-u", "-m", "fleetd", "demo", "--host", host, "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            said = ""
            while "Ctrl-C" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            yield process, said
        finally:
            process.terminate()


def fleetd(socket: str, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "fleetd", *words]
    environ = {**os.environ, ENVIRON: socket}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("host", "sku", "driver", "error"),
    [
        ("nvidia:2", "NVIDIA H200", nvidia.DRIVER, "1 TotalEccErrors.1 = 2"),
        ("amd:2", "AMD Instinct MI300X", amd.MI300X["driver_info.driver_version"], "1 total_ecc_count.uncorrectable"),
    ],
)
def test_what_it_says_is_true(tmp_path: Path, host: str, sku: str, driver: str, error: str) -> None:
    with demo(tmp_path / "d", host) as (process, said):
        [port] = re.findall(r"curl http://127.0.0.1:(\d+)/metrics", said)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            page = answer.read().decode()
        info = re.findall(r'fleetd_gpu_info{.*sku="([^"]+)".*driver="([^"]+)"} 1', page)
        assert info == [(sku, driver)] * 2
        [socket] = re.findall(rf"export {ENVIRON}=(\S+)", said)
        wait_until(lambda: fleetd(socket, "check").returncode == 0, "the host is ready")

        [trouble] = [line for line in said.splitlines() if f"echo '{error}" in line]
        subprocess.run(["/bin/sh", "-c", trouble], check=True)
        wait_until(lambda: fleetd(socket, "check").returncode == 1, "the error is found")
        assert "telemetry.ecc.uncorrected" in fleetd(socket, "agent", "status").stdout

        [trouble] = [line for line in said.splitlines() if "driver hangs" in line]
        subprocess.run(["/bin/sh", "-c", trouble], check=True)
        wait_until(lambda: silent(Path(socket)) == [1], "the hung GPU is silent, and it alone")

        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    wait_until(lambda: not re.search(str(tmp_path), running()), "the agent and its helpers have ended")


def test_a_demo_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path / "d", "nvidia:1") as (process, _):
        assert re.search(str(tmp_path), running())
        process.kill()
        process.wait()
        wait_until(lambda: not re.search(str(tmp_path), running()), "the agent and its helper have ended")


def silent(socket: Path) -> list[int]:
    try:
        return [gpu["index"] for gpu in ask(socket, timeout_s=30.0)["gpus"] if not gpu["answers"]]
    except NoAnswer:
        return []


def running() -> str:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # of somebody else, or ended meanwhile
            found.append(path.read_bytes().decode(errors="replace"))
    return "\n".join(text for text in found if "FAKE_" in text)
