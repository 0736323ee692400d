"""Every kernel log of `inputs/`: codes, devices and action as its header says."""

import re
from pathlib import Path

import pytest

from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.observation import ScanResult, device_key
from fleetd.core.faults.scan import LogScan
from fleetd.core.policy import Action

INPUTS = Path(__file__).parent / "inputs"
CLASSES = {
    Action.NONE: "ignore",
    Action.MONITOR: "monitor",
    Action.RESTART_APP: "monitor",
    Action.RESET_GPU: "reset_gpu",
    Action.REBOOT: "reboot",
    Action.DRAIN: "drain_quarantine",
    Action.QUARANTINE: "drain_quarantine",
    Action.REPLACE: "rma",
    None: "reject",
}
ADDRESS = re.compile(r"(?:[0-9a-f]{4,8}:)[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?", re.IGNORECASE)
KERNEL = sorted(path for path in INPUTS.glob("*.txt") if "\n# kind: kernel-" in path.read_text(encoding="utf-8"))

OTHER_ALIASES = {"084-amd-umc-ue-athub-reset-failed-mi50.txt": {"RAS_UE_UMC"}}
"""RAS errors have one short code for all memory blocks; the block stands in the code: `amd.ras.umc.ue`."""


def parts(path: Path) -> tuple[dict[str, str], bytes]:
    header, _, body = path.read_bytes().partition(b"# ---\n")
    lines = (line.removeprefix("# ") for line in header.decode().splitlines())
    return dict(line.split(": ", 1) for line in lines if ": " in line), body


def scan(catalogue: Catalogue, body: bytes) -> ScanResult:
    log = LogScan(catalogue)
    log.feed(body)
    return log.finish()


def numbered(aliases: set[str]) -> set[str]:
    return {alias for alias in aliases if alias.startswith(("XID", "SXID"))}


@pytest.mark.parametrize("path", KERNEL, ids=lambda path: path.stem)
def test_codes_devices_and_action(catalogue: Catalogue, path: Path) -> None:
    header, body = parts(path)
    result = scan(catalogue, body)
    assert CLASSES[result.action] == header["expected_action"]
    wanted = {code.split()[0] for code in header["expected_codes"].split(",")} - {"none"}
    aliases = {finding.alias for finding in result.findings}
    assert numbered(aliases) == numbered(wanted)
    assert wanted - OTHER_ALIASES.get(path.name, set()) <= aliases
    devices = {device_key(finding.device) for finding in result.findings}
    assert {device_key(address) for address in ADDRESS.findall(header["expected_device"])} <= devices
    assert all(finding.why and finding.lines for finding in result.findings)


@pytest.mark.parametrize("path", KERNEL, ids=lambda path: path.stem)
def test_the_header_pasted_along_changes_nothing(catalogue: Catalogue, path: Path) -> None:
    _, body = parts(path)
    whole = scan(catalogue, path.read_bytes())
    assert [(f.alias, f.device, f.action) for f in whole.findings] == [
        (f.alias, f.device, f.action) for f in scan(catalogue, body).findings
    ]


def test_the_devices_blamed_by_a_cascade_are_only_the_faulty_one(catalogue: Catalogue) -> None:
    _, body = parts(INPUTS / "008-xid45-caused-by-previous-149.txt")
    assert {finding.role for finding in scan(catalogue, body).findings} == {"victim"}
