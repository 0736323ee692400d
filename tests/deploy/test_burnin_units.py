"""The units of burn-in: what systemd says of them, and that they fit the command."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from burnin.cli import run_command
from burnin.levels import LEVELS
from fleetd.agent.status_client import SOCKET

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
LEVEL, IDLE, TIMER = (FOLDER / f"fleetd-burnin{name}" for name in ("@.service", "-idle.service", "-idle.timer"))
LEFT_OUT = ("PrivateDevices", "DevicePolicy", "PrivateNetwork", "MemoryDenyWriteExecute", "ProtectProc", "RemoveIPC")

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


def settings(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@needs_systemd
def test_systemd_finds_nothing_to_complain_about(tmp_path: Path) -> None:
    # What they start is not installed here; everything else is the units as they are shipped.
    names = {LEVEL.name: "fleetd-burnin@smoke.service", IDLE.name: IDLE.name, TIMER.name: TIMER.name}
    for unit in (LEVEL, IDLE, TIMER):
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/fleetd/bin/fleetd", sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in names.values())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "fleetd-burnin" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


@pytest.mark.parametrize("unit", [LEVEL, IDLE], ids=lambda unit: unit.name)
def test_they_start_what_there_is_and_write_where_they_may(unit: Path) -> None:
    found = settings(unit)
    (line,) = found["ExecStart"]
    words = shlex.split(line)
    assert words[1:3] == ["burnin", "run"]
    known = {option for parameter in run_command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    paths = [Path(word) for word in words[1:] if word.startswith("/")]
    assert paths
    assert {path.parent for path in paths} == {Path("/var/lib") / found["StateDirectory"][0]}
    assert len(set(paths)) == len(paths)
    assert f"HOME=/var/cache/{found['CacheDirectory'][0]}" in found["Environment"][0]


def test_a_level_ends_itself_before_systemd_does() -> None:
    longest_s = max(level.hard_seconds for level in LEVELS.values())
    assert settings(LEVEL)["TimeoutStartSec"] == ["30h"]
    assert longest_s < 30 * 3600
    assert settings(IDLE)["TimeoutStartSec"] == ["5min"]
    assert LEVELS["idle"].hard_seconds < 300


@pytest.mark.parametrize("unit", [LEVEL, IDLE], ids=lambda unit: unit.name)
def test_nothing_is_killed_inside_a_driver_call(unit: Path) -> None:
    found = settings(unit)
    assert found["KillMode"] == ["process"]
    assert float(found["TimeoutStopSec"][0]) > 2.0, "longer than burn-in takes"


def test_only_the_idle_slice_may_end_without_a_verdict_and_only_without_an_agent() -> None:
    assert settings(IDLE)["SuccessExitStatus"] == ["3"]
    assert "SuccessExitStatus" not in settings(LEVEL)
    assert settings(IDLE)["ConditionPathExists"] == [f"!{SOCKET}"]
    assert "--level idle" in settings(IDLE)["ExecStart"][0]
    timer = settings(TIMER)
    assert "Unit" not in timer, "it starts the service of its own name"
    assert timer["RandomizedDelaySec"] == ["5min"], "hosts of a rack must not begin together"


def test_every_protection_that_is_left_out_has_its_reason() -> None:
    comments = "\n".join(line for line in LEVEL.read_text().splitlines() if line.startswith("#"))
    for name in LEFT_OUT:
        assert re.search(rf"\b{name}\b[^\n]*: left out[,.]", comments), name
        assert name not in settings(LEVEL), f"{name} is set: take the reason away"


def test_the_idle_slice_is_as_confined_as_a_level() -> None:
    begins = "CapabilityBoundingSet="

    def hardening(unit: Path) -> list[str]:
        lines = [line for line in unit.read_text().splitlines() if line and not line.startswith("#")]
        return lines[lines.index(begins) :]

    assert hardening(IDLE) == hardening(LEVEL)
