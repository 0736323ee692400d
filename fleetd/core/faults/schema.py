"""The schema of `policies/faults/*.yaml`: a field is a key.

The vendor's table is the authority; where an entry asks for something else, `differs` says why. A site's own files are
read last and win.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetd.core.policy import Action
from fleetd.model.finding import FaultClass, Scope, Severity

_CODE = re.compile(r"[a-z0-9_]+(\.[a-z0-9_*-]+)+")
_CLEAR = re.compile(r"on_reset|on_reboot|manual|after\(\d+[smhd]\)|on_test\([a-z]+\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """When the same fault again means more than it did once. Judged where the history is, not in one log."""

    at_least: int
    within_seconds: float
    same: str = "gpu"
    """What must be the same: `gpu`, `gpc_tpc`, `link`, `host`."""
    across_jobs: bool = False
    """Only occurrences under different jobs count: one program repeating its own mistake proves nothing."""
    then: Action
    here: bool = False
    """Also judged within one log, where the details of the lines ask for less."""

    def __post_init__(self) -> None:
        if self.at_least < 2 or self.within_seconds <= 0:  # noqa: PLR2004 - once is no repetition
            raise ValueError("a repeat rule needs at_least of 2 or more and within_seconds above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What entries of one kind share; a fault names it by `like` and may say any of these itself."""

    scope: Scope
    severity: Severity
    action: Action
    fault_class: FaultClass
    clear: str
    investigation: str
    contact_vendor: bool = False
    repeat: Repeat | None = None

    def __post_init__(self) -> None:
        _check_clear(self.clear)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRow:
    """One entry as it stands in a file."""

    code: str
    """`vendor.kind.name`; a `*` in it stands for any text (RAS blocks)."""
    like: str
    meaning: str
    alias: str | None = None
    """Short code; derived for numbered faults (`XID79`)."""
    vendor: str | None = None
    """The vendor's own action, in its words."""
    differs: str | None = None
    """Why the action here is not what the vendor's bucket stands for."""
    scope: Scope | None = None
    severity: Severity | None = None
    action: Action | None = None
    on_gpu: Action | None = None
    """Action when the device is known to be a GPU, for faults that any PCI device can have."""
    fault_class: FaultClass | None = None
    clear: str | None = None
    investigation: str | None = None
    contact_vendor: bool | None = None
    repeat: Repeat | None = None
    follows: tuple[str, ...] = ()
    """Codes that cause this one (globs): near one of them on the same device this is a victim."""
    rewords: str | None = None
    """Code of which this is another wording: on the same device both are one finding."""
    obeyed: bool = False
    """The driver's own word on the recovery it needs: it beats the table for the faults of its device."""
    match: tuple[str, ...] = ()
    """Expressions searched in a line without regard to case; the groups `cpu`, `bank` and `part` are understood."""

    def __post_init__(self) -> None:
        if not _CODE.fullmatch(self.code):
            raise ValueError(f"code `{self.code}` must look like `vendor.kind.name`, in lower case")
        if self.clear is not None:
            _check_clear(self.clear)
        for expression in self.match:
            try:
                re.compile(expression)
            except re.error as error:
                raise ValueError(f"{self.code}: `{expression}` is no regular expression: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """What a site wants otherwise; it wins over the vendor, over fleetd and over what a line's details ask for."""

    code: str
    """Of an entry, or a glob over codes."""
    reason: str
    """Quoted in every finding that it changes."""
    action: Action | None = None
    severity: Severity | None = None
    scope: Scope | None = None

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise ValueError(f"the override of {self.code} needs a reason: it is quoted in every finding")
        if self.action is Action.NOTIFY:
            raise ValueError(f"the override of {self.code}: `notify` is no action of a fault")


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """Two codes on one device that together mean more than each alone."""

    code: str
    beside: tuple[str, ...]
    """Any of these codes (globs) on the same device."""
    action: Action
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUnit:
    """One row group of NVLink5's decode: a unit and error register pattern, and what its status words mean."""

    xid: int
    units: tuple[str, ...]
    """Names that the text may use."""
    v1: str
    """Bits of the first word, drivers before R575, from bit 31 to bit 0; `-` is any."""
    v2: str
    """The same from R575 on."""
    states: Mapping[str, str]
    """Status word in hex, or `any` → `immediate | investigatory | severity`, in the vendor's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBits:
    """Bits of one register of XID 74 and what they mean."""

    register: int
    """1-based, as the vendor counts."""
    bits: tuple[int, ...]
    meaning: str
    action: Action
    severity: Severity
    repeat: Repeat | None = None
    """What the same bit on the same link means when it comes again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueFile:
    """One file of the catalogue."""

    source: str
    version: str
    templates: Mapping[str, Template] = field(default_factory=dict)
    faults: tuple[FaultRow, ...] = ()
    combinations: tuple[Combination, ...] = ()
    link_units: tuple[LinkUnit, ...] = ()
    register_bits: tuple[RegisterBits, ...] = ()
    overrides: tuple[Override, ...] = ()
    harmless: tuple[str, ...] = ()
    """Expressions for lines that look like trouble and are none: they are never listed as unrecognised."""


def _check_clear(clear: str) -> None:
    if not _CLEAR.fullmatch(clear):
        raise ValueError(f"clear `{clear}` is none of on_reset, on_reboot, after(7d), on_test(LEVEL), manual")
