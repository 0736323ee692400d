"""What the registers and words of NVIDIA's link errors and recovery messages mean.

Sources: NVIDIA's XID catalogue (WORKFLOW_NVLINK_ERR for 74, WORKFLOW_NVLINK5_ERR for 144-150, XID 154); the tables are
data of the catalogue, this module only looks them up.
"""

import re
from dataclasses import dataclass

from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.observation import rank
from fleetd.core.faults.schema import LinkUnit, Repeat
from fleetd.core.policy import Action
from fleetd.model.finding import Scope, Severity

_LINK5 = re.compile(
    r"\b(?P<unit>[a-z0-9_/]{1,40}(?:\s+degraded)?)\s+(?P<word>(?:link\s+)?non-?\s?fatal|(?:link\s+)?fatal)\b"
    r"(?:\s+xc\s*(?P<xc>\d+))?(?:\s+i\s*(?P<inj>\d))?(?:\s+link\s+(?P<link>-?\d+))?"
    r"\s*(?:\((?P<words>[^)]*)\)?)?",
    re.IGNORECASE,
)
_LINK5_BARE = re.compile(
    r"\b(?P<unit>[a-z][a-z0-9_/]{0,40}(?:\s+degraded)?)(?:\s+(?:xc\s*\d+|i\s*\d|link\s+(?P<link>-?\d+)))*"
    r"\s*\((?P<words>\s*0x[^)]*)\)?",
    re.IGNORECASE,
)
"""The same without the severity word: a unit, then at least its registers."""
_HEX = re.compile(r"0x([0-9a-f]{1,8})\b", re.IGNORECASE)
_LINK74 = re.compile(r"link\s*(?P<link>-?\d+)\s*\((?P<words>[^)]*)", re.IGNORECASE)
_RECOVERY = re.compile(
    r"changed\s+from\s+0x[0-9a-f]+\s*(?:\([^)]*\)?)?\s+to\s+(?P<code>0x[0-9a-f]+)\s*(?:\((?P<text>[^)]*))?",
    re.IGNORECASE,
)
_BY_TEXT = (
    ("drain p2p", Action.DRAIN),
    ("drain", Action.DRAIN),
    ("reboot", Action.REBOOT),
    ("imex", Action.DRAIN),
    ("reset", Action.RESET_GPU),
    ("flr", Action.RESET_GPU),
    ("none", Action.NONE),
)
_BY_CODE = {0: Action.NONE, 1: Action.RESET_GPU, 2: Action.REBOOT, 3: Action.DRAIN, 4: Action.DRAIN}
"""NVML's `nvmlDeviceGpuRecoveryAction_t`."""

BUCKETS = {
    "IGNORE": Action.NONE,
    "RESTART_APP": Action.RESTART_APP,
    "XID_154_EVAL": Action.RESTART_APP,
    "RESET_GPU": Action.RESET_GPU,
    "RESTART_BM": Action.REBOOT,
    "RESTART_VM": Action.REBOOT,
}
"""NVIDIA's immediate actions → fleetd's, as far as one word says it. XID_154_EVAL: without a 154 restart the app."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """What the details of one line say."""

    why: str
    part: str = ""
    action: Action | None = None
    severity: Severity | None = None
    scope: Scope | None = None
    repeat: Repeat | None = None


def recovery(text: str) -> Decoded | None:
    """Decode XID 154: the action in words, or its number where the words were cut. None if neither is there."""
    match = _RECOVERY.search(text)
    if match is None:
        cut = "changed from" in text.lower()
        return _unknown_recovery("(cut off)") if cut else None
    words = (match["text"] or "").strip()
    action = next((a for key, a in _BY_TEXT if key in words.lower()), None)
    if action is None and not words:
        action = _BY_CODE.get(int(match["code"], 16))
    shown = words or match["code"]
    if action is None:
        return _unknown_recovery(shown)
    severity = {Action.NONE: Severity.INFO, Action.REBOOT: Severity.FATAL}.get(action, Severity.ERROR)
    scope = Scope.HOST if action is Action.REBOOT else None
    return Decoded(why=f"the driver's recovery action is `{shown}`", action=action, severity=severity, scope=scope)


def _unknown_recovery(shown: str) -> Decoded:
    """A recovery is needed, and no one here knows which: the GPU takes no work until a person has looked."""
    why = f"the driver asks for `{shown}`, an action that is not known here: take the GPU out and look it up"
    return Decoded(why=why, action=Action.DRAIN, severity=Severity.ERROR)


def registers(catalogue: Catalogue, text: str) -> Decoded | None:
    """Decode XID 74's seven registers; None when they are not there."""
    match = _LINK74.search(text)
    if match is None:
        return None
    words = [int(word, 16) for word in _HEX.findall(match["words"])]
    part = f"link {match['link']}"
    found = [
        (rule, [bit for bit in rule.bits if words[rule.register - 1] >> bit & 1])
        for rule in catalogue.register_bits
        if rule.register <= len(words)
    ]
    hits = [(rule, bits) for rule, bits in found if bits]
    if not hits:
        return Decoded(why=f"NVLink error on {part}, no register bit with a meaning is set", part=part)
    said = "; ".join(f"register {r.register} bit {', '.join(map(str, bits))}: {r.meaning}" for r, bits in hits)
    return Decoded(
        why=f"NVLink error on {part}: {said}",
        part=part,
        action=max((r.action for r, _ in hits), key=rank),
        severity=max(r.severity for r, _ in hits),
        repeat=next((r.repeat for r, _ in hits if r.repeat is not None), None),
    )


def link5(catalogue: Catalogue, xid: int, text: str) -> Decoded | None:
    """Decode XID 144-150 by unit, severity word, error register and status; None when the text has no unit.

    The layout of the first word changed with driver R575; the unit's name in the text tells which one fits. Without
    the severity word the table's severity of this register and status stands in its place.
    """
    match = _LINK5.search(text)
    word: str | None = None
    if match is not None:
        word = match["word"].lower()
    else:
        match = _LINK5_BARE.search(text)
    if match is None:
        return None
    unit = match["unit"].upper()
    part = f"link {int(match['link'])}" if match["link"] else ""
    words = [int(word, 16) for word in _HEX.findall(match["words"] or "")]
    immediate, investigation, listed = _look_up(catalogue, xid, unit, words)
    if word is None and not immediate:
        return None
    said = (word or listed).lower()
    fatal = "fatal" in said and "non" not in said
    action = _mapped(immediate, investigation)
    meaning = f"{unit} {'fatal' if fatal else 'non-fatal'}{' on ' + part if part else ''}"
    if immediate:
        meaning += f": {immediate}, then {investigation}"
    if word is None:
        meaning += " (no severity word in the line: that of the table)"
    # The word in the text beats the table's action; the table still tells a harmless non-fatal event from one to watch.
    if fatal and (action is None or rank(action) < rank(Action.RESET_GPU)):
        action = Action.RESET_GPU
    if not fatal and (action is None or rank(action) > rank(Action.RESTART_APP)):
        action = Action.MONITOR
    severity = Severity.FATAL if fatal else Severity.INFO
    return Decoded(why=meaning, part=part, action=action, severity=severity, scope=Scope.LINK)


def _look_up(catalogue: Catalogue, xid: int, unit: str, words: list[int]) -> tuple[str, str, str]:
    """The vendor's immediate and investigatory action and severity; empty words when no row fits."""
    names = set(unit.split("/")) | {unit}
    rows = [row for row in catalogue.link_units if row.xid == xid and names & set(row.units)]
    rows = [row for row in rows if not words or _fits(words[0], row.v1) or _fits(words[0], row.v2)] or (
        rows if not words else []
    )
    status = words[1] if len(words) > 1 else None
    best: tuple[str, str, str] = ("", "", "")
    for row in rows:
        for state in _states(row, status):
            immediate, investigation, severity = (part.strip() for part in state.split("|", 2))
            if rank(_mapped(immediate, investigation) or Action.NONE) >= rank(_mapped(*best[:2]) or Action.NONE):
                best = (immediate, investigation, severity)
    return best


def _states(row: LinkUnit, status: int | None) -> list[str]:
    """States of a row for a status word: the one with exactly this value, else those whose bits are set."""
    if "any" in row.states:
        return [row.states["any"]]
    if status is None:
        return []
    values = {int(key, 16): state for key, state in row.states.items()}
    if status in values:
        return [values[status]]
    return [state for value, state in values.items() if value and status & value == value]


def _fits(word: int, mask: str) -> bool:
    return all(c == "-" or int(c) == word >> (31 - n) & 1 for n, c in enumerate(mask))


def _mapped(immediate: str, investigation: str) -> Action | None:
    if not immediate:
        return None
    action = BUCKETS.get(immediate)
    if action is Action.NONE and investigation != "IGNORE":
        return Action.MONITOR  # nothing to do at once, but it is to be looked at
    return action
