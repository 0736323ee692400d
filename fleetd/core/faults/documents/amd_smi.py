"""`amd-smi` (text and JSON) and `rocm-smi`: counters, throttling, bad pages, links, and what they say of a driver."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fleetd.core.faults.documents.amd_values import judge_afid, judge_ras
from fleetd.core.faults.documents.found import Found, Reading, number, slug
from fleetd.core.faults.documents.nvidia_smi import Line

MARKS = (
    "gpu: ", "link metric table", "link status", "rocm system management", "device  [", "gpu[", "amd-smi", "amdsmi",
    "concise info", "  mem_t", "_ecc  ", "amdgpu not found", "any gpu devices", "list of afids", "amd instinct",
)  # fmt: skip
"""What a text with something of this has one of, in lower case; looked for before anything is read."""

_BDF = r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
_GPU = re.compile(r"\s*GPU:\s*(\d+)\s*$")
_PAIR = re.compile(r"(?P<indent>\s+)(?P<key>[A-Z][A-Z0-9_ ]{1,60}):\s*(?P<value>.*?)\s*$")
_TABLE = re.compile(
    rf"\s*(?:LINK METRIC TABLE|LINK STATUS|XGMI LINK STATUS|(?:GPU\d+\s+)?(?:gpu\s+)?bdf\s|GPU\d+\s+{_BDF}"
    r"|(?:Read|Write)\s|Device\s+\[?(?:Model|Node)|\s*Name \(20 chars\)|\d+\s+\[0x[0-9a-f]+ : 0x"
    r"|=+.*(?:ROCm|Concise|SMI).*=+|GPU\s+Temp\b|GPU\s+(?:XCP\s+)?(?:POWER|SINGLE_ECC|DOUBLE_ECC)\b"
    r"|\d+\s+(?:\d+\s+)?[\d.]+ ?W\b|\+[-=]|\|"
    r"|AMD Instinct|\d+\s+\d+\.\d+°?[cC]\s|=+$|SYSTEM INFO|Legend:)"
)
_MONITOR = re.compile(r"\s*GPU\s.*\b(?:DOUBLE|SINGLE)_ECC\b")
_MONITOR_ROW = re.compile(r"\s*(?P<gpu>\d+)\s")
_OVERVIEW_ROW = re.compile(
    rf"\s*\|\s*(?P<bdf>{_BDF})\s[^|]*\|\s*\S+(?: %)?\s+\S+(?: ?°?C)?\s+(?P<ue>\d+|N/A)\s+[\d./NA]+ ?W\s*\|"
)
"""The overview of amd-smi from ROCm 7 on; its column UEC counts uncorrected errors."""
_LINK_STATES = re.compile(rf"\s*GPU(?P<index>\d+)\s+(?P<bdf>{_BDF})\s+(?P<states>(?:(?:N/A|SELF|[UDX])\s*)+)$")
_RAS_ROW = re.compile(
    r"\s*(?:GPU\[\d+\]\s*:)?\s*(?P<block>[A-Z][A-Z0-9_]{1,15})\s+(?:ENABLED|DISABLED)\s+(?P<ce>\d+)\s+(?P<ue>\d+)\s*$"
)
_ROCM_GPU = re.compile(r"\s*GPU\[(?P<index>\d+)\]")
_CPER = re.compile(
    r"\s*(?P<at>\d{4}[/-]\d{2}[/-]\d{2}[ T]\d{2}:\d{2}:\d{2})\s+(?P<gpu>\d+)\s+(?P<severity>[A-Za-z_-]+)\s+\S+\s+"
    r"(?P<afids>\d+(?:\s*,\s*\d+)*)\s*$"
)
_SAYINGS: tuple[tuple[re.Pattern[str], str | None], ...] = (
    (re.compile(r"low-power state|One or more commands failed", re.IGNORECASE), None),
    (re.compile(r"driver not (?:initialized|loaded)|amdgpu not found in modules|AMDSMI_STATUS_(?:DRIVER_NOT_LOADED|"
                r"NOT_INIT|INIT_ERROR|DRM_ERROR)|ERROR:root:Driver not", re.IGNORECASE), "amd.smi.driver_unreachable"),
    (re.compile(r"unable to detect any GPU devices|No (?:AMD )?GPUs? (?:found|detected)|No AMD GPUs specified",
                re.IGNORECASE), "amd.smi.no_devices"),
    (re.compile(r"Expected integer value from monitor|was not of the type that was expected|AMDSMI_STATUS_(?:TIMEOUT|"
                r"BUSY|IO|UNKNOWN_ERROR|UNEXPECTED_DATA|INTERRUPT)|GPU\[\d+\].*unknown error", re.IGNORECASE),
     "amd.smi.unreadable"),
)  # fmt: skip
"""What the tools say instead of values; None is normal."""


def read_text(lines: Sequence[Line], found: Found) -> set[int]:
    """Read every block and table among the lines; return the numbers of the lines that were understood."""
    claimed: set[int] = set()
    judge_readings(_readings(lines, claimed), found)
    rocm: str | None = None
    head: str | None = None
    for line_number, line in lines:
        if line_number in claimed:
            continue
        if _MONITOR.match(line):
            head = line
        elif head is not None and _monitor_row(head, line_number, line, found):
            claimed.add(line_number)
            found.values += 1
            continue
        elif line.strip():
            head = None
        named = _ROCM_GPU.match(line)
        rocm = rocm if named is None else f"GPU {named['index']}"
        if _line(line_number, line, rocm, found) or named is not None:
            claimed.add(line_number)
            found.values += 1
    return claimed


def _monitor_row(head: str, line_number: int, line: str, found: Found) -> bool:
    """A row of `amd-smi monitor`: a value belongs to the name above it, since units make words of their own."""
    row = _MONITOR_ROW.match(line)
    if row is None:
        return False
    words = [(word.start(), word.end(), word[0]) for word in re.finditer(r"\S+", line)]
    counts = []
    for name, kind in (("SINGLE_ECC", "ce"), ("DOUBLE_ECC", "ue")):
        begin = head.find(name)
        below = next((w for start, end, w in words if begin >= 0 and start < begin + len(name) and end > begin), None)
        if below is not None:
            counts.append(("total", kind, number(below), line_number, line))
    judge_ras(f"GPU {row['gpu']}", counts, found)
    return True


def _line(line_number: int, line: str, device: str | None, found: Found) -> bool:
    """A line that means something by itself."""
    for pattern, code in _SAYINGS:
        if pattern.search(line):
            if code is not None:
                found.see(code, device, line_number, line)
            return True
    states, ras, cper = _LINK_STATES.match(line), _RAS_ROW.match(line), _CPER.match(line)
    if states is not None:
        down = [n for n, state in enumerate(states["states"].split()) if state == "D"]
        if down:
            why = "links down: " + ", ".join(str(n) for n in down)
            found.see("amd.xgmi.link_down", states["bdf"], line_number, line, why=why)
    elif ras is not None:
        counts = [(ras["block"], kind, number(ras[kind]), line_number, line) for kind in ("ce", "ue")]
        judge_ras(device, counts, found)
    elif (overview := _OVERVIEW_ROW.match(line)) is not None:
        judge_ras(overview["bdf"], [("total", "ue", number(overview["ue"]), line_number, line)], found)
    elif cper is not None:
        for afid in cper["afids"].split(","):
            gpu = f"GPU {cper['gpu']}"
            judge_afid(int(afid), cper["severity"], device=gpu, line=line_number, text=line, found=found, at=cper["at"])
    else:
        return _TABLE.match(line) is not None
    return True


def _readings(lines: Sequence[Line], claimed: set[int]) -> Iterator[Reading]:
    """The values of `GPU: N` blocks, in which indentation nests."""
    device: str | None = None
    sections: list[tuple[int, str]] = []
    for line_number, line in lines:
        gpu = _GPU.match(line)
        if gpu is not None:
            device, sections = f"GPU {gpu[1]}", []
            claimed.add(line_number)
            continue
        pair = _PAIR.match(line) if device is not None else None
        if pair is None:
            if line.strip():
                device = None
            continue
        claimed.add(line_number)
        indent = len(pair["indent"].expandtabs(8))
        while sections and sections[-1][0] >= indent:
            sections.pop()
        sections.append((indent, slug(pair["key"])))
        path = "/".join(name for _, name in sections)
        yield Reading(device=device, path=path, value=pair["value"], line=line_number, text=line)


# ── what the values mean ────────────────────────────────────────────────────────────────────────────────────────────

_ECC = re.compile(r"(?:.*/)?ecc/(?:total|cache)_(?P<kind>correctable|uncorrectable|deferred)_count")
_ECC_BLOCK = re.compile(r"(?:.*/)?ecc_blocks?/(?P<block>\w+)/(?P<kind>correctable|uncorrectable|deferred)_count")
_KIND = {"correctable": "ce", "uncorrectable": "ue", "deferred": "de"}
_VIOLATION = re.compile(r"(?:.*/)?(?P<what>\w+?)_violation_status")
_THERMAL = re.compile(r"prochot|thermal|thrm")
_PAGES = {
    "RETIRED": "amd.bad_page.retired",
    "PENDING": "amd.bad_page.pending",
    "UNRESERVABLE": "amd.bad_page.pending",
}
"""`STATUS` of a bad page; one that could not be reserved is still in use, as a pending one is."""


def judge_readings(readings: Iterable[Reading], found: Found) -> None:
    """Judge the values of any number of GPUs."""
    ras: dict[str | None, list[tuple[str, str, float | None, int, str]]] = {}
    for reading in readings:
        found.values += 1
        total, block = _ECC.fullmatch(reading.path), _ECC_BLOCK.fullmatch(reading.path)
        ecc = block or total
        if ecc is not None:
            name = block["block"] if block is not None else "total"
            counts = ras.setdefault(reading.device, [])
            counts.append((name, _KIND[ecc["kind"]], number(reading.value), reading.line, reading.text))
            continue
        violation = _VIOLATION.fullmatch(reading.path)
        if violation is not None:
            if reading.value.upper() == "ACTIVE":
                thermal = _THERMAL.search(violation["what"]) is not None
                found.see("amd.throttle.thermal" if thermal else "amd.throttle.power", reading.device, reading.line,
                          reading.text)  # fmt: skip
            continue
        if reading.path.endswith("link_status") and reading.value.upper() in ("D", "DOWN"):
            found.see("amd.xgmi.link_down", reading.device, reading.line, reading.text)
        if reading.path.endswith("status") and reading.value.upper() in _PAGES:
            found.see(_PAGES[reading.value.upper()], reading.device, reading.line, reading.text)
    for device, blocks in ras.items():
        judge_ras(device, blocks, found)


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_DEPTH_MAX = 32


def read_json(document: Any, line: int, found: Found) -> bool:
    """Read a document of `amd-smi … --json`; False when it is something else."""
    entries = document
    if isinstance(document, dict):
        entries = next((document[key] for key in _LISTS if isinstance(document.get(key), list)), document)
    gpus = [entry for entry in (entries if isinstance(entries, list) else [entries]) if _is_gpu(entry)]
    for entry in gpus:
        found.values += 1
        judge_readings(_leaves(entry, _device(entry), "", line, 0), found)
        _records(entry, line, found)
    return bool(gpus)


_LISTS = ("gpu_data", "xgmi_metric", "link_status")
"""Under which the GPUs stand where the document is no list itself."""


def _is_gpu(entry: Any) -> bool:
    return isinstance(entry, dict) and ("gpu" in entry or "gpu_id" in entry) and "checkName" not in entry


def _device(entry: dict[str, Any]) -> str | None:
    if isinstance(entry.get("bdf"), str):
        return str(entry["bdf"])
    index = entry.get("gpu", entry.get("gpu_id"))
    return f"GPU {index}" if isinstance(index, int) else None


def _leaves(node: Any, device: str | None, path: str, line: int, depth: int) -> Iterator[Reading]:
    """Every value below a node; a quantity `{"value": 3, "unit": "W"}` is one value."""
    if depth > _DEPTH_MAX:
        return
    if isinstance(node, dict) and "value" in node and not isinstance(node["value"], dict | list):
        node = node["value"]
    if isinstance(node, dict):
        for key, child in node.items():
            below = f"{path}/{slug(str(key))}" if path else slug(str(key))
            yield from _leaves(child, device, below, line, depth + 1)
    elif isinstance(node, list):
        for child in node:
            yield from _leaves(child, device, path, line, depth + 1)
    elif node is not None:
        yield Reading(device=device, path=path, value=str(node), line=line, text=f"{path}: {node}")


def _records(entry: dict[str, Any], line: int, found: Found) -> None:
    """A CPER record: a severity and the field identifiers that were decoded from it."""
    listed = next((entry[key] for key in ("afids", "afid", "list_of_afids") if key in entry), None)
    if listed is None:
        return
    at = entry.get("timestamp")
    for afid in listed if isinstance(listed, list) else str(listed).split(","):
        if str(afid).strip().isdigit():
            text = f"afid {afid}, severity {entry.get('severity', 'unknown')}"
            judge_afid(
                int(afid),
                str(entry.get("severity", "")),
                device=_device(entry),
                line=line,
                text=text,
                found=found,
                at=None if at is None else str(at),
            )
