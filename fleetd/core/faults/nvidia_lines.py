"""XID and SXid lines of every driver era into observations.

Line shapes: `NVRM: Xid (PCI:dddd:bb:dd[.f][ GPU-I:nn]): N, [pid=P, name=NAME, ]TEXT`; before R300 without `PCI:`; log
pipelines change case and blanks. `nvidia-nvswitchN: SXid (PCI:…): CODE, Fatal|Non-fatal, TEXT`. The fabric manager's
own log says the same in words.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from fleetd.core.faults import nvlink
from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.observation import Observation, rank
from fleetd.core.policy import Action
from fleetd.model.finding import Scope, Severity

RECOVERY_XID = 154
REMAP_FAILURE_XID = 64
NVLINK_XID = 74
NVLINK5_XIDS = range(144, 151)
CONTAINMENT_XIDS = (94, 95)
MAX_XID = 999

_ADDRESS = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?|[0-9a-f]{4}:[0-9a-f]{2}"
_REDACTED = r"[.x*?#<>\s:_-]{2,24}|<?\[?(?:redacted|removed|hidden|masked|address)\]?>?"
_XID = re.compile(
    r"(?<![a-z])xid\s*\(\s*(?:pci\s*:\s*)?(?:(?P<device>" + _ADDRESS + r")|(?:" + _REDACTED + r"))"
    r"(?P<extra>[^)]{0,40})\)\s*:\s*(?P<code>\d{1,3})\s*,\s*(?P<text>.*?)(?=nvrm\s*:\s*xid|$)",
    re.IGNORECASE | re.DOTALL,
)
_SXID = re.compile(
    r"sxid\s*\(\s*(?:pci\s*:\s*)?(?:(?P<device>" + _ADDRESS + r")|(?:" + _REDACTED + r"))\s*\)\s*:"
    r"\s*(?P<code>\d{4,6})\s*,\s*(?P<text>.*?)(?=nvidia-nvswitch\d|$)",
    re.IGNORECASE | re.DOTALL,
)
_MANAGER = re.compile(
    r"detected nvswitch (?P<word>non-?\s?fatal|fatal) error (?P<code>\d{4,6})\b"
    r".{0,80}?pci bus id\s+(?P<device>[0-9a-f:.]+)(?P<text>.*)",
    re.IGNORECASE,
)
_VIRTUAL = re.compile(r"vmiop_log:.{0,24}\bxid (?P<code>\d{1,3}) detected on physical_chid", re.IGNORECASE)
"""The vGPU manager tells the XIDs of its guests without the GPU's address."""
_LOOKS = re.compile(r"xid\s*[(:]|xid error", re.IGNORECASE)
_INSTANCE = re.compile(r"gpu-i:?\s*0*(\d+)", re.IGNORECASE)
_NAME = re.compile(r"name=\s*([^,<]{1,64}?)\s*(?:,|$)", re.IGNORECASE)
_PROCESS = re.compile(r"^\s*pid\s*=\s*[^,]*,?\s*(?:name\s*=\s*[^,]*,?\s*)?", re.IGNORECASE)
_CAUSE = re.compile(r"caused by previous xid\s*(\d{1,3})", re.IGNORECASE)
_WORD = re.compile(r"\s*(non-?\s?fatal|fatal)\b", re.IGNORECASE)
_DETAIL = re.compile(r"\s*(?:data\b|severity\s+\d|engine instance)|\bdata\s*\[", re.IGNORECASE)

_SIGNATURES = tuple(
    (re.compile(expression, re.IGNORECASE), frozenset(codes))
    for expression, codes in (
        (r"graphics (?:sm (?:warp|global) )?exception", {13}),
        (r"\bmmu fault", {31}),
        (r"fallen off the bus", {79}),
        (r"recovery action changed", {154}),
        (r"nvlink: .{0,20}error detected on link", {74}),
        (r"rpc response from|waiting for rpc", {119}),
        (r"double bit error", {48}),
        (r"row remapper", {63, 64}),
        (r"ctx switch timeout", {109}),
    )
)
"""Texts that belong to one code: under another number the line is doubtful."""

_RESET_FLAGS = re.compile(r"\bRST:\s*(yes|no)\s*,\s*D-RST:\s*(yes|no)", re.IGNORECASE)
_REMAP_KNOWN = re.compile(
    r"row remapper|page retirement|dram retirement|reserved rows|\bch(?:annel)? (?:0x)?[0-9a-f]", re.IGNORECASE
)
_REMAP_PENDING = re.compile(
    r"already pending|will occur when the gpu is reset|already (?:retired|remapped)|due to pending", re.IGNORECASE
)
_REMAP_FULL = re.compile(r"all reserved rows|table (?:is )?full|no (?:more )?spare|limit reached", re.IGNORECASE)


def looks_like_xid(message: str) -> bool:
    """Whether a line that gave no observation was meant as an XID or SXid."""
    return _LOOKS.search(message) is not None


def read(catalogue: Catalogue, message: str) -> Iterator[Observation]:
    """All XIDs and SXids of one message; two CPUs may have printed into one line."""
    for match in _XID.finditer(message):
        code = int(match["code"])
        if 0 < code <= MAX_XID:
            yield _xid(catalogue, code, match["device"], match["extra"], match["text"])
    for match in _SXID.finditer(message):
        yield _sxid(match["code"], match["device"], match["text"])
    if (virtual := _VIRTUAL.search(message)) is not None and (code := int(virtual["code"])) > 0:
        yield _xid(catalogue, code, None, "", "")
    if (manager := _MANAGER.search(message)) is not None:
        yield _sxid(manager["code"], manager["device"], f"{manager['word']}, {manager['text']}")


def _xid(catalogue: Catalogue, code: int, device: str | None, extra: str, text: str) -> Observation:
    plain = Observation(code=f"nvidia.xid.{code}", device=device)
    body = text[found.end() :] if (found := _PROCESS.match(text)) else text
    entry = catalogue.entry(plain.code)
    details = _details(catalogue, code, body)
    if (doubt := _doubt(code, body)) is not None and rank(entry.action) > rank(Action.MONITOR):
        details = doubt
    if details is not None:
        plain = replace(
            plain,
            why=details.why,
            part=details.part,
            action=details.action,
            severity=details.severity,
            scope=details.scope,
            repeat=details.repeat,
        )
    if (instance := _INSTANCE.search(extra)) is not None:
        part = f"MIG GI {int(instance[1])}"
        plain = replace(plain, part=part, why=f"{plain.why or entry.meaning} ({part})")
    if (cause := _CAUSE.search(body)) is not None:
        return replace(plain, caused_by=f"XID{int(cause[1])}")
    name = _NAME.search(text)
    if entry.scope is Scope.APP and name is not None and plain.why is None:
        return replace(plain, why=f"{entry.meaning} (process {name[1].strip()})")
    return plain


def _details(catalogue: Catalogue, code: int, body: str) -> nvlink.Decoded | None:
    """What registers, flags and words of a line say, for the codes that have them."""
    if code == RECOVERY_XID:
        return nvlink.recovery(body)
    if code == NVLINK_XID:
        return nvlink.registers(catalogue, body)
    if code in NVLINK5_XIDS:
        return nvlink.link5(catalogue, code, body)
    if code == REMAP_FAILURE_XID:
        return _remap_failure(body)
    return _containment(body) if code in CONTAINMENT_XIDS else None


def _doubt(code: int, body: str) -> nvlink.Decoded | None:
    """A text that belongs to another code: counted by its number, never acted on."""
    for pattern, codes in _SIGNATURES:
        if code not in codes and pattern.search(body):
            wanted = " or ".join(f"XID{n}" for n in sorted(codes))
            return nvlink.Decoded(
                why=f"number and text disagree (the text is that of {wanted}): low confidence, a person should look",
                action=Action.MONITOR,
                severity=Severity.WARNING,
            )
    return None


def _containment(body: str) -> nvlink.Decoded | None:
    """XID 94 and 95 may carry what the driver needs: `RST: Yes|No, D-RST: Yes|No` (reset; drain, then reset)."""
    flags = _RESET_FLAGS.search(body)
    if flags is None or "yes" not in (flags[1].lower(), flags[2].lower()):
        return None
    if flags[2].lower() == "yes":
        why = "uncorrectable memory error; the driver asks to drain the GPU and to reset it (D-RST)"
        return nvlink.Decoded(why=why, action=Action.DRAIN)
    return nvlink.Decoded(why="uncorrectable memory error; the driver asks for a reset (RST)", action=Action.RESET_GPU)


def _remap_failure(body: str) -> nvlink.Decoded | None:
    """XID 64 has texts for a pending remapping (no failure), a full table (replace) and everything between."""
    if _REMAP_PENDING.search(body):
        why = "the row or page is already pending: no failure, a reset activates it"
        return nvlink.Decoded(why=why, action=Action.MONITOR, severity=Severity.WARNING)
    if _REMAP_FULL.search(body):
        why = "no spare rows are left: the vendor's criterion for a replacement"
        return nvlink.Decoded(why=why, action=Action.REPLACE, severity=Severity.FATAL)
    if body.strip(" ,.") and not _REMAP_KNOWN.search(body):
        why = "no driver prints this text: confirm by the remapped-rows state before acting"
        return nvlink.Decoded(why=why, action=Action.MONITOR, severity=Severity.ERROR)
    return None


def _sxid(number: str, device: str | None, text: str) -> Observation:
    plain = Observation(code=f"nvidia.sxid.{int(number)}", device=device)
    if (word := _WORD.match(text)) is None:
        return replace(plain, detail_only=_DETAIL.search(text) is not None)
    if word[1].lower().startswith("non"):
        return replace(plain, action=Action.NONE, severity=Severity.INFO)
    return replace(plain, action=Action.RESET_GPU, severity=Severity.FATAL, scope=Scope.FABRIC)
