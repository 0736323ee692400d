"""The units of the power guard: they fit the guard."""

from pathlib import Path

import pytest

from fleetd.agent.governor_config import SOCKET
from fleetd.cli.power_guard import STATE
from fleetd.powerguard.__main__ import main

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
GUARD, BOOT = FOLDER / "fleetd-powerguard.service", FOLDER / "fleetd-power-safe.service"
LATE_S = 2.0
"""A9: a guard that was killed has been followed by another within it."""


def settings(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize(
    ("unit", "name"), [(GUARD, "ExecStart"), (GUARD, "ExecStopPost"), (BOOT, "ExecStart")], ids=str
)
def test_what_they_start_is_a_command_of_the_guard(unit: Path, name: str) -> None:
    words = settings(unit)[name][0].split()
    assert words[1:4] == ["-P", "-m", "fleetd.powerguard"]
    with pytest.raises(SystemExit) as usage:
        main([*words[4:], "--help"])
    assert usage.value.code == 0
    assert words[words.index("--state") + 1] == str(STATE)


def test_the_paths_are_those_that_agent_and_command_line_take() -> None:
    found = settings(GUARD)
    assert str(SOCKET) in found["ExecStart"][0]
    assert SOCKET.parent == Path("/run") / found["RuntimeDirectory"][0]
    assert STATE.parent == Path("/var/lib") / found["StateDirectory"][0]


def test_its_death_is_short() -> None:
    found = settings(GUARD)
    assert found["Restart"] == ["always"]
    assert found["RestartSec"] == ["100ms"]
    assert float(found["WatchdogSec"][0]) <= LATE_S
    assert "HUP" in found["ExecReload"][0]
    assert found["CPUSchedulingPolicy"] == ["fifo"]
    assert "RestrictRealtime" not in found
