"""What other agents log: Kubernetes device plugins, gpud, NVSentinel, the fabric manager, AMD's exporter, gpu-burn.

They saw what the kernel log has too, and have their own opinion of it. The code is taken from them, never the verdict:
for a code that the catalogue has, the catalogue says what to do.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from fleetd.core.faults.documents.dcgm_errors import code_of_name
from fleetd.core.faults.documents.found import Found
from fleetd.core.faults.documents.nvidia_smi import Line
from fleetd.core.policy import Action
from fleetd.model.finding import Severity

MARKS = (
    "error: xid=", "device marked unhealthy", "detected nvswitch", "] [tid ", "cper record", "set to unhealthy",
    "detected on pci", ") detected on ",
)  # fmt: skip
"""What a text with something of this has one of, in lower case; looked for before anything is read."""

_UUID = r"(?P<uuid>(?:GPU|MIG)-[0-9A-Fa-f-]{8,36})"
_PCI = r"(?:PCI:)?(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f])?)"
_PLUGIN_XID = re.compile(r"Xid\w*Error: Xid=(?P<xid>\d{1,3})\b(?:.*?Device=" + _UUID + ")?")
_PLUGIN_UNHEALTHY = re.compile(r"device marked unhealthy: " + _UUID)
_GPUD = re.compile(
    r"\b(?P<kind>S?XID) ?(?P<code>\d{1,5}) ?(?:\([^)]{0,200}\))? detected on (?:" + _PCI + "|" + _UUID + ")",
    re.IGNORECASE,
)
_FM_SWITCH = re.compile(
    r"detected NVSwitch (?P<word>non-fatal|fatal) error (?P<code>\d{5}) on .*?NVSwitch pci bus id "
    r"(?P<pci>[0-9A-Fa-f:.]+)(?:.*?port (?P<port>\d+))?",
    re.IGNORECASE,
)
_FM_SAYINGS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), code)
    for pattern, code in (
        (r"detected GPU NVL non[ -]fatal error|detected NVLink non-fatal", "nvidia.fabricmanager.link_nonfatal"),
        (r"detected GPU NVL fatal error|detected NVLink fatal", "nvidia.fabricmanager.link_fatal"),
        (r"version .*(?:mismatch|does ?n[o']t match)|mismatch.* version", "nvidia.fabricmanager.version_mismatch"),
        (r"nvlink.*(?:training|initiali[sz]ation).*fail|fail\w* to (?:train|initiali[sz]e|configure).*nvlink",
         "nvidia.fabricmanager.training_failed"),
    )
)  # fmt: skip
_FM_LINE = re.compile(r"\[\w{3} +\d{1,2} \d{4} [\d:]{8}\] \[(?P<level>[A-Z]+)\] \[tid \d+\]")
_CPER = re.compile(r"cper record:.*?AFID=\[(?P<afids>[\d ,]*)\]", re.IGNORECASE)
_DME_UNHEALTHY = re.compile(r"gpuid\[(?P<gpu>\d+)\] is set to unhealthy", re.IGNORECASE)


def read_text(lines: Sequence[Line], found: Found) -> set[int]:
    """Read the lines of every known agent; return the numbers of the lines that were understood."""
    claimed: set[int] = set()
    with_xid: set[str] = set()
    marked: list[tuple[str, int, str]] = []
    records: list[tuple[str, int, str]] = []
    for line_number, line in lines:
        plugin, unhealthy = _PLUGIN_XID.search(line), _PLUGIN_UNHEALTHY.search(line)
        if plugin is not None:
            with_xid.add(plugin["uuid"] or "")
            found.see(f"nvidia.xid.{int(plugin['xid'])}", plugin["uuid"], line_number, line)
        elif unhealthy is not None:
            marked.append((unhealthy["uuid"], line_number, line))
        elif (cper := _CPER.search(line)) is not None:
            records += [(afid, line_number, line) for afid in re.findall(r"\d+", cper["afids"])]
        elif (dme := _DME_UNHEALTHY.search(line)) is not None:
            _exporter_records(records, f"GPU {dme['gpu']}", found)
            records = []
            found.see("amd.exporter.unhealthy", f"GPU {dme['gpu']}", line_number, line)
        elif not _fabric_manager(line_number, line, found) and not _detected(line_number, line, None, found):
            continue
        found.values += 1
        claimed.add(line_number)
    _exporter_records(records, None, found)
    for uuid, line_number, line in marked:
        if uuid not in with_xid and "" not in with_xid:
            found.see("agent.device_unhealthy", uuid, line_number, line)
    return claimed


def _exporter_records(records: list[tuple[str, int, str]], device: str | None, found: Found) -> None:
    """Records that only the exporter speaks of.

    A driver regression made such records appear on every GPU at once, and a rollback cured it: without a RAS line of
    the kernel or a counter they are no proof.
    """
    for afid, line_number, line in records:
        found.see(
            f"amd.afid.{int(afid)}",
            device,
            line_number,
            line,
            why="a record that only the exporter reports: confirm it with the kernel's RAS lines or counters",
            action=Action.MONITOR,
            severity=Severity.WARNING,
        )


def _fabric_manager(line_number: int, line: str, found: Found) -> bool:
    switch = _FM_SWITCH.search(line)
    if switch is not None:
        _sxid(switch, line_number, line, found)
        return True
    head = _FM_LINE.search(line)
    if head is None:
        return False
    for pattern, code in _FM_SAYINGS:
        if head["level"] != "INFO" and pattern.search(line):
            found.see(code, None, line_number, line)
            return True
    if head["level"] in ("ERROR", "FATAL", "CRITICAL"):
        found.wonder(line_number, line)
    return True


def _sxid(switch: re.Match[str], line: int, text: str, found: Found) -> None:
    """A switch error whose severity the agent names: that word beats the table."""
    word, port = switch["word"].lower(), switch["port"]
    fatal = not word.startswith("non")
    found.see(
        f"nvidia.sxid.{int(switch['code'])}",
        switch["pci"],
        line,
        text,
        part="" if port is None else f"link {port}",
        why=f"{word}, says the fabric manager",
        action=Action.RESET_GPU if fatal else Action.NONE,
        severity=Severity.FATAL if fatal else Severity.INFO,
    )


def _detected(line: int, text: str, at: str | None, found: Found) -> bool:
    """`XID 79(GPU has fallen off the bus) detected on PCI:0000:e4:00`, as gpud words it; every one in the text."""
    seen = False
    for match in _GPUD.finditer(text):
        kind = "sxid" if match["kind"].upper() == "SXID" else "xid"
        found.see(f"nvidia.{kind}.{int(match['code'])}", match["pci"] or match["uuid"], line, text, at=at)
        seen = True
    return seen


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_DEPTH_MAX = 32
_REPAIRS = {
    "IGNORE_NO_ACTION_REQUIRED": Action.NONE,
    "CHECK_USER_APP_AND_GPU": Action.MONITOR,
    "REBOOT_SYSTEM": Action.REBOOT,
    "HARDWARE_INSPECTION": Action.DRAIN,
}
"""gpud's repair actions, for what no code stands for."""


def read_json(document: Any, line: int, found: Found) -> bool:
    """Read health states and events of gpud and NVSentinel; False when there are none."""
    known = False
    for node in _objects(document, 0):
        if "checkName" in node:
            _sentinel_event(node, line, found)
        elif "health" in node or ("message" in node and ("type" in node or "component" in node)):
            _gpud(node, line, found)
        else:
            continue
        known = True
        found.values += 1
    return known


def _objects(node: Any, depth: int) -> Iterator[dict[str, Any]]:
    if depth > _DEPTH_MAX:
        return
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            if isinstance(child, dict | list):
                yield from _objects(child, depth + 1)


def _gpud(node: dict[str, Any], line: int, found: Found) -> None:
    message = str(node.get("message") or node.get("reason") or "")
    at = node.get("time")
    health = str(node.get("health", node.get("type", ""))).lower()
    if health in ("healthy", "info") or _detected(line, message, None if at is None else str(at), found):
        return
    if health in ("unhealthy", "degraded", "fatal", "critical"):
        suggested = node.get("suggested_actions")
        repairs = suggested.get("repair_actions") if isinstance(suggested, dict) else None
        action = next((_REPAIRS[r] for r in repairs if r in _REPAIRS), None) if isinstance(repairs, list) else None
        text = f"{node.get('name', 'state')}: {message}"
        found.see("agent.device_unhealthy", None, line, text, part=str(node.get("name", "")), action=action, why=text)


def _sentinel_event(node: dict[str, Any], line: int, found: Found) -> None:
    if node.get("isHealthy") is True:
        return
    check = str(node.get("checkName", ""))
    codes = node.get("errorCode")
    text = f"{check}: errorCode {codes}, {node.get('message', '')}"
    at = node.get("generatedTimestamp")
    device = _entity(node.get("entitiesImpacted"))
    known = False
    for code in codes if isinstance(codes, list) else [codes]:
        name = str(code).strip()
        catalogued = code_of_name(name)
        if name.isdigit():
            # An XID has at most three digits, an SXID five; `SysLogsXIDError` is no SXID.
            kind = "sxid" if "SXID" in check or "SXid" in check or len(name) > 3 else "xid"  # noqa: PLR2004 - see above
            catalogued = f"nvidia.{kind}.{int(name)}"
        if catalogued is None:
            continue
        known = True
        # Whether a switch error is fatal is the switch's own word, handed on; for the rest it is the agent's opinion.
        fatal = catalogued.startswith("nvidia.sxid.") and node.get("isFatal") is True
        found.see(
            catalogued,
            device,
            line,
            text,
            at=None if at is None else str(at),
            action=Action.RESET_GPU if fatal else None,
            severity=Severity.FATAL if fatal else None,
        )
    if not known:
        severity = Severity.ERROR if node.get("isFatal") is True else Severity.WARNING
        found.see("agent.device_unhealthy", device, line, text, part=check, severity=severity, why=text)


def _entity(entities: Any) -> str | None:
    """The most lasting name of the device among what an event impacts."""
    names: dict[str, str] = {}
    for entity in entities if isinstance(entities, list) else []:
        if isinstance(entity, dict):
            names[str(entity.get("entityType", "")).lower()] = str(entity.get("entityValue", ""))
    for kind in ("pci", "gpu_uuid", "gpu"):
        if names.get(kind):
            return f"GPU {names[kind]}" if names[kind].isdigit() else names[kind]
    return None
