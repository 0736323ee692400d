"""`dcgmi diag` as JSON of any version, and what DCGM's messages mean.

A test that fails is no broken GPU by itself: DCGM gives each error a number, and the catalogue has what each number
asks for (`nvidia.dcgm.N`). Without a number the text is compared with DCGM's own messages; without a text the name of
the test decides.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fleetd.core.faults.documents.dcgm_errors import NAMES
from fleetd.core.faults.documents.found import Found, slug
from fleetd.core.faults.documents.nvidia_smi import Line
from fleetd.core.policy import Action
from fleetd.model.finding import Severity

_BY_TEXT: tuple[tuple[str, str], ...] = (
    (r"persistence mode.*disabled|enable persistence mode", "nvidia.dcgm.29"),
    (r"row remapp?ings? (?:has )?failed|row remap failure", "nvidia.dcgm.80"),
    (r"row remapp?ings? (?:are|is) pending|pending row remap", "nvidia.dcgm.85"),
    (r"uncorrectable memory errors and \d+ rows", "nvidia.dcgm.84"),
    (r"pending page retirements together with a dbe", "nvidia.dcgm.83"),
    (r"pending retired page|pending page retirement", "nvidia.dcgm.6"),
    (r"retired pages due to dbe", "nvidia.dcgm.8"),
    (r"retired pages have been detected", "nvidia.dcgm.7"),
    (r"thermal violations? totaling", "nvidia.dcgm.40"),
    (r"throttling due to thermal|exceeded user-specified maximum allowed temperature", "nvidia.dcgm.10"),
    (r"throttling due to power", "nvidia.dcgm.12"),
    (r"clocks are being throttled", "nvidia.dcgm.43"),
    (r"stress level of", "nvidia.dcgm.50"),
    (r"did not (?:reach|exceed) desired power|max power of", "nvidia.dcgm.63"),
    (r"enforced power limit", "nvidia.dcgm.72"),
    (r"faulty memory elements", "nvidia.dcgm.52"),
    (r"nan-value memory elements", "nvidia.dcgm.111"),
    (r"memory mismatch", "nvidia.dcgm.58"),
    (r"miscompare", "nvidia.dcgm.79"),
    (r"only achieved a memory bandwidth", "nvidia.dcgm.62"),
    (r"minimum required bandwidth|did not meet .*bandwidth", "nvidia.dcgm.30"),
    (r"maximum allowed latency", "nvidia.dcgm.31"),
    (r"pci link generation", "nvidia.dcgm.45"),
    (r"pci link width", "nvidia.dcgm.46"),
    (r"pcie replays?|replay violation", "nvidia.dcgm.3"),
    (r"nvlinks? (?:link )?\d* ?(?:is|are) (?:currently )?down", "nvidia.dcgm.14"),
    (r"nvlinks are up out of the expected", "nvidia.dcgm.99"),
    (r"nvlink errors .*should be 0", "nvidia.dcgm.71"),
    (r"nvlink errors .*per second", "nvidia.dcgm.70"),
    (r"nvlink errors", "nvidia.dcgm.13"),
    (r"detected nonfatal errors on nvswitch", "nvidia.dcgm.16"),
    (r"detected fatal errors on nvswitch|fatal nvswitch sxid", "nvidia.dcgm.15"),
    (r"uncontained error", "nvidia.dcgm.81"),
    (r"double-bit ecc|\bdbes?\b|uncorrectable (?:memory|ecc)", "nvidia.dcgm.4"),
    (r"single-bit ecc", "nvidia.dcgm.5"),
    (r"corrupt inforom", "nvidia.dcgm.9"),
    (r"graphics (?:contexts|processes)", "nvidia.dcgm.25"),
    (r"denylist|blacklist|nouveau", "nvidia.dcgm.23"),
    (r"environment variable", "nvidia.dcgm.28"),
    (r"cannot open library", "nvidia.dcgm.22"),
    (r"could not be accessed|permission", "nvidia.dcgm.18"),
    (r"number of devices nvml returns", "nvidia.dcgm.20"),
    (r"ecc (?:memory )?is not (?:enabled|turned on)", "nvidia.dcgm.55"),
    (r"cuda api", "nvidia.dcgm.51"),
    (r"create a cuda context", "nvidia.dcgm.66"),
    (r"find a corresponding cuda device", "nvidia.dcgm.59"),
    (r"fabric ?manager", "nvidia.dcgm.108"),
    (r"\beud\b.*(?:fail|error)", "nvidia.dcgm.95"),
)
_MESSAGES = tuple((re.compile(pattern, re.IGNORECASE), code) for pattern, code in _BY_TEXT)
_XID = re.compile(r"\bXID(?: error)?:? (\d{1,3})\b", re.IGNORECASE)
_LOST = re.compile(r"fallen off the bus|gpu is lost", re.IGNORECASE)
GPU_NAMED = re.compile(r"\bGPU:? (?:ID:? )?(\d+)", re.IGNORECASE)

_BY_TEST = {
    "persistence_mode": "nvidia.dcgm.29",
    "denylist": "nvidia.dcgm.23",
    "blacklist": "nvidia.dcgm.23",
    "graphics_processes": "nvidia.dcgm.25",
    "page_retirement_row_remap": "nvidia.dcgm.85",
    "inforom": "nvidia.dcgm.9",
}
_ENVIRONMENT = frozenset(
    {"environment_variables", "nvml_library", "cuda_main_library", "cuda_toolkit_library", "cuda_toolkit_libraries",
     "permissions_and_os_blocks", "permissions_and_os_related_blocks", "software", "deployment"}
)  # fmt: skip
"""Tests of the installation: without a text or a number they blame no GPU."""

SEVERITIES = {
    1: (Action.MONITOR, Severity.WARNING),
    2: (Action.DRAIN, Severity.ERROR),
    3: (Action.MONITOR, Severity.WARNING),
    4: (Action.MONITOR, Severity.WARNING),
    5: (Action.NONE, Severity.INFO),
    6: (Action.RESET_GPU, Severity.ERROR),
}
"""`dcgmErrorSeverity_t` (monitor, isolate, unknown, triage, config, reset): for an error number of a newer DCGM."""

ERRORS_MAX = len(NAMES) - 1
"""The error numbers that the catalogue has: 1 to this."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """How the tests of one document ended."""

    passed: int = 0
    skipped: int = 0
    first_skipped: tuple[int, str, str | None] | None = None
    """Line, evidence and device of the first one."""

    def skip(self, at: Line, device: str | None) -> None:
        """Count a test that was not run."""
        self.skipped += 1
        self.first_skipped = self.first_skipped or (*at, device)

    def end(self, found: Found) -> None:
        """Say it when nothing was tested: a skipped test has not passed."""
        if self.first_skipped is not None and not self.passed:
            line, text, device = self.first_skipped
            why = f"{self.skipped} tests were skipped, none has passed"
            found.see("nvidia.dcgm.skipped", device, line, text, why=why)


def of_message(message: str) -> str | None:
    """Return the catalogue code of one of DCGM's messages, None for a text that is not DCGM's."""
    xid = _XID.search(message)
    if xid is not None:
        return f"nvidia.xid.{int(xid[1])}"
    if _LOST.search(message):
        return "nvidia.nvml.gpu_lost"
    return next((code for pattern, code in _MESSAGES if pattern.search(message)), None)


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_json(document: Any, line: int, found: Found) -> bool:
    """Read a diagnostic document of DCGM 2 to 4; False when it is something else."""
    tests = list(_tests(document, "", 0))
    if not tests:
        return False
    tally = Tally()
    for name, result in tests:
        _result(name, result, line, tally, found)
    tally.end(found)
    return True


_DEPTH_MAX = 32


def _tests(node: Any, name: str, depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every result of every test, with the test's name."""
    if depth > _DEPTH_MAX:
        return
    if isinstance(node, list):
        for child in node:
            yield from _tests(child, name, depth + 1)
        return
    if not isinstance(node, dict):
        return
    results = node.get("results")
    own = str(node.get("name", name))
    if isinstance(results, list):
        for result in results:
            if isinstance(result, dict) and "status" in result:
                yield own, result
        return
    for child in node.values():
        if isinstance(child, dict | list):
            yield from _tests(child, own if "name" in node else name, depth + 1)


def _devices(result: dict[str, Any]) -> list[str | None]:
    """The GPUs that a result is about: `entity_id` (DCGM 4), `gpu_ids` or `gpu_id` (before), or none."""
    if "entity_id" in result:
        return [f"{result.get('entity_group', 'GPU')} {result['entity_id']}"]
    ids = str(result.get("gpu_ids", result.get("gpu_id", "")))
    return [f"GPU {one.strip()}" for one in ids.split(",") if one.strip().isdigit()] or [None]


def _result(test: str, result: dict[str, Any], line: int, tally: Tally, found: Found) -> None:
    status = str(result.get("status", "")).strip().lower()
    found.values += 1
    devices = _devices(result)
    evidence = f"{test}: {result.get('status')}"
    if status == "pass":
        tally.passed += 1
        return
    if status in ("skip", "skipped", "not run"):
        tally.skip((line, evidence), devices[0])
        return
    if not status.startswith(("fail", "warn", "error")):
        found.wonder(line, evidence)
        return
    warnings = list(_warnings(result))
    for device in devices:
        for warning in warnings:
            _warning(test, warning, device, line, found)
        if not warnings:
            silent(test, status, device, (line, evidence), found)


def _warnings(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a result says; older versions have plain strings, one alone or a list."""
    for key in ("warnings", "warning", "error", "errors"):
        said = result.get(key)
        for one in said if isinstance(said, list) else [said]:
            if isinstance(one, dict):
                yield one
            elif isinstance(one, str) and one.strip():
                yield {"warning": one}


def _warning(test: str, warning: dict[str, Any], device: str | None, line: int, found: Found) -> None:
    message = str(warning.get("warning") or warning.get("error") or warning.get("message") or "")
    error = warning.get("error_id")
    text = f"{test}: {message}"
    named = GPU_NAMED.search(message)
    device = device or (None if named is None else f"GPU {named[1]}")
    if isinstance(error, int) and 0 < error <= ERRORS_MAX:
        by_text = of_message(message)
        # 101 and 109 only say that there was an XID or SXID; the text has which one.
        code = by_text if error == 101 and by_text is not None else f"nvidia.dcgm.{error}"  # noqa: PLR2004 - an error
        found.see(code, device, line, text)
        return
    by_text = of_message(message)
    if by_text is not None:
        found.see(by_text, device, line, text)
        return
    severity = warning.get("error_severity")
    action, grade = SEVERITIES.get(severity if isinstance(severity, int) else 3, SEVERITIES[3])
    code = f"nvidia.dcgm.{error}" if isinstance(error, int) and error > 0 else "nvidia.dcgm.test_failed"
    found.see(code, device, line, text, part=slug(test), action=action, severity=grade, why=message or None)


def silent(test: str, status: str, device: str | None, at: Line, found: Found) -> None:
    """A test that did not pass and does not say why."""
    name = slug(test)
    if name in _BY_TEST:
        found.see(_BY_TEST[name], device, *at)
    elif name in _ENVIRONMENT:
        found.see("nvidia.dcgm.environment", device, *at, part=name)
    elif status.startswith("warn"):
        found.see("nvidia.dcgm.test_failed", device, *at, part=name, action=Action.MONITOR,
                  severity=Severity.WARNING)  # fmt: skip
    else:
        found.see("nvidia.dcgm.test_failed", device, *at, part=name)
