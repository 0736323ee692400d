"""What AMD's counters mean, whatever tool printed them."""

from collections.abc import Iterable

from fleetd.core.faults.documents.found import Found
from fleetd.core.policy import Action
from fleetd.model.finding import Severity

Count = tuple[str, str, float | None, int, str]
"""RAS block (`umc`; `total` for a sum over blocks), kind (`ce`, `ue`, `de`), count, line and text."""

AFID_MAX = 34
"""The last AMD field identifier that the catalogue has."""

_GARBAGE = 0xFFFF0
"""A suspended GPU answers all ones; drivers add that up as 16 counters of 16 bits: a count is a multiple of this."""


def judge_ras(device: str | None, counts: Iterable[Count], found: Found) -> None:
    """Judge the RAS counters of one GPU: uncorrectable and deferred errors; corrected ones are what ECC is for."""
    known = [(block.lower(), kind, int(count), line, text) for block, kind, count, line, text in counts if count]
    garbage = {block for block, kind, count, _, _ in known if kind == "ce" and _is_garbage(count)} & {
        block for block, kind, count, _, _ in known if kind == "ue" and _is_garbage(count)
    }
    blocks = {block for block, kind, _, _, _ in known if kind in ("ue", "de") and block != "total"}
    for block, kind, count, line, text in known:
        if count <= 0 or kind == "ce":
            continue
        if block in garbage:
            found.see(
                "amd.ras.implausible",
                device,
                line,
                text,
                part=block,
                why=f"both counts of {block.upper()} are multiples of {_GARBAGE}: the answer of a GPU that is asleep",
                action=Action.NONE,
                severity=Severity.INFO,
            )
        elif block != "total" or not blocks:  # the total only repeats what a block says
            name = "gpu" if block == "total" else block
            word = "uncorrectable" if kind == "ue" else "deferred"
            found.see(f"amd.ras.{name}.{kind}", device, line, text, why=f"{count} {word} errors in {block.upper()}")


def _is_garbage(count: int) -> bool:
    return count > 0 and count % _GARBAGE == 0


def judge_afid(
    afid: int, severity: str, *, device: str | None, line: int, text: str, found: Found, at: str | None = None
) -> None:
    """Judge an AMD field identifier by the severity that its record has; without one the catalogue's entry counts."""
    word = severity.strip().lower().removeprefix("cper_severity_").replace("_", "-")
    code = f"amd.afid.{afid}"
    if word == "fatal":
        unknown = afid > AFID_MAX  # a newer list than ours: the word alone has to do
        found.see(code, device, line, text, severity=Severity.FATAL, action=Action.DRAIN if unknown else None, at=at)
    elif word.startswith("correct"):
        found.see(code, device, line, text, action=Action.NONE, severity=Severity.INFO, at=at)
    else:
        found.see(code, device, line, text, at=at)
