"""What holds for every unit: systemd accepts it, it is confined, and what stays open has its reason in a comment."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
EXPOSURE_MAX = {
    "fleetd-agent.service": 2.5,
    "fleetd-burnin-idle.service": 1.9,
    "fleetd-burnin@.service": 1.9,
    "fleetd-controller.service": 1.1,
    "fleetd-power-safe.service": 2.2,
    "fleetd-powerguard.service": 2.4,
}
"""Of 10, as `systemd-analyze security` of systemd 252 counts; other versions count a little differently."""
SLACK = 0.3
REASONS_OF = {
    "fleetd-burnin-idle.service": "fleetd-burnin@.service",
    "fleetd-power-safe.service": "fleetd-powerguard.service",
}
"""Units that name another one for their reasons."""
ANYWAY = frozenset({"DeviceAllow=", "UMask="})
"""Told twice: DeviceAllow is what PrivateDevices and DevicePolicy leave, UMask is checked below."""
UNITS = sorted(FOLDER.glob("*.service"))

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


def comments(unit: Path) -> str:
    paths = [unit, *([FOLDER / REASONS_OF[unit.name]] if unit.name in REASONS_OF else [])]
    return "\n".join(line for path in paths for line in path.read_text().splitlines() if line.startswith("#"))


def test_every_unit_is_looked_at() -> None:
    assert {unit.name for unit in UNITS} == set(EXPOSURE_MAX)
    for name, other in REASONS_OF.items():
        assert f"as in {other}, which has the reasons" in (FOLDER / name).read_text()


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_nothing_to_complain_about(unit: Path, tmp_path: Path) -> None:
    # What it starts is not installed here; everything else is the unit as it is shipped.
    name = unit.name.replace("@", "@smoke")
    text = re.sub(r"/opt/fleetd/bin/\w+", sys.executable, unit.read_text())
    (tmp_path / unit.name).write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "fleetd" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def security(unit: Path, *more: str) -> str:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", *more, str(unit)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_its_exposure_is_the_lowest_that_works(unit: Path) -> None:
    level = re.search(r"exposure level for \S+: ([0-9.]+)", security(unit))
    assert level is not None
    assert float(level[1]) <= EXPOSURE_MAX[unit.name] + SLACK
    assert float(level[1]) <= 3.0


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_what_stays_open_has_its_reason(unit: Path) -> None:
    said = comments(unit)
    for row in json.loads(security(unit, "--json=short")):
        if row["set"] or not float(row["exposure"] or 0) or row["name"] in ANYWAY:
            continue
        # `SystemCallFilter=~@resources` asks for a word on @resources, `ProtectProc=` for one on ProtectProc.
        name = row["name"].split("=~")[-1] if "=~" in row["name"] else row["name"]
        words = [word for word in re.findall(r"@?[A-Za-z_]{3,}", name) if word not in {"CAP_", "AF_"}]
        assert any(re.search(rf"{word}", said) for word in words), f"{row['name']}: {row['description']}"


@pytest.mark.parametrize("unit", [u for u in UNITS if "controller" not in u.name], ids=lambda unit: unit.name)
def test_nothing_closes_the_devices_that_gpus_and_kernel_log_are(unit: Path) -> None:
    """A list of allowed devices refuses all others; before systemd 253 (its issue 18142) ProtectClock brought one."""
    names = {line.partition("=")[0] for line in unit.read_text().splitlines() if line and line[0] not in "#["}
    assert not names & {"ProtectClock", "PrivateDevices", "DeviceAllow", "DevicePolicy"}
    bound = re.findall(r"^CapabilityBoundingSet=(.*)$", unit.read_text(), re.MULTILINE)
    refused = " ".join(re.findall(r"^SystemCallFilter=~(.*)$", unit.read_text(), re.MULTILINE))
    assert len(bound) == 1
    assert "CAP_SYS_TIME" not in bound[0], "the clock is not to be set without that, either"
    assert "@clock" in refused or "@privileged" in refused


def test_a_burnin_in_the_agent_has_the_room_that_one_of_its_own_has() -> None:
    agent, burnin = ((FOLDER / f"fleetd-{name}.service").read_text() for name in ("agent", "burnin@"))
    assert "LimitMEMLOCK=infinity" in agent
    assert "LimitMEMLOCK=infinity" in burnin
    assert "\nRemoveIPC=" not in agent + burnin, "one would take the other's shared memory away: they are one user"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_nobody_else_may_write_what_it_makes(unit: Path) -> None:
    (mask,) = re.findall(r"^UMask=(\d+)$", unit.read_text(), re.MULTILINE)
    assert int(mask, 8) & 0o022 == 0o022 or "UMask=0007" in comments(unit)


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


@as_root
@pytest.mark.skipif(
    not (shutil.which("systemd-sysusers") and shutil.which("systemd-tmpfiles")), reason="needs sysusers and tmpfiles"
)
@pytest.mark.parametrize(("role", "files"), [("agent", "fleetd"), ("controller", "fleetd-controller")])
def test_users_are_made_and_keys_become_theirs(role: str, files: str, tmp_path: Path) -> None:
    key = tmp_path / "etc" / "fleetd" / f"{role}.key"
    key.parent.mkdir(parents=True)
    key.write_text("secret")
    key.chmod(0o666)
    for program, kind in (("sysusers", "sysusers"), ("tmpfiles", "tmpfiles")):
        command = [f"systemd-{program}", f"--root={tmp_path}", *(["--create"] if kind == "tmpfiles" else [])]
        subprocess.run([*command, str(FOLDER / f"{files}.{kind}.conf")], check=True, capture_output=True)
    users = {line.split(":")[0]: line.split(":") for line in (tmp_path / "etc/passwd").read_text().splitlines()}
    groups = {line.split(":")[0]: line.split(":") for line in (tmp_path / "etc/group").read_text().splitlines()}
    assert files in users
    found = key.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o640, 0, int(groups[files][2]))
    unit = (FOLDER / f"fleetd-{role}.service").read_text()
    assert f"User={files}\nGroup={files}\n" in unit
