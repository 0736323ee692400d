"""The fault catalogue: frozen data read from `policies/faults/*.yaml`, and how a code is looked up in it.

The dataclasses are the schema of the files: a field is a key. The vendor's table is the authority; where an entry asks
for something else, `differs` says why. A site's own files are given last to `Catalogue` and win.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from fleetd.core.policy import Action
from fleetd.model.finding import FaultClass, Scope, Severity

_CODE = re.compile(r"[a-z0-9_]+(\.[a-z0-9_*-]+)+")
_CLEAR = re.compile(r"on_reset|on_reboot|manual|after\(\d+[smhd]\)|on_test\([a-z]+\)")
_NUMBERED = {"nvidia.xid.": "XID", "nvidia.sxid.": "SXID", "amd.afid.": "AFID"}
_SHORT = re.compile(r"\s*(?:nvrm:?\s*)?(s?xid|afid)?[\s:._#-]*(\d{1,6})\s*", re.IGNORECASE)


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
class Fault:
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
    """Expressions searched in a line without regard to case; the groups `cpu`, `bank`, `part` and `n` are understood."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueFile:
    """One file of the catalogue."""

    source: str
    version: str
    templates: Mapping[str, Template] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    combinations: tuple[Combination, ...] = ()
    link_units: tuple[LinkUnit, ...] = ()
    register_bits: tuple[RegisterBits, ...] = ()
    harmless: tuple[str, ...] = ()
    """Expressions for lines that look like trouble and are none: they are never listed as unrecognised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One fault, complete: its own words over those of its template."""

    code: str
    alias: str
    meaning: str
    scope: Scope
    severity: Severity
    action: Action
    on_gpu: Action | None
    fault_class: FaultClass
    clear: str
    investigation: str
    contact_vendor: bool
    repeat: Repeat | None
    follows: tuple[str, ...]
    rewords: str | None
    obeyed: bool
    vendor: str | None
    differs: str | None
    match: tuple[str, ...]
    source: str
    version: str
    known: bool = True
    """False: made up for a code that no file has."""


class Catalogue:
    """All entries. Of two with the same code the later one counts. Raises ValueError on a dangling `like`."""

    def __init__(self, files: Iterable[CatalogueFile]) -> None:
        self.combinations: tuple[Combination, ...] = ()
        self.link_units: tuple[LinkUnit, ...] = ()
        self.register_bits: tuple[RegisterBits, ...] = ()
        self.harmless: tuple[str, ...] = ()
        self._entries: dict[str, Entry] = {}
        templates: dict[str, Template] = {}
        for file in files:
            templates.update(file.templates)
            self.combinations += file.combinations
            self.link_units += file.link_units
            self.register_bits += file.register_bits
            self.harmless += file.harmless
            for fault in file.faults:
                if fault.like not in templates:
                    raise ValueError(f"{fault.code}: there is no template `{fault.like}`")
                self._entries[fault.code] = _complete(fault, templates[fault.like], file)
        self._globs = [code for code in self._entries if "*" in code]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, code: str) -> Entry:
        """The entry of a code; one with `known` false (a warning for a human, no action) when no file has it."""
        if code in self._entries:
            return self._entries[code]
        for glob in self._globs:
            if fnmatchcase(code, glob):
                return replace(self._entries[glob], code=code)
        return _unknown(code)

    def find(self, text: str) -> Entry | None:
        """What `fleetd faults explain TEXT` means: a code, an alias, `79`, `xid 79`, `sxid20034`; None if unknown."""
        if (match := _SHORT.fullmatch(text)) is not None:
            kind = (match[1] or "xid").lower()
            # Numbers of five digits are NVSwitch's; nobody types the S when pasting one.
            kind = "sxid" if match[1] is None and len(match[2]) == 5 else kind  # noqa: PLR2004 - see above
            prefix = {"xid": "nvidia.xid.", "sxid": "nvidia.sxid.", "afid": "amd.afid."}[kind]
            entry = self.entry(f"{prefix}{int(match[2])}")
            return entry if entry.known else None
        wanted = text.strip()
        for entry in self._entries.values():
            if entry.code == wanted.lower() or entry.alias.lower() == wanted.lower():
                return entry
        entry = self.entry(wanted.lower())
        return entry if entry.known else None


def alias_of(code: str) -> str:
    """The short code derived from a code: `nvidia.xid.79` → `XID79`, else its last two parts in capitals."""
    for prefix, short in _NUMBERED.items():
        if code.startswith(prefix):
            return short + code.removeprefix(prefix)
    return "_".join(code.split(".")[1:]).upper().replace("-", "_")


def _check_clear(clear: str) -> None:
    if not _CLEAR.fullmatch(clear):
        raise ValueError(f"clear `{clear}` is none of on_reset, on_reboot, after(7d), on_test(LEVEL), manual")


def _complete(fault: Fault, template: Template, file: CatalogueFile) -> Entry:
    return Entry(
        code=fault.code,
        alias=fault.alias or alias_of(fault.code),
        meaning=fault.meaning,
        scope=fault.scope or template.scope,
        severity=template.severity if fault.severity is None else fault.severity,
        action=fault.action or template.action,
        on_gpu=fault.on_gpu,
        fault_class=fault.fault_class or template.fault_class,
        clear=fault.clear or template.clear,
        investigation=fault.investigation or template.investigation,
        contact_vendor=template.contact_vendor if fault.contact_vendor is None else fault.contact_vendor,
        repeat=fault.repeat or template.repeat,
        follows=fault.follows,
        rewords=fault.rewords,
        obeyed=fault.obeyed,
        vendor=fault.vendor,
        differs=fault.differs,
        match=fault.match,
        source=file.source,
        version=file.version,
    )


def _unknown(code: str) -> Entry:
    return Entry(
        code=code,
        alias=alias_of(code),
        meaning="not in the catalogue: a person should look at it",
        scope=Scope.GPU,
        severity=Severity.WARNING,
        action=Action.MONITOR,
        on_gpu=None,
        fault_class=FaultClass.NONE,
        clear="manual",
        investigation="look the code up in the vendor's current table and report it",
        contact_vendor=False,
        repeat=None,
        follows=(),
        rewords=None,
        obeyed=False,
        vendor=None,
        differs=None,
        match=(),
        source="none",
        version="none",
        known=False,
    )
